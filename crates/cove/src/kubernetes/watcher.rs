//! Connection to the API server, and the resulting requests to the node registry.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::{HeaderValue, Method, StatusCode, header};
use node::client::{
    AddressGuard, ClientError, ClientRequest, ClientResponse, HttpClient, TlsRoots,
};
use node::clock;
use node::cluster::NodeMembership;
use node::data_dir::{DataDirError, write_atomic};
use node::store::SqlStoreError;
use node::task;
use tokio::time;

use super::KubernetesConfig;
use super::machine::{
    CordonDrain, DrainStep, LineTooLong, MachineEvent, MachineObject, WatchLines, message_in,
    next_step,
};

/// File with the service account's token, which Kubernetes replaces before it expires.
const TOKEN_FILE: &str = "token";
/// File with the certificate authorities of the API server.
const AUTHORITIES_FILE: &str = "ca.crt";
/// Longest token, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// File of the data directory that records this node's drain request.
const DRAIN_FILE: &str = "kubernetes.drain";
/// Timeout for the head of a response.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Seconds after which the API server ends a watch. The next watch begins with the object itself,
/// so missed changes are noticed then.
const WATCH_SECONDS: u64 = 60;
/// Longest silence within a watch, after which the connection counts as broken.
const WATCH_PAUSE_MAX: Duration = Duration::from_secs(WATCH_SECONDS + 15);
/// Maximum bytes of one watch. The object of a machine has some ten thousand.
const WATCH_BYTES_MAX: u64 = 64 << 20;
/// Maximum bytes of the object alone.
const OBJECT_BYTES_MAX: u64 = 4 << 20;
/// Minimum time between two watches.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// Maximum time between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Range of random delays, so that nodes do not reconnect at once after an outage of the API
/// server.
const RETRY_SPREAD_MS: u64 = 1000;

