//! Files of a session, on the server's side: concurrent requests to the sandbox's file helper.
//!
//! The helper opens files as the sandbox's user and sends their descriptors to the server, so that
//! the kernel checks the user's permissions and the server never resolves a path that a program
//! controls. The helper is trusted no more than the programs that it serves: the server bounds and
//! checks all its answers, down to whether a descriptor is a regular file.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use self::wire::{FileRequest, RequestClass};
use crate::codec::{MalformedMessage, MessageReader};
use crate::sys;

mod streams;
#[cfg(test)]
mod tests;
mod types;
pub(crate) mod wire;

pub use streams::{FileWriter, OpenFile, TarReader, Watch, WatchBarrier};
pub(crate) use types::SHOWN_USER;
pub use types::{
    DirectoryListing, EntryKind, FilesError, LinkMode, ListDepth, MissingParents, SandboxFileEntry,
    TreeUsage, WatchEvent, WatchKind, WriteMode,
};

/// Maximum number of entries of one [`SandboxFiles::list`].
pub const LIST_ENTRIES_MAX: usize = 50_000;
/// Maximum number of concurrent watches of one sandbox.
pub(crate) const WATCHES_MAX: usize = 16;
/// Maximum of the total size of the entries of one listing, in bytes.
const LIST_BYTES_MAX: usize = 16 << 20;
/// Bytes read from a pipe at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Base of relative paths.
const WORKSPACE: &[u8] = b"/workspace/";
/// Directory that `~` denotes.
const HOME: &[u8] = b"/home/user/";

type Result<T> = std::result::Result<T, FilesError>;

/// The files of one sandbox. Clones share the connection.
///
/// Paths are absolute inside the sandbox, relative to `/workspace`, or begin with `~`, which
/// denotes `/home/user`. Dropping a future cancels its request; a change that was begun may have
/// been made.
#[derive(Clone, Debug)]
pub struct SandboxFiles(Arc<FileHelperClient>);

#[derive(Debug)]
struct FileHelperClient {
    link: Arc<FileHelperLink>,
    /// Reads the answers.
    receiver: tokio::task::JoinHandle<()>,
}

impl Drop for FileHelperClient {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

/// The connection to the helper.
#[derive(Debug)]
struct FileHelperLink {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<PendingFileRequests>,
    quick: Arc<Semaphore>,
    trees: Arc<Semaphore>,
    archives: Arc<Semaphore>,
    /// Limits the watches of callers.
    watches: Arc<Semaphore>,
    /// Limits the watches in the helper: those of callers, and those that it has not ended yet.
    watchers: Arc<Semaphore>,
}

/// Requests that wait for an answer.
#[derive(Debug, Default)]
struct PendingFileRequests {
    next: u64,
    is_lost: bool,
    callers: HashMap<u64, FileRequestCaller>,
}

/// A request without an answer so far.
#[derive(Debug)]
struct FileRequestCaller {
    /// None when the caller no longer waits.
    answer: Option<oneshot::Sender<Result<FileHelperAnswer>>>,
    /// Held until the helper has finished the request, even if it was cancelled.
    _permit: OwnedSemaphorePermit,
}

/// Answer of the helper.
#[derive(Debug, Default)]
struct FileHelperAnswer {
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// A pending request. Dropping it before its answer cancels the request.
#[derive(Debug)]
struct FileCall {
    id: u64,
    link: Arc<FileHelperLink>,
    answer: oneshot::Receiver<Result<FileHelperAnswer>>,
    is_over: bool,
}

impl FileCall {
    /// Waits for the answer. Cancel-safe; must not be called again after it has returned.
    async fn answer(&mut self) -> Result<FileHelperAnswer> {
        let answer = (&mut self.answer).await;
        self.is_over = true;
        answer.unwrap_or(Err(FilesError::Lost))
    }
}

impl Drop for FileCall {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Some(caller) = self.link.waiting.lock().callers.get_mut(&self.id) {
            caller.answer = None;
        }
        // If the socket is full, the helper is likely to finish the request soon anyway.
        let message = FileRequest::Cancel.encode(self.id);
        let _best_effort = sys::send(self.link.socket.get_ref().as_fd(), &message, &[]);
    }
}

impl FileHelperLink {
    /// Reads answers until the connection ends or sends a malformed message, then fails all pending
    /// requests.
    async fn receive_all(&self) {
        let mut buf = vec![0; wire::FRAME_BYTES_MAX];
        while let Ok(Some((n, fds))) = self.receive(&mut buf).await {
            if self.deliver(buf.get(..n).unwrap_or(&[]), fds).is_err() {
                break;
            }
        }
        let mut waiting = self.waiting.lock();
        waiting.is_lost = true;
        waiting.callers.clear();
    }

