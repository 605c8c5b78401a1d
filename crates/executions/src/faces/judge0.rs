//! Judge0 CE: submissions, alone and in batches, and information about the server.
//!
//! A submission is an asynchronous execution with the label `judge0`; its token is the execution's
//! id, written as a UUID. No other state is kept.
//!
//! | file | content |
//! |---|---|
//! | `submission` | turns parameters into an execution, with Judge0's error messages |
//! | `render` | a job in Judge0's fields; the body of a callback |
//! | `languages` | Judge0's numbers of languages |
//! | `archive`, `words` | additional files; lines of arguments |
//! | `token` | ids as UUIDs |
//! | `about` | information about the server |
//!
//! # References
//! - <https://ce.judge0.com/>

mod about;
mod archive;
mod languages;
mod render;
mod shell_words;
mod submission;
mod token;

/// Entry of the fuzz target for archives.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use super::archive;

    /// A file of an archive: its name, its content, and whether it may be executed.
    pub type UnpackedFile = (String, String, bool);

    /// Unpacks an archive within `bytes_max` bytes, packs its files, and unpacks those. Returns the
    /// files of both times; None if it is not an archive.
    pub fn archive(bytes: &[u8], bytes_max: u64) -> Option<[Vec<UnpackedFile>; 2]> {
        let read = |bytes: &[u8]| {
            let files = archive::files(bytes, bytes_max).ok()?;
            let packed = archive::packed(&files);
            let files = files.into_iter().map(|it| (it.name, it.content, it.executable));
            Some((files.collect::<Vec<UnpackedFile>>(), packed))
        };
        let (first, packed) = read(bytes)?;
        // Two files with one name can be unpacked, but not packed.
        let Some(packed) = packed else { return Some([first, Vec::new()]) };
        match read(&packed) {
            Some((second, _)) => Some([first, second]),
            // A name or content looks like the end of a directory; such archives are refused
            // unread.
            None if archive::has_two_ends(&packed) => Some([first, Vec::new()]),
            None => panic!("an archive that was packed here is refused: {packed:?}"),
        }
    }
}

pub use self::render::callback_body;

use std::sync::Arc;

use api::{ErrorCode, ExecutionId};
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{FromRequest as _, FromRequestParts, Path, RawQuery, Request, State};
use axum::http::request::Parts as RequestParts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use node::auth::TokenPrincipal;
use node::http::JsonBody;
use node::http::{RouteTable, get, post};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use self::languages::NumberedLanguage;
use self::render::{
    DEFAULT_FIELDS, FIELDS, MADE_FIELDS, NAMED_FIELDS, NotText, SubmissionView, TextEncoding,
};
use self::submission::{Complaints, LABEL, SubmissionRecord};
use crate::answers::{AnswerDocument, AnswerMemory, AnswerPatience};
use crate::aside::aside;
use crate::error::ExecutionError;
use crate::faces::{excerpt, parameters};
use crate::jobs::{JobSubmission, Jobs};
use crate::queue::{JobFilter, JobParts, QueueConfig};
use crate::service::ExecutionService;

/// Maximum size of a submission sent as a form, in bytes.
const FORM_BYTES_MAX: usize = 2 << 20;
/// Maximum number of submissions on one page.
const PER_PAGE_MAX: usize = 100;
/// Maximum number of submissions that pages list; older ones are accessible by their tokens.
const LISTED_MAX: usize = 10_000;
/// Number of jobs read from the queue at one time.
const CHUNK: usize = 200;
/// Maximum number of requests whose texts and archives are decoded or encoded concurrently.
const ASIDE_MAX: usize = 4;

