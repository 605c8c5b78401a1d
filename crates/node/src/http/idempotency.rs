//! Responses to `POST` requests by a key that the client chose: a request that is sent twice with
//! one key is executed once, and answered twice.
//!
//! A key belongs to the token and is kept in the store, so that it holds across connections, nodes
//! and restarts. Stored responses are sealed, because they may contain secrets.
//!
//! - **Success is stored, failure is not.** A failed request has created nothing, and clients retry
//!   with the same key after 429 and 503.
//! - **A request with a key is carried out to its end**, even if its client disconnects: the client
//!   retries for the answer. Commands, cells and messages are the exception
//!   ([`KeyedRequests::EndWithClient`]): they run only while their client waits.
//! - **An unknown outcome is reported.** If the server ended in the middle, or an answer was a
//!   stream or too long to store, the second request is refused instead of being carried out again.
//!
//! # References
//! - <https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header>

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use api::ErrorCode;
use api::operations::{self, KeyedRequests, OperationMethod};
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::error::HttpError;
use super::json::{self, BodyBudget, content_length};
use super::shell::PeerHop;
use crate::auth::TokenPrincipal;
use crate::clock::IdGenerator;
use crate::sealed::Sealer;
use crate::store::{
    MigrationStep, SqlStore, SqlStoreError, SqlValue, StoreDialect, StoreTransaction,
};

/// The request header with the key.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Header of a repeated answer: `true`.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 255;
/// Time for which a key is stored, from its first request.
const KEY_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// Maximum number of keys of one token; beyond it, the oldest are removed first.
const KEYS_PER_TOKEN_MAX: i64 = 2048;
/// Number of new keys on one server between two removals of old keys.
const KEYS_PER_CLEANING: u32 = 64;
/// Longest body of an answer that is stored.
const KEPT_BYTES_MAX: u64 = 32 << 10;
/// Time that a second request waits for the end of the first.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Interval at which it checks whether another node has finished the first.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Service that the table belongs to, and purpose of its key.
const SERVICE: &str = "idempotency";

const MIGRATIONS: &[MigrationStep] = &[MigrationStep::Same(
    "CREATE TABLE cove_idempotency_keys (
        token_id TEXT NOT NULL,
        idempotency_key TEXT NOT NULL,
        fingerprint BYTEA NOT NULL,
        server_run TEXT NOT NULL,
        state TEXT NOT NULL,
        answer BYTEA,
        begun_ms BIGINT NOT NULL,
        PRIMARY KEY (token_id, idempotency_key)
    );
    CREATE INDEX cove_idempotency_keys_begun ON cove_idempotency_keys (begun_ms);
    CREATE INDEX cove_idempotency_keys_token ON cove_idempotency_keys (token_id, begun_ms)",
)];

/// States of a key in the store.
const BEGUN: &str = "begun";
const ANSWERED: &str = "answered";
/// Carried out; the answer is not stored.
const NOT_KEPT: &str = "not_kept";

/// Keys of requests, and the stored answers.
#[derive(Clone)]
pub struct IdempotencyKeys(Arc<KeyStore>);

struct KeyStore {
    store: SqlStore,
    sealer: Sealer,
    /// Name of this run of the server: requests of another run on one machine have ended with it.
    server_run: String,
    /// Number of requests that this run has begun.
    begun: AtomicU64,
    /// Requests that this server carries out; each entry is dropped at the end.
    running: Mutex<HashMap<KeyId, watch::Receiver<()>>>,
    uncleaned: AtomicU32,
}

/// Name of a key, unique in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KeyId {
    token_id: Arc<str>,
    key: Arc<str>,
}

/// A request with a key.
#[derive(Debug)]
pub(super) struct KeyedRequest {
    id: KeyId,
    fingerprint: [u8; 32],
    ends_with_client: bool,
}

/// Claim of a request on its key.
enum KeyClaim {
    /// The first request with its key, to be carried out.
    First(RunningKey),
    /// A request whose answer is known.
    Answered(KeptAnswer),
}

/// A request that is carried out. Dropping it notifies waiting requests.
struct RunningKey {
    keys: Arc<KeyStore>,
    id: KeyId,
    /// Unique name of this request: the run of the server, and a number.
    mark: String,
    _ended: watch::Sender<()>,
}

