//! The interface that an adapter implements for a driver: one statement in, rows out.

use std::borrow::Cow;

use idmill_kit::Asked;

use crate::Fault;

/// Runs statements, either on a connection of the adapter, where each statement commits unless the dialect
/// begins a transaction, or in a transaction of the caller.
///
/// The futures of a dialect are `Send` if the executor is. A blocking executor need not be `Send`.
pub trait Executor {
    /// Whether statements run in a transaction that the caller began and will commit.
    const IN_TRANSACTION: bool;
    /// Whether MySQL's answers count the rows that a statement matched, even if it changed nothing.
    const COUNTS_MATCHED: bool = false;

    /// Sends the statement once and reads its complete answer. Outside a transaction, the statement
    /// has committed when this returns.
    ///
    /// If the future is dropped, the statement may have been sent. The adapter must not use that connection
    /// again.
    ///
    /// # Errors
    /// A [`Fault`]. The fault is [`Fault::Refused`] only if the statement certainly had no effect.
    fn execute(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<Answer, Fault>> + Send;

    /// Closes the connection after this call, since its server must not be written to. In a transaction of
    /// the caller, nothing is closed.
    fn discard(&mut self) {}
}

/// How to classify a fault of a writing statement. The executor must not decide this: a wrong value
/// would turn an unknown outcome into a known one.
pub(crate) const fn to_write<E: Executor>() -> Asked {
    if E::IN_TRANSACTION { Asked::InTransaction } else { Asked::Write }
}

/// How to classify a fault of a reading statement.
pub(crate) const fn to_read<E: Executor>() -> Asked {
    if E::IN_TRANSACTION { Asked::InTransaction } else { Asked::Read }
}

/// Asserts at compile time that the executor commits each statement: a store must not grant ids
/// that the caller can roll back.
pub(crate) const fn must_be_alone<E: Executor>() {
    assert!(!E::IN_TRANSACTION, "the caller could roll back a range whose ids are in use");
}

/// Asserts at compile time that the executor runs in a transaction: gapless ids must not commit
/// before the rows that they number.
pub(crate) const fn must_be_within<E: Executor>() {
    assert!(E::IN_TRANSACTION, "each statement would commit by itself");
}

/// One statement and how to run it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statement<'a> {
    /// The text, with the placeholders of the dialect.
    pub sql: Cow<'a, str>,
    /// The values of the placeholders, in order.
    pub values: Vec<Value>,
    /// Whether the statement changes anything.
    pub writes: bool,
    /// How long the statement may wait for locks; [`Value::Timeout`] marks the parameter that
    /// passes the limit.
    pub timeout: Timeout,
    /// Whether the same text is sent repeatedly, so that it is worth keeping prepared. All other
    /// statements must be prepared each time: SQLite executes some pragmas while it prepares them.
    pub again: bool,
    /// Whether this is the statement of reserves, whose latency matters. An adapter may keep it prepared,
    /// even if the driver needs extra round trips for that.
    pub often: bool,
    /// The column of a write's rows that reports how durably they were written, if the rows have such a
    /// column. The next column has the id of the transaction.
    pub durable_at: usize,
}

/// How long a statement may wait for locks that others hold. The adapter sets the actual durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Timeout {
    /// A short time: other callers wait for this statement.
    Brief,
    /// The full timeout. An adapter with several connections waits on one that no other call needs.
    #[default]
    Full,
}

impl<'a> Statement<'a> {
    /// Creates a statement that only reads.
    pub fn read(sql: impl Into<Cow<'a, str>>, values: impl Into<Vec<Value>>) -> Self {
        Self::new(sql.into(), values.into(), false)
    }

    /// Creates a statement that changes something.
    pub fn write(sql: impl Into<Cow<'a, str>>, values: impl Into<Vec<Value>>) -> Self {
        Self::new(sql.into(), values.into(), true)
    }

    fn new(sql: Cow<'a, str>, values: Vec<Value>, writes: bool) -> Self {
        Self { sql, values, writes, timeout: Timeout::Full, again: true, often: false, durable_at: 0 }
    }

    /// Sets how long the statement may wait for locks.
    #[must_use]
    pub fn with_timeout(self, timeout: Timeout) -> Self {
        Self { timeout, ..self }
    }

    /// Marks the statement as the one of reserves.
    #[must_use]
    pub fn often(self) -> Self {
        Self { often: true, ..self }
    }

    /// Sets the column that reports the durability of the rows.
    #[must_use]
    pub fn durable_at(self, column: usize) -> Self {
        Self { durable_at: column, ..self }
    }

    /// Marks the statement as one that must not be kept prepared.
    #[must_use]
    pub fn once(self) -> Self {
        Self { again: false, ..self }
    }
}

/// A value of a statement or a row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// `NULL`.
    Null,
    /// A signed 64-bit integer.
    Integer(i64),
    /// An unsigned 64-bit integer. Only as a parameter.
    Unsigned(u64),
    /// Text.
    Text(String),
    /// Bytes; in a row, also text that is not UTF-8.
    Bytes(Vec<u8>),
    /// An array of texts. Only as a parameter.
    Texts(Vec<String>),
    /// How long the statement may wait for locks; the adapter fills it in. The parameter is text such as
    /// `5000ms`, or empty in a transaction of the caller. Only as a parameter.
    Timeout,
}

impl Value {
    /// Returns the text if the value is text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

/// A row: values in the order of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row(Vec<Value>);

impl Row {
    /// Creates a row of these values.
    pub fn new(values: Vec<Value>) -> Self {
        Self(values)
    }

    /// Returns the value of a column, counted from 0, or [`Value::Null`] if there is no such
    /// column.
    pub fn get(&self, column: usize) -> &Value {
        self.0.get(column).unwrap_or(&Value::Null)
    }

    /// Returns the text of a column, if it has text.
    pub fn text(&self, column: usize) -> Option<&str> {
        self.get(column).text()
    }
}

/// The engine's answer to a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The rows, if any.
    pub rows: Vec<Row>,
    /// The number of rows changed.
    pub changed: u64,
    /// The value that *this* statement passed to `LAST_INSERT_ID`, if the engine has that function.
    pub insert_id: Option<u64>,
}

impl Answer {
    /// Creates an answer with rows.
    pub fn rows(rows: Vec<Row>) -> Self {
        Self { rows, ..Self::default() }
    }

    /// Creates an answer with the number of changed rows and the value of `LAST_INSERT_ID`.
    pub fn changed(changed: u64, insert_id: Option<u64>) -> Self {
        Self { changed, insert_id, ..Self::default() }
    }

    /// Sets the rows of the answer.
    #[must_use]
    pub fn with_rows(mut self, rows: Vec<Row>) -> Self {
        self.rows = rows;
        self
    }
}
