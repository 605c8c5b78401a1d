//! The native HTTP face: parse, call, reply.

mod live;

use api::operations::executions as table;
use api::{
    BatchAnswer, BatchRequest, ExecutionId, ExecutionList, ExecutionRecord, ExecutionRequest,
    ExecutionState as JobState, LanguageList, QueueChange, QueueStats, Verdict, WebhookSecret,
};
use axum::Router;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use node::auth::TokenPrincipal;
use node::clock;
use node::http::{self, JsonBody, OperationRoutes, query};
use serde::Deserialize;

use crate::answers::AnswerDocument;
use crate::aside::write_answer;
use crate::error::{ExecutionError, IDEMPOTENCY_KEY};
use crate::jobs::{JobSubmission, Jobs};
use crate::queue::{JobFilter, JobOrder, JobParts as QueueParts};
use crate::service::ProgramIo;
use crate::verdict::content_bytes;

/// Default number of executions on a page of a list.
const PAGE_DEFAULT: usize = 50;

/// Returns the routes of executions, for [`node::http::HttpShell`] to wrap.
pub fn routes(jobs: Jobs) -> Router {
    handlers().with_state(jobs)
}

fn handlers() -> Router<Jobs> {
    OperationRoutes::of(table::EXECUTIONS)
        .serve(&table::CREATE_EXECUTION, submit)
        .serve(&table::LIST_EXECUTIONS, list)
        .serve(&table::CREATE_BATCH, batch)
        .serve(&table::GET_EXECUTION, fetch)
        .serve(&table::CANCEL_EXECUTION, cancel)
        .serve(&table::FOLLOW_EXECUTION, live::events)
        .serve(&table::RETRY_EXECUTION, retry)
        .serve(&table::GET_QUEUE, stats)
        .serve(&table::PAUSE_QUEUE, pause)
        .serve(&table::RESUME_QUEUE, resume)
        .serve(&table::DRAIN_QUEUE, drain)
        .serve(&table::RETRY_DEAD, retry_all)
        .serve(&table::GET_WEBHOOK_SECRET, webhook_secret)
        .serve(&table::LIST_LANGUAGES, languages)
        .routes()
}

/// The id in the path; invalid text matches no execution.
struct ExecutionIdPath(ExecutionId);

impl<S: Send + Sync> FromRequestParts<S> for ExecutionIdPath {
    type Rejection = http::HttpError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &S,
    ) -> Result<ExecutionIdPath, http::HttpError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(id)| ExecutionIdPath(ExecutionId(id)))
            .map_err(|_| ExecutionError::NotFound.into())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WaitQuery {
    /// True to delay the answer until the execution has ended.
    wait: bool,
}

async fn submit(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    uri: Uri,
    headers: HeaderMap,
    JsonBody(mut request): JsonBody<ExecutionRequest>,
) -> Result<Response, http::HttpError> {
    let WaitQuery { wait } = query(&uri)?;
    let idempotency_key = idempotency_key(&headers)?;
    jobs.service().authorize(&who, &mut request)?;
    if !wait {
        let submission = JobSubmission { request, idempotency_key, face: None };
        let records = Box::pin(jobs.submit(&who.token_id, vec![submission])).await?;
        let record = records.into_iter().next().ok_or_else(http::HttpError::internal)?;
        let location = format!("/v1/executions/{}", record.id);
        let headers = [(header::LOCATION, location)];
        return Ok((StatusCode::ACCEPTED, headers, axum::Json(record)).into_response());
    }
    for (is_set, field) in [
        (idempotency_key.is_some(), IDEMPOTENCY_KEY),
        (request.webhook.is_some(), "webhook"),
        (request.deadline_ms.is_some(), "deadline_ms"),
        (request.interactive, "interactive"),
        (request.terminal.is_some(), "terminal"),
    ] {
        if is_set {
            let message = "is for asynchronous executions; leave out `wait=true`";
            return Err(http::HttpError::invalid(message).at(field));
        }
    }
    // Boxed: it holds a request and its result, and must not move while it waits.
    let service = jobs.service();
    let mut nothing = ();
    let execution =
        service.execute_held(&who.token_id, request, ProgramIo::default(), &mut nothing);
    let (execution, room) = Box::pin(execution).await?;
    let bytes = content_bytes(&execution);
    let document = write_answer(bytes, [room], move || AnswerDocument::of(&execution)).await?;
    Ok(document.answer(StatusCode::OK))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, http::HttpError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refuse = |message: &str| http::HttpError::invalid(message).at(IDEMPOTENCY_KEY);
    if values.next().is_some() {
        return Err(refuse("is specified twice"));
    }
    let text = value.to_str().map_err(|_| refuse("must be printable ASCII"))?;
    Ok(Some(text.to_owned()))
}

