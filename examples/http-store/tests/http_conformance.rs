//! The suite that every store must pass, over the document service in `engine`.

mod engine;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use http_store::{DocOptions, DocStore};
use idmill::store::Store;
use idmill_conformance::{Daemon, Endpoint, Suite, free_port};

/// The variable that makes this executable the document service.
const ENGINE: &str = "HTTP_STORE_ENGINE";

fn main() {
    if let Some(address) = std::env::var_os(ENGINE) {
        let dir = std::env::args_os().nth(1).expect("the directory");
        engine::run(address.to_str().expect("an address"), Path::new(&dir));
    }
    let port = free_port();
    let engine = Daemon::in_directory(([127, 0, 0, 1], port).into(), move |dir| {
        let mut command = Command::new(std::env::current_exe().expect("this executable"));
        command.arg(dir).env(ENGINE, format!("127.0.0.1:{port}"));
        command
    });
    Suite::new("http", |endpoint: Endpoint| async move {
        let options = format!("doc://{}", endpoint.address()).parse::<DocOptions>()?;
        let store = DocStore::open(options.timeout(endpoint.timeout())).await?;
        Ok(Arc::new(store) as Arc<dyn Store>)
    })
    .engine(engine.named("documents", "1"))
    .main()
}
