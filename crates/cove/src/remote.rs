//! HTTP client of a server for the command line: its address, the credentials, and error messages.
//!
//! The client does not follow redirects, and sends a token only to a server that was named: the
//! data directory's own token is sent to this machine only.

pub(crate) mod events;
pub(crate) mod follow;
pub(crate) mod progress;
pub(crate) mod show;
pub(crate) mod signals;
pub(crate) mod socket;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use api::{ErrorBody, ErrorCode};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use node::client::{
    AddressGuard, ClientError, ClientRequest, ClientResponse, HttpClient, check_url,
};
use node::data_dir::ADDRESSES_FILE;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::ServerArgs;
use crate::config::{CoveConfig, Environment, HTTP_DEFAULT};
use crate::exit_codes::EXIT_USAGE;
use crate::exit_codes::{EXIT_COVE, EXIT_PIPE};
use crate::messages::complain;
pub(crate) use crate::plain_text::plain;
use crate::plain_text::plain_lines;
use crate::server_contexts::{ServerContext, ServerContexts};
use crate::usage_error::UsageError;

/// File of the data directory with its first token.
const TOKEN_FILE: &str = "token";
/// Largest token file and addresses file, in bytes.
const SMALL_FILE_BYTES_MAX: u64 = 4 << 10;
/// Timeout of a response. Requests that would wait longer follow events instead.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest response, in bytes: a page of records, or a record with the output of all its tests.
pub(crate) const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Largest body of an error response that is shown.
const ERROR_BYTES_SHOWN: usize = 2 << 10;

/// Kind of a failure, which determines its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The request is invalid.
    Refused,
    /// The request has more bytes than the server accepts.
    TooLarge,
    /// The server cannot or will not serve the request.
    Unavailable,
    /// No response, or a temporary failure: a later attempt may succeed.
    Lost,
}

/// Failed request, with a message for people.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct RemoteFailure {
    message: String,
    pub(crate) fault: FailureKind,
    /// Status of the response, if there was one.
    pub(crate) status: Option<StatusCode>,
}

impl RemoteFailure {
    pub(crate) fn new(fault: FailureKind, message: impl Into<String>) -> RemoteFailure {
        RemoteFailure { message: message.into(), fault, status: None }
    }

    /// Adds a remedy to the message if the request is too large.
    pub(crate) fn with_remedy_for_size(mut self, remedy: &str) -> RemoteFailure {
        if self.fault == FailureKind::TooLarge {
            self.message.push_str(": ");
            self.message.push_str(remedy);
        }
        self
    }
}

/// Server with its address and credentials. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Remote {
    client: HttpClient,
    /// Base URL without a trailing slash.
    base: String,
    /// Data directory with the server's address, if that may change with a restart of the server.
    data_dir: Option<PathBuf>,
    token: Option<HeaderValue>,
    /// Origin of the token, or the reason why there is none.
    token_origin: String,
}

/// Runs `act` with the server that `args` name, and converts the result to an exit code.
pub(crate) fn with_server(
    args: &ServerArgs,
    config: &CoveConfig,
    environment: &Environment,
    act: impl AsyncFnOnce(Remote) -> Result<u8>,
) -> ExitCode {
    let result =
        Remote::find(args.server.as_deref(), args.token_file.as_deref(), config, environment)
            .and_then(|server| in_runtime(act(server)));
    conclude(result)
}

/// Returns the URL of a local server that listens as configured, if it has not started yet.
fn configured_base(http: &str) -> String {
    let (host, port) = http.rsplit_once(':').unwrap_or((http, ""));
    if port == "0" {
        // Any free port: the default is the best guess.
        return format!("http://{HTTP_DEFAULT}");
    }
    let host = match host {
        // All addresses of the machine, including this one.
        "0.0.0.0" | "[::]" => "127.0.0.1",
        host => host,
    };
    format!("http://{host}:{port}")
}

/// Runs a future on a new runtime.
pub(crate) fn in_runtime(future: impl Future<Output = Result<u8>>) -> Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    // A blocked write of output must not keep the process alive.
    runtime.shutdown_background();
    result
}

