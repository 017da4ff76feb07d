//! Many tasks that reserve at the same time.

use idmill::store::{Grant, Reserve, Store};
use tokio::task::JoinSet;

/// Runs `tasks` tasks for each store at the same time. Each makes `times` reserves, one after the other. The
/// first task requests one id, then two, and so on. Each later task starts with one id more than the task
/// before it.
pub async fn reserved_at_once<S: Store + Clone + 'static>(
    stores: Vec<S>,
    tasks: u64,
    times: u64,
    request: fn(u64) -> Reserve,
) -> Vec<Grant> {
    let mut running = JoinSet::new();
    for store in stores {
        for task in 0..tasks {
            let store = store.clone();
            running.spawn(async move {
                let mut grants = Vec::new();
                for count in 1..=times {
                    grants.push(store.reserve(&request(count + task)).await.unwrap());
                }
                grants
            });
        }
    }
    running.join_all().await.into_iter().flatten().collect()
}
