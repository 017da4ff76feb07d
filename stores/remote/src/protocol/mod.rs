//! The messages between a client and a server.
//!
//! A client sends the command `IDMILL.STORE VERSION REQUEST` in Redis' protocol. The reply is a bulk string,
//! or a Redis error if the server rejects the version, the client or the request. [`Request`] and [`Answer`]
//! are JSON. An answer repeats the number of its request, so that a mismatched answer is detected.
//!
//! A request with unknown fields, except in bounds and ranges, is rejected, and no part of it is executed. So
//! a new field in a request needs a new [version](VERSION).
//!
//! The types are in this crate so that a client does not depend on the server. The server's crate uses this
//! crate without the feature `client`, and so without a driver.

mod rows;
mod wire_error;

use idmill::store::{Bounds, Capabilities, Change, Grant, Identity, Page, Reserve, SequenceInfo};
use idmill::{Error, IdRange, Result, SequenceName};
use idmill_kit::Asked;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use rows::{Records, Row, Rows};
pub use wire_error::WireError;

/// The name of the command.
pub const COMMAND: &str = "IDMILL.STORE";
/// The version of this protocol. A server rejects any other version with [`UNKNOWN_VERSION`].
pub const VERSION: u32 = 1;
/// The error code for a version that the server does not support.
pub const UNKNOWN_VERSION: &str = "NOPROTO";
/// Maximum number of sequences to reserve from, or to read, in one request.
pub const MOST: usize = 256;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// A number that the client chooses and the answer repeats.
    pub number: u64,
    /// The requested call.
    pub ask: Ask,
}

/// A call of [`Store`](idmill::store::Store).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)] // the calls of `Store`
pub enum Ask {
    /// Reads the store's capabilities. This is the first request of a connection.
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
    /// Removes a sequence that still has this identity. An earlier release rejects this request as invalid.
    RemoveIf {
        name: SequenceName,
        identity: Identity,
    },
    Record(SequenceName),
    SwapRecord {
        name: SequenceName,
        seen: Option<String>,
        wanted: String,
    },
    ListRecords(Page),
    /// Reads the identity of the server behind this one. An earlier release rejects this request as invalid.
    Server,
}

impl Ask {
    /// Returns whether the call reads or writes, which decides its error if there is no answer in time.
    pub fn asked(&self) -> Asked {
        match self {
            Self::Capabilities
            | Self::Inspect(_)
            | Self::List(_)
            | Self::Record(_)
            | Self::ListRecords(_)
            | Self::Server => Asked::Read,
            _ => Asked::Write,
        }
    }
}

/// An answer of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The number of the request.
    pub number: u64,
    /// The result.
    pub said: Said,
}

/// The result of a request, with a variant for each kind of result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)] // the results of `Store`
pub enum Said {
    Capabilities(Capabilities),
    /// The results of a reserve, in the order of the requests.
    Grants(Vec<Outcome<Grant>>),
    /// The results of an inspect, in the order of the names.
    Sequences(Vec<Outcome<Option<SequenceInfo>>>),
    /// The state of a sequence after it was created or set.
    Sequence(SequenceInfo),
    Rows(Rows),
    Record(Option<String>),
    Records(Records),
    Server(Option<String>),
    /// Whether the range was taken back, the sequence removed, or the record written.
    Done(bool),
    Failed(WireError),
}

/// The result of one item in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome<T> {
    /// Success.
    Ok(T),
    /// An error. Its kind shows whether the request may have been executed.
    Failed(WireError),
}

impl Request {
    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the bytes are not a request of this
    /// version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode(bytes)
    }
}

impl Answer {
    /// Encodes the answer.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the bytes are not an answer of this
    /// version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode(bytes)
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("the keys of a JSON object are strings")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Error::invalid(error.to_string()))
}

impl<T> Outcome<T> {
    /// Converts a store's result.
    pub fn of(result: Result<T>) -> Self {
        result.map_or_else(|error| Self::Failed(WireError::of(&error)), Self::Ok)
    }

    /// Converts back to a result of the store.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub fn result(self) -> Result<T> {
        match self {
            Self::Ok(value) => Ok(value),
            Self::Failed(fault) => Err(fault.error()),
        }
    }
}

#[cfg(test)]
mod tests;
