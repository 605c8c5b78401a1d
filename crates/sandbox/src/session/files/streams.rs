//! Streams that outlive a single answer: open files, watches, archives.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::types::{FilesError, SandboxFileEntry, WatchEvent, WatchKind, WriteMode};
use super::wire;
use super::{Boxed, CHUNK_BYTES, FileCall, Result, SandboxFiles};

/// A regular file of the sandbox, open for reading. While it is open, the sandbox's disk is in use.
#[derive(Debug)]
pub struct OpenFile {
    /// Content from the beginning.
    pub file: tokio::fs::File,
    /// Size in bytes when it was opened; programs may change that.
    pub len: u64,
    /// Metadata.
    pub entry: SandboxFileEntry,
}

/// Writes content to a file of the sandbox. If it is dropped before [`FileWriter::finish`], no file
/// remains, except with [`WriteMode::Append`].
#[derive(Debug)]
pub struct FileWriter {
    files: SandboxFiles,
    file: tokio::fs::File,
    path: CString,
    mode: WriteMode,
}

impl FileWriter {
    pub(super) fn new(
        files: SandboxFiles,
        file: OwnedFd,
        path: CString,
        mode: WriteMode,
    ) -> Result<FileWriter> {
        Ok(FileWriter { files, file: tokio::fs::File::from_std(file.into()), path, mode })
    }

    /// Waits until everything is written, and puts the file at its path.
    ///
    /// # Errors
    /// [`FilesError::NoSpace`]; [`FilesError::Exists`] if the path was created meanwhile; others
    /// for other changes of the path meanwhile.
    pub async fn finish(mut self) -> Result<SandboxFileEntry> {
        self.file.flush().await?;
        if self.mode == WriteMode::Append {
            return self.files.stat(self.path.to_bytes(), super::LinkMode::Links).await;
        }
        let file = self.file.into_std().await;
        self.files.finish(&self.path, file.into(), self.mode == WriteMode::Create).await
    }
}

impl AsyncWrite for FileWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.file).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_shutdown(cx)
    }
}

/// Events of a directory. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    _files: SandboxFiles,
    stream: Option<OwnedReadHalf>,
    pending: Vec<u8>,
    pending_records: VecDeque<WatchRecord>,
    marks: Arc<WatchMarks>,
    call: FileCall,
    _place: OwnedSemaphorePermit,
}

/// A record of a watch.
#[derive(Debug, PartialEq, Eq)]
enum WatchRecord {
    Event(WatchEvent),
    Mark(u64),
}

/// Marks of a watch: those requested, and those that the reader has passed.
#[derive(Debug)]
struct WatchMarks {
    requests: tokio::sync::Mutex<MarkRequests>,
    passed: watch::Sender<u64>,
}

#[derive(Debug)]
struct MarkRequests {
    to: OwnedWriteHalf,
    count: u64,
}

/// Waits for a watch's reader, for callers other than the reader.
#[derive(Clone, Debug)]
pub struct WatchBarrier(Weak<WatchMarks>);

impl WatchBarrier {
    /// Waits until the reader has processed all events before this call, which it shows by asking
    /// for the next event. Returns at once when the watch has ended. Cancel-safe.
    pub async fn wait(&self) {
        let (mut passed, number) = {
            let Some(marks) = self.0.upgrade() else { return };
            let passed = marks.passed.subscribe();
            let mut requests = marks.requests.lock().await;
            if requests.to.write_all(&[0]).await.is_err() {
                return;
            }
            requests.count += 1;
            (passed, requests.count)
        };
        let _ended = passed.wait_for(|passed| *passed >= number).await;
    }
}

