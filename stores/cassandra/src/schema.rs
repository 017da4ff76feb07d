//! Checks the keyspace and the tables, and creates them if they are missing.
//!
//! The comment of a table names its serial level, and a store with another level is rejected. The id of a
//! table is computed from its name. With Cassandra's random ids, two nodes that create a table at the same
//! time would create two tables, and rows written to one of them would be lost.

use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_kit::options::Kind;
use idmill_kit::{Asked, options, witness_beside};
use scylla::value::CqlValue;
use tokio::time::Instant;

use super::CassandraOptions;
use super::connection::{AGREEMENT, Client, Serial, Statement};
use super::values::{Cells, Values, text};

pub(super) const DEFAULT_TABLE: &str = "idmill_sequences";
/// Cassandra's limit for the name of a keyspace or a table.
const LONGEST_NAME: usize = 48;
/// The name of a keyspace.
pub(super) const KEYSPACE: Kind =
    options::text("NAME", "up to 48 characters of `[A-Za-z0-9_]`, beginning with a letter", |name| {
        is_name(name, LONGEST_NAME)
    });
/// The suffixes of the windows and records tables have eight characters.
const LONGEST_TABLE: usize = LONGEST_NAME - 8;
/// The name of a table, as an option.
pub(super) const TABLE: Kind =
    options::text("NAME", "up to 40 characters of `[A-Za-z0-9_]`, beginning with a letter", |name| {
        is_name(name, LONGEST_TABLE)
    });
/// Pause between two checks for a created keyspace or table.
const AGAIN: Duration = Duration::from_millis(100);
/// Version of the layout of the rows, stored in the column `format`.
pub(super) const FORMAT: i32 = 1;

/// The option that creates a missing keyspace.
pub(super) const REPLICAS: Kind =
    options::text("DC:REPLICAS,…", "DATACENTER:REPLICAS, separated by commas: `dc1:3,dc2:3`", |text| {
        replicas(text).is_some()
    });

/// Parses the replicas of each datacenter. Returns `None` if the text is invalid or a number is 0.
fn replicas(text: &str) -> Option<Vec<(&str, u32)>> {
    let each = text.split(',').map(|part| {
        let (datacenter, count) = part.rsplit_once(':')?;
        let count = count.parse().ok().filter(|count| *count > 0)?;
        (!datacenter.is_empty()).then_some((datacenter, count))
    });
    each.collect()
}

/// Accepts only names that Cassandra and ScyllaDB interpret alike in double quotes.
fn is_name(name: &str, longest: usize) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= longest
}

/// A keyspace or a table, with the query that finds it and the statement that creates it.
#[derive(Debug)]
struct Part {
    what: String,
    look: &'static str,
    key: Values,
    definition: String,
}

impl Part {
    async fn look(&self, client: &Client) -> Result<Option<Cells>> {
        client.describe(self.look, self.key.clone()).await
    }

    /// Finds the keyspace or table, and looks a second time if it is missing. The queried node may not have
    /// the keyspace or table yet, so the second query waits for the nodes to agree on the schema.
    async fn find(&self, client: &Client) -> Result<Option<Cells>> {
        if let found @ Some(_) = self.look(client).await? {
            return Ok(found);
        }
        client.agree().await;
        self.look(client).await
    }

    /// Finds the keyspace or table, and creates it if it is missing and `create` is set. `advice` follows the
    /// error.
    async fn ensure(&self, client: &Client, create: bool, advice: impl FnOnce() -> String) -> Result<Cells> {
        match self.find(client).await? {
            Some(found) => Ok(found),
            None if create => self.make(client).await,
            None => {
                let message = format!("there is no {}; {}", self.what, advice());
                Err(Error::new(ErrorKind::NotFound, message))
            }
        }
    }

    /// Creates the keyspace or table, and polls until it is visible. Schema changes reach other nodes with a
    /// delay: the queried node may not have the table yet, and the node that creates a table may not have the
    /// keyspace yet.
    async fn make(&self, client: &Client) -> Result<Cells> {
        let begun = Instant::now();
        let mut made = self.define(client).await;
        loop {
            if let Some(found) = self.look(client).await? {
                return Ok(found);
            }
            let done = made?;
            if begun.elapsed() >= AGREEMENT {
                return Err(self.unheard_of(done));
            }
            client.agree().await;
            tokio::time::sleep(AGAIN).await;
            made = if done { Ok(true) } else { self.define(client).await };
        }
    }