/// A stored answer.
#[derive(Debug, PartialEq, Eq)]
struct KeptAnswer {
    head: KeptHead,
    body: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptHead {
    status: u16,
    headers: Vec<(String, String)>,
}

/// A row of the store.
struct StoredKey {
    fingerprint: Vec<u8>,
    server_run: String,
    state: String,
    answer: Option<Vec<u8>>,
}

impl fmt::Debug for IdempotencyKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKeys").finish_non_exhaustive()
    }
}

impl KeyedRequest {
    /// Takes the key from a request, and reads its body unless it is streamed (`is_streaming`), for
    /// the comparison with an earlier one. None for a request without a key, and for one whose key
    /// the shell ignores. `route` is the path pattern.
    ///
    /// # Errors
    /// For an invalid key, and a body that cannot be read.
    pub(super) async fn take(
        request: &mut Request,
        route: &str,
        is_streaming: bool,
    ) -> Result<Option<KeyedRequest>, HttpError> {
        if *request.method() != Method::POST || !request.headers().contains_key(IDEMPOTENCY_KEY) {
            return Ok(None);
        }
        let is_hop = request.extensions().get::<PeerHop>().is_some();
        // Requests at unknown paths get an error, and errors are not stored.
        let operation = operations::find(OperationMethod::Post, route);
        let keys = operation.map_or(KeyedRequests::Kept, |it| it.keys);
        let ends_with_client = match keys {
            _ if is_hop => return Ok(None),
            KeyedRequests::Ignored | KeyedRequests::OfOperation => return Ok(None),
            KeyedRequests::Kept => false,
            KeyedRequests::EndWithClient => true,
        };
        let Some(principal) = request.extensions().get::<TokenPrincipal>() else { return Ok(None) };
        let token_id = Arc::clone(&principal.token_id);
        let key = key_of(request.headers())?;
        request.headers_mut().remove(IDEMPOTENCY_KEY);
        let mut hash = Sha256::new();
        let target = request.uri().path_and_query().map_or("/", |it| it.as_str());
        hash.update(target.len().to_le_bytes());
        hash.update(target);
        let body = match is_streaming {
            // Two uploads of one length to one place count as equal.
            true => content_length(request.headers()).unwrap_or(0).to_le_bytes().to_vec(),
            false => read_body(request).await?,
        };
        hash.update(body);
        let id = KeyId { token_id, key };
        Ok(Some(KeyedRequest { id, fingerprint: hash.finalize().into(), ends_with_client }))
    }

    /// Returns whether the work of the request ends with the connection of its client.
    pub(super) const fn ends_with_client(&self) -> bool {
        self.ends_with_client
    }
}

fn key_of(headers: &HeaderMap) -> Result<Arc<str>, HttpError> {
    let refuse = |why: String| HttpError::invalid(why).at(IDEMPOTENCY_KEY.as_str());
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(refuse("is specified twice".to_owned()));
    };
    let text = value.to_str().map_err(|_| refuse("must be printable ASCII".to_owned()))?;
    match text.len() {
        1..=KEY_BYTES_MAX => Ok(text.into()),
        _ => Err(refuse(format!("must have 1 to {KEY_BYTES_MAX} bytes"))),
    }
}

/// Reads the body within its budget, and leaves a copy to the handler.
async fn read_body(request: &mut Request) -> Result<Vec<u8>, HttpError> {
    let budget = request.extensions().get::<BodyBudget>().cloned();
    let budget = budget.ok_or_else(HttpError::internal)?;
    let declared = content_length(request.headers());
    let bytes = json::read(std::mem::take(request.body_mut()), &budget, declared).await?;
    let digest = Sha256::digest(&bytes).to_vec();
    *request.body_mut() = Body::from(bytes);
    Ok(digest)
}