/// Returns the exit code of a command, and prints its error.
pub(crate) fn conclude(result: Result<u8>) -> ExitCode {
    let error = match result {
        Ok(code) => return ExitCode::from(code),
        Err(error) => error,
    };
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    if kind == Some(io::ErrorKind::BrokenPipe) {
        // The reader of standard output is gone, so no message is printed.
        return ExitCode::from(EXIT_PIPE);
    }
    complain(&format!("{error:#}"));
    let refused = error
        .downcast_ref::<RemoteFailure>()
        .map(|it| matches!(it.fault, FailureKind::Refused | FailureKind::TooLarge));
    // A named file that cannot be read.
    let misnamed = matches!(
        kind,
        Some(
            io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::NotADirectory
        )
    );
    let usage = refused.unwrap_or_else(|| error.is::<UsageError>() || misnamed);
    ExitCode::from(if usage { EXIT_USAGE } else { EXIT_COVE })
}

impl Remote {
    /// Returns the server that flags, the environment, the data directory or the configuration
    /// specify.
    pub(crate) fn find(
        server: Option<&str>,
        token_file: Option<&Path>,
        config: &CoveConfig,
        environment: &Environment,
    ) -> Result<Remote> {
        let data_dir = &config.data_dir;
        let found = named_server(server, config, environment)?;
        let base = match &found {
            Some(NamedServer { url, origin, .. }) => {
                let error = |error: ClientError| UsageError(format!("{origin}: {error}"));
                check_url(url).map_err(error)?;
                if url.contains(['?', '#']) {
                    return Err(UsageError(format!("{origin}: it is the address of a page")).into());
                }
                url.trim_end_matches('/').to_owned()
            }
            None => address_in(data_dir).unwrap_or_else(|| configured_base(&config.http)),
        };
        let is_named = found.is_some();
        let context = found.and_then(|it| it.context);
        let (token, token_origin) =
            token(token_file, context.as_ref(), environment, &base, data_dir)?;
        Ok(Remote {
            client: HttpClient::new(AddressGuard::Open),
            base,
            data_dir: (!is_named).then(|| data_dir.clone()),
            token,
            token_origin,
        })
    }

    /// Returns its base URL, without a trailing slash.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Reads the address of the server again: after a restart it may have another port.
    pub(crate) fn rediscover(&mut self) {
        let found = self.data_dir.as_deref().and_then(address_in);
        if let Some(base) = found {
            self.base = base;
        }
    }

