//! Pipes that the server itself reads or writes: relays between programs, and descriptors of a
//! program beyond its standard streams.
//!
//! Each task ends when the programs have closed their ends of the pipes, which happens at the
//! latest when their sandboxes end.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sandbox::SharedFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{mpsc, oneshot};

use super::stream::OutputChunk;

/// Bytes read at a time: the capacity of a Linux pipe.
const CHUNK_BYTES: usize = 64 << 10;
/// Stack size of a relay, which has its buffer on the heap.
const RELAY_STACK_BYTES: usize = 128 << 10;

/// Remaining bytes that may be kept of output beside the standard streams.
#[derive(Debug)]
pub(super) struct CaptureBudget(AtomicU64);

impl CaptureBudget {
    pub(super) fn new(bytes: u64) -> Arc<CaptureBudget> {
        Arc::new(CaptureBudget(AtomicU64::new(bytes)))
    }

    /// Takes up to `wanted` bytes of the budget.
    fn take(&self, wanted: usize) -> usize {
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let update = |left: u64| Some(left.saturating_sub(wanted));
        // The closure always returns a value, so there is no error to handle.
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).unwrap_or(0);
        usize::try_from(left.min(wanted)).unwrap_or(usize::MAX)
    }
}

/// The kept bytes of a stream.
#[derive(Debug, Default)]
pub(super) struct CapturedBytes {
    pub(super) bytes: Vec<u8>,
    /// True if the stream had more bytes.
    pub(super) is_cut: bool,
}

impl CapturedBytes {
    fn take(&mut self, chunk: &[u8], bytes_max: u64, budget: &CaptureBudget) {
        let room =
            usize::try_from(bytes_max).unwrap_or(usize::MAX).saturating_sub(self.bytes.len());
        let fits = budget.take(room.min(chunk.len()));
        self.is_cut |= fits < chunk.len();
        self.bytes.extend_from_slice(chunk.get(..fits).unwrap_or(chunk));
    }
}

/// Returns the end of a pipe from which the server reads a program's output.
pub(super) fn reader(pipe: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd(pipe.into())
}

/// Returns the end of a pipe to which the server writes a program's input.
pub(super) fn writer(pipe: PipeWriter) -> io::Result<Sender> {
    Sender::from_owned_fd(pipe.into())
}

/// Keeps the beginning of a program's output, and discards the rest, so that the program never
/// blocks.
pub(super) async fn collect(
    mut from: Receiver,
    bytes_max: u64,
    budget: Arc<CaptureBudget>,
) -> CapturedBytes {
    let mut kept = CapturedBytes::default();
    let mut chunk = Vec::new();
    while read(&mut from, &mut chunk).await {
        kept.take(&chunk, bytes_max, &budget);
    }
    kept
}

