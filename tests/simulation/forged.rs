//! Worlds in which everything went well, with one forged event: the check of the broken promise must find it.

use std::time::Duration;

use idmill::{ErrorKind, Order};

use crate::check;
use crate::history::{Back, Draw, History, Outcome, View};
use crate::plan::{Bug, Plan, Sizing};
use crate::world::{self, World};

/// Changes the history of the first sequence. Returns `None` if this world has no suitable event.
type Forge = fn(&Plan, &mut History) -> Option<()>;

/// The forged events, and the checks that must find them.
const FORGED: [(&str, Forge); 11] = [
    ("unique: id", id_twice),
    ("order: ", falling),
    ("gaps: life", missing_id),
    ("given back: ", used_and_given_back),
    ("reserves: life", too_many_reserves),
    ("revoked: ", after_the_revocation),
    ("deadlines: ", late),
    ("flights: ", two_at_once),
    ("ended: ", after_the_end),
    ("waits: ", waited),
    ("lost: life", id_twice_after_a_loss),
];

#[test]
fn each_check_finds_a_forged_event() {
    for (fault, forge) in FORGED {
        idmill_testing::seeds::must_find(&fault, fault, 300, |seed| checked(seed, forge));
    }
}

fn checked(seed: u64, forge: Forge) -> Result<(), String> {
    let World { plan, store, history, hung, names } = world::run(Plan { bug: Bug::None, ..Plan::of(seed) });
    if forge(&plan, &mut history.lock()).is_none() {
        return Ok(());
    }
    check::all(&World { plan, store, history, hung, names })
}

/// Returns the draws of the first sequence with ids, in the order in which they ended.
fn draws(history: &mut History) -> Vec<&mut Draw> {
    let drawn = history.draws.iter_mut().filter(|draw| draw.sequence == 0 && !draw.ids().is_empty());
    drawn.collect()
}

fn last(history: &mut History) -> Option<Draw> {
    draws(history).pop().cloned()
}

fn is_lossless(plan: &Plan) -> Option<()> {
    plan.losses.is_empty().then_some(())
}

fn id_twice(plan: &Plan, history: &mut History) -> Option<()> {
    is_lossless(plan)?;
    let last = last(history)?;
    history.draws.push(last);
    Some(())
}

fn id_twice_after_a_loss(plan: &Plan, history: &mut History) -> Option<()> {
    let last = last(history).filter(|_| !plan.losses.is_empty())?;
    history.draws.push(last);
    Some(())
}

/// The ids of the first and the last draw of a process are exchanged.
fn falling(plan: &Plan, history: &mut History) -> Option<()> {
    is_lossless(plan).filter(|()| plan.sequences[0].order == Order::Process)?;
    let mut draws = draws(history);
    let last = draws.pop()?;
    let first = draws.into_iter().find(|draw| draw.life == last.life && draw.ended < last.began)?;
    std::mem::swap(&mut first.outcome, &mut last.outcome);
    Some(())
}

fn missing_id(plan: &Plan, history: &mut History) -> Option<()> {
    is_lossless(plan)?;
    history.left.iter_mut().find(|left| left.sequence == 0)?.snapshot.granted += 1;
    Some(())
}

fn used_and_given_back(plan: &Plan, history: &mut History) -> Option<()> {
    is_lossless(plan)?;
    let Draw { life, ended, at, ref outcome, .. } = last(history)?;
    let Outcome::Ids(ids) = outcome else { return None };
    let name = plan.sequences[0].name.clone();
    history.given_back.push(Back { life, name, rest: ids[0], tick: ended + 1, at, over: at });
    Some(())
}

fn too_many_reserves(plan: &Plan, history: &mut History) -> Option<()> {
    is_lossless(plan).filter(|()| matches!(plan.sequences[0].sizing, Sizing::Fixed { .. }))?;
    history.left.iter_mut().find(|left| left.sequence == 0)?.snapshot.reserves += 1_000_000;
    Some(())
}

fn after_the_revocation(plan: &Plan, history: &mut History) -> Option<()> {
    is_lossless(plan)?;
    let Draw { life, began, .. } = last(history)?;
    history.revoked.push((life, 0, began - 1));
    Some(())
}

fn late(_: &Plan, history: &mut History) -> Option<()> {
    let last = draws(history).pop()?;
    last.took = last.limit + Duration::from_secs(1);
    Some(())
}

fn two_at_once(_: &Plan, history: &mut History) -> Option<()> {
    let tick = last(history)?.began;
    history.crowded.push(tick);
    Some(())
}

fn after_the_end(plan: &Plan, history: &mut History) -> Option<()> {
    is_lossless(plan)?;
    let last = last(history)?;
    let outcome = Outcome::Refused(ErrorKind::Closed);
    history.draws.insert(0, Draw { began: 0, ended: 0, view: View::Handle, outcome, ..last });
    Some(())
}

fn waited(plan: &Plan, history: &mut History) -> Option<()> {
    let left = history.left.first_mut().filter(|_| plan.calm)?;
    left.snapshot.waits += 2;
    Some(())
}