    /// Sends a request without a body.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> Result<T, RemoteFailure> {
        let request = self.request(method, path);
        self.answer(self.open(request).await?).await
    }

    /// Posts a document; `key` makes a retry harmless.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        key: Option<&str>,
    ) -> Result<T, RemoteFailure> {
        let mut request = self.request_with(Method::POST, path, body)?;
        if let Some(key) = key {
            let value = HeaderValue::from_str(key).map_err(|_| {
                RemoteFailure::new(
                    FailureKind::Refused,
                    "--idempotency-key: it must be printable ASCII",
                )
            })?;
            request.headers.insert("idempotency-key", value);
        }
        self.answer(self.open(request).await?).await
    }

    /// Returns a request with a document as its body.
    pub(crate) fn request_with(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<ClientRequest, RemoteFailure> {
        let mut request = self.request(method, path);
        let body = serde_json::to_vec(body).map_err(|error| {
            RemoteFailure::new(
                FailureKind::Refused,
                format!("the request cannot be written down: {error}"),
            )
        })?;
        request.body = body.into();
        let json = HeaderValue::from_static("application/json");
        request.headers.insert(header::CONTENT_TYPE, json);
        Ok(request)
    }

    /// Sends a request whose response is a document.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        request: ClientRequest,
    ) -> Result<T, RemoteFailure> {
        self.answer(self.open(request).await?).await
    }

    /// Returns a request to this server, with the token.
    pub(crate) fn request(&self, method: Method, path: &str) -> ClientRequest {
        let mut request = ClientRequest::new(method, format!("{}{path}", self.base));
        request.timeout = ANSWER_TIMEOUT;
        request.response_bytes_max = ANSWER_BYTES_MAX;
        if let Some(token) = &self.token {
            request.headers.insert(header::AUTHORIZATION, token.clone());
        }
        request
    }

    /// Sends a request; an error response becomes an error.
    pub(crate) async fn open(
        &self,
        request: ClientRequest,
    ) -> Result<ClientResponse, RemoteFailure> {
        let response = self.client.send(request).await.map_err(|error| self.explain(error))?;
        if response.status.is_success() {
            return Ok(response);
        }
        let (status, wait) = (response.status, retry_after(&response.headers));
        let body = response.bytes().await.unwrap_or_default();
        Err(self.refusal(status, wait, &body))
    }

    /// Sends a request whose response may be empty, which is returned as null.
    pub(crate) async fn ask_maybe(
        &self,
        request: ClientRequest,
    ) -> Result<serde_json::Value, RemoteFailure> {
        let response = self.open(request).await?;
        match response.status {
            StatusCode::NO_CONTENT => Ok(serde_json::Value::Null),
            _ => self.answer(response).await,
        }
    }

    /// Sends a request with or without a document. An empty response is returned as null.
    pub(crate) async fn ask_with(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<serde_json::Value, RemoteFailure> {
        let request = match body {
            Some(body) => self.request_with(method, path, body)?,
            None => self.request(method, path),
        };
        self.ask_maybe(request).await
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        response: ClientResponse,
    ) -> Result<T, RemoteFailure> {
        let body = response.bytes().await.map_err(|error| self.explain(error))?;
        serde_json::from_slice(&body).map_err(|error| {
            let message = format!(
                "the server at {} is not a Cove server of this version: {error}",
                self.base
            );
            RemoteFailure::new(FailureKind::Unavailable, message)
        })
    }

    /// Converts a response with a status of 300 or above to an error.
    pub(crate) fn refusal(
        &self,
        status: StatusCode,
        wait: Option<u64>,
        body: &[u8],
    ) -> RemoteFailure {
        RemoteFailure { status: Some(status), ..self.meaning(status, wait, body) }
    }

    fn meaning(&self, status: StatusCode, wait: Option<u64>, body: &[u8]) -> RemoteFailure {
        let base = &self.base;
        if let Ok(ForeignError { error }) = serde_json::from_slice(body) {
            return self.refusal_of_catalog(&error, wait);
        }
        let Ok(ErrorBody { error }) = serde_json::from_slice(body) else {
            let lost = matches!(status.as_u16(), 502..=504);
            let fault = if lost { FailureKind::Lost } else { FailureKind::Unavailable };
            let hint = match status.is_redirection() {
                true => "it leads elsewhere, which is not followed",
                false => "is it a Cove server?",
            };
            return RemoteFailure::new(
                fault,
                format!("{base} answers with status {status}: {hint}"),
            );
        };
        let message_text =
            plain_lines(&error.message.chars().take(ERROR_BYTES_SHOWN).collect::<String>());
        let field = error.field.as_deref().map(|field| format!("{}: ", plain(field)));
        let message = format!("{}{message_text}", field.unwrap_or_default());
        let later = later(wait);
        match error.code {
            ErrorCode::Unauthenticated => self.unknown(),
            ErrorCode::TooManyRequests => RemoteFailure::new(
                FailureKind::Unavailable,
                format!("too much is waiting: {message}{later}"),
            ),
            ErrorCode::Overloaded | ErrorCode::Draining => RemoteFailure::new(
                FailureKind::Lost,
                format!("the server has no room: {message}{later}"),
            ),
            ErrorCode::Internal => RemoteFailure::new(
                FailureKind::Lost,
                format!("the server at {base} failed: {message}"),
            ),
            ErrorCode::Forbidden | ErrorCode::LanguageUnavailable => {
                RemoteFailure::new(FailureKind::Unavailable, message)
            }
            ErrorCode::BodyTooLarge => RemoteFailure::new(FailureKind::TooLarge, message),
            _ => RemoteFailure::new(FailureKind::Refused, message),
        }
    }

    /// Converts an error of the catalog, which has Iceberg's format.
    fn refusal_of_catalog(&self, error: &ForeignDetail, wait: Option<u64>) -> RemoteFailure {
        let message =
            plain_lines(&error.message.chars().take(ERROR_BYTES_SHOWN).collect::<String>());
        let base = &self.base;
        match error.code {
            401 => self.unknown(),
            403 => RemoteFailure::new(FailureKind::Unavailable, message),
            503 => {
                let later = later(wait);
                RemoteFailure::new(
                    FailureKind::Lost,
                    format!("the server has no room: {message}{later}"),
                )
            }
            500.. => RemoteFailure::new(
                FailureKind::Lost,
                format!("the server at {base} failed: {message}"),
            ),
            _ => RemoteFailure::new(FailureKind::Refused, message),
        }
    }

    /// Returns the error for a rejected or missing token.
    fn unknown(&self) -> RemoteFailure {
        let (base, origin) = (&self.base, &self.token_origin);
        let message = match self.token {
            None => format!(
                "the server at {base} wants a token: set COVE_TOKEN or give --token-file ({origin})"
            ),
            Some(_) => format!("the server at {base} does not know the token of {origin}"),
        };
        RemoteFailure::new(FailureKind::Unavailable, message)
    }

    /// Converts a client error to a message with a remedy.
    pub(crate) fn explain(&self, error: ClientError) -> RemoteFailure {
        let base = &self.base;
        let (fault, says) = match &error {
            ClientError::Url(_) | ClientError::Header(_) => {
                (FailureKind::Refused, format!("{base} cannot be asked"))
            }
            ClientError::Refused(_) | ClientError::TlsSetup(_) => {
                (FailureKind::Unavailable, format!("{base} cannot be asked"))
            }
            ClientError::Connect { .. } => (
                FailureKind::Lost,
                format!("no server listens at {base}; start one with `cove serve`"),
            ),
            ClientError::Resolve { .. } => {
                (FailureKind::Lost, format!("cannot resolve the host of {base}"))
            }
            ClientError::Tls { .. } => (
                FailureKind::Unavailable,
                format!(
                    "no TLS with {base}: it may speak plain http://, or this machine does not \
                     trust its certificate"
                ),
            ),
            ClientError::Http { .. } => {
                (FailureKind::Lost, format!("{base} went away, or does not speak plain HTTP/1.1"))
            }
            ClientError::Timeout(_) | ClientError::Paused(_) => {
                (FailureKind::Lost, format!("{base} does not answer"))
            }
            ClientError::TooLarge(_) => {
                (FailureKind::Unavailable, format!("the response of {base} is too long"))
            }
        };
        let cause = format!("{:#}", anyhow::Error::new(error));
        RemoteFailure::new(fault, format!("{says} ({cause})"))
    }

    /// Returns the base URL and the token header, for a WebSocket.
    pub(crate) fn socket_parts(&self) -> (&str, Option<&HeaderValue>) {
        (&self.base, self.token.as_ref())
    }
}

