//! Clients that draw continuously.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::common::Client;

/// Draws these amounts repeatedly, and ignores the answers. The task ends with the test.
pub(crate) fn draws(address: SocketAddr, each: &'static [(&'static str, u64)]) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut client = Client::to(address).await;
        loop {
            for (name, ids) in each {
                client.send(format!("INCRBY {name} {ids}\r\n")).await;
                if client.rest_of_line().await.is_empty() {
                    return;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
}
