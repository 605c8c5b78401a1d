//! Tests of tracers and exporters, with a collector in the process.

use std::io::Read as _;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use testkit::{Delivered, Receiver};

use super::context::TraceContext;
use super::span::TEXT_BYTES_MAX;
use super::*;

const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const REFUSED: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
/// Requests no pause, so that no test waits for one.
const LATER: &str =
    "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
const IN_PART: &str = "HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n\
    {\"partialSuccess\":{\"rejectedSpans\":\"1\"}}";

fn settings(url: &str) -> TracerSettings {
    TracerSettings {
        sampler: TraceSampler::new(1.0).unwrap(),
        queue_spans_max: 100,
        has_statements: false,
        exporter: ExporterSettings {
            url: url.to_owned(),
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(30),
            batch_spans_max: 10,
            // No span waits for the clock: batches are full, or the exporter ends.
            batch_delay: Duration::from_secs(3600),
            is_gzip: false,
            resource: TraceResource([("service.name".to_owned(), "test".to_owned())].into()),
        },
    }
}

/// Returns a tracer whose spans are not sent.
pub(crate) fn tracer_without_collector() -> Tracer {
    tracer(settings("http://127.0.0.1:9/")).0
}

fn tracer(settings: TracerSettings) -> (Tracer, TraceExporter) {
    Tracer::new(settings, &mut Registry::default())
}

fn remote(is_sampled: bool) -> TraceContext {
    let flags = u8::from(is_sampled);
    let text = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags:02x}");
    TraceContext::from_texts(&text, Some("vendor=1")).unwrap()
}

/// Returns the spans of a request to the collector.
fn spans(delivered: &Delivered) -> Vec<Value> {
    let is_gzip = delivered.headers.iter().any(|(name, _)| name == "content-encoding");
    let body: Value = match is_gzip {
        true => {
            let mut text = String::new();
            GzDecoder::new(&*delivered.body).read_to_string(&mut text).unwrap();
            serde_json::from_str(&text).unwrap()
        }
        false => delivered.json(),
    };
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn counts(tracer: &Tracer) -> [u64; 4] {
    use SpanOutcome::{Dropped, Exported, Failed, Rejected};
    [Exported, Dropped, Failed, Rejected].map(|outcome| tracer.0.counters.count(outcome))
}

/// Waits until these numbers of spans were counted.
async fn counted(tracer: &Tracer, expected: [u64; 4]) {
    let is_there = async {
        while counts(tracer) != expected {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), is_there).await;
    assert!(waited.is_ok(), "{:?} instead of {expected:?}", counts(tracer));
}

#[test]
fn a_part_of_all_traces_is_taken_by_their_ids() {
    let check = |ratio: f64, low: u64, is_taken: bool| {
        let mut id = [1; 16];
        id[8..].copy_from_slice(&low.to_be_bytes());
        let taken = TraceSampler::new(ratio).unwrap().takes(TraceId::new(id).unwrap());
        assert_eq!(taken, is_taken, "{ratio} {low:x}");
    };
    check(0.0, 0, false);
    check(1.0, u64::MAX, true);
    check(0.5, u64::MAX / 2 - 1, true);
    check(0.5, u64::MAX / 2 + 1, false);
    check(0.25, 1 << 61, true);
    check(0.25, (1 << 62) + 2, false);
    for none in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(TraceSampler::new(none), None);
    }
    let half = TraceSampler::new(0.5).unwrap();
    let taken = (0..1000).filter(|_| half.takes(TraceId::new(random().unwrap()).unwrap())).count();
    assert!((300..700).contains(&taken), "{taken} of 1000");
}

