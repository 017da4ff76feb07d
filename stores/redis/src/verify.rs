//! Checks on every new connection whether the server's configuration is safe for sequences.

use std::collections::HashMap;

use idmill::{Error, ErrorKind, Result};

/// Requirements for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demands {
    /// It is a master.
    Master,
    /// Also, it evicts none of our keys.
    Keeps,
    /// Also, an answered grant survives a crash.
    Disk,
}

/// Rejects a server that does not meet the demands. `info` is the answer to INFO; `config` is the answer to
/// `CONFIG GET *append*`, empty if that failed.
pub(crate) fn verify(demands: Demands, info: &str, config: &HashMap<String, String>) -> Result<()> {
    let is = |key: &str| {
        info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap_or_default()
    };
    if is("role") != "master" {
        let master = format!("{}:{}", is("master_host"), is("master_port"));
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!("the server is a replica; name its master, {master}"),
        ));
    }
    if demands == Demands::Master {
        return Ok(());
    }
    let policy = is("maxmemory_policy");
    if policy.starts_with("allkeys") {
        return Err(unsupported(format!(
            "maxmemory-policy {policy} would evict sequences; run `CONFIG SET maxmemory-policy noeviction` \
             (or `volatile-lru`)"
        )));
    }
    if demands == Demands::Keeps {
        return Ok(());
    }
    let set = |key: &str| config.get(key).map_or("", String::as_str);
    let wanted = [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
    let wrong: Vec<_> = wanted.iter().filter(|(key, value)| set(key) != *value).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let remedy: Vec<_> = wrong.iter().map(|(key, value)| format!("CONFIG SET {key} {value}")).collect();
    Err(unsupported(format!(
        "a crash would lose grants; run {} and change the configuration file, or set `?durability=process` \
         (`Keeps::Process`)",
        remedy.join(", ")
    )))
}

/// The error for a server that does not report its configuration.
pub(crate) fn unverified(reason: &str) -> Error {
    let remedy = "set `?durability=trust` if it has appendonly yes, appendfsync always, \
                  no-appendfsync-on-rewrite no; else `process`";
    unsupported(format!("cannot check whether the server keeps grants ({reason}): {remedy}"))
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}