    async fn receive(&self, buf: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
        loop {
            let mut guard = self.socket.readable().await?;
            match guard.try_io(|fd| sys::receive_what_fits(fd.as_fd(), buf)) {
                Ok(received) => return received.map(|(n, fds)| (n > 0).then_some((n, fds))),
                Err(_would_block) => {}
            }
        }
    }

    fn deliver(
        &self,
        message: &[u8],
        fds: Vec<OwnedFd>,
    ) -> std::result::Result<(), MalformedMessage> {
        let (id, result) = wire::decode_answer(message)?;
        let mut waiting = self.waiting.lock();
        if id >= waiting.next {
            return Err(MalformedMessage);
        }
        // The caller may have cancelled the request meanwhile.
        if let Some(caller) = waiting.callers.remove(&id).and_then(|caller| caller.answer) {
            let result =
                result.map(|payload| FileHelperAnswer { payload, fds }).map_err(|refusal| {
                    let detail = String::from_utf8_lossy(&refusal.detail).into_owned();
                    FilesError::from_errno(refusal.errno, detail)
                });
            let _nobody = caller.send(result);
        }
        Ok(())
    }

    async fn send(&self, message: &[u8], fds: &[OwnedFd]) -> io::Result<()> {
        loop {
            let mut guard = self.socket.writable().await?;
            let sent = guard.try_io(|socket| {
                let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                sys::send(socket.as_fd(), message, &fds)
            });
            match sent {
                Ok(sent) => return sent,
                Err(_would_block) => {}
            }
        }
    }

    async fn permit(&self, class: RequestClass) -> Result<OwnedSemaphorePermit> {
        let semaphore = match class {
            RequestClass::Quick => &self.quick,
            RequestClass::Tree => &self.trees,
            RequestClass::Archive => &self.archives,
            RequestClass::Watch => &self.watchers,
        };
        semaphore.clone().acquire_owned().await.map_err(|_| FilesError::Lost)
    }
}

impl SandboxFiles {
    /// Takes over a connection to a file helper. Must be called inside the async runtime.
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor.
    pub fn new(socket: OwnedFd) -> io::Result<SandboxFiles> {
        let link = Arc::new(FileHelperLink {
            socket: sys::watch(socket)?,
            waiting: Mutex::default(),
            quick: Arc::new(Semaphore::new(wire::QUICK_MAX)),
            trees: Arc::new(Semaphore::new(wire::TREES_MAX)),
            archives: Arc::new(Semaphore::new(wire::ARCHIVES_MAX)),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
            watchers: Arc::new(Semaphore::new(wire::WATCHERS_MAX)),
        });
        let receiving = link.clone();
        let receiver = tokio::spawn(async move { receiving.receive_all().await });
        Ok(SandboxFiles(Arc::new(FileHelperClient { link, receiver })))
    }

    /// Returns whether the helper still answers; otherwise every request fails with
    /// [`FilesError::Lost`].
    pub fn is_alive(&self) -> bool {
        !self.0.link.waiting.lock().is_lost
    }

