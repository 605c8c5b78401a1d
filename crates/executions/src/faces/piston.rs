//! Piston v2: `/api/v2/*` and its WebSocket.
//!
//! | file | content |
//! |---|---|
//! | `request` | turns a body into an execution, with Piston's error messages |
//! | `runtimes`, `version` | Piston's names of languages; selectors of versions |
//! | `stage` | results in Piston's format |
//! | `connect` | the WebSocket |
//!
//! # References
//! - <https://github.com/engineer-man/piston#public-api>

mod connect;
mod request;
mod runtimes;
mod stage;
mod version;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use node::auth::TokenPrincipal;
use node::http::JsonBody;
use node::http::{RouteTable, get, post};
use serde::Deserialize;
use serde_json::{Value, json};

use self::stage::CombinedOutput;
pub(super) use self::version::RuntimeVersion;
use crate::answers::AnswerDocument;
use crate::aside::write_answer;
use crate::error::ExecutionError;
use crate::service::{ExecutionService, ProgramIo};
use crate::verdict::content_bytes;

/// The `[compat.piston]` table of cove.toml. As in Piston, a limit is both the default and the
/// maximum of a request. The server's own limits apply in addition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PistonConfig {
    /// Wall time of the compile stage, in milliseconds.
    pub compile_timeout: u64,
    /// Wall time of the run stage, in milliseconds.
    pub run_timeout: u64,
    /// CPU time of the compile stage, in milliseconds.
    pub compile_cpu_time: u64,
    /// CPU time of the run stage, in milliseconds.
    pub run_cpu_time: u64,
    /// Memory of the compile stage, in bytes; by default the language's own.
    pub compile_memory_limit: Option<u64>,
    /// Memory of the run stage, in bytes; by default the language's own.
    pub run_memory_limit: Option<u64>,
    /// Maximum bytes of standard output and of standard error, each.
    pub output_max_size: u64,
    /// Output limit of programs on the WebSocket, whose output is not kept.
    pub stream_max_size: u64,
}

impl Default for PistonConfig {
    fn default() -> PistonConfig {
        PistonConfig {
            // Piston's own defaults.
            compile_timeout: 10_000,
            run_timeout: 3_000,
            compile_cpu_time: 10_000,
            run_cpu_time: 3_000,
            compile_memory_limit: None,
            run_memory_limit: None,
            // Piston's 1024 bytes would stop ordinary programs.
            output_max_size: 64 << 10,
            stream_max_size: 16 << 20,
        }
    }
}

/// State that the handlers share.
#[derive(Clone, Debug)]
struct PistonContext {
    service: ExecutionService,
    config: Arc<PistonConfig>,
}

/// An error in Piston's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PistonFailure {
    status: StatusCode,
    message: String,
    /// Time to retry, in seconds.
    retry_after: Option<u64>,
}

/// Paths of the interface; those of the public instance were below a path of their own.
const ROOT: &str = "/api/v2";
const PUBLIC_ROOT: &str = "/api/v2/piston";
/// Paths below them at which programs run.
const EXECUTE: &str = "/execute";
const CONNECT: &str = "/connect";

/// Returns whether a request, or the WebSocket that it opens, runs programs while its caller waits.
/// `path` is relative to the face.
pub fn runs_programs(method: &Method, path: &str) -> bool {
    let below = path.strip_prefix(PUBLIC_ROOT).or_else(|| path.strip_prefix(ROOT));
    match below {
        Some(EXECUTE) => method == Method::POST,
        Some(CONNECT) => method == Method::GET,
        Some(_) | None => false,
    }
}

/// Piston's own paths, for [`node::http::HttpShell`] to wrap.
pub fn routes(service: ExecutionService, config: PistonConfig) -> Router {
    let face = PistonContext { service, config: Arc::new(config) };
    let v2 = Router::new()
        .at("/runtimes", get(runtimes))
        .at("/packages", get(packages).post(install).delete(uninstall))
        .at(EXECUTE, post(execute))
        .at(CONNECT, get(connect::connect))
        .method_not_allowed_fallback(|| async {
            PistonFailure::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
        })
        .layer(middleware::from_fn(require_json))
        .with_state(face);
    let about = || async {
        let name = concat!("Piston v2 by Cove ", env!("CARGO_PKG_VERSION"));
        axum::Json(json!({ "message": name }))
    };
    Router::new()
        .at("/", get(about))
        .nest(PUBLIC_ROOT, v2.clone())
        .nest(ROOT, v2)
        .fallback(|| async { PistonFailure::new(StatusCode::NOT_FOUND, "Not Found") })
}

/// Renders the shell's own errors (no token, too large, shutting down) in Piston's shape, for
/// [`node::http::CompatFace::render`].
pub fn render_error(error: &node::http::HttpError) -> Response {
    PistonFailure::from(error.clone()).into_response()
}

