//! Translation of an agent's lines into events, results and answers. No I/O.
//!
//! Each line is parsed once. Content that has no event of its own is preserved: the line itself is
//! sent as a `message` event.

use api::SessionEventKind as Kind;
use serde_json::{Map, Value, json};

use super::driver::AgentDriver;

/// Longest conversation id.
const CONVERSATION_BYTES_MAX: usize = 128;
/// Claude's error text for a conversation that it should continue and does not have.
const NO_CONVERSATION: &str = "No conversation found";

/// Cost of a turn, as the agent reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TurnCost {
    /// Tokens that the model read, without those from its cache.
    pub(crate) input_tokens: u64,
    /// Tokens that it wrote.
    pub(crate) output_tokens: u64,
    /// Tokens written to its cache.
    pub(crate) cache_creation_tokens: u64,
    /// Tokens read from its cache.
    pub(crate) cache_read_tokens: u64,
    /// Cost in US dollars.
    pub(crate) cost_usd: f64,
}

/// Meaning of a line, in addition to its events.
#[derive(Debug, PartialEq)]
pub(super) enum LineMeaning {
    /// No effect on a turn.
    Nothing,
    /// The agent is ready for messages.
    Ready,
    /// Result of the running turn.
    Result(AgentTurnResult),
    /// Answer to a request: its id, and the reason if the agent refused.
    Answer(String, Result<(), String>),
    /// Request of the agent: its id and its type.
    Request(String, String),
    /// A violation of the protocol.
    Malformed(&'static str),
}

/// Result of a turn.
#[derive(Debug, PartialEq)]
pub(super) struct AgentTurnResult {
    /// Why the turn failed, if it did.
    pub(super) error: Option<String>,
    /// Cost of the turn.
    pub(super) usage: TurnCost,
}

/// Receiver of events: `true` for events of the running turn, `false` for events outside turns.
pub(super) type Emit<'a> = dyn FnMut(bool, Kind, Value) + 'a;

/// State of the conversation so far.
#[derive(Debug)]
pub(super) struct LineTranslator {
    driver: AgentDriver,
    /// The running turn.
    turn: Option<CurrentMessage>,
    /// True if the agent reports when it starts each message.
    says_lifecycle: bool,
    /// True if the agent accepts requests.
    pub(super) has_control: bool,
    /// The agent's id for the conversation.
    conversation: Option<String>,
    is_conversation_new: bool,
    /// True if the agent does not have the conversation that it should continue.
    pub(super) conversation_lost: bool,
    /// Cost of all turns of this process so far, as it reports it.
    cost_usd: f64,
}

#[derive(Debug)]
struct CurrentMessage {
    /// UUID of the line that started the turn.
    uuid: String,
    partial: bool,
    /// True once the agent has started it.
    is_taken: bool,
    /// Id of the model's latest message, which has one line for each block.
    message: Option<String>,
    /// Number of the model's messages so far.
    rounds: u64,
}

impl LineTranslator {
    /// Creates a translator for a new process.
    pub(super) fn new(driver: AgentDriver) -> LineTranslator {
        LineTranslator {
            driver,
            turn: None,
            says_lifecycle: false,
            has_control: driver.has_control(),
            conversation: None,
            is_conversation_new: false,
            conversation_lost: false,
            cost_usd: 0.0,
        }
    }

    /// Begins a turn whose message was written to the agent.
    pub(super) fn begin(&mut self, uuid: String, partial: bool) {
        // Until an agent that reports starts has started the message, it may be busy with work of
        // its own.
        let is_taken = !self.says_lifecycle;
        self.turn = Some(CurrentMessage { uuid, partial, is_taken, message: None, rounds: 0 });
    }

    /// Returns the number of the model's messages in the running turn.
    pub(super) fn rounds(&self) -> u64 {
        self.turn.as_ref().map_or(0, |turn| turn.rounds)
    }

    /// Ends the turn.
    pub(super) fn end(&mut self) {
        self.turn = None;
    }

    /// Returns the agent's conversation id once after each change.
    pub(super) fn new_conversation(&mut self) -> Option<&str> {
        std::mem::take(&mut self.is_conversation_new).then_some(self.conversation.as_deref())?
    }

    /// Translates one line.
    pub(super) fn line(&mut self, line: &[u8], emit: &mut Emit<'_>) -> LineMeaning {
        // Invalid UTF-8 is replaced. The parser bounds nesting.
        let parsed = match std::str::from_utf8(line) {
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_str(&String::from_utf8_lossy(line)),
        };
        let Ok(Value::Object(mut line)) = parsed else {
            return LineMeaning::Malformed("a line that is not a JSON object");
        };
        let Some(Value::String(kind)) = line.get("type") else {
            return LineMeaning::Malformed("a line without a `type`");
        };
        match kind.as_str() {
            "stream_event" => self.partial(&mut line, emit),
            "assistant" => self.blocks(line, emit),
            "user" => self.blocks(line, emit),
            "result" => self.result(line, emit),
            "system" => self.system(line, emit),
            "command_lifecycle" => self.lifecycle(&line),
            "control_response" => answer(&mut line),
            "control_request" => asked(&line),
            // Keep-alives, and the withdrawal of a request that was answered at once.
            "keep_alive" | "control_cancel_request" => LineMeaning::Nothing,
            _ => {
                emit(self.is_in_turn(), Kind::Message, Value::Object(line));
                LineMeaning::Nothing
            }
        }
    }

