//! The engine: this test binary, started again, over an SQLite file.

use std::path::{Path, PathBuf};

use idmill::store::{Bounds, Change, GiveBack, Grant, Identity, Page, Reserve, SequenceInfo, Store};
use idmill::{IdRange, Result, SequenceName};
use idmill_sqlite::SqliteStore;
use idmill_sqlite::rusqlite::Connection;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::{DIR, FORGETS, SERVER, garbage, number};

/// Not a test: the main function of the engine's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process() {
    let (Ok(address), Ok(dir)) = (std::env::var(SERVER), std::env::var(DIR)) else { return };
    let store = SqliteStore::open(file(&dir)).await.unwrap();
    if let Ok(statement) = std::env::var(FORGETS) {
        database().execute(&statement, []).unwrap();
    }
    let listener = TcpListener::bind(&address).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let store = store.clone();
        tokio::spawn(async move {
            let mut stream = BufStream::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|length| length > 0) {
                let words: Vec<_> = line.trim_end_matches('\n').split('\t').collect();
                let answer = answer(&store, &words).await.unwrap_or_else(|error| {
                    vec![
                        "error".to_owned(),
                        error.kind().as_str().to_owned(),
                        error.to_string().replace('\n', " "),
                    ]
                });
                let answer = answer.join("\t") + "\n";
                if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
}

fn file(dir: &str) -> PathBuf {
    Path::new(dir).join("toy.db")
}

fn database() -> Connection {
    Connection::open(file(&std::env::var(DIR).unwrap())).unwrap()
}

async fn answer(store: &SqliteStore, words: &[&str]) -> Result<Vec<String>> {
    let Some(&verb) = words.first() else { return Err(garbage(words)) };
    let name = words.get(1).map(|name| SequenceName::new(name)).transpose()?;
    let name = || name.clone().ok_or_else(|| garbage(words));
    Ok(match verb {
        "reserve" => {
            let create = match (words.get(4), words.get(5)) {
                (Some(&""), Some(&"")) => None,
                _ => Some(Bounds::new(number(words, 4)?, number(words, 5)?)?),
            };
            let request = Reserve::new(name()?, number(words, 2)?).ceiling(number(words, 3)?).create(create);
            let Grant { range, identity, bounds, .. } = store.reserve(&request).await?;
            let numbers = [
                range.start(),
                range.len(),
                identity.incarnation,
                identity.epoch,
                bounds.start(),
                bounds.max(),
            ];
            numbers.iter().map(u64::to_string).collect()
        }
        "back" => {
            let identity = Identity { incarnation: number(words, 4)?, epoch: number(words, 5)? };
            let rest = IdRange::new(number(words, 2)?, number(words, 3)?).ok_or_else(|| garbage(words))?;
            vec![store.give_back(&GiveBack::new(name()?, identity, rest)).await?.to_string()]
        }
        "create" => shown(&store.create(&name()?, Bounds::new(number(words, 2)?, number(words, 3)?)?).await?),
        "claim" => {
            let statement =
                "INSERT INTO idmill_sequences (name, next, start, max, incarnation, epoch, format)
                VALUES (?1, ?2, ?2, ?3, ?4, 0, 1) ON CONFLICT DO NOTHING";
            let [start, max, claim] = [2, 3, 4].map(|at| number(words, at).map(u64::cast_signed));
            let row = (name()?.to_string(), start?, max?, claim?);
            database().execute(statement, row).map_err(|error| garbage(&[error]))?;
            Vec::new()
        }
        "inspect" => store.inspect(&name()?).await?.as_ref().map(shown).unwrap_or_default(),
        "list" => store.list_all().await?.iter().flat_map(shown).collect(),
        "set" => {
            let expect = number(words, 6).ok().zip(number(words, 7).ok());
            let expect = expect.map(|(incarnation, epoch)| Identity { incarnation, epoch });
            let (next, max) = (number(words, 2).ok(), number(words, 3).ok());
            let yes = |at| words.get(at) == Some(&"true");
            let change = Change::new().next(next).max(max).backwards(yes(4)).revoke(yes(5)).expect(expect);
            shown(&store.set(&name()?, change).await?)
        }
        "remove" => {
            let expected = number(words, 2).ok().zip(number(words, 3).ok());
            let expected = expected.map(|(incarnation, epoch)| Identity { incarnation, epoch });
            vec![store.remove(&name()?, expected).await?.to_string()]
        }
        "advance" => {
            static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
            let _alone = ONE_AT_A_TIME.lock().await;
            let (from, to) = (number(words, 2)?, number(words, 3)?);
            let moves = store.inspect(&name()?).await?.is_some_and(|info| info.next == Some(from));
            if moves {
                store.set(&name()?, Change::new().next(to)).await?;
            }
            vec![moves.to_string()]
        }
        "record" => store.record(&name()?).await?.into_iter().collect(),
        "swap" => {
            let [_, _, seen, wanted] = words else { return Err(garbage(words)) };
            vec![store.swap_record(&name()?, seen.strip_prefix('='), wanted).await?.to_string()]
        }
        "records" => {
            let page = Page::default().limit(usize::MAX);
            let records = store.list_records(&page).await?.records;
            records.into_iter().flat_map(|(name, record)| [name.to_string(), record]).collect()
        }
        _ => return Err(garbage(words)),
    })
}

fn shown(info: &SequenceInfo) -> Vec<String> {
    let numbers = [info.bounds.start(), info.bounds.max(), info.identity.incarnation, info.identity.epoch];
    let next = info.next.map_or_else(|| "none".to_owned(), |next| next.to_string());
    [info.name.to_string(), next].into_iter().chain(numbers.iter().map(u64::to_string)).collect()
}
