//! The windows table. Each datacenter has a partition for each sequence, and only its own replicas agree on
//! the partition (LOCAL_SERIAL).

use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_shared_cache::datacenter::{Era, Install, Outcome, Reset, Span, Take, WindowRow};
use scylla::value::CqlValue;

use crate::connection::outcome;
use crate::schema::{FORMAT, Table};
use crate::values::{self, Cells, Values};

const READ: &str = "incarnation, epoch, recalls, start, max, generation, next, until, preloaded_next, preloaded_until, format";
const KEY: &str = "name = ? AND datacenter = ?";

/// The windows table, as used from one datacenter.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    table: Table,
    datacenter: String,
}

impl Windows {
    pub(super) fn new(table: Table, datacenter: &str) -> Self {
        Self { table, datacenter: datacenter.to_owned() }
    }

    pub(super) async fn read(&self, name: &SequenceName) -> Result<Option<WindowRow>> {
        let cells = self.table.client.read(&self.table.read(READ, KEY, self.key(name))).await?;
        let decoded = cells.map(|cells| decode(&cells)).transpose();
        decoded.map_err(|fault| self.refuse(name, &format!("it {fault}")))
    }

    pub(super) async fn create(&self, name: &SequenceName, row: &WindowRow) -> Result<Outcome> {
        let t = self.table.cql();
        let cql = format!(
            "INSERT INTO {t} (name, datacenter, incarnation, epoch, recalls, start, max, generation, next, \
             until, format) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
        );
        let values = [self.key(name), whole(row)].concat();
        outcome(self.table.client.write(&self.table.write(cql, values)).await)
    }

    pub(super) async fn reset(&self, name: &SequenceName, reset: &Reset) -> Result<Outcome> {
        let set = "incarnation = ?, epoch = ?, recalls = ?, start = ?, max = ?, generation = ?, next = ?, until = ?, \
                   format = ?, preloaded_next = null, preloaded_until = null";
        outcome(self.update(name, (set, whole(&reset.row)), reset.seen, None).await)
    }

    /// Takes ids. Returns whether the write was applied.
    ///
    /// # Errors
    /// Returns `UnknownOutcome` unchanged: if the ids were taken, they are a gap.
    pub(super) async fn take(&self, name: &SequenceName, take: &Take) -> Result<bool> {
        // A take must not write the preloaded columns, because a range may have been installed since the
        // window was read.
        let set = if take.switched {
            "next = ?, until = ?, preloaded_next = null, preloaded_until = null"
        } else {
            "next = ?, until = ?"
        };
        let values = vec![values::id(take.current.start), values::id(take.current.end)];
        self.update(name, (set, values), take.era, Some(("next", values::id(take.seen)))).await
    }

    pub(super) async fn install(&self, name: &SequenceName, install: &Install) -> Result<Outcome> {
        let (bounds, ids) = (install.bounds, install.preloaded);
        let set = "preloaded_next = ?, preloaded_until = ?, generation = ?, start = ?, max = ?";
        let mut values = vec![values::id(ids.start), values::id(ids.end), values::count(install.generation)];
        values.extend([values::id(bounds.start().into()), values::id(bounds.max().into())]);
        let also = ("generation", values::count(install.generation - 1));
        outcome(self.update(name, (set, values), install.era, Some(also)).await)
    }

    /// Sets columns if the window has this era, and if a column has this value.
    async fn update(
        &self,
        name: &SequenceName,
        (set, values): (&str, Values),
        era: Era,
        also: Option<(&str, CqlValue)>,
    ) -> Result<bool> {
        let era_is = "incarnation = ? AND epoch = ? AND recalls = ?";
        let mut cql = format!("UPDATE {} SET {set} WHERE {KEY} IF {era_is}", self.table.cql());
        let mut values = [values, self.key(name), values::era(era).to_vec()].concat();
        if let Some((column, value)) = also {
            cql.extend([" AND ", column, " = ?"]);
            values.push(value);
        }
        self.table.client.write(&self.table.write(cql, values)).await
    }

    fn key(&self, name: &SequenceName) -> Values {
        vec![values::text(name.as_str()), values::text(&self.datacenter)]
    }

    /// Returns the error for an invalid window.
    pub(super) fn refuse(&self, name: &SequenceName, fault: &str) -> Error {
        let (table, dc) = (self.table.display(), &self.datacenter);
        let message = format!(
            "the window in {dc} ({table}) was rejected: {fault}; after a restore, run `idmill set {} --next \
             N` above the used ids",
            name.as_str()
        );
        Error::new(ErrorKind::StoreViolation, message).of(name)
    }
}

/// Returns the values of all columns of a row without a preloaded range.
fn whole(row: &WindowRow) -> Values {
    let id = values::id;
    let mut values = values::era(row.era).to_vec();
    values.extend([id(row.bounds.start().into()), id(row.bounds.max().into())]);
    values.extend([values::count(row.generation), id(row.current.start), id(row.current.end)]);
    values.push(CqlValue::Int(FORMAT));
    values
}

fn decode(cells: &Cells) -> Result<WindowRow, String> {
    if cells.format() != Some(FORMAT) {
        return Err("is in another format, perhaps of a later version".to_owned());
    }
    let current = Span { start: cells.id("next")?, end: cells.id("until")? };
    let preloaded = match (cells.maybe_id("preloaded_next")?, cells.maybe_id("preloaded_until")?) {
        (None, None) => None,
        (Some(start), Some(end)) => Some(Span { start, end }),
        _ => return Err("has only one end of a preloaded range".to_owned()),
    };
    let row = WindowRow {
        era: cells.era()?,
        bounds: cells.bounds()?,
        generation: cells.count("generation")?,
        current,
        preloaded,
    };
    check(&row).map(|()| row)
}

fn check(row: &WindowRow) -> Result<(), String> {
    let (start, end) = (u128::from(row.bounds.start()), u128::from(row.bounds.max()) + 1);
    let fits = |span: Span| span.start >= start && span.start <= span.end && span.end <= end;
    if !fits(row.current) {
        return Err(format!("has ids {}..{} outside its bounds", row.current.start, row.current.end));
    }
    if row.preloaded.is_some_and(|next| !fits(next) || next.is_empty() || next.start < row.current.end) {
        return Err("has a preloaded range that cannot follow its current one".to_owned());
    }
    if row.generation == 0 && (row.preloaded.is_some() || !row.current.is_empty()) {
        return Err("has ids, but none were ever installed".to_owned());
    }
    Ok(())
}
