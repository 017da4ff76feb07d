//! PostgreSQL's own sequences.
use std::fmt;
use crate::error::{Error, ErrorKind, Result};
use crate::store::*;
use crate::name::SequenceName;
use super::session::Sessions;
use super::Mode;
use crate::store::url::query::refuse;
/// x
#[derive(Clone)]
pub struct NativeSequences;
impl NativeSequences { pub(super) async fn over(_s: Sessions, _schema: Option<&str>, _i: u64, _m: Mode) -> Result<Self> { Err(Error::new(ErrorKind::Unsupported, "")) } }
pub(super) fn parse_increment(value: &str) -> Result<u64> { value.parse().map_err(|_| refuse("increment")) }
pub(super) fn check_increment(_: u64) -> Result<()> { Ok(()) }
impl fmt::Debug for NativeSequences { fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result { Ok(()) } }
impl Store for NativeSequences {
    fn capabilities(&self) -> Capabilities { unreachable!() }
    fn reserve<'a>(&'a self, _: &'a Reserve) -> StoreFuture<'a, Result<Grant>> { unreachable!() }
    fn create<'a>(&'a self, _: &'a SequenceName, _: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> { unreachable!() }
    fn inspect<'a>(&'a self, _: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> { unreachable!() }
    fn list(&self) -> StoreFuture<'_, Result<Vec<SequenceInfo>>> { unreachable!() }
    fn set<'a>(&'a self, _: &'a SequenceName, _: Change) -> StoreFuture<'a, Result<SequenceInfo>> { unreachable!() }
    fn remove<'a>(&'a self, _: &'a SequenceName) -> StoreFuture<'a, Result<bool>> { unreachable!() }
}
