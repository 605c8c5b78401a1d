//! Spans of sessions: turns of agents with their tool calls, and requests to the model. They
//! contain neither messages nor the tools' input and output.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use api::{SessionEventKind, SessionExecResult};
use hyper::HeaderMap;
use node::traces::{HolderTrace, Span, SpanKind, TraceScope, Tracer};
use parking_lot::Mutex;
use serde_json::Value;

/// Maximum number of unanswered tool calls with spans in one turn.
const TOOLS_MAX: usize = 64;

/// Trace of a turn: that of the request with its message.
#[derive(Debug, Default)]
pub(crate) struct TurnTrace {
    /// None if nothing is recorded.
    asked: Option<TraceScope>,
    began: Mutex<TurnSpans>,
}

#[derive(Debug, Default)]
struct TurnSpans {
    /// Scope within the turn, once it has begun.
    within: Option<TraceScope>,
    /// Unanswered tool calls, by id.
    tools: HashMap<String, Span>,
}

impl TurnTrace {
    /// Returns the trace of the current task.
    pub(crate) fn current() -> TurnTrace {
        let asked = node::traces::current().filter(|scope| scope.context().is_sampled);
        TurnTrace { asked, began: Mutex::default() }
    }

    /// Begins the span of a turn, whose message has waited since `arrived`.
    pub(crate) fn begin(&self, session: &str, turn: &str, arrived: Instant) -> Span {
        let Some(scope) = &self.asked else { return Span::none() };
        scope.span("queue", SpanKind::Consumer).since(arrived).end();
        let mut span = scope.span("turn", SpanKind::Internal);
        span.set("cove.session.id", session.to_owned());
        span.set("cove.turn.id", turn.to_owned());
        self.began.lock().within = span.scope();
        span
    }

    /// Returns the `traceparent` for the agent.
    pub(crate) fn traceparent(&self) -> Option<String> {
        let scope = self.began.lock().within.clone()?;
        Some(scope.context().traceparent())
    }

    /// Records an event of the turn. It comes from the agent, so its content is untrusted.
    pub(crate) fn saw(&self, kind: SessionEventKind, data: &Value) {
        if self.asked.is_none() {
            return;
        }
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut spans = self.began.lock();
        match kind {
            SessionEventKind::ToolUse if spans.tools.len() < TOOLS_MAX => {
                let Some(scope) = &spans.within else { return };
                // Follows the semantic conventions for generative AI.
                let mut span = scope.span("execute_tool", SpanKind::Internal);
                let name = text("name").to_owned();
                span.rename(|| format!("execute_tool {name}"));
                span.set("gen_ai.operation.name", "execute_tool");
                span.set("gen_ai.tool.name", name);
                span.set("gen_ai.tool.call.id", text("id").to_owned());
                spans.tools.insert(text("id").to_owned(), span);
            }
            SessionEventKind::ToolResult => {
                let Some(mut span) = spans.tools.remove(text("tool_use_id")) else { return };
                if data.get("is_error") == Some(&Value::Bool(true)) {
                    span.fail("the tool answered with an error");
                }
            }
            _ => {}
        }
    }

    /// Ends open spans of the turn.
    pub(crate) fn end(&self) {
        let spans = std::mem::take(&mut *self.began.lock());
        drop(spans);
    }
}

/// Trace of a command, a terminal or a cell, bound to its sandbox while it runs.
#[derive(Debug)]
pub(crate) struct CommandTrace {
    span: Span,
    _bound: Option<HolderTrace>,
}

impl CommandTrace {
    /// Binds a command's span to a session's sandbox.
    pub(crate) fn begin(mut span: Span, session: &str) -> CommandTrace {
        span.set("cove.session.id", session.to_owned());
        let bound = span.bind(session);
        CommandTrace { span, _bound: bound }
    }

    /// Passes the trace to the command, unless its environment sets another one.
    pub(crate) fn pass_on(&self, env: &mut BTreeMap<String, String>) {
        if let Some(scope) = self.span.scope() {
            let traceparent = scope.context().traceparent();
            env.entry(node::traces::VARIABLE.to_owned()).or_insert(traceparent);
        }
    }

    /// Records the command's result, and ends the span.
    pub(crate) fn end(mut self, result: &SessionExecResult) {
        if let Some(code) = result.exit_code {
            self.span.set("process.exit.code", code);
        }
        if let Some(signal) = &result.signal {
            self.span.set("cove.signal", signal.clone());
        }
        self.span.set("cove.timed_out", result.timed_out);
    }
}

/// Traces a sandbox's requests to the model.
#[derive(Clone, Debug)]
pub(crate) struct ModelTracer {
    pub(crate) tracer: Tracer,
    /// Session or execution that owns the sandbox.
    pub(crate) holder: Arc<str>,
}

impl ModelTracer {
    /// Begins the span of a request, if the sandbox is part of a trace now.
    pub(crate) fn begin(&self) -> Span {
        let Some(scope) = self.tracer.of_holder(&self.holder) else { return Span::none() };
        let mut span = scope.span("model", SpanKind::Client);
        span.set("cove.holder.id", self.holder.to_string());
        span
    }

    /// Writes the sandbox's trace into the headers of a request.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if let Some(scope) = self.tracer.of_holder(&self.holder) {
            scope.context().write(headers);
        }
    }
}