    async fn call(&self, request: &FileRequest, fds: Vec<OwnedFd>) -> Result<FileCall> {
        let link = self.0.link.clone();
        let permit = link.permit(request.class()).await?;
        let (tx, answer) = oneshot::channel();
        let id = {
            let mut waiting = link.waiting.lock();
            if waiting.is_lost {
                return Err(FilesError::Lost);
            }
            let id = waiting.next;
            waiting.next += 1;
            waiting.callers.insert(id, FileRequestCaller { answer: Some(tx), _permit: permit });
            id
        };
        let call = FileCall { id, link, answer, is_over: false };
        call.link.send(&request.encode(id), &fds).await.map_err(|_| FilesError::Lost)?;
        Ok(call)
    }

    async fn ask(&self, request: FileRequest) -> Result<FileHelperAnswer> {
        self.call(&request, Vec::new()).await?.answer().await
    }

    /// Returns the entry at a path.
    ///
    /// # Errors
    /// [`FilesError::NotFound`] above all.
    pub async fn stat(&self, path: impl AsRef<[u8]>, follow: LinkMode) -> Result<SandboxFileEntry> {
        let path = absolute(path.as_ref())?;
        let request = FileRequest::Stat { path: path.clone(), follow: follow == LinkMode::Links };
        let answer = self.ask(request).await?;
        let r = &mut MessageReader(&answer.payload);
        let mut entry = SandboxFileEntry::decode(r, path.to_bytes())?;
        if follow == LinkMode::Links {
            entry.resolved = Some(String::from_utf8_lossy(r.bytes()?).into_owned());
        }
        Ok(entry)
    }

    /// Returns the entries below a directory, `depth` levels deep, without the directory itself;
    /// sorted by path, and no more than `limit` or [`LIST_ENTRIES_MAX`]. Links are not followed; a
    /// directory that may not be read is listed without its content.
    ///
    /// # Errors
    /// [`FilesError::NotADirectory`] if the path is not a directory.
    pub async fn list(
        &self,
        path: impl AsRef<[u8]>,
        depth: u32,
        limit: usize,
    ) -> Result<DirectoryListing> {
        let path = absolute(path.as_ref())?;
        if !(1..=wire::LIST_DEPTH_MAX).contains(&depth) {
            let max = wire::LIST_DEPTH_MAX;
            return Err(FilesError::Invalid(format!("depth: must be from 1 to {max}")));
        }
        let limit = limit.min(LIST_ENTRIES_MAX);
        let (read, write) = sys::pipe()?;
        let mut pipe = receiver(read)?;
        let request = FileRequest::List { path: path.clone(), depth, limit: limit as u64 };
        let mut call = self.call(&request, vec![write]).await?;
        let mut base = path.to_bytes().to_vec();
        if base != b"/" {
            base.push(b'/');
        }
        let mut listing = DirectoryListing::default();
        let (mut pending, mut total) = (Vec::new(), 0);
        loop {
            let mut rest = pending.as_slice();
            while let Some(record) = wire::take_record(&mut rest)? {
                total += record.len();
                if listing.entries.len() >= limit || total > LIST_BYTES_MAX {
                    listing.cut = true;
                    break;
                }
                let r = &mut MessageReader(record);
                let path = [base.as_slice(), r.bytes()?].concat();
                listing.entries.push(SandboxFileEntry::decode(r, &path)?);
            }
            if listing.cut {
                break;
            }
            pending.drain(..pending.len() - rest.len());
            pending.reserve(CHUNK_BYTES);
            if pipe.read_buf(&mut pending).await? == 0 {
                listing.cut |= call.answer().await?.payload == [1];
                break;
            }
        }
        listing.entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }

    /// Opens a regular file for reading; no other kind, so that no reader waits for a program.
    ///
    /// # Errors
    /// [`FilesError::IsADirectory`] for a directory, and [`FilesError::Invalid`] for other kinds.
    pub async fn read(&self, path: impl AsRef<[u8]>) -> Result<OpenFile> {
        let path = absolute(path.as_ref())?;
        let mut answer = self.ask(FileRequest::Read { path: path.clone() }).await?;
        let entry = SandboxFileEntry::decode(&mut MessageReader(&answer.payload), path.to_bytes())?;
        let file = answer.fds.pop().ok_or(FilesError::Lost)?;
        // Taken from the descriptor and not from the helper's answer; this also checks its kind.
        let len = sys::regular_file_size(file.as_fd()).map_err(|_| FilesError::Lost)?;
        Ok(OpenFile { file: tokio::fs::File::from_std(file.into()), len, entry })
    }

