//! The file helper of a session: opens, lists, moves and packs files as the sandbox's user.
//!
//! A child of the guest init without privileges, whose file accesses are checked as the user's, so
//! that the kernel enforces the user's permissions. Programs can neither signal nor trace it. Only
//! the content of archives passes through it; other content is accessed through descriptors that it
//! sends. Each long request has a thread of its own, of a bounded number; short ones share a few.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::codec::MessageWriter;
use crate::session::files::wire::{self, FileRefusal, FileRequest, RequestClass};
use crate::sys;

mod export;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod import;
mod ops;
mod paths;
#[cfg(test)]
mod tests;
mod trees;
mod watch;

/// Stack size of a thread; no code here recurses, and buffers are on the heap.
const STACK_BYTES: usize = 256 << 10;
/// Maximum number of queued short requests; the server has no more pending.
const QUEUE_MAX: usize = wire::QUICK_MAX;

type Outcome<T> = Result<T, FileRefusal>;

impl FileRefusal {
    fn new(errno: i32, detail: impl Into<Vec<u8>>) -> FileRefusal {
        FileRefusal { errno, detail: detail.into() }
    }

    /// Adds the path of the file to the error.
    fn at(self, path: &[u8]) -> FileRefusal {
        let mut detail = b"`".to_vec();
        detail.extend_from_slice(path);
        detail.extend_from_slice(b"`: ");
        if self.detail.is_empty() {
            let error = io::Error::from_raw_os_error(self.errno);
            detail.extend_from_slice(error.to_string().as_bytes());
        }
        detail.extend_from_slice(&self.detail);
        FileRefusal { errno: self.errno, detail }
    }
}

impl From<io::Error> for FileRefusal {
    fn from(error: io::Error) -> FileRefusal {
        FileRefusal::new(error.raw_os_error().unwrap_or(libc::EIO), Vec::new())
    }
}

/// Reply to a request.
#[derive(Debug, Default)]
struct FileReply {
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl FileReply {
    fn payload(writer: MessageWriter) -> FileReply {
        // The first byte is the kind, which answers do not have.
        FileReply { payload: writer.finish().split_off(1), fds: Vec::new() }
    }
}

/// A request with its descriptors.
#[derive(Debug)]
struct FileJob {
    id: u64,
    request: FileRequest,
    fds: Vec<OwnedFd>,
    is_cancelled: Arc<AtomicBool>,
}

impl FileJob {
    /// A job for the helper's own work, which is never cancelled.
    fn own() -> FileJob {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        FileJob { id: 0, request: FileRequest::Cancel, fds: Vec::new(), is_cancelled }
    }

    /// Returns the request's one descriptor.
    fn descriptor(&mut self) -> Outcome<OwnedFd> {
        self.fds.pop().ok_or_else(|| FileRefusal::new(libc::EBADF, Vec::new()))
    }

    fn check(&self) -> Outcome<()> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(FileRefusal::new(libc::ECANCELED, Vec::new()));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct FileHelper {
    socket: OwnedFd,
    state: Mutex<FileHelperState>,
    /// Signalled when a short request is queued.
    ready: Condvar,
}

#[derive(Debug, Default)]
struct FileHelperState {
    queue: VecDeque<FileJob>,
    workers: usize,
    idle: usize,
    /// Number of threads of long requests, by class.
    trees: usize,
    archives: usize,
    watches: usize,
    cancels: HashMap<u64, Arc<AtomicBool>>,
}

impl FileHelperState {
    fn threads(&mut self, class: RequestClass) -> (&mut usize, usize) {
        match class {
            RequestClass::Quick => (&mut self.workers, wire::QUICK_MAX),
            RequestClass::Tree => (&mut self.trees, wire::TREES_MAX),
            RequestClass::Archive => (&mut self.archives, wire::ARCHIVES_MAX),
            RequestClass::Watch => (&mut self.watches, wire::WATCHERS_MAX),
        }
    }
}

/// Body of the process: serves until its server dies. Called in a fresh child of the guest init,
/// which has given it the user's ids for file accesses and no capabilities.
pub(crate) fn main(socket: OwnedFd) -> c_int {
    let prepared = sys::set_name(c"cove-files")
        .and_then(|()| sys::ignore_signal(libc::SIGPIPE))
        .and_then(|()| sys::hard_limit(libc::RLIMIT_NOFILE))
        // Deep trees need many descriptors.
        .and_then(|hard| sys::set_soft_limit(libc::RLIMIT_NOFILE, hard));
    if prepared.is_err() {
        return 1;
    }
    sys::umask(0o022);
    let helper = Arc::new(FileHelper { socket, state: Mutex::default(), ready: Condvar::new() });
    let mut buf = vec![0; wire::FRAME_BYTES_MAX];
    loop {
        let Ok((n @ 1.., fds)) = sys::receive(helper.socket.as_fd(), &mut buf) else { return 0 };
        let Ok((id, request)) = FileRequest::decode(buf.get(..n).unwrap_or(&[])) else { return 1 };
        helper.take(id, request, fds);
    }
}

impl FileHelper {
    fn take(self: &Arc<FileHelper>, id: u64, request: FileRequest, fds: Vec<OwnedFd>) {
        let class = request.class();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        {
            let mut state = self.state.lock();
            if request == FileRequest::Cancel {
                if let Some(flag) = state.cancels.get(&id) {
                    flag.store(true, Ordering::Relaxed);
                }
                return;
            }
            state.cancels.insert(id, is_cancelled.clone());
        }
        let job = FileJob { id, request, fds, is_cancelled };
        if class == RequestClass::Quick {
            self.take_quick(job);
        } else {
            self.take_long(class, job);
        }
    }

