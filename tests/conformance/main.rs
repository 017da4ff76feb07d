//! Every store against the suite: `cargo test --features conformance,STORE --test conformance -- STORE`.
//!
//! A store adds a module with its suite and a line below; its feature turns it on. Nothing runs unless a store is named,
//! since most need an engine, which is
//! `Suite::new("x", …).engine(OnDemand::new("x"))` with `use crate::engines::OnDemand`.

#[cfg(all(unix, feature = "cassandra"))]
mod cassandra;
#[cfg(unix)]
#[path = "../engines/mod.rs"]
mod engines;
#[cfg(unix)]
mod memory;
#[cfg(all(unix, feature = "sqlite"))]
mod sqlite;

#[cfg(unix)]
fn main() {
    let suites = [
        memory::suite(),
        #[cfg(feature = "cassandra")]
        cassandra::flat(),
        #[cfg(feature = "cassandra")]
        cassandra::geo(),
        #[cfg(feature = "sqlite")]
        sqlite::suite(),
    ];
    if std::env::args().len() == 1 && !idmill::conformance::is_worker() {
        let names: Vec<_> = suites.iter().map(idmill::conformance::Suite::name).collect();
        println!(
            "skipped: name the stores to run the suite on, of {}; or --list, or --help",
            names.join(", ")
        );
        return;
    }
    idmill::conformance::main(suites)
}

#[cfg(not(unix))]
fn main() {
    println!("skipped: the suite sends signals to processes, which is for Unix");
}
