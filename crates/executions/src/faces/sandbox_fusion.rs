//! SandboxFusion: `/run_code` and `/run_jupyter`, for reward functions of reinforcement learning.
//!
//! A reward function scores a sample by any answer: an error of the server becomes a bad score. So
//! a request waits for its place, and failures that are not the program's fault are answered with
//! 504, the only status that verl's function retries.
//!
//! | file | content |
//! |---|---|
//! | `request` | turns the bodies into an execution |
//! | `dialects` | SandboxFusion's languages: what runs them here, or why they are not supported |
//! | `reply` | results in SandboxFusion's format |
//! | `notebook.py` | runs the cells of `/run_jupyter` in one process |
//!
//! # References
//! - <https://bytedance.github.io/SandboxFusion/docs/docs/reference>
//! - <https://github.com/bytedance/SandboxFusion>, `sandbox/server/sandbox_api.py`
//! - <https://github.com/volcengine/verl>, `verl/utils/reward_score/sandbox_fusion/utils.py`

mod dialects;
mod reply;
mod request;

use std::sync::Arc;
use std::time::Duration;

use api::{Execution, ExecutionRequest, Verdict};
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use node::auth::TokenPrincipal;
use node::http::{HttpError, JsonBody, RouteTable, get, post};
use serde::Deserialize;
use serde_json::json;

use self::request::{NotebookBody, PlannedRun, RunCodeBody};
use crate::answers::{AnswerDocument, AnswerMemory};
use crate::aside::{aside, write_answer};
use crate::error::{ExecutionError, RequestRefusal};
use crate::service::ExecutionService;
use crate::verdict::content_bytes;

/// The `[compat.sandbox_fusion.settings]` table of cove.toml.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxFusionConfig {
    /// Time that a request waits for a place, in seconds, before it gets 504. If the language has
    /// no compile stage, the `compile_timeout` of the request is added, because its client waits
    /// that long as well.
    pub queue_timeout_s: f64,
    /// Maximum bytes of standard output and of standard error that are kept of a program, each.
    pub output_max_size: u64,
    /// Maximum bytes of the results of all cells of a notebook together.
    pub notebook_max_size: u64,
}

impl Default for SandboxFusionConfig {
    fn default() -> SandboxFusionConfig {
        SandboxFusionConfig {
            // verl's function gives up 10 s after the time of compiler and program.
            queue_timeout_s: 8.0,
            // SandboxFusion's `get_output_non_blocking`.
            output_max_size: 1 << 20,
            notebook_max_size: 16 << 20,
        }
    }
}

/// State that the handlers share.
#[derive(Clone, Debug)]
struct SandboxFusionContext {
    service: ExecutionService,
    config: Arc<SandboxFusionConfig>,
}

/// Failure of a request without a result.
#[derive(Debug)]
enum SandboxFusionFailure {
    /// Reported with status 200, as `SandboxError`.
    Refused(String),
    /// A failure of the server, the load or the request's form.
    Http(HttpError),
}

/// Paths at which programs run.
const RUN_CODE: &str = "/run_code";
const RUN_JUPYTER: &str = "/run_jupyter";

/// Returns whether a request runs programs while its caller waits. `path` is relative to the face.
pub fn runs_programs(method: &Method, path: &str) -> bool {
    matches!(path, RUN_CODE | RUN_JUPYTER) && method == Method::POST
}

/// SandboxFusion's own paths, for [`node::http::HttpShell`] to wrap.
pub fn routes(service: ExecutionService, config: SandboxFusionConfig) -> Router {
    let context = SandboxFusionContext { service, config: Arc::new(config) };
    Router::new()
        .at(RUN_CODE, post(run_code))
        .at(RUN_JUPYTER, post(run_jupyter))
        .at("/v1/ping", get(ping))
        .method_not_allowed_fallback(|| async {
            (StatusCode::METHOD_NOT_ALLOWED, Json(json!({"detail": "Method Not Allowed"})))
        })
        .fallback(|| async { (StatusCode::NOT_FOUND, Json(json!({"detail": "Not Found"}))) })
        .with_state(context)
}

