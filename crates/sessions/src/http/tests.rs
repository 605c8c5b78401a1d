//! Parts of the interface that can be tested without a sandbox: queries, headers, rejections.

use api::{ErrorCode, SessionEventKind, SessionState, TerminalSize};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use bytes::Bytes;
use node::http;
use sandbox::FilesError;

use super::files::{ByteRange, permissions, range, refusal};
use super::terminal::{PendingTerminalInput, TerminalQuery, asked, signal_number};
use super::{accepts, conversation, lifecycle};

fn uri(query: &str) -> Uri {
    format!("/v1/sessions{query}").parse().unwrap()
}

fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
}

#[test]
fn every_operation_has_a_handler() {
    for routes in [super::of_agents(), super::of_sessions(), super::of_shelf()] {
        drop(routes);
    }
    drop(super::of_templates());
}

#[test]
fn lists_are_asked_for_strictly() {
    let query = "?state=active,paused&agent=a&metadata.user=7&metadata.a.b=c%20d&limit=3&cursor=s";
    let asked = lifecycle::listing(&uri(query)).unwrap();
    assert_eq!(asked.states, [SessionState::Active, SessionState::Paused]);
    assert_eq!((asked.agent.as_deref(), asked.cursor.as_deref()), (Some("a"), Some("s")));
    let metadata: Vec<_> = asked.metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(metadata, [("a.b", "c d"), ("user", "7")]);
    assert_eq!(asked.limit, 3);
    for (query, says) in [
        ("?state=open", "state: there is no state \"open\""),
        ("?limit=0", "limit: must be 1 to 200"),
        ("?limit=201", "limit: must be 1 to 200"),
        ("?limit=x", "limit: must be a number"),
        ("?agent=a&agent=b", "agent: is specified twice"),
        ("?tenant=x", "tenant: unknown parameter"),
        ("?metadata=x", "metadata: unknown parameter"),
    ] {
        let error = lifecycle::listing(&uri(query)).unwrap_err().to_string();
        assert!(error.starts_with(says), "{query}: {error}");
    }
}

#[test]
fn types_of_events_are_named_as_in_the_events() {
    assert_eq!(conversation::kinds(None).unwrap(), []);
    let wanted = [SessionEventKind::Text, SessionEventKind::Done];
    assert_eq!(conversation::kinds(Some("text,done")).unwrap(), wanted);
    let error = conversation::kinds(Some("text,")).unwrap_err().to_string();
    assert!(error.starts_with("types: there is no type \"\""), "{error}");
}

#[test]
fn what_is_accepted_is_found_in_lists() {
    for (value, expected) in [
        ("text/event-stream", true),
        ("application/json, text/event-stream;q=0.9", true),
        ("Text/Event-Stream", true),
        ("application/json", false),
        ("*/*", false),
    ] {
        let headers = headers(header::ACCEPT, value);
        assert_eq!(accepts(&headers, "text/event-stream"), expected, "{value}");
    }
    assert!(!accepts(&HeaderMap::new(), "application/json"));
}

#[test]
fn ranges_are_those_of_the_standard() {
    let part = |from, count| ByteRange::Part { from, count };
    for (value, expected) in [
        ("bytes=0-4", part(0, 5)),
        ("bytes=4-", part(4, 6)),
        ("bytes=-3", part(7, 3)),
        ("bytes=-30", part(0, 10)),
        ("bytes=9-100", part(9, 1)),
        ("bytes=10-", ByteRange::Outside),
        ("bytes=10-12", ByteRange::Outside),
        ("bytes=-0", ByteRange::Outside),
        ("bytes=18446744073709551615-", ByteRange::Outside),
        ("bytes=0-18446744073709551615", part(0, 10)),
        // Ignored ranges.
        ("bytes=4-2", ByteRange::All),
        ("bytes=0-1,3-4", ByteRange::All),
        ("bytes=-", ByteRange::All),
        ("lines=0-4", ByteRange::All),
        ("bytes=x-4", ByteRange::All),
    ] {
        assert_eq!(range(&headers(header::RANGE, value), 10), expected, "{value}");
    }
    assert_eq!(range(&HeaderMap::new(), 10), ByteRange::All);
}

