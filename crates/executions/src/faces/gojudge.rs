//! go-judge: programs with files, pipes and streams, over REST and WebSockets.
//!
//! It works below executions: a request has argument lists with limits, which run concurrently,
//! each in a sandbox of its own, connected by pipes. `plan` and `outcome` implement the paths,
//! statuses and limits that `docs/compat.md` describes.
//!
//! | file | content |
//! |---|---|
//! | `wire` | the JSON |
//! | `plan` | turns a request into programs, with all checks |
//! | `group_admission`, `run`, `connect`, `pipes` | places, sandboxes, and the pipes between them |
//! | `outcome` | results of programs |
//! | `store` | files kept between requests |
//! | `socket`, `stream`, `inputs` | `/ws` and `/stream` |
//!
//! # References
//! - <https://github.com/criyle/go-judge>

mod config;
mod connect;
mod elsewhere;
mod group_admission;
mod inputs;
mod outcome;
mod pipes;
mod plan;
mod run;
mod socket;
mod store;
mod stream;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::multipart::{Multipart, MultipartRejection};
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use axum::{Json, Router};
use node::auth::TokenPrincipal;
use node::cluster::PeerForwarder;
use node::http::{RouteTable, get, post};
use node::{clock, http};
use serde_json::{Value, json};

/// Entry of the fuzz target for requests.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use super::wire;

    /// Parses the body of a run, and that of a terminal resize; returns which of them is valid.
    pub fn request(bytes: &[u8]) -> (bool, bool) {
        let run = serde_json::from_slice::<wire::GojudgeRequest>(bytes);
        (run.is_ok(), serde_json::from_slice::<wire::GojudgeResize>(bytes).is_ok())
    }
}

pub use self::config::GojudgeConfig;
use self::elsewhere::OtherFileStores;
use self::run::{CallerHandle, GojudgeRunner, RunError};
use self::store::{FileStoreError, KeptFile};
use self::wire::GojudgeResult;
use crate::answers::AnswerDocument;
use crate::aside::write_answer;
use crate::service::ExecutionService;

/// Paths at which callers wait while programs run.
const RUN: &str = "/run";
const SOCKET: &str = "/ws";
const STREAM: &str = "/stream";

/// Longest pause between two pieces of an upload.
const UPLOAD_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Maximum number of parts of an upload that are searched for its file.
const UPLOAD_PARTS_MAX: usize = 16;

/// Returns go-judge's paths, without a prefix, and those at which other nodes request stored files.
pub fn routes(
    service: ExecutionService,
    config: GojudgeConfig,
    nodes: Option<PeerForwarder>,
) -> (Router, Router) {
    let others = nodes.map(OtherFileStores::new);
    let runner = Arc::new(GojudgeRunner::new(service, config, others));
    let for_peers = elsewhere::peer_routes(Arc::clone(&runner));
    (own_routes(runner), for_peers)
}

fn own_routes(runner: Arc<GojudgeRunner>) -> Router {
    // The store limits uploads, with an error of its own.
    let upload = MethodRouter::from(post(put_file)).layer(DefaultBodyLimit::disable());
    Router::new()
        .at(RUN, post(run))
        .route("/file", MethodRouter::from(get(list_files)).merge(upload))
        .at("/file/{id}", get(get_file).delete(delete_file))
        .at(SOCKET, get(socket::connect))
        .at(STREAM, get(stream::connect))
        .at("/version", get(version))
        .at("/config", get(settings))
        .with_state(runner)
}

/// Returns whether a request, or the WebSocket that it opens, runs programs while its caller waits.
/// `path` is relative to the face.
pub fn runs_programs(method: &Method, path: &str) -> bool {
    match path {
        RUN => method == Method::POST,
        SOCKET | STREAM => method == Method::GET,
        _ => false,
    }
}

/// Renders errors of the shell and its extractors for this face: as a JSON string. For
/// [`node::http::CompatFace::render`].
pub fn render_error(error: &http::HttpError) -> Response {
    (error.status(), Json(error.to_string())).into_response()
}

