//! The messages of etcd's API (v3) that this crate uses, with the field numbers of its `rpc.proto`.
//!
//! The messages are written by hand, since crates that generate them need `protoc` at build time. Fields not
//! listed here are not sent, and skipped on receipt.

use idmill::{Error, ErrorKind, Result};
use prost::{Message, Oneof};

/// A request, its method, and its answer.
pub(super) trait Call: Message + Clone + 'static {
    const PATH: &'static str;
    type Answer: Message + Default + 'static;
}

impl Call for Range {
    const PATH: &'static str = "/etcdserverpb.KV/Range";
    type Answer = RangeAnswer;
}

impl Call for Txn {
    const PATH: &'static str = "/etcdserverpb.KV/Txn";
    type Answer = TxnAnswer;
}

impl Call for Authenticate {
    const PATH: &'static str = "/etcdserverpb.Auth/Authenticate";
    type Answer = Authenticated;
}

/// Part of every answer: the cluster, and its revision.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// The cluster's revision at the key's last write.
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
}

/// Linearizable, since `serializable` (7) is omitted.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// Exclusive; empty for a single key.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

/// A condition on a key. `result` (1) is omitted, which means EQUAL.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Operand", tags = "5, 6, 7")]
    operand: Option<Operand>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
enum Operand {
    #[prost(int64, tag = "5")]
    Created(i64),
    #[prost(int64, tag = "6")]
    Modified(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

impl Compare {
    /// The key does not exist.
    pub(super) fn absent(key: &[u8]) -> Self {
        Self { target: 1, key: key.to_vec(), operand: Some(Operand::Created(0)) }
    }

    /// The key was last written at this revision.
    pub(super) fn modified(key: &[u8], revision: i64) -> Self {
        Self { target: 2, key: key.to_vec(), operand: Some(Operand::Modified(revision)) }
    }

    /// The key has this value.
    pub(super) fn value(key: &[u8], value: &[u8]) -> Self {
        Self { target: 3, key: key.to_vec(), operand: Some(Operand::Value(value.to_vec())) }
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Step {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    request: Option<Request>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
}

/// Atomically runs `success` if all comparisons hold, and `failure` otherwise.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Step>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<Step>,
}

impl Txn {
    pub(super) fn new(compare: Vec<Compare>, success: Request, failure: Request) -> Self {
        let step = |request| vec![Step { request: Some(request) }];
        Self { compare, success: step(success), failure: step(failure) }
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) answers: Vec<StepAnswer>,
}

impl TxnAnswer {
    /// The keys found by the transaction's single range.
    pub(super) fn found(self) -> Result<Vec<KeyValue>> {
        let range = self.answers.into_iter().next().and_then(|answer| answer.range);
        range.map(|range| range.kvs).ok_or_else(|| {
            let message = "the reply to a transaction lacks the stored value";
            Error::new(ErrorKind::StoreViolation, message)
        })
    }
}

/// Only the answer to a range is decoded.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StepAnswer {
    #[prost(message, optional, tag = "1")]
    range: Option<RangeAnswer>,
}

/// Has no `Debug`, because that of `prost` would print the password.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub(super) struct Authenticate {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub(super) struct Authenticated {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}
