//! Turns that only this server reads.

use api::{MessageContent, MessageRequest, SessionEventKind as Kind};
use serde_json::Value;

use crate::error::SessionError;
use crate::service::Sessions;

/// Outcome of a turn.
pub(super) struct AshTurnOutcome {
    /// All text of the agent.
    pub(super) text: String,
    /// Why the turn failed, if it did.
    pub(super) error: Option<String>,
}

/// Sends a message and waits for the end of its turn.
pub(super) async fn ask(
    sessions: &Sessions,
    tenant: &str,
    session: &str,
    text: &str,
) -> Result<AshTurnOutcome, SessionError> {
    let request = MessageRequest {
        content: MessageContent::Text(text.to_owned()),
        partial: false,
        model: None,
        on_disconnect: None,
        extra: serde_json::Map::new(),
    };
    let mut heard = sessions.conversations()?.send(tenant, session, request).await?;
    let mut outcome = AshTurnOutcome { text: String::new(), error: None };
    let mut is_done = false;
    while let Some(events) = heard.next().await {
        for event in events {
            let field = |name: &str| event.data.get(name).and_then(Value::as_str);
            match event.kind {
                Kind::Text => outcome.text.push_str(field("text").unwrap_or_default()),
                Kind::Error => outcome.error = field("error").map(str::to_owned),
                Kind::Done => is_done = true,
                Kind::TurnStart
                | Kind::TextDelta
                | Kind::ThinkingDelta
                | Kind::InputJsonDelta
                | Kind::Reasoning
                | Kind::ToolUse
                | Kind::ToolResult
                | Kind::Message
                | Kind::TurnComplete
                | Kind::Lifecycle => {}
            }
        }
    }
    if !is_done && outcome.error.is_none() {
        outcome.error = Some("the events of the turn cannot be read".to_owned());
    }
    Ok(outcome)
}