/// Renders errors of the shell and its extractors for this face. For
/// [`node::http::CompatFace::render`].
pub fn render_error(error: &HttpError) -> Response {
    let status = match error.status() {
        // FastAPI's status for an invalid body.
        StatusCode::BAD_REQUEST => StatusCode::UNPROCESSABLE_ENTITY,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::BAD_GATEWAY
        | StatusCode::INTERNAL_SERVER_ERROR => StatusCode::GATEWAY_TIMEOUT,
        other => other,
    };
    let detail = match status {
        StatusCode::UNPROCESSABLE_ENTITY => {
            let field = error.detail().field.iter().flat_map(|field| field.split('.'));
            let place: Vec<&str> = std::iter::once("body").chain(field).collect();
            json!([{"type": "value_error", "loc": place, "msg": error.detail().message}])
        }
        _ => json!(error.to_string()),
    };
    (status, Json(json!({ "detail": detail }))).into_response()
}

impl From<HttpError> for SandboxFusionFailure {
    fn from(error: HttpError) -> SandboxFusionFailure {
        SandboxFusionFailure::Http(error)
    }
}

impl From<RequestRefusal> for SandboxFusionFailure {
    fn from(refusal: RequestRefusal) -> SandboxFusionFailure {
        SandboxFusionFailure::Refused(request::refusal(&refusal))
    }
}

impl From<ExecutionError> for SandboxFusionFailure {
    fn from(error: ExecutionError) -> SandboxFusionFailure {
        match error {
            ExecutionError::Refused(refusal) => refusal.into(),
            other => SandboxFusionFailure::Http(other.into()),
        }
    }
}

impl IntoResponse for SandboxFusionFailure {
    fn into_response(self) -> Response {
        match self {
            SandboxFusionFailure::Refused(message) => {
                Json(reply::sandbox_error(&message)).into_response()
            }
            SandboxFusionFailure::Http(error) => render_error(&error),
        }
    }
}

async fn ping() -> Json<&'static str> {
    Json("pong")
}

async fn run_code(
    State(context): State<SandboxFusionContext>,
    who: TokenPrincipal,
    body: Result<JsonBody<RunCodeBody>, HttpError>,
) -> Result<Response, SandboxFusionFailure> {
    let JsonBody(body) = body?;
    let languages = context.service.languages().await.languages;
    let planner = context.service.planner();
    let mut run = request::plan_code(body, &languages, &planner, &context.config)?;
    let (execution, room) = context.execute(&who, &mut run).await?;
    let written = aside(content_bytes(&execution), move || {
        let answer = reply::of_code(&run, &execution)?;
        Ok(AnswerDocument::of_tree(answer).held([room]))
    });
    let document: Result<_, SandboxFusionFailure> = written.await.map_err(|error| {
        tracing::error!(%error, "failed to write an answer");
        HttpError::internal()
    })?;
    Ok(document?.answer(StatusCode::OK))
}

async fn run_jupyter(
    State(context): State<SandboxFusionContext>,
    who: TokenPrincipal,
    body: Result<JsonBody<NotebookBody>, HttpError>,
) -> Result<Response, SandboxFusionFailure> {
    let JsonBody(body) = body?;
    let languages = context.service.languages().await.languages;
    let planner = context.service.planner();
    let mut run = request::plan_notebook(body, &languages, &planner, &context.config)?;
    let (execution, room) = context.execute(&who, &mut run).await?;
    let bytes = content_bytes(&execution);
    let write = move || {
        let reply::NotebookReply { object, cells } = reply::of_notebook(&run, &execution);
        AnswerDocument::with_members(&object, vec![("cells", cells)])
    };
    Ok(write_answer(bytes, [room], write).await?.answer(StatusCode::OK))
}

impl SandboxFusionContext {
    /// Runs a request that waits for its place. Dropping the future releases everything.
    async fn execute(
        &self,
        who: &TokenPrincipal,
        run: &mut PlannedRun,
    ) -> Result<(Execution, AnswerMemory), SandboxFusionFailure> {
        let request: ExecutionRequest = std::mem::take(&mut run.request);
        let wait_max: Duration = run.wait_max;
        let execution = self.service.execute_patiently(wait_max, &who.token_id, request);
        // Boxed: it holds a request and its result, and must not move while it waits.
        let (execution, room) = Box::pin(execution).await?;
        if execution.outcome.verdict == Verdict::Ie {
            // The log has the cause. It must not affect the score of a sample, so it is not an
            // answer.
            return Err(HttpError::internal().into());
        }
        Ok((execution, room))
    }
}
