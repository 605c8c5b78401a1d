//! The file helper of a session: opens, lists, moves and packs files as the sandbox's user.
//!
//! A child of the guest init without privileges, whose file accesses are checked as the user's, so
//! that the kernel decides what may be touched. Programs can neither signal nor trace it. Content
//! does not pass through it, but for archives: it hands descriptors over. Every request that can
//! take long has a thread of its own, of a bounded number; short ones share a few.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::codec::Writer;
use crate::session::files::wire::{self, Class, Refusal, Request};
use crate::sys;

mod export;
mod import;
mod ops;
mod paths;
mod tar;
#[cfg(test)]
mod tests;
mod trees;
mod watch;

/// Stack of a thread; nothing here recurses, and buffers are on the heap.
const STACK_BYTES: usize = 256 << 10;
/// Short requests that wait for a thread; the server has no more under way.
const QUEUE_MAX: usize = wire::QUICK_MAX;

type Outcome<T> = Result<T, Refusal>;

impl Refusal {
    fn new(errno: i32, detail: impl Into<Vec<u8>>) -> Refusal {
        Refusal { errno, detail: detail.into() }
    }

    /// Says which file it was.
    fn at(self, path: &[u8]) -> Refusal {
        let mut detail = b"`".to_vec();
        detail.extend_from_slice(path);
        detail.extend_from_slice(b"`: ");
        if self.detail.is_empty() {
            let error = io::Error::from_raw_os_error(self.errno);
            detail.extend_from_slice(error.to_string().as_bytes());
        }
        detail.extend_from_slice(&self.detail);
        Refusal { errno: self.errno, detail }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::new(error.raw_os_error().unwrap_or(libc::EIO), Vec::new())
    }
}

/// What a request gives back.
#[derive(Debug, Default)]
struct Done {
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Done {
    fn payload(writer: Writer) -> Done {
        // The first byte is a kind, of which answers have none of their own.
        Done { payload: writer.finish().split_off(1), fds: Vec::new() }
    }
}

/// One request with what came with it.
#[derive(Debug)]
struct Job {
    id: u64,
    request: Request,
    fds: Vec<OwnedFd>,
    is_cancelled: Arc<AtomicBool>,
}

impl Job {
    /// For work of our own, which nobody gives up.
    fn own() -> Job {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        Job { id: 0, request: Request::Cancel, fds: Vec::new(), is_cancelled }
    }

    /// The one descriptor that belongs to the request.
    fn descriptor(&mut self) -> Outcome<OwnedFd> {
        self.fds.pop().ok_or_else(|| Refusal::new(libc::EBADF, Vec::new()))
    }

    fn check(&self) -> Outcome<()> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(Refusal::new(libc::ECANCELED, Vec::new()));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Helper {
    socket: OwnedFd,
    state: Mutex<State>,
    /// There is a short request to do.
    ready: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    workers: usize,
    idle: usize,
    /// Threads of requests that take long, by class.
    trees: usize,
    archives: usize,
    watches: usize,
    cancels: HashMap<u64, Arc<AtomicBool>>,
}

impl State {
    fn threads(&mut self, class: Class) -> (&mut usize, usize) {
        match class {
            Class::Quick => (&mut self.workers, wire::QUICK_MAX),
            Class::Tree => (&mut self.trees, wire::TREES_MAX),
            Class::Archive => (&mut self.archives, wire::ARCHIVES_MAX),
            Class::Watch => (&mut self.watches, wire::WATCHERS_MAX),
        }
    }
}

/// Body of the process: serves until its server is gone. Called in a fresh child of the guest init,
/// which has given it the user's ids for file accesses and no capabilities.
pub(crate) fn main(socket: OwnedFd) -> c_int {
    let prepared = sys::set_name(c"cove-files")
        .and_then(|()| sys::ignore_signal(libc::SIGPIPE))
        .and_then(|()| sys::hard_limit(libc::RLIMIT_NOFILE))
        // Deep trees need many.
        .and_then(|hard| sys::set_soft_limit(libc::RLIMIT_NOFILE, hard));
    if prepared.is_err() {
        return 1;
    }
    sys::umask(0o022);
    let helper = Arc::new(Helper { socket, state: Mutex::default(), ready: Condvar::new() });
    let mut buf = vec![0; wire::FRAME_BYTES_MAX];
    loop {
        let Ok((n @ 1.., fds)) = sys::receive(helper.socket.as_fd(), &mut buf) else { return 0 };
        let Ok((id, request)) = Request::decode(buf.get(..n).unwrap_or(&[])) else { return 1 };
        helper.take(id, request, fds);
    }
}

impl Helper {
    fn take(self: &Arc<Helper>, id: u64, request: Request, fds: Vec<OwnedFd>) {
        let class = request.class();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        {
            let mut state = self.state.lock();
            if request == Request::Cancel {
                if let Some(flag) = state.cancels.get(&id) {
                    flag.store(true, Ordering::Relaxed);
                }
                return;
            }
            state.cancels.insert(id, is_cancelled.clone());
        }
        let job = Job { id, request, fds, is_cancelled };
        if class == Class::Quick {
            self.take_quick(job);
        } else {
            self.take_long(class, job);
        }
    }