    /// Begins to write a file. The file is not visible before [`FileWriter::finish`], except with
    /// [`WriteMode::Append`]; if the writer is dropped before that, or the server dies, no trace of
    /// it remains. A file that is replaced keeps its permissions; if the path is a link, its target
    /// is replaced.
    ///
    /// # Errors
    /// [`FilesError::Exists`] with [`WriteMode::Create`]; [`FilesError::IsADirectory`].
    pub async fn write(
        &self,
        path: impl AsRef<[u8]>,
        parents: MissingParents,
        mode: WriteMode,
    ) -> Result<FileWriter> {
        let path = absolute(path.as_ref())?;
        let (parents, create) = (parents == MissingParents::Make, mode == WriteMode::Create);
        let request = match mode {
            WriteMode::Append => FileRequest::Append { path: path.clone(), parents },
            WriteMode::Create | WriteMode::Replace => {
                FileRequest::Write { path: path.clone(), parents, create }
            }
        };
        let file = self.ask(request).await?.fds.pop().ok_or(FilesError::Lost)?;
        sys::regular_file_size(file.as_fd()).map_err(|_| FilesError::Lost)?;
        FileWriter::new(self.clone(), file, path, mode)
    }

    /// Gives an unnamed file its name. The helper checks the name again.
    async fn finish(
        &self,
        path: &CString,
        file: OwnedFd,
        create: bool,
    ) -> Result<SandboxFileEntry> {
        let request = FileRequest::Finish { path: path.clone(), create };
        let answer = self.call(&request, vec![file]).await?.answer().await?;
        Ok(SandboxFileEntry::decode(&mut MessageReader(&answer.payload), path.to_bytes())?)
    }

    /// Creates a directory; returns whether it did not exist before.
    ///
    /// # Errors
    /// [`FilesError::Exists`] if the path exists and is not a directory.
    pub async fn make_dir(&self, path: impl AsRef<[u8]>, parents: MissingParents) -> Result<bool> {
        let path = absolute(path.as_ref())?;
        let parents = parents == MissingParents::Make;
        let answer = self.ask(FileRequest::MakeDir { path, parents }).await?;
        Ok(answer.payload == [1])
    }