impl IdempotencyKeys {
    /// Stores keys in `store`, and answers sealed with a key that is derived from `sealer`'s.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn open(
        store: SqlStore,
        sealer: &Sealer,
        ids: &IdGenerator,
    ) -> Result<IdempotencyKeys, SqlStoreError> {
        store.migrate(SERVICE, MIGRATIONS).await?;
        Ok(IdempotencyKeys(Arc::new(KeyStore {
            store,
            sealer: Sealer::new(&sealer.derived_key(SERVICE)),
            server_run: ids.next("run_"),
            begun: AtomicU64::new(0),
            running: Mutex::default(),
            uncleaned: AtomicU32::new(KEYS_PER_CLEANING),
        })))
    }

    /// Answers a request: by `handler` the first time, by its stored answer later.
    pub(super) async fn answer(
        &self,
        request: KeyedRequest,
        handler: impl Future<Output = Response>,
    ) -> Response {
        match self.claim(&request).await {
            Ok(KeyClaim::First(running)) => running.carry_out(handler.await).await,
            Ok(KeyClaim::Answered(kept)) => kept.into_response(),
            Err(error) => error.into_response(),
        }
    }

    /// Answers a request of a face that authenticates its callers itself: by `handler` the first
    /// time, by its stored answer later. `owner` must be unique among all faces; `fingerprint`
    /// covers all parts of the request that may not differ.
    ///
    /// The caller keeps the handler running if its client disconnects.
    ///
    /// # Errors
    /// If the key was used for another request, or for one whose answer is not known. A failure of
    /// the handler is in the result, and not stored.
    pub async fn answer_once<E>(
        &self,
        owner: &str,
        key: &str,
        fingerprint: [u8; 32],
        handler: impl Future<Output = Result<Response, E>>,
    ) -> Result<Result<Response, E>, HttpError> {
        let id = KeyId { token_id: owner.into(), key: key.into() };
        let request = KeyedRequest { id, fingerprint, ends_with_client: false };
        let running = match self.claim(&request).await? {
            KeyClaim::First(running) => running,
            KeyClaim::Answered(kept) => return Ok(Ok(kept.into_response())),
        };
        match handler.await {
            Ok(response) => Ok(Ok(running.carry_out(response).await)),
            Err(error) => {
                self.0.end(&running, None).await;
                Ok(Err(error))
            }
        }
    }

    /// Waits until the key is free or answered.
    async fn claim(&self, request: &KeyedRequest) -> Result<KeyClaim, HttpError> {
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        loop {
            // Before the store is queried: it may end in between.
            let local = self.0.running.lock().get(&request.id).cloned();
            if local.is_none() {
                let running = RunningKey::enter(&self.0, &request.id);
                let Some(running) = running else { continue };
                match self.0.begin(request, &running.mark).await? {
                    None => return Ok(KeyClaim::First(running)),
                    Some(stored) => match self.0.outcome(request, stored)? {
                        Some(kept) => return Ok(KeyClaim::Answered(kept)),
                        // Another node carries it out.
                        None => drop(running),
                    },
                }
            }
            let ended = async {
                match local {
                    // Its sender never sends, so this is its end.
                    Some(mut local) => drop(local.changed().await),
                    None => tokio::time::sleep(LOOK_INTERVAL).await,
                }
            };
            if tokio::time::timeout_at(deadline, ended).await.is_err() {
                let message = "the request with this key is still being carried out, or the node that \
                    did it is gone";
                let error = HttpError::new(ErrorCode::Conflict, message);
                return Err(error.at(IDEMPOTENCY_KEY.as_str()).retry_after(LOOK_INTERVAL));
            }
        }
    }
}

