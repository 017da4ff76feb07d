//! The code that differs between sqlx 0.9 and sqlx 0.8. All other files are shared.

/// The buffer that a value is encoded into.
#[doc(hidden)]
#[macro_export]
macro_rules! __buffer {
    ($q:lifetime, $db:ident) => {
        <$db as $crate::driver::Database>::ArgumentBuffer
    };
}

#[cfg(feature = "mysql")]
pub(crate) mod mysql {
    use sqlx::{AssertSqlSafe, Execute, MySql, raw_sql};

    /// A text that is sent unchanged. The caller must have escaped all values in it.
    pub(crate) fn raw(sql: &str) -> impl Execute<'_, MySql> {
        raw_sql(AssertSqlSafe(sql))
    }
}

#[cfg(feature = "postgres")]
pub(crate) mod postgres {
    use std::pin::Pin;

    use sqlx::postgres::PgRow;
    use sqlx::{AssertSqlSafe, Error, Executor as _, PgConnection, raw_sql};

    type Rows<'a> = Pin<Box<dyn Future<Output = Result<Vec<PgRow>, Error>> + Send + 'a>>;

    /// Sends a statement unchanged and reads its complete answer. The caller must have escaped all values in
    /// `sql`.
    pub(crate) fn rows<'a>(connection: &'a mut PgConnection, sql: &'a str) -> Rows<'a> {
        connection.fetch_all(raw_sql(AssertSqlSafe(sql)))
    }
}

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite {
    use sqlx::query::Query;
    use sqlx::sqlite::SqliteArguments;
    use sqlx::{AssertSqlSafe, Sqlite};

    pub(crate) type Statement<'a> = Query<'a, Sqlite, SqliteArguments>;

    /// A statement without arguments.
    pub(crate) fn query(sql: &str) -> Statement<'_> {
        sqlx::query(AssertSqlSafe(sql))
    }
}
