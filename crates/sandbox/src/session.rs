//! A session on the server's side: one sandbox in which many programs run, for as long as it lives.
//!
//! Requests travel as frames with ids over the one connection to the guest init; many may be
//! pending, and answers arrive in any order. Streams are descriptors that the guest init only
//! passes on, so that no output of a program can delay a request. Dropping the last clone of a
//! [`SandboxedSession`] ends the sandbox with all its processes.

pub(crate) mod files;
mod process;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time;

use crate::codec::session::{from_session, to_session};
use crate::codec::{self, MalformedMessage, MessageReader, MessageWriter};
use crate::disk::{AttachedDiskImage, AttachedLayer};
use crate::engine::SessionPlace;
use crate::failure::StepFailure;
use crate::guest::mounts::LAYERS_MAX;
use crate::run::{GuestConnection, SandboxError};
use crate::sys;
use files::SandboxFiles;

pub use crate::codec::session::{ProcessEnd, SandboxUsage, SessionSandboxLimits};
pub use process::{
    ProcessHandle, ProcessPipes, ProcessStreams, ProcessTerminal, ProgramChannel, SessionProcess,
    SessionProgram, output_pipe, send_with_descriptors,
};

/// Maximum number of pending requests of one session; further ones wait.
const REQUESTS_MAX: usize = 64;
/// Timeout of an answer of the guest init, on a busy machine. The guest init never waits for a
/// program.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a connection to a port of the sandbox: its program may be busy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest frame of a guest init.
const FRAME_BYTES_MAX: usize = 1 << 10;

/// Parts of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionSetup<'a> {
    /// Disk that the session writes to. Must be kept until the session has ended; if it is detached
    /// earlier, it stays locked until then.
    pub disk: &'a AttachedDiskImage,
    /// Layers below the disk, the newest first.
    pub layers: &'a [Arc<AttachedLayer>],
    /// Limits of the session's programs.
    pub limits: SessionSandboxLimits,
}

/// A live session. Clones are the same session; dropping the last one ends it with all its
/// processes.
#[derive(Clone, Debug)]
pub struct SandboxedSession(Arc<SessionOwner>);

/// Ends the session when it is dropped.
#[derive(Debug)]
struct SessionOwner {
    connection: Arc<GuestSessionConnection>,
    /// Connection to the file helper, once it was requested. The lock is held while one is started.
    files: tokio::sync::Mutex<Option<SandboxFiles>>,
    /// Ports of the loopback on which the server has listened since the session began. The lock is
    /// held while one is being added, so that no connection is checked against an outdated set.
    server_ports: tokio::sync::Mutex<HashSet<u16>>,
    /// Freed when the connection has been hung up.
    _place: SessionPlace,
}

impl Drop for SessionOwner {
    fn drop(&mut self) {
        // The reader task notices the hang-up as well, and ends.
        let _already_gone = sys::session::hang_up(self.connection.socket.get_ref().as_fd());
    }
}

/// The connection to the guest init, with the pending requests.
#[derive(Debug)]
struct GuestSessionConnection {
    socket: AsyncFd<OwnedFd>,
    next_id: AtomicU64,
    requests: Semaphore,
    waiting: Mutex<PendingRequests>,
    /// Reason of the end, once the session has ended.
    ended: watch::Sender<Option<Arc<str>>>,
}

#[derive(Debug, Default)]
struct PendingRequests {
    /// True when the guest init no longer answers.
    is_over: bool,
    answers: HashMap<u64, oneshot::Sender<GuestAnswer>>,
    /// Programs that have not ended, by the id of the request that started them.
    programs: HashMap<u64, RunningProgram>,
}

/// A program that has not ended.
#[derive(Debug)]
struct RunningProgram {
    /// Known once it has been started.
    pid: Option<u32>,
    end: watch::Sender<Option<ProcessEnd>>,
}

/// Result of a request.
#[derive(Debug)]
enum GuestAnswer {
    Done(Vec<u8>, Vec<OwnedFd>),
    Refused(StepFailure),
}

