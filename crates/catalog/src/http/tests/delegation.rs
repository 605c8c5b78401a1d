//! Access to files in buckets: vended credentials, their scope, and signatures, with a store that
//! checks signatures and a token service that records requests.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use parking_lot::Mutex;
use testkit::S3;

use super::*;

const TABLES: &str = "/v1/cloud/namespaces/n/tables";

/// A token service that returns credentials to every caller, and records requests.
struct TokenService {
    endpoint: String,
    forms: Arc<Mutex<Vec<String>>>,
}

impl TokenService {
    fn start() -> TokenService {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let forms: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen_forms = Arc::clone(&forms);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut text) = (stream.unwrap(), Vec::new());
                let mut piece = [0; 4096];
                // The end of the form marks the complete request.
                while !String::from_utf8_lossy(&text).ends_with("role%2Fx") {
                    let length = stream.read(&mut piece).unwrap();
                    text.extend_from_slice(&piece[..length]);
                }
                let text = String::from_utf8(text).unwrap();
                let number = seen_forms.lock().len();
                seen_forms.lock().push(text.split("\r\n\r\n").nth(1).unwrap().to_owned());
                let body = format!(
                    "<AssumeRoleResponse><AssumeRoleResult><Credentials>\
                     <AccessKeyId>ID{number}</AccessKeyId><SecretAccessKey>S</SecretAccessKey>\
                     <SessionToken>T</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>\
                     </Credentials></AssumeRoleResult></AssumeRoleResponse>"
                );
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        });
        TokenService { endpoint, forms }
    }
}

/// A server with a warehouse in a bucket, which has a table.
pub(super) fn server(store: &S3, storage: &Value) -> Server {
    let server = Server::start();
    let warehouse = json!({"name": "cloud", "root": format!("s3://{}/lake", S3::BUCKET),
        "storage": storage, "credentials": {"access-key-id": store.access_key_id,
            "secret-access-key": store.secret_access_key}});
    let made = server.ask("POST", "/management/v1/warehouses", Some(&warehouse));
    assert_eq!(made.status, 200, "{}", made.text());
    let namespace = json!({"namespace": ["n"]});
    assert_eq!(server.ask("POST", "/v1/cloud/namespaces", Some(&namespace)).status, 200);
    server
}

fn asking(method: &str, path: &str, way: &str) -> Request {
    Request::new(method, &format!("{PREFIX}{path}")).header("x-iceberg-access-delegation", way)
}

#[test]
fn credentials_are_for_one_table_and_one_right() {
    let (store, tokens) = (S3::start(), TokenService::start());
    let storage = json!({"endpoint": store.endpoint(), "sts-endpoint": tokens.endpoint,
        "role-arn": "arn:aws:iam::1:role/x", "vended-credentials": true});
    let server = server(&store, &storage);
    let body = new_table("t").to_string();
    let made = server.send(asking("POST", TABLES, "vended-credentials").body(body)).json();
    let location = made["metadata"]["location"].as_str().unwrap();
    assert_eq!(made["config"]["s3.access-key-id"], "ID0");
    let credential = &made["storage-credentials"][0];
    assert_eq!(credential["prefix"], location);
    assert_eq!(credential["config"]["s3.endpoint"], store.endpoint());
    let refresh = "v1/cloud/namespaces/n/tables/t/credentials";
    assert_eq!(credential["config"]["client.refresh-credentials-endpoint"], refresh);
    let key = location.split_once("://").unwrap().1.split_once('/').unwrap().1;
    let form = tokens.forms.lock()[0].clone();
    for part in [key, "PutObject", "arn:aws:iam::1:role/x"] {
        let part = node::objects::sign::escaped(part);
        assert!(form.contains(&part), "{part} in {form}");
    }
    // A repetition is served from the cache; a client with this version receives "not modified".
    let path = format!("{TABLES}/t");
    let loaded = server.send(asking("GET", &path, "remote-signing, vended-credentials"));
    assert_eq!(loaded.json()["storage-credentials"][0], *credential);
    let tag = loaded.header("etag").unwrap().to_owned();
    let again = asking("GET", &path, "vended-credentials").header("if-none-match", &tag);
    assert_eq!(server.send(again).status, 304);
    // Without credentials it is a different response.
    let plain = server.send(asking("GET", &path, "").header("if-none-match", &tag));
    assert_eq!((plain.status, &plain.json()["storage-credentials"]), (200, &Value::Null));
    assert_eq!(plain.json()["config"]["s3.endpoint"], store.endpoint());
    assert_eq!(tokens.forms.lock().len(), 1);
    // A past version of a table is returned without access to files.
    let past = server.send(asking("GET", &format!("{path}?as-of=2"), "vended-credentials")).json();
    assert_eq!(
        (&past["metadata"], &past["storage-credentials"]),
        (&made["metadata"], &Value::Null)
    );
    assert_eq!(past["config"], plain.json()["config"]);
    // Only the response with credentials is audited.
    let audit = "/management/v1/audit?operation=load-table";
    let lines = server.ask("GET", audit, None).json()["lines"].as_array().unwrap().len();
    assert_eq!(lines, 1);
    // A principal with read access receives read-only credentials.
    let (id, secret) = server.runtime.block_on(async {
        let made = server.access.clients().create_client(&operator(), "x", false).await.unwrap();
        (made.client.client_id, made.client_secret)
    });
    let grant = json!({"principal": format!("client:{id}"), "rights": ["read"]});
    assert_eq!(server.ask("POST", "/management/v1/cloud/grants", Some(&grant)).status, 204);
    let token = server
        .runtime
        .block_on(server.access.tokens().token_for(&id, &secret, None))
        .unwrap()
        .token;
    let read = server.ask_as(Some(&token), "GET", &format!("{path}/credentials"), None).json();
    assert_eq!(read["storage-credentials"][0]["config"]["s3.access-key-id"], "ID1");
    let form = tokens.forms.lock()[1].clone();
    assert!(form.contains("GetObject") && !form.contains("PutObject"), "{form}");
    assert!(!made.to_string().contains(&store.secret_access_key));
}

