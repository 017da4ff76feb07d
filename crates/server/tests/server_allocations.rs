//! A pipeline of `INCR` is answered without allocations.

use allocation_counter::measure;
use idmill::Sequences;
use idmill::store::MemoryStore;
use idmill_server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

const BATCHES: usize = 1_000;
const COMMANDS: usize = 64;

/// Writes a pipeline, and reads its answers.
async fn answered(client: &mut DuplexStream, pipeline: &[u8], answers: &mut [u8]) {
    client.write_all(pipeline).await.unwrap();
    let mut lines = 0;
    while lines < COMMANDS {
        let read = client.read(answers).await.unwrap();
        assert!(read > 0 && !answers[..read].contains(&b'-'), "{}", answers[..read].escape_ascii());
        lines += answers[..read].split(|byte| *byte == b'\n').count() - 1;
    }
}

#[test]
fn incr_pipeline_allocates_nothing() {
    // Refills allocate in a thread that is not measured.
    let ids = Sequences::builder(MemoryStore::new()).own_thread().start().unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::builder(ids).bind()).unwrap();
    let (mut client, stream) = duplex(64 * 1024);
    runtime.spawn(server.resp_client(stream));

    let pipeline = b"*2\r\n$4\r\nINCR\r\n$6\r\norders\r\n".repeat(COMMANDS);
    let mut answers = [0; 4096];
    let mut batch = || runtime.block_on(answered(&mut client, &pipeline, &mut answers));
    // Warm up: open the sequence, and let buffers and steps grow.
    (0..10 * BATCHES).for_each(|_| batch());
    let allocating = (0..BATCHES).filter(|_| measure(&mut batch).count_total > 0).count();
    // A draw that crosses the watermark pushes a signal, and the queue may allocate memory for it.
    assert!(allocating <= BATCHES / 100, "{allocating} of {BATCHES} pipelines allocated");
}

#[test]
fn idle_connection_frees_the_memory_of_a_long_command() {
    let ids = Sequences::builder(MemoryStore::new()).own_thread().start().unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::builder(ids).bind()).unwrap();
    // A duplex stream would keep memory too.
    let (mut client, stream) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    });
    runtime.spawn(server.resp_client(stream));
    let long = format!("PING {}\r\n", "x".repeat(200_000));
    let mut ask = |command: &str, answer: usize| {
        let mut answer = vec![0; answer];
        runtime.block_on(async {
            client.write_all(command.as_bytes()).await.unwrap();
            client.read_exact(&mut answer).await.unwrap();
        });
    };
    ask("PING\r\n", "+PONG\r\n".len());
    let kept = measure(|| {
        ask(&long, "$200000\r\n\r\n".len() + 200_000);
        ask("PING\r\n", "+PONG\r\n".len());
    })
    .bytes_current;
    assert!(kept < 50_000, "{kept} bytes");
}
