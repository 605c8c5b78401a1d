//! Spans in OTLP's JSON encoding.
//!
//! # References
//! - <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: ids are hexadecimal
//!   digits, whole numbers of 64 bits are texts, kinds and codes are numbers.
//! - <https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto>

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::span::{SpanRecord, SpanValue};

/// `STATUS_CODE_ERROR`
const ERROR: u8 = 2;
/// Name of the instrumentation scope.
const SCOPE: &str = "cove";

/// Attributes of the source of spans: `service.name` and others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceResource(pub BTreeMap<String, String>);

/// The document of one request to a collector.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpDocument<'a> {
    resource_spans: [OtlpResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpResourceSpans<'a> {
    resource: OtlpResource<'a>,
    scope_spans: [OtlpScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct OtlpResource<'a> {
    attributes: Vec<OtlpAttribute<'a>>,
}

#[derive(Serialize)]
struct OtlpScopeSpans<'a> {
    scope: OtlpScope<'a>,
    spans: Vec<OtlpSpan<'a>>,
}

#[derive(Serialize)]
struct OtlpScope<'a> {
    name: &'a str,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpSpan<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_state: Option<&'a str>,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<OtlpAttribute<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<OtlpLink>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<OtlpStatus<'a>>,
}

#[derive(Serialize)]
struct OtlpAttribute<'a> {
    key: &'a str,
    value: OtlpValue<'a>,
}

#[derive(Serialize)]
enum OtlpValue<'a> {
    #[serde(rename = "stringValue")]
    Text(&'a str),
    #[serde(rename = "intValue")]
    Number(String),
    #[serde(rename = "doubleValue")]
    Float(f64),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpLink {
    trace_id: String,
    span_id: String,
}

#[derive(Serialize)]
struct OtlpStatus<'a> {
    code: u8,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

/// Returns the body of a request with these spans.
pub(super) fn document(
    resource: &TraceResource,
    spans: &[SpanRecord],
) -> Result<Vec<u8>, serde_json::Error> {
    let attributes = resource.0.iter();
    let attributes =
        attributes.map(|(key, text)| OtlpAttribute { key, value: OtlpValue::Text(text) });
    let scope = OtlpScope { name: SCOPE, version: env!("CARGO_PKG_VERSION") };
    let scope_spans = [OtlpScopeSpans { scope, spans: spans.iter().map(span).collect() }];
    let resource = OtlpResource { attributes: attributes.collect() };
    serde_json::to_vec(&OtlpDocument {
        resource_spans: [OtlpResourceSpans { resource, scope_spans }],
    })
}

fn span(record: &SpanRecord) -> OtlpSpan<'_> {
    let ended = record.began.checked_add(record.took).unwrap_or(record.began);
    let attributes = record.attributes.iter();
    let links = record.links.iter();
    OtlpSpan {
        trace_id: record.context.trace_id.to_string(),
        span_id: record.context.span_id.to_string(),
        parent_span_id: record.parent.map(|it| it.to_string()),
        trace_state: record.context.state.as_deref(),
        name: &record.name,
        kind: record.kind as u8,
        start_time_unix_nano: nanoseconds(record.began),
        end_time_unix_nano: nanoseconds(ended),
        attributes: attributes.map(|(key, it)| OtlpAttribute { key, value: value(it) }).collect(),
        links: links
            .map(|(trace, span)| OtlpLink {
                trace_id: trace.to_string(),
                span_id: span.to_string(),
            })
            .collect(),
        status: record.error.as_deref().map(|message| OtlpStatus { code: ERROR, message }),
    }
}

fn value(value: &SpanValue) -> OtlpValue<'_> {
    match value {
        SpanValue::Text(text) => OtlpValue::Text(text),
        SpanValue::Number(number) => OtlpValue::Number(number.to_string()),
        SpanValue::Float(number) => OtlpValue::Float(*number),
        SpanValue::Flag(is_true) => OtlpValue::Flag(*is_true),
    }
}

fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos().to_string()
}

/// Answer of a collector to an accepted request: the number of rejected spans.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct OtlpAnswer {
    partial_success: OtlpPartialSuccess,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OtlpPartialSuccess {
    rejected_spans: OtlpCount,
}

/// Collectors encode whole numbers of 64 bits as texts, as they should, or as numbers.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OtlpCount {
    Text(String),
    Number(u64),
}

impl Default for OtlpCount {
    fn default() -> OtlpCount {
        OtlpCount::Number(0)
    }
}

impl OtlpAnswer {
    /// Returns the number of spans that the collector rejected; 0 if the answer cannot be parsed.
    pub(super) fn rejected(body: &[u8]) -> usize {
        let answer: OtlpAnswer = serde_json::from_slice(body).unwrap_or_default();
        let count = match answer.partial_success.rejected_spans {
            OtlpCount::Text(text) => text.parse().unwrap_or(0),
            OtlpCount::Number(count) => count,
        };
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}
