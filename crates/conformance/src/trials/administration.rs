//! Creating, reading, listing, changing and removing.

use std::sync::Arc;

use idmill::store::{Bounds, Change, Identity, Page, SequenceInfo};
use idmill::{ErrorKind, Result, SequenceName};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::context::Context;
use crate::ledger::{Ledger, Reply, now};
use crate::outcome::{Outcome, check, fail};

fn expect<T: std::fmt::Debug>(what: &str, answer: &Result<T>, kind: ErrorKind) -> Outcome {
    match answer {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => fail!("{what}: expected {}, got {}: {error}", kind.as_str(), error.kind().as_str()),
        Ok(value) => fail!("{what}: expected {}, got {value:?}", kind.as_str()),
    }
}

pub(super) async fn create_once(context: Arc<Context>) -> Outcome {
    let (client, name) = (context.connect().await?, context.name("once"));
    check!(client.inspect(&name).await??.is_none(), "the sequence exists before its creation");
    let bounds = Bounds::new(10, 90)?;
    let created = client.create(&name, bounds).await??;
    check!(created.name == name && created.bounds == bounds, "created as {created:?}");
    check!(created.next == Some(10) && created.identity.epoch == 0, "created as {created:?}");
    check!(created.identity.incarnation != 0, "the incarnation is 0, which means none");
    for bounds in [bounds, Bounds::new(1, 5)?] {
        expect("create again", &client.create(&name, bounds).await?, ErrorKind::AlreadyExists)?;
    }
    let stored = context.connect().await?.look(&name).await?;
    check!(stored == created, "created {created:?}, stored {stored:?}");
    let reserved = context.name("reserved");
    client.reserve(&context.request(&reserved, 1)).await??;
    expect("create after reserve", &client.create(&reserved, bounds).await?, ErrorKind::AlreadyExists)
}

pub(super) async fn looking_consumes_nothing(context: Arc<Context>) -> Outcome {
    let (client, name) = (context.connect().await?, context.name("look"));
    check!(client.inspect(&name).await??.is_none(), "the sequence exists before its creation");
    check!(client.inspect(&name).await??.is_none(), "inspect created the sequence");
    check!(client.list().await??.iter().all(|info| info.name != name), "inspect created the sequence");
    client.reserve(&context.request(&name, 5)).await??;
    let before = client.look(&name).await?;
    for _ in 0..3 {
        client.list().await??;
        let after = client.look(&name).await?;
        check!(after == before, "list or inspect changed {before:?} to {after:?}");
    }
    Ok(())
}

pub(super) async fn list_is_sorted_and_complete(context: Arc<Context>) -> Outcome {
    let (client, other) = (context.connect().await?, context.connect().await?);
    let mut names: Vec<_> = (0..30).map(|number| context.name(&format!("list{}", number * 7 % 30))).collect();
    for (number, name) in (0..).zip(&names) {
        client.create(name, Bounds::new(number, 100)?).await??;
    }
    let listed = other.list().await??;
    names.sort();
    let ours: Vec<_> = listed.iter().filter(|info| names.contains(&info.name)).collect();
    let listed_names: Vec<_> = ours.iter().map(|info| info.name.clone()).collect();
    check!(listed_names == names, "listed {listed_names:?} instead of {names:?}");
    for info in ours {
        let looked = client.look(&info.name).await?;
        check!(*info == looked, "listed as {info:?}, but inspected as {looked:?}");
    }
    Ok(())
}

pub(super) async fn list_comes_in_pages(context: Arc<Context>) -> Outcome {
    let (client, other) = (context.connect().await?, context.connect().await?);
    let names: Vec<_> = (0..25).map(|number| context.name(&format!("page{number:02}"))).collect();
    for (number, name) in (0..).zip(&names) {
        client.create(name, Bounds::new(number, 100)?).await??;
    }
    let number = names[0].find("page00").unwrap_or_default() + "page0".len();
    let mut page = Page::of(&names[0][..number]).limit(4);
    let mut found = Vec::new();
    loop {
        let listing = other.page(&page).await??;
        let sorted = listing.sequences.windows(2).all(|pair| pair[0].name < pair[1].name);
        check!(sorted, "a page is not sorted by name: {listing:?}");
        found.extend(listing.sequences);
        let Some(next) = listing.next else { break };
        check!(page.after.as_ref() != Some(&next), "the page after {next:?} ends with the same cursor");
        page.after = Some(next);
    }
    let foreign = found.iter().find(|info| !info.name.starts_with(&page.prefix));
    check!(foreign.is_none(), "{foreign:?} is listed, but its name does not begin with {:?}", page.prefix);
    for name in &names[..10] {
        let looked = client.look(name).await?;
        let listed: Vec<_> = found.iter().filter(|info| info.name == *name).collect();
        check!(!listed.is_empty(), "`{name}` is on no page");
        check!(
            listed.iter().all(|info| **info == looked),
            "listed as {listed:?}, but inspected as {looked:?}"
        );
    }
    Ok(())
}

