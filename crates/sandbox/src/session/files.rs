//! Files of a session, as the server sees them: requests to the sandbox's file helper, many at a
//! time.
//!
//! The helper opens files as the sandbox's user and hands their descriptors over, so that the
//! kernel decides what that user may touch, and nobody on this side resolves a path that a program
//! controls. It is trusted no more than the programs that it serves: everything it says is bounded
//! and checked here, down to whether a descriptor is a regular file.

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

/// Most entries of one [`SandboxFiles::list`].
pub const LIST_ENTRIES_MAX: usize = 50_000;
/// Most directories or files of one sandbox that are watched at a time.
pub(crate) const WATCHES_MAX: usize = 16;
/// Most bytes that the entries of one listing may have together.
const LIST_BYTES_MAX: usize = 16 << 20;
/// Bytes read from a pipe at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Base of relative paths.
const WORKSPACE: &[u8] = b"/workspace/";
/// Directory that `~` stands for.
const HOME: &[u8] = b"/home/user/";

type Result<T> = std::result::Result<T, FilesError>;

/// The files of one sandbox. Clones are the same connection.
///
/// Paths are absolute inside the sandbox, relative to `/workspace`, or begin with `~`, which is
/// `/home/user`. Dropping a future gives its request up; what was begun may have been done.
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

/// The connection.
#[derive(Debug)]
struct FileHelperLink {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<PendingFileRequests>,
    quick: Arc<Semaphore>,
    trees: Arc<Semaphore>,
    archives: Arc<Semaphore>,
    /// Watches that callers have.
    watches: Arc<Semaphore>,
    /// Watches of callers, and others that the helper has not ended yet.
    watchers: Arc<Semaphore>,
}

/// Requests that wait for an answer.
#[derive(Debug, Default)]
struct PendingFileRequests {
    next: u64,
    is_lost: bool,
    callers: HashMap<u64, FileRequestCaller>,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct FileRequestCaller {
    /// None when nobody waits any more.
    answer: Option<oneshot::Sender<Result<FileHelperAnswer>>>,
    /// Until the helper is done with it, wanted or not.
    _permit: OwnedSemaphorePermit,
}

/// Answer of the helper.
#[derive(Debug, Default)]
struct FileHelperAnswer {
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// A request under way. Dropped before its answer, it is given up.
#[derive(Debug)]
struct FileCall {
    id: u64,
    link: Arc<FileHelperLink>,
    answer: oneshot::Receiver<Result<FileHelperAnswer>>,
    is_over: bool,
}

impl FileCall {
    /// The answer. Cancel-safe; not to be asked for twice.
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
        // Where it has no room for this, the helper is busy enough to be done with the rest soon.
        let message = FileRequest::Cancel.encode(self.id);
        let _best_effort = sys::send(self.link.socket.get_ref().as_fd(), &message, &[]);
    }
}

impl FileHelperLink {
    /// Takes answers until the other side is gone or talks nonsense, and tells all who wait.
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
        // Nobody waits for it who has given up meanwhile.
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
    /// Takes over a connection to a file helper. Must be called inside the runtime.
    ///
    /// # Errors
    /// Where the runtime cannot watch the descriptor.
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

    /// Returns whether the helper still answers; otherwise everything is [`FilesError::Lost`].
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

    /// Returns what is at a path.
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

    /// Returns what is below a directory, `depth` levels deep, without the directory itself; sorted
    /// by path, and no more than `limit` or [`LIST_ENTRIES_MAX`]. Links are not followed; a
    /// directory that may not be read is listed and what is in it is not.
    ///
    /// # Errors
    /// [`FilesError::NotADirectory`] where it is none.
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

    /// Opens a regular file for reading; nothing else, so that no reader waits for a program.
    ///
    /// # Errors
    /// [`FilesError::IsADirectory`], and [`FilesError::Invalid`] for what is no file at all.
    pub async fn read(&self, path: impl AsRef<[u8]>) -> Result<OpenFile> {
        let path = absolute(path.as_ref())?;
        let mut answer = self.ask(FileRequest::Read { path: path.clone() }).await?;
        let entry = SandboxFileEntry::decode(&mut MessageReader(&answer.payload), path.to_bytes())?;
        let file = answer.fds.pop().ok_or(FilesError::Lost)?;
        // Of the descriptor and not of what the helper says, and a check of what it gave.
        let len = sys::regular_file_size(file.as_fd()).map_err(|_| FilesError::Lost)?;
        Ok(OpenFile { file: tokio::fs::File::from_std(file.into()), len, entry })
    }

