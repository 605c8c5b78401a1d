//! Spans of sessions: turns of agents with the tools that they use, and requests to the model.
//! They contain neither messages nor the input and output of tools.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use api::{SessionEventKind, SessionExecResult};
use hyper::HeaderMap;
use node::traces::{HolderTrace, Span, SpanKind, TraceScope, Tracer};
use parking_lot::Mutex;
use serde_json::Value;

/// Tools of one turn whose answers are awaited at one time; more have no spans.
const TOOLS_MAX: usize = 64;

/// Trace that a turn is a part of: that of the request which its message came with.
#[derive(Debug, Default)]
pub(crate) struct TurnTrace {
    /// None where nothing is recorded.
    asked: Option<TraceScope>,
    began: Mutex<TurnSpans>,
}

#[derive(Debug, Default)]
struct TurnSpans {
    /// Place within the turn, once it has begun.
    within: Option<TraceScope>,
    /// Uses of tools that were not answered yet, by their ids.
    tools: HashMap<String, Span>,
}

impl TurnTrace {
    /// The trace of the task that calls it.
    pub(crate) fn current() -> TurnTrace {
        let asked = node::traces::current().filter(|scope| scope.context().is_sampled);
        TurnTrace { asked, began: Mutex::default() }
    }

    /// Begins the span of a turn, of a message that has waited since `arrived`.
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

    /// Takes an event of the turn. It comes from the agent, so that nothing in it is certain.
    pub(crate) fn saw(&self, kind: SessionEventKind, data: &Value) {
        if self.asked.is_none() {
            return;
        }
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut spans = self.began.lock();
        match kind {
            SessionEventKind::ToolUse if spans.tools.len() < TOOLS_MAX => {
                let Some(scope) = &spans.within else { return };
                // By the semantic conventions for generative AI.
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

    /// Ends what the turn has left open.
    pub(crate) fn end(&self) {
        let spans = std::mem::take(&mut *self.began.lock());
        drop(spans);
    }
}

/// Trace that a command, a terminal or a cell is a part of, with its sandbox for as long as it
/// runs.
#[derive(Debug)]
pub(crate) struct CommandTrace {
    span: Span,
    _bound: Option<HolderTrace>,
}

impl CommandTrace {
    /// Begins to work with the sandbox of a session in a span.
    pub(crate) fn begin(mut span: Span, session: &str) -> CommandTrace {
        span.set("cove.session.id", session.to_owned());
        let bound = span.bind(session);
        CommandTrace { span, _bound: bound }
    }

    /// Lets the command go on with the trace, unless its environment names another one.
    pub(crate) fn pass_on(&self, env: &mut BTreeMap<String, String>) {
        if let Some(scope) = self.span.scope() {
            let traceparent = scope.context().traceparent();
            env.entry(node::traces::VARIABLE.to_owned()).or_insert(traceparent);
        }
    }

    /// Says how it ended.
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

/// Traces requests that a sandbox sends to the model.
#[derive(Clone, Debug)]
pub(crate) struct ModelTracer {
    pub(crate) tracer: Tracer,
    /// Session or execution that the sandbox is of.
    pub(crate) holder: Arc<str>,
}

impl ModelTracer {
    /// Begins the span of a request, if the sandbox is a part of a trace now.
    pub(crate) fn begin(&self) -> Span {
        let Some(scope) = self.tracer.of_holder(&self.holder) else { return Span::none() };
        let mut span = scope.span("model", SpanKind::Client);
        span.set("cove.holder.id", self.holder.to_string());
        span
    }

    /// Writes the trace that the sandbox is a part of into the headers of a request.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if let Some(scope) = self.tracer.of_holder(&self.holder) {
            scope.context().write(headers);
        }
    }
}
