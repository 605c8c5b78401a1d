//! Sessions: creation, lists, pause, stop, resume, fork and end.

use std::collections::BTreeMap;

use api::{AgentOptions, CreateSession, SessionExec, SessionExecResult, SessionState, SessionView};
use axum::Json;
use axum::extract::Path;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::call::{Answer, AshBody, AshCaller, AshFailure, AshQuery, created, session_id};
use super::{FACE, ids};
use crate::error::SessionError;
use crate::program_end::signal_name;
use crate::service::{CreateExtras, ListQuery, SessionUpdate};

/// Maximum number of sessions in one answer.
const LIST_MAX: usize = 1000;
/// Default time limit of a command.
const EXEC_TIMEOUT_MS: u64 = 30_000;
/// Maximum time limit of a command.
const EXEC_TIMEOUT_MS_MAX: u64 = 300_000;
/// Exit code of a command that was killed at its time limit, as of timeout(1).
const EXIT_TIMED_OUT: i32 = 124;
/// Offset that shells add to a signal's number.
const EXIT_SIGNALLED: i32 = 128;
/// Highest signal number (signal(7)).
const SIGNAL_MAX: i32 = 64;
/// Permission modes of Ash, and their equivalents.
const PERMISSIONS: [(&str, Option<&str>); 3] = [
    ("bypassPermissions", Some("bypassPermissions")),
    ("default", Some("default")),
    // The agent's own mode.
    ("permissionsByAgent", None),
];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AshCreateSession {
    agent: String,
    credential_id: Option<String>,
    extra_env: Option<BTreeMap<String, String>>,
    mcp_servers: Option<Map<String, Value>>,
    system_prompt: Option<String>,
    permission_mode: Option<String>,
    #[serde(flatten)]
    changes: AshSessionChanges,
}

/// Changes that are possible at creation and later.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AshSessionChanges {
    model: Option<String>,
    allowed_tools: Option<Vec<String>>,
    disallowed_tools: Option<Vec<String>>,
    betas: Option<Value>,
    subagents: Option<Value>,
    initial_agent: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AshSessionList {
    agent: Option<String>,
    status: Option<String>,
    limit: Option<usize>,
    offset: Option<usize>,
    include_total: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AshExec {
    command: String,
    timeout: Option<u64>,
}

impl AshSessionChanges {
    /// Rejects options that agents do not support: ignoring them would create another session than
    /// requested.
    fn check(&self) -> Result<(), AshFailure> {
        let rows = [
            ("betas", &self.betas),
            ("subagents", &self.subagents),
            ("initialAgent", &self.initial_agent),
        ];
        for (name, value) in rows {
            let is_empty = match value {
                None | Some(Value::Null) => true,
                Some(Value::Array(values)) => values.is_empty(),
                Some(Value::Object(fields)) => fields.is_empty(),
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Bool(_) | Value::Number(_)) => false,
            };
            if !is_empty {
                let how = "set it in the agent's own `.claude/settings.json` instead";
                return Err(AshFailure::bad(format!("{name}: is not supported; {how}")));
            }
        }
        Ok(())
    }

    /// Returns a session's options, overridden by these.
    fn over(self, options: AgentOptions) -> AgentOptions {
        AgentOptions {
            model: self.model.or(options.model),
            allowed_tools: self.allowed_tools.or(options.allowed_tools),
            disallowed_tools: self.disallowed_tools.or(options.disallowed_tools),
            ..options
        }
    }
}