    /// Begins to write a file. Nothing is seen of it before [`FileWriter::finish`], except with
    /// [`WriteMode::Append`]; dropped before that, or when the server dies, nothing is left of it.
    /// A file that is replaced keeps its permissions; through a link the file that it leads to is
    /// replaced.
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

    /// Gives a nameless file its name. What is at the name is looked at again.
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

    /// Makes a directory; tells whether it was not there before.
    ///
    /// # Errors
    /// [`FilesError::Exists`] where there is something else.
    pub async fn make_dir(&self, path: impl AsRef<[u8]>, parents: MissingParents) -> Result<bool> {
        let path = absolute(path.as_ref())?;
        let parents = parents == MissingParents::Make;
        let answer = self.ask(FileRequest::MakeDir { path, parents }).await?;
        Ok(answer.payload == [1])
    }

    /// Moves a file or a directory, over a file that is there. Between two file systems (`/tmp`
    /// and the workspace are two) it is copied first and removed then.
    ///
    /// # Errors
    /// [`FilesError::NotFound`], [`FilesError::NotEmpty`] of a directory that is in the way.
    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from, to) = (absolute(from.as_ref())?, absolute(to.as_ref())?);
        self.ask(FileRequest::Rename { from, to }).await.map(drop)
    }

    /// Removes a file, a link, or a directory: an empty one, or with all that is in it.
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
    /// [`FilesError::PermissionDenied`] where the user is not the owner.
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
    /// [`FilesError::TooMany`] beyond what one sandbox may watch at a time.
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
    /// files, permissions and times; of sparse files only the data. Names begin at the path: what
    /// is in a directory `d` comes without `d/`. Sockets are left out, as no archive has a
    /// form for them.
    ///
    /// # Errors
    /// At once for the path itself; later ones come out of the reader.
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

    /// Unpacks a tar archive (ustar, pax or GNU, not compressed) into a directory, which is made
    /// where it is missing, as the sandbox's user. What is in the way of an entry is replaced, but
    /// directories stay. Names are taken as relative; one with `..` in it, or that leads through a
    /// link, is an error, and so is a device. What was unpacked before an error stays.
    ///
    /// # Errors
    /// [`FilesError::Invalid`] names the entry; [`FilesError::Io`] also where `archive` fails.
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
                        // The helper needs no more, or has failed: its answer says which.
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

    /// Names of the `user.` attributes of a file, without that prefix.
    ///
    /// # Errors
    /// [`FilesError::Invalid`] where the file system has none.
    pub async fn attributes(&self, path: impl AsRef<[u8]>) -> Result<Vec<String>> {
        let path = absolute(path.as_ref())?;
        let answer = self.ask(FileRequest::ListAttributes { path }).await?;
        let names = answer.payload.split(|byte| *byte == 0);
        let names = names.filter_map(|name| name.strip_prefix(b"user."));
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// The value of the attribute `user.NAME`.
    ///
    /// # Errors
    /// [`FilesError::NotFound`] where it is not set.
    pub async fn attribute(&self, path: impl AsRef<[u8]>, name: &str) -> Result<Vec<u8>> {
        let (path, name) = (absolute(path.as_ref())?, attribute_name(name)?);
        Ok(self.ask(FileRequest::GetAttribute { path, name }).await?.payload)
    }

    /// Sets the attribute `user.NAME`, or takes it away.
    ///
    /// # Errors
    /// [`FilesError::NoSpace`] or [`FilesError::TooLarge`] where the value has no room.
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

    /// Returns how much room a file, or a directory with all that is in it, takes on the disk. A
    /// file with several names counts with each of them.
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

/// The absolute form of a path, without empty parts and `.`; `..` is the kernel's to resolve.
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

/// A future that is kept between polls.
type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