/// The `[compat.judge0]` table of cove.toml, with Judge0's names and units: seconds and kilobytes.
/// The server's own limits apply in addition.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are Judge0's, and its documentation says what they are")]
pub struct Judge0Config {
    pub cpu_time_limit: f64,
    pub max_cpu_time_limit: f64,
    pub cpu_extra_time: f64,
    pub max_cpu_extra_time: f64,
    pub wall_time_limit: f64,
    pub max_wall_time_limit: f64,
    pub memory_limit: u64,
    pub max_memory_limit: u64,
    pub stack_limit: u64,
    pub max_stack_limit: u64,
    pub max_processes_and_or_threads: u64,
    pub max_max_processes_and_or_threads: u64,
    pub max_file_size: u64,
    pub max_max_file_size: u64,
    pub number_of_runs: u64,
    pub max_number_of_runs: u64,
    pub max_submission_batch_size: usize,
    /// Value that `/config_info` shows; the queue has its own limit.
    pub max_queue_size: u64,
    /// Maximum kilobytes unpacked from `additional_files`.
    pub max_extract_size: u64,
    pub enable_submission_delete: bool,
    /// True if texts are base64 unless a request specifies otherwise.
    pub disable_implicit_base64_encoding: bool,
}

impl Default for Judge0Config {
    fn default() -> Judge0Config {
        Judge0Config {
            cpu_time_limit: 5.0,
            max_cpu_time_limit: 15.0,
            cpu_extra_time: 1.0,
            max_cpu_extra_time: 5.0,
            wall_time_limit: 10.0,
            max_wall_time_limit: 20.0,
            memory_limit: 128_000,
            max_memory_limit: 512_000,
            stack_limit: 64_000,
            max_stack_limit: 128_000,
            max_processes_and_or_threads: 60,
            max_max_processes_and_or_threads: 120,
            max_file_size: 1024,
            max_max_file_size: 4096,
            number_of_runs: 1,
            max_number_of_runs: 20,
            max_submission_batch_size: 20,
            max_queue_size: QueueConfig::default().queued_max_per_tenant,
            max_extract_size: 10_240,
            // Off in Judge0, where all users see everything; here callers only delete their own.
            enable_submission_delete: true,
            disable_implicit_base64_encoding: false,
        }
    }
}

/// State that the handlers share.
#[derive(Clone, Debug)]
struct Judge0Context {
    service: ExecutionService,
    jobs: Jobs,
    config: Arc<Judge0Config>,
    /// Limits long work; see [`ASIDE_MAX`].
    aside: Arc<Semaphore>,
}

/// A segment of a path.
struct PathSegment(String);

/// An error in Judge0's shape.
#[derive(Clone, Debug, PartialEq)]
struct Judge0Failure {
    status: StatusCode,
    body: Value,
    /// Time to retry, in seconds.
    retry_after: Option<u64>,
}

type Answer<T = Value> = Result<(StatusCode, axum::Json<T>), Judge0Failure>;
/// An answer that may contain output of programs.
type LongAnswer = Result<Response, Judge0Failure>;

/// Judge0's own paths, for [`node::http::HttpShell`] to wrap.
pub fn routes(service: ExecutionService, jobs: Jobs, config: Judge0Config) -> Router {
    let aside = Arc::new(Semaphore::new(ASIDE_MAX));
    let face = Judge0Context { service, jobs, config: Arc::new(config), aside };
    Router::new()
        .at("/submissions", get(list).post(create))
        .at("/submissions/batch", get(show_batch).post(create_batch))
        .at("/submissions/{token}", get(show).delete(delete))
        .at("/languages", get(about::languages))
        .at("/languages/all", get(about::all_languages))
        .at("/languages/{id}", get(about::language))
        .at("/statuses", get(about::statuses))
        .at("/system_info", get(about::system_info))
        .at("/config_info", get(about::config_info))
        .at("/statistics", get(about::statistics))
        .at("/workers", get(about::workers))
        .at("/about", get(about::about))
        .at("/version", get(about::version))
        .at("/isolate", get(about::isolate))
        .at("/license", get(about::license))
        // The shell has already checked the token.
        .at("/authenticate", post(|_who: TokenPrincipal| async { StatusCode::OK }))
        .at("/authorize", post(|_who: TokenPrincipal| async { StatusCode::OK }))
        .with_state(face)
        .method_not_allowed_fallback(|| async {
            Judge0Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
        })
        .fallback(|| async { Judge0Failure::new(StatusCode::NOT_FOUND, "there is no such path") })
}

