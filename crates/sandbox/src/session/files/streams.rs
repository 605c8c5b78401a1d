//! What outlives a single answer: files that are open, watches, archives.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::OwnedSemaphorePermit;

use super::types::{Entry, FilesError, WatchEvent, WatchKind, WriteMode};
use super::wire;
use super::{Boxed, CHUNK_BYTES, Call, Files, Result};

/// A regular file of the sandbox, open for reading. While it is open, the sandbox's disk is in use.
#[derive(Debug)]
pub struct OpenFile {
    /// Its content from the beginning.
    pub file: tokio::fs::File,
    /// Bytes in it when it was opened; programs may change that.
    pub len: u64,
    /// What else is known of it.
    pub entry: Entry,
}

/// Content that is written to a file of the sandbox. To be finished: dropped, it leaves nothing.
#[derive(Debug)]
pub struct FileWriter {
    files: Files,
    file: tokio::fs::File,
    path: CString,
    mode: WriteMode,
}

impl FileWriter {
    pub(super) fn new(
        files: Files,
        file: OwnedFd,
        path: CString,
        mode: WriteMode,
    ) -> Result<FileWriter> {
        Ok(FileWriter { files, file: tokio::fs::File::from_std(file.into()), path, mode })
    }

    /// Waits until everything is written, and makes it what is found at the path.
    ///
    /// # Errors
    /// [`FilesError::NoSpace`], [`FilesError::Exists`] where somebody was faster, or whatever else
    /// becomes of the path meanwhile.
    pub async fn finish(mut self) -> Result<Entry> {
        self.file.flush().await?;
        if self.mode == WriteMode::Append {
            return self.files.stat(self.path.to_bytes(), super::Follow::Links).await;
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

/// Events of a directory. Dropped, it ends.
#[derive(Debug)]
pub struct Watch {
    _files: Files,
    pipe: Option<pipe::Receiver>,
    pending: Vec<u8>,
    events: VecDeque<WatchEvent>,
    call: Call,
    _place: OwnedSemaphorePermit,
}

impl Watch {
    /// Waits until the helper watches.
    pub(super) async fn start(
        files: Files,
        pipe: pipe::Receiver,
        call: Call,
        place: OwnedSemaphorePermit,
    ) -> Result<Watch> {
        let (pending, events) = (Vec::new(), VecDeque::new());
        let mut watch =
            Watch { _files: files, pipe: Some(pipe), pending, events, call, _place: place };
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

    /// Whether there was something. Cancel-safe.
    async fn read(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        self.pending.reserve(CHUNK_BYTES);
        matches!(pipe.read_buf(&mut self.pending).await, Ok(1..))
    }

    /// The next event; `None` when what was watched is gone, or the sandbox. Cancel-safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            self.pipe.as_ref()?;
            if !self.read().await || self.parse().is_err() {
                self.pipe = None;
            }
        }
    }

    fn parse(&mut self) -> Result<()> {
        let mut rest = self.pending.as_slice();
        while let Some(record) = wire::take_record(&mut rest)? {
            let event = WatchEvent::decode(record)?;
            // One after the other says no more than one.
            let is_repeated =
                event.kind == WatchKind::Overflow && self.events.back() == Some(&event);
            if !is_repeated {
                self.events.push_back(event);
            }
        }
        self.pending.drain(..self.pending.len() - rest.len());
        Ok(())
    }
}

/// A tar archive as it is made. Dropped, nobody goes on making it.
pub struct TarReader {
    _files: Files,
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
        files: Files,
        pipe: pipe::Receiver,
        first: Vec<u8>,
        mut call: Call,
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
        // The bytes have ended; the answer says whether that is all of it.
        if let Some(answer) = &mut self.answer {
            let answer = ready!(answer.as_mut().poll(cx));
            self.answer = None;
            return Poll::Ready(answer.map_err(io::Error::other));
        }
        Poll::Ready(Ok(()))
    }
}