    /// Returns whether the node accepted the definition. If not, the node does not have the keyspace yet.
    async fn define(&self, client: &Client) -> Result<bool> {
        match client.define(&self.definition).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            made => made.map(|()| true),
        }
    }

    fn unheard_of(&self, made: bool) -> Error {
        let message = if made {
            format!("the {} was created, but the node does not list it yet", self.what)
        } else {
            format!("the {} is not created yet: the node does not list its keyspace", self.what)
        };
        Error::new(ErrorKind::Unavailable, message)
    }
}

/// An idmill table in a keyspace. All its statements use one serial level.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) client: Client,
    keyspace: String,
    name: String,
    columns: &'static str,
    pub(super) serial: Serial,
    purpose: String,
}

impl Table {
    /// The table of sequences: flat sequences or global counters.
    pub(super) fn sequences(client: &Client, options: &CassandraOptions) -> Self {
        let columns = "name text PRIMARY KEY, next varint, start varint, max varint, incarnation bigint, epoch bigint, \
                       recalls bigint, claims map<text, frozen<tuple<bigint, varint, varint>>>, writer bigint, format int";
        let purpose = format!("idmill sequences, {}", among(options));
        Self {
            client: client.clone(),
            keyspace: options.keyspace.clone(),
            name: options.table.clone(),
            columns,
            serial: options.serial,
            purpose,
        }
    }

    /// The records table of this sequences table.
    pub(super) fn records(&self, options: &CassandraOptions) -> Result<Self> {
        let purpose = format!("idmill records, {}", among(options));
        let name = witness_beside(&self.name, LONGEST_NAME)?;
        Ok(Self { name, columns: "name text PRIMARY KEY, record text, format int", purpose, ..self.clone() })
    }

    /// The windows table of this sequences table.
    pub(super) fn windows(&self) -> Self {
        let columns = "name text, datacenter text, incarnation bigint, epoch bigint, recalls bigint, start varint, max varint, \
                       generation bigint, next varint, until varint, preloaded_next varint, preloaded_until varint, \
                       format int, PRIMARY KEY ((name, datacenter))";
        let purpose = "idmill windows, LOCAL_SERIAL in each datacenter".to_owned();
        let (name, serial) = (format!("{}_windows", self.name), Serial::Local);
        Self { name, columns, serial, purpose, ..self.clone() }
    }

    /// A read of one partition.
    pub(super) fn read(&self, columns: &str, key: &str, values: Values) -> Statement {
        let cql = format!("SELECT {columns} FROM {} WHERE {key}", self.cql());
        Statement { cql, values, serial: self.serial, asked: Asked::Read }
    }

    /// A conditional write of one partition.
    pub(super) fn write(&self, cql: String, values: Values) -> Statement {
        Statement { cql, values, serial: self.serial, asked: Asked::Write }
    }

    /// The quoted name for CQL.
    pub(super) fn cql(&self) -> String {
        format!("\"{}\".\"{}\"", self.keyspace, self.name)
    }

    /// The name for messages.
    pub(super) fn display(&self) -> String {
        format!("{}.{}", self.keyspace, self.name)
    }

    fn definition(&self) -> String {
        let id = id_of(&self.keyspace, &self.name);
        let purpose = self.purpose.replace('\'', "''");
        format!(
            "CREATE TABLE IF NOT EXISTS {} ({}) WITH id = {id} AND comment = '{purpose}'",
            self.cql(),
            self.columns
        )
    }

    /// Returns whether the table exists.
    pub(super) async fn is_there(&self) -> Result<bool> {
        let found = self.part().find(&self.client).await?;
        found.map_or(Ok(false), |found| self.check(&found).map(|()| true))
    }

    /// Checks the table, or creates it if it is missing and `create` is set.
    pub(super) async fn ensure(&self, create: bool) -> Result<()> {
        let part = self.part();
        let advice = || format!("create it with: {}", part.definition);
        self.check(&part.ensure(&self.client, create, advice).await?)
    }

    fn part(&self) -> Part {
        Part {
            what: format!("table {}", self.display()),
            look: "SELECT comment FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
            key: vec![text(&self.keyspace), text(&self.name)],
            definition: self.definition(),
        }
    }

