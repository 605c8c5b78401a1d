//! Lists contain the objects that the caller may read, and the namespaces that lead to them.

use super::*;

/// Creates namespaces `a`, `a.b`, `a.c` and `d`, each with the tables `t` and `u` and the view `v`.
fn filled() -> Server {
    let server = Server::start();
    for levels in [&["a"][..], &["a", "b"], &["a", "c"], &["d"]] {
        let made = json!({"namespace": levels});
        assert_eq!(server.ask("POST", "/v1/main/namespaces", Some(&made)).status, 200);
        let place = format!("/v1/main/namespaces/{}", levels.join("%1F"));
        for table in ["t", "u"] {
            let made = server.ask("POST", &format!("{place}/tables"), Some(&new_table(table)));
            assert_eq!(made.status, 200, "{}", made.text());
        }
        let made = server.ask("POST", &format!("{place}/views"), Some(&new_view("v")));
        assert_eq!(made.status, 200, "{}", made.text());
    }
    server
}

/// Grants a right to a new client. Returns a token of it.
fn token_for(server: &Server, right: &str, namespace: &[&str], name: Option<&str>) -> String {
    let client = json!({"name": "reader"});
    let client = server.ask("POST", "/management/v1/clients", Some(&client)).json();
    let mut grant = json!({"principal": client["principal"], "rights": [right]});
    if !namespace.is_empty() {
        grant["namespace"] = json!(namespace);
    }
    if let Some(name) = name {
        grant["name"] = json!(name);
    }
    let response = server.ask("POST", "/management/v1/main/grants", Some(&grant));
    assert_eq!(response.status, 204, "{}", response.text());
    server.runtime.block_on(async {
        let text = |name: &str| client[name].as_str().unwrap();
        let (id, secret) = (text("client-id"), text("client-secret"));
        server.access.tokens().token_for(id, secret, None).await.unwrap().token
    })
}

/// Returns the names in a list, read at once and in pages of one; `None` if it is rejected.
fn listed(server: &Server, token: &str, path: &str) -> Option<Vec<String>> {
    let names = |answer: &Value| -> Vec<String> {
        let namespaces = answer["namespaces"].as_array().into_iter().flatten();
        let namespaces = namespaces.map(|it| {
            let levels = it.as_array().unwrap().iter().map(|it| it.as_str().unwrap());
            levels.collect::<Vec<_>>().join(".")
        });
        let relations = answer["identifiers"].as_array().into_iter().flatten();
        let relations = relations.map(|it| it["name"].as_str().unwrap().to_owned());
        namespaces.chain(relations).collect()
    };
    let whole = server.ask_as(Some(token), "GET", &format!("/v1/main/{path}"), None);
    if whole.status != 200 {
        assert_refused(&whole, 403, "ForbiddenException");
        return None;
    }
    let mark = if path.contains('?') { '&' } else { '?' };
    let (mut paged, mut next) = (Vec::new(), String::new());
    loop {
        let page = format!("/v1/main/{path}{mark}pageSize=1&pageToken={next}");
        let page = server.ask_as(Some(token), "GET", &page, None).json();
        paged.extend(names(&page));
        match page["next-page-token"].as_str() {
            Some(token) => next = token.to_owned(),
            None => break,
        }
    }
    assert_eq!(names(&whole.json()), paged, "{path}");
    Some(paged)
}

/// Requested lists.
const LISTS: [&str; 7] = [
    "namespaces",
    "namespaces?parent=a",
    "namespaces?parent=d",
    "namespaces/a/tables",
    "namespaces/a/views",
    "namespaces/a%1Fb/tables",
    "namespaces/d/tables",
];

/// A right to an object, and the expected names in each list for its holder.
struct ListingCase {
    right: &'static str,
    namespace: &'static [&'static str],
    name: Option<&'static str>,
    expected: [Option<&'static [&'static str]>; 7],
}

