//! The native HTTP interface: parse, call, reply.
//!
//! `agents` handles agents, `lifecycle` sessions as a whole, `conversation` messages and events,
//! `commands` and `terminal` programs, `contexts` cells, `files` the workspace, `grants` data
//! behind grants, `shelf` records related to sessions: snapshots, credentials, attachments, usage.

mod agents;
mod commands;
mod contexts;
mod conversation;
pub(crate) mod fence;
mod files;
mod grants;
mod lifecycle;
mod shelf;
mod templates;
mod terminal;

use api::operations::sessions as table;
use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::from_fn_with_state;
use node::http::{self, OperationRoutes};

use self::fence::FencedInterface;
use crate::routing::SessionInterface;
use crate::service::Sessions;

/// Returns the routes of agents, sessions and related records, for [`node::http::HttpShell`] to
/// wrap.
pub fn routes(sessions: Sessions) -> Router {
    let interface = SessionInterface::Main;
    let fenced = FencedInterface { sessions: sessions.clone(), interface };
    Router::new()
        .merge(of_agents())
        .merge(of_sessions().layer(from_fn_with_state(fenced, fence::fenced)))
        .merge(of_shelf())
        .merge(of_templates())
        .with_state(sessions)
}

fn of_agents() -> Router<Sessions> {
    OperationRoutes::of(table::AGENTS)
        .serve(&table::DEPLOY_AGENT, agents::deploy)
        .serve(&table::LIST_AGENTS, agents::list)
        .serve(&table::GET_AGENT, agents::fetch)
        .serve(&table::UPDATE_AGENT, agents::update)
        .serve(&table::DELETE_AGENT, agents::remove)
        .serve(&table::LIST_AGENT_VERSIONS, agents::versions)
        .serve(&table::LIST_AGENT_FILES, agents::files)
        .serve(&table::GET_AGENT_FILE, agents::file)
        .routes()
}

fn of_sessions() -> Router<Sessions> {
    OperationRoutes::of(table::SESSIONS)
        .serve(&table::CREATE_SESSION, lifecycle::create)
        .serve(&table::LIST_SESSIONS, lifecycle::list)
        .serve(&table::GET_SESSION, lifecycle::fetch)
        .serve(&table::UPDATE_SESSION, lifecycle::update)
        .serve(&table::END_SESSION, lifecycle::end)
        .serve(&table::PAUSE_SESSION, lifecycle::pause)
        .serve(&table::STOP_SESSION, lifecycle::stop)
        .serve(&table::RESUME_SESSION, lifecycle::resume)
        .serve(&table::FORK_SESSION, lifecycle::fork)
        .serve(&table::INTERRUPT_SESSION, conversation::interrupt)
        .serve(&table::SEND_MESSAGE, conversation::send)
        .serve(&table::LIST_MESSAGES, conversation::messages)
        .serve(&table::FOLLOW_SESSION, conversation::events)
        .serve(&table::GET_SESSION_LOGS, conversation::logs)
        .serve(&table::EXEC_IN_SESSION, commands::exec)
        .serve(&table::OPEN_TERMINAL, terminal::open)
        .serve(&table::LIST_TERMINALS, terminal::list)
        .serve(&table::END_TERMINAL, terminal::end)
        .serve(&table::CREATE_CODE_CONTEXT, contexts::create)
        .serve(&table::LIST_CODE_CONTEXTS, contexts::list)
        .serve(&table::GET_CODE_CONTEXT, contexts::fetch)
        .serve(&table::DELETE_CODE_CONTEXT, contexts::remove)
        .serve(&table::RESTART_CODE_CONTEXT, contexts::restart)
        .serve(&table::FORK_CODE_CONTEXT, contexts::fork)
        .serve(&table::INTERRUPT_CODE_CONTEXT, contexts::interrupt)
        .serve(&table::EXECUTE_CELL, contexts::execute)
        .serve(&table::LIST_FILES, files::list)
        .serve(&table::READ_FILE, files::read)
        .serve(&table::WRITE_FILE, files::write)
        .serve(&table::REMOVE_FILE, files::remove)
        // Every path with this prefix is a file path: a file may be called `move`.
        .serve(&table::MOVE_FILE, files::rename)
        .serve(&table::EXPORT_ARCHIVE, files::export)
        .serve(&table::IMPORT_ARCHIVE, files::import)
        .serve(&table::WATCH_FILES, files::watch)
        .serve(&table::QUERY_GRANT, grants::query)
        .serve(&table::DESCRIBE_GRANT, grants::describe)
        .serve(&table::GET_SESSION_METRICS, lifecycle::metrics)
        .serve(&table::COUNT_SANDBOXES, lifecycle::counts)
        .routes()
}

