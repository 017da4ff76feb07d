//! Classifies errors by their effect on ids.
//!
//! Every script changes a sequence last and with one command, so after an error with a known code from the
//! server, no ids were reserved. Any other error may come from a proxy, or occur after the write, so the
//! outcome is unknown.

use std::borrow::Cow;

use idmill::ErrorKind;
use idmill_tls::resp::Dialect;

pub(crate) use idmill_kit::Asked;
pub(crate) use idmill_tls::resp::Fault;

pub(crate) const REDIS: Dialect = Dialect {
    name: "redis",
    of_code,
    remedy,
    stranger: "check that this is the address of a Redis server, and whether it uses TLS (`rediss://`)",
};

fn of_code(code: &str, detail: &str) -> ErrorKind {
    match code {
        // Returned before a command runs, or by a script's first write.
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "READONLY" | "BUSY" | "OOM" | "MISCONF"
        | "NOREPLICAS" | "NOSCRIPT" => ErrorKind::Unavailable,
        "MOVED" | "ASK" | "CROSSSLOT" => ErrorKind::Unsupported,
        "NOAUTH" | "WRONGPASS" | "NOPERM" => ErrorKind::Denied,
        // The key exists, but with another type.
        "WRONGTYPE" => ErrorKind::Conflict,
        // How Redis 7.0 reports NOPERM inside a script. The denied call was not executed.
        "ERR" if detail.starts_with("The user executing the script can't") => ErrorKind::Denied,
        "ERR" if detail.starts_with("unknown command") => ErrorKind::Unsupported,
        // While connecting: the database number comes from the URL.
        "ERR" if detail.starts_with("DB index is out of range") => ErrorKind::InvalidInput,
        "ERR" if detail.starts_with("max number of clients") => ErrorKind::Unavailable,
        // Includes UNBLOCKED, which ends a WAIT after the write when the server becomes a replica.
        _ => ErrorKind::UnknownOutcome,
    }
}

fn remedy(code: &str, kind: ErrorKind) -> Option<Cow<'static, str>> {
    let remedy = match (code, kind) {
        ("READONLY", _) => "the server is a replica; name the master",
        ("OOM", _) => "raise its `maxmemory`",
        ("MISCONF", _) => "check the server's disk, which is not writable",
        ("MOVED" | "ASK", _) => {
            "the server is one node of a cluster; name the node that has the slot of the \
                                 prefix"
        }
        ("WRONGTYPE", _) => "the key is not idmill's; choose another prefix",
        ("NOAUTH", _) => {
            "the password is missing; write `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST` for \
             the default user"
        }
        ("ERR", ErrorKind::InvalidInput) => {
            "the number after the host is a database; use one below the server's setting `databases` \
             (default 16)"
        }
        (_, ErrorKind::Denied) => {
            "check the login; grant EVALSHA, SCRIPT, INFO, CONFIG GET, WAIT, and keyspace, hash and set \
             commands under the prefix"
        }
        (_, ErrorKind::UnknownOutcome) => "the request may have been applied",
        (_, ErrorKind::Unavailable) => "nothing was changed",
        _ => return None,
    };
    Some(remedy.into())
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind::{Conflict, Denied, Unavailable, UnknownOutcome, Unsupported};

    use idmill::Error;
    use idmill_tls::resp::ErrorReply;

    use super::*;

    fn server(text: &str) -> Fault {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        ErrorReply::new(code, Some(detail)).into()
    }

    /// Errors that Redis 7.0.15 returned to these scripts while the server was in the state that the code
    /// names.
    fn from_redis() -> Vec<(Fault, ErrorKind)> {
        [
            ("LOADING Redis is loading the dataset in memory", Unavailable),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Unavailable),
            ("READONLY You can't write against a read only replica. script: ec6777, on @user_script:1.", Unavailable),
            ("NOREPLICAS Not enough good replicas to write. script: ec6777, on @user_script:1.", Unavailable),
            ("OOM command not allowed when used memory > 'maxmemory'. script: ec6777, on @user_script:1.", Unavailable),
            ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", Unavailable),
            ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", Unavailable),
            ("CLUSTERDOWN Hash slot not served", Unavailable),
            ("NOSCRIPT No matching script. Please use EVAL.", Unavailable),
            ("ERR max number of clients reached", Unavailable),
            ("NOAUTH Authentication required.", Denied),
            ("WRONGPASS invalid username-password pair or user is disabled.", Denied),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Denied),
            ("NOPERM this user has no permissions to access one of the keys used as arguments", Denied),
            ("ERR The user executing the script can't run this command or subcommand script: ec6777", Denied),
            ("WRONGTYPE Operation against a key holding the wrong kind of value script: ec6777", Conflict),
            ("ERR unknown command 'EVALSHA', with args beginning with: 'a' '0' ", Unsupported),
        ]
        .map(|(text, kind)| (server(text), kind))
        .to_vec()
    }

    /// Errors that only a cluster or a proxy returns, and unknown future ones.
    fn from_documentation() -> Vec<(Fault, ErrorKind)> {
        [
            ("MOVED 3999 127.0.0.1:6381", Unsupported),
            ("ASK 3999 127.0.0.1:6381", Unsupported),
            ("CROSSSLOT Keys in request don't hash to the same slot", Unsupported),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable),
            ("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", UnknownOutcome),
            ("ERR Connection timed out", UnknownOutcome),
            ("upstream failure", UnknownOutcome),
            ("NEWCODE of a later version", UnknownOutcome),
        ]
        .map(|(text, kind)| (server(text), kind))
        .to_vec()
    }

    #[test]
    fn failures_of_a_write_are_classified() {
        let ours = [
            (Fault::lost("broken pipe"), UnknownOutcome),
            (Fault::NotSent(Error::new(Denied, "no")), Denied),
        ];
        for (fault, kind) in from_redis().into_iter().chain(from_documentation()).chain(ours) {
            assert_eq!(REDIS.classify(&fault, Asked::Write), kind, "{fault}");
            assert_eq!(REDIS.failed(&fault, Asked::Write, &"h:1").kind(), kind, "{fault}");
        }
    }

    #[test]
    fn failed_read_is_never_an_unknown_outcome() {
        for (fault, written) in from_redis().into_iter().chain(from_documentation()) {
            let kind = REDIS.classify(&fault, Asked::Read);
            assert_eq!(kind, if written == UnknownOutcome { Unavailable } else { written }, "{fault}");
        }
    }

    #[test]
    fn rejection_names_the_address_and_the_remedy() {
        for (text, remedy) in [
            ("READONLY x", "name the master"),
            ("MOVED 1 h:2", "name the node"),
            ("NOPERM x", "EVALSHA"),
            ("BUSY x", "nothing was changed"),
            ("NEW x", "the request may have been applied"),
        ] {
            let error = REDIS.failed(&server(text), Asked::Write, &"db1:6379").to_string();
            assert!(error.contains(remedy) && error.contains("db1:6379") && error.contains(text), "{error}");
        }
    }
}