/// `POST /api/sessions`.
pub(super) async fn create(
    caller: AshCaller,
    AshBody(body): AshBody<AshCreateSession>,
) -> Result<Response, AshFailure> {
    let AshCreateSession { agent, credential_id, extra_env, changes, .. } = body;
    changes.check()?;
    let permission_mode = match &body.permission_mode {
        None => None,
        Some(mode) => match PERMISSIONS.iter().find(|(theirs, _)| theirs == mode) {
            Some((_, ours)) => ours.map(str::to_owned),
            None => {
                return Err(AshFailure::bad(format!(
                    "permissionMode: `{}` is unknown",
                    shown(mode)
                )));
            }
        },
    };
    let no_credential = || AshFailure::bad("Invalid or inaccessible credential");
    let credential = match credential_id {
        Some(uuid) => Some(ids::ours(ids::CREDENTIAL, &uuid).ok_or_else(no_credential)?),
        None => None,
    };
    let options = changes.over(AgentOptions {
        system_prompt: body.system_prompt,
        permission_mode,
        mcp_servers: body.mcp_servers,
        ..AgentOptions::default()
    });
    let request = CreateSession {
        agent: Some(agent.clone()),
        env: extra_env.unwrap_or_default(),
        credential,
        options,
        ..CreateSession::default()
    };
    let extras = CreateExtras { face: Some(FACE), ..CreateExtras::default() };
    let made = caller.sessions().create_as(&caller.tenant, request, extras).await;
    match made {
        Ok(session) => Ok(created(json!({ "session": shape(&session) }))),
        Err(SessionError::NotFound("credential")) => Err(no_credential()),
        Err(SessionError::NotFound("agent")) => {
            Err(AshFailure::not_found(format!("Agent \"{}\" not found", shown(&agent))))
        }
        Err(error) => Err(error.into()),
    }
}

/// `GET /api/sessions`.
pub(super) async fn list(caller: AshCaller, AshQuery(query): AshQuery<AshSessionList>) -> Answer {
    let states = match query.status.as_deref() {
        None | Some("") => Vec::new(),
        Some(status) => vec![state(status)?],
    };
    let limit = query.limit.unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
    let offset = query.offset.unwrap_or(0);
    let wants_total = query.include_total.as_deref() == Some("true");
    let mut filter =
        ListQuery { states, agent: query.agent, limit: LIST_MAX, ..ListQuery::default() };
    let (mut place, mut found) = (0_usize, Vec::new());
    loop {
        let page = caller.sessions().queries()?.list(&caller.tenant, filter.clone()).await?;
        for session in page.sessions.iter().filter(|session| is_shown(session)) {
            if place >= offset && found.len() < limit {
                found.push(shape(session));
            }
            place += 1;
        }
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() || (found.len() == limit && !wants_total) {
            break;
        }
    }
    let mut answer = json!({ "sessions": found });
    if wants_total {
        answer["total"] = json!(place);
    }
    Ok(Json(answer))
}

/// `GET /api/sessions/{id}`.
pub(super) async fn get(caller: AshCaller, Path(uuid): Path<String>) -> Answer {
    let session = caller.session(&uuid).await?;
    Ok(Json(json!({ "session": shape(&session) })))
}

/// `PATCH /api/sessions/{id}/config`.
pub(super) async fn configure(
    caller: AshCaller,
    Path(uuid): Path<String>,
    AshBody(changes): AshBody<AshSessionChanges>,
) -> Answer {
    changes.check()?;
    let session = caller.session(&uuid).await?;
    let options = changes.over(session.options);
    let update = SessionUpdate { options: Some(options), ..SessionUpdate::default() };
    let session = caller.sessions().update(&caller.tenant, &session.id, update).await;
    let session = session.map_err(|error| of_state(error, SessionState::Ended))?;
    Ok(Json(json!({ "session": shape(&session) })))
}

/// `POST /api/sessions/{id}/pause`.
pub(super) async fn pause(caller: AshCaller, Path(uuid): Path<String>) -> Answer {
    let session = caller.session(&uuid).await?;
    if session.state != SessionState::Active {
        return Err(cannot("pause", session.state));
    }
    let paused = caller.sessions().pause(&caller.tenant, &session.id).await;
    let paused = paused.map_err(|error| match error {
        SessionError::Ended => cannot("pause", SessionState::Ended),
        other => other.into(),
    })?;
    Ok(Json(json!({ "session": shape(&paused) })))
}