/// Renders the shell's own errors (no token, too large, shutting down) in Judge0's shape, for
/// [`node::http::CompatFace::render`].
pub fn render_error(error: &node::http::HttpError) -> Response {
    Judge0Failure::from(error.clone()).into_response()
}

impl Judge0Failure {
    fn new(status: StatusCode, message: impl Into<String>) -> Judge0Failure {
        Judge0Failure { status, body: json!({ "error": message.into() }), retry_after: None }
    }

    fn bad(message: impl Into<String>) -> Judge0Failure {
        Judge0Failure::new(StatusCode::BAD_REQUEST, message)
    }

    fn not_text() -> Judge0Failure {
        Judge0Failure::bad(NOT_TEXT)
    }
}

const NOT_TEXT: &str = "some attributes for this submission cannot be converted to UTF-8, \
                        use base64_encoded=true query parameter";

impl From<Complaints> for Judge0Failure {
    fn from(complaints: Complaints) -> Judge0Failure {
        let body = json!(complaints);
        Judge0Failure { status: StatusCode::UNPROCESSABLE_ENTITY, body, retry_after: None }
    }
}

impl From<ExecutionError> for Judge0Failure {
    fn from(error: ExecutionError) -> Judge0Failure {
        let retry_after = error.retry_after().map(|wait| wait.as_secs().max(1));
        let failure = match &error {
            ExecutionError::Refused(refusal) => Judge0Failure::from(submission::complaint(refusal)),
            // Judge0's message, which clients know, whichever limit is reached.
            ExecutionError::QueueFull { .. }
            | ExecutionError::QueueBytesFull { .. }
            | ExecutionError::TooManyWaiting { .. }
            | ExecutionError::TooManyBytesWaiting { .. } => {
                Judge0Failure::new(StatusCode::SERVICE_UNAVAILABLE, "queue is full")
            }
            _ => Judge0Failure::from(node::http::HttpError::from(error)),
        };
        Judge0Failure { retry_after, ..failure }
    }
}

impl From<node::http::HttpError> for Judge0Failure {
    fn from(error: node::http::HttpError) -> Judge0Failure {
        Judge0Failure::new(error.status(), error.to_string())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathSegment {
    type Rejection = Judge0Failure;

    async fn from_request_parts(
        parts: &mut RequestParts,
        state: &S,
    ) -> Result<PathSegment, Judge0Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| PathSegment(text))
            .map_err(|_| Judge0Failure::bad("the path is not UTF-8"))
    }
}

impl IntoResponse for Judge0Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Query parameters that apply to every submission in the request and the answer.
#[derive(Debug, Default)]
struct SubmissionQuery {
    parameters: Vec<(String, String)>,
}

impl SubmissionQuery {
    fn new(query: Option<&str>) -> SubmissionQuery {
        SubmissionQuery { parameters: parameters(query.unwrap_or_default()) }
    }

    /// Returns the last value of a name, as in Rails.
    fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.parameters.iter().rev().filter(|(key, _)| key == name);
        values.next().map(|(_, value)| value.as_str())
    }

    fn base64(&self, config: &Judge0Config) -> bool {
        match self.get("base64_encoded") {
            Some(value) => value != "false",
            None => !config.disable_implicit_base64_encoding,
        }
    }

    fn texts(&self, config: &Judge0Config) -> TextEncoding {
        if self.base64(config) { TextEncoding::Base64 } else { TextEncoding::Plain }
    }

    fn fields(&self) -> Result<Vec<&'static str>, Judge0Failure> {
        let all = || FIELDS.iter().chain(&MADE_FIELDS).copied();
        let known = all().chain(NAMED_FIELDS);
        let Some(names) = self.get("fields").filter(|fields| !fields.trim().is_empty()) else {
            return Ok(DEFAULT_FIELDS.to_vec());
        };
        let mut fields = Vec::new();
        let mut invalid = Vec::new();
        for name in names.split(',').map(str::trim) {
            match known.clone().find(|field| *field == name) {
                _ if name == "*" => return Ok(all().collect()),
                Some(field) => fields.push(field),
                None => invalid.push(excerpt(name)),
            }
        }
        match *invalid {
            [] => Ok(fields),
            [..] => Err(Judge0Failure::bad(format!("invalid fields: [{}]", invalid.join(", ")))),
        }
    }

    /// Parses a number from 1.
    fn counting(&self, name: &str, default: usize) -> Result<usize, Judge0Failure> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| Judge0Failure::bad(format!("invalid {name}: {}", excerpt(text))))
    }
}