/// Error response of the catalog: its code is an HTTP status.
#[derive(serde::Deserialize)]
struct ForeignError {
    error: ForeignDetail,
}

#[derive(serde::Deserialize)]
struct ForeignDetail {
    message: String,
    code: u16,
}

/// Returns the suffix of a message that says when to retry.
fn later(wait: Option<u64>) -> String {
    let later = wait.map(|it| format!("; try again in {}", span(it.saturating_mul(1000))));
    later.unwrap_or_default()
}

/// Returns the seconds after which a retry is useful, from the server's header.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

/// Returns the address of the server of a data directory.
fn address_in(data_dir: &Path) -> Option<String> {
    Some(format!("http://{}", listener_in(data_dir, "http")?))
}

/// Returns the address of a listener of a data directory's server, by name.
pub(crate) fn listener_in(data_dir: &Path, name: &str) -> Option<SocketAddr> {
    let text = read_small(&data_dir.join(ADDRESSES_FILE)).ok()?;
    let document: serde_json::Value = serde_json::from_str(&text).ok()?;
    document.get(name)?.as_str()?.parse().ok()
}

/// Server that was named explicitly.
struct NamedServer {
    url: String,
    /// Name of its source, for errors.
    origin: String,
    context: Option<ServerContext>,
}

/// Returns the server that a flag, the environment or a context names. A data directory other than
/// the default counts as named too, and takes precedence over the current context.
fn named_server(
    server: Option<&str>,
    config: &CoveConfig,
    environment: &Environment,
) -> Result<Option<NamedServer>> {
    let of_context = |name: &str, context: &ServerContext| NamedServer {
        url: context.server.clone(),
        origin: format!("context {}", plain(name)),
        context: Some(context.clone()),
    };
    if let Some(text) = server {
        if text.contains("://") {
            let (url, origin) = (text.to_owned(), "--server".to_owned());
            return Ok(Some(NamedServer { url, origin, context: None }));
        }
        let contexts = ServerContexts::load(environment)?;
        let context = contexts.get(text);
        let context = context.map_err(|error| UsageError(format!("--server: {error}")))?;
        return Ok(Some(of_context(text, context)));
    }
    if let Some(url) = environment.get("COVE_URL") {
        let (url, origin) = (url.to_owned(), "COVE_URL".to_owned());
        return Ok(Some(NamedServer { url, origin, context: None }));
    }
    if let Some(name) = environment.get("COVE_CONTEXT") {
        let contexts = ServerContexts::load(environment)?;
        let context = contexts.get(name);
        let context = context.map_err(|error| UsageError(format!("COVE_CONTEXT: {error}")))?;
        return Ok(Some(of_context(name, context)));
    }
    if environment.default_data_dir().as_ref() != Some(&config.data_dir) {
        return Ok(None);
    }
    let contexts = ServerContexts::load(environment)?;
    Ok(contexts.current()?.map(|(name, context)| of_context(name, context)))
}

