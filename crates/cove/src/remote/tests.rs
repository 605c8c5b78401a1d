//! Server discovery, credentials and error responses.

use super::*;

fn remote(token: bool) -> Remote {
    Remote {
        client: HttpClient::new(AddressGuard::Open),
        base: "http://judge:4100".to_owned(),
        data_dir: None,
        token: token.then(|| HeaderValue::from_static("Bearer x")),
        token_origin: "COVE_TOKEN".to_owned(),
    }
}

#[test]
fn spans_are_short() {
    for (ms, text) in [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_250, "1.2 s"),
        (12_900, "12 s"),
        (200_000, "3 min 20 s"),
        (7_260_000, "2 h 1 min"),
    ] {
        assert_eq!(span(ms), text);
    }
}

#[test]
fn places_in_the_queue_are_counted_as_people_do() {
    assert_eq!(place(None, None), "");
    assert_eq!(place(Some(0), None), ", the next one");
    assert_eq!(place(Some(3), Some(12_000)), ", 3 before it, starts in about 12 s");
}

#[test]
fn the_data_directorys_token_stays_on_this_machine() {
    for (base, local) in [
        ("http://127.0.0.1:4100", true),
        ("http://[::1]:4100", true),
        ("http://localhost", true),
        ("http://0.0.0.0:1", true),
        ("http://10.0.0.1:4100", false),
        ("https://localhost.example.org", false),
        ("http://127.0.0.1.example.org", false),
    ] {
        assert_eq!(is_local(base), local, "{base}");
    }
}

#[test]
fn answers_that_refuse_say_whose_turn_it_is() {
    let body = |code: &str| {
        format!(r#"{{"error": {{"code": "{code}", "message": "why", "retry": false}}}}"#)
    };
    let check = |token, status: u16, wait, body: &str, fault, expected: &[&str]| {
        let status = StatusCode::from_u16(status).unwrap();
        let failure = remote(token).refusal(status, wait, body.as_bytes());
        assert_eq!(failure.fault, fault, "{failure}");
        for word in expected {
            assert!(failure.to_string().contains(word), "{failure} lacks {word}");
        }
    };
    let (refused, unavailable, lost) =
        (FailureKind::Refused, FailureKind::Unavailable, FailureKind::Lost);
    check(
        false,
        401,
        None,
        &body("unauthenticated"),
        unavailable,
        &["wants a token", "COVE_TOKEN"],
    );
    check(true, 401, None, &body("unauthenticated"), unavailable, &["does not know", "COVE_TOKEN"]);
    check(true, 403, None, &body("forbidden"), unavailable, &["why"]);
    check(true, 404, None, &body("not_found"), refused, &["why"]);
    check(true, 429, Some(7), &body("too_many_requests"), unavailable, &["try again in 7 s"]);
    check(true, 503, Some(1), &body("overloaded"), lost, &["no room", "try again in 1 s"]);
    check(true, 502, None, "<html>", lost, &["502", "Cove server?"]);
    check(true, 404, None, "<html>", unavailable, &["404", "Cove server?"]);
    check(true, 301, None, "", unavailable, &["301", "not followed"]);
}

#[test]
fn a_server_that_has_not_started_is_looked_for_where_it_would_listen() {
    for (http, expected) in [
        ("127.0.0.1:41700", "http://127.0.0.1:41700"),
        ("0.0.0.0:80", "http://127.0.0.1:80"),
        ("[::]:80", "http://127.0.0.1:80"),
        ("localhost:4190", "http://localhost:4190"),
        ("127.0.0.1:0", "http://127.0.0.1:4100"),
    ] {
        assert_eq!(configured_base(http), expected, "{http}");
    }
}