/// Turns a prepared sandbox into a session.
pub(crate) async fn begin(
    control: GuestConnection,
    place: SessionPlace,
    setup: SessionSetup<'_>,
) -> Result<SandboxedSession, SandboxError> {
    if setup.layers.len() > LAYERS_MAX {
        return Err(SandboxError::Command("layers: at most 64"));
    }
    let connection = Arc::new(GuestSessionConnection {
        socket: control.into_socket(),
        next_id: AtomicU64::new(1),
        requests: Semaphore::new(REQUESTS_MAX),
        waiting: Mutex::default(),
        ended: watch::channel(None).0,
    });
    let reader = Arc::clone(&connection);
    // The task ends with the connection, which ends with its owner at the latest.
    tokio::spawn(async move { reader.read().await });
    let files = tokio::sync::Mutex::default();
    let server_ports = tokio::sync::Mutex::default();
    let session =
        SandboxedSession(Arc::new(SessionOwner { connection, files, server_ports, _place: place }));
    let SessionSetup { disk, layers, limits } = setup;
    // Mounts in no namespace; they end with the sandbox.
    let mut mounts = vec![disk.mount()?];
    for layer in layers {
        mounts.push(layer.mount()?);
    }
    let mounts_borrowed: Vec<BorrowedFd<'_>> = mounts.iter().map(AsFd::as_fd).collect();
    session.request(|id| limits.encode(id), &mounts_borrowed).await?;
    Ok(session)
}

impl SandboxedSession {
    /// Starts a program. A program that cannot be executed ends at once, and its end has the
    /// reason.
    ///
    /// When the future is dropped before the program has started, the program is killed.
    pub async fn start(&self, program: SessionProgram) -> Result<SessionProcess, SandboxError> {
        process::start(self, program, None).await
    }

    /// Like [`SandboxedSession::start`], with a descriptor of the caller's as standard input: one
    /// end of a socket for traffic in both directions. `program.terminal` and `program.stdin` are
    /// ignored.
    pub async fn start_with_input(
        &self,
        program: SessionProgram,
        input: OwnedFd,
    ) -> Result<SessionProcess, SandboxError> {
        process::start(self, program, Some(input)).await
    }

    /// Sends a signal to the process group that a program leads; does nothing when it has ended.
    pub async fn signal(&self, pid: u32, signal: i32) -> Result<(), SandboxError> {
        match self.program_of(pid) {
            Some(id) => process::signal(&self.0.connection, id, true, signal).await,
            None => Ok(()),
        }
    }

    fn program_of(&self, pid: u32) -> Option<u64> {
        let waiting = self.0.connection.waiting.lock();
        let mut programs = waiting.programs.iter();
        programs.find(|(_, running)| running.pid == Some(pid)).map(|(id, _)| *id)
    }

    /// Returns the programs that have not ended, by their pid in the session.
    pub fn processes(&self) -> Vec<u32> {
        let waiting = self.0.connection.waiting.lock();
        let mut pids: Vec<u32> = waiting.programs.values().filter_map(|it| it.pid).collect();
        pids.sort_unstable();
        pids
    }

    /// Returns the resource usage of the session.
    pub async fn usage(&self) -> Result<SandboxUsage, SandboxError> {
        let frame = |id| MessageWriter::new(to_session::USAGE).u64(id).finish();
        let (body, _) = self.request(frame, &[]).await?;
        Ok(SandboxUsage::decode(&mut MessageReader(&body))?)
    }

