//! Spans of grant uses by sandboxes, by the semantic conventions of OpenTelemetry.
//!
//! They belong to the trace of the operation that uses the sandbox at that time; without one there
//! are no spans. Trace contexts from a sandbox are not trusted: a context in its request that
//! belongs to the same trace becomes the parent of the span, any other one is linked.
//!
//! Other data from a program is left out, except the requested host: no texts of statements, unless
//! the configuration includes them, no paths, and no error messages.
//!
//! # References
//! - <https://opentelemetry.io/docs/specs/semconv/database/database-spans/>
//! - <https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-client>

use api::{AuditEvent, AuditOutcome};
use node::clock;
use node::traces::{Span, SpanKind, Tracer};

use crate::audit::source::AuditSource;
use crate::doors::GatewayEvent;
use crate::kinds::kind_and_name;

/// Methods that are used in span names.
const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT"];

/// Records a span for a grant use that is part of a trace.
pub(crate) fn record(tracer: &Tracer, source: &AuditSource, event: &GatewayEvent<'_>) {
    let name = match event.event {
        AuditEvent::Connect => "connect",
        AuditEvent::Statement => "query",
        AuditEvent::Request => "request",
        AuditEvent::Granted
        | AuditEvent::Revoked
        | AuditEvent::Disconnect
        | AuditEvent::Missing => return,
    };
    let Some(scope) = tracer.of_holder(&source.holder.id) else { return };
    let now = clock::now();
    let began = now.checked_sub(event.took + event.waited).unwrap_or(now);
    let (service, target) = kind_and_name(&source.grant);
    let mut span = scope.span(name, SpanKind::Client).since(began);
    match event.trace {
        Some(sent) if sent.trace_id == scope.context().trace_id => span.adopt(sent),
        Some(sent) => span.link(sent),
        None => {}
    }
    span.set("cove.grant", source.grant.to_string());
    span.set("cove.holder.id", source.holder.id.to_string());
    let database = match service {
        "postgres" => Some("postgresql"),
        "mysql" => Some("mysql"),
        _ => None,
    };
    match database {
        Some(system) => describe_database(&mut span, system, name, target, tracer, event),
        None => describe_request(&mut span, service, target, event),
    }
    match event.outcome {
        AuditOutcome::Done => {}
        AuditOutcome::Refused => fail(&mut span, "refused"),
        AuditOutcome::Failed => fail(&mut span, "failed"),
    }
    if !event.waited.is_zero() {
        let waiting =
            span.scope().map(|scope| scope.span("wait for a connection", SpanKind::Internal));
        let until = began + event.waited;
        waiting.unwrap_or_else(Span::none).since(began).until(until);
    }
}

fn describe_database(
    span: &mut Span,
    system: &'static str,
    name: &'static str,
    target: Option<&str>,
    tracer: &Tracer,
    event: &GatewayEvent<'_>,
) {
    let target = target.unwrap_or_default();
    span.rename(|| format!("{name} {target}"));
    span.set("db.system.name", system);
    span.set("db.namespace", target.to_owned());
    if event.event != AuditEvent::Statement {
        return;
    }
    if let Some(rows) = event.rows {
        span.set("db.response.returned_rows", rows);
    }
    // An error is a code, optionally followed by a message, or a message of the gateway.
    let code = event.error.and_then(|error| error.split([':', ' ']).next());
    let is_code =
        |code: &&str| code.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    if let Some(code) = code.filter(is_code) {
        span.set("db.response.status_code", code.to_owned());
    }
    if let Some(text) = event.text.filter(|_| tracer.has_statements()) {
        span.set("db.query.text", text.to_owned());
    }
}

