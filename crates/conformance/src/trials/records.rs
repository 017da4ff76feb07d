//! Records, which are kept for the witness of another store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use idmill::store::{Cursor, Page, Records};
use idmill::{Result, SequenceName, Status};
use tokio::task::JoinSet;

use super::cuts::{Scene, rounds};
use super::names::names;
use crate::client::Client;
use crate::context::Context;
use crate::outcome::{Outcome, Stop, check, fail};

/// Texts that some store may treat as equal to [`KEPT`].
const ALIKE: &[&str] =
    &["Kept it", "kept it ", " kept it", "kept  it", "kept i", "kept it%", "kept_it", "k%", "%"];
const KEPT: &str = "kept it";

pub(super) async fn records_compare(context: Arc<Context>) -> Outcome {
    let (client, other, name) = (context.connect().await?, context.connect().await?, context.name("compare"));
    check!(client.kept(&name).await??.is_none(), "a record exists before the first write");
    check!(!client.swap(&name, Some("never"), KEPT).await??, "a record that was never written was replaced");
    check!(client.kept(&name).await??.is_none(), "a rejected write was stored");
    check!(client.swap(&name, None, KEPT).await??, "the first record cannot be written");
    for seen in ALIKE.iter().map(|seen| Some(*seen)).chain([None]) {
        check!(
            !other.swap(&name, seen, "replaced").await??,
            "{KEPT:?} was replaced by a client that had read {seen:?}"
        );
        let kept = client.kept(&name).await??;
        check!(kept.as_deref() == Some(KEPT), "a rejected write left {kept:?} instead of {KEPT:?}");
    }
    let longest: String = (' '..='~').cycle().skip(1).take(Records::LONGEST).collect();
    let mut seen = KEPT;
    for wanted in ["short", &longest, "'; -- \\' \" ` $1 ? :x {} [] %s \\n", "short again"] {
        check!(other.swap(&name, Some(seen), wanted).await??, "{seen:?} is stored, but was not replaced");
        let kept = client.kept(&name).await??;
        check!(kept.as_deref() == Some(wanted), "{wanted:?} was written, but {kept:?} is stored");
        check!(!client.swap(&name, Some(seen), "once more").await??, "{seen:?} was replaced twice");
        seen = wanted;
    }
    apart_from_sequences(&context, &client, &name, seen).await
}

/// A sequence of the same name is separate from the record.
async fn apart_from_sequences(
    context: &Context,
    client: &Client,
    name: &SequenceName,
    kept: &str,
) -> Outcome {
    check!(client.inspect(name).await??.is_none(), "inspect returned a record as a sequence");
    check!(client.list().await??.iter().all(|info| info.name != *name), "a record is listed as a sequence");
    let sequence = context.name("sequence");
    for name in [name, &sequence] {
        client.create(name, context.bounds()).await??;
        client.reserve(&context.request(name, 5)).await??;
    }
    check!(client.kept(&sequence).await??.is_none(), "a sequence was returned as a record");
    let listed = all(client, &Page::of(sequence.as_str())).await?;
    check!(listed.is_empty(), "a sequence is listed as a record: {listed:?}");
    check!(client.remove(name).await??, "remove did not find the sequence");
    let still = client.kept(name).await??;
    check!(
        still.as_deref() == Some(kept),
        "the record was {kept:?}, and is {still:?} after a sequence with its name was removed"
    );
    Ok(())
}

/// Number of clients that add to one record, and of tokens that each adds.
const WRITERS: u32 = 4;
const TOKENS: u32 = 12;

pub(super) async fn records_at_once(context: Arc<Context>) -> Outcome {
    let name = context.name("at-once");
    let mut writing: JoinSet<Outcome> = JoinSet::new();
    for (writer, client) in (0..WRITERS).zip(context.connect_many(4).await?) {
        let name = name.clone();
        writing.spawn(async move {
            for number in 0..TOKENS {
                add(&client, &name, &format!("{writer}.{number}")).await?;
            }
            Ok(())
        });
    }
    while let Some(outcome) = writing.join_next().await {
        outcome??;
    }
    let kept = context.connect().await?.kept(&name).await??.unwrap_or_default();
    for writer in 0..WRITERS {
        let prefix = format!("{writer}.");
        let found: Vec<_> = kept.split(' ').filter(|token| token.starts_with(&prefix)).collect();
        let wanted: Vec<_> = (0..TOKENS).map(|number| format!("{writer}.{number}")).collect();
        check!(found == wanted, "an update was lost: expected {wanted:?}, found {found:?} in {kept:?}");
    }
    Ok(())
}

