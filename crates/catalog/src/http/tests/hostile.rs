//! Requests that no client would send: none of them causes a server error.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

const CASES: u32 = 300;

/// Changes to valid bytes: truncated at one position, or modified at others.
#[derive(Clone, Debug)]
enum Harm {
    Cut(prop::sample::Index),
    Change(Vec<(prop::sample::Index, u8)>),
    Replace(Vec<u8>),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        any::<prop::sample::Index>().prop_map(Harm::Cut),
        vec((any::<prop::sample::Index>(), any::<u8>()), 1..4).prop_map(Harm::Change),
        vec(any::<u8>(), 0..64).prop_map(Harm::Replace),
    ]
}

fn harmed(good: &str, harm: &Harm) -> Vec<u8> {
    let mut bytes = good.as_bytes().to_vec();
    match harm {
        Harm::Cut(at) => bytes.truncate(at.index(bytes.len())),
        Harm::Change(changes) => {
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        Harm::Replace(others) => bytes.clone_from(others),
    }
    bytes
}

fn targets() -> Vec<(&'static str, String)> {
    let commit = json!({"requirements": [{"type": "assert-table-uuid", "uuid": "x"}], "updates": [
        {"action": "add-schema", "schema": schema()},
        {"action": "set-properties", "updates": {"k": "v"}},
    ]});
    let change = json!({"identifier": {"namespace": ["n"], "name": "t"}, "updates": []});
    let replace = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {"k": "v"}},
    ]});
    vec![
        ("/v1/main/namespaces", json!({"namespace": ["x"], "properties": {"a": "b"}}).to_string()),
        ("/v1/main/namespaces/n/properties", json!({"updates": {"a": "b"}}).to_string()),
        ("/v1/main/namespaces/n/tables", new_table("x").to_string()),
        ("/v1/main/namespaces/n/tables/t", commit.to_string()),
        ("/v1/main/namespaces/n/tables/t/metrics", json!({"report-type": "scan"}).to_string()),
        ("/v1/main/namespaces/n/views", new_view("x").to_string()),
        ("/v1/main/namespaces/n/views/v", replace.to_string()),
        ("/v1/main/transactions/commit", json!({"table-changes": [change]}).to_string()),
        ("/v1/oauth/tokens", "grant_type=client_credentials&client_id=a&client_secret=b".into()),
        ("/management/v1/clients/x/rotate", json!({"grace-seconds": 1}).to_string()),
        ("/management/v1/main/grants", json!({"principal": "tenant:a", "rights": []}).to_string()),
    ]
}

#[test]
fn no_body_makes_the_server_fail() {
    let server = Server::start();
    server.fill("n", "t");
    let made = server.ask("POST", "/v1/main/namespaces/n/views", Some(&new_view("v")));
    assert_eq!(made.status, 200, "{}", made.text());
    let targets = targets();
    let mut runner = TestRunner::new(Config { cases: CASES, ..Config::default() });
    let cases = (0..targets.len(), harm());
    let run = runner.run(&cases, |(target, harm)| {
        let (path, good) = &targets[target];
        let body = harmed(good, &harm);
        let request = Request::new("POST", &format!("{PREFIX}{path}")).body(body);
        let answer = server.send(request);
        prop_assert!(answer.status < 500, "{path} {}", answer.text());
        if answer.status >= 400 {
            let error = answer.json()["error"].clone();
            prop_assert!(error.is_string() || error["type"].is_string(), "{path} {error}");
        }
        Ok(())
    });
    run.unwrap();
}

#[test]
fn no_path_query_or_header_makes_the_server_fail() {
    let server = Server::start();
    server.fill("n", "t");
    let text = "[!-~]{0,40}";
    let mut runner = TestRunner::new(Config { cases: CASES, ..Config::default() });
    let cases = (text, text, text, text, 0..3_usize);
    let run = runner.run(&cases, |(part, query, tag, coding, place)| {
        // Characters that would end the path, or are interpreted before the catalog.
        let part = part.replace(['?', '#', '/'], "_");
        let query = query.replace('#', "_");
        let path = match place {
            0 => format!("/v1/main/namespaces/{part}/tables?{query}"),
            1 => format!("/v1/main/namespaces/n/tables/{part}?snapshots={query}"),
            _ => format!("/v1/main/namespaces?parent={query}&pageToken={query}"),
        };
        let request = Request::new("GET", &format!("{PREFIX}{path}"));
        let request = request.header("if-none-match", &tag).header("accept-encoding", &coding);
        let answer = server.send(request);
        prop_assert!(answer.status < 500, "{path} {}", answer.text());
        Ok(())
    });
    run.unwrap();
}
