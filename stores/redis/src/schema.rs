//! The Redis keys of sequences, and the arguments and answers of the scripts.

use idmill::store::{Bounds, GiveBack, Grant, Identity, Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, IdRange, Result, SequenceName};
use idmill_kit::Numbers;
use idmill_kit::history::Failover;

use super::classify::{Asked, Fault};
use super::connection::{Answer, Call};

macro_rules! script {
    ($of:literal $file:literal) => {
        concat!(
            include_str!("scripts/prelude.lua"),
            include_str!("scripts/refusal.lua"),
            include_str!($of),
            include_str!($file)
        )
    };
    ($file:literal) => {
        script!("scripts/sequence.lua" $file)
    };
}

const RESERVE: &str = script!("scripts/reserve.lua");
const GIVE_BACK: &str = script!("scripts/give_back.lua");
const CREATE: &str = script!("scripts/create.lua");
const READ: &str = script!("scripts/read.lua");
const SET: &str = script!("scripts/set.lua");
const REMOVE: &str = script!("scripts/remove.lua");
const MOVED: &str = script!("scripts/moved.lua");
const READ_RECORD: &str = script!("scripts/record.lua" "scripts/read_record.lua");
const SWAP_RECORD: &str = script!("scripts/record.lua" "scripts/swap_record.lua");
const SERVER: &str = script!("scripts/record.lua" "scripts/server.lua");
pub(super) const SCRIPTS: [&str; 10] =
    [RESERVE, GIVE_BACK, CREATE, READ, SET, REMOVE, MOVED, READ_RECORD, SWAP_RECORD, SERVER];

/// The keys of one prefix: a hash per sequence and a set of their names; the same for records. The braces
/// put all keys into one cluster slot, so that a script may use two of them.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    prefix: String,
    pub(super) failover: Failover,
}

impl Schema {
    pub(super) fn new(prefix: &str, failover: Failover) -> Self {
        Self { prefix: prefix.to_owned(), failover }
    }

    /// The set of names.
    pub(super) fn names(&self) -> String {
        format!("{{{}}}:names", self.prefix)
    }

    pub(super) fn key(&self, name: &SequenceName) -> String {
        format!("{{{}}}:s:{name}", self.prefix)
    }

    fn call(&self, script: &'static str, name: &SequenceName, arguments: Vec<String>) -> Call {
        let asked = if matches!(script, READ | MOVED) { Asked::Read } else { Asked::Write };
        Call { script, keys: vec![self.key(name), self.names()], arguments, asked }
    }

    pub(super) fn reserve(&self, request: &Reserve) -> Call {
        let name = &request.name;
        // Empty if the sequence must already exist.
        let bound =
            |of: fn(Bounds) -> u64| request.create.map_or_else(String::new, |create| of(create).to_string());
        let failover = match self.failover {
            Failover::Refuse => Failover::Refuse.to_string(),
            goes_on => goes_on.skips().to_string(),
        };
        let mut arguments = vec![failover, request.count.max(1).to_string(), request.ceiling.to_string()];
        arguments.extend([name.to_string(), bound(Bounds::start), bound(Bounds::max)]);
        arguments.push(Identity::fresh().incarnation.to_string());
        self.call(RESERVE, name, arguments)
    }

    pub(super) fn give_back(&self, back: &GiveBack) -> Call {
        let Identity { incarnation, epoch } = back.identity;
        let numbers = [incarnation.into(), epoch.into(), back.rest.start().into(), back.rest.end()];
        let arguments = numbers.map(|number: u128| number.to_string()).into();
        self.call(GIVE_BACK, &back.name, arguments)
    }

    pub(super) fn create(&self, info: &SequenceInfo) -> Call {
        let numbers = [info.bounds.start(), info.bounds.max(), info.identity.incarnation];
        let mut arguments = vec![info.name.to_string()];
        arguments.extend(numbers.map(|number| number.to_string()));
        self.call(CREATE, &info.name, arguments)
    }

    pub(super) fn read(&self, name: &SequenceName) -> Call {
        self.call(READ, name, Vec::new())
    }

    pub(super) fn moved(&self, name: &SequenceName) -> Call {
        self.call(MOVED, name, Vec::new())
    }

    /// `anew`: whether the change sets `next` for the current history.
    pub(super) fn set(&self, seen: &SequenceInfo, after: &SequenceInfo, anew: bool) -> Call {
        let (bounds, was) = (seen.bounds, seen.identity);
        let mut numbers = vec![bounds.start().into(), bounds.max().into(), seen.reached()];
        numbers.extend([was.incarnation, was.epoch, after.bounds.max()].map(u128::from));
        numbers.extend([after.reached(), after.identity.epoch.into()]);
        let mut arguments: Vec<_> = numbers.iter().map(u128::to_string).collect();
        arguments.push(if anew { "next" } else { "" }.to_owned());
        self.call(SET, &seen.name, arguments)
    }

