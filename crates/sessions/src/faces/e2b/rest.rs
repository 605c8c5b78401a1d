//! Life of sandboxes: E2B's REST interface.

mod list;
mod shapes;

use axum::Json;
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use node::auth::{Principal, Scope};
use node::http::{self, Upload};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::shapes::{Connecting, Forking, NewSandbox, Pausing, Refreshing, Snapshotting, Timeout};
use super::errors::{RestError, shown};
use super::query::parameters;
use super::sandboxes::{FACE, Kept, TIMEOUT_S, deadline, resume};
use super::tokens::{is_id, new_id};
use super::{E2b, discard};
use crate::error::Error;
use crate::service::{Extras, KeptExtras};
use api::{CreateSession, Session, SessionState};

/// Bytes of a request.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// Seconds that a sandbox lives when older clients do not say how long.
const TIMEOUT_S_BEFORE: u64 = 15;
/// The template of sandboxes with nothing in them.
const BASE: &str = "base";
/// What ids of snapshots begin with.
const SNAPSHOT_PREFIX: &str = "snap_";
/// Copies that one request may ask for.
const FORKS_MAX: usize = 64;

type Answer = Result<Response, RestError>;

/// A request that somebody may make.
struct Asked<'a> {
    face: &'a E2b,
    tenant: &'a str,
    uri: &'a Uri,
    headers: &'a HeaderMap,
}

/// Answers a request.
pub(super) async fn answer(face: &E2b, request: Request) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let segments: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    if method == Method::GET && segments == ["health"] {
        return StatusCode::OK.into_response();
    }
    let headers = request.headers().clone();
    let body = match Upload::from_request(request, &()).await {
        Ok(body) => body,
        Err(error) => return refused(&error),
    };
    let who: Principal = match http::authenticate(&face.tokens, &headers, Scope::Sessions) {
        Ok(who) => who,
        Err(error) => {
            discard(body).await;
            return refused(&error);
        }
    };
    let asked = Asked { face, tenant: &who.tenant, uri: &uri, headers: &headers };
    let answered = asked.route(&method, &segments, body).await;
    answered.unwrap_or_else(IntoResponse::into_response)
}