    fn take_quick(self: &Arc<Helper>, job: Job) {
        let mut state = self.state.lock();
        if state.queue.len() >= QUEUE_MAX {
            drop(state);
            return self.answer(job.id, Err(Refusal::new(libc::EAGAIN, "requests at a time")));
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
                    // The sandbox has no room for another thread. Those that there are do it, or
                    // else this one, which then hears of nothing meanwhile.
                    if state.workers == 0 { state.queue.pop_front() } else { None }
                };
                if let Some(job) = job {
                    self.run(job);
                }
            }
        }
        self.ready.notify_one();
    }

    /// Body of a thread for short requests.
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

    fn take_long(self: &Arc<Helper>, class: Class, job: Job) {
        let id = job.id;
        {
            let mut state = self.state.lock();
            let (threads, max) = state.threads(class);
            if *threads >= max {
                drop(state);
                return self.answer(id, Err(Refusal::new(libc::EAGAIN, "requests at a time")));
            }
            *threads += 1;
        }
        let helper = self.clone();
        let spawned = spawn(move || {
            let result = answered(|| perform(job));
            // The server may send the next one when it has the answer.
            *helper.state.lock().threads(class).0 -= 1;
            helper.answer(id, result);
        });
        if spawned.is_err() {
            *self.state.lock().threads(class).0 -= 1;
            self.answer(id, Err(Refusal::new(libc::EAGAIN, "processes in the sandbox")));
        }
    }

    fn run(&self, job: Job) {
        let id = job.id;
        self.answer(id, answered(|| perform(job)));
    }

    fn answer(&self, id: u64, result: Outcome<Done>) {
        self.state.lock().cancels.remove(&id);
        let (result, fds) = match result {
            Ok(Done { payload, fds }) => (Ok(payload), fds),
            Err(refusal) => (Err(refusal), Vec::new()),
        };
        let handles: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        // When the server is gone, so are we at the next look at the socket.
        let message = wire::encode_answer(id, &result);
        let _gone = sys::send(self.socket.as_fd(), &message, &handles);
    }
}

/// Does it, and has an answer in any case: a thread that ended without one would have its caller
/// wait for ever.
fn answered(body: impl FnOnce() -> Outcome<Done>) -> Outcome<Done> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Refusal::new(libc::EIO, "the file helper failed")))
}

/// Does what is asked. Its pipe is closed by then.
fn perform(mut job: Job) -> Outcome<Done> {
    job.check()?;
    if let Request::Watch { path, recursive } = &job.request {
        let watcher = watch::Watcher::new(path, *recursive)?;
        watcher.report(job.descriptor()?);
        return Ok(Done::default());
    }
    ops::perform(&mut job)
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(body).map(drop)
}
