//! A page of the sequences that there are.

use super::NativeSequences;
use super::seen::{Seen, see_sql};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::name::SequenceName;
use crate::store::postgres::classify::{Asked, failed};
use crate::store::postgres::schema::quoted;
use crate::store::postgres::session::texts;
use crate::store::{Cursor, Listing, Page, SequenceInfo};

/// The names of a schema's sequences, or of all schemas of the path, each with whether it may be
/// read, its schema and in how many it is: a page, by schema, or an empty string for the path,
/// name before, prefix and number.
const NAMES: &str = "SELECT c.relname::text, bool_and(COALESCE(has_sequence_privilege(c.oid, 'SELECT'), true)), \
    min(n.nspname::text), count(*) FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'S' \
    AND n.nspname = ANY(CASE $1 WHEN '' THEN current_schemas(false) ELSE ARRAY[$1::name] END) \
    AND c.relname::text COLLATE \"C\" > $2 AND left(c.relname::text, length($3)) = $3 \
    GROUP BY c.relname ORDER BY c.relname::text COLLATE \"C\" LIMIT $4::bigint";
/// How many one statement reads. The server locks each of them until it ends.
const AT_ONCE: usize = 100;

impl NativeSequences {
    /// Those that can be drawn from.
    pub(super) async fn try_list(&self, page: &Page) -> Result<Listing> {
        let schema = self.schema.as_deref().unwrap_or_default().to_owned();
        let after = page.after.as_ref().map_or("", Cursor::as_str);
        let values = [schema, after.to_owned(), page.prefix.clone(), page.rows().to_string()];
        let rows = self.sessions.run(Asked::Read, NAMES, &texts(&values)).await;
        let rows = rows.map_err(|fault| failed(fault, Asked::Read))?;
        let mut listing = Listing::default();
        let mut readable = Vec::with_capacity(rows.len());
        for row in &rows {
            let (name, schema): (String, String) = (row.get(0), row.get(2));
            // What cannot be a sequence's name is somebody else's.
            let Ok(name) = SequenceName::new(&name) else { continue };
            if row.get::<_, i64>(3) > 1 {
                listing.add(name.as_str(), Err(in_several(&name)));
            } else if row.get::<_, bool>(1) {
                readable.push((format!("{}.{}", quoted(&schema), quoted(&name)), name));
            } else {
                listing.add(name.as_str(), Err(no_privilege(&name)));
            }
        }
        for some in readable.chunks(AT_ONCE) {
            self.list_these(some, &mut listing).await?;
        }
        let full = rows.len() >= page.limit.max(1);
        listing.next = rows.last().filter(|_| full).map(|row| Cursor::new(row.get::<_, String>(0)));
        Ok(listing.sorted())
    }

    /// All in one statement; if it fails, one by one, for the one that it failed of may not be the only one.
    async fn list_these(&self, some: &[(String, SequenceName)], listing: &mut Listing) -> Result<()> {
        let select = |(sql, name): &(String, SequenceName)| format!("({})", see_sql(sql, name));
        let selects: Vec<_> = some.iter().map(select).collect();
        let together = self.sessions.run(Asked::Read, &selects.join(" UNION ALL "), &[]).await;
        if let Ok(rows) = together {
            for row in &rows {
                add(listing, &row.get::<_, String>(0), Seen::read(row).and_then(|seen| seen.info()));
            }
            return Ok(());
        }
        for (sql, name) in some {
            match self.see(sql, name).await {
                Ok(Some(seen)) => add(listing, name, seen.info()),
                // Dropped meanwhile.
                Ok(None) => {}
                Err(error) if error.status() != Status::Permanent => return Err(error),
                Err(error) => add(listing, name, Err(error)),
            }
        }
        Ok(())
    }
}

/// What nothing is drawn from here is no part of the list.
fn add(listing: &mut Listing, name: &str, seen: Result<SequenceInfo>) {
    if !matches!(&seen, Err(error) if error.kind() == ErrorKind::Conflict) {
        listing.add(name, seen);
    }
}

fn no_privilege(name: &SequenceName) -> Error {
    let message = format!("the sequence {:?} may not be read; GRANT SELECT ON SEQUENCE …", name.as_str());
    Error::new(ErrorKind::Denied, message)
}

fn in_several(name: &SequenceName) -> Error {
    let message = format!(
        "the sequence {:?} is in more than one schema of the search_path: name the one that is meant with schema=NAME",
        name.as_str()
    );
    Error::new(ErrorKind::Conflict, message)
}