impl KeyStore {
    /// Records the start of a request. Returns the row of an earlier one with the key, if there is
    /// one.
    async fn begin(
        &self,
        request: &KeyedRequest,
        mark: &str,
    ) -> Result<Option<StoredKey>, HttpError> {
        let now_ms = self.store.now_ms();
        let life_ms = u64::try_from(KEY_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        let old = number(now_ms.saturating_sub(life_ms));
        let [token, key] = request.id.parameters();
        let row =
            [token, key, SqlValue::from(request.fingerprint.to_vec()), mark.into(), number(now_ms)];
        let mark = mark.to_owned();
        let cleans = self.uncleaned.fetch_add(1, Ordering::Relaxed) >= KEYS_PER_CLEANING;
        if cleans {
            self.uncleaned.store(0, Ordering::Relaxed);
        }
        let begun = self.store.transact_idempotent("idempotency.begin", move |it| {
            if cleans {
                forget(it, &row[0], &old)?;
            }
            let sql = "SELECT fingerprint, server_run, state, answer FROM cove_idempotency_keys \
                WHERE token_id = $1 AND idempotency_key = $2 AND begun_ms > $3";
            let found = it.query_one(sql, &[row[0].clone(), row[1].clone(), old.clone()])?;
            let found = found.map(|found| StoredKey::read(&found)).transpose()?;
            // Its own row exists if the connection was lost after the commit.
            if let Some(found) = found.filter(|it| it.server_run != mark) {
                return Ok(Some(found));
            }
            // An existing row has expired, or is this request's own.
            let sql = "INSERT INTO cove_idempotency_keys \
                (token_id, idempotency_key, fingerprint, server_run, state, begun_ms) \
                VALUES ($1, $2, $3, $4, 'begun', $5) \
                ON CONFLICT (token_id, idempotency_key) DO UPDATE SET \
                fingerprint = excluded.fingerprint, server_run = excluded.server_run, \
                state = excluded.state, answer = NULL, begun_ms = excluded.begun_ms";
            it.execute(sql, &row)?;
            Ok(None)
        });
        begun.await.map_err(|error| {
            tracing::warn!(%error, "idempotency keys cannot be looked up");
            let message = "the store of idempotency keys does not answer; try again";
            HttpError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
        })
    }

    /// Returns the answer of an earlier request; none while another node carries it out.
    fn outcome(
        &self,
        request: &KeyedRequest,
        stored: StoredKey,
    ) -> Result<Option<KeptAnswer>, HttpError> {
        let conflict = |message: &str| {
            HttpError::new(ErrorCode::Conflict, message).at(IDEMPOTENCY_KEY.as_str())
        };
        if stored.fingerprint != request.fingerprint {
            return Err(conflict("was used for another request"));
        }
        if let Some(sealed) = stored.answer.filter(|_| stored.state == ANSWERED) {
            let opened = self.sealer.open(&sealed, &request.id.place());
            // None if the key of secrets has changed since it was sealed.
            let kept = opened.ok().and_then(|it| KeptAnswer::from_bytes(it.expose()));
            let message =
                "the request with this key was carried out; its answer cannot be read any more";
            return kept.map(Some).ok_or_else(|| conflict(message));
        }
        if stored.state == BEGUN {
            let is_of_this_run = stored.server_run.starts_with(&self.server_run);
            let of_another_node = !is_of_this_run && self.store.dialect() != StoreDialect::Sqlite;
            return match of_another_node {
                true => Ok(None),
                false => Err(conflict(
                    "the request with this key was begun and did not come to its end, because the \
                     server stopped or the client went away; see what became of it before it is \
                     sent with another key",
                )),
            };
        }
        Err(conflict(
            "the request with this key was carried out; its answer was a stream, or too long to be \
             kept",
        ))
    }

    /// Records the end of a request; without an answer, its failure.
    async fn end(&self, request: &RunningKey, answer: Option<(&'static str, Option<Vec<u8>>)>) {
        let [token, key] = request.id.parameters();
        let run = SqlValue::from(request.mark.as_str());
        let ended = self.store.transact_idempotent("idempotency.end", move |it| {
            let which = [token.clone(), key.clone(), run.clone()];
            let Some((state, answer)) = &answer else {
                let sql = "DELETE FROM cove_idempotency_keys \
                    WHERE token_id = $1 AND idempotency_key = $2 AND server_run = $3";
                return it.execute(sql, &which);
            };
            let sql = "UPDATE cove_idempotency_keys SET state = $4, answer = $5 \
                WHERE token_id = $1 AND idempotency_key = $2 AND server_run = $3";
            let answer = answer.clone().map_or(SqlValue::Null, SqlValue::from);
            let all = which.into_iter().chain([SqlValue::from(*state), answer]);
            it.execute(sql, &all.collect::<Vec<_>>())
        });
        if let Err(error) = ended.await {
            // The next request with the key gets the answer that the outcome is unknown, which is
            // true.
            tracing::warn!(%error, "the end of a request with an idempotency key is not kept");
        }
    }
}

/// Removes expired keys, and the oldest keys of a token beyond its maximum.
fn forget(
    it: &mut dyn StoreTransaction,
    token: &SqlValue,
    old: &SqlValue,
) -> Result<(), SqlStoreError> {
    let sql = "DELETE FROM cove_idempotency_keys WHERE begun_ms <= $1";
    it.execute(sql, std::slice::from_ref(old))?;
    let sql = "DELETE FROM cove_idempotency_keys WHERE token_id = $1 AND state <> 'begun' \
        AND begun_ms < (SELECT begun_ms FROM cove_idempotency_keys WHERE token_id = $1 \
        ORDER BY begun_ms DESC LIMIT 1 OFFSET $2)";
    it.execute(sql, &[token.clone(), SqlValue::from(KEYS_PER_TOKEN_MAX)]).map(drop)
}

fn number(value: u64) -> SqlValue {
    SqlValue::from(i64::try_from(value).unwrap_or(i64::MAX))
}

impl KeyId {
    fn parameters(&self) -> [SqlValue; 2] {
        [SqlValue::from(&*self.token_id), SqlValue::from(&*self.key)]
    }

    /// Returns the text that a sealed answer is bound to.
    fn place(&self) -> String {
        format!("{SERVICE} {}\n{}", self.token_id, self.key)
    }
}

impl StoredKey {
    fn read(row: &crate::store::SqlRow) -> Result<StoredKey, SqlStoreError> {
        Ok(StoredKey {
            fingerprint: row.get(0)?,
            server_run: row.get(1)?,
            state: row.get(2)?,
            answer: row.get(3)?,
        })
    }
}

impl RunningKey {
    /// Adds a request to those that this server carries out; none if it is one already.
    fn enter(keys: &Arc<KeyStore>, id: &KeyId) -> Option<RunningKey> {
        let mut running = keys.running.lock();
        if running.contains_key(id) {
            return None;
        }
        let (sender, receiver) = watch::channel(());
        running.insert(id.clone(), receiver);
        let mark = format!("{}/{}", keys.server_run, keys.begun.fetch_add(1, Ordering::Relaxed));
        Some(RunningKey { keys: Arc::clone(keys), id: id.clone(), mark, _ended: sender })
    }

    /// Stores the answer of a handler.
    async fn carry_out(self, response: Response) -> Response {
        if !response.status().is_success() {
            self.keys.end(&self, None).await;
            return response;
        }
        let length = response.body().size_hint().exact();
        if length.is_none_or(|length| length > KEPT_BYTES_MAX) {
            self.keys.end(&self, Some((NOT_KEPT, None))).await;
            return response;
        }
        let (parts, body) = response.into_parts();
        let collected = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) => {
                tracing::error!(%error, "an answer of known length broke off");
                self.keys.end(&self, Some((NOT_KEPT, None))).await;
                return HttpError::internal().into_response();
            }
        };
        let headers = parts.headers.iter().filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        });
        let head = KeptHead { status: parts.status.as_u16(), headers: headers.collect() };
        let kept = KeptAnswer { head, body: collected.to_vec() }.to_bytes();
        let sealed = kept.and_then(|bytes| self.keys.sealer.seal(&bytes, &self.id.place()).ok());
        let state = if sealed.is_some() { ANSWERED } else { NOT_KEPT };
        self.keys.end(&self, Some((state, sealed))).await;
        Response::from_parts(parts, Body::from(collected))
    }
}

impl Drop for RunningKey {
    fn drop(&mut self) {
        self.keys.running.lock().remove(&self.id);
    }
}

impl KeptAnswer {
    /// Encodes the head as a line of JSON, followed by the body.
    fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = serde_json::to_vec(&self.head).ok()?;
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        Some(bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Option<KeptAnswer> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head = serde_json::from_slice(bytes.get(..end)?).ok()?;
        Some(KeptAnswer { head, body: bytes.get(end + 1..)?.to_vec() })
    }

    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = StatusCode::from_u16(self.head.status).unwrap_or(StatusCode::OK);
        for (name, value) in self.head.headers {
            let pair = (HeaderName::try_from(name), HeaderValue::try_from(value));
            if let (Ok(name), Ok(value)) = pair {
                response.headers_mut().append(name, value);
            }
        }
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        response
    }
}