    /// Returns whether output belongs to the running turn.
    fn is_in_turn(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.is_taken)
    }

    fn partial(&self, line: &mut Map<String, Value>, emit: &mut Emit<'_>) -> LineMeaning {
        let wanted = self.turn.as_ref().is_some_and(|turn| turn.is_taken && turn.partial);
        // Partial text of subagents is skipped, because two texts must not interleave.
        if !wanted || !line.get("parent_tool_use_id").is_none_or(Value::is_null) {
            return LineMeaning::Nothing;
        }
        let Some(delta) = line.get_mut("event").and_then(|event| event.get_mut("delta")) else {
            return LineMeaning::Nothing;
        };
        let (kind, field) = match delta.get("type").and_then(Value::as_str) {
            Some("text_delta") => (Kind::TextDelta, "text"),
            Some("thinking_delta") => (Kind::ThinkingDelta, "thinking"),
            Some("input_json_delta") => (Kind::InputJsonDelta, "partial_json"),
            _ => return LineMeaning::Nothing,
        };
        match delta.get_mut(field).map(Value::take) {
            Some(Value::String(text)) if !text.is_empty() => {
                emit(true, kind, object([("delta", Value::String(text))]));
            }
            _ => {}
        }
        LineMeaning::Nothing
    }

    /// Translates a whole message of the agent or its tools.
    fn blocks(&mut self, line: Map<String, Value>, emit: &mut Emit<'_>) -> LineMeaning {
        // Echo of the message that started the turn.
        if line.get("isReplay") == Some(&Value::Bool(true)) {
            return LineMeaning::Nothing;
        }
        let in_turn = self.is_in_turn();
        let is_agent = line.get("type").and_then(Value::as_str) == Some("assistant");
        let message = line.get("message");
        let id = message.and_then(|message| message.get("id")?.as_str());
        let is_own = line.get("parent_tool_use_id").is_none_or(Value::is_null);
        if let (Some(turn), Some(id)) = (self.turn.as_mut().filter(|turn| turn.is_taken), id)
            && is_agent
            && is_own
            && turn.message.as_deref() != Some(id)
        {
            turn.message = Some(id.to_owned());
            turn.rounds += 1;
        }
        let content = message.and_then(|message| message.get("content"));
        for block in content.and_then(Value::as_array).into_iter().flatten() {
            let field = |name: &str| block.get(name).cloned().unwrap_or_default();
            let (kind, data) = match block.get("type").and_then(Value::as_str) {
                Some("text") if is_agent => (Kind::Text, object([("text", field("text"))])),
                Some("thinking") if is_agent => {
                    (Kind::Reasoning, object([("text", field("thinking"))]))
                }
                Some("tool_use") if is_agent => {
                    let fields = ["id", "name", "input"].map(|name| (name, field(name)));
                    (Kind::ToolUse, object(fields))
                }
                Some("tool_result") if !is_agent => {
                    let is_error = block.get("is_error").and_then(Value::as_bool);
                    let data = object([
                        ("tool_use_id", field("tool_use_id")),
                        ("content", field("content")),
                        ("is_error", Value::Bool(is_error.unwrap_or(false))),
                    ]);
                    (Kind::ToolResult, data)
                }
                _ => continue,
            };
            emit(in_turn, kind, data);
        }
        emit(in_turn, Kind::Message, Value::Object(line));
        LineMeaning::Nothing
    }

    fn result(&mut self, line: Map<String, Value>, emit: &mut Emit<'_>) -> LineMeaning {
        let is_ours = self.is_of_turn(&line);
        let (outcome, data) = self.outcome(&line);
        if self.driver == AgentDriver::Claude
            && outcome.error.as_deref().is_some_and(|error| error.starts_with(NO_CONVERSATION))
        {
            // The process ends now, and its owner starts another one.
            self.conversation_lost = true;
            return LineMeaning::Nothing;
        }
        if is_ours {
            emit(true, Kind::TurnComplete, data);
        }
        emit(is_ours, Kind::Message, Value::Object(line));
        if is_ours { LineMeaning::Result(outcome) } else { LineMeaning::Nothing }
    }

    /// Returns whether a result belongs to the running turn, rather than to the agent's own work,
    /// such as Claude's result when a background task has ended.
    fn is_of_turn(&self, line: &Map<String, Value>) -> bool {
        let Some(turn) = &self.turn else { return false };
        let one = line.get("user_message_uuid").into_iter();
        let all = line.get("user_message_uuids").and_then(Value::as_array).into_iter().flatten();
        let mut named = one.chain(all).peekable();
        if named.peek().is_some() {
            return named.any(|uuid| uuid.as_str() == Some(&turn.uuid));
        }
        turn.is_taken && line.get("origin").is_none_or(Value::is_null)
    }