async fn batch(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    headers: HeaderMap,
    JsonBody(mut request): JsonBody<BatchRequest>,
) -> Result<(StatusCode, axum::Json<BatchAnswer>), http::HttpError> {
    let key = idempotency_key(&headers)?;
    let alone = request.executions.len() == 1;
    for (index, request) in request.executions.iter_mut().enumerate() {
        let may = jobs.service().authorize(&who, request);
        may.map_err(|error| if alone { error } else { error.at(index) })?;
    }
    let submissions = request.executions.into_iter().enumerate().map(|(index, request)| {
        // One key for the batch becomes one for each of its executions; header values contain no
        // line end, so none of these collides with the key of a single execution.
        let idempotency_key = key.as_ref().map(|key| format!("{key}\n{index}"));
        JobSubmission { request, idempotency_key, face: None }
    });
    let executions = Box::pin(jobs.submit(&who.token_id, submissions.collect())).await;
    // For a single submission, `submit` reports errors without an index; a batch has one.
    let executions = executions.map_err(|error| if alone { error.at(0) } else { error })?;
    Ok((StatusCode::ACCEPTED, axum::Json(BatchAnswer { executions })))
}

async fn fetch(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    ExecutionIdPath(id): ExecutionIdPath,
    uri: Uri,
) -> Result<Response, http::HttpError> {
    let FetchQuery { wait, include } = query(&uri)?;
    let has_request = match include.as_deref() {
        None => false,
        Some("request") => true,
        Some(_) => {
            return Err(http::HttpError::invalid("must be `request`").at("include"));
        }
    };
    if wait {
        Box::pin(jobs.ended(&who.token_id, &id)).await?;
    }
    Ok(jobs.document(&who.token_id, &id, has_request).await?.answer(StatusCode::OK))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FetchQuery {
    /// True to delay the answer until the execution has ended.
    wait: bool,
    /// `request` to return the request in addition to the record.
    include: Option<String>,
}

/// Longest text to search for in ids and labels.
const SEARCH_BYTES_MAX: usize = 256;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ExecutionListQuery {
    /// Names of states, separated by commas.
    state: Option<String>,
    language: Option<String>,
    label: Option<String>,
    verdict: Option<String>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    /// Prefix of ids.
    id: Option<String>,
    /// Text contained in labels.
    text: Option<String>,
    order: Option<ListOrder>,
    /// Id of a token whose executions are listed, or `*`; for operators.
    tenant: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Order of a list.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListOrder {
    Asc,
    Desc,
}

impl ExecutionListQuery {
    /// Returns the tenant whose executions are requested; None for all.
    fn owner(&self, who: &TokenPrincipal) -> Result<Option<String>, http::HttpError> {
        match self.tenant.as_deref() {
            None => Ok(Some(who.token_id.to_string())),
            Some(own) if *own == *who.token_id => Ok(Some(own.to_owned())),
            Some(_) if !who.operator => {
                let message = "only an operator's token may list others' executions";
                Err(http::HttpError::new(api::ErrorCode::Forbidden, message).at("tenant"))
            }
            Some("*") => Ok(None),
            Some(other) => Ok(Some(other.to_owned())),
        }
    }

    fn filter(self) -> Result<JobFilter, http::HttpError> {
        let limit = self.limit.unwrap_or(PAGE_DEFAULT);
        if limit == 0 || limit > crate::jobs::PAGE_MAX {
            let message = format!("must be 1 to {}", crate::jobs::PAGE_MAX);
            return Err(http::HttpError::invalid(message).at("limit"));
        }
        let mut states = Vec::new();
        for name in self.state.iter().flat_map(|names| names.split(',')) {
            states.push(state(name).ok_or_else(|| {
                let message = format!(
                    "there is no state {:?}; there are {}",
                    name.chars().take(64).collect::<String>(),
                    STATES.map(JobState::as_str).join(", ")
                );
                http::HttpError::invalid(message).at("state")
            })?);
        }
        let verdict = self.verdict.map(|name| {
            Verdict::from_name(&name).ok_or_else(|| {
                let message = format!(
                    "there is no verdict {:?}; there are {}",
                    name.chars().take(64).collect::<String>(),
                    Verdict::ALL.map(Verdict::as_str).join(", ")
                );
                http::HttpError::invalid(message).at("verdict")
            })
        });
        for (text, field) in [(&self.id, "id"), (&self.text, "text")] {
            if text.as_ref().is_some_and(|text| text.len() > SEARCH_BYTES_MAX) {
                let message = format!("has at most {SEARCH_BYTES_MAX} bytes");
                return Err(http::HttpError::invalid(message).at(field));
            }
        }
        Ok(JobFilter {
            tenant: None,
            states,
            language: self.language,
            label: self.label,
            verdict: verdict.transpose()?,
            id_prefix: self.id.filter(|prefix| !prefix.is_empty()),
            label_text: self.text.filter(|text| !text.is_empty()),
            from_ms: self.from_ms,
            to_ms: self.to_ms,
            order: match self.order {
                None | Some(ListOrder::Desc) => JobOrder::Descending,
                Some(ListOrder::Asc) => JobOrder::Ascending,
            },
            before: self.cursor.map(ExecutionId),
            limit,
        })
    }
}

const STATES: [JobState; 6] = [
    JobState::Queued,
    JobState::Running,
    JobState::Finished,
    JobState::Cancelled,
    JobState::Expired,
    JobState::Dead,
];

fn state(name: &str) -> Option<JobState> {
    STATES.into_iter().find(|state| state.as_str() == name)
}

async fn list(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<ExecutionList>, http::HttpError> {
    let list_query = query::<ExecutionListQuery>(&uri)?;
    let tenant = list_query.owner(&who)?;
    let filter = JobFilter { tenant, ..list_query.filter()? };
    if let Some(cursor) = filter.before.as_ref().filter(|cursor| !clock::is_id("ex_", &cursor.0))
        && jobs.job(&who.token_id, cursor, QueueParts::default()).await.is_err()
    {
        let message = "must be the `next_cursor` of another page";
        return Err(http::HttpError::invalid(message).at("cursor"));
    }
    Ok(axum::Json(jobs.list(filter).await?))
}

async fn cancel(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    ExecutionIdPath(id): ExecutionIdPath,
) -> Result<axum::Json<ExecutionRecord>, http::HttpError> {
    Ok(axum::Json(jobs.cancel(&who.token_id, &id).await?))
}

async fn retry(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    ExecutionIdPath(id): ExecutionIdPath,
) -> Result<axum::Json<ExecutionRecord>, http::HttpError> {
    jobs.replay(Some(&who.token_id), Some(&id)).await?;
    Ok(axum::Json(jobs.state(&who.token_id, &id).await?))
}

/// Tenants to which an operation on the queue applies.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct QueueScope {
    /// True for all tenants; only for operators.
    all: bool,
}

impl QueueScope {
    fn of<'a>(uri: &Uri, who: &'a TokenPrincipal) -> Result<Option<&'a str>, http::HttpError> {
        let QueueScope { all } = query(uri)?;
        if all {
            operator(who)?;
        }
        Ok(if all { None } else { Some(&who.token_id) })
    }
}