async fn created(context: &Context, label: &str) -> Outcome<(Client, SequenceInfo)> {
    let (client, name) = (context.connect().await?, context.name(label));
    let info = client.create(&name, Bounds::new(1, 1000)?).await??;
    Ok((client, info))
}

/// The result of a change by the crate's own arithmetic.
fn predicted(info: &SequenceInfo, change: &Change) -> Result<SequenceInfo> {
    let mut info = info.clone();
    info.apply(change)?;
    Ok(info)
}

pub(super) async fn set_does_what_it_says(context: Arc<Context>) -> Outcome {
    let (client, mut info) = created(&context, "set").await?;
    let next = |next| Change::new().next(next);
    let max = |max| Change::new().max(max);
    let back = |change: Change| change.backwards(true);
    let stranger = Some(Identity { incarnation: 1, epoch: 99 });
    let changes = [
        next(500),
        next(100),
        back(next(100)),
        back(next(200)),
        max(2000),
        max(50),
        back(max(50)),
        max(800),
        next(801),
        next(0),
        max(0),
        Change::new().next(900).max(950),
        next(940).expect(stranger),
        next(940).expect(Identity { incarnation: 0, epoch: 0 }),
        next(951),
        back(next(1)),
        back(max(1)),
        max(2),
        next(2).max(1),
        max(700),
        Change::default(),
    ];
    for change in changes {
        let expected = predicted(&info, &change);
        let answer = client.set(&info.name, change).await?;
        match (&expected, &answer) {
            (Ok(expected), Ok(answer)) => {
                check!(
                    answer == expected,
                    "{change:?} of {info:?} returned {answer:?} instead of {expected:?}"
                );
                info = answer.clone();
            }
            (Err(expected), answer) => expect(&format!("{change:?} of {info:?}"), answer, expected.kind())?,
            (Ok(expected), Err(error)) => fail!("{change:?} of {info:?}: expected {expected:?}, got {error}"),
        }
        let stored = client.look(&info.name).await?;
        check!(stored == info, "after {change:?}, {stored:?} is stored instead of {info:?}");
    }
    let expect_own = next(7).expect(info.identity);
    info = client.set(&info.name, expect_own).await??;
    check!(info.next == Some(7), "set to 7, but next is {:?}", info.next);
    let nobody = context.name("nobody");
    expect("set of a missing sequence", &client.set(&nobody, next(5)).await?, ErrorKind::NotFound)?;
    check!(client.inspect(&nobody).await??.is_none(), "set created a missing sequence");
    Ok(())
}

pub(super) async fn set_moves_reserves(context: Arc<Context>) -> Outcome {
    let (client, info) = created(&context, "moves").await?;
    let request = context.request(&info.name, 10);
    client.reserve(&request).await??;
    client.set(&info.name, Change::new().next(300)).await??;
    let forwards = context.connect().await?.reserve(&request).await??;
    check!(forwards.range.start() == 300, "next was set to 300, but {:?} was granted", forwards.range);
    check!(forwards.identity == info.identity, "setting next forwards changed the identity");
    let back = Change::new().next(5).backwards(true);
    client.set(&info.name, back).await??;
    let backwards = client.reserve(&request).await??;
    check!(
        backwards.range.start() == 5,
        "next was set backwards to 5, but {:?} was granted",
        backwards.range
    );
    let epoch = backwards.identity.epoch;
    check!(
        epoch == info.identity.epoch + 1,
        "setting next backwards changed the epoch to {epoch}, which is not the next epoch"
    );
    check!(
        backwards.identity.incarnation == info.identity.incarnation,
        "setting next backwards changed the incarnation"
    );
    Ok(())
}