/// Returns the token header, and its origin or the reason why there is none.
fn token(
    file: Option<&Path>,
    context: Option<&ServerContext>,
    environment: &Environment,
    base: &str,
    data_dir: &Path,
) -> Result<(Option<HeaderValue>, String)> {
    let of_context = context.and_then(|it| Some((it.token_file.as_deref()?, "context")));
    let (text, origin) = if let Some((path, what)) =
        file.map(|it| (it, "--token-file")).or(of_context)
    {
        let text = read_small(path)
            .map_err(|error| UsageError(format!("{what}: read `{}`: {error}", path.display())))?;
        (text, format!("`{}`", path.display()))
    } else if let Some(token) = context.and_then(|it| it.token.as_ref()) {
        (token.expose().to_owned(), "the context".to_owned())
    } else if let Some(text) = environment.get("COVE_TOKEN") {
        (text.to_owned(), "COVE_TOKEN".to_owned())
    } else if is_local(base) {
        let path = data_dir.join(TOKEN_FILE);
        match read_small(&path) {
            Ok(text) => (text, format!("`{}`", path.display())),
            Err(error) => return Ok((None, format!("`{}`: {error}", path.display()))),
        }
    } else {
        let why = "the data directory's is for servers on this machine";
        return Ok((None, why.to_owned()));
    };
    let mut value = HeaderValue::from_str(&format!("Bearer {}", text.trim()))
        .map_err(|_| UsageError(format!("{origin} does not contain a token")))?;
    value.set_sensitive(true);
    Ok((Some(value), origin))
}

/// Returns whether a URL refers to this machine.
pub(crate) fn is_local(base: &str) -> bool {
    let Ok(uri) = base.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let local = |address: std::net::IpAddr| address.is_loopback() || address.is_unspecified();
    host == "localhost" || host.parse().is_ok_and(local)
}

fn read_small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = fs::File::open(path)?;
    io::Read::read_to_string(&mut io::Read::take(file, SMALL_FILE_BYTES_MAX), &mut text)?;
    Ok(text)
}

/// Formats milliseconds for people: `1.2 s`, `3 min 20 s`.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 if !ms.is_multiple_of(1_000) => {
            format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
        }
        1_000..60_000 => format!("{} s", ms / 1_000),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

/// Returns a queue position and estimated start, as a suffix of the word `queued`.
pub(crate) fn place(position: Option<u64>, start_ms: Option<u64>) -> String {
    let place = match position {
        None => String::new(),
        Some(0) => ", the next one".to_owned(),
        Some(position) => format!(", {position} before it"),
    };
    let start = start_ms.map(|ms| format!(", starts in about {}", span(ms)));
    format!("{place}{}", start.unwrap_or_default())
}

#[cfg(test)]
mod tests;