    /// Returns the content of a result, and its event.
    fn outcome(&mut self, line: &Map<String, Value>) -> (AgentTurnResult, Value) {
        let text = |name: &str| line.get(name).and_then(Value::as_str);
        let is_error = line.get("is_error").and_then(Value::as_bool).unwrap_or(false);
        let first = line.get("errors").and_then(|errors| errors.get(0)?.as_str());
        let error = is_error.then(|| {
            let reason = text("result").or(first).or(text("subtype"));
            reason.unwrap_or("the agent failed").to_owned()
        });
        let counts = line.get("usage");
        let count =
            |name: &str| counts.and_then(|counts| counts.get(name)?.as_u64()).unwrap_or_default();
        // The total counts from the start of the process or of the conversation.
        let total = line.get("total_cost_usd").and_then(Value::as_f64).unwrap_or(self.cost_usd);
        let cost_usd = since_last(line).unwrap_or(total - self.cost_usd).max(0.0);
        let usage = TurnCost {
            input_tokens: count("input_tokens"),
            output_tokens: count("output_tokens"),
            cache_creation_tokens: count("cache_creation_input_tokens"),
            cache_read_tokens: count("cache_read_input_tokens"),
            cost_usd,
        };
        self.cost_usd = total;
        let field = |name: &str| line.get(name).cloned().unwrap_or_default();
        let data = object([
            ("num_turns", field("num_turns")),
            ("result", field("result")),
            ("is_error", Value::Bool(is_error)),
            ("usage", field("usage")),
            ("cost_usd", json!(usage.cost_usd)),
            ("duration_ms", field("duration_ms")),
        ]);
        (AgentTurnResult { error, usage }, data)
    }

    fn system(&mut self, line: Map<String, Value>, emit: &mut Emit<'_>) -> LineMeaning {
        let is_init = line.get("subtype").and_then(Value::as_str) == Some("init");
        if is_init {
            if let Some(id) = line.get("session_id").and_then(Value::as_str)
                && is_conversation(id)
                && self.conversation.as_deref() != Some(id)
            {
                self.conversation = Some(id.to_owned());
                self.is_conversation_new = true;
            }
            let capabilities = line.get("capabilities").and_then(Value::as_array);
            let mut capabilities = capabilities.into_iter().flatten();
            self.has_control |= capabilities.any(|one| one.as_str() == Some("control"));
        }
        emit(self.is_in_turn(), Kind::Message, Value::Object(line));
        // Claude sends this only with its first turn, long after it is ready.
        if is_init && self.driver == AgentDriver::Command {
            LineMeaning::Ready
        } else {
            LineMeaning::Nothing
        }
    }

    fn lifecycle(&mut self, line: &Map<String, Value>) -> LineMeaning {
        self.says_lifecycle = true;
        let uuid = line.get("command_uuid").and_then(Value::as_str);
        if let Some(turn) = self.turn.as_mut().filter(|turn| uuid == Some(&turn.uuid)) {
            turn.is_taken = line.get("state").and_then(Value::as_str) != Some("queued");
        }
        LineMeaning::Nothing
    }
}

/// Returns the cost of a turn, if the result lists it by model.
fn since_last(line: &Map<String, Value>) -> Option<f64> {
    let models = line.get("model_usage_since_last_result")?.as_object()?;
    Some(models.values().filter_map(|model| model.get("costUSD")?.as_f64()).sum())
}

/// Parses the answer to a request of the server.
fn answer(line: &mut Map<String, Value>) -> LineMeaning {
    let Some(Value::Object(response)) = line.get_mut("response") else {
        return LineMeaning::Malformed("a `control_response` without `response`");
    };
    let Some(Value::String(id)) = response.get_mut("request_id").map(Value::take) else {
        return LineMeaning::Malformed("a `control_response` without `request_id`");
    };
    let is_error = response.get("subtype").and_then(Value::as_str) == Some("error");
    let reason = response.get("error").and_then(Value::as_str).unwrap_or("refused");
    LineMeaning::Answer(id, if is_error { Err(reason.to_owned()) } else { Ok(()) })
}

/// Parses a request of the agent.
fn asked(line: &Map<String, Value>) -> LineMeaning {
    let Some(id) = line.get("request_id").and_then(Value::as_str) else {
        return LineMeaning::Malformed("a `control_request` without `request_id`");
    };
    let subtype = line.get("request").and_then(|request| request.get("subtype")?.as_str());
    LineMeaning::Request(id.to_owned(), subtype.unwrap_or_default().to_owned())
}

/// Returns whether a conversation id is safe on a command line.
fn is_conversation(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=CONVERSATION_BYTES_MAX).contains(&id.len())
        && id.bytes().all(is_plain)
        && !id.starts_with(['-', '.'])
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}

#[cfg(test)]
mod tests;