const CASES: [ListingCase; 6] = [
    ListingCase {
        right: "read",
        namespace: &[],
        name: None,
        expected: [
            Some(&["a", "d"]),
            Some(&["a.b", "a.c"]),
            Some(&[]),
            Some(&["t", "u"]),
            Some(&["v"]),
            Some(&["t", "u"]),
            Some(&["t", "u"]),
        ],
    },
    ListingCase {
        right: "manage",
        namespace: &["a"],
        name: None,
        expected: [
            Some(&["a"]),
            Some(&["a.b", "a.c"]),
            None,
            Some(&["t", "u"]),
            Some(&["v"]),
            Some(&["t", "u"]),
            None,
        ],
    },
    ListingCase {
        right: "write",
        namespace: &["a", "b"],
        name: None,
        expected: [
            Some(&["a"]),
            Some(&["a.b"]),
            None,
            Some(&[]),
            Some(&[]),
            Some(&["t", "u"]),
            None,
        ],
    },
    ListingCase {
        right: "read",
        namespace: &["a", "b"],
        name: Some("u"),
        expected: [Some(&["a"]), Some(&["a.b"]), None, Some(&[]), Some(&[]), Some(&["u"]), None],
    },
    ListingCase {
        right: "read",
        namespace: &["a"],
        name: Some("v"),
        expected: [Some(&["a"]), Some(&[]), None, Some(&[]), Some(&["v"]), None, None],
    },
    // The right to grant does not include the right to read.
    ListingCase { right: "grant", namespace: &["a"], name: None, expected: [None; 7] },
];

#[test]
fn lists_have_what_may_be_read_and_what_leads_to_it() {
    let server = filled();
    for ListingCase { right, namespace, name, expected } in CASES {
        let token = token_for(&server, right, namespace, name);
        for (path, expected) in LISTS.into_iter().zip(expected) {
            let found = listed(&server, &token, path);
            let found: Option<Vec<&str>> =
                found.as_ref().map(|all| all.iter().map(String::as_str).collect());
            let about = format!("{right} {namespace:?} {name:?}: {path}");
            assert_eq!(found.as_deref(), expected, "{about}");
        }
    }
}

#[test]
fn what_leads_to_a_right_exists_and_says_no_more() {
    let server = filled();
    let token = token_for(&server, "read", &["a", "b"], Some("t"));
    for (method, path, expected) in [
        ("HEAD", "namespaces/a", 204),
        ("HEAD", "namespaces/a%1Fb", 204),
        ("HEAD", "namespaces/a%1Fc", 403),
        ("HEAD", "namespaces/d", 403),
        // The response does not reveal which namespaces exist.
        ("HEAD", "namespaces/nope", 403),
        ("GET", "namespaces/nope/tables", 403),
        ("GET", "namespaces/a", 403),
        ("GET", "namespaces/a%1Fb/functions", 200),
        ("HEAD", "namespaces/a%1Fb/tables/t", 204),
        ("HEAD", "namespaces/a%1Fb/tables/u", 403),
        ("HEAD", "namespaces/a%1Fb/tables/nope", 403),
    ] {
        let path = format!("/v1/main/{path}");
        let response = server.ask_as(Some(&token), method, &path, None);
        assert_eq!(response.status, expected, "{method} {path}");
        let polaris = format!("/polaris/api/catalog{path}");
        let response = server.ask_as(Some(&token), method, &polaris, None);
        assert_eq!(response.status, expected, "{method} {polaris}");
    }
    // Removed objects lead nowhere, and new objects of their name inherit no rights.
    for (method, path) in [
        ("DELETE", "/v1/main/namespaces/a%1Fb/tables/t?purgeRequested=true"),
        ("DELETE", "/v1/main/namespaces/a%1Fb/tables/u?purgeRequested=true"),
        ("DELETE", "/v1/main/namespaces/a%1Fb/views/v"),
        ("DELETE", "/v1/main/namespaces/a%1Fb"),
    ] {
        let gone = server.ask(method, path, None);
        assert_eq!(gone.status, 204, "{path} {}", gone.text());
    }
    assert_eq!(listed(&server, &token, "namespaces"), None);
}
