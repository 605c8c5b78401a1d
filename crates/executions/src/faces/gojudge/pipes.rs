//! Pipes that the server itself reads or writes: relays between programs, and descriptors of a
//! program beyond its standard streams.
//!
//! Each task ends when the programs at its ends have closed theirs, which they have at the latest
//! when their sandboxes are gone.

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

/// Read at a time: what a pipe of Linux holds.
const CHUNK_BYTES: usize = 64 << 10;
/// Stack of a relay, which has its buffer on the heap.
const RELAY_STACK_BYTES: usize = 128 << 10;

/// Bytes that may still be kept of what programs write beside their standard streams.
#[derive(Debug)]
pub(super) struct CaptureBudget(AtomicU64);

impl CaptureBudget {
    pub(super) fn new(bytes: u64) -> Arc<CaptureBudget> {
        Arc::new(CaptureBudget(AtomicU64::new(bytes)))
    }

    /// Takes as much of `wanted` as there is.
    fn take(&self, wanted: usize) -> usize {
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let update = |left: u64| Some(left.saturating_sub(wanted));
        // The closure always has a value, so that there is no error to handle.
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).unwrap_or(0);
        usize::try_from(left.min(wanted)).unwrap_or(usize::MAX)
    }
}

/// Bytes that were kept of a stream.
#[derive(Debug, Default)]
pub(super) struct CapturedBytes {
    pub(super) bytes: Vec<u8>,
    /// There was more.
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

/// A pipe of which the server reads what a program writes.
pub(super) fn reader(pipe: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd(pipe.into())
}

/// A pipe into which the server writes what a program reads.
pub(super) fn writer(pipe: PipeWriter) -> io::Result<Sender> {
    Sender::from_owned_fd(pipe.into())
}

/// Keeps the beginning of what a program writes, and drops the rest, so that it never waits.
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

/// Hands what one program writes to another. When the other no longer reads, the one may go on
/// writing: that is what a relay is for.
///
/// A thread of its own: two programs that talk line by line wait for each other most of the time,
/// and each line costs one waking here where an event loop takes three steps. It ends with the
/// programs, so there are as many as there are relayed pipes of what runs.
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
        // The reader sees the end first, and then nobody may wait for the result any more.
        drop(to);
        done.send(kept).ok();
    };
    thread.spawn(run)?;
    Ok(ended)
}

/// Sends what a program writes to the caller, who may make it wait.
pub(super) async fn forward(mut from: Receiver, tag: u8, to: mpsc::Sender<OutputChunk>) {
    let mut chunk = Vec::new();
    while read(&mut from, &mut chunk).await {
        if to.send(OutputChunk { tag, bytes: std::mem::take(&mut chunk) }).await.is_err() {
            return;
        }
    }
}

/// Writes what the caller sends until it has no more, or nobody reads.
pub(super) async fn feed(mut from: mpsc::Receiver<Vec<u8>>, mut to: Sender) {
    while let Some(bytes) = from.recv().await {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Reads the next piece; false at the end.
async fn read(from: &mut Receiver, chunk: &mut Vec<u8>) -> bool {
    chunk.clear();
    chunk.reserve(CHUNK_BYTES);
    // A pipe fails in no way that is not its end.
    from.read_buf(chunk).await.is_ok_and(|n| n > 0)
}

/// Returns what a program may have a descriptor of: a file of the host becomes a copy, so that no
/// program locks it, changes it by way of its descriptor, or learns whose it is.
pub(super) fn sealed(file: Arc<SharedFile>) -> io::Result<Arc<SharedFile>> {
    match file.is_sealed() {
        true => Ok(file),
        false => SharedFile::from_bytes(&file.read()?).map(Arc::new),
    }
}

/// A file for a program to read, with a position of its own. It must be a sealed one.
pub(super) fn open_shared(file: &SharedFile) -> io::Result<OwnedFd> {
    // A copy of the descriptor would share its position with every other reader.
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    File::open(path).map(OwnedFd::from)
}

/// Returns what reads as empty and takes everything.
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
