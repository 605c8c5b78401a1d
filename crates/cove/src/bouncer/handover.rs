//! Handover of the bouncer from one server to the next, on the same data directory.
//!
//! The next server first requests the former one's listeners and clients, at which the former one
//! stops as after SIGTERM. It then waits for the data directory, starts, and continues with the
//! clients. A separate process keeps them meanwhile ([`bouncer::relay::keep_handover`]).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bouncer::relay::{FormerProcess, HandoverConfig, KeptHandover, keep_handover};
use node::data_dir::{DataDir, DataDirError};

/// Interval at which the data directory is tried again while the former server holds it.
const DATA_DIR_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `cove bouncer keep-handover`, whose standard input is a socket to the next server.
pub(crate) fn keep(socket: &Path) -> Result<()> {
    let server: OwnedFd = io::stdin().as_fd().try_clone_to_owned().context("use standard input")?;
    let kept = keep_handover(socket, UnixStream::from(server));
    kept.with_context(|| format!("failed to take over at `{}`", socket.display()))
}

/// Requests the listeners and clients of the server that was started with the same socket file, if
/// it is running.
///
/// # Errors
/// If the server is running and does not hand them over, or no keeper process can be started.
pub(crate) fn ask(socket: PathBuf) -> Result<HandoverConfig> {
    let (own, of_keeper) = UnixStream::pair().context("failed to make a socket pair")?;
    let program = std::env::current_exe().context("failed to find the program itself")?;
    // In one statement, so that this process keeps no copy of the keeper's end: it must notice when
    // the keeper closes it.
    let keeper = Command::new(program)
        .args(["bouncer", "keep-handover"])
        .arg(&socket)
        .stdin(Stdio::from(OwnedFd::from(of_keeper)))
        .stdout(Stdio::null())
        .spawn()
        .context("failed to start the keeper of the bouncer's clients")?;
    let kept = KeptHandover::from_keeper(own, keeper);
    let kept = kept.with_context(|| format!("failed to take over at `{}`", socket.display()))?;
    let former = kept.map_or(FormerProcess::Absent, FormerProcess::Kept);
    Ok(HandoverConfig { socket, former })
}

/// Opens the data directory, and waits for a server that hands over to release it.
///
/// # Errors
/// If another server holds it, or the file system returns an error.
pub(crate) fn open_data_dir(
    path: &Path,
    handover: Option<&HandoverConfig>,
) -> Result<DataDir, DataDirError> {
    let former = handover.and_then(|handover| match &handover.former {
        FormerProcess::Kept(kept) => Some(kept.former().to_string()),
        FormerProcess::AtSocket | FormerProcess::Absent => None,
    });
    let mut waits = false;
    loop {
        match DataDir::open(path) {
            Err(DataDirError::InUse { pid, .. }) if former.as_ref() == Some(&pid) => {}
            opened => return opened,
        }
        if !waits {
            tracing::info!(process = former, "waits for the server that hands over to stop");
            waits = true;
        }
        thread::park_timeout(DATA_DIR_INTERVAL);
    }
}
