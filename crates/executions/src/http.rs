//! The native HTTP face: parse, call, reply.

use api::{Execution, ExecutionRequest, LanguageList};
use axum::Router;
use axum::extract::{Query, State, rejection::QueryRejection};
use axum::routing::{get, post};
use node::auth::Principal;
use node::http::{self, Json};
use serde::Deserialize;

use crate::error::Error;
use crate::service::Service;

/// `POST /v1/executions` and `GET /v1/languages`, for [`node::http::Shell`] to wrap.
pub fn routes(service: Service) -> Router {
    Router::new()
        .route("/v1/executions", post(execute))
        .route("/v1/languages", get(languages))
        .with_state(service)
}

/// Parameters of `POST /v1/executions`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecuteQuery {
    #[serde(default)]
    wait: bool,
}

async fn execute(
    State(service): State<Service>,
    who: Principal,
    query: Result<Query<ExecuteQuery>, QueryRejection>,
    Json(request): Json<ExecutionRequest>,
) -> Result<axum::Json<Execution>, http::Error> {
    let Query(query) = query.map_err(|rejection| http::Error::invalid(rejection.body_text()))?;
    if !query.wait {
        let message = "asynchronous executions are not supported yet; ask with `?wait=true`";
        return Err(http::Error::invalid(message).at("wait"));
    }
    // Boxed: it holds a request and its result, and stays where it is while it waits.
    let execution = Box::pin(service.execute(&who.token_id, request, None, &mut ())).await?;
    Ok(axum::Json(execution))
}

async fn languages(State(service): State<Service>, _who: Principal) -> axum::Json<LanguageList> {
    axum::Json(service.languages().await)
}

impl From<Error> for http::Error {
    fn from(error: Error) -> http::Error {
        let detail = error.detail();
        let mut answer = http::Error::new(detail.code, detail.message);
        if let Some(field) = detail.field {
            answer = answer.at(field);
        }
        match error.retry_after() {
            Some(wait) => answer.retry_after(wait),
            None => answer,
        }
    }
}