/// Returns the parameters of a body, which is JSON or a form.
async fn body(request: Request) -> Result<Map<String, Value>, Judge0Failure> {
    let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind.is_some_and(|kind| kind.starts_with(b"application/x-www-form-urlencoded")) {
        let bytes = to_bytes(request.into_body(), FORM_BYTES_MAX).await.map_err(|_| {
            let message = format!("a form has at most {FORM_BYTES_MAX} bytes; send JSON");
            Judge0Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        })?;
        // Some clients send JSON with the content type of a form.
        if let Ok(Value::Object(body)) = serde_json::from_slice(&bytes) {
            return Ok(body);
        }
        let text = String::from_utf8_lossy(&bytes);
        let pairs = parameters(&text).into_iter();
        return Ok(pairs.map(|(name, value)| (name, Value::String(value))).collect());
    }
    let JsonBody(body) = JsonBody::<Value>::from_request(request, &()).await?;
    match body {
        Value::Object(body) => Ok(body),
        _ => Err(Judge0Failure::bad("the request body must be a JSON object")),
    }
}

async fn create(
    State(face): State<Judge0Context>,
    who: TokenPrincipal,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Judge0Failure> {
    let query = SubmissionQuery::new(query.as_deref());
    let wait = query.get("wait").is_some_and(|wait| wait == "true");
    let fields = query.fields()?;
    let languages = face.languages().await;
    let body = body(request).await?;
    let (base64, config) = (query.base64(&face.config), Arc::clone(&face.config));
    let mut copies_left = face.copies_max();
    let parse = move || {
        let parsed = submission::parse(&body, base64, &languages, &config, &mut copies_left);
        (parsed, languages)
    };
    let (parsed, languages) = face.aside(parse).await?;
    let records = Box::pin(face.jobs.submit(&who.token_id, vec![parsed?])).await?;
    let record = records
        .into_iter()
        .next()
        .ok_or_else(|| Judge0Failure::from(node::http::HttpError::internal()))?;
    let token = token::of(&record.id);
    if !wait {
        let answer = json!({ "token": token });
        return Ok(AnswerDocument::of_tree(answer).answer(StatusCode::CREATED));
    }
    face.jobs.ended(&who.token_id, &record.id).await?;
    let submitted = face.submitted_with_files(&who, &token, &fields).await?;
    let layout = SubmissionLayout { fields, texts: query.texts(&face.config), languages };
    let rendered = layout.render(submitted).await?;
    // The submission was accepted and has run: its token must not be lost.
    let lost = |NotText| json!({ "token": token, "error": NOT_TEXT });
    let answer = rendered.document.unwrap_or_else(lost);
    Ok(AnswerDocument::of_tree(answer).held(rendered.room).answer(StatusCode::CREATED))
}

async fn create_batch(
    State(face): State<Judge0Context>,
    who: TokenPrincipal,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    let query = SubmissionQuery::new(query.as_deref());
    let mut body = body(request).await?;
    let Some(Value::Array(submissions)) = body.remove("submissions") else {
        return Err(Judge0Failure::bad("submissions must be an array"));
    };
    face.check_batch(submissions.len())?;
    let languages = face.languages().await;
    let (base64, config) = (query.base64(&face.config), Arc::clone(&face.config));
    let copies_left = face.copies_max();
    let parse = move || parse_batch(submissions, base64, &languages, &config, copies_left);
    let (mut answers, accepted) = face.aside(parse).await?;
    if accepted.is_empty() {
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, axum::Json(Value::Array(answers))));
    }
    let records = face.submit_all(&who, accepted).await?;
    let places = answers.iter_mut().filter(|answer| answer.is_null());
    for (place, answer) in places.zip(records) {
        *place = answer;
    }
    let none = !answers.iter().any(|answer| answer.get("token").is_some());
    let status = if none { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::CREATED };
    Ok((status, axum::Json(Value::Array(answers))))
}

