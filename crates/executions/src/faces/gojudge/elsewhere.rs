//! Files that callers store at other nodes: behind a load balancer, a request may name a file of
//! another node. It is fetched on demand, and kept while the request lasts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use node::clock;
use node::cluster::{PeerAnswer, PeerForwarder};
use node::http::{RouteTable as _, get};
use sandbox::SharedFile;
use tokio::sync::Semaphore;

use super::run::{GojudgeRunner, RunError};
use super::store::{FileStoreError, KeptFile};
use super::wire::{CmdFile, GojudgeRequest};

/// Role of nodes that have such files: all of them run programs.
const ROLE: &str = "front";
/// Maximum number of concurrent fetches: each file is in memory twice meanwhile.
const FETCHES_MAX: usize = 4;
/// Maximum bytes of a list of one tenant's files, or of an answer without content.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes in addition to a file's content, before its name.
const OVERHEAD_BYTES: usize = 4096;
const LENGTH_BYTES: usize = 4;

/// Files of other nodes that one request needs, by their ids.
pub(super) type BorrowedFiles = HashMap<String, Arc<SharedFile>>;

/// Other nodes with stored files.
pub(super) struct OtherFileStores {
    nodes: PeerForwarder,
    fetches: Semaphore,
}

impl OtherFileStores {
    pub(super) fn new(nodes: PeerForwarder) -> OtherFileStores {
        OtherFileStores { nodes, fetches: Semaphore::new(FETCHES_MAX) }
    }

    async fn ask(&self, method: Method, path: &str, bytes_max: usize) -> Vec<Bytes> {
        let answers = self.nodes.ask_all(ROLE, &method, path, Bytes::new(), bytes_max).await;
        answers.into_iter().filter_map(PeerAnswer::success).collect()
    }
}

/// Returns the path of a tenant's files, or of one of them. Both are ids, which need no escaping in
/// a path.
fn path_of(tenant: &str, id: &str) -> Option<String> {
    let is_plain =
        |text: &str| text.bytes().all(|it| it.is_ascii_alphanumeric() || b"_-".contains(&it));
    (is_plain(tenant) && is_plain(id)).then(|| format!("/peer/go-judge/{tenant}/{id}"))
}

impl GojudgeRunner {
    /// Fetches the files of a request that are stored at other nodes.
    pub(super) async fn borrow(
        &self,
        tenant: &str,
        request: &GojudgeRequest,
    ) -> Result<BorrowedFiles, RunError> {
        let mut borrowed = BorrowedFiles::new();
        if self.others.is_none() {
            return Ok(borrowed);
        }
        for id in request.cmd.iter().flat_map(|cmd| cmd.stored_files()) {
            if borrowed.contains_key(id) || self.store.get(tenant, id, clock::now()).is_some() {
                continue;
            }
            if let Some(KeptFile { name: _, bytes }) = self.fetch(tenant, id).await {
                let file = self.store.borrow(tenant, &bytes, clock::now());
                borrowed.insert(id.to_owned(), file.map_err(|error| not_borrowed(&error))?);
            }
        }
        Ok(borrowed)
    }

    /// Fetches a file that is stored at another node.
    pub(super) async fn fetch(&self, tenant: &str, id: &str) -> Option<KeptFile> {
        let (others, path) = (self.others.as_ref()?, path_of(tenant, id)?);
        let _turn = others.fetches.acquire().await.ok()?;
        let bytes_max = usize::try_from(self.config.stored_file_bytes_max).unwrap_or(usize::MAX);
        let bytes_max = bytes_max.saturating_add(OVERHEAD_BYTES);
        let found = others.ask(Method::GET, &path, bytes_max).await.into_iter().next()?;
        let (length, rest) = found.split_first_chunk::<LENGTH_BYTES>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (name, bytes) = rest.split_at_checked(length)?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        Some(KeptFile { name, bytes: bytes.to_vec() })
    }

    /// Returns the names of a tenant's files at other nodes by their ids.
    pub(super) async fn list_elsewhere(&self, tenant: &str) -> BTreeMap<String, String> {
        let Some((others, path)) = self.others.as_ref().zip(path_of(tenant, "all")) else {
            return BTreeMap::new();
        };
        let answers = others.ask(Method::GET, &path, LIST_BYTES_MAX).await;
        let lists = answers.iter().filter_map(|body| serde_json::from_slice(body).ok());
        lists.flat_map(|list: BTreeMap<String, String>| list).collect()
    }

    /// Removes a file at other nodes; returns whether it existed.
    pub(super) async fn remove_elsewhere(&self, tenant: &str, id: &str) -> bool {
        let Some((others, path)) = self.others.as_ref().zip(path_of(tenant, id)) else {
            return false;
        };
        !others.ask(Method::DELETE, &path, LIST_BYTES_MAX).await.is_empty()
    }
}

fn not_borrowed(error: &FileStoreError) -> RunError {
    match error {
        FileStoreError::Io(cause) => {
            tracing::error!(error = cause as &dyn std::error::Error, "failed to keep a file");
            RunError::Internal
        }
        full => RunError::Full(full.to_string()),
    }
}

/// Returns the routes for other nodes.
pub(super) fn peer_routes(runner: Arc<GojudgeRunner>) -> Router {
    Router::new()
        .at("/peer/go-judge/{tenant}/all", get(list))
        .at("/peer/go-judge/{tenant}/{id}", get(show).delete(remove))
        .with_state(runner)
}

async fn list(State(runner): State<Arc<GojudgeRunner>>, Path(tenant): Path<String>) -> Response {
    Json(runner.store.list(&tenant, clock::now())).into_response()
}

async fn show(
    State(runner): State<Arc<GojudgeRunner>>,
    Path((tenant, id)): Path<(String, String)>,
) -> Response {
    let Some((name, file)) = runner.store.get(&tenant, &id, clock::now()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match (file.read(), u32::try_from(name.len())) {
        (Ok(content), Ok(length)) => {
            [&length.to_be_bytes(), name.as_bytes(), &content].concat().into_response()
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn remove(
    State(runner): State<Arc<GojudgeRunner>>,
    Path((tenant, id)): Path<(String, String)>,
) -> StatusCode {
    match runner.store.remove(&tenant, &id, clock::now()) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::NOT_FOUND,
    }
}

impl super::wire::GojudgeCommand {
    /// Returns the ids of stored files that the command uses.
    fn stored_files(&self) -> impl Iterator<Item = &str> {
        let placed = self.copy_in.values();
        let streams = self.files.iter().flatten();
        placed.chain(streams).filter_map(|file: &CmdFile| file.file_id.as_deref())
    }
}
