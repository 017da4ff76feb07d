//! Ledgers as text. In a store, each ledger is a record. In a file, each ledger is a line that begins with
//! the sequence's name. The first line identifies the format; the last has a checksum.
//!
//! ```text
//! idmill-witness 1
//! orders 16a8c0ffee 0 3 0 1 21 - 30+10,50+5 sqlite:/srv/ids.db
//! crc32 8c736521
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use percent_encoding::{percent_decode_str, utf8_percent_encode};

use super::{Announced, Ledger};
use idmill::IdRange;
use idmill::SequenceName;
use idmill::store::Identity;
use idmill_kit::query::ESCAPED;

const FIRST: &str = "idmill-witness 1\n";
const LAST: &str = "crc32 ";

pub(super) fn encode(ledgers: &BTreeMap<SequenceName, Ledger>) -> String {
    let mut text = FIRST.to_owned();
    for (name, ledger) in ledgers {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {}", utf8_percent_encode(name, ESCAPED), record(ledger));
    }
    let sum = crc32fast::hash(text.as_bytes());
    text + &format!("{LAST}{sum:08x}\n")
}

/// Formats the ledger of one sequence. Equal ledgers have equal text.
pub(super) fn record(ledger: &Ledger) -> String {
    let Ledger { identity, floor, solid, claims, announced, version, stamp, store } = ledger;
    let Identity { incarnation, epoch } = identity;
    let announced = announcement(*announced);
    let claims: Vec<_> = claims.iter().map(|claim| format!("{}+{}", claim.start(), claim.len())).collect();
    let claims = if claims.is_empty() { "-".to_owned() } else { claims.join(",") };
    let store = store.as_ref().map_or("-".into(), |store| utf8_percent_encode(store, ESCAPED).to_string());
    format!("{incarnation:x} {epoch} {version} {stamp:x} {solid} {floor} {announced} {claims} {store}")
}

fn announcement(announced: Option<Announced>) -> String {
    match announced {
        None => "-".to_owned(),
        Some(Announced::Resetting { start }) => format!("resetting:{start}"),
        Some(Announced::Raising) => "raising".to_owned(),
        Some(Announced::Removing) => "removing".to_owned(),
        Some(Announced::Removed) => "removed".to_owned(),
        Some(Announced::Forgotten) => "forgotten".to_owned(),
    }
}

/// Parses the text of [`announcement`]; `None` for any other text.
fn announced_of(text: &str) -> Option<Announced> {
    Some(match text {
        "raising" => Announced::Raising,
        "removing" => Announced::Removing,
        "removed" => Announced::Removed,
        "forgotten" => Announced::Forgotten,
        _ => Announced::Resetting { start: text.strip_prefix("resetting:")?.parse().ok()? },
    })
}

/// # Errors
/// The fault, worded to follow the file's name.
pub(super) fn decode(text: &[u8]) -> Result<BTreeMap<SequenceName, Ledger>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is not UTF-8, so it is not an idmill witness")?;
    let lines =
        text.strip_prefix(FIRST).ok_or("is not an idmill witness, or was written by a later version")?;
    let (lines, sum) = lines.rsplit_once(LAST).ok_or("is truncated")?;
    let covered = &text[..FIRST.len() + lines.len()];
    if sum.strip_suffix('\n') != Some(&format!("{:08x}", crc32fast::hash(covered.as_bytes()))) {
        return Err("is corrupt: its checksum does not match".to_owned());
    }
    let read = |line| read(line).ok_or_else(|| format!("has an invalid line: {line:?}"));
    lines.lines().map(read).collect()
}

fn read(line: &str) -> Option<(SequenceName, Ledger)> {
    let (name, ledger) = line.split_once(' ')?;
    let name = percent_decode_str(name).decode_utf8().ok()?;
    Some((SequenceName::new(&name).ok()?, ledger_of(ledger)?))
}