/// `POST /api/sessions/{id}/stop`.
pub(super) async fn stop(caller: AshCaller, Path(uuid): Path<String>) -> Answer {
    let session = caller.session(&uuid).await?;
    let may = match session.state {
        SessionState::Starting | SessionState::Active | SessionState::Paused => true,
        SessionState::Stopped | SessionState::Ended | SessionState::Error => false,
    };
    if !may {
        return Err(cannot("stop", session.state));
    }
    let stopped = caller.sessions().stop(&caller.tenant, &session.id).await;
    let stopped = stopped.map_err(|error| match error {
        SessionError::Ended => cannot("stop", SessionState::Ended),
        other => other.into(),
    })?;
    Ok(Json(json!({ "session": shape(&stopped) })))
}

/// `POST /api/sessions/{id}/resume`.
pub(super) async fn resume(caller: AshCaller, Path(uuid): Path<String>) -> Answer {
    let id = session_id(&uuid)?;
    match caller.sessions().resume(&caller.tenant, &id).await {
        Ok(session) => Ok(Json(json!({ "session": shape(&session) }))),
        Err(SessionError::Ended) => {
            let text = "Session has ended — create a new session";
            Err(AshFailure::new(axum::http::StatusCode::GONE, text))
        }
        Err(error) => Err(error.into()),
    }
}

/// `POST /api/sessions/{id}/fork`.
pub(super) async fn fork(
    caller: AshCaller,
    Path(uuid): Path<String>,
) -> Result<Response, AshFailure> {
    let id = session_id(&uuid)?;
    let extras = vec![CreateExtras { face: Some(FACE), ..CreateExtras::default() }];
    let made = caller.sessions().fork_as(&caller.tenant, &id, extras).await;
    let made = made.map_err(|error| of_state(error, SessionState::Ended))?;
    let child = made.first().ok_or_else(|| AshFailure::internal("a fork makes a session"))?;
    Ok(created(json!({ "session": shape(child) })))
}

/// `DELETE /api/sessions/{id}`.
pub(super) async fn end(caller: AshCaller, Path(uuid): Path<String>) -> Answer {
    let id = session_id(&uuid)?;
    let session = caller.sessions().end(&caller.tenant, &id).await?;
    Ok(Json(json!({ "session": shape(&session) })))
}

/// `POST /api/sessions/{id}/exec`.
pub(super) async fn exec(
    caller: AshCaller,
    Path(uuid): Path<String>,
    AshBody(body): AshBody<AshExec>,
) -> Answer {
    let timeout_ms = body.timeout.unwrap_or(EXEC_TIMEOUT_MS);
    if !(1..=EXEC_TIMEOUT_MS_MAX).contains(&timeout_ms) {
        let message = format!("timeout: must be between 1 and {EXEC_TIMEOUT_MS_MAX}");
        return Err(AshFailure::bad(message));
    }
    let session = caller.active(&uuid).await?;
    let request = SessionExec {
        command: Some(body.command),
        timeout_ms: Some(timeout_ms),
        ..SessionExec::default()
    };
    let result = caller.sessions().commands()?.run(&caller.tenant, &session.id, request).await;
    let result = result.map_err(|error| of_state(error, SessionState::Ended))?;
    Ok(Json(json!({
        "exitCode": exit_code(&result),
        "stdout": result.stdout,
        "stderr": result.stderr,
    })))
}

impl AshCaller {
    /// Returns a session of the caller.
    pub(super) async fn session(&self, uuid: &str) -> Result<SessionView, AshFailure> {
        let id = session_id(uuid)?;
        Ok(self.sessions().queries()?.get(&self.tenant, &id).await?)
    }

    /// Returns an active session.
    pub(super) async fn active(&self, uuid: &str) -> Result<SessionView, AshFailure> {
        let session = self.session(uuid).await?;
        match session.state {
            SessionState::Active => Ok(session),
            state => Err(AshFailure::bad(format!("Session is {}", state.as_str()))),
        }
    }
}

