//! Objects in a service with S3's protocol.
//!
//! The location is the operator's configuration, so private addresses are allowed.
//!
//! # References
//! - <https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html>
//! - <https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html>

use std::fmt;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::sign::{self, SignedParts, SigningCredentials};
use super::url::decoded;
use super::{
    ATTEMPTS_MAX, BucketStyle, LIST_MAX, OBJECT_BYTES_MAX, ObjectsError, PutOutcome, REQUESTS_MAX,
    S3Location, TIMEOUT, check_key,
};
use crate::client::{AddressGuard, ClientError, ClientRequest, HttpClient, TlsRoots};
use crate::clock;

/// First pause between two attempts; each later one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Maximum size of an answer that is no object: a list of [`LIST_MAX`] foreign keys with all of
/// their metadata.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const X_AMZ_CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

pub(super) struct S3Objects {
    location: S3Location,
    credentials: SigningCredentials,
    /// `http` or `https`.
    scheme: String,
    /// Host in the signature: without the default port.
    host: String,
    client: HttpClient,
    places: Semaphore,
}

impl fmt::Debug for S3Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("S3").field(&self.location.to_string()).finish()
    }
}

/// Request to the service, which may be sent more than once.
struct S3Request<'a> {
    action: &'static str,
    method: Method,
    /// Without the prefix; empty for the bucket itself.
    key: &'a str,
    /// Escaped, in the order of the names.
    query: String,
    if_absent: bool,
    body: Bytes,
    answer_bytes_max: u64,
}

struct S3Answer {
    status: StatusCode,
    body: Vec<u8>,
}

impl S3Objects {
    pub(super) fn new(location: S3Location, credentials: SigningCredentials) -> S3Objects {
        // Checked when the location was parsed.
        let uri: Uri = location.endpoint.parse().unwrap_or_default();
        let scheme = uri.scheme_str().unwrap_or("https").to_owned();
        let usual = if scheme == "https" { 443 } else { 80 };
        let port = uri.port_u16().filter(|port| *port != usual);
        let port = port.map_or(String::new(), |port| format!(":{port}"));
        let name = uri.host().unwrap_or_default();
        let host = match location.style {
            BucketStyle::Path => format!("{name}{port}"),
            BucketStyle::Virtual => format!("{}.{name}{port}", location.bucket),
        };
        let roots = location.ca.clone().map_or(TlsRoots::Machine, TlsRoots::File);
        let client = HttpClient::with_roots(AddressGuard::Open, roots);
        let places = Semaphore::new(REQUESTS_MAX);
        S3Objects { location, credentials, scheme, host, client, places }
    }

    pub(super) async fn put(&self, key: &str, body: Bytes) -> Result<(), ObjectsError> {
        let ask = S3Request { body, ..S3Request::new("write", Method::PUT, key) };
        let answer = self.ask(&ask).await?;
        if answer.status.is_success() { Ok(()) } else { Err(ask.refused(&answer)) }
    }