/// Reason why the machine is not watched at present.
#[derive(Debug, thiserror::Error)]
enum MachineWatchError {
    /// The service account's files are missing.
    #[error("read `{}` of the service account", path.display())]
    Credentials { path: PathBuf, source: io::Error },
    /// The API server does not respond.
    #[error("ask Kubernetes' API server")]
    Client(#[from] ClientError),
    /// The API server rejects the request.
    #[error("the API server returned {status}: {message}; {remedy}")]
    Refused { status: StatusCode, message: String, remedy: &'static str },
    /// The response has another format.
    #[error("read the API server's description of the machine")]
    Answer(#[from] serde_json::Error),
    /// A line is too long.
    #[error(transparent)]
    Line(#[from] LineTooLong),
    /// The API server ended the watch.
    #[error("the API server ended the watch: {0}")]
    Ended(String),
    /// The node registry cannot be read or changed.
    #[error("ask the registry of nodes")]
    Registry(#[from] SqlStoreError),
    /// The mark cannot be written.
    #[error("record that this node drains")]
    Mark(#[from] DataDirError),
    /// The mark cannot be removed.
    #[error("remove `{DRAIN_FILE}`")]
    Unmark(#[source] io::Error),
}

/// Watches one machine.
pub(super) struct MachineWatcher<'a> {
    config: &'a KubernetesConfig,
    name: &'a str,
    server: String,
    mark: PathBuf,
    membership: &'a NodeMembership,
    own: CordonDrain,
    /// State of the machine, held or not, that was handled last.
    met: Option<bool>,
    /// Failure that was logged last.
    failure: Option<String>,
}

impl<'a> MachineWatcher<'a> {
    pub(super) fn new(
        config: &'a KubernetesConfig,
        name: &'a str,
        server: String,
        data_dir: &Path,
        membership: &'a NodeMembership,
    ) -> MachineWatcher<'a> {
        let mark = data_dir.join(DRAIN_FILE);
        let own = CordonDrain::read(&std::fs::read_to_string(&mark).unwrap_or_default());
        let (met, failure) = (None, None);
        MachineWatcher { config, name, server, mark, membership, own, met, failure }
    }

    /// Watches until it is dropped. The last known state stays in force while the API server is
    /// away.
    pub(super) async fn run(mut self) {
        let mut pause = RETRY_MIN;
        loop {
            match self.watch_once().await {
                Ok(()) => pause = RETRY_MIN,
                Err(error) => {
                    self.log_failure(&error);
                    pause = pause.saturating_mul(2).min(RETRY_MAX);
                }
            }
            let spread = Duration::from_millis(clock::boot_ms() % RETRY_SPREAD_MS);
            time::sleep(pause + spread).await;
        }
    }

    /// Logs a failure when it begins, not each time that it occurs.
    fn log_failure(&mut self, error: &MachineWatchError) {
        let text = error.to_string();
        if self.failure.as_ref() != Some(&text) {
            tracing::warn!(
                error = error as &dyn Error,
                machine = self.name,
                "the Kubernetes node cannot be watched, so that this node does not drain when that \
                 is cordoned"
            );
            self.failure = Some(text);
        }
    }

    /// Handles the object and then its changes, until the API server ends the watch.
    async fn watch_once(&mut self) -> Result<(), MachineWatchError> {
        let object = format!("/api/v1/nodes/{}", self.name);
        let object = self.ask(&object, OBJECT_BYTES_MAX).await?.bytes().await?;
        let is_held = self.is_held(&serde_json::from_slice(&object)?);
        self.meet(is_held).await?;
        if self.failure.take().is_some() {
            tracing::info!(machine = self.name, "the Kubernetes node is watched again");
        }
        // Without a version the watch begins with the object once more: no change in between can be
        // missed, and no version can be too old.
        let changes = format!(
            "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3D{}&timeoutSeconds={}",
            self.name, WATCH_SECONDS
        );
        let mut answer = self.ask(&changes, WATCH_BYTES_MAX).await?;
        let mut lines = WatchLines::default();
        loop {
            let piece = match answer.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(()),
                // Connections break when a proxy is replaced. If there is another reason, the next
                // request fails.
                Err(ClientError::Http { .. } | ClientError::Paused(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            for line in lines.take(&piece)? {
                let is_held = match MachineEvent::read(&line)? {
                    MachineEvent::Is(machine) => self.is_held(&machine),
                    // A machine's object is removed before the machine itself goes away.
                    MachineEvent::Removed => true,
                    MachineEvent::Expired => return Ok(()),
                    MachineEvent::Failed(message) => return Err(MachineWatchError::Ended(message)),
                    MachineEvent::Other => continue,
                };
                self.meet(is_held).await?;
            }
        }
    }

    fn is_held(&self, machine: &MachineObject) -> bool {
        machine.is_held(&self.config.drain_taints)
    }

    /// Sends a request with the current token and certificate authorities: both are replaced while
    /// the server runs.
    async fn ask(&self, path: &str, bytes_max: u64) -> Result<ClientResponse, MachineWatchError> {
        let roots = TlsRoots::File(self.config.service_account.join(AUTHORITIES_FILE));
        let client = HttpClient::with_roots(AddressGuard::Open, roots);
        let mut request = ClientRequest::new(Method::GET, format!("{}{path}", self.server));
        request.headers.insert(header::AUTHORIZATION, self.authorization().await?);
        request.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        request.timeout = ANSWER_MAX;
        request.pause_max = WATCH_PAUSE_MAX;
        request.response_bytes_max = bytes_max;
        let answer = client.send(request).await?;
        let remedy = match answer.status {
            StatusCode::OK => return Ok(answer),
            StatusCode::UNAUTHORIZED => "its token is not good there; look at the service account",
            StatusCode::FORBIDDEN => {
                "bind the service account to a ClusterRole with `get` and `watch` on `nodes`"
            }
            StatusCode::NOT_FOUND => "`cluster.kubernetes.node` names no node",
            _ => "it is asked again",
        };
        let status = answer.status;
        let message = message_in(&answer.bytes().await.unwrap_or_default());
        Err(MachineWatchError::Refused { status, message, remedy })
    }

    async fn authorization(&self) -> Result<HeaderValue, MachineWatchError> {
        let path = self.config.service_account.join(TOKEN_FILE);
        let read = {
            let path = path.clone();
            task::blocking(move || {
                let mut token = String::new();
                File::open(path)?.take(TOKEN_BYTES_MAX).read_to_string(&mut token)?;
                let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
                    .map_err(io::Error::other)?;
                value.set_sensitive(true);
                Ok(value)
            })
            .await
        };
        let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
        read.map_err(|source| MachineWatchError::Credentials { path, source })
    }

    /// Handles a change of the machine's state.
    async fn meet(&mut self, is_held: bool) -> Result<(), MachineWatchError> {
        if self.met == Some(is_held) {
            return Ok(());
        }
        let (registry, id) = (self.membership.registry(), &self.membership.identity().id);
        let nodes = registry.list().await?;
        let is_draining = nodes.iter().any(|node| node.id == *id && node.drain_wanted);
        match next_step(is_held, self.own, is_draining) {
            DrainStep::Nothing => {}
            DrainStep::Begin => {
                self.keep(CordonDrain::Asking)?;
                registry.ask_to_drain(id, true).await?;
                self.keep(CordonDrain::Asked)?;
                tracing::info!(
                    machine = self.name,
                    "Kubernetes wants the machine empty; this node takes no new work"
                );
            }
            DrainStep::End => {
                registry.ask_to_drain(id, false).await?;
                self.keep(CordonDrain::None)?;
                tracing::info!(
                    machine = self.name,
                    "the machine takes work again, so this node does"
                );
            }
            DrainStep::Forget => self.keep(CordonDrain::None)?,
        }
        self.met = Some(is_held);
        Ok(())
    }

    /// Records this node's drain request: a few bytes when a machine is cordoned.
    fn keep(&mut self, own: CordonDrain) -> Result<(), MachineWatchError> {
        match own.content() {
            Some(content) => write_atomic(&self.mark, content.as_bytes())?,
            None => match std::fs::remove_file(&self.mark) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(MachineWatchError::Unmark(error));
                }
                _ => {}
            },
        }
        self.own = own;
        Ok(())
    }
}