/// Several clients change the sequence and expect the same identity: only one may succeed.
pub(super) async fn set_compares(context: Arc<Context>) -> Outcome {
    let (client, info) = created(&context, "compare").await?;
    client.reserve(&context.request(&info.name, 500)).await??;
    let mut info = client.look(&info.name).await?;
    for _ in 0..5 {
        let mut racing = JoinSet::new();
        for (number, client) in (0..).zip(context.connect_many(6).await?) {
            let (name, expect) = (info.name.clone(), Some(info.identity));
            let next = info.next.map(|next| next - 10 - number);
            let change = Change::new().next(next).expect(expect).backwards(true);
            racing.spawn(async move { client.set(&name, change).await });
        }
        let mut won = Vec::new();
        while let Some(answer) = racing.join_next().await {
            match answer?? {
                Ok(info) => won.push(info),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => fail!("the loser got {} instead of conflict: {error}", error.kind().as_str()),
            }
        }
        check!(won.len() == 1, "{} of 6 conditional changes succeeded, not 1", won.len());
        let stored = client.look(&info.name).await?;
        check!(stored == won[0], "the winner got {:?}, but {stored:?} is stored", won[0]);
        info = stored;
    }
    Ok(())
}

pub(super) async fn revoke_raises_the_epoch(context: Arc<Context>) -> Outcome {
    let (client, name) = (context.connect().await?, context.name("revoked"));
    client.create(&name, context.bounds()).await??;
    client.reserve(&context.request(&name, 5)).await??;
    let before = client.look(&name).await?;
    let mut expected = before.clone();
    expected.identity.epoch += 1;
    let revoke = Change::new().revoke(true).expect(before.identity);
    let after = client.set(&name, revoke).await??;
    check!(after == expected, "revoking {before:?} returned {after:?}, not {expected:?}");
    check!(
        client.look(&name).await? == expected,
        "the revoked sequence is stored as {:?}",
        client.look(&name).await?
    );
    let grant = client.reserve(&context.request(&name, 5)).await??;
    check!(
        grant.identity == expected.identity && Some(grant.range.start()) == expected.next,
        "after a revocation, {grant:?} was granted, although {expected:?} was stored"
    );
    match client.set(&name, revoke).await? {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        other => fail!("revoking the old epoch again did not conflict: {other:?}"),
    }
}

pub(super) async fn remove_makes_another(context: Arc<Context>) -> Outcome {
    let (client, info) = created(&context, "remove").await?;
    let request = context.request(&info.name, 5);
    let before = client.reserve(&request).await??;
    check!(client.remove(&info.name).await??, "remove did not find an existing sequence");
    check!(client.inspect(&info.name).await??.is_none(), "the removed sequence still exists");
    check!(
        client.list().await??.iter().all(|other| other.name != info.name),
        "the removed sequence is still listed"
    );
    check!(!client.remove(&info.name).await??, "remove found a sequence that was already removed");
    let change = Change::new().next(5);
    expect("set of a removed sequence", &client.set(&info.name, change).await?, ErrorKind::NotFound)?;
    let after = context.connect().await?.reserve(&request).await??;
    let same = after.identity.incarnation == before.identity.incarnation;
    check!(!same, "a sequence that was removed and created again has the same incarnation");
    let expect_old = Change::new().next(500).expect(before.identity);
    expect(
        "set that expects the old identity",
        &client.set(&info.name, expect_old).await?,
        ErrorKind::Conflict,
    )
}

pub(super) async fn remove_compares(context: Arc<Context>) -> Outcome {
    let (client, info) = created(&context, "removeif").await?;
    let Identity { incarnation, epoch } = info.identity;
    let known = client.set(&info.name, Change::new().revoke(true)).await??;
    for stranger in [
        Identity { incarnation, epoch },
        Identity { incarnation: incarnation ^ 1, epoch: known.identity.epoch },
        Identity { incarnation: 0, epoch: 0 },
        Identity { incarnation: u64::MAX, epoch: u64::MAX },
    ] {
        let answer = client.remove_if(&info.name, stranger).await?;
        expect("remove that expects another identity", &answer, ErrorKind::Conflict)?;
        let stored = client.look(&info.name).await?;
        check!(stored == known, "after a refused removal, {stored:?} is stored instead of {known:?}");
    }
    check!(client.remove_if(&info.name, known.identity).await??, "remove did not find an existing sequence");
    check!(
        !client.remove_if(&info.name, known.identity).await??,
        "remove found a sequence that was already removed"
    );
    let mut info = client.create(&info.name, info.bounds).await??;
    for _ in 0..5 {
        info = replaced(&context, &client, &info).await?;
    }
    Ok(())
}