impl PistonFailure {
    fn new(status: StatusCode, message: impl Into<String>) -> PistonFailure {
        PistonFailure { status, message: message.into(), retry_after: None }
    }

    fn bad(message: impl Into<String>) -> PistonFailure {
        PistonFailure::new(StatusCode::BAD_REQUEST, message)
    }
}

impl From<ExecutionError> for PistonFailure {
    fn from(error: ExecutionError) -> PistonFailure {
        if let ExecutionError::Refused(refusal) = &error {
            return PistonFailure::bad(request::refusal(refusal));
        }
        let retry_after = error.retry_after().map(|wait| wait.as_secs().max(1));
        let native = node::http::HttpError::from(error);
        PistonFailure { retry_after, ..PistonFailure::from(native) }
    }
}

impl From<node::http::HttpError> for PistonFailure {
    fn from(error: node::http::HttpError) -> PistonFailure {
        PistonFailure::new(error.status(), error.to_string())
    }
}

impl IntoResponse for PistonFailure {
    fn into_response(self) -> Response {
        let body = axum::Json(json!({ "message": self.message }));
        let mut response = (self.status, body).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Checks the content type of every request that is not read-only, like Piston.
async fn require_json(request: Request, next: Next) -> Response {
    let question = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let json = kind.is_some_and(|kind| {
        let name = b"application/json";
        kind.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    });
    if question || json {
        return next.run(request).await;
    }
    let message = "requests must be of type application/json";
    PistonFailure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).into_response()
}

async fn runtimes(State(face): State<PistonContext>, _who: TokenPrincipal) -> axum::Json<Value> {
    let languages = face.service.languages().await.languages;
    axum::Json(runtimes::all(&languages).iter().map(runtimes::entry).collect())
}

async fn execute(
    State(face): State<PistonContext>,
    who: TokenPrincipal,
    request: Request,
) -> Result<Response, PistonFailure> {
    let body = body(request).await?;
    let languages = face.service.languages().await.languages;
    let mut job = request::parse(&body, &languages, &face.config).map_err(PistonFailure::bad)?;
    drop(body);
    let request = std::mem::take(&mut job.request);
    let mut together = CombinedOutput::default();
    let execution =
        face.service.execute_held(&who.token_id, request, ProgramIo::default(), &mut together);
    // Boxed: it holds a request and its result, and must not move while it waits.
    let (execution, room) = Box::pin(execution).await?;
    let bytes = content_bytes(&execution) + together.len();
    let write = move || {
        let answer = stage::answer(&job, &execution, &together);
        Ok::<_, Infallible>(AnswerDocument::of_tree(answer))
    };
    Ok(write_answer(bytes, [room], write).await?.answer(StatusCode::OK))
}

async fn body(request: Request) -> Result<Value, PistonFailure> {
    let JsonBody(body) = JsonBody::<Value>::from_request(request, &()).await?;
    Ok(body)
}

async fn packages(State(face): State<PistonContext>, _who: TokenPrincipal) -> axum::Json<Value> {
    let languages = face.service.languages().await.languages;
    axum::Json(runtimes::all(&languages).iter().map(runtimes::package).collect())
}

/// Languages belong to the host: those that exist are installed, and others cannot be.
async fn install(
    State(face): State<PistonContext>,
    _who: TokenPrincipal,
    request: Request,
) -> Result<Response, PistonFailure> {
    face.package(request).await?;
    Err(PistonFailure::new(StatusCode::INTERNAL_SERVER_ERROR, "Already installed"))
}

async fn uninstall(
    State(face): State<PistonContext>,
    _who: TokenPrincipal,
    request: Request,
) -> Result<Response, PistonFailure> {
    face.package(request).await?;
    let message = "languages are the host's; they are removed there";
    Err(PistonFailure::new(StatusCode::INTERNAL_SERVER_ERROR, message))
}

impl PistonContext {
    /// Returns whether the package that a body names exists.
    async fn package(&self, request: Request) -> Result<(), PistonFailure> {
        let body = body(request).await?;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let required = |name: &str| format!("{name} is required as a string");
        let language = text("language").ok_or_else(|| PistonFailure::bad(required("language")))?;
        let version = text("version").ok_or_else(|| PistonFailure::bad(required("version")))?;
        let languages = self.service.languages().await.languages;
        if runtimes::choose(&languages, language, version).is_some() {
            return Ok(());
        }
        let (language, version) = (super::excerpt(language), super::excerpt(version));
        let message = format!("Requested package {language}-{version} does not exist");
        Err(PistonFailure::new(StatusCode::NOT_FOUND, message))
    }
}
