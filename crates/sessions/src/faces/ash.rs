//! Ash's interface: `/api/*` and `/health`, as its published clients speak it.
//!
//! | file | what it is |
//! |---|---|
//! | `call` | who asks, bodies, and errors in Ash's words |
//! | `ids`, `time`, `media` | UUIDs of our ids, times and media types as they are written there |
//! | `agents`, `versions`, `folder` | agents, versions of their prompts, folders of the server |
//! | `sessions` | the life of sessions, and commands in them |
//! | `messages`, `sse`, `history` | a turn as it is told, and what is told of it later |
//! | `files` | the workspace |
//! | `records` | credentials, attachments, usage |
//! | `queue`, `evals`, `turn` | prompts for later, agents put to the test; a turn that only we hear |

mod agents;
mod call;
mod evals;
mod files;
mod folder;
mod history;
mod ids;
mod media;
mod messages;
mod queue;
mod records;
mod sessions;
mod sse;
mod time;
mod turn;
mod versions;

use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::{Json, Router};
use node::clock::{self, IdGenerator};
use node::drain::DrainHandle;
use node::http::{RouteTable, delete, get, patch, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use self::call::{AshCaller, AshFailure};
use crate::everywhere::recent_counts;
use crate::http::fence::{self, FencedInterface};
use crate::routing::SessionInterface;
use crate::service::{FaceDocument, Sessions};

/// Name of this face in its sessions.
const FACE: &str = "ash";
/// Documents that are read at a time.
const PAGE: usize = 500;
/// Locks of what is changed in several steps.
const LOCKS: usize = 64;

/// Routes whose bodies are larger than others.
pub const STREAMING: [&str; 2] = ["/api/sessions/{id}/workspace", "/api/sessions/{id}/files"];

/// The `[compat.ash]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AshConfig {
    /// The directory below which there are agents that callers may deploy by naming their folder;
    /// none: they send the files.
    pub agents: Option<PathBuf>,
}

/// State that the handlers share.
#[derive(Clone)]
struct AshContext {
    sessions: Sessions,
    shared: Arc<AshShared>,
}

impl fmt::Debug for AshContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Face")
    }
}

struct AshShared {
    config: AshConfig,
    ids: IdGenerator,
    started: Instant,
    locks: AshLocks,
    queue: queue::QueueTenants,
    runs: evals::EvalRuns,
}

/// Lets one request at a time change what is changed in several steps.
struct AshLocks {
    locks: [Mutex<()>; LOCKS],
    hasher: RandomState,
}

impl AshLocks {
    fn new() -> AshLocks {
        AshLocks { locks: std::array::from_fn(|_| Mutex::new(())), hasher: RandomState::new() }
    }

    /// Locks a thing by its hash; some others may wait, too.
    async fn lock(&self, what: &impl Hash) -> MutexGuard<'_, ()> {
        let hash = self.hasher.hash_one(what);
        let place = usize::try_from(hash % LOCKS as u64).unwrap_or(0);
        self.locks[place].lock().await
    }
}

/// All of Ash's paths, for [`node::http::HttpShell`] to wrap: `/api` is for who has a token,
/// `/health` for everybody. To be called inside the runtime: its queue is worked off from then on.
///
/// # Errors
/// If the kernel gives no random bytes.
pub fn routes(sessions: Sessions, config: AshConfig, drain: &DrainHandle) -> io::Result<Router> {
    let queue = queue::QueueTenants::new(drain.clone());
    let runs = evals::EvalRuns::new(drain.clone());
    if sessions.why_unavailable().is_none() {
        node::task::spawn(queue.clone().keep(sessions.clone()));
        node::task::spawn(evals::keep(runs.clone(), sessions.clone()));
    }
    let (ids, started) = (IdGenerator::new()?, clock::now());
    let shared = AshShared { config, ids, started, locks: AshLocks::new(), queue, runs };
    let interface = SessionInterface::Main;
    let fenced = FencedInterface { sessions: sessions.clone(), interface };
    let face = AshContext { sessions, shared: Arc::new(shared) };
    let routes = Router::new()
        .at("/health", get(health))
        .merge(of_agents())
        .merge(of_evals())
        .merge(of_sessions().layer(from_fn_with_state(fenced, fence::fenced)))
        .merge(of_records());
    Ok(routes.with_state(face))
}

/// Returns the id of the session that a UUID in a path stands for.
pub(crate) fn session_id(uuid: &str) -> Option<String> {
    ids::ours(ids::SESSION, uuid)
}

/// Returns what the shell says by itself (no token, too large, shutting down), in Ash's shape: for
/// [`node::http::CompatFace::render`].
pub fn render_error(error: &node::http::HttpError) -> Response {
    call::render(error)
}

fn of_agents() -> Router<AshContext> {
    let version = get(versions::get).patch(versions::update).delete(versions::remove);
    Router::new()
        .at("/api/agents", post(agents::deploy).get(agents::list))
        .at("/api/agents/{name}", get(agents::get).patch(agents::update).delete(agents::remove))
        .at("/api/agents/{name}/config", get(agents::config).patch(agents::configure))
        .at("/api/agents/{name}/files", get(agents::files).post(agents::upload))
        .at("/api/agents/{name}/files/{*path}", get(agents::file).delete(agents::remove_file))
        .at("/api/agents/{name}/versions", get(versions::list).post(versions::create))
        .at("/api/agents/{name}/versions/{version}", version)
        .at("/api/agents/{name}/versions/{version}/activate", post(versions::activate))
}

