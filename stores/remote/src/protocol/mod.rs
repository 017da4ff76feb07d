//! What a client and a server say to each other.
//!
//! A client sends the command `IDMILL.STORE VERSION REQUEST`, of Redis' protocol. The answer is a bulk
//! string, or an error of Redis' protocol where the server does not know the version, or the client.
//! [`Request`] and [`Answer`] are JSON, and an answer repeats the number of its request, so that one to
//! another request is noticed.
//!
//! Whatever a request says more than these types know is refused, and not ignored: a server does what it was
//! asked, or nothing. So what is added to a request makes another [version](VERSION).
//!
//! The types are here, and not in the server's crate, so that a client has no server with it. The server's
//! crate depends on this one without the feature `client`, and so on no driver.

mod fault;
mod rows;

use idmill::store::{Bounds, Capabilities, Change, Grant, Identity, Page, Reserve, SequenceInfo};
use idmill::{Error, IdRange, Result, SequenceName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use fault::Fault;
pub use rows::{Records, Row, Rows};

/// The command.
pub const COMMAND: &str = "IDMILL.STORE";
/// Of what is said here. A server refuses any other with [`UNKNOWN_VERSION`].
pub const VERSION: u32 = 1;
/// The code of the error for a version that the server does not speak.
pub const UNKNOWN_VERSION: &str = "NOPROTO";
/// How many sequences are reserved from, or read, in one request at most.
pub const MOST: usize = 256;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The client's, for the answer.
    pub number: u64,
    /// What is asked.
    pub ask: Ask,
}

/// The calls of [`Store`](idmill::store::Store).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)] // they are the store's own
pub enum Ask {
    /// What the store can do: the first request of a connection.
    Capabilities,
    Reserve(Vec<Reserve>),
    GiveBack {
        name: SequenceName,
        identity: Identity,
        rest: IdRange<u64>,
    },
    Create {
        name: SequenceName,
        bounds: Bounds,
    },
    Inspect(Vec<SequenceName>),
    List(Page),
    Set {
        name: SequenceName,
        change: Change,
    },
    Remove(SequenceName),
    Record(SequenceName),
    SwapRecord {
        name: SequenceName,
        seen: Option<String>,
        wanted: String,
    },
    ListRecords(Page),
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The request's.
    pub number: u64,
    /// What the store said.
    pub said: Said,
}

/// What the store said, for each kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)] // they are the store's own
pub enum Said {
    Capabilities(Capabilities),
    /// In the order of the requests.
    Grants(Vec<Outcome<Grant>>),
    /// In the order of the names.
    Sequences(Vec<Outcome<Option<SequenceInfo>>>),
    /// As it is now.
    Sequence(SequenceInfo),
    Rows(Rows),
    Record(Option<String>),
    Records(Records),
    /// Whether it was done: taken back, removed or written.
    Done(bool),
    Failed(Fault),
}

/// What came of one of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome<T> {
    /// This.
    Ok(T),
    /// Nothing, as far as the error says so.
    Failed(Fault),
}

impl Request {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// As it was sent.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for what is no request of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode(bytes)
    }
}

impl Answer {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// As it was sent.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for what is no answer of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode(bytes)
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("its keys are texts")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Error::invalid(error.to_string()))
}

impl<T> Outcome<T> {
    /// Of what a store returned.
    pub fn of(result: Result<T>) -> Self {
        result.map_or_else(|error| Self::Failed(Fault::of(&error)), Self::Ok)
    }

    /// As the store returned it.
    ///
    /// # Errors
    /// The store's.
    pub fn result(self) -> Result<T> {
        match self {
            Self::Ok(value) => Ok(value),
            Self::Failed(fault) => Err(fault.error()),
        }
    }
}

#[cfg(test)]
mod tests;
