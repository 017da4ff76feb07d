//! Servers of `idmill serve` as processes, clients that draw from them, and every id that the clients
//! received.
//!
//! ```ignore
//! let recorder = Recorder::new();
//! let fleet = Fleet::new(3);
//! fleet.put(0, Server::start(&mut command));
//! let load = Load::start(&recorder, &fleet, &Pace { clients: 8, ..Pace::default() });
//! fleet.take(0).kill();
//! let waits = load.end().await;
//! recorder.none_twice_and_in_order();
//! ```

mod blocking;
mod clients;
mod hostile;
mod load;
mod recorder;
mod server;

pub use blocking::{Client, request, talk};
pub use clients::{Http, Resp, Way};
pub use hostile::{Hostile, answer_to, garbage};
pub use load::{Fleet, Load, Pace, Waits};
pub use recorder::{Connection, Recorder};
pub use server::{Server, Totals};
