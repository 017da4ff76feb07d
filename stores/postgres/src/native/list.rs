//! Lists a page of the sequences.

use std::collections::HashSet;

use idmill::store::{Cursor, Listing, Page, SequenceInfo};
use idmill::{Error, ErrorKind, Result, SequenceName, Status};
use idmill_kit::paging;

use idmill_sql::postgres::native::{NAMES, NativeState, see_sql};
use idmill_sql::postgres::{failed, quoted};
use idmill_sql::{Asked, Row, Statement};

use super::NativeSequences;

/// The number of sequences that one statement reads. The server locks each sequence until the statement ends.
const AT_ONCE: usize = 100;

impl NativeSequences {
    /// Lists the usable sequences, and the errors of unreadable ones.
    pub(super) async fn try_list(&self, page: &Page) -> Result<Listing> {
        let schema = self.schema.as_deref().unwrap_or_default();
        let after = page.after.as_ref().map_or("", Cursor::as_str);
        let values = [
            schema.into(),
            after.into(),
            page.prefix.as_str().into(),
            paging::limit(page).to_string().into(),
        ];
        let rows = self.sessions.run(Statement::read(NAMES, values)).await;
        let rows = rows.map_err(|fault| failed(fault, Asked::Read))?;
        let mut listing = Listing::default();
        let mut readable = Vec::with_capacity(rows.len());
        for row in &rows {
            // A sequence whose name is invalid in idmill is not an idmill sequence.
            let Ok(name) = SequenceName::new(text(row, 0)) else { continue };
            if text(row, 3) != "1" {
                listing.add(name.as_str(), Err(in_several(&name)));
            } else if text(row, 1) == "true" {
                readable.push((format!("{}.{}", quoted(text(row, 2)), quoted(&name)), name));
            } else {
                listing.add(name.as_str(), Err(no_privilege(&name)));
            }
        }
        for some in readable.chunks(AT_ONCE) {
            self.list_these(some, &mut listing).await?;
        }
        listing.next =
            rows.last().filter(|_| paging::is_full(page, rows.len())).map(|row| Cursor::new(text(row, 0)));
        Ok(listing.sorted())
    }

    /// Reads these sequences in one statement. If the statement fails, reads them one by one, to find each
    /// sequence that fails. Sequences that were changed during the statement are also read one by one.
    async fn list_these(&self, some: &[(String, SequenceName)], listing: &mut Listing) -> Result<()> {
        let select = |(sql, name): &(String, SequenceName)| format!("({})", see_sql(sql, name));
        let selects: Vec<_> = some.iter().map(select).collect();
        let together = self.sessions.run(Statement::read(selects.join(" UNION ALL "), [])).await;
        let rows = together.unwrap_or_default();
        for row in &rows {
            add(listing, text(row, 0), NativeState::read(row, self.values).and_then(|seen| seen.info()));
        }
        let read: HashSet<_> = rows.iter().map(|row| text(row, 0)).collect();
        for (sql, name) in some.iter().filter(|(_, name)| !read.contains(name.as_str())) {
            match self.see(sql, name).await {
                Ok(Some(seen)) => add(listing, name, seen.info()),
                // The sequence was dropped in the meantime.
                Ok(None) => {}
                Err(error) if error.status() != Status::Permanent => return Err(error),
                Err(error) => add(listing, name, Err(error)),
            }
        }
        Ok(())
    }
}

fn text(row: &Row, column: usize) -> &str {
    row.text(column).unwrap_or_default()
}

/// Adds a sequence, unless it cannot be drawn from.
fn add(listing: &mut Listing, name: &str, seen: Result<SequenceInfo>) {
    if !matches!(&seen, Err(error) if error.kind() == ErrorKind::Conflict) {
        listing.add(name, seen);
    }
}

fn no_privilege(name: &SequenceName) -> Error {
    let message = format!("the sequence {:?} is not readable; GRANT SELECT ON SEQUENCE …", name.as_str());
    Error::new(ErrorKind::Denied, message)
}

fn in_several(name: &SequenceName) -> Error {
    let message = format!(
        "the sequence {:?} is in several schemas of the search_path; name the right one with `schema=NAME`",
        name.as_str()
    );
    Error::new(ErrorKind::Conflict, message)
}
