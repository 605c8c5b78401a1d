//! Spans: one part of the work for a request, with its time.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use super::context::{SpanId, TraceContext, TraceId};
use super::{HolderTrace, TraceScope, in_scope};
use crate::clock;

/// Maximum length of a text in a span; longer ones are truncated.
pub(super) const TEXT_BYTES_MAX: usize = 1024;
/// Maximum number of attributes of one span; no code of Cove sets as many.
const ATTRIBUTES_MAX: usize = 64;

/// Role of a span, with its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Internal work of Cove.
    Internal = 1,
    /// Answer to a request.
    Server = 2,
    /// Request to another service.
    Client = 3,
    /// Processing of a queued item.
    Consumer = 5,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanValue {
    /// Text.
    Text(Cow<'static, str>),
    /// Whole number.
    Number(i64),
    /// Number.
    Float(f64),
    /// Yes or no.
    Flag(bool),
}

impl From<&'static str> for SpanValue {
    fn from(text: &'static str) -> SpanValue {
        SpanValue::Text(Cow::Borrowed(text))
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> SpanValue {
        SpanValue::Text(Cow::Owned(text))
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> SpanValue {
        SpanValue::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for SpanValue {
    fn from(number: u32) -> SpanValue {
        SpanValue::Number(number.into())
    }
}

impl From<u16> for SpanValue {
    fn from(number: u16) -> SpanValue {
        SpanValue::Number(number.into())
    }
}

impl From<i32> for SpanValue {
    fn from(number: i32) -> SpanValue {
        SpanValue::Number(number.into())
    }
}

impl From<f64> for SpanValue {
    fn from(number: f64) -> SpanValue {
        SpanValue::Float(number)
    }
}

impl From<bool> for SpanValue {
    fn from(is_true: bool) -> SpanValue {
        SpanValue::Flag(is_true)
    }
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub(super) struct SpanRecord {
    pub(super) context: TraceContext,
    pub(super) parent: Option<SpanId>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    pub(super) began: SystemTime,
    pub(super) took: Duration,
    pub(super) attributes: Vec<(&'static str, SpanValue)>,
    pub(super) links: Vec<(TraceId, SpanId)>,
    /// Reason for its failure; empty if there is none to report.
    pub(super) error: Option<Cow<'static, str>>,
}

/// A part of the work for a request, which ends when this is dropped. It may be empty: then nothing
/// is recorded, and its methods do nothing.
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    /// Context of the work within it; none if nothing is traced.
    scope: Option<TraceScope>,
    open: Option<Box<OpenSpan>>,
}

struct OpenSpan {
    started: Instant,
    /// Time at which it ended; none to end it when it is dropped.
    ended: Option<Instant>,
    record: SpanRecord,
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.open.as_ref().map(|open| &open.record.name);
        f.debug_struct("Span").field("name", &name).finish_non_exhaustive()
    }
}

impl Span {
    /// Returns an empty span.
    pub const fn none() -> Span {
        Span { scope: None, open: None }
    }

    pub(super) fn new(
        scope: TraceScope,
        name: &'static str,
        kind: SpanKind,
        parent: Option<SpanId>,
    ) -> Span {
        let open = scope.context.is_sampled.then(|| {
            let record = SpanRecord {
                context: scope.context.clone(),
                parent,
                name: Cow::Borrowed(name),
                kind,
                began: clock::wall(),
                took: Duration::ZERO,
                attributes: Vec::new(),
                links: Vec::new(),
                error: None,
            };
            Box::new(OpenSpan { started: clock::now(), ended: None, record })
        });
        Span { scope: Some(scope), open }
    }

    /// Returns whether it is recorded. Expensive attributes should be computed only then.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the position within it, for its parts; none if nothing is traced.
    #[must_use]
    pub fn scope(&self) -> Option<TraceScope> {
        self.scope.clone()
    }

    /// Runs a future within the span.
    pub fn within<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        in_scope(self.scope(), future)
    }

    /// Makes a sandbox a part of the span until the returned value is dropped.
    #[must_use]
    pub fn bind(&self, holder: &str) -> Option<HolderTrace> {
        self.scope.as_ref()?.bind(holder)
    }

    /// Sets another start time.
    pub fn since(mut self, started: Instant) -> Span {
        if let Some(open) = &mut self.open {
            let earlier = open.started.saturating_duration_since(started);
            open.record.began = open.record.began.checked_sub(earlier).unwrap_or(open.record.began);
            open.started = started;
        }
        self
    }

    /// Sets another name.
    pub fn rename(&mut self, name: impl FnOnce() -> String) {
        if let Some(open) = &mut self.open {
            open.record.name = Cow::Owned(cut(name()));
        }
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<SpanValue>) {
        let Some(open) = &mut self.open else { return };
        if open.record.attributes.len() >= ATTRIBUTES_MAX {
            return;
        }
        let value = match value.into() {
            SpanValue::Text(Cow::Owned(text)) => SpanValue::Text(Cow::Owned(cut(text))),
            other => other,
        };
        open.record.attributes.push((name, value));
    }

    /// Sets an attribute to a text that is only formatted if the span is recorded.
    pub fn set_text(&mut self, name: &'static str, text: impl fmt::Display) {
        if self.open.is_some() {
            self.set(name, text.to_string());
        }
    }

    /// Adds a link to a related span of another trace.
    pub fn link(&mut self, other: &TraceContext) {
        if let Some(open) = &mut self.open {
            open.record.links.push((other.trace_id, other.span_id));
        }
    }

    /// Replaces its parent by a span of the same trace.
    pub fn adopt(&mut self, parent: &TraceContext) {
        if let Some(open) = &mut self.open
            && open.record.context.trace_id == parent.trace_id
        {
            open.record.parent = Some(parent.span_id);
        }
    }

    /// Marks it as failed, with a reason. The reason must contain no data of programs, and no
    /// secret.
    pub fn fail(&mut self, why: impl Into<Cow<'static, str>>) {
        if let Some(open) = &mut self.open {
            open.record.error.get_or_insert_with(|| match why.into() {
                Cow::Owned(text) => Cow::Owned(cut(text)),
                borrowed @ Cow::Borrowed(_) => borrowed,
            });
        }
    }

    /// Drops it without recording.
    pub fn discard(mut self) {
        self.open = None;
    }

    /// Ends it, as of an earlier time.
    pub fn until(mut self, ended: Instant) {
        if let Some(open) = &mut self.open {
            open.ended = Some(ended);
        }
    }

    /// Ends it now.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let (Some(open), Some(scope)) = (self.open.take(), &self.scope) else { return };
        let OpenSpan { started, ended, mut record } = *open;
        record.took = ended.unwrap_or_else(clock::now).saturating_duration_since(started);
        scope.tracer.submit(record);
    }
}

/// Truncates a text to the maximum length of a span's texts.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    }
    text
}
