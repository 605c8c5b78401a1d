//! The native HTTP face: parse, call, reply.
//!
//! `agents` is about agents, `lifecycle` about sessions as a whole, `conversation` about messages
//! and events, `commands` and `terminal` about programs, `contexts` about cells, `files` about the
//! workspace, `grants` about data behind them, `shelf` about what is kept beside sessions:
//! snapshots, credentials, attachments, usage.

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

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::from_fn_with_state;
use node::http;
use node::http::{RouteTable, delete, get, post};

use self::fence::FencedInterface;
use crate::routing::SessionInterface;
use crate::service::Sessions;

/// Routes whose bodies may be of any length: files, archives, attachments.
pub const STREAMING: [&str; 4] = [
    "/v1/sessions/{id}/files/{*path}",
    "/v1/sessions/{id}/archive",
    "/v1/sessions/{id}/attachments",
    "/v1/template-files/{archive}",
];

/// Paths, by their beginnings, that need the scope `sessions`. Those of agents have their own.
pub const PATHS: [&str; 8] = [
    "/v1/sessions",
    "/v1/snapshots",
    "/v1/credentials",
    "/v1/attachments",
    "/v1/usage",
    "/v1/sandboxes",
    "/v1/templates",
    "/v1/template-files",
];

/// Routes below these paths and `/v1/agents`, for [`node::http::HttpShell`] to wrap.
pub fn routes(sessions: Sessions) -> Router {
    let interface = SessionInterface::Main;
    let fenced = FencedInterface { sessions: sessions.clone(), interface };
    let of_one = of_sessions().merge(of_sandboxes());
    Router::new()
        .merge(of_agents())
        .merge(of_one.layer(from_fn_with_state(fenced, fence::fenced)))
        .merge(of_shelf())
        .merge(of_templates())
        .with_state(sessions)
}

fn of_agents() -> Router<Sessions> {
    Router::new()
        .at("/v1/agents", post(agents::deploy).get(agents::list))
        .at("/v1/agents/{name}", get(agents::fetch).patch(agents::update).delete(agents::remove))
        .at("/v1/agents/{name}/versions", get(agents::versions))
        .at("/v1/agents/{name}/files", get(agents::files))
        .at("/v1/agents/{name}/files/{*path}", get(agents::file))
}

fn of_sessions() -> Router<Sessions> {
    Router::new()
        .at("/v1/sessions", post(lifecycle::create).get(lifecycle::list))
        .at(
            "/v1/sessions/{id}",
            get(lifecycle::fetch).patch(lifecycle::update).delete(lifecycle::end),
        )
        .at("/v1/sessions/{id}/pause", post(lifecycle::pause))
        .at("/v1/sessions/{id}/stop", post(lifecycle::stop))
        .at("/v1/sessions/{id}/resume", post(lifecycle::resume))
        .at("/v1/sessions/{id}/fork", post(lifecycle::fork))
        .at("/v1/sessions/{id}/interrupt", post(conversation::interrupt))
        .at("/v1/sessions/{id}/messages", post(conversation::send).get(conversation::messages))
        .at("/v1/sessions/{id}/events", get(conversation::events))
        .at("/v1/sessions/{id}/logs", get(conversation::logs))
}

fn of_sandboxes() -> Router<Sessions> {
    Router::new()
        .at("/v1/sessions/{id}/exec", post(commands::exec))
        .at("/v1/sessions/{id}/terminal", get(terminal::open))
        .at("/v1/sessions/{id}/terminals", get(terminal::list))
        .at("/v1/sessions/{id}/terminals/{terminal}", delete(terminal::end))
        .at("/v1/sessions/{id}/contexts", post(contexts::create).get(contexts::list))
        .at("/v1/sessions/{id}/contexts/{context}", get(contexts::fetch).delete(contexts::remove))
        .at("/v1/sessions/{id}/contexts/{context}/restart", post(contexts::restart))
        .at("/v1/sessions/{id}/contexts/{context}/fork", post(contexts::fork))
        .at("/v1/sessions/{id}/contexts/{context}/interrupt", post(contexts::interrupt))
        .at("/v1/sessions/{id}/contexts/{context}/execute", post(contexts::execute))
        .at("/v1/sessions/{id}/files", get(files::list))
        .at(
            "/v1/sessions/{id}/files/{*path}",
            // Whatever is a path of a file is none of a method's own: a file may be called `move`.
            get(files::read).put(files::write).delete(files::remove).post(files::rename),
        )
        .at("/v1/sessions/{id}/archive", get(files::export).put(files::import))
        .at("/v1/sessions/{id}/watch", get(files::watch))
        .at("/v1/sessions/{id}/grants/{name}/query", post(grants::query))
        .at("/v1/sessions/{id}/grants/{name}/describe", get(grants::describe))
        .at("/v1/sessions/{id}/metrics", get(lifecycle::metrics))
        .at("/v1/sandboxes", get(lifecycle::counts))
}

fn of_shelf() -> Router<Sessions> {
    Router::new()
        .at("/v1/sessions/{id}/snapshots", post(shelf::snapshot).get(shelf::snapshots_of))
        .at("/v1/snapshots", get(shelf::snapshots))
        .at("/v1/snapshots/{id}", delete(shelf::delete_snapshot))
        .at("/v1/credentials", post(shelf::create_credential).get(shelf::credentials))
        .at("/v1/credentials/{id}", delete(shelf::delete_credential))
        .at("/v1/sessions/{id}/attachments", post(shelf::attach).get(shelf::attachments))
        .at("/v1/attachments/{id}", get(shelf::attachment).delete(shelf::delete_attachment))
        .at("/v1/usage", get(shelf::usage))
}

fn of_templates() -> Router<Sessions> {
    Router::new()
        .at("/v1/templates", post(templates::build).get(templates::list))
        .at("/v1/templates/{name}", get(templates::fetch).delete(templates::remove))
        .at("/v1/templates/{name}/builds", get(templates::builds))
        .at("/v1/templates/{name}/builds/{build}", get(templates::build_status))
        .at("/v1/templates/{name}/builds/{build}/logs", get(templates::logs))
        .at("/v1/templates/{name}/tags", post(templates::tag))
        .at("/v1/templates/{name}/tags/{tag}", delete(templates::untag))
        .at("/v1/template-files/{archive}", get(templates::has_archive).put(templates::put_archive))
}

/// The id or name in the path. Nobody has one that is not text.
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

/// An id or name, and the path of a file or the name of a grant behind it.
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

/// Returns whether a caller wants this media type rather than the one that it gets unasked.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok());
    accepted.any(|it| {
        it.split(',').any(|range| {
            let range = range.split(';').next().unwrap_or_default().trim();
            range.eq_ignore_ascii_case(media_type)
        })
    })
}

/// Returns how many things stand on a page: what the caller says, or `default`.
fn page_size(limit: Option<usize>, default: usize, max: usize) -> Result<usize, http::HttpError> {
    let limit = limit.unwrap_or(default);
    match (1..=max).contains(&limit) {
        true => Ok(limit),
        false => Err(http::HttpError::invalid(format!("must be 1 to {max}")).at("limit")),
    }
}

#[cfg(test)]
mod tests;
