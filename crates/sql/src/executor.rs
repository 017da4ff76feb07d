//! What an adapter for a driver implements: one statement in, rows out.

use std::borrow::Cow;

use idmill_kit::Asked;

use crate::Fault;

/// Runs statements: on a connection of the adapter's own, where each commits by itself, or in a transaction
/// of the caller's.
///
/// The futures of a dialect are `Send` where the executor is. An executor that blocks need not be.
pub trait Executor {
    /// Whether statements run in a transaction that the caller began, and commits.
    const IN_TRANSACTION: bool;

    /// Sends the statement, once, and reads its whole answer. Outside a transaction it has committed when
    /// this returns.
    ///
    /// A future that is dropped may have sent the statement. The adapter does not use that connection again.
    ///
    /// # Errors
    /// A [`Fault`]. What may have been carried out is never [`Fault::Refused`].
    fn execute(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<Answer, Fault>> + Send;
}

/// What a statement is asked for that changes something. Not up to the executor: an answer that is wrong
/// makes an outcome known that is not.
pub(crate) const fn to_write<E: Executor>() -> Asked {
    if E::IN_TRANSACTION { Asked::InTransaction } else { Asked::Write }
}

/// What a statement is asked for that changes nothing.
pub(crate) const fn to_read<E: Executor>() -> Asked {
    if E::IN_TRANSACTION { Asked::InTransaction } else { Asked::Read }
}

/// What is granted must have been committed: for calls of a store.
pub(crate) const fn must_be_alone<E: Executor>() {
    assert!(!E::IN_TRANSACTION, "the caller could roll back what is in use");
}

/// Ids without gaps must not commit before what they number.
pub(crate) const fn must_be_within<E: Executor>() {
    assert!(E::IN_TRANSACTION, "each statement would commit by itself");
}

/// One statement, and what it is for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statement<'a> {
    /// The text, with the placeholders of the dialect.
    pub sql: Cow<'a, str>,
    /// The values of the placeholders, in order.
    pub values: Vec<Value>,
    /// Whether it changes anything.
    pub writes: bool,
    /// How long it may wait for locks; [`Value::Patience`] among its values says where that is passed.
    pub patience: Patience,
    /// Whether the same text is sent time and again, so that it pays to keep it prepared. All others have to
    /// be prepared anew each time: SQLite carries out some pragmas while it prepares them.
    pub again: bool,
    /// Whether it is the statement of reserves, whose cost is felt: worth the round trips that it takes to keep
    /// it prepared where the driver alone cannot.
    pub often: bool,
    /// Where the rows of a write say so, the column that tells how durably they were written. The next one has
    /// the transaction.
    pub durable_at: usize,
}

/// How long a statement may wait for locks that others hold. The adapter knows how long that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Patience {
    /// Hardly: others wait for what comes of it.
    Brief,
    /// As long as it may take. An adapter with several connections waits where nobody else waits for it.
    #[default]
    Full,
}

impl<'a> Statement<'a> {
    /// A statement that only reads.
    pub fn read(sql: impl Into<Cow<'a, str>>, values: impl Into<Vec<Value>>) -> Self {
        Self::new(sql.into(), values.into(), false)
    }

    /// A statement that changes something.
    pub fn write(sql: impl Into<Cow<'a, str>>, values: impl Into<Vec<Value>>) -> Self {
        Self::new(sql.into(), values.into(), true)
    }

    fn new(sql: Cow<'a, str>, values: Vec<Value>, writes: bool) -> Self {
        Self { sql, values, writes, patience: Patience::Full, again: true, often: false, durable_at: 0 }
    }

    /// The same, with this patience.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// The same, of reserves.
    #[must_use]
    pub fn often(self) -> Self {
        Self { often: true, ..self }
    }

    /// The same, whose rows say in this column how durable they are.
    #[must_use]
    pub fn durable_at(self, column: usize) -> Self {
        Self { durable_at: column, ..self }
    }

    /// The same, which must not be kept prepared.
    #[must_use]
    pub fn once(self) -> Self {
        Self { again: false, ..self }
    }
}

/// A value of a statement, or of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// `NULL`.
    Null,
    /// A signed integer of 64 bits.
    Integer(i64),
    /// An integer of 64 bits without a sign. Only as a parameter.
    Unsigned(u64),
    /// Text.
    Text(String),
    /// Bytes; in a row, text that is not UTF-8 too.
    Bytes(Vec<u8>),
    /// An array of texts. Only as a parameter.
    Texts(Vec<String>),
    /// How long the statement may wait for locks, which the adapter knows: text such as `5000ms`, or empty in
    /// a transaction of the caller's. Only as a parameter.
    Patience,
}

impl Value {
    /// The text, if it is one.
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

/// A row, as values in the order of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row(Vec<Value>);

impl Row {
    /// A row of these values.
    pub fn new(values: Vec<Value>) -> Self {
        Self(values)
    }

    /// The value of a column, counted from 0; [`Value::Null`] where there is no such column.
    pub fn get(&self, column: usize) -> &Value {
        self.0.get(column).unwrap_or(&Value::Null)
    }

    /// The text of a column, if it has one.
    pub fn text(&self, column: usize) -> Option<&str> {
        self.get(column).text()
    }
}

/// What the engine answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The rows, if it has any.
    pub rows: Vec<Row>,
    /// How many rows were changed.
    pub changed: u64,
    /// What *this* statement gave to `LAST_INSERT_ID`, where the engine has such a thing.
    pub insert_id: Option<u64>,
}

impl Answer {
    /// An answer of rows.
    pub fn rows(rows: Vec<Row>) -> Self {
        Self { rows, ..Self::default() }
    }

    /// An answer of a change, and of the id that it gave to `LAST_INSERT_ID`.
    pub fn changed(changed: u64, insert_id: Option<u64>) -> Self {
        Self { changed, insert_id, ..Self::default() }
    }

    /// The rows that came with it too.
    #[must_use]
    pub fn with_rows(mut self, rows: Vec<Row>) -> Self {
        self.rows = rows;
        self
    }
}
