//! The native HTTP face: parse, call, reply.

use api::{Execution, ExecutionRequest, LanguageList};
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::routing::{get, post};
use node::auth::Principal;
use node::http::{self, Json};

use crate::error::Error;
use crate::service::{Io, Service};

/// `POST /v1/executions` and `GET /v1/languages`, for [`node::http::Shell`] to wrap.
pub fn routes(service: Service) -> Router {
    Router::new()
        .route("/v1/executions", post(execute))
        .route("/v1/languages", get(languages))
        .with_state(service)
}

async fn execute(
    State(service): State<Service>,
    who: Principal,
    RawQuery(query): RawQuery,
    Json(request): Json<ExecutionRequest>,
) -> Result<axum::Json<Execution>, http::Error> {
    if !wait(query.as_deref())? {
        let message = "asynchronous executions are not supported yet; ask with `?wait=true`";
        return Err(http::Error::invalid(message).at("wait"));
    }
    // Boxed: it holds a request and its result, and stays where it is while it waits.
    let execution = Box::pin(service.execute(&who.token_id, request, Io::default(), &mut ())).await?;
    Ok(axum::Json(execution))
}

/// The only parameter of `POST /v1/executions`: whether to answer when the program has ended.
fn wait(query: Option<&str>) -> Result<bool, http::Error> {
    let mut wait = None;
    for parameter in query.unwrap_or_default().split('&').filter(|it| !it.is_empty()) {
        let value = match parameter.split_once('=').unwrap_or((parameter, "")) {
            ("wait", "true") => true,
            ("wait", "false") => false,
            ("wait", _) => {
                return Err(http::Error::invalid("must be `true` or `false`").at("wait"));
            }
            (name, _) => {
                let name: String = name.chars().take(64).collect();
                let message = format!("there is no parameter {name:?}; there is `wait`");
                return Err(http::Error::invalid(message));
            }
        };
        if wait.replace(value).is_some() {
            return Err(http::Error::invalid("is given twice").at("wait"));
        }
    }
    Ok(wait.unwrap_or(false))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Refusal;

    #[test]
    fn the_query_is_read_strictly() {
        for (query, expected) in [
            (None, Ok(false)),
            (Some(""), Ok(false)),
            (Some("wait=true"), Ok(true)),
            (Some("&wait=false&"), Ok(false)),
            (Some("wait"), Err("wait: must be")),
            (Some("wait=1"), Err("wait: must be")),
            (Some("wait=true&wait=true"), Err("wait: is given twice")),
            (Some("wait=true&x=1"), Err("there is no parameter \"x\"")),
        ] {
            match (wait(query), expected) {
                (Ok(wait), Ok(expected)) => assert_eq!(wait, expected, "{query:?}"),
                (Err(error), Err(says)) => {
                    assert!(error.to_string().starts_with(says), "{query:?}: {error}");
                }
                (answer, _) => panic!("{query:?} gave {answer:?}"),
            }
        }
    }

    #[test]
    fn errors_keep_what_they_say() {
        let full = http::Error::from(Error::QueueFull { queue_max: 3 });
        let again =
            http::Error::new(api::ErrorCode::Overloaded, "3 executions are waiting already");
        assert_eq!(full, again.retry_after(Duration::from_secs(1)));
        let refused = http::Error::from(Error::from(Refusal::invalid("limits.cpu_ms", "no")));
        assert_eq!(refused, http::Error::invalid("no").at("limits.cpu_ms"));
    }
}
