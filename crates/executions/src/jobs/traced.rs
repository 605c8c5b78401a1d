//! Traces of executions that wait: a stored request contains its trace context, so that the server
//! that runs it continues that trace, and so does its webhook.
//!
//! Only sampled requests are stored in this form; all others are stored unchanged.

use std::borrow::Cow;
use std::time::Duration;

use api::ExecutionRequest;
use node::clock;
use node::traces::{TraceContext, TraceScope, Tracer};
use serde::{Deserialize, Serialize};

use super::granted;

/// Stored form of a request that is part of a trace. A back end may reformat JSON, so the request,
/// which may have a proof, is a string in it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTrace<'a> {
    traceparent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
    /// Time of acceptance, by the clock of the queue.
    accepted_ms: u64,
    /// The stored request without its trace.
    #[serde(borrow)]
    traced: Cow<'a, str>,
}

/// Trace context of a stored request.
#[derive(Clone, Debug)]
pub(super) struct JobTrace {
    context: TraceContext,
    accepted_ms: u64,
}

/// Returns the stored form of a request that is part of the current trace, if that is sampled.
pub(super) fn stored(text: Vec<u8>, accepted_ms: u64) -> Vec<u8> {
    let Some(scope) = node::traces::current().filter(|it| it.context().is_sampled) else {
        return text;
    };
    let TraceContext { state, .. } = scope.context();
    let traceparent = scope.context().traceparent();
    let tracestate = state.as_deref().map(str::to_owned);
    let wrapped = std::str::from_utf8(&text).ok().and_then(|traced| {
        let traced = Cow::Borrowed(traced);
        serde_json::to_vec(&StoredTrace { traceparent, tracestate, accepted_ms, traced }).ok()
    });
    // JSON is text, so this never fails.
    wrapped.unwrap_or(text)
}

/// Separates the trace from a stored request.
pub(super) fn untraced(stored: &[u8]) -> (Cow<'_, [u8]>, Option<JobTrace>) {
    let Ok(StoredTrace { traceparent, tracestate, accepted_ms, traced }) =
        serde_json::from_slice(stored)
    else {
        return (Cow::Borrowed(stored), None);
    };
    let request = match traced {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    };
    let context = TraceContext::from_texts(&traceparent, tracestate.as_deref());
    (request, context.map(|context| JobTrace { context, accepted_ms }))
}

/// Returns whether a stored request is interactive.
pub(crate) fn is_interactive(stored: &[u8]) -> bool {
    granted::is_interactive(&untraced(stored).0)
}

/// Decodes a request that was stored for this tenant, with its trace.
///
/// # Errors
/// The reason why it may not be run.
pub(super) fn request(
    key: &[u8; 32],
    tenant: &str,
    stored: &[u8],
) -> Result<(ExecutionRequest, Option<JobTrace>), String> {
    let (text, trace) = untraced(stored);
    Ok((granted::request(key, tenant, &text)?, trace))
}

impl JobTrace {
    /// Returns the scope in which its trace continues.
    pub(super) fn scope(&self, tracer: &Tracer) -> TraceScope {
        tracer.scope(self.context.clone())
    }

    /// Records a span for the time that it waited up to now.
    pub(super) fn waited(&self, tracer: &Tracer, attempt: u32, now_ms: u64) {
        let waited = Duration::from_millis(now_ms.saturating_sub(self.accepted_ms));
        let now = clock::now();
        let mut span = self.scope(tracer).span("queue", node::traces::SpanKind::Consumer);
        span = span.since(now.checked_sub(waited).unwrap_or(now));
        span.set("cove.attempt", attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_stored_with_its_trace_and_comes_back_without() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let plain = br#"{"source":"print(\"\u00e4\")","interactive":true}"#;
        // Without a trace, nothing is added.
        assert_eq!(stored(plain.to_vec(), 7), plain);
        assert!(matches!(untraced(plain), (Cow::Borrowed(text), None) if text == plain));
        let traced = serde_json::to_vec(&StoredTrace {
            traceparent: parent.to_owned(),
            tracestate: Some("a=1".to_owned()),
            accepted_ms: 7,
            traced: std::str::from_utf8(plain).unwrap().into(),
        });
        let traced = traced.unwrap();
        // Independent of a back end's JSON formatting.
        let value: serde_json::Value = serde_json::from_slice(&traced).unwrap();
        for text in [traced.clone(), serde_json::to_vec_pretty(&value).unwrap()] {
            let (request, trace) = untraced(&text);
            let trace = trace.unwrap();
            assert_eq!(&*request, plain);
            assert_eq!((trace.context.traceparent().as_str(), trace.accepted_ms), (parent, 7));
            assert_eq!(trace.context.state.as_deref(), Some("a=1"));
            assert!(is_interactive(&text));
        }
        // An invalid trace leaves the request unchanged.
        let broken = String::from_utf8(traced).unwrap().replace("00-0af", "00-XXX");
        let (request, trace) = untraced(broken.as_bytes());
        assert!(trace.is_none() && &*request == plain);
    }
}
