//! Search by name, and visibility of the results.

use serde_json::{Value, json};

use super::{Server, assert_refused, new_view, rights};
use crate::principal::AccessRight;

/// Formats results as the kind, then the name.
fn found(answer: &Value) -> Vec<String> {
    let name = |it: &Value| {
        let levels = it["namespace"].as_array().unwrap().iter();
        let levels: Vec<&str> = levels.map(|level| level.as_str().unwrap()).collect();
        let levels = levels.join(".");
        let parts =
            [it["kind"].as_str(), Some(&*levels), it["name"].as_str(), it["column"].as_str()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    answer["results"].as_array().unwrap().iter().map(name).collect()
}

#[test]
fn names_are_found_by_whoever_may_list_them() {
    let server = Server::start();
    server.fill("sales", "orders");
    server.fill("hidden", "sales_secret");
    let made =
        server.ask("POST", "/v1/main/namespaces/sales/views", Some(&new_view("Orders_View")));
    assert_eq!(made.status, 200, "{}", made.text());
    let search = |token: &str, query: &str| {
        let path = format!("/management/v1/main/search?{query}");
        server.ask_as(Some(token), "GET", &path, None)
    };
    let root = server.root.clone();
    let reader = rights::token(&server, Some(AccessRight::Read), Some("sales"));
    let stranger = rights::token(&server, None, None);
    for (token, query, expected) in [
        (&root, "q=ORDERS", &["table sales orders", "view sales Orders_View"][..]),
        (&root, "q=sales", &["namespace sales sales", "table hidden sales_secret"]),
        (&reader, "q=sales", &["namespace sales sales"]),
        (&reader, "q=secret", &[]),
        (&reader, "q=dat", &["column sales orders data"]),
        (&root, "q=%25", &[]),
    ] {
        let answer = search(token, query);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(found(&answer), expected, "{query}");
        assert_eq!(answer["truncated"], json!(false), "{query}");
    }
    let few = search(&root, "q=a&limit=1").json();
    assert_eq!((found(&few).len(), &few["truncated"]), (1, &json!(true)));
    for query in ["", "q=", "q=a&limit=0", "q=a&limit=501", &format!("q={}", "x".repeat(257))] {
        assert_refused(&search(&root, query), 400, "BadRequestException");
    }
    assert_refused(&search(&stranger, "q=sales"), 403, "ForbiddenException");
}
