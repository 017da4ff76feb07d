//! The result codes of SQLite that idmill distinguishes: <https://sqlite.org/rescode.html>.

macro_rules! codes {
    ($($name:ident = $code:expr),*) => { $(pub(super) const $name: i32 = $code;)* };
}

codes! {
    ERROR = 1, PERM = 3, ABORT = 4, BUSY = 5, LOCKED = 6, NOMEM = 7, READONLY = 8, INTERRUPT = 9, IOERR = 10,
    CORRUPT = 11, FULL = 13, CANTOPEN = 14, PROTOCOL = 15, SCHEMA = 17, TOOBIG = 18, CONSTRAINT = 19,
    NOLFS = 22, AUTH = 23, NOTADB = 26, BUSY_SNAPSHOT = extended(BUSY, 2),
    READONLY_DBMOVED = extended(READONLY, 4), IOERR_WRITE = extended(IOERR, 3), IOERR_FSYNC = extended(IOERR, 4),
    IOERR_TRUNCATE = extended(IOERR, 6), IOERR_SHMSIZE = extended(IOERR, 19), IOERR_SHMMAP = extended(IOERR, 21),
    IOERR_CORRUPTFS = extended(IOERR, 33)
}

/// Codes of writes that fail on a full disk.
pub(super) const WRITES: [i32; 5] = [IOERR_SHMSIZE, IOERR_SHMMAP, IOERR_WRITE, IOERR_FSYNC, IOERR_TRUNCATE];

/// Builds an extended result code.
pub(super) const fn extended(primary: i32, detail: i32) -> i32 {
    primary | (detail << 8)
}

/// Returns the primary result code of an extended one.
pub(super) const fn primary(extended: i32) -> i32 {
    extended & 0xff
}