fn operator(who: &TokenPrincipal) -> Result<(), ExecutionError> {
    let message = "only an operator's token may do this to everybody's executions";
    if who.operator { Ok(()) } else { Err(ExecutionError::Forbidden(message)) }
}

async fn stats(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<QueueStats>, http::HttpError> {
    Ok(axum::Json(jobs.stats(QueueScope::of(&uri, &who)?).await?))
}

async fn pause(State(jobs): State<Jobs>) -> Result<axum::Json<QueueStats>, http::HttpError> {
    set_paused(&jobs, true).await
}

async fn resume(State(jobs): State<Jobs>) -> Result<axum::Json<QueueStats>, http::HttpError> {
    set_paused(&jobs, false).await
}

async fn set_paused(jobs: &Jobs, paused: bool) -> Result<axum::Json<QueueStats>, http::HttpError> {
    jobs.set_paused(paused).await?;
    Ok(axum::Json(jobs.stats(None).await?))
}

async fn drain(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<QueueChange>, http::HttpError> {
    let changed = jobs.drain(QueueScope::of(&uri, &who)?).await?;
    Ok(axum::Json(QueueChange { changed }))
}

async fn retry_all(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<QueueChange>, http::HttpError> {
    let changed = jobs.replay(QueueScope::of(&uri, &who)?, None).await?;
    Ok(axum::Json(QueueChange { changed }))
}

async fn webhook_secret(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
) -> axum::Json<WebhookSecret> {
    axum::Json(WebhookSecret { secret: jobs.webhook_secret(&who.token_id) })
}

async fn languages(State(jobs): State<Jobs>, _who: TokenPrincipal) -> axum::Json<LanguageList> {
    axum::Json(jobs.service().languages().await)
}

impl From<ExecutionError> for http::HttpError {
    fn from(error: ExecutionError) -> http::HttpError {
        let detail = error.detail();
        let mut answer = http::HttpError::new(detail.code, detail.message);
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
    use crate::error::RequestRefusal;

    fn uri(query: &str) -> Uri {
        format!("/v1/executions{query}").parse().unwrap()
    }

    #[test]
    fn the_query_is_read_strictly() {
        for (text, expected) in [
            ("", Ok(false)),
            ("?", Ok(false)),
            ("?wait=true", Ok(true)),
            ("?wait=false", Ok(false)),
            ("?wait", Err("the query is wrong: wait")),
            ("?wait=1", Err("the query is wrong: wait")),
            ("?wait=true&wait=true", Err("the query is wrong: duplicate field `wait`")),
            ("?wait=true&x=1", Err("the query is wrong: x: unknown field `x`")),
        ] {
            match (query::<WaitQuery>(&uri(text)), expected) {
                (Ok(WaitQuery { wait }), Ok(expected)) => assert_eq!(wait, expected, "{text:?}"),
                (Err(error), Err(says)) => {
                    assert!(error.to_string().starts_with(says), "{text:?}: {error}");
                }
                (answer, _) => panic!("{text:?} gave {answer:?}"),
            }
        }
    }

    #[test]
    fn a_listing_is_checked() {
        let filter = |text: &str| {
            query::<ExecutionListQuery>(&uri(text)).and_then(ExecutionListQuery::filter)
        };
        let found = filter("?state=queued,dead&language=c%2B%2B&limit=7&cursor=ex_1").unwrap();
        assert_eq!(found.states, [JobState::Queued, JobState::Dead]);
        assert_eq!(found.language.as_deref(), Some("c++"));
        assert_eq!((found.limit, found.before), (7, Some(ExecutionId("ex_1".to_owned()))));
        for (text, says) in [
            ("?state=done", "state: there is no state \"done\""),
            ("?limit=0", "limit: must be 1 to 200"),
            ("?limit=201", "limit: must be 1 to 200"),
            ("?limit=x", "the query is wrong: limit"),
            ("?verdict=ok", "verdict: there is no verdict \"ok\"; there are OK, RE"),
            ("?order=up", "the query is wrong: order"),
            ("?from_ms=-1", "the query is wrong: from_ms"),
            ("?state_=x", "the query is wrong: state_: unknown field"),
        ] {
            let error = filter(text).unwrap_err().to_string();
            assert!(error.starts_with(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn every_operation_has_a_handler() {
        drop(handlers());
    }

    #[test]
    fn errors_keep_what_they_say() {
        let full = http::HttpError::from(ExecutionError::QueueFull { queue_max: 3 });
        let again =
            http::HttpError::new(api::ErrorCode::Overloaded, "3 executions are waiting already");
        assert_eq!(full, again.retry_after(Duration::from_secs(1)));
        let refused = http::HttpError::from(ExecutionError::from(RequestRefusal::invalid(
            "limits.cpu_ms",
            "no",
        )));
        assert_eq!(refused, http::HttpError::invalid("no").at("limits.cpu_ms"));
    }
}