#[test]
fn what_is_signed_is_taken_by_the_store() {
    let store = S3::start();
    let storage = json!({"endpoint": store.endpoint(), "remote-signing": true});
    let server = server(&store, &storage);
    let made = server.ask("POST", TABLES, Some(&new_table("t")));
    assert_eq!(made.status, 200, "{}", made.text());
    let file = made.json()["metadata-location"].as_str().unwrap().to_owned();
    let path = format!("{TABLES}/t");
    let loaded = server.send(asking("GET", &path, "remote-signing")).json();
    assert_eq!(loaded["config"]["s3.signer.endpoint"], "v1/cloud/namespaces/n/tables/t/sign");
    let key = file.strip_prefix("s3://").unwrap();
    let sign = |uri: &str| {
        let body = json!({"region": "us-east-1", "method": "GET", "headers": {}, "uri": uri});
        server.ask("POST", &format!("{path}/sign"), Some(&body))
    };
    let signed = sign(&format!("{}/{key}", store.endpoint()));
    assert_eq!(signed.status, 200, "{}", signed.text());
    let signed = signed.json();
    let send = |headers: &Value| {
        let uri = signed["uri"].as_str().unwrap();
        let mut request = node::client::ClientRequest::new(axum::http::Method::GET, uri);
        for (name, values) in headers.as_object().unwrap() {
            let name: axum::http::HeaderName = name.parse().unwrap();
            request.headers.insert(name, values[0].as_str().unwrap().parse().unwrap());
        }
        server.runtime.block_on(async {
            let client = node::client::HttpClient::new(node::client::AddressGuard::Open);
            let answer = client.send(request).await.unwrap();
            (answer.status.as_u16(), answer.bytes().await.unwrap())
        })
    };
    assert_eq!(send(&json!({})).0, 403);
    let (status, text) = send(&signed["headers"]);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&text));
    let found: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(found["location"], made.json()["metadata"]["location"]);
    assert_refused(&sign(&format!("{}/x", store.endpoint())), 403, "ForbiddenException");
    // Requests for a warehouse in directories cannot be signed.
    server.fill("n", "t");
    let body = json!({"region": "r", "method": "GET", "headers": {}, "uri": "http://x/y"});
    let refused = server.ask("POST", "/v1/main/namespaces/n/tables/t/sign", Some(&body));
    assert_refused(&refused, 400, "BadRequestException");
}

#[test]
fn nobody_claims_a_place_by_a_property_or_by_staging() {
    let server = Server::start();
    server.fill("n", "t");
    let (id, secret) = server.runtime.block_on(async {
        let made = server.access.clients().create_client(&operator(), "x", false).await.unwrap();
        (made.client.client_id, made.client_secret)
    });
    let grant = json!({"principal": format!("client:{id}"), "rights": ["write"]});
    assert_eq!(server.ask("POST", "/management/v1/main/grants", Some(&grant)).status, 204);
    let token = server
        .runtime
        .block_on(server.access.tokens().token_for(&id, &secret, None))
        .unwrap()
        .token;
    let tables = "/v1/main/namespaces/n/tables";
    let table = server.ask("GET", &format!("{tables}/t"), None).json();
    let location = table["metadata"]["location"].as_str().unwrap().to_owned();
    let root = server.catalog.default_warehouse().unwrap().root().to_owned();
    for name in crate::storage::PATHS {
        for (path, own, operators) in [
            (format!("{location}/elsewhere"), 200, 200),
            (format!("{root}/other"), 403, 200),
            ("file:///etc".to_owned(), 403, 403),
            (format!("{location}/../../x"), 400, 400),
        ] {
            let commit = json!({"requirements": [], "updates": [
                {"action": "set-properties", "updates": {name: path}}]});
            let target = format!("{tables}/t");
            let found = server.ask_as(Some(&token), "POST", &target, Some(&commit));
            assert_eq!(found.status, own, "{name}={path} {}", found.text());
            let mut new = new_table(&format!("new-{}", name.len()));
            new["properties"] = json!({name: path});
            new["stage-create"] = json!(true);
            let found = server.ask_as(Some(&token), "POST", tables, Some(&new));
            let expected = if own == 200 { 403 } else { own };
            assert_eq!(found.status, expected, "{name}={path} {}", found.text());
            let found = server.ask("POST", &target, Some(&commit));
            assert_eq!(found.status, operators, "{name}={path} {}", found.text());
        }
    }
    let mut new = new_table("u");
    new["location"] = json!(location);
    new["stage-create"] = json!(true);
    let found = server.ask_as(Some(&token), "POST", tables, Some(&new));
    assert_refused(&found, 403, "ForbiddenException");
}