    pub(super) async fn put_if_absent(
        &self,
        key: &str,
        body: Bytes,
    ) -> Result<PutOutcome, ObjectsError> {
        // Before the object is sent, which is usually unnecessary for content that is named by its
        // hash.
        if self.exists(key).await? {
            return Ok(PutOutcome::Present);
        }
        let ask = S3Request { body, if_absent: true, ..S3Request::new("write", Method::PUT, key) };
        let answer = self.ask(&ask).await?;
        match answer.status {
            StatusCode::PRECONDITION_FAILED => Ok(PutOutcome::Present),
            status if status.is_success() => Ok(PutOutcome::New),
            _ => Err(ask.refused(&answer)),
        }
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Bytes>, ObjectsError> {
        let ask = S3Request {
            answer_bytes_max: OBJECT_BYTES_MAX,
            ..S3Request::new("read", Method::GET, key)
        };
        let answer = self.ask(&ask).await;
        if let Err(ObjectsError::Request { source: ClientError::TooLarge(_), .. }) = answer {
            return Err(ObjectsError::TooLarge(key.to_owned()));
        }
        let answer = answer?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body.into())),
            // A missing bucket is a mistake of the operator's.
            StatusCode::NOT_FOUND if answer.code() != "NoSuchBucket" => Ok(None),
            _ => Err(ask.refused(&answer)),
        }
    }

    pub(super) async fn exists(&self, key: &str) -> Result<bool, ObjectsError> {
        let ask = S3Request::new("look for", Method::HEAD, key);
        let answer = self.ask(&ask).await?;
        match answer.status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(ask.refused(&answer)),
        }
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), ObjectsError> {
        let ask = S3Request::new("delete", Method::DELETE, key);
        let answer = self.ask(&ask).await?;
        match answer.status {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND if answer.code() != "NoSuchBucket" => Ok(()),
            _ => Err(ask.refused(&answer)),
        }
    }

    pub(super) async fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, ObjectsError> {
        let own = &self.location.prefix;
        let mut keys = Vec::new();
        let mut position = if after.is_empty() { String::new() } else { format!("{own}{after}") };
        while keys.len() < limit {
            let count = (limit - keys.len()).min(LIST_MAX);
            let mut query = format!("encoding-type=url&list-type=2&max-keys={count}");
            query.push_str(&format!("&prefix={}", sign::escaped(&format!("{own}{prefix}"))));
            if !position.is_empty() {
                query.push_str(&format!("&start-after={}", sign::escaped(&position)));
            }
            let ask = S3Request { query, ..S3Request::new("list", Method::GET, "") };
            let answer = self.ask(&ask).await?;
            if answer.status != StatusCode::OK {
                return Err(ask.refused(&answer));
            }
            let page = page(&answer.body);
            let page = page.ok_or_else(|| ObjectsError::Malformed(prefix.to_owned()))?;
            let last = page.keys.last().cloned();
            // Foreign keys in the bucket that could be no key of this store are not listed.
            let ours = page.keys.iter().filter_map(|key| key.strip_prefix(own.as_str()));
            keys.extend(ours.filter(|key| check_key(key).is_ok()).map(str::to_owned));
            match last {
                // Every page continues after the previous one, so that the loop ends.
                Some(last) if page.is_truncated && last > position => position = last,
                _ => break,
            }
        }
        keys.truncate(limit);
        Ok(keys)
    }

    /// Sends a request until there is a final answer, or no attempt is left.
    async fn ask(&self, ask: &S3Request<'_>) -> Result<S3Answer, ObjectsError> {
        let place = self.places.acquire().await.map_err(|_| ObjectsError::Stopped)?;
        let mut pause = PAUSE_MIN;
        let mut attempt = 1;
        let result = loop {
            let result = self.try_once(ask).await;
            let is_final = match &result {
                Ok(answer) => !is_temporary(answer.status),
                Err(source) => !is_worth_another(source),
            };
            if is_final || attempt >= ATTEMPTS_MAX {
                break result;
            }
            attempt += 1;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        drop(place);
        result.map_err(|source| {
            let (action, key) = (ask.action, ask.key.to_owned());
            ObjectsError::Request { action, key, source }
        })
    }

    async fn try_once(&self, ask: &S3Request<'_>) -> Result<S3Answer, ClientError> {
        let response = self.client.send(self.request(ask)?).await?;
        let status = response.status;
        let length = response.headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        // An answer to HEAD has the length of the object, and none of its content.
        let max = ask.answer_bytes_max;
        if ask.method != Method::HEAD && length.is_some_and(|length| length > max) {
            return Err(ClientError::TooLarge(max));
        }
        let body = response.bytes().await?;
        Ok(S3Answer { status, body })
    }

    /// Builds a request with a new signature for every attempt: a signature is valid for some
    /// minutes.
    fn request(&self, ask: &S3Request<'_>) -> Result<ClientRequest, ClientError> {
        let S3Location { bucket, prefix, region, style, .. } = &self.location;
        let mut path = match style {
            BucketStyle::Path => format!("/{bucket}"),
            BucketStyle::Virtual => String::new(),
        };
        if !ask.key.is_empty() || path.is_empty() {
            path.push('/');
        }
        if !ask.key.is_empty() {
            path.push_str(&sign::escaped_path(&format!("{prefix}{}", ask.key)));
        }
        let time = sign::amz_date(clock::wall());
        let payload = sign::sha256(&ask.body);
        let mut headers =
            vec![("host", &*self.host), ("x-amz-content-sha256", &payload), ("x-amz-date", &time)];
        let token = self.credentials.session_token.as_deref();
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        let signed = SignedParts {
            method: ask.method.as_str(),
            path: &path,
            query: &ask.query,
            headers: &headers,
            payload: &payload,
            time: &time,
            region,
            service: "s3",
        };
        let authorization = sign::authorization(&self.credentials, &signed);

        let mut sent = HeaderMap::new();
        let mut add = |name: HeaderName, value: &str| {
            let value = HeaderValue::from_str(value);
            let value = value.map_err(|_| ClientError::Url("its credentials are no text"))?;
            sent.insert(name, value);
            Ok::<(), ClientError>(())
        };
        add(X_AMZ_DATE, &time)?;
        add(X_AMZ_CONTENT_SHA256, &payload)?;
        token.map_or(Ok(()), |token| add(X_AMZ_SECURITY_TOKEN, token))?;
        add(header::AUTHORIZATION, &authorization)?;
        if ask.if_absent {
            add(header::IF_NONE_MATCH, "*")?;
        }
        let query = if ask.query.is_empty() { "" } else { "?" };
        let url = format!("{}://{}{path}{query}{}", self.scheme, self.host, ask.query);
        Ok(ClientRequest {
            headers: sent,
            body: ask.body.clone(),
            timeout: TIMEOUT,
            response_bytes_max: ask.answer_bytes_max,
            ..ClientRequest::new(ask.method.clone(), url)
        })
    }
}