/// Retries until the token is in the record. After an unknown outcome, the record shows whether the write
/// was applied.
async fn add(client: &Client, name: &SequenceName, token: &str) -> Outcome {
    loop {
        let kept = client.kept(name).await??;
        let wanted = match &kept {
            Some(text) if text.split(' ').any(|other| other == token) => return Ok(()),
            Some(text) => format!("{text} {token}"),
            None => token.to_owned(),
        };
        // Let other writers run in between, even if the store never waits.
        tokio::task::yield_now().await;
        if client.swap(name, kept.as_deref(), &wanted).await?? {
            return Ok(());
        }
    }
}

pub(super) async fn record_names_are_kept(context: Arc<Context>) -> Outcome {
    let (clients, names) = (context.connect_many(4).await?, names());
    let run = format!("{:016x}", context.random(0..=u64::MAX));
    // Read the records of earlier runs on this engine before any write, because a store may confuse two
    // names.
    let before: BTreeMap<_, _> = all(&clients[0], &Page::default()).await?.into_iter().collect();
    let mut writing: JoinSet<Outcome> = JoinSet::new();
    for (lane, client) in clients.iter().cloned().enumerate() {
        let own: Vec<_> = names.iter().cloned().enumerate().skip(lane).step_by(clients.len()).collect();
        let (run, before) = (run.clone(), before.clone());
        writing.spawn(async move {
            for (number, name) in own {
                let seen = before.get(&name).map(String::as_str);
                let written = client.swap(&name, seen, &format!("{run} {number}")).await??;
                check!(written, "the write of `{name}` conflicted, although no other client writes it");
            }
            Ok(())
        });
    }
    while let Some(outcome) = writing.join_next().await {
        outcome??;
    }
    let listed = all(&clients[1], &Page::default()).await?;
    for (number, name) in names.iter().enumerate() {
        let wanted = format!("{run} {number}");
        let kept = clients[2].kept(name).await??;
        check!(kept.as_deref() == Some(&wanted), "`{name}` has {kept:?} instead of {wanted:?}");
        let of_it: BTreeSet<_> =
            listed.iter().filter(|(other, _)| other == name).map(|(_, text)| text).collect();
        check!(of_it == BTreeSet::from([&wanted]), "`{name}` is listed with {of_it:?} instead of {wanted:?}");
    }
    Ok(())
}

pub(super) async fn records_come_in_pages(context: Arc<Context>) -> Outcome {
    let (client, other) = (context.connect().await?, context.connect().await?);
    let names: Vec<_> = (0..25).map(|number| context.name(&format!("page{number:02}"))).collect();
    for name in &names {
        check!(client.swap(name, None, &format!("of {name}")).await??, "`{name}` cannot be written");
    }
    let number = names[0].find("page00").unwrap_or_default() + "page0".len();
    let page = Page::of(&names[0][..number]).limit(4);
    let found: BTreeSet<_> = all(&other, &page).await?.into_iter().collect();
    let wanted: BTreeSet<_> = names[..10].iter().map(|name| (name.clone(), format!("of {name}"))).collect();
    check!(found == wanted, "the prefix {:?} lists {found:?} instead of {wanted:?}", page.prefix);
    let nothing = all(&other, &Page::of(context.name("nothing").as_str())).await?;
    check!(nothing.is_empty(), "a prefix without records lists {nothing:?}");
    Ok(())
}

/// All pages from this one on.
async fn all(client: &Client, page: &Page) -> Outcome<Vec<(SequenceName, String)>> {
    let (mut page, mut found) = (page.clone(), Vec::new());
    loop {
        let records = client.records(&page).await??;
        let unreadable: Option<_> = records.unreadable.first();
        check!(unreadable.is_none(), "a record cannot be read: {unreadable:?}");
        found.extend(records.records);
        let Some(next) = records.next else { return Ok(found) };
        check!(
            page.after.as_ref().map(Cursor::as_str) != Some(next.as_str()),
            "the page after {next:?} ends with the same cursor"
        );
        page.after = Some(next);
    }
}

