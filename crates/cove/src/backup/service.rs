//! `GET /v1/backup`: an archive of the server, for operators.
//!
//! A dedicated thread writes the response: it blocks for as long as the client reads, and the
//! blocking-task pool has few threads.

use std::io;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result};
use api::ErrorCode;
use api::operations::server as table;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use node::auth::{CallerCredential, TokenPrincipal};
use node::http::{HttpError, OperationRoutes};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::staging::{self, STAGE};
use super::writer::{self, BackupSources, HeldBackup, NoRoom};

/// Media type of an archive (RFC 6713).
const MEDIA_TYPE: &str = "application/gzip";
/// Bytes of one piece, and number of pieces that wait for the client.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_MAX: usize = 8;

/// Backups of this server, one at a time. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct BackupService {
    sources: Arc<BackupSources>,
    running: Arc<tokio::sync::Mutex<()>>,
}

impl BackupService {
    /// Removes the files of a backup whose server was killed. Blocks.
    pub(super) fn open(sources: BackupSources) -> Result<BackupService> {
        staging::remove(&sources.data_dir.join(STAGE))
            .context("failed to remove the remains of a backup")?;
        Ok(BackupService { sources: Arc::new(sources), running: Arc::default() })
    }
}

/// Returns the route.
pub(super) fn routes(service: BackupService) -> Router {
    handlers().with_state(service)
}

fn handlers() -> Router<BackupService> {
    OperationRoutes::of(table::BACKUP).serve(&table::GET_BACKUP, backup).routes()
}

/// Rejects operators who signed in or use an issued token: an archive contains the server's keys
/// and its first token, which outlive such credentials.
fn authorize(who: &TokenPrincipal) -> Result<(), HttpError> {
    match who.credential {
        CallerCredential::Token => Ok(()),
        CallerCredential::Issued | CallerCredential::Console(_) | CallerCredential::Absent => {
            let message =
                "a backup of a server needs an API token, because the server's keys are in it";
            Err(HttpError::new(ErrorCode::Forbidden, message))
        }
    }
}

/// `GET /v1/backup`.
async fn backup(
    who: TokenPrincipal,
    State(service): State<BackupService>,
) -> Result<Response, HttpError> {
    authorize(&who)?;
    let Ok(running) = Arc::clone(&service.running).try_lock_owned() else {
        let message = "a backup of this server is under way; wait for its end";
        return Err(HttpError::new(ErrorCode::Conflict, message));
    };
    let held = writer::hold(Arc::clone(&service.sources), running).await.map_err(refusal)?;
    let (token, bytes) = (who.token_id, held.manifest.bytes);
    tracing::info!(%token, bytes, "a backup begins");
    let name = format!("cove-{}.tar.gz", held.manifest.created.replace(':', ""));
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let running = RunningBackup { held, sender, runtime: Handle::current() };
    let thread = thread::Builder::new().name("cove-backup".to_owned());
    let started = thread.spawn(move || running.run());
    started.map_err(|error| refusal(error.into()))?;
    let pieces = stream::unfold(receiver, async |mut receiver| {
        let piece: io::Result<Bytes> = receiver.recv().await?;
        Some((piece, receiver))
    });
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    let headers: [(HeaderName, HeaderValue); 3] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONTENT_DISPOSITION, disposition.map_err(|error| refusal(error.into()))?),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

fn refusal(error: anyhow::Error) -> HttpError {
    match error.downcast_ref::<NoRoom>() {
        Some(no_room) => HttpError::new(ErrorCode::Overloaded, no_room.to_string())
            .retry_after(node::readiness::CHECK_INTERVAL),
        None => {
            let error: &(dyn std::error::Error + 'static) = error.as_ref();
            tracing::error!(error, "failed to begin a backup");
            HttpError::internal()
        }
    }
}

/// Backup that is sent to a client.
struct RunningBackup {
    held: HeldBackup,
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
}

impl RunningBackup {
    fn run(self) {
        let RunningBackup { held, sender, runtime } = self;
        let pieces = PieceWriter { sender: sender.clone(), piece: Vec::with_capacity(PIECE_BYTES) };
        let written = held.write(pieces, &runtime, || !sender.is_closed());
        let written = written.and_then(|mut pieces| Ok(io::Write::flush(&mut pieces)?));
        match written {
            Ok(()) => tracing::info!("a backup has ended"),
            Err(_) if sender.is_closed() => tracing::info!("the reader of a backup disconnected"),
            Err(error) => {
                let cause: &(dyn std::error::Error + 'static) = error.as_ref();
                tracing::error!(error = cause, "a backup failed");
                // Cuts the response off, so that the client does not take it for a complete
                // archive.
                drop(sender.blocking_send(Err(io::Error::other("the backup failed"))));
            }
        }
    }
}

/// Sends the written bytes in pieces.
struct PieceWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl io::Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES.saturating_sub(self.piece.len()).max(1);
        let part = bytes.get(..room).unwrap_or(bytes);
        self.piece.extend_from_slice(part);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let sent = self.sender.blocking_send(Ok(piece.into()));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_handler() {
        drop(handlers());
    }
}
