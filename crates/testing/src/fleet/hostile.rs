//! Malicious and faulty clients.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// The behaviour of a hostile client. No such client reads an id that it drew, so the recorder misses no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostile {
    /// Bytes from a seed.
    Garbage(u64),
    /// Half a command, and silence.
    Half,
    /// A line without an end.
    Endless,
    /// Commands whose answers are not read.
    Unread,
    /// Connects and disconnects, many times.
    Flutters,
}

impl Hostile {
    pub const KINDS: usize = 5;

    /// Returns the kind with this number.
    pub fn of(kind: usize, seed: u64) -> Self {
        [Self::Garbage(seed), Self::Half, Self::Endless, Self::Unread, Self::Flutters][kind % Self::KINDS]
    }

    /// Acts for this long. The server's reaction is not checked.
    pub async fn act(self, address: SocketAddr, time: Duration) {
        let _ = timeout(time, self.try_act(address)).await;
    }

    async fn try_act(self, address: SocketAddr) -> std::io::Result<()> {
        if self == Self::Flutters {
            for _ in 0..200 {
                drop(TcpStream::connect(address).await?);
            }
            return Ok(());
        }
        let mut stream = TcpStream::connect(address).await?;
        match self {
            Self::Garbage(seed) => stream.write_all(&garbage(seed)).await?,
            Self::Half => stream.write_all(b"*2\r\n$4\r\nINCR\r\n$6\r\nord").await?,
            Self::Endless => loop {
                stream.write_all(&[b'x'; 8192]).await?;
            },
            Self::Unread => loop {
                stream.write_all("PING\r\n".repeat(4096).as_bytes()).await?;
            },
            Self::Flutters => {}
        }
        sleep(Duration::from_secs(600)).await;
        Ok(())
    }
}

/// Bytes from a seed: noise and pieces of both protocols, in random order.
pub fn garbage(seed: u64) -> Vec<u8> {
    const PIECES: [&[u8]; 16] = [
        b"*2\r\n",
        b"$4\r\n",
        b"INCRX\r\n",
        b"\r\n",
        b"\n",
        b"*-1\r\n",
        b"$-1\r\n",
        b"*4096\r\n",
        b"GET / HTTP/1.1\r\n",
        b"Host: localhost\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"\0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PATCH /v1/sequences/% HTTP/1.1\r\n\r\n",
        b"{\"next\":-1}",
    ];
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = Vec::new();
    for _ in 0..random.usize(0..200) {
        if random.u8(0..4) == 0 {
            bytes.extend(random.u64(..).to_le_bytes());
        } else {
            bytes.extend(PIECES[random.usize(0..PIECES.len())]);
        }
    }
    bytes
}

/// Sends bytes and reads until the server closes the connection or is silent for this long. Returns the bytes
/// it read.
pub async fn answer_to(address: SocketAddr, bytes: &[u8], silence: Duration) -> Vec<u8> {
    let mut answer = Vec::new();
    let Ok(mut stream) = TcpStream::connect(address).await else { return answer };
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut part = [0; 4096];
    while let Ok(Ok(read @ 1..)) = timeout(silence, stream.read(&mut part)).await {
        answer.extend_from_slice(&part[..read]);
    }
    answer
}
