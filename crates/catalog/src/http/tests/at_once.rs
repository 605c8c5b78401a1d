//! Responses from memory equal those of the routed handlers.

use axum::http::{HeaderMap, HeaderName, Method, Uri};
use node::http::{FastHead, Memory};

use super::*;

/// Headers that differ between responses.
const OWN: [&str; 2] = ["x-request-id", "date"];

type Headers<'a> = &'a [(&'a str, &'a str)];

struct Two(Server);

impl Two {
    /// Returns whether a response is available from memory.
    fn is_at_hand(&self, token: &str, path: &str, headers: Headers<'_>) -> bool {
        let uri: Uri = format!("{PREFIX}{path}").parse().unwrap();
        let bearer = format!("Bearer {token}");
        let all = [("authorization", &*bearer)];
        let all = all.iter().chain(headers);
        let headers: HeaderMap = all
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let head = FastHead { method: &Method::GET, uri: &uri, headers: &headers };
        self.0.at_once.answer(head, &Memory::default()).is_some()
    }

    fn ask(&self, token: &str, path: &str, headers: Headers<'_>) -> Response {
        let mut request = Request::new("GET", &format!("{PREFIX}{path}"))
            .header("authorization", &format!("Bearer {token}"));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut response = self.0.send_bare(&request);
        response.headers.retain(|(name, _)| !OWN.contains(&&**name));
        response.headers.sort();
        response
    }

    /// Checks whether a request is served from memory, and that both responses are alike.
    fn check(&self, token: &str, path: &str, headers: Headers<'_>, expected: (bool, u16)) {
        // An unknown parameter prevents serving from memory.
        let mark = if path.contains('?') { '&' } else { '?' };
        let slow = format!("{path}{mark}x=1");
        let routed = self.ask(token, &slow, headers);
        let again = self.ask(token, &slow, headers);
        assert!(!self.is_at_hand(token, &slow, headers));
        let is_at_hand = self.is_at_hand(token, path, headers);
        assert_eq!((is_at_hand, routed.status), expected, "{path} {headers:?} {}", routed.text());
        let found = self.ask(token, path, headers);
        for other in [again, found] {
            assert_eq!(other.status, routed.status, "{path} {headers:?}");
            assert_eq!(other.headers, routed.headers, "{path} {headers:?}");
            assert_eq!(other.body, routed.body, "{path} {headers:?}");
        }
    }

    /// A client's token, its principal, and a key of its own.
    fn client(&self) -> (String, Value, String) {
        let name = json!({"name": "c"});
        let made = self.0.ask("POST", "/management/v1/clients", Some(&name)).json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        let (id, secret) = (text("client-id"), text("client-secret"));
        let token = self.0.access.tokens().token_for(&id, &secret, None);
        let token = self.0.runtime.block_on(token).unwrap().token;
        let keys = format!("/management/v1/clients/{id}/keys");
        let key = self.0.ask("POST", &keys, Some(&json!({"name": "k"}))).json();
        (token, made["principal"].clone(), key["key"].as_str().unwrap().to_owned())
    }
}

fn filled() -> Two {
    let two = Two(Server::start());
    let server = &two.0;
    server.fill("n", "t");
    server.fill("n", "a b%c");
    let nested = json!({"namespace": ["n", "ä"], "properties": {}});
    assert_eq!(server.ask("POST", "/v1/main/namespaces", Some(&nested)).status, 200);
    let path = "/v1/main/namespaces/n%1F%C3%A4/tables";
    let fields: Vec<_> = (1..60)
        .map(|id| json!({"id": id, "name": format!("c{id}"), "required": false, "type": "long"}))
        .collect();
    let wide = json!({"name": "wide", "schema": {"type": "struct", "fields": fields}});
    assert_eq!(server.ask("POST", path, Some(&wide)).status, 200);
    let view = server.ask("POST", "/v1/main/namespaces/n/views", Some(&new_view("v")));
    assert_eq!(view.status, 200, "{}", view.text());
    two
}