/// Relays output of one program to another. If the receiver closes its end, the sender can still
/// write: that is the purpose of a relay.
///
/// Uses a thread: two programs that exchange lines wait for each other most of the time, and each
/// line costs one wake-up here, where an event loop takes three steps. The thread ends with the
/// programs, so there are as many as relayed pipes of running programs.
pub(super) fn relay(
    mut from: PipeReader,
    to: PipeWriter,
    keep_max: Option<u64>,
    budget: Arc<CaptureBudget>,
) -> io::Result<oneshot::Receiver<CapturedBytes>> {
    let (done, ended) = oneshot::channel();
    let thread = thread::Builder::new().name("cove-relay".to_owned()).stack_size(RELAY_STACK_BYTES);
    let run = move || {
        let mut to = Some(to);
        let mut kept = CapturedBytes::default();
        let mut buf = vec![0; CHUNK_BYTES];
        loop {
            let chunk = match from.read(&mut buf) {
                Ok(n) => buf.get(..n).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            if chunk.is_empty() {
                break;
            }
            if let Some(keep_max) = keep_max {
                kept.take(chunk, keep_max, &budget);
            }
            if let Some(pipe) = &mut to
                && pipe.write_all(chunk).is_err()
            {
                to = None;
            }
        }
        // The reader sees the end of file first; the receiver of the result may be gone by then.
        drop(to);
        done.send(kept).ok();
    };
    thread.spawn(run)?;
    Ok(ended)
}

/// Sends a program's output to the caller, who may slow it down.
pub(super) async fn forward(mut from: Receiver, tag: u8, to: mpsc::Sender<OutputChunk>) {
    let mut chunk = Vec::new();
    while read(&mut from, &mut chunk).await {
        if to.send(OutputChunk { tag, bytes: std::mem::take(&mut chunk) }).await.is_err() {
            return;
        }
    }
}

/// Writes the caller's input until its end, or until the program closes the pipe.
pub(super) async fn feed(mut from: mpsc::Receiver<Vec<u8>>, mut to: Sender) {
    while let Some(bytes) = from.recv().await {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Reads the next piece; returns false at the end.
async fn read(from: &mut Receiver, chunk: &mut Vec<u8>) -> bool {
    chunk.clear();
    chunk.reserve(CHUNK_BYTES);
    // The only error of a pipe is its end.
    from.read_buf(chunk).await.is_ok_and(|n| n > 0)
}

/// Returns content that a program may have a descriptor of: a file of the host is copied, so that
/// no program locks it, changes it through its descriptor, or learns its owner.
pub(super) fn sealed(file: Arc<SharedFile>) -> io::Result<Arc<SharedFile>> {
    match file.is_sealed() {
        true => Ok(file),
        false => SharedFile::from_bytes(&file.read()?).map(Arc::new),
    }
}

/// Opens a sealed file for a program to read, with a position of its own.
pub(super) fn open_shared(file: &SharedFile) -> io::Result<OwnedFd> {
    // A copy of the descriptor would share its position with every other reader.
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    File::open(path).map(OwnedFd::from)
}

/// Opens a descriptor that reads as empty and accepts all writes.
pub(super) fn null() -> io::Result<OwnedFd> {
    File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_collected_ends_at_its_maximum_and_at_the_budget() {
        for (bytes_max, budget, expected, is_cut) in [
            (10, 100, "abcdef", false),
            (6, 6, "abcdef", false),
            (5, 9, "abcde", true),
            (9, 4, "abcd", true),
        ] {
            let (from, mut to) = io::pipe().unwrap();
            let budget = CaptureBudget::new(budget);
            let task = tokio::spawn(collect(reader(from).unwrap(), bytes_max, budget));
            to.write_all(b"abcdef").unwrap();
            drop(to);
            let kept = task.await.unwrap();
            assert_eq!((kept.bytes, kept.is_cut), (expected.into(), is_cut), "{bytes_max}");
        }
    }

    #[tokio::test]
    async fn a_relay_goes_on_when_nobody_reads() {
        let (from, mut to) = io::pipe().unwrap();
        let (mut far, near) = io::pipe().unwrap();
        let budget = CaptureBudget::new(100);
        let ended = relay(from, near, Some(3), budget).unwrap();
        to.write_all(b"one").unwrap();
        let far = tokio::task::spawn_blocking(move || {
            let mut bytes = [0; 3];
            far.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"one");
            far
        });
        drop(far.await.unwrap());
        let writer = tokio::task::spawn_blocking(move || to.write_all(&[b'x'; 300_000]).unwrap());
        writer.await.unwrap();
        let kept = ended.await.unwrap();
        assert_eq!((kept.bytes, kept.is_cut), (b"one".to_vec(), true));
    }

    #[test]
    fn programs_get_copies_of_files_of_the_host() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let host = Arc::new(SharedFile::open(path.as_ref()).unwrap());
        let copy = sealed(Arc::clone(&host)).unwrap();
        assert!(copy.is_sealed() && !host.is_sealed());
        assert_eq!(copy.read().unwrap(), host.read().unwrap());
        let again = sealed(Arc::clone(&copy)).unwrap();
        assert!(Arc::ptr_eq(&again, &copy), "what is sealed is not copied");
    }

    #[test]
    fn readers_of_a_shared_file_do_not_move_each_other_and_cannot_write() {
        let shared = SharedFile::from_bytes(b"abc").unwrap();
        for _ in 0..2 {
            let mut file = File::from(open_shared(&shared).unwrap());
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "abc");
            assert!(file.write_all(b"x").is_err());
        }
    }
}
