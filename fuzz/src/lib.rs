//! A server for the fuzz targets, and a client that splits its input into parts.

use std::future::Future;
use std::sync::OnceLock;

use idmill::Sequences;
use idmill::store::MemoryStore;
use idmill_server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

/// The pipe's size. The client reads while it writes, since unread answers would block the server.
const BUFFER: usize = 16 * 1024;

/// Sends `bytes` in parts of at most `part` bytes to a server over an empty store, and returns its answers.
/// Also checks that another client is served normally.
pub fn answers<C>(bytes: &[u8], part: usize, client: impl Fn(&Server, DuplexStream) -> C) -> Vec<u8>
where
    C: Future<Output = ()> + Send + 'static,
{
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| Builder::new_current_thread().enable_all().build().unwrap());
    runtime.block_on(async {
        let sequences = Sequences::new(MemoryStore::new()).unwrap();
        let server = Server::builder(sequences).bind().await.unwrap();
        let answers = sent(bytes, part, |stream| client(&server, stream)).await;
        let other = sent(b"INCR other\r\n", usize::MAX, |stream| server.resp_client(stream)).await;
        assert!(other.starts_with(b":"), "{}", other.escape_ascii());
        answers
    })
}

async fn sent<C>(bytes: &[u8], part: usize, client: impl FnOnce(DuplexStream) -> C) -> Vec<u8>
where
    C: Future<Output = ()> + Send + 'static,
{
    let (ours, theirs) = duplex(BUFFER);
    let served = tokio::spawn(client(theirs));
    let (mut reading, mut writing) = split(ours);
    let writer = async {
        for part in bytes.chunks(part.max(1)) {
            // If the server has disconnected, its earlier output is still read.
            if writing.write_all(part).await.is_err() {
                break;
            }
            yield_now().await;
        }
        let _ = writing.shutdown().await;
    };
    let mut answers = Vec::new();
    let (_, read) = tokio::join!(writer, reading.read_to_end(&mut answers));
    read.unwrap();
    // The server did not panic.
    served.await.unwrap();
    answers
}