    fn take_quick(self: &Arc<FileHelper>, job: FileJob) {
        let mut state = self.state.lock();
        if state.queue.len() >= QUEUE_MAX {
            drop(state);
            return self.answer(job.id, Err(FileRefusal::new(libc::EAGAIN, "requests at a time")));
        }
        let is_worker_wanted = state.idle <= state.queue.len() && state.workers < wire::QUICK_MAX;
        state.queue.push_back(job);
        state.workers += usize::from(is_worker_wanted);
        drop(state);
        if is_worker_wanted {
            let helper = self.clone();
            if spawn(move || helper.work()).is_err() {
                let job = {
                    let mut state = self.state.lock();
                    state.workers -= 1;
                    // The sandbox has no room for another thread. Existing threads run the job;
                    // without any, this thread does, and reads no messages meanwhile.
                    if state.workers == 0 { state.queue.pop_front() } else { None }
                };
                if let Some(job) = job {
                    self.run(job);
                }
            }
        }
        self.ready.notify_one();
    }

    /// Body of a worker thread for short requests.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            match state.queue.pop_front() {
                Some(job) => {
                    drop(state);
                    self.run(job);
                    state = self.state.lock();
                }
                None => {
                    state.idle += 1;
                    self.ready.wait(&mut state);
                    state.idle -= 1;
                }
            }
        }
    }

    fn take_long(self: &Arc<FileHelper>, class: RequestClass, job: FileJob) {
        let id = job.id;
        {
            let mut state = self.state.lock();
            let (threads, max) = state.threads(class);
            if *threads >= max {
                drop(state);
                return self.answer(id, Err(FileRefusal::new(libc::EAGAIN, "requests at a time")));
            }
            *threads += 1;
        }
        let helper = self.clone();
        let spawned = spawn(move || {
            let result = answered(|| perform(job));
            // The server may send the next request as soon as it has the answer.
            *helper.state.lock().threads(class).0 -= 1;
            helper.answer(id, result);
        });
        if spawned.is_err() {
            *self.state.lock().threads(class).0 -= 1;
            self.answer(id, Err(FileRefusal::new(libc::EAGAIN, "processes in the sandbox")));
        }
    }

    fn run(&self, job: FileJob) {
        let id = job.id;
        self.answer(id, answered(|| perform(job)));
    }

    fn answer(&self, id: u64, result: Outcome<FileReply>) {
        self.state.lock().cancels.remove(&id);
        let (result, fds) = match result {
            Ok(FileReply { payload, fds }) => (Ok(payload), fds),
            Err(refusal) => (Err(refusal), Vec::new()),
        };
        let handles: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        // If the server has died, the next read of the socket ends this process.
        let message = wire::encode_answer(id, &result);
        let _gone = sys::send(self.socket.as_fd(), &message, &handles);
    }
}

/// Runs `body` and returns an answer even if it panics: without an answer, the caller would wait
/// forever.
fn answered(body: impl FnOnce() -> Outcome<FileReply>) -> Outcome<FileReply> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(FileRefusal::new(libc::EIO, "the file helper failed")))
}

/// Performs a request. Its pipe is closed when this returns.
fn perform(mut job: FileJob) -> Outcome<FileReply> {
    job.check()?;
    if let FileRequest::Watch { path, recursive } = &job.request {
        let watcher = watch::PathWatcher::new(path, *recursive)?;
        watcher.report(job.descriptor()?);
        return Ok(FileReply::default());
    }
    ops::perform(&mut job)
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(body).map(drop)
}
