//! `cove backup`: downloads an archive from a server into a file and checks it meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, IsTerminal as _, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use axum::http::Method;
use bytes::Bytes;
use node::client::ClientResponse;
use node::clock;

use super::manifest::BackupManifest;
use super::unpack::{ArchiveVisitor, CheckedArchive, read_archive};
use crate::cli::{BackupArgs, BackupCommand};
use crate::config::{CoveConfig, Environment};
use crate::remote::progress::ProgressLine;
use crate::remote::{self, FailureKind, Remote, RemoteFailure};
use crate::run::print_json;
use crate::usage_error::UsageError;
use crate::values::human_bytes;

/// Longest pause in the download: the server copies its store during that time.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Pieces of an archive that wait for the checking thread.
const PIECES_MAX: usize = 16;
/// Interval at which the progress in a terminal is updated.
const SHOW_INTERVAL: Duration = Duration::from_millis(200);
/// Suffix of an incomplete file.
const PARTIAL: &str = "partial";

/// Runs `cove backup`.
pub(crate) fn run(args: &BackupArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    match &args.command {
        Some(BackupCommand::Verify { file, json }) => remote::conclude(verify(file, *json)),
        None => remote::with_server(&args.server, config, environment, async |server| {
            fetch(args, &server).await.map(|()| 0)
        }),
    }
}

fn verify(file: &Path, json: bool) -> Result<u8> {
    let archive = super::verify(file)?;
    match json {
        true => print_json(&super::document(&archive, Some(file)))?,
        false => write!(io::stdout(), "{}", super::described(&archive))?,
    }
    Ok(0)
}

/// Destination of an archive.
enum ArchiveOutput {
    Stdout,
    File { path: PathBuf, partial: PathBuf, file: File },
}

impl ArchiveOutput {
    fn open(args: &BackupArgs) -> Result<ArchiveOutput> {
        let path = match &args.output {
            Some(path) if path.as_os_str() == "-" => {
                if args.json || io::stdout().is_terminal() {
                    let message = "-o -: standard output is for the archive alone";
                    return Err(UsageError(message.to_owned()).into());
                }
                return Ok(ArchiveOutput::Stdout);
            }
            Some(path) => path.clone(),
            None => {
                let now = clock::rfc3339_of_ms(clock::wall_ms()).replace(':', "");
                PathBuf::from(format!("cove-{now}.tar.gz"))
            }
        };
        if path.symlink_metadata().is_ok() {
            let message = format!("`{}` exists: name another file, or remove it", path.display());
            return Err(UsageError(message).into());
        }
        let mut partial = path.clone().into_os_string();
        partial.push(".");
        partial.push(PARTIAL);
        let partial = PathBuf::from(partial);
        let failed = || format!("create `{}`", partial.display());
        // An interrupted backup may have left it behind; a new file gets our mode.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(failed);
            }
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
        let file = file.with_context(failed)?;
        Ok(ArchiveOutput::File { path, partial, file })
    }

    fn write(&mut self, piece: &[u8]) -> Result<()> {
        match self {
            ArchiveOutput::Stdout => Ok(io::stdout().write_all(piece)?),
            ArchiveOutput::File { partial, file, .. } => {
                file.write_all(piece).with_context(|| format!("write `{}`", partial.display()))
            }
        }
    }

    /// Renames the complete archive to its final name.
    fn finish(self) -> Result<Option<PathBuf>> {
        let ArchiveOutput::File { path, partial, file } = self else {
            io::stdout().flush()?;
            return Ok(None);
        };
        let named = || -> io::Result<()> {
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        };
        named().with_context(|| format!("store `{}`", path.display()))?;
        Ok(Some(path))
    }

    /// Removes the incomplete file.
    fn discard(self) {
        if let ArchiveOutput::File { partial, .. } = self {
            // If this fails, the file keeps its `.partial` name, and the next attempt removes it.
            drop(fs::remove_file(partial));
        }
    }
}