    pub(super) fn remove(&self, name: &SequenceName, expected: Option<Identity>) -> Call {
        let identity =
            expected.map(|Identity { incarnation, epoch }| [incarnation, epoch].map(|n| n.to_string()));
        let arguments = [name.to_string()].into_iter().chain(identity.into_iter().flatten()).collect();
        self.call(REMOVE, name, arguments)
    }

    /// The set of the names of records.
    pub(super) fn record_names(&self) -> String {
        format!("{{{}}}:witness", self.prefix)
    }

    pub(super) fn record_key(&self, name: &SequenceName) -> String {
        format!("{{{}}}:w:{name}", self.prefix)
    }

    /// Creates the call that reads the run id of the server. The id does not depend on the prefix.
    pub(super) fn server(&self) -> Call {
        Call { script: SERVER, keys: vec![self.record_names()], arguments: Vec::new(), asked: Asked::Read }
    }

    pub(super) fn read_record(&self, name: &SequenceName) -> Call {
        let keys = vec![self.record_key(name), self.record_names()];
        Call { script: READ_RECORD, keys, arguments: Vec::new(), asked: Asked::Read }
    }

    pub(super) fn swap_record(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Call {
        let keys = vec![self.record_key(name), self.record_names()];
        // Records have no ids to skip, so a failover is either allowed or refused.
        let failover = if self.failover == Failover::Allow { "allow" } else { "refuse" };
        let texts = [failover, name, wanted].into_iter().chain(seen);
        let arguments = texts.map(str::to_owned).collect();
        Call { script: SWAP_RECORD, keys, arguments, asked: Asked::Write }
    }
}

/// Returns the answer, or the error of a refusal that several scripts share.
pub(super) fn checked(answer: Answer, key: &str) -> Result<Answer> {
    Err(match answer.word() {
        "replica" => Error::new(ErrorKind::Unavailable, "the server became a replica; name the master"),
        "foreign" => Error::new(
            ErrorKind::StoreViolation,
            format!(
                "the key `{key}` has a value that idmill did not write; choose another prefix, or correct \
                 the value"
            ),
        ),
        "forgetful" => Error::new(
            ErrorKind::Conflict,
            "another master wrote this record, so it may be outdated; if the guarded store was not restored, \
             set `failover=allow`",
        ),
        _ => return Ok(answer),
    })
}

/// Reads the master that wrote the sequence last, and this server, from an answer, starting at word `from`.
/// `None` if they are the same. They differ after this server was a replica of another master.
pub(super) fn masters(answer: &Answer, from: usize) -> Option<[String; 2]> {
    let word = |at| answer.words.get(at).filter(|word: &&String| !word.is_empty());
    Some([word(from)?, word(from + 1)?].map(|replid| format!("master {replid}")))
}

/// Index of [`masters`] in a granted and in a refused reserve.
pub(super) const GRANTED_BY: usize = 7;
pub(super) const REFUSED_BY: usize = 1;

/// Decodes a granted reserve.
pub(super) fn granted(answer: &Answer, request: &Reserve) -> Result<Grant, Fault> {
    let info = decode(answer, &request.name)?;
    let (first, past) = (answer.number(6)?, info.reached());
    let len = u64::try_from(past.saturating_sub(first.into())).unwrap_or(0);
    let within = first >= info.bounds.start()
        && past <= u128::from(info.bounds.max()) + 1
        && len <= request.count.max(1);
    match IdRange::new(first, len).filter(|range| within && !range.is_empty()) {
        Some(range) => Ok(Grant::new(range, info.identity, info.bounds)),
        None => Err(answer.garbled()),
    }
}

/// Decodes a sequence from a script's answer.
pub(super) fn decode(answer: &Answer, name: &SequenceName) -> Result<SequenceInfo, Fault> {
    // Only `next` can be 2^64.
    let number = |at| answer.number(at).map(i128::from);
    let next = answer.words.get(3).and_then(|word| word.parse().ok()).ok_or_else(|| answer.garbled())?;
    let (start, max, incarnation, epoch) = (number(1)?, number(2)?, number(4)?, number(5)?);
    let numbers = Numbers { next: Some(next), start, max, incarnation, epoch };
    numbers.or_used_up(name.clone()).map_err(|_| answer.garbled())
}
