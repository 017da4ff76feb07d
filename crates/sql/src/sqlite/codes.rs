//! The result codes of SQLite that are told apart: <https://sqlite.org/rescode.html>.

pub(super) const ERROR: i32 = 1;
pub(super) const PERM: i32 = 3;
pub(super) const ABORT: i32 = 4;
pub(super) const BUSY: i32 = 5;
pub(super) const LOCKED: i32 = 6;
pub(super) const NOMEM: i32 = 7;
pub(super) const READONLY: i32 = 8;
pub(super) const INTERRUPT: i32 = 9;
pub(super) const IOERR: i32 = 10;
pub(super) const CORRUPT: i32 = 11;
pub(super) const FULL: i32 = 13;
pub(super) const CANTOPEN: i32 = 14;
pub(super) const PROTOCOL: i32 = 15;
pub(super) const SCHEMA: i32 = 17;
pub(super) const TOOBIG: i32 = 18;
pub(super) const CONSTRAINT: i32 = 19;
pub(super) const NOLFS: i32 = 22;
pub(super) const AUTH: i32 = 23;
pub(super) const NOTADB: i32 = 26;

pub(super) const BUSY_SNAPSHOT: i32 = extended(BUSY, 2);
pub(super) const READONLY_DBMOVED: i32 = extended(READONLY, 4);
pub(super) const IOERR_WRITE: i32 = extended(IOERR, 3);
pub(super) const IOERR_FSYNC: i32 = extended(IOERR, 4);
pub(super) const IOERR_TRUNCATE: i32 = extended(IOERR, 6);
pub(super) const IOERR_SHMSIZE: i32 = extended(IOERR, 19);
pub(super) const IOERR_SHMMAP: i32 = extended(IOERR, 21);
pub(super) const IOERR_CORRUPTFS: i32 = extended(IOERR, 33);

/// What fails for want of room.
pub(super) const WRITES: [i32; 5] = [IOERR_SHMSIZE, IOERR_SHMMAP, IOERR_WRITE, IOERR_FSYNC, IOERR_TRUNCATE];

/// An extended result code.
pub(super) const fn extended(primary: i32, detail: i32) -> i32 {
    primary | (detail << 8)
}

/// The result code that an extended one belongs to.
pub(super) const fn primary(extended: i32) -> i32 {
    extended & 0xff
}