async fn fetch(args: &BackupArgs, server: &Remote) -> Result<()> {
    let mut request = server.request(Method::GET, "/v1/backup");
    request.response_bytes_max = u64::MAX;
    request.pause_max = PAUSE_MAX;
    request.timeout = PAUSE_MAX;
    // Opened before the request, so that the server does not start a backup that cannot be stored.
    let mut output = ArchiveOutput::open(args)?;
    let received = async {
        let mut response = server.open(request).await?;
        receive(server, &mut response, &mut output).await
    };
    let archive = match received.await {
        Ok(archive) => archive,
        Err(error) => {
            output.discard();
            return Err(error);
        }
    };
    let file = output.finish()?;
    match (&file, args.json) {
        (Some(file), true) => print_json(&super::document(&archive, Some(file)))?,
        (Some(file), false) => {
            let bytes = human_bytes(fs::metadata(file)?.len());
            let text = super::described(&archive);
            write!(io::stdout(), "{} ({bytes}): {text}", file.display())?;
        }
        (None, _) => write!(io::stderr(), "{}", super::described(&archive))?,
    }
    Ok(())
}

/// Writes an archive as it arrives. The file is complete and checked when this returns.
async fn receive(
    server: &Remote,
    response: &mut ClientResponse,
    output: &mut ArchiveOutput,
) -> Result<CheckedArchive> {
    let reading = ArchiveReading::begin()?;
    let mut line = ProgressLine::new(false);
    let mut drawn_at: Option<Instant> = None;
    let mut received = 0_u64;
    loop {
        let piece = response.chunk().await.map_err(|error| server.explain(error))?;
        let Some(piece) = piece else { break };
        output.write(&piece)?;
        received += u64::try_from(piece.len())?;
        if reading.pieces.send(piece).is_err() {
            break;
        }
        let now = clock::now();
        if drawn_at.is_none_or(|at| now.duration_since(at) >= SHOW_INTERVAL) {
            drawn_at = Some(now);
            line.show(&reading.progress(received));
        }
    }
    line.clear();
    reading.end()
}

/// Thread that checks an archive while it is downloaded.
struct ArchiveReading {
    pieces: SyncSender<Bytes>,
    counts: Arc<ReadCounts>,
    thread: JoinHandle<Result<CheckedArchive>>,
}

/// Progress of reading an archive, in bytes.
#[derive(Debug, Default)]
struct ReadCounts {
    done: AtomicU64,
    total: AtomicU64,
}

impl ArchiveReading {
    fn begin() -> Result<ArchiveReading> {
        let (pieces, receiver) = sync_channel(PIECES_MAX);
        let counts = Arc::new(ReadCounts::default());
        let mut visitor = CountingVisitor(Arc::clone(&counts));
        let read = move || {
            let from = PieceReader { receiver, piece: Bytes::new() };
            read_archive(BufReader::with_capacity(super::READ_BYTES, from), &mut visitor)
        };
        let thread = thread::Builder::new().name("cove-verify".to_owned()).spawn(read)?;
        Ok(ArchiveReading { pieces, counts, thread })
    }

    fn progress(&self, received: u64) -> String {
        let (done, total) =
            (self.counts.done.load(Ordering::Relaxed), self.counts.total.load(Ordering::Relaxed));
        let received = human_bytes(received);
        match total {
            0 => format!("waiting for the server ({received})"),
            _ => format!("{} of {}, {received} packed", human_bytes(done), human_bytes(total)),
        }
    }

    fn end(self) -> Result<CheckedArchive> {
        drop(self.pieces);
        match self.thread.join() {
            Ok(Ok(archive)) => Ok(archive),
            Ok(Err(error)) => {
                let message =
                    format!("the backup is not whole; the server's log may say why: {error:#}");
                Err(RemoteFailure::new(FailureKind::Unavailable, message).into())
            }
            Err(_) => bail!("reading the archive failed"),
        }
    }
}

/// Pieces of an archive as a reader.
struct PieceReader {
    receiver: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for PieceReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.recv() {
                Ok(piece) => self.piece = piece,
                Err(_) => return Ok(0),
            }
        }
        let part = self.piece.split_to(self.piece.len().min(buf.len()));
        buf.iter_mut().zip(&part).for_each(|(to, from)| *to = *from);
        Ok(part.len())
    }
}

/// Counts the bytes read.
struct CountingVisitor(Arc<ReadCounts>);

impl ArchiveVisitor for CountingVisitor {
    fn manifest(&mut self, manifest: &BackupManifest) -> Result<()> {
        self.0.total.store(manifest.bytes, Ordering::Relaxed);
        Ok(())
    }

    fn content(&mut self, _: u64, bytes: &[u8]) -> Result<()> {
        let count = u64::try_from(bytes.len()).map_err(|error| anyhow!(error))?;
        self.0.done.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }
}
