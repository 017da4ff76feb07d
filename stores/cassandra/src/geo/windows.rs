//! The windows table. Each datacenter has a partition for each sequence, and only its own replicas agree on
//! the partition (LOCAL_SERIAL).

use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::Asked;
use idmill_shared_cache::datacenter::{Era, Install, Outcome, Reset, Span, Take, WindowRow};

use crate::client::{Client, Serial, Statement, outcome};
use crate::schema::{FORMAT, Table};
use crate::values::{self, Cells, Values};

const READ: &str = "incarnation, epoch, recalls, start, max, generation, next, until, preloaded_next, preloaded_until, format";
const KEY: &str = "WHERE name = ? AND datacenter = ?";
const ERA: &str = "incarnation = ? AND epoch = ? AND recalls = ?";

/// The windows table and its statements, as used from one datacenter.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    client: Client,
    table: Table,
    datacenter: String,
    read: Statement,
    create: Statement,
    take: Statement,
    switch: Statement,
    install: Statement,
    reset: Statement,
}

impl Windows {
    pub(super) fn new(client: Client, table: Table, datacenter: &str) -> Self {
        let t = table.cql();
        let update = |set: &str, also: &str| format!("UPDATE {t} SET {set} {KEY} IF {ERA}{also}");
        let (serial, read) = (Serial::Local, format!("SELECT {READ} FROM {t} {KEY}"));
        let write = |cql| Statement { cql, serial, asked: Asked::Write };
        // A take must not write the preloaded columns, because a range may have been installed since the
        // window was read.
        let taking = "next = ?, until = ?";
        let switching = "next = ?, until = ?, preloaded_next = null, preloaded_until = null";
        let installing = "preloaded_next = ?, preloaded_until = ?, generation = ?, start = ?, max = ?";
        let resetting = "incarnation = ?, epoch = ?, recalls = ?, start = ?, max = ?, generation = ?, next = ?, until = ?, \
                         format = ?, preloaded_next = null, preloaded_until = null";
        let creating =
            "(name, datacenter, incarnation, epoch, recalls, start, max, generation, next, until, format)";
        let create =
            format!("INSERT INTO {t} {creating} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS");
        Self {
            read: Statement { cql: read, serial, asked: Asked::Read },
            create: write(create),
            take: write(update(taking, " AND next = ?")),
            switch: write(update(switching, " AND next = ?")),
            install: write(update(installing, " AND generation = ?")),
            reset: write(update(resetting, "")),
            client,
            table,
            datacenter: datacenter.to_owned(),
        }
    }

    pub(super) async fn read(&self, name: &SequenceName) -> Result<Option<WindowRow>> {
        let cells = self.client.read(&self.read, self.key(name)).await?;
        cells
            .map(|cells| decode(&cells).map_err(|fault| self.refuse(name, &format!("it {fault}"))))
            .transpose()
    }

    pub(super) async fn create(&self, name: &SequenceName, row: &WindowRow) -> Result<Outcome> {
        let values = [self.key(name), whole(row)].concat();
        outcome(self.client.write(&self.create, values).await)
    }

    pub(super) async fn reset(&self, name: &SequenceName, reset: &Reset) -> Result<Outcome> {
        let values = [whole(&reset.row), self.key(name), era(reset.seen)].concat();
        outcome(self.client.write(&self.reset, values).await)
    }

    /// Takes ids. Returns whether the write was applied.
    ///
    /// # Errors
    /// Returns `UnknownOutcome` unchanged: if the ids were taken, they are a gap.
    pub(super) async fn take(&self, name: &SequenceName, take: &Take) -> Result<bool> {
        let set = vec![values::id(take.current.start), values::id(take.current.end)];
        let values = [set, self.key(name), era(take.era), vec![values::id(take.seen)]].concat();
        let statement = if take.switched { &self.switch } else { &self.take };
        self.client.write(statement, values).await
    }

    pub(super) async fn install(&self, name: &SequenceName, install: &Install) -> Result<Outcome> {
        let (bounds, ids) = (install.bounds, install.preloaded);
        let set = vec![
            values::id(ids.start),
            values::id(ids.end),
            values::count(install.generation),
            values::id(bounds.start().into()),
            values::id(bounds.max().into()),
        ];
        let condition = vec![values::count(install.generation - 1)];
        outcome(
            self.client
                .write(&self.install, [set, self.key(name), era(install.era), condition].concat())
                .await,
        )
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

fn era(era: Era) -> Values {
    values::era(era).to_vec()
}

/// Returns the values of all columns of a row without a preloaded range.
fn whole(row: &WindowRow) -> Values {
    let mut values = era(row.era);
    values.extend([values::id(row.bounds.start().into()), values::id(row.bounds.max().into())]);
    values.extend([
        values::count(row.generation),
        values::id(row.current.start),
        values::id(row.current.end),
    ]);
    values.push(scylla::value::CqlValue::Int(FORMAT));
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