    /// Moves a file or a directory; an existing file is replaced. Between two file systems (`/tmp`
    /// and the workspace are two) it is first copied, then removed.
    ///
    /// # Errors
    /// [`FilesError::NotFound`]; [`FilesError::NotEmpty`] if the target is a directory with
    /// content.
    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from, to) = (absolute(from.as_ref())?, absolute(to.as_ref())?);
        self.ask(FileRequest::Rename { from, to }).await.map(drop)
    }

    /// Removes a file, a link, or a directory: only an empty one, or recursively.
    ///
    /// # Errors
    /// [`FilesError::NotEmpty`] with [`ListDepth::Single`].
    pub async fn remove(&self, path: impl AsRef<[u8]>, depth: ListDepth) -> Result<()> {
        let path = absolute(path.as_ref())?;
        let recursive = depth == ListDepth::Recursive;
        self.ask(FileRequest::Remove { path, recursive }).await.map(drop)
    }

    /// Sets permissions, the lower twelve bits.
    ///
    /// # Errors
    /// [`FilesError::PermissionDenied`] if the user is not the owner.
    pub async fn chmod(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let path = absolute(path.as_ref())?;
        if mode > 0o7777 {
            return Err(FilesError::Invalid("mode: must be at most 0o7777".to_owned()));
        }
        self.ask(FileRequest::Chmod { path, mode }).await.map(drop)
    }

    /// Watches a directory or a file, from when this returns until the watch is dropped.
    ///
    /// # Errors
    /// [`FilesError::TooMany`] if the sandbox already has the maximum number of watches.
    pub async fn watch(&self, path: impl AsRef<[u8]>, depth: ListDepth) -> Result<Watch> {
        let path = absolute(path.as_ref())?;
        let place = self.0.link.watches.clone().try_acquire_owned();
        let place = place.map_err(|_| FilesError::TooMany("watched directories".to_owned()))?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(ours)?;
        let request = FileRequest::Watch { path, recursive: depth == ListDepth::Recursive };
        let call = self.call(&request, vec![theirs.into()]).await?;
        Watch::start(self.clone(), stream, call, place).await
    }

    /// Reads a file or everything below a directory as a tar archive (pax), with links, hidden
    /// files, permissions and times; of sparse files only the data. Names are relative to the path:
    /// entries of a directory `d` have no prefix `d/`. Sockets are left out, because tar cannot
    /// represent them.
    ///
    /// # Errors
    /// Errors of the path itself are returned at once; later ones come from the reader.
    pub async fn export_tar(&self, path: impl AsRef<[u8]>) -> Result<TarReader> {
        let path = absolute(path.as_ref())?;
        let (read, write) = sys::pipe()?;
        let mut pipe = receiver(read)?;
        let mut call = self.call(&FileRequest::Export { path }, vec![write]).await?;
        let mut first = Vec::with_capacity(CHUNK_BYTES);
        if pipe.read_buf(&mut first).await? == 0 {
            call.answer().await?;
            return Err(FilesError::Lost);
        }
        Ok(TarReader::new(self.clone(), pipe, first, call))
    }

    /// Unpacks a tar archive (ustar, pax or GNU, not compressed) into a directory, which is created
    /// if it is missing, as the sandbox's user. An entry replaces an existing file, but directories
    /// stay. Names are taken as relative; a name that contains `..` or leads through a link is an
    /// error, and so is a device. Entries unpacked before an error stay.
    ///
    /// # Errors
    /// [`FilesError::Invalid`] names the entry; [`FilesError::Io`] also if reading `archive` fails.
    pub async fn import_tar(
        &self,
        path: impl AsRef<[u8]>,
        mut archive: impl AsyncRead + Unpin,
    ) -> Result<TreeUsage> {
        let path = absolute(path.as_ref())?;
        let (read, write) = sys::pipe()?;
        sys::set_nonblocking(write.as_fd())?;
        let mut pipe = pipe::Sender::from_owned_fd(write)?;
        let mut call = self.call(&FileRequest::Import { path }, vec![read]).await?;
        let answer = {
            let copying = async {
                let mut buf = vec![0; CHUNK_BYTES];
                loop {
                    match archive.read(&mut buf).await {
                        Ok(0) => return Ok(()),
                        // The helper needs no more input, or has failed: its answer says which.
                        Ok(n) => match pipe.write_all(buf.get(..n).unwrap_or(&[])).await {
                            Ok(()) => {}
                            Err(_broken) => return Ok(()),
                        },
                        Err(error) => return Err(FilesError::Io(error)),
                    }
                }
            };
            tokio::select! {
                answer = call.answer() => Some(answer?),
                copied = copying => copied.map(|()| None)?,
            }
        };
        drop(pipe);
        let answer = match answer {
            Some(answer) => answer,
            None => call.answer().await?,
        };
        tree_usage(&answer)
    }

    /// Returns the names of the `user.` attributes of a file, without that prefix.
    ///
    /// # Errors
    /// [`FilesError::Invalid`] if the file system does not support attributes.
    pub async fn attributes(&self, path: impl AsRef<[u8]>) -> Result<Vec<String>> {
        let path = absolute(path.as_ref())?;
        let answer = self.ask(FileRequest::ListAttributes { path }).await?;
        let names = answer.payload.split(|byte| *byte == 0);
        let names = names.filter_map(|name| name.strip_prefix(b"user."));
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// Returns the value of the attribute `user.NAME`.
    ///
    /// # Errors
    /// [`FilesError::NotFound`] if it is not set.
    pub async fn attribute(&self, path: impl AsRef<[u8]>, name: &str) -> Result<Vec<u8>> {
        let (path, name) = (absolute(path.as_ref())?, attribute_name(name)?);
        Ok(self.ask(FileRequest::GetAttribute { path, name }).await?.payload)
    }

    /// Sets or removes the attribute `user.NAME`.
    ///
    /// # Errors
    /// [`FilesError::NoSpace`] or [`FilesError::TooLarge`] if the value does not fit.
    pub async fn set_attribute(
        &self,
        path: impl AsRef<[u8]>,
        name: &str,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let (path, name) = (absolute(path.as_ref())?, attribute_name(name)?);
        if value.is_some_and(|value| value.len() > ATTRIBUTE_BYTES_MAX) {
            return Err(FilesError::TooLarge(format!("value: above {ATTRIBUTE_BYTES_MAX} bytes")));
        }
        let value = value.map(<[u8]>::to_vec);
        self.ask(FileRequest::SetAttribute { path, name, value }).await.map(drop)
    }

    /// Returns the disk usage of a file, or of a directory with its content. A file with several
    /// names counts with each of them.
    ///
    /// # Errors
    /// [`FilesError::NotFound`] above all.
    pub async fn disk_usage(&self, path: impl AsRef<[u8]>) -> Result<TreeUsage> {
        let path = absolute(path.as_ref())?;
        tree_usage(&self.ask(FileRequest::Usage { path }).await?)
    }
}