#[test]
fn both_ways_answer_alike() {
    let two = filled();
    let (token, principal, key) = two.client();
    let grant = json!({"principal": principal, "rights": ["read"]});
    assert_eq!(two.0.ask("POST", "/management/v1/main/grants", Some(&grant)).status, 204);
    let gzip: Headers<'_> = &[("accept-encoding", "gzip")];
    let t = "/v1/main/namespaces/n/tables/t";
    let tag = two.ask(&token, t, &[]).header("etag").unwrap().to_owned();
    let wide = "/v1/main/namespaces/n%1F%C3%A4/tables/wide";
    for token in [&two.0.root, &token, &key] {
        for (path, headers, at_hand, status) in [
            (t, &[][..], true, 200),
            ("/polaris/api/catalog/v1/main/namespaces/n/tables/t", &[], true, 200),
            ("/v1/main/namespaces/n/tables/t?snapshots=all", &[], true, 200),
            ("/v1/main/namespaces/n/tables/t?snapshots=refs", &[], true, 200),
            ("/v1/main/namespaces/n/tables/t?snapshots=none", &[], false, 400),
            (t, gzip, true, 200),
            (wide, gzip, true, 200),
            (wide, &[("accept-encoding", "gzip;q=0, br")], true, 200),
            (t, &[("if-none-match", &tag)], true, 304),
            (t, &[("if-none-match", "W/\"other\"")], true, 200),
            (t, &[("x-iceberg-access-delegation", "vended-credentials")], true, 200),
            (t, &[("x-cove-as-of", "never")], false, 400),
            ("/v1/main/namespaces/n/tables/a%20b%25c", &[], true, 200),
            ("/v1/main/namespaces/n/tables/v", &[], false, 404),
            ("/v1/main/namespaces/n/tables/%FF", &[], false, 400),
            ("/v1/main/namespaces/n/tables/", &[], false, 404),
            ("/v1/main/namespaces//tables/t", &[], false, 404),
            ("/v1/main/namespaces/n/tables/t/", &[], false, 404),
            ("/v1/other/namespaces/n/tables/t", &[], false, 404),
            ("/v1/main/namespaces/n/views/v", &[], true, 200),
            ("/v1/main/namespaces/n/views/v", gzip, true, 200),
            ("/v1/main/namespaces/n/views/t", &[], false, 404),
            ("/v1/main/namespaces/n/tables", &[], true, 200),
            ("/v1/main/namespaces/n/tables?pageToken=", &[], false, 200),
            ("/v1/main/namespaces/n/views", &[], true, 200),
            ("/v1/main/namespaces/n", &[], true, 200),
            ("/v1/main/namespaces/n%1F%C3%A4", &[], true, 200),
            ("/v1/main/namespaces/m", &[], false, 404),
            ("/v1/main/namespaces/n/functions", &[], false, 200),
        ] {
            // The first response of its kind may have to be produced or looked up.
            two.ask(token, path, headers);
            two.check(token, path, headers, (at_hand, status));
        }
    }
}

#[test]
fn who_has_no_right_any_more_finds_nothing_at_hand() {
    let two = filled();
    let (token, principal, _) = two.client();
    let t = "/v1/main/namespaces/n/tables/t";
    let all = [t, "/v1/main/namespaces/n", "/v1/main/namespaces/n/tables"];
    let check = |expected| {
        for path in all {
            two.ask(&two.0.root, path, &[]);
            two.check(&token, path, &[], expected);
            two.check("cat_0", path, &[], (false, 401));
        }
    };
    check((false, 403));
    let grants = "/management/v1/main/grants";
    let grant = json!({"principal": principal, "rights": ["read"]});
    assert_eq!(two.0.ask("POST", grants, Some(&grant)).status, 204);
    check((true, 200));
    let filter = json!({"principal": principal, "namespace": ["n"], "table": "t",
        "row-filter": {"type": "gt", "term": "id", "value": 5}});
    let policies = "/management/v1/main/policies/rows";
    assert_eq!(two.0.ask("PUT", policies, Some(&filter)).status, 200);
    check((true, 200));
    assert_ne!(two.ask(&token, t, &[]).json()["read-restrictions"], Value::Null);
    assert_eq!(two.0.ask("DELETE", policies, None).status, 204);
    assert_eq!(two.ask(&token, t, &[]).json()["read-restrictions"], Value::Null);
    let revoke = format!("{grants}/revoke");
    assert_eq!(two.0.ask("POST", &revoke, Some(&grant)).status, 204);
    check((false, 403));
}

#[test]
fn what_was_changed_or_is_gone_is_not_at_hand_as_it_was() {
    let two = filled();
    let root = two.0.root.clone();
    let t = "/v1/main/namespaces/n/tables/t";
    let set = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {"owner": "you"}},
    ]});
    two.check(&root, t, &[], (true, 200));
    assert_eq!(two.0.ask("POST", t, Some(&set)).status, 200);
    two.check(&root, t, &[], (true, 200));
    let found = two.ask(&root, t, &[]).json();
    assert_eq!(found["metadata"]["properties"]["owner"], "you");
    let file = found["metadata-location"].as_str().unwrap().strip_prefix("file://").unwrap();
    let aside = format!("{file}.aside");
    std::fs::rename(file, &aside).unwrap();
    two.check(&root, t, &[], (false, 404));
    std::fs::rename(&aside, file).unwrap();
    two.check(&root, t, &[], (true, 200));
    assert_eq!(two.0.ask("DELETE", t, None).status, 204);
    two.check(&root, t, &[], (false, 404));
}
