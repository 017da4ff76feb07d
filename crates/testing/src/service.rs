//! The services of `examples/axum`, as processes that are called over HTTP, and their promises.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::iter;
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::engines::Engine;
use crate::{eventually_blocking, holds};

/// The time limit for an answer, a start or an end: a guard against hanging.
const LONG: Duration = Duration::from_secs(60);
/// Number of simultaneous clients.
const CLIENTS: usize = 8;
/// A request for an order that does not exist.
const NOBODYS: &str = "POST /orders/9000000000000000000/invoice";

/// A running service, killed on drop.
#[derive(Debug)]
pub struct Service {
    process: Child,
    shop: Shop,
}

/// The address of a service.
#[derive(Clone, Copy, Debug)]
pub struct Shop(SocketAddr);

impl Service {
    /// Starts the program over this PostgreSQL. The program prints its port.
    pub fn start(program: &str, engine: &Engine) -> Self {
        let mut command = Command::new(program);
        command.env("DATABASE_URL", format!("postgres://postgres@{}/postgres", engine.address()));
        let mut process =
            command.env("LISTEN", "127.0.0.1:0").stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let said = process.stdout.as_mut().expect("piped");
        BufReader::new(said).read_line(&mut line).expect("it says something");
        let address = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("it said {line:?}"));
        Self { shop: Shop(address.parse().expect("an address")), process }
    }

    /// Ends the service with SIGTERM. Returns its exit status.
    pub fn end(&mut self) -> ExitStatus {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        eventually_blocking("the service ends", || {
            self.process.try_wait().expect("our child").ok_or("it runs")
        })
    }
}

impl Deref for Service {
    type Target = Shop;

    fn deref(&self) -> &Shop {
        &self.shop
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Shop {
    /// Sends a request, such as `GET /health`, and does not wait for the answer.
    pub fn send(&self, request: &str) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.0)?;
        stream.set_read_timeout(Some(LONG))?;
        let rest = "HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: 0";
        stream.write_all(format!("{request} {rest}\r\n\r\n").as_bytes())?;
        Ok(stream)
    }

    /// Returns the status and the text of the answer.
    pub fn ask(&self, request: &str) -> io::Result<(u16, String)> {
        let mut answer = String::new();
        self.send(request)?.read_to_string(&mut answer)?;
        let (head, text) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.ok_or(io::ErrorKind::InvalidData)?, text.to_owned()))
    }

    /// Returns the text of a successful answer.
    pub fn text(&self, request: &str) -> String {
        let (status, text) = self.ask(request).unwrap_or_else(|error| panic!("{request}: {error}"));
        assert_eq!(status, 200, "{request}: {text}");
        text
    }

    /// Returns the numbers in a successful answer, one per line.
    pub fn numbers(&self, request: &str) -> Vec<u64> {
        self.text(request).lines().map(|line| line.parse().expect("a number")).collect()
    }

    /// Returns the id of a new order, if there was an answer.
    fn answered(self) -> Option<u64> {
        let (status, text) = self.ask("POST /orders").ok()?;
        assert_eq!(status, 200, "{text}");
        Some(text.trim().parse().expect("a number"))
    }

    pub fn order(&self) -> u64 {
        self.numbers("POST /orders")[0]
    }

    pub fn bill(&self, order: u64) -> u64 {
        self.numbers(&format!("POST /orders/{order}/invoice"))[0]
    }

    /// The value of a metric of the orders' sequence.
    pub fn metric(&self, name: &str) -> u64 {
        let (page, begin) = (self.text("GET /metrics"), format!("{name}{{sequence=\"orders\"}} "));
        let value = page.lines().find_map(|line| line.strip_prefix(&begin));
        value.unwrap_or_else(|| panic!("no {name} in {page}")).parse().expect("a number")
    }
}

/// Runs several clients concurrently. Returns all their results in one list.
fn at_once<T: Send>(client: impl Fn(usize) -> Vec<T> + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(move || client(n))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("no client panics")).collect()
    })
}

fn distinct(ids: &[u64]) -> BTreeSet<u64> {
    let set: BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!(set.len(), ids.len(), "an id was returned twice: {ids:?}");
    set
}