/// Longest value of an attribute (`XATTR_SIZE_MAX` of the kernel; disks have room for less).
pub const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// Longest name of an attribute with its prefix (`XATTR_NAME_MAX` of the kernel).
const ATTRIBUTE_NAME_BYTES_MAX: usize = 255;

fn attribute_name(name: &str) -> Result<CString> {
    let full = format!("user.{name}");
    if name.is_empty() || full.len() > ATTRIBUTE_NAME_BYTES_MAX {
        let max = ATTRIBUTE_NAME_BYTES_MAX - "user.".len();
        return Err(FilesError::Invalid(format!("name: must have 1 to {max} bytes")));
    }
    CString::new(full).map_err(|_| FilesError::Invalid("name: has a NUL byte".to_owned()))
}

fn tree_usage(answer: &FileHelperAnswer) -> Result<TreeUsage> {
    let r = &mut MessageReader(&answer.payload);
    Ok(TreeUsage { entries: r.u64()?, bytes: r.u64()? })
}

fn receiver(read: OwnedFd) -> io::Result<pipe::Receiver> {
    sys::set_nonblocking(read.as_fd())?;
    pipe::Receiver::from_owned_fd(read)
}

/// Returns the absolute form of a path, without empty parts and `.`; the kernel resolves `..`.
fn absolute(path: &[u8]) -> Result<CString> {
    let invalid = |why: &str| FilesError::Invalid(format!("path: {why}"));
    let (base, rest) = match path {
        [] => return Err(invalid("is empty")),
        [b'/', ..] => (&b"/"[..], path),
        b"~" => (HOME, &b""[..]),
        [b'~', b'/', rest @ ..] => (HOME, rest),
        _ => (WORKSPACE, path),
    };
    let mut full = Vec::with_capacity(base.len() + rest.len());
    for part in base.split(|b| *b == b'/').chain(rest.split(|b| *b == b'/')) {
        if !part.is_empty() && part != b"." {
            full.push(b'/');
            full.extend_from_slice(part);
        }
    }
    if full.is_empty() {
        full.push(b'/');
    }
    if full.len() > wire::PATH_BYTES_MAX {
        return Err(invalid("is too long"));
    }
    CString::new(full).map_err(|_| invalid("has a NUL byte"))
}

/// Boxed future that is kept between polls.
type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
