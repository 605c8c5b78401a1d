//! Ash's interface: `/api/*` and `/health`, as its published clients use it.
//!
//! | file | contents |
//! |---|---|
//! | `call` | authentication of callers, bodies, and errors in Ash's format |
//! | `ids`, `time`, `media` | UUIDs for our ids, times and media types in Ash's format |
//! | `agents`, `versions`, `folder` | agents, versions of their prompts, folders of the server |
//! | `sessions` | the life cycle of sessions, and commands in them |
//! | `messages`, `sse`, `history` | the events of a turn, live and later |
//! | `files` | the workspace |
//! | `records` | credentials, attachments, usage |
//! | `queue`, `evals`, `turn` | queued prompts, tests of agents; turns without a client |

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
/// Documents read per page.
const PAGE: usize = 500;
/// Number of locks for changes in several steps.
const LOCKS: usize = 64;

/// Routes with larger bodies than others.
pub const STREAMING: [&str; 2] = ["/api/sessions/{id}/workspace", "/api/sessions/{id}/files"];

/// The `[compat.ash]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AshConfig {
    /// Directory of the agents that callers may deploy by naming their folder; without it, callers
    /// send the files.
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

/// Serializes changes that consist of several steps.
struct AshLocks {
    locks: [Mutex<()>; LOCKS],
    hasher: RandomState,
}

impl AshLocks {
    fn new() -> AshLocks {
        AshLocks { locks: std::array::from_fn(|_| Mutex::new(())), hasher: RandomState::new() }
    }

    /// Locks a key by its hash; other keys with the same shard wait, too.
    async fn lock(&self, what: &impl Hash) -> MutexGuard<'_, ()> {
        let hash = self.hasher.hash_one(what);
        let place = usize::try_from(hash % LOCKS as u64).unwrap_or(0);
        self.locks[place].lock().await
    }
}

/// Returns all of Ash's routes, for [`node::http::HttpShell`] to wrap: `/api` requires a token,
/// `/health` is public. Must be called inside the runtime, because it starts the workers of the
/// queue.
///
/// # Errors
/// If the kernel provides no random bytes.
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

/// Returns the session id for a UUID in a path.
pub(crate) fn session_id(uuid: &str) -> Option<String> {
    ids::ours(ids::SESSION, uuid)
}

/// Renders the shell's own errors (no token, too large, shutting down) in Ash's format, for
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

/// Handles `GET /health`, which is public and contains no secrets.
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
            // A session is never resumed without its files.
            "resumeColdFreshHits": 0,
            "preWarmHits": counts.prewarm_hits,
        },
    }))
}

impl AshCaller {
    /// Creates an id that sorts after earlier ones.
    fn new_id(&self) -> String {
        ids::uuid(&self.face.shared.ids.next(""))
    }

    /// Returns all documents of a kind, of one parent or of all.
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

    /// Removes all documents of a kind that belong to one parent.
    async fn forget(&self, kind: &str, parent: &str) -> Result<(), AshFailure> {
        for kept in self.documents(kind, Some(parent)).await? {
            self.face.sessions.documents()?.delete(&self.tenant, kind, &kept.id).await?;
        }
        Ok(())
    }
}
