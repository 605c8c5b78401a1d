//! Buffers input of a caller for programs: a queue for each stream, so that a program that does not
//! read delays no other.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::mpsc::error::SendError;

/// Bytes that wait for one stream, from which on it has no room.
const STREAM_BYTES_MAX: usize = 1 << 20;
/// Bytes that wait for all streams of a connection, from which on there is no room.
const ALL_BYTES_MAX: usize = 4 << 20;
/// Size of a chunk in addition to its bytes: about its memory overhead.
const CHUNK_OVERHEAD: usize = 64;

type Place = Result<OwnedPermit<Vec<u8>>, SendError<()>>;
type Reserving = Pin<Box<dyn Future<Output = (u8, Place)> + Send>>;

/// The streams to which a caller may send, by tag.
#[derive(Default)]
pub(super) struct StreamInputs {
    streams: HashMap<u8, StreamInput>,
    /// Number of bytes that wait for all of them.
    bytes: usize,
    /// A pending reservation for each stream that has chunks.
    reserving: FuturesUnordered<Reserving>,
}

struct StreamInput {
    /// `None` once it has ended, from either side.
    sender: Option<mpsc::Sender<Vec<u8>>>,
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
    /// True if no more input follows; waiting chunks are still delivered.
    is_complete: bool,
}

impl StreamInputs {
    pub(super) fn add(&mut self, tag: u8, sender: mpsc::Sender<Vec<u8>>) {
        let chunks = VecDeque::new();
        let input = StreamInput { sender: Some(sender), chunks, bytes: 0, is_complete: false };
        self.streams.insert(tag, input);
    }

    pub(super) fn contains(&self, tag: u8) -> bool {
        self.streams.contains_key(&tag)
    }

    /// Returns whether a stream accepts a chunk now. One that has ended does, and drops it.
    pub(super) fn has_room(&self, tag: u8) -> bool {
        match self.streams.get(&tag) {
            Some(input) if input.sender.is_some() && !input.is_complete => {
                input.bytes < STREAM_BYTES_MAX && self.bytes < ALL_BYTES_MAX
            }
            _ => true,
        }
    }

    /// Adds a chunk; an empty one ends its stream. Chunks after the end are dropped.
    pub(super) fn push(&mut self, tag: u8, bytes: Vec<u8>) {
        let Some(input) = self.streams.get_mut(&tag) else { return };
        let Some(sender) = input.sender.as_ref().filter(|_| !input.is_complete) else { return };
        if bytes.is_empty() {
            input.is_complete = true;
            if input.chunks.is_empty() {
                input.sender = None;
            }
            return;
        }
        if input.chunks.is_empty() {
            self.reserving.push(reserve(tag, sender.clone()));
        }
        let cost = bytes.len().saturating_add(CHUNK_OVERHEAD);
        input.bytes = input.bytes.saturating_add(cost);
        self.bytes = self.bytes.saturating_add(cost);
        input.chunks.push_back(bytes);
    }

    /// Passes on one chunk of any stream that has a place for it; waits while none has.
    /// Cancel-safe.
    pub(super) async fn hand_on(&mut self) {
        let Some((tag, place)) = self.reserving.next().await else {
            return std::future::pending().await;
        };
        let Some(input) = self.streams.get_mut(&tag) else { return };
        let Ok(place) = place else {
            // A program may close its input.
            self.bytes = self.bytes.saturating_sub(input.bytes);
            input.bytes = 0;
            input.chunks = VecDeque::new();
            input.sender = None;
            return;
        };
        if let Some(bytes) = input.chunks.pop_front() {
            let cost = bytes.len().saturating_add(CHUNK_OVERHEAD);
            input.bytes = input.bytes.saturating_sub(cost);
            self.bytes = self.bytes.saturating_sub(cost);
            drop(place.send(bytes));
        }
        match &input.sender {
            Some(sender) if !input.chunks.is_empty() => {
                self.reserving.push(reserve(tag, sender.clone()));
            }
            _ if input.is_complete => input.sender = None,
            _ => {}
        }
    }
}

fn reserve(tag: u8, sender: mpsc::Sender<Vec<u8>>) -> Reserving {
    Box::pin(async move { (tag, sender.reserve_owned().await) })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_stream_that_nobody_reads_holds_up_no_other() {
        let mut inputs = StreamInputs::default();
        let (deaf, _deaf_end) = mpsc::channel(1);
        let (reads, mut reader) = mpsc::channel(1);
        inputs.add(0, deaf);
        inputs.add(1, reads);
        for byte in 0..3 {
            inputs.push(0, vec![byte]);
        }
        inputs.push(1, vec![9]);
        inputs.push(1, Vec::new());
        inputs.push(1, vec![10]);
        while inputs.hand_on().now_or_never().is_some() {}
        assert_eq!(reader.recv().await, Some(vec![9]));
        assert_eq!(reader.recv().await, None);
        assert_eq!(inputs.bytes, 2 * (1 + CHUNK_OVERHEAD));
    }

    #[tokio::test]
    async fn room_ends_however_small_the_chunks_are_and_comes_back() {
        let mut inputs = StreamInputs::default();
        let (sender, mut reader) = mpsc::channel(1);
        inputs.add(0, sender);
        let mut pushed = 0;
        while inputs.has_room(0) {
            inputs.push(0, vec![1]);
            pushed += 1;
        }
        assert_eq!(pushed, STREAM_BYTES_MAX.div_ceil(1 + CHUNK_OVERHEAD));
        inputs.hand_on().await;
        assert!(inputs.has_room(0));
        for _ in 0..pushed {
            inputs.push(0, Vec::new());
        }
        assert_eq!(inputs.streams[&0].chunks.len(), pushed - 1);
        loop {
            tokio::select! {
                chunk = reader.recv() => match chunk {
                    Some(_) => {}
                    None => break,
                },
                () = inputs.hand_on() => {}
            }
        }
        assert_eq!((inputs.bytes, inputs.streams[&0].bytes), (0, 0));
    }

    #[tokio::test]
    async fn all_streams_together_are_bounded() {
        let mut inputs = StreamInputs::default();
        let streams = 5;
        let ends: Vec<_> = (0..streams)
            .map(|tag| {
                let (sender, end) = mpsc::channel(1);
                inputs.add(tag, sender);
                end
            })
            .collect();
        for tag in 0..streams - 1 {
            assert!(inputs.has_room(tag));
            inputs.push(tag, vec![0; STREAM_BYTES_MAX]);
            assert!(!inputs.has_room(tag));
        }
        assert!(!inputs.has_room(streams - 1), "the sum has no room for one that has nothing");
        drop(ends);
        for _ in 0..streams - 1 {
            inputs.hand_on().await;
        }
        assert_eq!(inputs.bytes, 0, "what nobody reads is dropped");
        assert!((0..streams).all(|tag| inputs.has_room(tag)));
    }
}