/// Several clients remove the sequence and expect its identity. The first creates it again at once, and the
/// others must not remove the new sequence.
async fn replaced(context: &Context, client: &Client, info: &SequenceInfo) -> Outcome<SequenceInfo> {
    let mut racing: JoinSet<Outcome<Option<SequenceInfo>>> = JoinSet::new();
    for client in context.connect_many(6).await? {
        let info = info.clone();
        racing.spawn(async move {
            match client.remove_if(&info.name, info.identity).await? {
                Ok(true) => Ok(Some(client.create(&info.name, info.bounds).await??)),
                Ok(false) => Ok(None),
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
                Err(error) => fail!("the loser got {} instead of conflict: {error}", error.kind().as_str()),
            }
        });
    }
    let mut created = Vec::new();
    while let Some(answer) = racing.join_next().await {
        created.extend(answer??);
    }
    let [another] = &created[..] else {
        fail!("{} of 6 conditional removals succeeded, not 1", created.len())
    };
    let stored = client.inspect(&info.name).await??;
    check!(stored.as_ref() == Some(another), "{another:?} was created, but {stored:?} is stored");
    Ok(another.clone())
}

/// Raises `next` to `to`. Even without a fault, a slow engine can cause an unknown outcome. The stored
/// sequence then shows the outcome.
async fn step_to(client: &Client, name: &SequenceName, to: u64) -> Outcome {
    loop {
        match client.set(name, Change::new().next(to)).await? {
            Ok(info) => {
                check!(info.next == Some(to), "set to {to}, but next is {:?}", info.next);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => {
                if client.look(name).await?.next >= Some(to) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Raises `next` during concurrent reserves: no raise undoes a reserve.
pub(super) async fn set_among_reserves(context: Arc<Context>) -> Outcome {
    let name = context.name("among");
    let (client, ledger) = (context.connect().await?, Ledger::default());
    client.create(&name, context.bounds()).await??;
    let mut running: JoinSet<Outcome> = JoinSet::new();
    for reserver in context.connect_many(3).await? {
        let (ledger, request) = (ledger.clone(), context.request(&name, 3));
        running.spawn(async move {
            for _ in 0..40 {
                reserver.granted(&ledger, &request).await?;
            }
            Ok(())
        });
    }
    let mut steps = Vec::new();
    for step in 1..=12_u64 {
        let to = step * 10_000;
        step_to(&client, &name, to).await?;
        steps.push((now(), to));
        // Lowering `next` would grant again the ids that others have reserved since the step.
        let behind = client.set(&name, Change::new().next(to - 1)).await?;
        expect("setting next backwards during reserves", &behind, ErrorKind::Conflict)?;
    }
    while let Some(outcome) = running.join_next().await {
        outcome??;
    }
    ledger.disjoint()?;
    if context.windowed() {
        return Ok(());
    }
    ledger.growing()?;
    for entry in ledger.entries() {
        let Reply::Granted(grant) = entry.reply else { continue };
        let due = steps.iter().rev().find(|(done, _)| *done < entry.began).map_or(0, |(_, to)| *to);
        check!(
            grant.range.start() >= due,
            "{:?} was granted after the sequence had been set to {due}",
            grant.range
        );
    }
    Ok(())
}

/// Resets and removals during concurrent reserves: within one identity, no id is granted twice.
pub(super) async fn resets_among_reserves(context: Arc<Context>) -> Outcome {
    let (name, ledger) = (context.name("resets"), Ledger::default());
    let client = context.connect().await?;
    client.create(&name, context.bounds()).await??;
    let mut running: JoinSet<Outcome> = JoinSet::new();
    for reserver in context.connect_many(3).await? {
        let (ledger, request) = (ledger.clone(), context.request(&name, 3));
        running.spawn(async move {
            for _ in 0..40 {
                reserver.granted(&ledger, &request).await?;
            }
            Ok(())
        });
    }
    for step in 0..12 {
        let change = Change::new().next(1).backwards(true);
        let answer = match step % 3 {
            2 => client.remove(&name).await?.map(drop),
            _ => client.set(&name, change).await?.map(drop),
        };
        match answer {
            // The sequence was removed, and has not been created again yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            answer => answer?,
        }
    }
    while let Some(outcome) = running.join_next().await {
        outcome??;
    }
    ledger.disjoint()?;
    ledger.sound(context.windowed())
}