async fn run(
    State(runner): State<Arc<GojudgeRunner>>,
    who: TokenPrincipal,
    request: Result<http::JsonBody<wire::GojudgeRequest>, http::HttpError>,
) -> Response {
    let request = match request {
        Ok(http::JsonBody(request)) => request,
        Err(error) => return render_error(&error),
    };
    // Boxed: it holds programs and their results, and must not move while it waits.
    match Box::pin(runner.run(&who.token_id, request, CallerHandle::default())).await {
        Ok((outcomes, room)) => {
            let bytes = outcomes.iter().map(GojudgeResult::content_bytes).sum();
            let write = move || serde_json::to_value(outcomes).map(AnswerDocument::of_tree);
            match write_answer(bytes, [room], write).await {
                Ok(document) => document.answer(StatusCode::OK),
                Err(_) => RunError::Internal.into_response(),
            }
        }
        Err(error) => error.into_response(),
    }
}

async fn list_files(State(runner): State<Arc<GojudgeRunner>>, who: TokenPrincipal) -> Response {
    let mut files = runner.list_elsewhere(&who.token_id).await;
    files.extend(runner.store.list(&who.token_id, clock::now()));
    Json(files).into_response()
}

/// Stores the file of a form, and returns its id.
async fn put_file(
    State(runner): State<Arc<GojudgeRunner>>,
    who: TokenPrincipal,
    form: Result<Multipart, MultipartRejection>,
) -> Response {
    let mut form = match form {
        Ok(form) => form,
        Err(rejection) => return (rejection.status(), Json(rejection.body_text())).into_response(),
    };
    match receive_file(&runner, &who.token_id, &mut form).await {
        Ok(id) => Json(id).into_response(),
        Err((status, message)) => (status, Json(message)).into_response(),
    }
}

async fn receive_file(
    runner: &GojudgeRunner,
    tenant: &str,
    form: &mut Multipart,
) -> Result<String, (StatusCode, String)> {
    let bad = |message: &str| (StatusCode::BAD_REQUEST, message.to_owned());
    let late = |_| bad("nothing of the file arrived for too long");
    for _ in 0..UPLOAD_PARTS_MAX {
        let part = tokio::time::timeout(UPLOAD_PAUSE_MAX, form.next_field()).await.map_err(late)?;
        let part = part.map_err(|error| (error.status(), error.body_text()))?;
        let Some(mut part) = part else { break };
        if part.name() != Some("file") {
            continue;
        }
        let Some(name) = part.file_name().map(str::to_owned) else {
            return Err(bad("the part `file` has no file name"));
        };
        let mut room = runner.store.reserve(tenant, clock::now()).map_err(refused)?;
        let mut content = Vec::new();
        loop {
            let chunk = tokio::time::timeout(UPLOAD_PAUSE_MAX, part.chunk()).await.map_err(late)?;
            let chunk = chunk.map_err(|error| (error.status(), error.body_text()))?;
            let Some(chunk) = chunk else { break };
            room.grow(chunk.len()).map_err(refused)?;
            content.extend_from_slice(&chunk);
        }
        return room.fill(&name, &content, clock::now()).map_err(refused);
    }
    Err(bad("http: no such file"))
}