impl<'a> S3Request<'a> {
    fn new(action: &'static str, method: Method, key: &'a str) -> S3Request<'a> {
        S3Request {
            action,
            method,
            key,
            query: String::new(),
            if_absent: false,
            body: Bytes::new(),
            answer_bytes_max: ANSWER_BYTES_MAX,
        }
    }

    fn refused(&self, answer: &S3Answer) -> ObjectsError {
        ObjectsError::Refused {
            action: self.action,
            key: self.key.to_owned(),
            status: answer.status,
            code: answer.code(),
        }
    }
}

impl S3Answer {
    /// Returns the service's error code.
    fn code(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let code = element(&text, "Code").map_or("", |(code, _)| code);
        code.chars().filter(char::is_ascii_alphanumeric).take(100).collect()
    }
}

/// Returns whether the same request may succeed later: for failures of the service, too many
/// requests, or a concurrent writer of the same key.
pub(super) fn is_temporary(status: StatusCode) -> bool {
    let others = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT, StatusCode::CONFLICT];
    // A service that does not support a request will not support it later.
    (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED) || others.contains(&status)
}

/// Returns whether a retry may succeed. Every request here can be sent twice.
pub(super) fn is_worth_another(error: &ClientError) -> bool {
    match error {
        ClientError::Resolve { .. }
        | ClientError::Connect { .. }
        | ClientError::Http { .. }
        | ClientError::Timeout(_)
        | ClientError::Paused(_) => true,
        ClientError::Url(_)
        | ClientError::Header(_)
        | ClientError::Refused(_)
        | ClientError::Tls { .. }
        | ClientError::TlsSetup(_)
        | ClientError::TooLarge(_) => false,
    }
}

struct S3Page {
    keys: Vec<String>,
    is_truncated: bool,
}

/// Parses a list. Keys are escaped as in URLs, as the request demanded, so that no rule of XML
/// matters except where an element begins and ends.
fn page(body: &[u8]) -> Option<S3Page> {
    let text = std::str::from_utf8(body).ok()?;
    let (mut inside, _) = element(text, "ListBucketResult")?;
    let is_truncated = element(inside, "IsTruncated").is_some_and(|(text, _)| text == "true");
    let mut keys = Vec::new();
    while let Some((contents, rest)) = element(inside, "Contents") {
        let (key, _) = element(contents, "Key")?;
        // A `+` of a key is sent as `%2B`; with some services a plain one is a space, which none of
        // our keys contains.
        keys.push(decoded(key)?);
        inside = rest;
    }
    Some(S3Page { keys, is_truncated })
}

/// Returns the content of the first element with a name, and the text after it. No element within
/// it may have the same name.
fn element<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (opening, closing) = (format!("<{name}"), format!("</{name}>"));
    let mut rest = text;
    loop {
        let (_, after) = rest.split_once(&opening)?;
        // Attributes, such as `xmlns`, or a longer name.
        let (attributes, after) = after.split_once('>')?;
        if attributes.is_empty() || attributes.starts_with(char::is_whitespace) {
            return after.split_once(&closing);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests;