/// Two processes and their clients: no order's id is a duplicate, and no invoice's number is missing,
/// although two of three transactions roll back.
pub async fn ids_are_unique_and_invoices_gapless(program: &str) {
    let Some(engine) = Engine::start("postgres").await else { return };
    let shops = [Service::start(program, &engine), Service::start(program, &engine)];
    let orders = at_once(|client| (0..25).map(|_| shops[client % 2].order()).collect());
    distinct(&orders);
    let numbers = at_once(|client| {
        let bill = |order: &u64| {
            let shop = &shops[client % 2];
            assert_eq!(shop.ask(NOBODYS).expect("an answer").0, 404);
            let number = shop.bill(*order);
            assert_eq!(shop.ask(&format!("POST /orders/{order}/invoice")).expect("an answer").0, 409);
            number
        };
        orders.chunks(25).nth(client).expect("a chunk each").iter().map(bill).collect()
    });
    assert_eq!(distinct(&numbers), (1..=200).collect());
    assert_eq!(shops[0].numbers("GET /invoices"), (1..=200).collect::<Vec<_>>());
    assert_eq!(shops.iter().map(|shop| shop.metric("idmill_draws_total")).sum::<u64>(), 200);
    assert!(
        shops.iter().all(|shop| shop.metric("idmill_health") == 2 && shop.text("GET /health") == "Serving\n")
    );
}

/// Clients that disconnect at different moments of a request: their invoices are written or not, and no
/// number is missing. An aborted transaction of one process does not block the clients of another.
pub async fn clients_may_disconnect(program: &str) {
    let Some(engine) = Engine::start("postgres").await else { return };
    let (left, shop) = (Service::start(program, &engine), Service::start(program, &engine));
    let orders: Vec<u64> = (0..100).map(|_| shop.order()).collect();
    let bill = |order| format!("POST /orders/{order}/invoice");
    for (order, timeout) in orders.iter().zip((0..).step_by(100)) {
        let waiting = left.send(&bill(order)).expect("it listens");
        thread::sleep(Duration::from_micros(timeout));
        drop(waiting);
        let (status, text) = shop.ask(&bill(order)).expect("an answer");
        assert!([200, 409].contains(&status), "{status} {text}");
    }
    assert_eq!(shop.numbers("GET /invoices"), (1..=100).collect::<Vec<_>>());
}

/// After SIGTERM, a service gives its remaining ids back, so that the next service continues with these ids,
/// even if a client never finishes its request. A killed service loses the ids in its memory.
pub async fn restarted_service_continues_the_ids(program: &str) {
    let Some(engine) = Engine::start("postgres").await else { return };
    let mut shop = Service::start(program, &engine);
    assert_eq!((0..10).map(|_| shop.order()).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    let mut endless = TcpStream::connect(shop.0).expect("it listens");
    endless.write_all(b"POST /orders HTTP/1.1\r\n").expect("it reads");
    // Get the metric afterwards, so that the service has begun to read the other request.
    assert!(shop.metric("idmill_remaining") > 0, "there is nothing to give back");
    assert!(shop.end().success());
    let shop = Service::start(program, &engine);
    assert_eq!(shop.order(), 11);
    let granted = shop.metric("idmill_granted_total");
    drop(shop); // SIGKILL
    let next = Service::start(program, &engine).order();
    assert!((12..=11 + granted).contains(&next), "{next} after a kill, of {granted} granted");
}

/// A service that gets SIGTERM while clients call it: every answer has a unique id, and the next start
/// hands out larger ones.
pub async fn ends_under_load(program: &str) {
    let Some(engine) = Engine::start("postgres").await else { return };
    let mut shop = Service::start(program, &engine);
    let asked = *shop;
    let ids = thread::scope(|scope| {
        let clients = scope.spawn(|| at_once(|_| iter::from_fn(|| asked.answered()).take(10_000).collect()));
        eventually_blocking("200 draws", || {
            let draws = shop.metric("idmill_draws_total");
            holds(draws >= 200, draws)
        });
        assert!(shop.end().success());
        clients.join().expect("no client panics")
    });
    let last = *distinct(&ids).last().expect("ids");
    assert!(Service::start(program, &engine).order() > last);
}
