//! Life cycle of sandboxes: E2B's REST interface.

mod list;
mod shapes;

use api::{CreateSession, Grant, SessionState, SessionView};
use axum::Json;
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use node::auth::{TokenPrincipal, TokenScope};
use node::clock;
use node::http::{self, CredentialBinding, UploadBody};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::shapes::{
    ConnectBody, ForkBody, NewSandbox, PauseBody, RefreshBody, SnapshotBody, TimeoutBody,
};
use super::errors::{RestError, shown};
use super::figures::SamplePeriod;
use super::network::{self, NetworkRules};
use super::query::parameters;
use super::sandboxes::{FACE, StoredE2bSandbox, TIMEOUT_S, TenantSandbox, deadline, resume};
use super::tokens::{is_id, new_id};
use super::{E2bContext, discard, interpreter};
use crate::error::SessionError;
use crate::service::{CreateExtras, KeptExtras, SandboxGuard, SessionUpdate};

/// Maximum bytes of a request.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// Default lifetime of a sandbox for older clients, in seconds.
const TIMEOUT_S_BEFORE: u64 = 15;
/// Name of the empty template.
const BASE: &str = "base";
/// Prefix of snapshot ids.
const SNAPSHOT_PREFIX: &str = "snap_";
/// Maximum number of copies in one request.
const FORKS_MAX: usize = 64;

pub(super) type Answer = Result<Response, RestError>;

/// An authorized request.
pub(super) struct AuthorizedRequest<'a> {
    pub(super) face: &'a E2bContext,
    who: &'a TokenPrincipal,
    pub(super) tenant: &'a str,
    /// Id of the API token.
    pub(super) holder: &'a str,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
}

/// Answers a request.
pub(super) async fn answer(face: &E2bContext, request: Request) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let segments: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    if method == Method::GET && segments == ["health"] {
        return StatusCode::OK.into_response();
    }
    let headers = request.headers().clone();
    let binding = CredentialBinding::of(request.extensions());
    let body = match UploadBody::from_request(request, &()).await {
        Ok(body) => body,
        Err(error) => return refused(&error),
    };
    let who: TokenPrincipal = match http::authenticate(&face.tokens, &headers, TokenScope::Sessions)
    {
        Ok(who) => who,
        Err(error) => {
            discard(body).await;
            return refused(&error);
        }
    };
    binding.bind(face.tokens.revocation(&who));
    let (tenant, holder) = (&who.tenant, &who.token_id);
    let asked = AuthorizedRequest { face, who: &who, tenant, holder, uri: &uri, headers: &headers };
    let answered = asked.route(&method, &segments, body).await;
    answered.unwrap_or_else(IntoResponse::into_response)
}