fn refused(error: &http::Error) -> Response {
    let mut response = RestError::from(error.clone()).into_response();
    if error.status() == StatusCode::UNAUTHORIZED {
        let scheme = axum::http::HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

/// The body as JSON; nothing at all is an object without content.
async fn read<T: DeserializeOwned>(body: Upload) -> Result<T, RestError> {
    let bytes = body.all(BODY_BYTES_MAX).await?;
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    let json = &mut serde_json::Deserializer::from_slice(text);
    serde_path_to_error::deserialize(json).map_err(|error| {
        let (path, error) = (error.path().to_string(), error.into_inner());
        RestError::invalid(format!("the body, at `{path}`: {error}"))
    })
}

fn done() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl Asked<'_> {
    async fn route(&self, method: &Method, segments: &[&str], body: Upload) -> Answer {
        let (get, post) = (method == Method::GET, method == Method::POST);
        match segments {
            ["sandboxes"] if post => self.create(read(body).await?, TIMEOUT_S_BEFORE).await,
            ["v2", "sandboxes"] if post => self.create(read(body).await?, TIMEOUT_S).await,
            ["sandboxes"] if get => self.list_running().await,
            ["v2", "sandboxes"] if get => self.list_page().await,
            ["sandboxes", "metrics"] if get => self.metrics_of_many().await,
            ["sandboxes", id] if get => self.show(id).await,
            ["sandboxes", id] if method == Method::DELETE => self.kill(id).await,
            ["sandboxes", id, "connect"] | ["v2", "sandboxes", id, "connect"] if post => {
                self.connect(id, read(body).await?).await
            }
            ["sandboxes", id, "resume"] if post => self.resume(id, read(body).await?).await,
            ["sandboxes", id, "pause"] if post => self.pause(id, read(body).await?).await,
            ["sandboxes", id, "timeout"] if post => self.timeout(id, read(body).await?).await,
            ["sandboxes", id, "refreshes"] if post => self.refresh(id, read(body).await?).await,
            ["sandboxes", id, "fork"] if post => self.fork(id, read(body).await?).await,
            ["sandboxes", id, "snapshots"] if post => self.snapshot(id, read(body).await?).await,
            ["sandboxes", id, "metrics"] if get => self.metrics(id).await,
            ["sandboxes", id, "network"] if method == Method::PUT => {
                self.network(id, read(body).await?).await
            }
            ["sandboxes", id, "logs"] if get => self.logs(id, true).await,
            ["v2", "sandboxes", id, "logs"] if get => self.logs(id, false).await,
            ["snapshots"] if get => self.snapshots().await,
            ["templates", id] if method == Method::DELETE => self.delete_template(id).await,
            _ => {
                discard(body).await;
                let path = shown(self.uri.path());
                let message = format!("{method} {path} is not served here");
                Err(RestError::new(StatusCode::NOT_FOUND, message))
            }
        }
    }

    /// A sandbox of this caller that has not ended.
    async fn find(&self, id: &str) -> Result<(Session, KeptExtras, Kept), RestError> {
        let missing = || RestError::no_sandbox(id);
        if !is_id(id) {
            return Err(missing());
        }
        let sessions = &self.face.sessions;
        let extras = match sessions.extras(self.tenant, id).await {
            Err(Error::NotFound(_) | Error::Ended) => return Err(missing()),
            other => other?,
        };
        let session = sessions.get(self.tenant, id).await?;
        if extras.face.as_deref() != Some(FACE) || session.state == SessionState::Ended {
            return Err(missing());
        }
        let kept = serde_json::from_value(extras.extra.clone()).unwrap_or_default();
        Ok((session, extras, kept))
    }

    /// How a sandbox is reached.
    fn reached(&self, id: &str, kept: &Kept) -> Value {
        let keys = &self.face.keys;
        json!({
            "templateID": kept.template,
            "sandboxID": id,
            "clientID": "cove",
            "envdVersion": super::ENVD_VERSION,
            "alias": kept.template,
            "envdAccessToken": keys.access(id),
            "trafficAccessToken": kept.private_ports.then(|| keys.traffic(id)),
            "domain": self.face.domain(self.headers),
        })
    }

    fn seconds(&self, given: Option<u64>, usual: u64) -> Result<u64, RestError> {
        let max = self.face.config.timeout_s_max;
        match given.unwrap_or(usual.min(max)) {
            seconds if seconds > max => {
                Err(RestError::invalid(format!("timeout: cannot be greater than {max} seconds")))
            }
            seconds => Ok(seconds),
        }
    }

    async fn create(&self, new: NewSandbox, usual_s: u64) -> Answer {
        new.check()?;
        let timeout_s = self.seconds(new.timeout, usual_s)?;
        let kept = new.kept();
        let mut request = CreateSession {
            env: new.env_vars.unwrap_or_default(),
            metadata: new.metadata.unwrap_or_default(),
            ..CreateSession::default()
        };
        match kept.template.as_str() {
            BASE => {}
            id if id.starts_with(SNAPSHOT_PREFIX) => request.snapshot = Some(id.to_owned()),
            name => request.agent = Some(name.to_owned()),
        }
        let id = new_id()?;
        let extras = Extras {
            face: Some(FACE),
            id: Some(id.clone()),
            deadline_ms: Some(deadline(timeout_s)),
            on_deadline: kept.on_deadline(),
            extra: json!(kept),
        };
        match self.face.sessions.create_as(self.tenant, request, extras).await {
            Err(Error::NotFound("agent" | "snapshot")) => {
                let message = format!("template '{}' not found", shown(&kept.template));
                return Err(RestError::new(StatusCode::NOT_FOUND, message));
            }
            other => other?,
        };
        if let Err(error) = self.hold(&id, &kept).await {
            self.undo(&[id]).await;
            return Err(error);
        }
        Ok((StatusCode::CREATED, Json(self.reached(&id, &kept))).into_response())
    }

    /// Ends new sandboxes of which nobody is told.
    async fn undo(&self, ids: &[String]) {
        for id in ids {
            if let Err(error) = self.face.sessions.end(self.tenant, id).await {
                tracing::warn!(sandbox = id, %error, "a sandbox was not undone, and ends later");
            }
        }
    }

    /// Keeps a sandbox from giving up its place.
    async fn hold(&self, id: &str, kept: &Kept) -> Result<(), RestError> {
        let guard = self.face.sessions.sandbox(self.tenant, id).await?;
        self.face.sandboxes.keep(&self.face.keys, self.tenant, id, kept.clone(), guard);
        Ok(())
    }

    async fn show(&self, id: &str) -> Answer {
        let (session, extras, kept) = self.find(id).await?;
        let mut detail = shapes::listed(&session, extras.deadline_ms, &kept);
        detail["envdAccessToken"] = json!(self.face.keys.access(id));
        detail["domain"] = json!(self.face.domain(self.headers));
        // No sandbox reaches anything outside.
        detail["allowInternetAccess"] = json!(false);
        let on_timeout = if kept.pauses { "pause" } else { "kill" };
        detail["lifecycle"] = json!({ "autoResume": kept.auto_resume, "onTimeout": on_timeout });
        Ok(Json(detail).into_response())
    }

    async fn kill(&self, id: &str) -> Answer {
        self.find(id).await?;
        self.face.sessions.end(self.tenant, id).await?;
        done()
    }

    async fn connect(&self, id: &str, body: Connecting) -> Answer {
        let (session, extras, kept) = self.find(id).await?;
        let status = if session.state == SessionState::Active {
            if body.timeout.is_some() {
                self.extend(id, extras.deadline_ms, self.seconds(body.timeout, TIMEOUT_S)?, &kept)
                    .await?;
            }
            StatusCode::OK
        } else {
            let seconds = self.seconds(body.timeout, TIMEOUT_S)?;
            resume(&self.face.sessions, self.tenant, id, &kept, Some(seconds)).await?;
            StatusCode::CREATED
        };
        self.hold(id, &kept).await?;
        Ok((status, Json(self.reached(id, &kept))).into_response())
    }

    /// Gives a sandbox at least so many seconds from now.
    async fn extend(
        &self,
        id: &str,
        deadline_ms: Option<u64>,
        seconds: u64,
        kept: &Kept,
    ) -> Result<(), RestError> {
        let at_ms = deadline(seconds).max(deadline_ms.unwrap_or(0));
        let sessions = &self.face.sessions;
        sessions.set_deadline(self.tenant, id, Some(at_ms), kept.on_deadline()).await?;
        Ok(())
    }

    /// What older clients have in place of `connect`.
    async fn resume(&self, id: &str, body: Connecting) -> Answer {
        let (session, _, _) = self.find(id).await?;
        if session.state == SessionState::Active {
            let message = format!("sandbox {id} is already running");
            return Err(RestError::new(StatusCode::CONFLICT, message));
        }
        self.connect(id, body).await
    }

    async fn pause(&self, id: &str, body: Pausing) -> Answer {
        let (session, _, kept) = self.find(id).await?;
        if session.state != SessionState::Active {
            let message = format!("sandbox {id} is already paused");
            return Err(RestError::new(StatusCode::CONFLICT, message));
        }
        let sessions = &self.face.sessions;
        if body.memory == Some(false) {
            sessions.stop(self.tenant, id).await?;
        } else {
            let guard = sessions.sandbox(self.tenant, id).await?;
            sessions.pause(self.tenant, id).await?;
            if let Some(live) = self.face.sandboxes.known(id) {
                live.processes.hang_up();
            }
            // A sandbox that ends meanwhile is as still.
            if let Err(error) = guard.freeze().await {
                tracing::debug!(sandbox = id, %error, "a paused sandbox was not frozen");
            }
        }
        sessions.set_deadline(self.tenant, id, None, kept.on_deadline()).await?;
        self.face.sandboxes.release(id);
        done()
    }

    async fn timeout(&self, id: &str, body: Timeout) -> Answer {
        let (session, _, kept) = self.find(id).await?;
        if session.state != SessionState::Active {
            return Err(RestError::no_sandbox(id));
        }
        let at_ms = deadline(self.seconds(Some(body.timeout), TIMEOUT_S)?);
        let sessions = &self.face.sessions;
        sessions.set_deadline(self.tenant, id, Some(at_ms), kept.on_deadline()).await?;
        done()
    }

    async fn refresh(&self, id: &str, body: Refreshing) -> Answer {
        let (session, extras, kept) = self.find(id).await?;
        if session.state != SessionState::Active {
            return Err(RestError::no_sandbox(id));
        }
        let seconds = self.seconds(body.duration, TIMEOUT_S)?;
        self.extend(id, extras.deadline_ms, seconds, &kept).await?;
        done()
    }

    async fn fork(&self, id: &str, body: Forking) -> Answer {
        let (_, _, kept) = self.find(id).await?;
        let count = body.count.unwrap_or(1);
        if !(1..=FORKS_MAX).contains(&count) {
            let message = format!("count: must be between 1 and {FORKS_MAX}");
            return Err(RestError::invalid(message));
        }
        let deadline_ms = Some(deadline(self.seconds(body.timeout, TIMEOUT_S)?));
        let mut ids = Vec::with_capacity(count);
        let mut extras = Vec::with_capacity(count);
        for _ in 0..count {
            let id = new_id()?;
            ids.push(id.clone());
            extras.push(Extras {
                face: Some(FACE),
                id: Some(id),
                deadline_ms,
                on_deadline: kept.on_deadline(),
                extra: json!(kept),
            });
        }
        self.face.sessions.fork_as(self.tenant, id, extras).await?;
        let mut forks = Vec::with_capacity(count);
        for id in &ids {
            if let Err(error) = self.hold(id, &kept).await {
                self.undo(&ids).await;
                return Err(error);
            }
            forks.push(json!({ "sandbox": self.reached(id, &kept) }));
        }
        Ok((StatusCode::CREATED, Json(forks)).into_response())
    }

    async fn snapshot(&self, id: &str, body: Snapshotting) -> Answer {
        self.find(id).await?;
        let snapshot = self.face.sessions.snapshot(self.tenant, id, body.name).await?;
        Ok((StatusCode::CREATED, Json(shapes::snapshot(&snapshot))).into_response())
    }

    /// Nothing of a sandbox reaches outside: what asks for less is fulfilled.
    async fn network(&self, id: &str, body: Value) -> Answer {
        self.find(id).await?;
        shapes::check_network(&body)?;
        done()
    }

    async fn metrics(&self, id: &str) -> Answer {
        self.find(id).await?;
        let sample = self.face.sample(self.tenant, id).await?;
        let metrics: Vec<Value> = sample.iter().map(shapes::metric).collect();
        Ok(Json(metrics).into_response())
    }

    async fn metrics_of_many(&self) -> Answer {
        let mut all = serde_json::Map::new();
        let ids = parameters(self.uri.query().unwrap_or_default()).into_iter();
        let ids = ids
            .filter(|(name, _)| name == "sandbox_ids")
            .flat_map(|(_, ids)| ids.split(',').map(str::to_owned).collect::<Vec<_>>());
        for id in ids.take(list::PAGE_MAX) {
            if self.find(&id).await.is_err() {
                continue;
            }
            if let Some(sample) = self.face.sample(self.tenant, &id).await? {
                all.insert(id, shapes::metric(&sample));
            }
        }
        Ok(Json(json!({ "sandboxes": all })).into_response())
    }

    async fn logs(&self, id: &str, is_old: bool) -> Answer {
        self.find(id).await?;
        let lines = self.face.sessions.logs(self.tenant, id, 0).await?;
        let entries: Vec<Value> = lines.iter().map(shapes::log_entry).collect();
        let answer = match is_old {
            true => {
                let plain: Vec<Value> = lines.iter().map(shapes::log_line).collect();
                json!({ "logs": plain, "logEntries": entries })
            }
            false => json!({ "logs": entries }),
        };
        Ok(Json(answer).into_response())
    }

    async fn delete_template(&self, id: &str) -> Answer {
        let missing = || {
            let message = format!("template '{}' not found", shown(id));
            RestError::new(StatusCode::NOT_FOUND, message)
        };
        // Agents are the owner's to delete, not a client's of sandboxes.
        if !id.starts_with(SNAPSHOT_PREFIX) {
            return Err(missing());
        }
        match self.face.sessions.delete_snapshot(self.tenant, id).await {
            Err(Error::NotFound(_)) => Err(missing()),
            Err(error) => Err(error.into()),
            Ok(()) => done(),
        }
    }
}