/// Returns error messages in the positions of refused submissions, null in the others.
fn parse_batch(
    submissions: Vec<Value>,
    base64: bool,
    languages: &[NumberedLanguage],
    config: &Judge0Config,
    mut copies_left: u64,
) -> (Vec<Value>, Vec<JobSubmission>) {
    let mut answers = Vec::with_capacity(submissions.len());
    let mut accepted = Vec::new();
    for parameters in submissions {
        let parsed = match parameters.as_object() {
            None => Err(complaint("base", "must be an object")),
            Some(one) => submission::parse(one, base64, languages, config, &mut copies_left),
        };
        answers.push(match parsed {
            Err(complaints) => json!(complaints),
            Ok(parsed) => {
                accepted.push(parsed);
                Value::Null
            }
        });
    }
    (answers, accepted)
}

fn complaint(field: &str, message: &str) -> Complaints {
    Complaints::from([(field.to_owned(), vec![message.to_owned()])])
}

async fn show(
    State(face): State<Judge0Context>,
    who: TokenPrincipal,
    PathSegment(token): PathSegment,
    RawQuery(query): RawQuery,
) -> LongAnswer {
    let query = SubmissionQuery::new(query.as_deref());
    let fields = query.fields()?;
    let languages = face.languages().await;
    let submitted = face.submitted_with_files(&who, &token, &fields).await?;
    let layout = SubmissionLayout { fields, texts: query.texts(&face.config), languages };
    let RenderedSubmission { document, room } = layout.render(submitted).await?;
    let document = document.map_err(|NotText| Judge0Failure::not_text())?;
    Ok(AnswerDocument::of_tree(document).held(room).answer(StatusCode::OK))
}