fn refused(error: &http::HttpError) -> Response {
    let mut response = RestError::from(error.clone()).into_response();
    if error.status() == StatusCode::UNAUTHORIZED {
        let scheme = axum::http::HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

/// Parses the body as JSON; an empty body is an empty object.
async fn read<T: DeserializeOwned>(body: UploadBody) -> Result<T, RestError> {
    let bytes = body.all(BODY_BYTES_MAX).await?;
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    http::parse_json("the body", text).map_err(|error| {
        let detail = error.detail();
        match &detail.field {
            Some(field) => {
                RestError::invalid(format!("the body, at `{field}`: {}", detail.message))
            }
            None => RestError::invalid(detail.message.clone()),
        }
    })
}

/// Rewords an error about grants as one about the network.
fn of_network(error: SessionError) -> RestError {
    match http::HttpError::from(error) {
        error if error.status() == StatusCode::FORBIDDEN => {
            let message = format!("network: {error}; the server's operator offers it");
            RestError::new(StatusCode::FORBIDDEN, message)
        }
        error => error.into(),
    }
}

/// Replaces the `http` grant.
fn with_egress(mut grants: Vec<Grant>, egress: Option<Grant>) -> Vec<Grant> {
    grants.retain(|grant| !matches!(grant, Grant::Http(_)));
    grants.extend(egress);
    grants
}

/// Parses the period from `start` and `end`, in seconds since 1970; all time without them.
fn period(query: &str) -> Result<SamplePeriod, RestError> {
    let mut period = SamplePeriod::ALWAYS;
    for (name, value) in parameters(query) {
        let seconds = || {
            let wrong = |_| RestError::invalid(format!("{name}: must be seconds since 1970"));
            value.parse::<u64>().map_err(wrong)
        };
        match name.as_str() {
            "start" => period.from_ms = seconds()?.saturating_mul(1000),
            // Includes all of its last second.
            "end" => period.to_ms = seconds()?.saturating_mul(1000).saturating_add(999),
            _ => {}
        }
    }
    Ok(period)
}

pub(super) fn done() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl AuthorizedRequest<'_> {
    async fn route(&self, method: &Method, segments: &[&str], body: UploadBody) -> Answer {
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
            _ => self.route_template(method, segments, body).await,
        }
    }

    /// Routes requests about templates.
    async fn route_template(&self, method: &Method, segments: &[&str], body: UploadBody) -> Answer {
        let (get, post) = (method == Method::GET, method == Method::POST);
        let (patch, delete) = (method == Method::PATCH, method == Method::DELETE);
        match segments {
            ["v3" | "v2", "templates"] if post => self.announce_template(read(body).await?).await,
            ["templates"] | ["v2", "templates"] if get => self.templates().await,
            ["templates", "tags"] if post => self.tag_template(read(body).await?).await,
            ["templates", "tags"] if delete => self.untag_template(read(body).await?).await,
            ["templates", "aliases", alias] if get => self.template_alias(alias).await,
            ["templates", id] if get => self.template(id).await,
            ["templates", id] if delete => self.delete_template(id).await,
            ["templates", id] | ["v2", "templates", id] if patch => {
                self.update_template(id, read(body).await?).await
            }
            ["templates", id, "tags"] if get => self.template_tags(id).await,
            ["templates", id, "files", hash] if get => self.template_files(id, hash).await,
            ["v2", "templates", id, "builds", build] if post => {
                self.start_template(id, build, read(body).await?).await
            }
            ["templates", id, "builds", build, "status"] if get => {
                self.template_status(id, build).await
            }
            _ => {
                discard(body).await;
                let path = shown(self.uri.path());
                let message = format!("{method} {path} is not served here");
                Err(RestError::new(StatusCode::NOT_FOUND, message))
            }
        }
    }

    /// Returns a sandbox of this caller that has not ended.
    async fn find(
        &self,
        id: &str,
    ) -> Result<(SessionView, KeptExtras, StoredE2bSandbox), RestError> {
        let missing = || RestError::no_sandbox(id);
        if !is_id(id) {
            return Err(missing());
        }
        let queries = self.face.sessions.queries()?;
        let extras = match queries.extras(self.tenant, id).await {
            Err(SessionError::NotFound(_) | SessionError::Ended) => return Err(missing()),
            other => other?,
        };
        let session = queries.get(self.tenant, id).await?;
        if extras.face.as_deref() != Some(FACE) || session.state == SessionState::Ended {
            return Err(missing());
        }
        let kept = serde_json::from_value(extras.extra.clone()).unwrap_or_default();
        Ok((session, extras, kept))
    }

    /// Returns the addresses and tokens of a sandbox.
    fn reached(&self, id: &str, kept: &StoredE2bSandbox) -> Value {
        let keys = &self.face.keys;
        json!({
            "templateID": kept.template,
            "sandboxID": id,
            "clientID": "cove",
            "envdVersion": super::ENVD_VERSION,
            "alias": kept.template,
            "envdAccessToken": keys.access(id, self.holder),
            "trafficAccessToken": kept.private_ports.then(|| keys.traffic(id, self.holder)),
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
        let kept = new.kept()?;
        let mut request = CreateSession {
            env: new.env_vars.unwrap_or_default(),
            metadata: new.metadata.unwrap_or_default(),
            ..CreateSession::default()
        };
        match kept.template.as_str() {
            BASE => {}
            id if id.starts_with(SNAPSHOT_PREFIX) => request.snapshot = Some(id.to_owned()),
            name => match self.face.sessions.agents()?.get(self.tenant, name).await {
                // A template never replaces an agent, whose owner may require another scope.
                Ok(_) => request.agent = Some(name.to_owned()),
                Err(SessionError::NotFound(_)) if self.is_interpreter(name).await? => {}
                Err(SessionError::NotFound(_)) => request.template = Some(name.to_owned()),
                Err(error) => return Err(error.into()),
            },
        }
        request.grants = self.grants_of_new(&kept).await?;
        let id = new_id()?;
        let extras = CreateExtras {
            face: Some(FACE),
            id: Some(id.clone()),
            deadline_ms: Some(deadline(&self.face.sessions, timeout_s)),
            on_deadline: kept.on_deadline(),
            extra: json!(kept),
        };
        let guard = match self.face.sessions.create_held(self.tenant, request, extras).await {
            Err(SessionError::NotFound("agent" | "snapshot" | "template")) => {
                let message = format!("template '{}' not found", shown(&kept.template));
                return Err(RestError::new(StatusCode::NOT_FOUND, message));
            }
            other => other?,
        };
        if kept.template == interpreter::TEMPLATE {
            guard.prepare_contexts(interpreter::HOME);
        }
        self.keep(&id, &kept, guard);
        Ok((StatusCode::CREATED, Json(self.reached(&id, &kept))).into_response())
    }

    /// Returns whether a template name means the code interpreter's, which is empty: a tenant's
    /// template with that name takes precedence.
    async fn is_interpreter(&self, template: &str) -> Result<bool, RestError> {
        if template != interpreter::TEMPLATE {
            return Ok(false);
        }
        match self.face.sessions.templates()?.get(self.tenant, template).await {
            Err(SessionError::NotFound(_)) => Ok(true),
            other => Ok(other.map(|_| false)?),
        }
    }

    /// Keeps a sandbox at work.
    fn keep(&self, id: &str, kept: &StoredE2bSandbox, guard: SandboxGuard) {
        let of = TenantSandbox { tenant: self.tenant, id };
        let E2bContext { sessions, keys, sandboxes, .. } = self.face;
        let live = sandboxes.keep(sessions, keys, of, kept.clone(), guard);
        live.note_holder(self.holder);
    }

    /// Returns the grant for a sandbox's outbound network. Default internet access is left out if
    /// it is not offered to this caller.
    ///
    /// # Errors
    /// 403 if an explicitly named destination is not offered.
    fn egress(&self, network: &NetworkRules) -> Result<Option<Grant>, RestError> {
        let E2bContext { sessions, config, .. } = self.face;
        let Some(grant) = network.grant(config.internet) else { return Ok(None) };
        let wanted = std::slice::from_ref(&grant);
        let offered = sessions.grant_authority();
        match offered.and_then(|authority| authority.authorize(self.who, wanted)) {
            Err(error) if network.names_something() => Err(of_network(error)),
            Err(_not_offered) => Ok(None),
            Ok(()) => Ok(Some(grant)),
        }
    }

    /// Returns the grants of a new sandbox; none if its template decides.
    async fn grants_of_new(
        &self,
        kept: &StoredE2bSandbox,
    ) -> Result<Option<Vec<Grant>>, RestError> {
        let egress = self.egress(&kept.network)?;
        if egress.is_none() && !kept.network.denies_something() {
            return Ok(None);
        }
        let of_template = match kept.template.as_str() {
            BASE => Vec::new(),
            id if id.starts_with(SNAPSHOT_PREFIX) => Vec::new(),
            name => match self.face.sessions.agents()?.get(self.tenant, name).await {
                // Creating the sandbox reports this error.
                Err(SessionError::NotFound(_)) => Vec::new(),
                other => other?.grants,
            },
        };
        Ok(Some(with_egress(of_template, egress)))
    }

    async fn show(&self, id: &str) -> Answer {
        let (session, extras, kept) = self.find(id).await?;
        let mut detail = shapes::listed(&session, extras.deadline_ms, &kept);
        detail["envdAccessToken"] = json!(self.face.keys.access(id, self.holder));
        detail["domain"] = json!(self.face.domain(self.headers));
        let is_http = |grant: &Grant| matches!(grant, Grant::Http(_));
        let is_open = kept.network.is_open(self.face.config.internet);
        detail["allowInternetAccess"] = json!(is_open && session.grants.iter().any(is_http));
        let on_timeout = if kept.pauses { "pause" } else { "kill" };
        detail["lifecycle"] = json!({ "autoResume": kept.auto_resume, "onTimeout": on_timeout });
        Ok(Json(detail).into_response())
    }

    async fn kill(&self, id: &str) -> Answer {
        self.find(id).await?;
        self.face.sessions.end(self.tenant, id).await?;
        done()
    }

    async fn connect(&self, id: &str, body: ConnectBody) -> Answer {
        let (session, extras, kept) = self.find(id).await?;
        let sessions = &self.face.sessions;
        let (status, guard) = if session.state == SessionState::Active {
            if body.timeout.is_some() {
                self.extend(id, extras.deadline_ms, self.seconds(body.timeout, TIMEOUT_S)?, &kept)
                    .await?;
            }
            (StatusCode::OK, sessions.sandbox(self.tenant, id).await?)
        } else {
            let seconds = self.seconds(body.timeout, TIMEOUT_S)?;
            let guard = resume(sessions, self.tenant, id, &kept, Some(seconds)).await?;
            (StatusCode::CREATED, guard)
        };
        self.keep(id, &kept, guard);
        Ok((status, Json(self.reached(id, &kept))).into_response())
    }

    /// Extends a sandbox's lifetime to at least `seconds` from now.
    async fn extend(
        &self,
        id: &str,
        deadline_ms: Option<u64>,
        seconds: u64,
        kept: &StoredE2bSandbox,
    ) -> Result<(), RestError> {
        let at_ms = deadline(&self.face.sessions, seconds).max(deadline_ms.unwrap_or(0));
        let sessions = &self.face.sessions;
        sessions.set_deadline(self.tenant, id, Some(at_ms), kept.on_deadline()).await?;
        Ok(())
    }

    /// Implements the predecessor of `connect` for older clients.
    async fn resume(&self, id: &str, body: ConnectBody) -> Answer {
        let (session, _, _) = self.find(id).await?;
        if session.state == SessionState::Active {
            let message = format!("sandbox {id} is already running");
            return Err(RestError::new(StatusCode::CONFLICT, message));
        }
        self.connect(id, body).await
    }

    async fn pause(&self, id: &str, body: PauseBody) -> Answer {
        let (session, extras, kept) = self.find(id).await?;
        if session.state != SessionState::Active {
            let message = format!("sandbox {id} is already paused");
            return Err(RestError::new(StatusCode::CONFLICT, message));
        }
        let sessions = &self.face.sessions;
        if body.memory == Some(false) {
            // Cleared before the stop: a resume that overtakes the stop sets its own deadline, and
            // if that resume finds no room the sandbox stays paused, without a deadline.
            sessions.set_deadline(self.tenant, id, None, kept.on_deadline()).await?;
            if let Err(error) = sessions.stop(self.tenant, id).await {
                self.restore_deadline(id, extras.deadline_ms).await;
                return Err(error.into());
            }
        } else {
            let guard = sessions.sandbox(self.tenant, id).await?;
            sessions.pause(self.tenant, id).await?;
            if let Some(live) = self.face.sandboxes.known(id) {
                live.processes.hang_up();
            }
            // If the sandbox ends meanwhile, its processes do not run either.
            if let Err(error) = guard.freeze().await {
                tracing::debug!(sandbox = id, %error, "a paused sandbox was not frozen");
            }
            sessions.set_deadline(self.tenant, id, None, kept.on_deadline()).await?;
        }
        self.face.sandboxes.release(id);
        done()
    }

    /// Restores the deadline that was cleared for a stop, if the sandbox still runs and no other
    /// deadline was set.
    async fn restore_deadline(&self, id: &str, deadline_ms: Option<u64>) {
        let Ok((session, extras, kept)) = self.find(id).await else { return };
        if session.state != SessionState::Active || extras.deadline_ms.is_some() {
            return;
        }
        let sessions = &self.face.sessions;
        let set = sessions.set_deadline(self.tenant, id, deadline_ms, kept.on_deadline());
        if let Err(error) = set.await {
            tracing::warn!(sandbox = id, %error, "failed to restore the deadline of a sandbox");
        }
    }

    async fn timeout(&self, id: &str, body: TimeoutBody) -> Answer {
        let (session, _, kept) = self.find(id).await?;
        if session.state != SessionState::Active {
            return Err(RestError::no_sandbox(id));
        }
        let at_ms = deadline(&self.face.sessions, self.seconds(Some(body.timeout), TIMEOUT_S)?);
        let sessions = &self.face.sessions;
        sessions.set_deadline(self.tenant, id, Some(at_ms), kept.on_deadline()).await?;
        done()
    }

    async fn refresh(&self, id: &str, body: RefreshBody) -> Answer {
        let (session, extras, kept) = self.find(id).await?;
        if session.state != SessionState::Active {
            return Err(RestError::no_sandbox(id));
        }
        let seconds = self.seconds(body.duration, TIMEOUT_S)?;
        self.extend(id, extras.deadline_ms, seconds, &kept).await?;
        done()
    }

    async fn fork(&self, id: &str, body: ForkBody) -> Answer {
        let (_, _, kept) = self.find(id).await?;
        let count = body.count.unwrap_or(1);
        if !(1..=FORKS_MAX).contains(&count) {
            let message = format!("count: must be between 1 and {FORKS_MAX}");
            return Err(RestError::invalid(message));
        }
        let deadline_ms =
            Some(deadline(&self.face.sessions, self.seconds(body.timeout, TIMEOUT_S)?));
        let mut ids = Vec::with_capacity(count);
        let mut extras = Vec::with_capacity(count);
        for _ in 0..count {
            let id = new_id()?;
            ids.push(id.clone());
            extras.push(CreateExtras {
                face: Some(FACE),
                id: Some(id),
                deadline_ms,
                on_deadline: kept.on_deadline(),
                extra: json!(kept),
            });
        }
        let guards = self.face.sessions.fork_held(self.tenant, id, extras).await?;
        let mut forks = Vec::with_capacity(count);
        for (id, guard) in ids.iter().zip(guards) {
            self.keep(id, &kept, guard);
            forks.push(json!({ "sandbox": self.reached(id, &kept) }));
        }
        Ok((StatusCode::CREATED, Json(forks)).into_response())
    }

    async fn snapshot(&self, id: &str, body: SnapshotBody) -> Answer {
        self.find(id).await?;
        let snapshot = self.face.sessions.copies()?.snapshot(self.tenant, id, body.name).await?;
        Ok((StatusCode::CREATED, Json(shapes::snapshot(&snapshot))).into_response())
    }

    /// Changes a sandbox's network rules. They are in force when this returns, for existing
    /// connections as well.
    async fn network(&self, id: &str, body: Value) -> Answer {
        let (session, _, mut kept) = self.find(id).await?;
        kept.network = network::of_update(&body)?;
        let egress = self.egress(&kept.network)?;
        let update = SessionUpdate {
            grants: Some(with_egress(session.grants, egress)),
            extra: Some(json!(kept)),
            ..SessionUpdate::default()
        };
        self.face.sessions.update(self.tenant, id, update).await.map_err(of_network)?;
        done()
    }

    /// Returns the samples of the last hour and a current one, limited to the requested period.
    async fn metrics(&self, id: &str) -> Answer {
        self.find(id).await?;
        let period = period(self.uri.query().unwrap_or_default())?;
        let live = self.face.sandboxes.known(id);
        let mut samples = live.map(|live| live.samples.of(period)).unwrap_or_default();
        if period.has(clock::wall_ms()) {
            samples.extend(self.face.sample(self.tenant, id).await?);
        }
        let metrics: Vec<Value> = samples.iter().map(shapes::metric).collect();
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
        let lines = self.face.sessions.conversations()?.logs(self.tenant, id, 0).await?;
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
        // Only snapshots and templates: sandbox clients must not delete agents.
        let sessions = &self.face.sessions;
        let deleted = match id.starts_with(SNAPSHOT_PREFIX) {
            true => sessions.copies()?.delete_snapshot(self.tenant, id).await,
            false => sessions.templates()?.delete(self.tenant, id).await,
        };
        match deleted {
            Err(SessionError::NotFound(_)) => Err(missing()),
            Err(error) => Err(error.into()),
            Ok(()) => done(),
        }
    }
}