    /// Connects to a program at `127.0.0.1:port` in the sandbox.
    ///
    /// Refuses a port on which the server itself listens, until the session ends: such a service
    /// acts for the session's programs (with credentials of their tenant), so a caller from outside
    /// would act in their name.
    ///
    /// # Errors
    /// [`SandboxError::PortRefused`] if no program listens there, [`SandboxError::PortOfServer`] if
    /// the server listens there, or has listened.
    pub async fn connect(&self, port: u16) -> Result<TcpStream, SandboxError> {
        self.refuse_server_port(port).await?;
        let frame = |id| MessageWriter::new(to_session::CONNECT).u64(id).u16(port).finish();
        let stream = match self.request(frame, &[]).await {
            Ok((_, fds)) => std::net::TcpStream::from(one(fds)?),
            Err(error) => return Err(refused_port(error, port)),
        };
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream)?;
        // The guest init only begins the connection; it succeeds or fails by now or soon.
        time::timeout(CONNECT_TIMEOUT, stream.writable())
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        match stream.take_error()? {
            None => {
                // Meanwhile the server may have begun to listen there. From here on the
                // connection's other end cannot change any more.
                self.refuse_server_port(port).await?;
                Ok(stream)
            }
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(SandboxError::PortRefused(port))
            }
            Some(error) => Err(error.into()),
        }
    }

    async fn refuse_server_port(&self, port: u16) -> Result<(), SandboxError> {
        match self.0.server_ports.lock().await.contains(&port) {
            true => Err(SandboxError::PortOfServer(port)),
            false => Ok(()),
        }
    }

    /// Listens on `127.0.0.1:port` in the sandbox, or on a free port if it is 0; the caller serves
    /// the connections. From here on [`SandboxedSession::connect`] refuses the port, even if this
    /// call is cancelled or the listener is dropped: an earlier connection attempt could still
    /// arrive there.
    pub async fn listen(&self, port: u16) -> Result<TcpListener, SandboxError> {
        let mut server_ports = self.0.server_ports.lock().await;
        let is_new = port != 0 && server_ports.insert(port);
        let frame = |id| MessageWriter::new(to_session::LISTEN).u64(id).u16(port).finish();
        let answered = self.request(frame, &[]).await;
        if is_new && matches!(answered, Err(SandboxError::Refused(_))) {
            // A program listens on the port, and keeps it.
            server_ports.remove(&port);
        }
        let (_, fds) = answered?;
        let listener = std::net::TcpListener::from(one(fds)?);
        listener.set_nonblocking(true)?;
        server_ports.insert(listener.local_addr()?.port());
        Ok(TcpListener::from_std(listener)?)
    }

    /// Returns the files of the session. The file helper is started at the first call, and
    /// restarted if a program has killed it.
    pub async fn files(&self) -> Result<SandboxFiles, SandboxError> {
        let mut files = self.0.files.lock().await;
        if let Some(files) = files.as_ref().filter(|files| files.is_alive()) {
            return Ok(files.clone());
        }
        let frame = |id| MessageWriter::new(to_session::FILES).u64(id).finish();
        let (_, fds) = self.request(frame, &[]).await?;
        let started = SandboxFiles::new(one(fds)?)?;
        *files = Some(started.clone());
        Ok(started)
    }

    /// Stops every program, until [`SandboxedSession::thaw`].
    pub async fn freeze(&self) -> Result<(), SandboxError> {
        let frame = |id| MessageWriter::new(to_session::FREEZE).u64(id).finish();
        self.request(frame, &[]).await.map(drop)
    }

    /// Resumes every program.
    pub async fn thaw(&self) -> Result<(), SandboxError> {
        let frame = |id| MessageWriter::new(to_session::THAW).u64(id).finish();
        self.request(frame, &[]).await.map(drop)
    }

    /// Gives the session's programs together one of `parts` equal parts of a sandbox's whole share
    /// of the processor, while other sandboxes compete for it. A new session has a whole share.
    /// Does nothing if control groups do not share the processor.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub async fn divide_cpu_share(&self, parts: u32) -> Result<(), SandboxError> {
        let frame = |id| MessageWriter::new(to_session::CPU_SHARE).u64(id).u32(parts).finish();
        self.request(frame, &[]).await.map(drop)
    }

    /// Resolves with the reason when the sandbox has ended. Does not keep the session alive.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        let mut ended = self.0.connection.ended.subscribe();
        async move {
            match ended.wait_for(Option::is_some).await {
                Ok(reason) => reason.as_deref().unwrap_or_default().to_owned(),
                Err(_) => "it was dropped".to_owned(),
            }
        }
    }

    /// Returns whether the sandbox lives.
    pub fn is_alive(&self) -> bool {
        self.0.connection.ended.borrow().is_none()
    }

    async fn request(
        &self,
        frame: impl FnOnce(u64) -> Vec<u8>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), SandboxError> {
        let connection = &self.0.connection;
        let id = connection.next_id.fetch_add(1, Ordering::Relaxed);
        connection.request(id, frame(id), fds).await
    }
}

fn one(fds: Vec<OwnedFd>) -> Result<OwnedFd, SandboxError> {
    fds.into_iter().next().ok_or(SandboxError::Lost("its answer lacks a descriptor"))
}

fn refused_port(error: SandboxError, port: u16) -> SandboxError {
    match error {
        SandboxError::Refused(failure) if failure.errno == libc::ECONNREFUSED => {
            SandboxError::PortRefused(port)
        }
        other => other,
    }
}

/// Removes a request whose future is dropped.
struct RequestGuard<'a> {
    connection: &'a GuestSessionConnection,
    id: u64,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.connection.waiting.lock().answers.remove(&self.id);
    }
}