    fn check(&self, found: &Cells) -> Result<()> {
        let comment = found.text("comment").unwrap_or_default();
        if comment == self.purpose {
            return Ok(());
        }
        let message = format!(
            "the comment of table {} is {comment:?}, not {:?}: mixed levels repeat ids; use its `serial` and \
             `dc`, or another table",
            self.display(),
            self.purpose
        );
        Err(Error::new(ErrorKind::Conflict, message))
    }
}

/// Returns the serial level as the table's comment spells it.
fn among(options: &CassandraOptions) -> String {
    match (options.serial, &options.datacenter) {
        (Serial::Local, Some(datacenter)) => format!("LOCAL_SERIAL in {datacenter}"),
        _ => "SERIAL".to_owned(),
    }
}

/// Computes a table's id from its name, in the form of a version 8 UUID.
fn id_of(keyspace: &str, table: &str) -> String {
    // FNV-1a with 128 bits: the hash must be well distributed and stable, but need not be cryptographic.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in [keyspace, ".", table].iter().flat_map(|part| part.bytes()) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B);
    }
    let marked = hash & !(0xF000 << 64) & !(0xC000 << 48) | (0x8000 << 64) | (0x8000 << 48);
    let hex = format!("{marked:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Checks or creates the keyspace, and checks that it has replicas in the required datacenter.
pub(super) async fn ensure_keyspace(
    client: &Client,
    options: &CassandraOptions,
    needs: Option<&str>,
) -> Result<()> {
    let (keyspace, replicas) = (&options.keyspace, options.replicas.as_deref().and_then(replicas));
    let part = keyspace_part(keyspace, replicas.as_deref().unwrap_or_default());
    let advice = || {
        let dc = needs.unwrap_or("DATACENTER");
        let cql = keyspace_definition(keyspace, &[(dc, 3)]);
        format!("run {cql}, with an entry for each datacenter; or add `create_keyspace={dc}:3`")
    };
    let found = part.ensure(client, replicas.is_some(), advice).await?;
    let Some(needs) = needs else { return Ok(()) };
    let known = found.map("replication");
    let class = known.iter().find(|(key, _)| key == "class").map_or("", |(_, class)| class);
    let has = known.iter().any(|(key, count)| key == needs && count.trim() != "0");
    if class.ends_with("NetworkTopologyStrategy") && has {
        return Ok(());
    }
    let message = format!(
        "the keyspace {keyspace} has no replicas in datacenter {needs:?} ({known:?}); add them with \
         NetworkTopologyStrategy"
    );
    Err(Error::new(ErrorKind::Conflict, message))
}

fn keyspace_part(keyspace: &str, replicas: &[(&str, u32)]) -> Part {
    Part {
        what: format!("keyspace {keyspace}"),
        look: "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?",
        key: vec![text(keyspace)],
        definition: keyspace_definition(keyspace, replicas),
    }
}

fn keyspace_definition(keyspace: &str, replicas: &[(&str, u32)]) -> String {
    let quoted = |(dc, count): &(&str, u32)| format!("'{}': {count}", dc.replace('\'', "''"));
    let list = replicas.iter().map(quoted).collect::<Vec<_>>().join(", ");
    format!(
        "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" WITH replication = {{'class': 'NetworkTopologyStrategy', {list}}}"
    )
}

impl Cells {
    /// Reads a map column with texts as keys and values. Returns an empty map if the column is missing.
    fn map(&self, column: &str) -> Vec<(String, String)> {
        let entries = self.value(column).and_then(CqlValue::as_map);
        let pair =
            |(key, value): &(CqlValue, CqlValue)| Some((key.as_text()?.clone(), value.as_text()?.clone()));
        entries.map(|entries| entries.iter().filter_map(pair).collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_id_depends_only_on_the_name() {
        assert_eq!(id_of("ids", "idmill_sequences"), id_of("ids", "idmill_sequences"));
        assert_ne!(id_of("ids", "idmill_sequences"), id_of("ids", "other"));
        let id = id_of("ids", "idmill_sequences");
        assert_eq!((id.len(), &id[14..15], &id[19..20]), (36, "8", &id[19..20]));
        assert!("89ab".contains(&id[19..20]), "{id}");
    }

    #[test]
    fn invalid_names_are_rejected() {
        for name in ["", "1a", "a-b", "a\"b", "é", &"a".repeat(41)] {
            assert_eq!(TABLE.check("table", name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        }
        assert!(TABLE.check("table", "A_1").is_ok() && TABLE.check("table", &"a".repeat(40)).is_ok());
    }
}