#[tokio::test]
async fn a_caller_decides_about_its_trace_and_the_ratio_about_others() {
    let mut none = settings("http://127.0.0.1:9/");
    none.sampler = TraceSampler::new(0.0).unwrap();
    let (tracer, _exporter) = tracer(none);
    let begin = |remote| tracer.begin("x", SpanKind::Server, remote);
    let taken = begin(Some(remote(true)));
    assert!(taken.is_recorded());
    let context = taken.scope().unwrap().context().clone();
    assert_eq!(context.trace_id, remote(true).trace_id);
    assert_ne!(context.span_id, remote(true).span_id);
    assert_eq!(context.state.as_deref(), Some("vendor=1"));
    // A context that is not recorded is passed on unchanged.
    let passed = begin(Some(remote(false)));
    assert!(!passed.is_recorded());
    assert_eq!(*passed.scope().unwrap().context(), remote(false));
    let new = begin(None);
    assert!(!new.is_recorded() && !new.scope().unwrap().context().is_sampled);
    assert!(!new.scope().unwrap().span("y", SpanKind::Internal).is_recorded());
    assert!(new.bind("ses_1").is_none());
}

#[tokio::test]
async fn spans_are_parts_of_what_they_begin_in() {
    let collector = Receiver::start(|_| TAKEN);
    let (tracer, exporter) = tracer(settings(&collector.url()));
    let exporter = exporter.start();
    assert!(current().is_none());
    let mut outer = tracer.begin("outer", SpanKind::Server, Some(remote(true)));
    outer.set("number", 7_u64);
    outer.set("text", "ä".repeat(TEXT_BYTES_MAX));
    outer.set("float", 0.5);
    outer.set("flag", true);
    outer.link(&remote(false));
    let work = async {
        let inner = span("inner");
        // Also in a task that its caller waits for, and in no other.
        let ended = crate::task::to_the_end(inner.within(async { span("innermost").end() }));
        let scope = current().unwrap();
        ended.await.unwrap();
        crate::task::spawn(async { assert!(current().is_none()) }).await.unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", HeaderValue::from_static("forged"));
        write_current(&mut headers);
        assert_eq!(TraceContext::from_headers(&headers).as_ref(), Some(scope.context()));
        let mut failed = span("failed");
        failed.fail("why");
        failed.fail("later reason");
    };
    outer.within(work).await;
    let began = clock_now();
    outer.since(began - Duration::from_secs(3)).until(began);
    exporter.close().await;
    counted(&tracer, [4, 0, 0, 0]).await;

    let delivered = collector.wait_for(1).remove(0);
    assert_eq!(delivered.line, "POST /hook");
    assert_eq!(delivered.header("content-type"), "application/json");
    let resource = &delivered.json()["resourceSpans"][0]["resource"]["attributes"];
    assert_eq!(*resource, json!([{"key": "service.name", "value": {"stringValue": "test"}}]));
    let spans = spans(&delivered);
    let named = |name: &str| spans.iter().find(|span| span["name"] == name).unwrap();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    assert!(spans.iter().all(|span| span["traceId"] == trace && span["traceState"] == "vendor=1"));
    for (name, parent) in [("inner", "outer"), ("innermost", "inner"), ("failed", "outer")] {
        assert_eq!(named(name)["parentSpanId"], named(parent)["spanId"], "{name}");
    }
    let outer = named("outer");
    assert_eq!(outer["parentSpanId"], "b7ad6b7169203331");
    assert_eq!((&outer["kind"], &named("inner")["kind"]), (&json!(2), &json!(1)));
    let values: Vec<&Value> =
        outer["attributes"].as_array().unwrap().iter().map(|it| &it["value"]).collect();
    assert_eq!(*values[0], json!({"intValue": "7"}));
    assert_eq!(values[1]["stringValue"].as_str().unwrap().len(), TEXT_BYTES_MAX);
    assert_eq!(*values[2], json!({"doubleValue": 0.5}));
    assert_eq!(*values[3], json!({"boolValue": true}));
    assert_eq!(outer["links"], json!([{"traceId": trace, "spanId": "b7ad6b7169203331"}]));
    let time = |name: &str| outer[name].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(time("endTimeUnixNano") - time("startTimeUnixNano"), 3_000_000_000);
    assert_eq!(named("failed")["status"], json!({"code": 2, "message": "why"}));
    assert!(outer.get("status").is_none());
}

fn clock_now() -> std::time::Instant {
    crate::clock::now()
}