fn of_shelf() -> Router<Sessions> {
    OperationRoutes::of(table::SHELF)
        .serve(&table::CREATE_SNAPSHOT, shelf::snapshot)
        .serve(&table::LIST_SNAPSHOTS_OF_SESSION, shelf::snapshots_of)
        .serve(&table::LIST_SNAPSHOTS, shelf::snapshots)
        .serve(&table::DELETE_SNAPSHOT, shelf::delete_snapshot)
        .serve(&table::CREATE_CREDENTIAL, shelf::create_credential)
        .serve(&table::LIST_CREDENTIALS, shelf::credentials)
        .serve(&table::DELETE_CREDENTIAL, shelf::delete_credential)
        .serve(&table::ADD_ATTACHMENT, shelf::attach)
        .serve(&table::LIST_ATTACHMENTS, shelf::attachments)
        .serve(&table::GET_ATTACHMENT, shelf::attachment)
        .serve(&table::DELETE_ATTACHMENT, shelf::delete_attachment)
        .serve(&table::GET_USAGE, shelf::usage)
        .routes()
}

fn of_templates() -> Router<Sessions> {
    OperationRoutes::of(table::TEMPLATES)
        .serve(&table::BUILD_TEMPLATE, templates::build)
        .serve(&table::LIST_TEMPLATES, templates::list)
        .serve(&table::GET_TEMPLATE, templates::fetch)
        .serve(&table::DELETE_TEMPLATE, templates::remove)
        .serve(&table::LIST_TEMPLATE_BUILDS, templates::builds)
        .serve(&table::GET_TEMPLATE_BUILD, templates::build_status)
        .serve(&table::GET_TEMPLATE_BUILD_LOGS, templates::logs)
        .serve(&table::TAG_TEMPLATE, templates::tag)
        .serve(&table::UNTAG_TEMPLATE, templates::untag)
        .serve(&table::HAS_TEMPLATE_ARCHIVE, templates::has_archive)
        .serve(&table::PUT_TEMPLATE_ARCHIVE, templates::put_archive)
        .routes()
}

/// Id or name in the path, which is always text.
struct SessionIdPath(String);

impl<S: Send + Sync> FromRequestParts<S> for SessionIdPath {
    type Rejection = http::HttpError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &S,
    ) -> Result<SessionIdPath, http::HttpError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(id)| SessionIdPath(id)).map_err(|_| not_text())
    }
}

/// Id or name, followed by the path of a file or the name of a grant.
struct FilePath(String, String);

impl<S: Send + Sync> FromRequestParts<S> for FilePath {
    type Rejection = http::HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<FilePath, http::HttpError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        path.map(|Path((id, path))| FilePath(id, path)).map_err(|_| not_text())
    }
}

fn not_text() -> http::HttpError {
    http::HttpError::invalid("the path is not UTF-8")
}

/// Returns whether a caller requests this media type instead of the default.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok());
    accepted.any(|it| {
        it.split(',').any(|range| {
            let range = range.split(';').next().unwrap_or_default().trim();
            range.eq_ignore_ascii_case(media_type)
        })
    })
}

/// Returns the page size that the caller requests, or `default`.
fn page_size(limit: Option<usize>, default: usize, max: usize) -> Result<usize, http::HttpError> {
    let limit = limit.unwrap_or(default);
    match (1..=max).contains(&limit) {
        true => Ok(limit),
        false => Err(http::HttpError::invalid(format!("must be 1 to {max}")).at("limit")),
    }
}

#[cfg(test)]
mod tests;
