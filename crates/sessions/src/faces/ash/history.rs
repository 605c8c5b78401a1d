//! The history of a session.

use api::{SessionEvent, SessionEventKind as Kind, SessionView};
use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Answer, AshCaller, AshFailure, AshQuery};
use super::{ids, sse, time};

/// Maximum number of entries in one answer.
const LIMIT_MAX: usize = 1000;
/// Default number of messages, and of events, in one answer.
const MESSAGES: usize = 100;
const EVENTS: usize = 200;
/// Events of the timeline, by Ash's names.
const TIMELINE: [(&str, Option<Kind>); 8] = [
    ("text", Some(Kind::Text)),
    ("tool_start", Some(Kind::ToolUse)),
    ("tool_result", Some(Kind::ToolResult)),
    ("reasoning", Some(Kind::Reasoning)),
    ("error", Some(Kind::Error)),
    ("turn_complete", Some(Kind::TurnComplete)),
    ("lifecycle", Some(Kind::Lifecycle)),
    // Never occurs in Cove; Python's client does not know it.
    ("mcp_status", None),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AshHistoryPage {
    limit: Option<usize>,
    after: Option<u64>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LogPage {
    after: Option<i64>,
}

/// `GET /api/sessions/{id}/messages`.
pub(super) async fn messages(
    caller: AshCaller,
    Path(uuid): Path<String>,
    AshQuery(page): AshQuery<AshHistoryPage>,
) -> Answer {
    let session = caller.session(&uuid).await?;
    let limit = page.limit.unwrap_or(MESSAGES).clamp(1, LIMIT_MAX);
    let mut after = page.after.unwrap_or(0);
    let mut messages = inherited(&caller, &session, after, limit).await?;
    // Events contain the session's own messages in their original form, including the agent's
    // lines.
    while messages.len() < limit {
        let kinds = vec![Kind::TurnStart, Kind::Message];
        let sessions = caller.sessions();
        let events = sessions
            .conversations()?
            .event_page(&caller.tenant, &session.id, after, LIMIT_MAX, kinds)
            .await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        let told = events.iter().filter_map(|event| message(&session, event));
        messages.extend(told.take(limit - messages.len()));
    }
    Ok(Json(json!({ "messages": messages })))
}

/// Returns the inherited start of a fork's conversation, which took place in its parent.
async fn inherited(
    caller: &AshCaller,
    session: &SessionView,
    after: u64,
    limit: usize,
) -> Result<Vec<Value>, AshFailure> {
    if session.parent.is_none() {
        return Ok(Vec::new());
    }
    let sessions = caller.sessions();
    let kinds = vec![Kind::TurnStart];
    let own =
        sessions.conversations()?.event_page(&caller.tenant, &session.id, 0, 1, kinds).await?;
    let until = own.first().map_or(u64::MAX, |event| event.seq);
    let before =
        sessions.conversations()?.messages(&caller.tenant, &session.id, after, limit).await?;
    let line = |role: &str, content: &Value| match role {
        "user" => json!({ "type": "user", "content": content }),
        _ => json!({ "type": role, "message": { "role": role, "content": content } }),
    };
    let before = before.iter().take_while(|message| message.seq < until);
    let told = before.map(|message| {
        let line = line(&message.role, &message.content);
        entry(session, message.seq, message.at_ms, &message.role, &line)
    });
    Ok(told.collect())
}

/// Converts an event to a message, if it is one.
fn message(session: &SessionView, event: &SessionEvent) -> Option<Value> {
    let of = |role, line: &Value| Some(entry(session, event.seq, event.at_ms, role, line));
    match event.kind {
        Kind::TurnStart => {
            let content = event.data.get("content").cloned().unwrap_or_default();
            of("user", &json!({ "type": "user", "content": content }))
        }
        _ => match event.data.get("type").and_then(Value::as_str) {
            Some("assistant" | "result") => of("assistant", &event.data),
            _ => None,
        },
    }
}

fn entry(session: &SessionView, seq: u64, at_ms: u64, role: &str, line: &Value) -> Value {
    json!({
        "id": ids::derived(&[&session.id, "message", &seq.to_string()]),
        "sessionId": ids::uuid(&session.id),
        "tenantId": session.tenant,
        "role": role,
        "content": line.to_string(),
        "sequence": seq,
        "createdAt": time::shown(at_ms),
    })
}

/// `GET /api/sessions/{id}/events`.
pub(super) async fn events(
    caller: AshCaller,
    Path(uuid): Path<String>,
    AshQuery(page): AshQuery<AshHistoryPage>,
) -> Answer {
    let session = caller.session(&uuid).await?;
    let limit = page.limit.unwrap_or(EVENTS).clamp(1, LIMIT_MAX);
    let kinds: Vec<Kind> = match page.kind.as_deref() {
        None | Some("") => TIMELINE.iter().filter_map(|(_, kind)| *kind).collect(),
        Some(wanted) => {
            let known = TIMELINE.iter().find(|(name, _)| *name == wanted);
            let (_, kind) = known.ok_or_else(|| AshFailure::bad("type: there is no such type"))?;
            kind.iter().copied().collect()
        }
    };
    // An empty filter would mean all kinds.
    if kinds.is_empty() {
        return Ok(Json(json!({ "events": [] })));
    }
    let after = page.after.unwrap_or(0);
    let sessions = caller.sessions();
    let events = sessions
        .conversations()?
        .event_page(&caller.tenant, &session.id, after, limit, kinds)
        .await?;
    let shown: Vec<Value> = events.iter().filter_map(|event| timeline(&session, event)).collect();
    Ok(Json(json!({ "events": shown })))
}

/// Converts an event to an entry of the timeline.
fn timeline(session: &SessionView, event: &SessionEvent) -> Option<Value> {
    let (name, _) = TIMELINE.iter().find(|(_, kind)| *kind == Some(event.kind))?;
    Some(json!({
        "id": ids::derived(&[&session.id, "event", &event.seq.to_string()]),
        "sessionId": ids::uuid(&session.id),
        "tenantId": session.tenant,
        "type": name,
        "data": details(event).to_string(),
        "sequence": event.seq,
        "createdAt": time::shown(event.at_ms),
    }))
}

/// Returns the details of an entry.
fn details(event: &SessionEvent) -> Value {
    let field = |name: &str| event.data.get(name).cloned().unwrap_or_default();
    match event.kind {
        Kind::ToolUse => json!({
            "toolName": field("name"), "toolId": field("id"), "input": field("input"),
        }),
        Kind::Reasoning => json!({ "thinking": field("text") }),
        Kind::ToolResult => {
            let content = sse::content(event.data.get("content"));
            let is_error = field("is_error") == Value::Bool(true);
            let (stdout, stderr) = match is_error {
                true => (json!(""), content),
                false => (content, json!("")),
            };
            json!({ "toolId": field("tool_use_id"), "stdout": stdout, "stderr": stderr })
        }
        Kind::TurnComplete => {
            json!({ "numTurns": field("num_turns"), "result": field("result") })
        }
        Kind::Lifecycle => {
            let reason = field("reason");
            let action = match (reason.as_str(), field("state").as_str()) {
                (Some(known @ ("created" | "resumed" | "forked")), _) => known.to_owned(),
                (_, Some(state)) => state.to_owned(),
                (_, None) => String::new(),
            };
            json!({ "action": action, "reason": reason })
        }
        Kind::TurnStart
        | Kind::TextDelta
        | Kind::ThinkingDelta
        | Kind::InputJsonDelta
        | Kind::Text
        | Kind::Message
        | Kind::Error
        | Kind::Done => event.data.clone(),
    }
}

/// `GET /api/sessions/{id}/logs`.
pub(super) async fn logs(
    caller: AshCaller,
    Path(uuid): Path<String>,
    AshQuery(page): AshQuery<LogPage>,
) -> Answer {
    let session = caller.session(&uuid).await?;
    // Clients send -1 if they have seen nothing.
    let from = page.after.and_then(|after| u64::try_from(after).ok()).map_or(0, |it| it + 1);
    let lines = caller.sessions().conversations()?.logs(&caller.tenant, &session.id, from).await?;
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "index": line.index,
                "level": line.level.as_str(),
                "text": line.text,
                "ts": time::shown(line.at_ms),
            })
        })
        .collect();
    Ok(Json(json!({ "logs": lines, "source": "sandbox" })))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the timeline's entry for an event.
    fn check(kind: Kind, data: Value, expected: Value) {
        let event = SessionEvent { seq: 1, at_ms: 0, turn: None, kind, data };
        assert_eq!(details(&event), expected);
    }

    #[test]
    fn the_timeline_has_ashs_fields() {
        let text = json!({"text": "x"});
        check(Kind::Text, text.clone(), text.clone());
        check(Kind::Reasoning, text, json!({"thinking": "x"}));
        let used = json!({"id": "t", "name": "Bash", "input": {"command": "ls"}});
        let shown = json!({"toolName": "Bash", "toolId": "t", "input": {"command": "ls"}});
        check(Kind::ToolUse, used, shown);
        for (is_error, stdout, stderr) in [(false, "x", ""), (true, "", "x")] {
            let result = json!({"tool_use_id": "t", "content": "x", "is_error": is_error});
            let shown = json!({"toolId": "t", "stdout": stdout, "stderr": stderr});
            check(Kind::ToolResult, result, shown);
        }
        let error = json!({"error": "why"});
        check(Kind::Error, error.clone(), error);
        for (state, reason, action) in [
            ("active", "created", "created"),
            ("active", "resumed", "resumed"),
            ("active", "forked", "forked"),
            ("paused", "paused", "paused"),
            ("paused", "it was idle", "paused"),
            ("stopped", "stopped", "stopped"),
            ("ended", "ended", "ended"),
        ] {
            let told = json!({"state": state, "reason": reason});
            check(Kind::Lifecycle, told, json!({"action": action, "reason": reason}));
        }
    }
}