impl GuestSessionConnection {
    /// Sends a request and waits for its answer.
    async fn request(
        &self,
        id: u64,
        frame: Vec<u8>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), SandboxError> {
        let _permit = self.requests.acquire().await.map_err(|_| SandboxError::Closed)?;
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if waiting.is_over {
                return Err(OVER);
            }
            waiting.answers.insert(id, answer);
        }
        let _request = RequestGuard { connection: self, id };
        let exchange = async {
            self.send(&frame, fds).await.map_err(connection_error)?;
            match answered.await {
                Ok(GuestAnswer::Done(body, fds)) => Ok((body, fds)),
                Ok(GuestAnswer::Refused(failure)) => Err(SandboxError::Refused(failure)),
                Err(_) => Err(OVER),
            }
        };
        match time::timeout(ANSWER_TIMEOUT, exchange).await {
            Ok(result) => result,
            Err(_) => Err(SandboxError::Lost("it did not answer in time")),
        }
    }

    async fn send(&self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket.async_io(Interest::WRITABLE, |fd| sys::send(fd.as_fd(), frame, fds)).await
    }

    /// Reads frames until the guest init ends, then fails all pending requests.
    async fn read(self: Arc<Self>) {
        let mut buf = [0u8; FRAME_BYTES_MAX];
        let reason = loop {
            let receive = |fd: &OwnedFd| sys::receive_what_fits(fd.as_fd(), &mut buf);
            let received = self.socket.async_io(Interest::READABLE, receive);
            match received.await {
                Ok((n @ 1.., fds)) => match self.take(buf.get(..n).unwrap_or(&[]), fds) {
                    Ok(()) => {}
                    Err(reason) => break reason,
                },
                // The guest init did not read all messages; its own messages follow the reset.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                Ok(_) | Err(_) => break "the sandbox was ended".to_owned(),
            }
        };
        // The session cannot continue after any of these.
        let _already_gone = sys::session::hang_up(self.socket.get_ref().as_fd());
        let mut waiting = self.waiting.lock();
        waiting.is_over = true;
        waiting.answers.clear();
        waiting.programs.clear();
        drop(waiting);
        self.ended.send_replace(Some(reason.into()));
    }

    /// Handles one frame. Returns an error, with the reason, if the sandbox is unusable from now
    /// on.
    fn take(&self, frame: &[u8], fds: Vec<OwnedFd>) -> Result<(), String> {
        let malformed = |_: MalformedMessage| "its guest init sent a malformed frame".to_owned();
        let mut r = MessageReader(frame);
        let (kind, id) = r.u8().and_then(|kind| Ok((kind, r.u64()?))).map_err(malformed)?;
        match kind {
            from_session::DONE => {
                let body = r.0.to_vec();
                let mut waiting = self.waiting.lock();
                if let Some(running) = waiting.programs.get_mut(&id) {
                    running.pid = MessageReader(&body).u32().ok().or(running.pid);
                }
                answer(&mut waiting, id, GuestAnswer::Done(body, fds));
            }
            from_session::REFUSED => {
                let errno = r.i32().map_err(malformed)?;
                let step = r.string().map_err(malformed)?;
                let mut waiting = self.waiting.lock();
                waiting.programs.remove(&id);
                answer(&mut waiting, id, GuestAnswer::Refused(StepFailure { step, errno }));
            }
            from_session::ENDED => {
                let end = ProcessEnd::decode(&mut r).map_err(malformed)?;
                if let Some(running) = self.waiting.lock().programs.remove(&id) {
                    running.end.send_replace(Some(end));
                }
            }
            codec::from_guest::FAILED => return Err("its guest init failed".to_owned()),
            _ => return Err("its guest init sent an unknown frame".to_owned()),
        }
        Ok(())
    }
}

/// Error after the sandbox has ended.
const OVER: SandboxError = SandboxError::Lost("it has ended");

/// Converts an error of sending a request: mostly the sandbox has ended.
fn connection_error(error: io::Error) -> SandboxError {
    match error.kind() {
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::NotConnected => OVER,
        _ => error.into(),
    }
}

fn answer(waiting: &mut PendingRequests, id: u64, answer: GuestAnswer) {
    if let Some(sender) = waiting.answers.remove(&id) {
        // The caller may have dropped its request.
        let _unwanted = sender.send(answer);
    }
}
