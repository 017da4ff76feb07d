//! Clients that reserve as fast as they can.

use std::time::Duration;

use idmill::store::Reserve;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::Client;
use super::ledger::{Ledger, Reply};
use super::order::{Order, State, say_entry};
use super::outcome::Outcome;

/// Every client reserves `times` times in each of `tasks` tasks, all concurrently. The store must be healthy
/// and grant every reserve. Counts vary, because equal lengths would hide arithmetic errors.
pub(super) async fn healthy(
    clients: Vec<Client>,
    tasks: u64,
    times: u64,
    ledger: &Ledger,
    request: &Reserve,
) -> Outcome {
    let mut running: JoinSet<Outcome> = JoinSet::new();
    for client in clients {
        for task in 0..tasks {
            let (client, ledger, request) = (client.clone(), ledger.clone(), request.clone());
            running.spawn(async move {
                for round in 0..times {
                    let count = request.count + (task * 7 + round) % 13;
                    client.granted(&ledger, &request.clone().count(count)).await?;
                }
                Ok(())
            });
        }
    }
    while let Some(outcome) = running.join_next().await {
        outcome??;
    }
    Ok(())
}

/// Reserves until the future is dropped, whatever the results are. Pauses 1 ms after a grant, and 20 ms after
/// a failure.
pub(super) async fn stubborn(client: Client, ledger: Ledger, request: Reserve, timeout: Duration) {
    loop {
        let reply = client.record(&ledger, &request, timeout).await;
        let pause = if matches!(reply, Reply::Granted(_)) { 1 } else { 20 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// The work of a process of [`Job::Reserve`](super::order::Job). Prints each reserve.
pub(super) async fn worker(client: Client, order: &Order, orders: watch::Receiver<State>) -> Outcome {
    let mut running: JoinSet<()> = JoinSet::new();
    for task in 0..order.tasks {
        let (client, order, orders) = (client.clone(), order.clone(), orders.clone());
        running.spawn(async move {
            let mut round = 0;
            while *orders.borrow() == State::Running && (order.times == 0 || round < order.times) {
                let count = order.request.count + (task * 7 + round) % 13;
                let request = order.request.clone().count(count);
                let entry = client.attempt(&request, order.timeout).await;
                say_entry(&entry);
                if !matches!(entry.reply, Reply::Granted(_)) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                round += 1;
            }
        });
    }
    while let Some(outcome) = running.join_next().await {
        outcome?;
    }
    Ok(())
}