fn describe_request(
    span: &mut Span,
    service: &str,
    target: Option<&str>,
    event: &GatewayEvent<'_>,
) {
    let mut words = event.text.unwrap_or_default().split(' ');
    let method = words.next().and_then(|word| METHODS.into_iter().find(|it| *it == word));
    let address = words.next().filter(|_| service == "http");
    let name = method.unwrap_or("HTTP");
    match (service, target) {
        ("http", _) => span.rename(|| name.to_owned()),
        (_, Some(target)) => span.rename(|| format!("{name} {service} {target}")),
        (_, None) => span.rename(|| format!("{name} {service}")),
    }
    span.set("http.request.method", method.unwrap_or("_OTHER"));
    if let Some(host) = address.and_then(host_of) {
        span.set("server.address", host.to_owned());
    }
    if let Some(status) = event.status {
        span.set("http.response.status_code", status);
    }
    for (name, bytes) in
        [("cove.bytes_sent", event.bytes_out), ("cove.bytes_received", event.bytes_in)]
    {
        if let Some(bytes) = bytes {
            span.set(name, bytes);
        }
    }
}

/// Returns the host and port of `http://host:port/path`, or of `host:port`.
fn host_of(address: &str) -> Option<&str> {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    authority.split(['/', '?', '#']).next().filter(|host| !host.is_empty())
}