fn of_evals() -> Router<AshContext> {
    let case = get(evals::get_case).patch(evals::update_case).delete(evals::remove_case);
    Router::new()
        .at("/api/agents/{name}/eval-cases", post(evals::create_case).get(evals::list_cases))
        .at("/api/agents/{name}/eval-cases/import", post(evals::import))
        .at("/api/agents/{name}/eval-cases/export", get(evals::export))
        .at("/api/agents/{name}/eval-cases/{id}", case)
        .at("/api/agents/{name}/eval-runs", post(evals::start).get(evals::list))
        .at("/api/agents/{name}/eval-runs/compare", get(evals::compare))
        .at("/api/agents/{name}/eval-runs/{id}", get(evals::get))
        .at("/api/agents/{name}/eval-runs/{id}/results", get(evals::results))
        .at("/api/agents/{name}/eval-runs/{id}/score", post(evals::score))
        .at("/api/agents/{name}/eval-results/{id}", patch(evals::score_result))
}

fn of_sessions() -> Router<AshContext> {
    Router::new()
        .at("/api/sessions", post(sessions::create).get(sessions::list))
        .at("/api/sessions/{id}", get(sessions::get).delete(sessions::end))
        .at("/api/sessions/{id}/config", patch(sessions::configure))
        .at("/api/sessions/{id}/pause", post(sessions::pause))
        .at("/api/sessions/{id}/stop", post(sessions::stop))
        .at("/api/sessions/{id}/resume", post(sessions::resume))
        .at("/api/sessions/{id}/fork", post(sessions::fork))
        .at("/api/sessions/{id}/exec", post(sessions::exec))
        .at("/api/sessions/{id}/messages", post(messages::send).get(history::messages))
        .at("/api/sessions/{id}/events", get(history::events))
        .at("/api/sessions/{id}/logs", get(history::logs))
        .at("/api/sessions/{id}/files", get(files::list).post(files::write))
        .at("/api/sessions/{id}/files/{*path}", get(files::read).delete(files::remove))
        .at("/api/sessions/{id}/workspace", get(files::download_bundle).post(files::upload_bundle))
        .at("/api/sessions/{id}/attachments", get(records::attachments).post(records::attach))
}

fn of_records() -> Router<AshContext> {
    Router::new()
        .at("/api/credentials", post(records::create_credential).get(records::credentials))
        .at("/api/credentials/{id}", delete(records::remove_credential))
        .at(
            "/api/attachments/{id}",
            get(records::download_attachment).delete(records::remove_attachment),
        )
        .at("/api/queue", post(queue::enqueue).get(queue::list))
        .at("/api/queue/stats", get(queue::stats))
        .at("/api/queue/{id}", get(queue::get).delete(queue::cancel))
        .at("/api/usage", get(records::usage))
        .at("/api/usage/stats", get(records::usage_stats))
        .at("/api/analytics", get(records::analytics))
}

/// `GET /health`: for everybody, and with nothing that is a secret.
async fn health(State(face): State<AshContext>) -> Json<Value> {
    let counts = recent_counts(&face.sessions).await;
    let resident = counts.total.saturating_sub(counts.cold);
    let uptime = clock::now().duration_since(face.shared.started).as_secs();
    let status = match face.sessions.why_unavailable() {
        None => "ok",
        Some(_) => "unavailable",
    };
    Json(json!({
        "status": status,
        "version": env!("CARGO_PKG_VERSION"),
        "coordinatorId": face.sessions.server(),
        "activeSessions": resident,
        "activeSandboxes": resident,
        "remoteRunners": 0,
        "uptime": uptime,
        "pool": {
            "total": counts.total,
            "cold": counts.cold,
            "warming": counts.warming,
            "warm": counts.warm,
            "waiting": counts.waiting,
            "running": counts.running,
            "maxCapacity": counts.capacity,
            "resumeWarmHits": counts.resumed_warm,
            "resumeColdHits": counts.resumed_local + counts.resumed_remote,
            "resumeColdLocalHits": counts.resumed_local,
            "resumeColdCloudHits": counts.resumed_remote,
            // Nothing is ever resumed without its files.
            "resumeColdFreshHits": 0,
            "preWarmHits": counts.prewarm_hits,
        },
    }))
}

impl AshCaller {
    /// A name for something new, which comes after those of before.
    fn new_id(&self) -> String {
        ids::uuid(&self.face.shared.ids.next(""))
    }

    /// Returns all documents of a kind: of one parent, or of all.
    async fn documents(
        &self,
        kind: &str,
        parent: Option<&str>,
    ) -> Result<Vec<FaceDocument>, AshFailure> {
        let mut all: Vec<FaceDocument> = Vec::new();
        loop {
            let after = all.last().map(|last| last.id.clone());
            let sessions = &self.face.sessions;
            let page = sessions
                .documents()?
                .list(&self.tenant, kind, parent, after.as_deref(), PAGE)
                .await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Removes everything of a kind that belongs to one parent.
    async fn forget(&self, kind: &str, parent: &str) -> Result<(), AshFailure> {
        for kept in self.documents(kind, Some(parent)).await? {
            self.face.sessions.documents()?.delete(&self.tenant, kind, &kept.id).await?;
        }
        Ok(())
    }
}