#[tokio::test]
async fn a_sandbox_is_a_part_of_the_latest_trace_that_it_was_bound_to() {
    let (tracer, _exporter) = tracer(settings("http://127.0.0.1:9/"));
    let [one, two] = [0, 1].map(|_| tracer.begin("x", SpanKind::Server, None));
    let id = |span: &Span| span.scope().map(|scope| scope.context().span_id);
    let of_holder = || tracer.of_holder("ses_1").map(|scope| scope.context().span_id);
    let first = one.bind("ses_1").unwrap();
    let second = two.bind("ses_1").unwrap();
    assert_eq!(of_holder(), id(&two));
    assert!(tracer.of_holder("ses_2").is_none());
    drop(first);
    assert_eq!(of_holder(), id(&two));
    drop(second);
    assert!(of_holder().is_none() && tracer.0.holders.latest("ses_1").is_none());
}

#[tokio::test]
async fn a_full_queue_drops_spans_and_never_waits() {
    // The queue has no reader.
    let (tracer, exporter) =
        tracer(TracerSettings { queue_spans_max: 3, ..settings("http://127.0.0.1:9/") });
    for _ in 0..8 {
        tracer.begin("x", SpanKind::Server, None).end();
    }
    assert_eq!(counts(&tracer), [0, 5, 0, 0]);
    drop(exporter);
    tracer.begin("x", SpanKind::Server, None).end();
    assert_eq!(counts(&tracer), [0, 6, 0, 0]);
}

#[tokio::test]
async fn batches_are_sent_when_they_are_full_and_at_the_end() {
    let collector = Receiver::start(|_| TAKEN);
    let mut packed = settings(&collector.url());
    packed.exporter.is_gzip = true;
    packed.exporter.headers.insert("x-key", HeaderValue::from_static("hunter2"));
    let (tracer, exporter) = tracer(packed);
    let exporter = exporter.start();
    for _ in 0..25 {
        tracer.begin("x", SpanKind::Server, None).end();
    }
    counted(&tracer, [20, 0, 0, 0]).await;
    exporter.close().await;
    counted(&tracer, [25, 0, 0, 0]).await;
    let delivered = collector.wait_for(3);
    let sizes: Vec<usize> = delivered.iter().map(|it| spans(it).len()).collect();
    assert_eq!(sizes, [10, 10, 5]);
    for one in &delivered {
        assert_eq!((one.header("content-encoding"), one.header("x-key")), ("gzip", "hunter2"));
    }
}

#[tokio::test]
async fn a_span_waits_for_others_no_longer_than_it_should() {
    let collector = Receiver::start(|_| TAKEN);
    let mut quick = settings(&collector.url());
    quick.exporter.batch_delay = Duration::from_millis(1);
    let (tracer, exporter) = tracer(quick);
    let exporter = exporter.start();
    tracer.begin("x", SpanKind::Server, None).end();
    counted(&tracer, [1, 0, 0, 0]).await;
    exporter.close().await;
}

#[tokio::test]
async fn what_a_collector_cannot_take_now_is_sent_again_and_what_it_refuses_is_not() {
    let collector = Receiver::start(|number| match number {
        0 | 1 => LATER,
        2 => IN_PART,
        _ => REFUSED,
    });
    let (tracer, exporter) = tracer(settings(&collector.url()));
    let exporter = exporter.start();
    let batch = || (0..10).for_each(|_| tracer.begin("x", SpanKind::Server, None).end());
    batch();
    counted(&tracer, [9, 0, 0, 1]).await;
    batch();
    counted(&tracer, [9, 0, 10, 1]).await;
    assert_eq!(collector.wait_for(4).len(), 4);
    exporter.close().await;
}

#[tokio::test]
async fn a_collector_that_is_away_does_not_hold_up_the_end() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (tracer, exporter) = tracer(settings(&format!("http://{free}/v1/traces")));
    let exporter = exporter.start();
    for _ in 0..15 {
        tracer.begin("x", SpanKind::Server, None).end();
    }
    exporter.close().await;
    counted(&tracer, [0, 0, 15, 0]).await;
    // The queue has no reader any more.
    tracer.begin("x", SpanKind::Server, None).end();
    assert_eq!(counts(&tracer), [0, 1, 15, 0]);
}