fn fail(span: &mut Span, kind: &'static str) {
    span.set("error.type", kind);
    span.fail(kind);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use node::gateway::GrantHolder;
    use node::telemetry::Registry;
    use node::traces::{
        ExporterSettings, TraceContext, TraceResource, TraceSampler, TracerSettings,
    };
    use serde_json::{Value, json};
    use testkit::Receiver;

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn context(trace: &str, span: u64) -> TraceContext {
        TraceContext::from_texts(&format!("00-{trace}-{span:016x}-01"), None).unwrap()
    }

    fn event<'a>(kind: AuditEvent, outcome: AuditOutcome, text: &'a str) -> GatewayEvent<'a> {
        let text = Some(text);
        GatewayEvent { text, took: Duration::from_millis(5), ..GatewayEvent::new(kind, outcome) }
    }

    /// Records the spans of events of a grant, and returns their names and attributes.
    async fn spans(has_statements: bool, events: &[(&str, GatewayEvent<'_>)]) -> Vec<Value> {
        let collector = Receiver::start(|_| "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
        let exporter = ExporterSettings {
            url: collector.url(),
            headers: hyper::HeaderMap::new(),
            timeout: Duration::from_secs(60),
            batch_spans_max: 100,
            batch_delay: Duration::from_secs(3600),
            is_gzip: false,
            resource: TraceResource::default(),
        };
        let sampler = TraceSampler::new(1.0).unwrap();
        let settings = TracerSettings { sampler, queue_spans_max: 100, has_statements, exporter };
        let (tracer, exporter) = Tracer::new(settings, &mut Registry::default());
        let running = exporter.start();
        let bound = tracer.scope(context(TRACE, 1)).bind("ex_1");
        for (grant, event) in events {
            let holder = GrantHolder::new("ex_1", "team");
            let source = AuditSource { holder, grant: (*grant).into() };
            record(&tracer, &source, event);
            let other = GrantHolder::new("ex_2", "team");
            // A sandbox without a trace has no spans.
            record(&tracer, &AuditSource { holder: other, ..source }, event);
        }
        drop(bound);
        running.close().await;
        let document = collector.wait_for(1).remove(0).json();
        let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        assert!(spans.iter().all(|span| span["traceId"] == TRACE && span["kind"] != 2));
        spans.clone()
    }

    fn attribute(span: &Value, name: &str) -> Option<String> {
        let pairs = span["attributes"].as_array().unwrap();
        let value = &pairs.iter().find(|pair| pair["key"] == name)?["value"];
        let value = value.as_object().unwrap().values().next().unwrap();
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    #[tokio::test]
    async fn statements_are_said_without_their_text_unless_it_is_wanted() {
        use AuditEvent::{Connect, Disconnect, Statement};
        use AuditOutcome::{Done, Failed};
        let sql = "SELECT secret";
        let (own, other) = (context(TRACE, 7), context(&TRACE.replace('0', "1"), 8));
        let waited = Duration::from_millis(3);
        let events = [
            ("postgres:shop", event(Connect, Done, "")),
            (
                "postgres:shop",
                GatewayEvent { rows: Some(2), waited, ..event(Statement, Done, sql) },
            ),
            ("mysql:judge", GatewayEvent { trace: Some(&own), ..event(Statement, Done, sql) }),
            ("mysql:judge", GatewayEvent { trace: Some(&other), ..event(Statement, Done, sql) }),
            (
                "postgres:shop",
                GatewayEvent { error: Some("22012: secret"), ..event(Statement, Failed, sql) },
            ),
            ("postgres:shop", event(Disconnect, Done, "")),
        ];
        let said = spans(false, &events).await;
        let names: Vec<&str> = said.iter().map(|span| span["name"].as_str().unwrap()).collect();
        let wait = "wait for a connection";
        let judge = "query judge";
        assert_eq!(names, ["connect shop", wait, "query shop", judge, judge, "query shop"]);
        let parents: Vec<&Value> = said.iter().map(|span| &span["parentSpanId"]).collect();
        let of = |span: u64| json!(format!("{span:016x}"));
        let all = [of(1), said[2]["spanId"].clone(), of(1), of(7), of(1), of(1)];
        assert_eq!(parents, all.iter().collect::<Vec<_>>());
        let linked = json!([{"traceId": TRACE.replace('0', "1"), "spanId": format!("{:016x}", 8)}]);
        assert_eq!((said[4].get("links"), said[3].get("links")), (Some(&linked), None));
        assert_eq!(attribute(&said[2], "db.response.returned_rows").as_deref(), Some("2"));
        assert_eq!(attribute(&said[3], "db.system.name").as_deref(), Some("mysql"));
        assert_eq!(attribute(&said[5], "db.response.status_code").as_deref(), Some("22012"));
        assert_eq!(said[5]["status"]["code"], 2);
        let time = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
        let took = |span| time(span, "endTimeUnixNano") - time(span, "startTimeUnixNano");
        assert!(took(&said[1]) == 3_000_000 && took(&said[2]) >= 8_000_000, "{said:?}");
        assert!(!format!("{said:?}").contains("secret"), "{said:?}");
        let told = spans(true, &events[1..2]).await;
        assert_eq!(attribute(&told[1], "db.query.text").as_deref(), Some(sql));
    }

    #[tokio::test]
    async fn of_requests_there_is_the_host_and_no_path() {
        use AuditOutcome::{Done, Refused};
        let request = |outcome, text| event(AuditEvent::Request, outcome, text);
        let status = Some(201);
        let sent =
            GatewayEvent { status, ..request(Done, "POST http://api.example:81/secret?a=…") };
        let refused = request(Refused, "BREW http://a/");
        let events = [
            ("http", GatewayEvent { bytes_out: Some(9), ..sent }),
            ("http", GatewayEvent { error: Some("secret"), ..refused }),
            ("catalog:lake", request(Done, "GET /v1/secret 200")),
            ("model", request(Done, "POST /v1/messages secret 200")),
        ];
        let said = spans(false, &events).await;
        let names: Vec<&str> = said.iter().map(|span| span["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["POST", "HTTP", "GET catalog lake", "POST model"]);
        assert_eq!(attribute(&said[0], "server.address").as_deref(), Some("api.example:81"));
        assert_eq!(attribute(&said[0], "http.response.status_code").as_deref(), Some("201"));
        assert_eq!(attribute(&said[0], "cove.bytes_sent").as_deref(), Some("9"));
        assert_eq!(attribute(&said[1], "http.request.method").as_deref(), Some("_OTHER"));
        assert_eq!(attribute(&said[1], "error.type").as_deref(), Some("refused"));
        assert_eq!(attribute(&said[2], "server.address"), None);
        assert!(!format!("{said:?}").contains("secret"), "{said:?}");
    }

    #[test]
    fn of_an_address_there_is_only_the_host() {
        let check = |address: &str, expected: Option<&str>| {
            assert_eq!(host_of(address), expected, "{address}");
        };
        check("http://example.com/secret?x=1", Some("example.com"));
        check("http://example.com:8080?x=…", Some("example.com:8080"));
        check("example.com:443", Some("example.com:443"));
        check("http://[::1]:80/", Some("[::1]:80"));
        check("/path", None);
        check("", None);
    }
}