/// Returns a session in Ash's format.
pub(super) fn shape(session: &SessionView) -> Value {
    let uuid = ids::uuid(&session.id);
    let options = &session.options;
    let mut config = Map::new();
    let lists =
        [("allowedTools", &options.allowed_tools), ("disallowedTools", &options.disallowed_tools)];
    for (name, tools) in lists {
        config.extend(tools.as_ref().map(|tools| (name.to_owned(), json!(tools))));
    }
    json!({
        "id": uuid,
        "tenantId": session.tenant,
        "agentName": session.agent.as_deref().unwrap_or_default(),
        "sandboxId": uuid,
        "status": session.state.as_str(),
        "createdAt": session.created_at,
        "lastActiveAt": session.last_active_at,
        "runnerId": null,
        "parentSessionId": session.parent.as_deref().map(ids::uuid),
        "model": options.model,
        "config": if config.is_empty() { Value::Null } else { Value::Object(config) },
    })
}

/// Returns whether a session has an id that clients can use.
pub(super) fn is_shown(session: &SessionView) -> bool {
    ids::exact(&session.id).is_some()
}

/// Translates an error to Ash's wording for the session's state.
pub(super) fn of_state(error: SessionError, ended: SessionState) -> AshFailure {
    match error {
        SessionError::Ended => AshFailure::bad(format!("Session is {}", ended.as_str())),
        other => other.into(),
    }
}

fn cannot(what: &str, state: SessionState) -> AshFailure {
    AshFailure::bad(format!("Cannot {what} session with status \"{}\"", state.as_str()))
}

fn state(status: &str) -> Result<SessionState, AshFailure> {
    use SessionState as S;
    let all = [S::Starting, S::Active, S::Paused, S::Stopped, S::Ended, S::Error];
    let known = all.into_iter().find(|state| state.as_str() == status);
    known.ok_or_else(|| AshFailure::bad(format!("status: `{}` is none", shown(status))))
}

/// Returns the part of a caller's text that an error repeats.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

fn exit_code(result: &SessionExecResult) -> i32 {
    if result.timed_out {
        return EXIT_TIMED_OUT;
    }
    let number = |name: &str| (1..=SIGNAL_MAX).find(|number| signal_name(*number) == name);
    let signalled = result.signal.as_deref().and_then(number);
    result.exit_code.or(signalled.map(|signal| EXIT_SIGNALLED + signal)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_of_a_command_has_a_code() {
        let result = |exit_code, signal: Option<&str>, timed_out| SessionExecResult {
            exit_code,
            signal: signal.map(str::to_owned),
            timed_out,
            ..SessionExecResult::default()
        };
        for (result, expected) in [
            (result(Some(0), None, false), 0),
            (result(Some(3), None, false), 3),
            (result(None, Some("SIGKILL"), false), 137),
            (result(None, Some("SIG40"), false), 168),
            (result(None, Some("SIGKILL"), true), 124),
            (result(None, None, false), 1),
        ] {
            assert_eq!(exit_code(&result), expected, "{result:?}");
        }
    }

    #[test]
    fn what_agents_are_not_told_is_refused() {
        let check = |changes: Value, is_fine: bool| {
            let changes: AshSessionChanges = serde_json::from_value(changes).unwrap();
            assert_eq!(changes.check().is_ok(), is_fine, "{changes:?}");
        };
        check(json!({}), true);
        check(json!({"betas": [], "subagents": {}, "initialAgent": null}), true);
        check(json!({"betas": ["context-1m"]}), false);
        check(json!({"subagents": {"a": {}}}), false);
        check(json!({"initialAgent": "a"}), false);
    }

    #[test]
    fn what_is_left_out_stays_as_it_is() {
        let before = AgentOptions {
            model: Some("old".to_owned()),
            allowed_tools: Some(vec!["Bash".to_owned()]),
            system_prompt: Some("brief".to_owned()),
            ..AgentOptions::default()
        };
        let changes =
            AshSessionChanges { model: Some("new".to_owned()), ..AshSessionChanges::default() };
        let after = changes.over(before.clone());
        assert_eq!(after, AgentOptions { model: Some("new".to_owned()), ..before });
    }
}
