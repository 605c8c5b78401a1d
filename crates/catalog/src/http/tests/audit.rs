//! Audit of requests.

use super::*;

fn line_text(line: &Value) -> String {
    let of = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
    format!("{} {} {} {}", of("operation"), of("outcome"), line["status"], of("refusal"))
}

#[test]
fn changes_and_refusals_are_written_down_and_nothing_of_secrets() {
    let server = Server::start();
    server.fill("n", "t");
    let made = server.ask("POST", "/management/v1/clients", Some(&json!({"name": "spark"})));
    let made = made.json();
    let (id, secret) =
        (made["client-id"].as_str().unwrap(), made["client-secret"].as_str().unwrap());
    let keys = format!("/management/v1/clients/{id}/keys");
    let key = server.ask("POST", &keys, Some(&json!({"name": "ci"}))).json();
    let key = key["key"].as_str().unwrap();
    let table = "/v1/main/namespaces/n/tables/t";
    assert_eq!(server.ask("GET", table, None).status, 200);
    assert_eq!(server.ask_as(Some(key), "GET", table, None).status, 403);
    assert_eq!(server.ask_as(Some("cat_guessed"), "GET", table, None).status, 401);
    assert_eq!(server.ask("DELETE", &format!("{table}?purgeRequested=no"), None).status, 400);
    assert_eq!(server.ask("DELETE", &format!("{table}?purgeRequested=false"), None).status, 204);
    let form = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
    let token = Request::new("POST", "/catalog/v1/oauth/tokens").body(form);
    let token = server.send_bare(&token).json()["access_token"].as_str().unwrap().to_owned();

    let audit = "/management/v1/audit";
    let answered = server.ask("GET", audit, None);
    for secret in [secret, key, &token, "cat_guessed", &server.root] {
        assert!(!answered.text().contains(secret), "{}", answered.text());
    }
    let all = answered.json();
    let lines: Vec<String> = all["lines"].as_array().unwrap().iter().map(line_text).collect();
    let expected = [
        "token done 200 -",
        "drop-table done 204 -",
        "drop-table refused 400 BadRequestException",
        "load-table refused 401 NotAuthorizedException",
        "load-table refused 403 ForbiddenException",
        "create-key done 200 -",
        "create-client done 200 -",
        "create-table done 200 -",
        "create-namespace done 200 -",
    ];
    assert_eq!(lines, expected);
    let first = &all["lines"][0];
    let forbidden = &all["lines"][4];
    assert_eq!((&first["principal"], &first["name"]), (&made["principal"], &made["name"]));
    assert_eq!(forbidden["principal"], made["principal"]);
    assert!(forbidden["key"].as_str().is_some_and(|it| it.starts_with("ck_")), "{forbidden}");
    assert_eq!(forbidden["path"], json!(format!("/catalog{table}")));
    assert_eq!(forbidden["address"], json!("127.0.0.1"));
    assert!(forbidden["request-id"].as_str().is_some_and(|it| it.starts_with("req_")));
    assert_eq!(all["lines"][3]["principal"], Value::Null);
    assert_eq!(all["left-out"], json!(0));

    check_filters(&server, id, first["at-ms"].as_u64().unwrap());
    assert_eq!(pages(&server), expected);
}

/// How many lines each filter leaves.
fn check_filters(server: &Server, id: &str, at: u64) {
    let audit = "/management/v1/audit";
    let count = |query: &str| {
        let found = server.ask("GET", &format!("{audit}?{query}"), None).json();
        found["lines"].as_array().map(Vec::len)
    };
    for (query, expected) in [
        ("outcome=refused".to_owned(), Some(3)),
        ("outcome=failed".to_owned(), Some(0)),
        ("operation=drop-table".to_owned(), Some(2)),
        ("operation=drop-table&outcome=done".to_owned(), Some(1)),
        (format!("principal=client:{id}"), Some(2)),
        ("path=/catalog/management/".to_owned(), Some(2)),
        (format!("until={}", at + 1), Some(9)),
        (format!("since={}", at + 60_000), Some(0)),
        ("outcome=lost".to_owned(), None),
        ("since=yesterday".to_owned(), None),
        ("pageToken=x".to_owned(), None),
    ] {
        assert_eq!(count(&query), expected, "{query}");
    }
}

/// All lines, page by page.
fn pages(server: &Server) -> Vec<String> {
    let audit = "/management/v1/audit";
    let mut next = String::new();
    let mut seen = Vec::new();
    loop {
        let path = format!("{audit}?pageSize=4&pageToken={next}");
        let page = server.ask("GET", &path, None).json();
        seen.extend(page["lines"].as_array().unwrap().iter().map(line_text));
        match page["next-page-token"].as_str() {
            Some(token) => token.clone_into(&mut next),
            None => break,
        }
    }
    seen
}