fn text(number: u32) -> String {
    format!("number {number}")
}

/// The number that a record has reached, and whether to stop.
#[derive(Debug, Default)]
struct Counting {
    written: AtomicU32,
    ended: AtomicBool,
}

impl Counting {
    /// Writes number after number until a write fails, or until `ended` is set, because a store that does not
    /// use the killed engine never fails.
    async fn go_on(&self, client: &Client, name: &SequenceName) {
        while !self.ended.load(Ordering::Relaxed) {
            // A store that never waits would otherwise block this thread.
            tokio::task::yield_now().await;
            let number = self.written.load(Ordering::Relaxed);
            let (seen, wanted) = (text(number), text(number + 1));
            match client.swap_once(name, Some(&seen), &wanted).await {
                Ok(Ok(true)) => self.written.store(number + 1, Ordering::Relaxed),
                _ => return,
            }
        }
    }
}

pub(super) async fn records_over_kills(context: Arc<Context>) -> Outcome {
    let engine = context.setup.engine.as_ref().expect("needed");
    let (client, name) = (context.connect().await?, context.name("kills"));
    check!(client.swap(&name, None, &text(0)).await??, "the first record cannot be written");
    let mut number = 0;
    for round in 1..=2 {
        let counting = Arc::new(Counting { written: number.into(), ..Counting::default() });
        let task = {
            let (counting, client, name) = (counting.clone(), client.clone(), name.clone());
            tokio::spawn(async move { counting.go_on(&client, &name).await })
        };
        let written = || counting.written.load(Ordering::Relaxed);
        let enough = || async { Ok((written() > number + 5 * round).then_some(())) };
        context.until("writes of the record before the engine is killed", enough).await?;
        engine.kill();
        counting.ended.store(true, Ordering::Relaxed);
        task.await?;
        engine.start().await?;
        let read = || async { Ok(client.store().record(&name).await.ok()) };
        let kept = context.until("a read of the record, without reopening the store", read).await?;
        // One write may have been in flight.
        let Some(kept) = [written(), written() + 1].into_iter().find(|number| kept == Some(text(*number)))
        else {
            fail!("{:?} was written before the engine was killed, but {kept:?} is stored", text(written()))
        };
        number = kept;
    }
    Ok(())
}

pub(super) async fn records_through_cuts(context: Arc<Context>) -> Outcome {
    let (mut scene, name) = (Scene::new(context.clone()).await?, context.name("cut"));
    let mut written = Written::default();
    for (round, cut) in (0..).zip(rounds().chain(rounds())) {
        let whole = || async { Ok(scene.client.store().record(&name).await.ok()) };
        let seen: Option<String> = context.until("a read of the record after a cut", whole).await?;
        written.allows(seen.as_ref())?;
        let wanted = text(round);
        let call = async |client: &Client| client.store().swap_record(&name, seen.as_deref(), &wanted).await;
        let answer = scene.through(cut, call).await?;
        written.note(seen, wanted, &answer);
        written.allows(scene.observer.kept(&name).await??.as_ref())?;
    }
    if scene.met == 0 && context.windowed() {
        return Err(Stop::Skipped(
            "the records of this store do not go through the proxied engine".to_owned(),
        ));
    }
    scene.proven()
}

/// The texts that the record may have after the answers to all writes.
#[derive(Debug, Default)]
struct Written {
    last: Option<String>,
    /// Writes with an unknown outcome, which may take effect even after a later read.
    open: Vec<String>,
    answer: String,
}

impl Written {
    fn note(&mut self, seen: Option<String>, wanted: String, answer: &Result<bool>) {
        self.answer = format!("{wanted:?} over {seen:?}: {answer:?}");
        self.last = seen;
        match answer {
            // This write replaced the text that the open writes expect, so they can no longer apply.
            Ok(true) => (self.last, self.open) = (Some(wanted), Vec::new()),
            Err(error) if error.kind().status() == Status::Unknown => self.open.push(wanted),
            _ => {}
        }
    }

    fn allows(&self, kept: Option<&String>) -> Outcome {
        let open = kept.is_some_and(|kept| self.open.contains(kept));
        check!(
            open || kept == self.last.as_ref(),
            "{kept:?} is stored instead of {:?} or one of {:?}, after the write {}",
            self.last,
            self.open,
            self.answer
        );
        Ok(())
    }
}