fn refused(error: FileStoreError) -> (StatusCode, String) {
    let status = match &error {
        FileStoreError::FileTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        FileStoreError::TenantFull(_) | FileStoreError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
        FileStoreError::Io(cause) => {
            tracing::error!(error = cause as &dyn std::error::Error, "failed to store a file");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    (status, error.to_string())
}

async fn get_file(
    State(runner): State<Arc<GojudgeRunner>>,
    who: TokenPrincipal,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let id = match id {
        Ok(Path(id)) => id,
        Err(rejection) => return not_an_id(&rejection),
    };
    let here = runner.store.get(&who.token_id, &id, clock::now());
    let found = match here {
        Some((name, file)) => file.read().map(|bytes| KeptFile { name, bytes }),
        None => match runner.fetch(&who.token_id, &id).await {
            Some(content) => Ok(content),
            None => return StatusCode::NOT_FOUND.into_response(),
        },
    };
    match found {
        // A browser must not render it as the content type that a program chose.
        Ok(KeptFile { name, bytes: content }) => {
            let disposition = HeaderValue::try_from(disposition(&name));
            let headers = [
                (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
                (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
                (
                    header::CONTENT_DISPOSITION,
                    disposition.unwrap_or(HeaderValue::from_static("attachment")),
                ),
            ];
            (headers, content).into_response()
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "failed to read a file");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Returns the `Content-Disposition` of a download. Other than plain names are percent-encoded (RFC
/// 8187).
fn disposition(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+ ,()".contains(&byte);
    if name.bytes().all(is_plain) {
        return format!("attachment; filename=\"{name}\"");
    }
    let mut text = "attachment; filename*=UTF-8''".to_owned();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

async fn delete_file(
    State(runner): State<Arc<GojudgeRunner>>,
    who: TokenPrincipal,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let id = match id {
        Ok(Path(id)) => id,
        Err(rejection) => return not_an_id(&rejection),
    };
    let here = runner.store.remove(&who.token_id, &id, clock::now());
    let status = match here || runner.remove_elsewhere(&who.token_id, &id).await {
        true => StatusCode::OK,
        false => StatusCode::NOT_FOUND,
    };
    status.into_response()
}

/// Returns the error for an id that is not valid text.
fn not_an_id(rejection: &PathRejection) -> Response {
    (rejection.status(), Json(rejection.body_text())).into_response()
}

/// Returns the features of this face, with go-judge's names.
fn features() -> Value {
    json!({
        "copyOutOptional": true,
        "pipeProxy": true,
        "symlink": true,
        "addressSpaceLimit": false,
        "stream": true,
        "procPeak": true,
        "copyOutTruncate": true,
        "pipeProxyZeroCopy": true,
        "fixSymlinkEscape": true,
    })
}

async fn version() -> Json<Value> {
    let mut answer = features();
    answer["buildVersion"] = concat!("cove-", env!("CARGO_PKG_VERSION")).into();
    answer["platform"] = std::env::consts::ARCH.into();
    answer["os"] = std::env::consts::OS.into();
    Json(answer)
}

async fn settings(State(runner): State<Arc<GojudgeRunner>>) -> Json<Value> {
    let mut answer = features();
    let planner = runner.service.planner();
    let limits = planner.config();
    answer["fileStorePath"] = "".into();
    answer["runnerConfig"] = json!({
        "workDir": "/w",
        "cmdsMax": runner.config.cmds_max.min(runner.service.running_max()),
        "copyInMax": limits.files_max,
        "copyOutBytesMax": limits.outputs_bytes_max,
        "storedFileBytesMax": runner.config.stored_file_bytes_max,
    });
    Json(answer)
}

impl IntoResponse for RunError {
    fn into_response(self) -> Response {
        let status = match &self {
            RunError::Invalid { .. } => StatusCode::BAD_REQUEST,
            RunError::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
            RunError::NoSuchFile(_) | RunError::Cancelled | RunError::Internal => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        // The error is a JSON string, as in go-judge.
        let mut response = (status, Json(self.to_string())).into_response();
        if let Some(wait) = self.retry_after() {
            let seconds = HeaderValue::from(wait.as_secs().max(1));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_are_named_safely() {
        for (name, expected) in [
            ("a.txt", "attachment; filename=\"a.txt\""),
            ("a\"b\r\n", "attachment; filename*=UTF-8''a%22b%0D%0A"),
            ("é", "attachment; filename*=UTF-8''%C3%A9"),
        ] {
            assert_eq!(disposition(name), expected);
        }
    }
}