impl Watch {
    /// Waits until the helper has set up the watch.
    pub(super) async fn start(
        files: SandboxFiles,
        stream: UnixStream,
        call: FileCall,
        place: OwnedSemaphorePermit,
    ) -> Result<Watch> {
        let (stream, to) = stream.into_split();
        let requests = tokio::sync::Mutex::new(MarkRequests { to, count: 0 });
        let mut watch = Watch {
            _files: files,
            stream: Some(stream),
            pending: Vec::new(),
            pending_records: VecDeque::new(),
            marks: Arc::new(WatchMarks { requests, passed: watch::Sender::new(0) }),
            call,
            _place: place,
        };
        loop {
            let mut rest = watch.pending.as_slice();
            if let Some(record) = wire::take_record(&mut rest)? {
                if !record.is_empty() {
                    return Err(FilesError::Lost);
                }
                watch.pending.drain(..watch.pending.len() - rest.len());
                watch.parse()?;
                return Ok(watch);
            }
            if !watch.read().await {
                watch.call.answer().await?;
                return Err(FilesError::Lost);
            }
        }
    }

    /// Reads more records; returns false at the end. Cancel-safe.
    async fn read(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        self.pending.reserve(CHUNK_BYTES);
        matches!(stream.read_buf(&mut self.pending).await, Ok(1..))
    }

    /// Returns a handle to wait until this watch's reader has processed all events so far.
    #[must_use]
    pub fn barrier(&self) -> WatchBarrier {
        WatchBarrier(Arc::downgrade(&self.marks))
    }

    /// Returns the next event; `None` when the watched path, or the sandbox, does not exist any
    /// more. Cancel-safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            match self.pending_records.pop_front() {
                Some(WatchRecord::Event(event)) => return Some(event),
                Some(WatchRecord::Mark(number)) => {
                    self.marks.passed.send_replace(number);
                }
                None if self.stream.is_none() => {
                    self.marks.passed.send_replace(u64::MAX);
                    return None;
                }
                None if !self.read().await || self.parse().is_err() => self.stream = None,
                None => {}
            }
        }
    }

    fn parse(&mut self) -> Result<()> {
        let mut rest = self.pending.as_slice();
        while let Some(record) = wire::take_record(&mut rest)? {
            if let Some(number) = wire::mark_of(record) {
                self.pending_records.push_back(WatchRecord::Mark(number));
                continue;
            }
            let event = WatchRecord::Event(WatchEvent::decode(record)?);
            // Consecutive overflows have no more information than one.
            let is_overflow =
                matches!(&event, WatchRecord::Event(it) if it.kind == WatchKind::Overflow);
            if !(is_overflow && self.pending_records.back() == Some(&event)) {
                self.pending_records.push_back(event);
            }
        }
        self.pending.drain(..self.pending.len() - rest.len());
        Ok(())
    }
}

/// A tar archive as it is being written. Dropping it stops the writer.
pub struct TarReader {
    _files: SandboxFiles,
    pipe: Option<pipe::Receiver>,
    first: Vec<u8>,
    taken: usize,
    answer: Option<Boxed<Result<()>>>,
}

impl fmt::Debug for TarReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TarReader").field("pipe", &self.pipe).finish_non_exhaustive()
    }
}

impl TarReader {
    pub(super) fn new(
        files: SandboxFiles,
        pipe: pipe::Receiver,
        first: Vec<u8>,
        mut call: FileCall,
    ) -> TarReader {
        let answer = Box::pin(async move { call.answer().await.map(drop) });
        TarReader { _files: files, pipe: Some(pipe), first, taken: 0, answer: Some(answer) }
    }
}

impl AsyncRead for TarReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = self.first.get(self.taken..).unwrap_or(&[]);
        if !rest.is_empty() {
            let n = rest.len().min(room.remaining());
            room.put_slice(rest.get(..n).unwrap_or(&[]));
            self.taken += n;
            if self.taken == self.first.len() {
                (self.first, self.taken) = (Vec::new(), 0);
            }
            return Poll::Ready(Ok(()));
        }
        if let Some(pipe) = &mut self.pipe {
            let before = room.filled().len();
            ready!(Pin::new(pipe).poll_read(cx, room))?;
            if room.filled().len() > before || room.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            self.pipe = None;
        }
        // The stream has ended; the answer says whether the archive is complete.
        if let Some(answer) = &mut self.answer {
            let answer = ready!(answer.as_mut().poll(cx));
            self.answer = None;
            return Poll::Ready(answer.map_err(io::Error::other));
        }
        Poll::Ready(Ok(()))
    }
}