async fn show_batch(
    State(face): State<Judge0Context>,
    who: TokenPrincipal,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> LongAnswer {
    let query = SubmissionQuery::new(query.as_deref());
    let fields = query.fields()?;
    let header = headers.get("tokens").and_then(|value| value.to_str().ok());
    let tokens = query.get("tokens").or(header).unwrap_or_default();
    let tokens: Vec<&str> = tokens.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
    face.check_batch(tokens.len())?;
    let languages = face.languages().await;
    let layout = SubmissionLayout { fields, texts: query.texts(&face.config), languages };
    let mut documents = Vec::with_capacity(tokens.len());
    let mut rooms = Vec::new();
    for token in tokens {
        documents.push(match face.submitted(&who, token).await {
            Ok(submitted) => {
                let RenderedSubmission { document, room } = layout.render(submitted).await?;
                rooms.extend(room);
                document.map_err(|NotText| Judge0Failure::not_text())?
            }
            Err(failure) if failure.status == StatusCode::NOT_FOUND => Value::Null,
            Err(failure) => return Err(failure),
        });
    }
    let answer = tree([("submissions", Value::Array(documents))]);
    Ok(AnswerDocument::of_tree(answer).held(rooms).answer(StatusCode::OK))
}

/// Builds an object from its members without copying them.
fn tree<const COUNT: usize>(members: [(&str, Value); COUNT]) -> Value {
    Value::Object(members.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}

async fn list(
    State(face): State<Judge0Context>,
    who: TokenPrincipal,
    RawQuery(query): RawQuery,
) -> LongAnswer {
    let query = SubmissionQuery::new(query.as_deref());
    let fields = query.fields()?;
    let page = query.counting("page", 1)?;
    let per_page = query.counting("per_page", 20)?.min(PER_PAGE_MAX);
    let languages = face.languages().await;
    let first = (page - 1).saturating_mul(per_page);
    let (mut total, mut tokens) = (0_usize, Vec::new());
    face.each(&who, LISTED_MAX, |job| {
        if total >= first && tokens.len() < per_page {
            tokens.push(token::of(&job.id));
        }
        total += 1;
    })
    .await?;
    let layout = SubmissionLayout { fields, texts: query.texts(&face.config), languages };
    let mut documents = Vec::with_capacity(tokens.len());
    let mut rooms = Vec::new();
    for token in tokens {
        match face.submitted(&who, &token).await {
            Ok(submitted) => {
                let RenderedSubmission { document, room } = layout.render(submitted).await?;
                rooms.extend(room);
                documents.push(document.map_err(|NotText| Judge0Failure::not_text())?);
            }
            // Removed since it was listed.
            Err(failure) if failure.status == StatusCode::NOT_FOUND => {}
            Err(failure) => return Err(failure),
        }
    }
    let pages = total.div_ceil(per_page);
    let meta = json!({
        "current_page": page,
        "next_page": (page < pages).then_some(page + 1),
        "prev_page": (page > 1).then(|| page - 1),
        "total_pages": pages,
        "total_count": total,
    });
    let answer = tree([("submissions", Value::Array(documents)), ("meta", meta)]);
    Ok(AnswerDocument::of_tree(answer).held(rooms).answer(StatusCode::OK))
}

async fn delete(
    State(face): State<Judge0Context>,
    who: TokenPrincipal,
    PathSegment(token): PathSegment,
    RawQuery(query): RawQuery,
) -> LongAnswer {
    if !face.config.enable_submission_delete {
        return Err(Judge0Failure::new(StatusCode::FORBIDDEN, "delete not allowed"));
    }
    let query = SubmissionQuery::new(query.as_deref());
    let fields = query.fields()?;
    let languages = face.languages().await;
    let submitted = face.submitted_with_files(&who, &token, &fields).await?;
    if !submitted.is_final() {
        let id = submitted.status();
        let status = render::STATUSES.get(id.saturating_sub(1)).copied().unwrap_or_default();
        let message = format!("submission cannot be deleted because its status is {id} ({status})");
        return Err(Judge0Failure::bad(message));
    }
    let layout = SubmissionLayout { fields, texts: query.texts(&face.config), languages };
    let RenderedSubmission { document, room } = layout.render(submitted).await?;
    let document = document.map_err(|NotText| Judge0Failure::not_text())?;
    let removed = face.jobs.queue().remove(who.token_id.to_string(), token::id(&token)).await;
    removed.map_err(ExecutionError::from)?;
    Ok(AnswerDocument::of_tree(document).held(room).answer(StatusCode::OK))
}

/// Options for rendering submissions in answers.
struct SubmissionLayout {
    fields: Vec<&'static str>,
    texts: TextEncoding,
    languages: Arc<[NumberedLanguage]>,
}

/// A submission in Judge0's fields.
struct RenderedSubmission {
    document: Result<Value, NotText>,
    /// Memory reserved for its content.
    room: Option<AnswerMemory>,
}

impl SubmissionLayout {
    async fn render(
        &self,
        mut submitted: SubmissionView,
    ) -> Result<RenderedSubmission, Judge0Failure> {
        let (fields, texts) = (self.fields.clone(), self.texts);
        let languages = Arc::clone(&self.languages);
        let bytes = submitted.stored_bytes();
        let render = move || RenderedSubmission {
            room: submitted.room.take(),
            document: submitted.render(fields, texts, &languages),
        };
        aside(bytes, render).await.map_err(unread)
    }
}

/// Reports that work on a stored submission failed.
fn unread(error: JoinError) -> Judge0Failure {
    tracing::error!(%error, "failed to read a submission");
    Judge0Failure::from(node::http::HttpError::internal())
}

impl Judge0Context {
    async fn languages(&self) -> Arc<[NumberedLanguage]> {
        languages::all(&self.service.languages().await.languages).into()
    }

    fn check_batch(&self, count: usize) -> Result<(), Judge0Failure> {
        let max = self.config.max_submission_batch_size;
        if count == 0 {
            return Err(Judge0Failure::bad("there should be at least one submission in a batch"));
        }
        if count > max {
            let message =
                format!("number of submissions in a batch should be less than or equal to {max}");
            return Err(Judge0Failure::bad(message));
        }
        Ok(())
    }

    /// Returns the maximum bytes of input and expected output over all runs of a request.
    fn copies_max(&self) -> u64 {
        self.service.planner().config().tests_bytes_max
    }

    /// Runs long work on a blocking thread, with bounded concurrency because of its memory.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Judge0Failure> {
        let internal = || Judge0Failure::from(node::http::HttpError::internal());
        let permit = Arc::clone(&self.aside).acquire_owned().await.map_err(|_| internal())?;
        let work = move || {
            // Held by the work itself, which continues when its caller no longer waits.
            let _permit = permit;
            work()
        };
        node::task::blocking(work).await.map_err(|_| internal())
    }

    /// Accepts together all submissions that can be run; the others get error messages in their
    /// positions.
    async fn submit_all(
        &self,
        who: &TokenPrincipal,
        submissions: Vec<JobSubmission>,
    ) -> Result<Vec<Value>, Judge0Failure> {
        let mut answers = Vec::with_capacity(submissions.len());
        let mut checked = Vec::with_capacity(submissions.len());
        for submission in submissions {
            match Box::pin(self.jobs.check(&who.token_id, submission)).await {
                Ok(one) => {
                    checked.push(one);
                    answers.push(Value::Null);
                }
                Err(ExecutionError::Refused(refusal)) => {
                    answers.push(json!(submission::complaint(&refusal)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !checked.is_empty() {
            let records = self.jobs.accept(&who.token_id, checked).await?;
            let places = answers.iter_mut().filter(|answer| answer.is_null());
            for (place, record) in places.zip(records) {
                *place = json!({ "token": token::of(&record.id) });
            }
        }
        Ok(answers)
    }

    /// Like [`Judge0Context::submitted`], with additional files if they are requested. Those are
    /// only for answers about one submission: a page of them would take hundreds of megabytes.
    async fn submitted_with_files(
        &self,
        who: &TokenPrincipal,
        token: &str,
        fields: &[&str],
    ) -> Result<SubmissionView, Judge0Failure> {
        let submitted = self.submitted(who, token).await?;
        if !fields.contains(&"additional_files") {
            return Ok(submitted);
        }
        self.aside(move || submitted.packed()).await
    }

    /// Returns a submission of this caller, with all its data.
    async fn submitted(
        &self,
        who: &TokenPrincipal,
        token: &str,
    ) -> Result<SubmissionView, Judge0Failure> {
        let parts = JobParts { request: true, result: true };
        let id = token::id(token);
        let fetched =
            self.jobs.fetch(Some(&who.token_id), &id, parts, AnswerPatience::Caller).await;
        let job = match fetched {
            Ok((job, room)) => {
                let bytes = job.stored_bytes();
                let read = move || SubmissionView::of(job).map(|view| view.holding(room));
                aside(bytes, read).await.map_err(unread)?
            }
            Err(error) if error.code() == ErrorCode::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        job.ok_or_else(|| {
            let message = format!("there is no submission with the token {:?}", excerpt(token));
            Judge0Failure::new(StatusCode::NOT_FOUND, message)
        })
    }

    /// Returns Judge0's number of a submission's language; None if it no longer exists.
    async fn language_of(
        &self,
        who: &TokenPrincipal,
        id: &ExecutionId,
    ) -> Result<Option<u64>, Judge0Failure> {
        match self.jobs.job(&who.token_id, id, JobParts::default()).await {
            Ok(job) => Ok(SubmissionRecord::of(&job).map(|remembered| remembered.language_id)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Visits this caller's submissions, newest first, as lists have them: without the data that
    /// the face stores with a job.
    async fn each(
        &self,
        who: &TokenPrincipal,
        max: usize,
        mut inspect: impl FnMut(&crate::queue::QueuedJob),
    ) -> Result<(), Judge0Failure> {
        let mut before = None;
        let mut left = max;
        while left > 0 {
            let limit = CHUNK.min(left);
            let label = Some(LABEL.to_owned());
            let filter = JobFilter { label, before: before.take(), limit, ..JobFilter::default() };
            let jobs = self.jobs.jobs(&who.token_id, filter).await?;
            jobs.iter().for_each(&mut inspect);
            left -= jobs.len().min(left);
            match jobs.last() {
                Some(last) if jobs.len() == limit => before = Some(last.id.clone()),
                _ => break,
            }
        }
        Ok(())
    }
}
