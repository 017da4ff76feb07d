//! Splits one direction of a connection into messages: frames, or the data of single reads.

use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

use super::Length;

/// Maximum bytes per read.
const CHUNK: usize = 64 * 1024;

pub(super) struct Pieces<'a> {
    from: &'a mut OwnedReadHalf,
    length: Option<&'a Length>,
    /// The beginning of a frame, and maybe further frames.
    buffer: Vec<u8>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(from: &'a mut OwnedReadHalf, length: Option<&'a Length>) -> Self {
        Self { from, length, buffer: Vec::new() }
    }

    /// The next frame, or without a frame length the data of one read; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(piece) = self.whole() {
                return Some(piece);
            }
            self.buffer.reserve(CHUNK);
            if !matches!(self.from.read_buf(&mut self.buffer).await, Ok(1..)) {
                return None;
            }
        }
    }

    /// At the end: the incomplete frame.
    pub(super) fn rest(self) -> Vec<u8> {
        self.buffer
    }

    fn whole(&mut self) -> Option<Vec<u8>> {
        let arrived = self.buffer.len();
        // An empty frame would cause an endless loop, so take at least one byte.
        let length = self.length.map_or(Some(arrived), |length| length(&self.buffer))?.max(1);
        if arrived < length {
            return None;
        }
        let rest = self.buffer.split_off(length);
        Some(std::mem::replace(&mut self.buffer, rest))
    }
}