/// Parses the text of [`record`]; `None` for any other text.
pub(super) fn ledger_of(record: &str) -> Option<Ledger> {
    let mut words = record.split(' ');
    let mut word = || words.next();
    let incarnation = u64::from_str_radix(word()?, 16).ok()?;
    let (epoch, version) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let stamp = u64::from_str_radix(word()?, 16).ok()?;
    let (solid, floor) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let announced = match word()? {
        "-" => None,
        text => Some(announced_of(text)?),
    };
    let claims = match word()? {
        "-" => Vec::new(),
        claims => claims.split(',').map(claim).collect::<Option<_>>()?,
    };
    let store = match words.next()? {
        "-" => None,
        store => Some(percent_decode_str(store).decode_utf8().ok()?.into()),
    };
    words.next().is_none().then_some(())?;
    let identity = Identity { incarnation, epoch };
    Some(Ledger { identity, floor, solid, claims, announced, version, stamp, store })
}

fn claim(text: &str) -> Option<IdRange> {
    let (start, len) = text.split_once('+')?;
    IdRange::new(start.parse().ok()?, len.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::store::Records;
    use proptest::prelude::*;

    #[test]
    fn the_longest_ledger_fits_a_record() {
        let claims = vec![IdRange::new(u64::MAX - 1, 1).unwrap(); Ledger::MOST_CLAIMS];
        let identity = Identity { incarnation: u64::MAX, epoch: u64::MAX };
        let longest = Ledger {
            identity,
            floor: 1 << 64,
            solid: 1 << 64,
            claims,
            announced: Some(Announced::Resetting { start: 1 << 64 }),
            version: u64::MAX,
            stamp: u64::MAX,
            store: Some("%".repeat(200).into()),
        };
        let text = record(&longest);
        assert!(text.len() <= Records::LONGEST, "{}: {text}", text.len());
        assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        assert_eq!(ledger_of(&text), Some(longest));
        for other in [
            "",
            "1 0 0 0 1 5 - -",
            "1 0 0 0 1 5 - - - -",
            "1 0 0 0 1 5 lost - -",
            "1 0 0 0 1 5 - 7+ -",
            "x 0 0 0 1 5 - - -",
        ] {
            assert_eq!(ledger_of(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn written_ledger_reads_back_and_damage_is_detected(
            names in prop::collection::btree_set("[a-z %\u{e9}=+]{1,12}", 0..4),
            numbers in prop::collection::vec(any::<(u64, u32, u64, Option<u8>)>(), 4),
            at: prop::sample::Index,
        ) {
            let mut ledgers = BTreeMap::new();
            let names = names.iter().filter_map(|name| SequenceName::new(name).ok());
            for (name, (incarnation, epoch, floor, announced)) in names.zip(numbers) {
                let announced = announced.map(|which| match which % 5 {
                    4 => Announced::Raising,
                    0 => Announced::Resetting { start: floor.into() },
                    1 => Announced::Removing,
                    2 => Announced::Removed,
                    _ => Announced::Forgotten,
                });
                let claims = if announced.is_some() { Vec::new() } else { vec![IdRange::new(floor, 3).unwrap_or_else(|| IdRange::new(1, 3).expect("fits"))] };
                let identity = Identity { incarnation, epoch: epoch.into() };
                let (solid, floor, version) = (floor / 2, floor.into(), floor);
                ledgers.insert(name, Ledger { identity, floor, solid: solid.into(), claims, announced, version, stamp: incarnation, store: Some(format!("sqlite:a b-{floor}").into()) });
            }
            for ledger in ledgers.values() {
                prop_assert_eq!(ledger_of(&record(ledger)), Some(ledger.clone()));
            }
            let text = encode(&ledgers);
            prop_assert_eq!(decode(text.as_bytes()).unwrap(), ledgers);
            let mut damaged = text.into_bytes();
            let at = at.index(damaged.len());
            damaged[at] ^= 1;
            prop_assert!(decode(&damaged).is_err());
            prop_assert!(decode(&damaged[..at]).is_err());
        }
    }
}