#[test]
fn permissions_are_octal() {
    assert_eq!(permissions("0755").unwrap(), 0o755);
    assert_eq!(permissions("7777").unwrap(), 0o7777);
    for wrong in ["", "8", "10000", "-1", "rwx", "0o755"] {
        assert!(permissions(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn refusals_of_files_have_their_status() {
    let check = |error: FilesError, status: StatusCode, code: ErrorCode| {
        let shown = format!("{error:?}");
        let answer: http::HttpError = refusal(error);
        assert_eq!((answer.status(), answer.detail().code), (status, code), "{shown}");
    };
    check(FilesError::NotFound, StatusCode::NOT_FOUND, ErrorCode::NotFound);
    check(FilesError::Exists, StatusCode::CONFLICT, ErrorCode::Conflict);
    check(FilesError::NoSpace, StatusCode::CONFLICT, ErrorCode::Conflict);
    check(FilesError::IsADirectory, StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest);
    check(FilesError::PermissionDenied, StatusCode::FORBIDDEN, ErrorCode::Forbidden);
    let many = FilesError::TooMany("x".to_owned());
    check(many, StatusCode::TOO_MANY_REQUESTS, ErrorCode::TooManyRequests);
    let large = FilesError::TooLarge("x".to_owned());
    check(large, StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::BodyTooLarge);
    check(FilesError::Lost, StatusCode::CONFLICT, ErrorCode::Conflict);
}

#[test]
fn terminals_are_asked_for_strictly() {
    let argv = |parts: &[&str]| parts.iter().map(|&part| part.to_owned()).collect();
    let open = |parts: &[&str], cwd: Option<&str>, rows, cols, detach_s| TerminalQuery::Open {
        argv: argv(parts),
        cwd: cwd.map(str::to_owned),
        size: TerminalSize { rows, cols },
        detach_s,
        window: None,
    };
    let attach =
        |from, size| TerminalQuery::Attach { id: "tm_1".to_owned(), from, size, window: None };
    for (query, expected) in [
        (
            "?argv=top&argv=-d&argv=1&rows=30&cols=100&cwd=/tmp",
            open(&["top", "-d", "1"], Some("/tmp"), 30, 100, 0),
        ),
        ("", open(&["/bin/bash", "-l"], None, 24, 80, 0)),
        ("?detach_s=60", open(&["/bin/bash", "-l"], None, 24, 80, 60)),
        ("?attach=tm_1", attach(None, None)),
        ("?attach=tm_1&from=7&rows=3", attach(Some(7), Some(TerminalSize { rows: 3, cols: 80 }))),
    ] {
        assert_eq!(asked(&uri(query)).unwrap(), expected, "{query}");
    }
    for query in ["?window=4096", "?attach=tm_1&window=262144"] {
        let (TerminalQuery::Open { window, .. } | TerminalQuery::Attach { window, .. }) =
            asked(&uri(query)).unwrap();
        assert!(window.is_some(), "{query}");
    }
    for (query, field) in [
        ("?rows=0", "rows"),
        ("?cols=5000", "cols"),
        ("?cols=-1", "cols"),
        ("?argv=a%00b", "argv"),
        ("?size=3", "size"),
        ("?window=4095", "window"),
        ("?attach=tm_1&window=262145", "window"),
        ("?detach_s=-1", "detach_s"),
        ("?detach_s=1.5", "detach_s"),
        ("?from=0", "from"),
        ("?attach=tm_1&from=x", "from"),
        ("?attach=tm_1&argv=top", "argv"),
        ("?attach=tm_1&cwd=/tmp", "cwd"),
        ("?attach=tm_1&detach_s=60", "detach_s"),
    ] {
        let error = asked(&uri(query)).unwrap_err();
        assert_eq!(error.detail().field.as_deref(), Some(field), "{query}");
    }
}

#[test]
fn signals_are_named_with_or_without_their_prefix() {
    for (name, number) in [
        ("SIGINT", Some(2)),
        ("TERM", Some(15)),
        ("KILL", Some(9)),
        ("SIGSIGINT", None),
        ("", None),
    ] {
        assert_eq!(signal_number(name), number, "{name}");
    }
}

#[test]
fn no_flood_of_short_input_is_free() {
    let mut pending = PendingTerminalInput::default();
    for _ in 0..100_000 {
        pending.push(Bytes::new());
    }
    assert!(!pending.is_full());
    let mut pieces = 0;
    while !pending.is_full() {
        pending.push(Bytes::from_static(b"x"));
        pieces += 1;
    }
    assert!(pieces < 20_000, "{pieces} pieces are kept");
}
