//! Guests: the listener alone identifies them; credentials in requests are ignored.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use api::AuditOutcome;
use node::clock;
use node::cluster::ServingLease;
use node::fence::EffectFence;
use parking_lot::Mutex;
use testkit::{S3, until};
use tokio::task::AbortHandle;

use super::*;
use crate::guest::{
    CatalogSandboxListener, NewGuest, SandboxAccess, SandboxRequestObserver, SandboxRequestRecord,
};

/// Text, status, outcome, error, and bytes in both directions.
type Told = (String, u16, AuditOutcome, Option<String>, u64, u64);

/// Records of guests' requests.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<Told>>);

impl SandboxRequestObserver for Log {
    fn observe(&self, seen: &SandboxRequestRecord<'_>) {
        let SandboxRequestRecord { text, status, outcome, error, bytes_out, bytes_in, .. } = *seen;
        let error = error.map(str::to_owned);
        self.0.lock().push((text.to_owned(), status, outcome, error, bytes_out, bytes_in));
    }
}

/// A guest with a listener of its own. Dropping it ends it.
pub(super) struct Guest {
    door: Arc<CatalogSandboxListener>,
    client: Client,
    address: SocketAddr,
    serving: AbortHandle,
    log: Arc<Log>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Guest {
    pub(super) fn of(server: &Server, warehouse: &str, namespaces: &[&str], writes: bool) -> Guest {
        Guest::fenced(server, warehouse, namespaces, writes, EffectFence::open())
    }

    fn fenced(
        server: &Server,
        warehouse: &str,
        namespaces: &[&str],
        writes: bool,
        fence: EffectFence,
    ) -> Guest {
        let (catalog, access) = (server.catalog.clone(), server.access.clone());
        let guests = SandboxAccess::new(catalog, access, SEPARATOR_DEFAULT);
        let log = Arc::new(Log::default());
        let listener = server.runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        let new = NewGuest {
            tenant: "acme".into(),
            warehouse: warehouse.to_owned(),
            namespaces: namespaces.iter().map(|it| (*it).to_owned()).collect(),
            writes,
            address: format!("http://{address}"),
            watch: Arc::clone(&log) as Arc<dyn SandboxRequestObserver>,
            fence,
        };
        let door = guests.open(new).unwrap();
        let served = Arc::clone(&door);
        let serving = server.runtime.spawn(async move {
            let mut all = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                all.spawn(Arc::clone(&served).serve(stream));
            }
        });
        let (serving, client) = (serving.abort_handle(), Client::new(address, None));
        Guest { door, client, address, serving, log }
    }

    pub(super) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        let mut request = Request::new(method, path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        self.send(&request, method)
    }

    fn send(&self, request: &Request, method: &str) -> Response {
        if method != "HEAD" {
            return self.client.send(request);
        }
        let mut text = String::new();
        self.client.open(request).unwrap().read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let headers = head.lines().skip(1).filter_map(|it| it.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Response { status, headers, body: Vec::new() }
    }

    /// Sends a request for a file, with headers.
    fn file(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut request = Request::new(method, target);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if !body.is_empty() || method == "PUT" {
            request = request.body(body);
        }
        self.send(&request, method)
    }

    /// Returns status and code of a request for a file.
    fn tried(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let body: &[u8] = if matches!(method, "PUT" | "POST") { b"x" } else { b"" };
        let response = self.file(method, target, headers, body);
        let text = response.text();
        let code = text.split_once("<Code>").and_then(|(_, it)| it.split('<').next());
        (response.status, code.unwrap_or_default().to_owned())
    }
}

fn cloud(store: &S3) -> Server {
    let server = delegation::server(store, &json!({"endpoint": store.endpoint()}));
    for namespace in [json!(["n", "deep"]), json!(["other"])] {
        let made =
            server.ask("POST", "/v1/cloud/namespaces", Some(&json!({"namespace": namespace})));
        assert_eq!(made.status, 200, "{}", made.text());
    }
    server
}

/// Creates a table as an operator. Returns its path in the store.
fn made(server: &Server, namespace: &str, table: &str) -> String {
    let path = format!("/v1/cloud/namespaces/{namespace}/tables");
    let made = server.ask("POST", &path, Some(&new_table(table)));
    assert_eq!(made.status, 200, "{}", made.text());
    place(&made)
}

fn place(made: &Response) -> String {
    let location = made.json()["metadata"]["location"].as_str().unwrap().to_owned();
    location.strip_prefix("s3:/").unwrap().to_owned()
}

#[test]
fn a_guest_has_a_catalog_of_its_own() {
    let server = Server::start();
    server.fill("n", "t");
    server.fill("other", "t");
    let deep = json!({"namespace": ["n", "deep"]});
    assert_eq!(server.ask("POST", "/v1/main/namespaces", Some(&deep)).status, 200);
    let guest = Guest::of(&server, "main", &["n.deep", "other", "gone"], false);
    for (target, status) in
        [("/v1/config", 200), ("/v1/config?warehouse=main", 200), ("/v1/config?warehouse=x", 404)]
    {
        let config = guest.ask("GET", target, None);
        assert_eq!(config.status, status, "{target} {}", config.text());
        if status == 200 {
            let overrides = config.json()["overrides"].clone();
            assert_eq!(overrides["prefix"], "main");
            assert_eq!(overrides["s3.endpoint"], format!("http://{}", guest.address));
            assert!(!config.text().contains("credentials") && !config.text().contains("sign"));
        }
    }
    // It leads to what the guest has, which is no table of it.
    let tables = guest.ask("GET", "/v1/main/namespaces/n/tables", None).json();
    assert_eq!(tables["identifiers"], json!([]));
    let listed = |target: &str| guest.ask("GET", target, None).json()["namespaces"].clone();
    assert_eq!(listed("/v1/main/namespaces"), json!([["n"], ["other"]]));
    assert_eq!(listed("/v1/main/namespaces?parent=n"), json!([["n", "deep"]]));
    assert_eq!(listed("/v1/main/namespaces?parent=other"), json!([]));
    let page = guest.ask("GET", "/v1/main/namespaces?pageToken=&pageSize=1", None).json();
    assert_eq!(page["namespaces"], json!([["n"]]));
    let next = page["next-page-token"].as_str().unwrap();
    let next = listed(&format!("/v1/main/namespaces?pageToken={next}&pageSize=1"));
    assert_eq!(next, json!([["other"]]));
    for (method, target, status) in [
        ("HEAD", "/v1/main/namespaces/n", 204),
        ("GET", "/v1/main/namespaces/n", 403),
        ("GET", "/v1/main/namespaces/n/tables", 200),
        ("GET", "/v1/main/namespaces/n/tables/t", 403),
        ("HEAD", "/v1/main/namespaces/gone", 404),
        ("GET", "/v1/main/namespaces/other/tables/t", 200),
        ("DELETE", "/v1/main/namespaces/other/tables/t", 403),
        // The existence of other warehouses is not revealed.
        ("GET", "/v1/nothing/namespaces", 404),
        ("GET", "/catalog/v1/config", 403),
        ("GET", "/catalog/management/v1/warehouses", 403),
        ("GET", "/management/v1/main/changes", 403),
        ("POST", "/v1/oauth/tokens", 404),
        ("GET", "/v1/main/namespaces/other/tables/t/credentials", 404),
        ("POST", "/v1/main/namespaces/other/tables/t/sign", 404),
        ("PATCH", "/v1/config", 406),
        ("GET", "/v1", 404),
        ("GET", "/v1/", 404),
        ("GET", "/", 403),
        ("GET", "/metrics", 403),
    ] {
        let body = json!({});
        let body = matches!(method, "POST" | "PATCH").then_some(&body);
        let response = guest.ask(method, target, body);
        assert_eq!(response.status, status, "{method} {target} {}", response.text());
    }
    // Any claimed identity is ignored.
    let table = "/v1/main/namespaces/n/tables/t";
    let request = Request::new("GET", table)
        .header("authorization", &format!("Bearer {}", server.root))
        .header("x-iceberg-access-delegation", "vended-credentials,remote-signing");
    assert_refused(&guest.client.send(&request), 403, "ForbiddenException");
    let log = guest.log.0.lock();
    let seen = log.iter().find(|it| it.0 == "DELETE /v1/main/namespaces/other/tables/t").unwrap();
    assert_eq!((seen.1, seen.2), (403, AuditOutcome::Refused));
    assert!(seen.3.as_ref().unwrap().contains("`grant:acme` has no right to manage this"));
    let seen = log.iter().find(|it| it.0 == "GET /v1/main/namespaces/other/tables/t").unwrap();
    assert_eq!((seen.1, seen.2, &seen.3), (200, AuditOutcome::Done, &None));
    assert!(seen.5 > 100, "{seen:?}");
}

#[test]
fn data_that_only_a_guest_would_find_is_not_committed() {
    let server = Server::start();
    server.fill("other", "t");
    let writer = Guest::of(&server, "main", &["other"], true);
    let target = "/v1/main/namespaces/other/tables/t";
    let properties = json!({"action": "set-properties", "updates": {"k": "v"}});
    let snapshot = json!({"action": "add-snapshot", "snapshot": {}});
    for (updates, status) in [(json!([properties]), 200), (json!([properties, snapshot]), 403)] {
        let commit = json!({"requirements": [], "updates": updates});
        assert_eq!(writer.ask("POST", target, Some(&commit)).status, status);
        let mut change = commit.clone();
        change["identifier"] = json!({"namespace": ["other"], "name": "t"});
        let all = json!({"table-changes": [change]});
        let done = writer.ask("POST", "/v1/main/transactions/commit", Some(&all)).status;
        assert_eq!(done == 403, status == 403, "{done}");
    }
}

#[test]
fn rights_end_with_the_door_and_with_the_warehouse() {
    let store = S3::start();
    let server = cloud(&store);
    made(&server, "n", "t");
    let guest = Guest::of(&server, "cloud", &[], true);
    let path = "/v1/cloud/namespaces/n/tables/t";
    assert_eq!(guest.ask("GET", path, None).status, 200);
    // A policy on its tenant applies to the guest.
    for (principal, config) in [("tenant:other", true), ("tenant:acme", false)] {
        let policy = json!({"principal": principal, "namespace": ["n"], "table": "t",
            "row-filter": {"type": "eq", "term": "id", "value": 1}});
        let put = server.ask("PUT", "/management/v1/cloud/policies/p", Some(&policy));
        assert_eq!(put.status, 200, "{}", put.text());
        let loaded = guest.ask("GET", path, None).json();
        assert_eq!(loaded["config"].is_object(), config, "{principal}");
        assert_eq!(loaded["read-restrictions"].is_object(), !config, "{principal}");
    }
    let file = made_file(&guest, &server);
    assert_eq!(guest.tried("GET", &file, &[]).0, 403);
    assert_eq!(server.ask("DELETE", "/management/v1/cloud/policies/p", None).status, 204);
    assert_eq!(guest.tried("GET", &file, &[]).0, 200);
    let read_only = json!({"status": "read-only"});
    let changed = server.ask("PATCH", "/management/v1/warehouses/cloud", Some(&read_only));
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(guest.tried("PUT", &file, &[]), (403, "AccessDenied".to_owned()));
    assert_eq!(guest.tried("GET", &file, &[]).0, 200);
    assert_eq!(guest.ask("DELETE", path, None).status, 403);
    let who = guest.door.who().clone();
    let warehouse = server.catalog.warehouses().get("cloud").unwrap();
    let all = crate::service::RightTarget::Warehouse;
    let may = || {
        server
            .catalog
            .rights()
            .allow(&who, &warehouse, crate::service::AccessRight::Read, all)
            .is_ok()
    };
    assert!(may());
    drop(guest);
    until("the guest to be gone", Duration::from_secs(5), || match may() {
        true => Err("it may read".to_owned()),
        false => Ok(()),
    });
}

#[test]
fn nothing_is_changed_after_the_lease() {
    let store = S3::start();
    let server = cloud(&store);
    let table = made(&server, "n", "t");
    let lease = ServingLease::of(Duration::from_secs(3600));
    let guest = Guest::fenced(&server, "cloud", &["n"], true, EffectFence::new(lease.clone()));
    let target = "/v1/cloud/namespaces/n/tables/t";
    let loaded = || server.ask("GET", target, None).json()["metadata-location"].clone();
    let before = loaded();
    let properties = json!({"action": "set-properties", "updates": {"k": "v"}});
    let commit = json!({"requirements": [], "updates": [properties]});
    let file = format!("{table}/data/a.parquet");
    let refused = guest.ask("POST", target, Some(&commit));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("lost its lease"), "{}", refused.text());
    assert_eq!(guest.ask("GET", target, None).status, 503);
    assert_eq!(guest.tried("PUT", &file, &[]), (503, "ServiceUnavailable".to_owned()));
    assert_eq!(loaded(), before);

    lease.renewed(clock::boot_ms());
    assert_eq!(guest.tried("GET", &file, &[]).0, 404, "what was refused was not written");
    assert_eq!(guest.ask("POST", target, Some(&commit)).status, 200);
    assert_ne!(loaded(), before);
    assert_eq!(guest.tried("PUT", &file, &[]).0, 200);
}

/// Returns the metadata file of the table `n.t`.
fn made_file(guest: &Guest, server: &Server) -> String {
    let loaded = server.ask("GET", "/v1/cloud/namespaces/n/tables/t", None).json();
    assert!(guest.address.ip().is_loopback());
    loaded["metadata-location"].as_str().unwrap().strip_prefix("s3:/").unwrap().to_owned()
}

#[test]
fn files_are_read_and_written_without_a_key() {
    let store = S3::start();
    let server = cloud(&store);
    let table = made(&server, "n", "t");
    let guest = Guest::of(&server, "cloud", &["n"], true);
    let config = guest.ask("GET", "/v1/cloud/namespaces/n/tables/t", None).json()["config"].clone();
    assert_eq!(config["s3.endpoint"], format!("http://{}", guest.address));
    assert_eq!(config["s3.access-key-id"], "granted");
    let target = format!("{table}/data/a%20b.parquet");
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let put = guest.file("PUT", &target, &[("content-type", "a/b")], &content);
    assert_eq!(put.status, 200, "{}", put.text());
    let got = guest.file("GET", &target, &[], b"");
    assert_eq!((got.status, got.body == content), (200, true));
    let got = guest.file("GET", &target, &[("range", "bytes=4-7")], b"");
    assert_eq!((got.status, &got.body[..]), (206, &1_u32.to_le_bytes()[..]));
    let head = guest.file("HEAD", &target, &[], b"");
    let length = head.headers.iter().find(|it| it.0 == "content-length").unwrap();
    assert_eq!((head.status, &*length.1), (200, "1200000"));
    // In chunks, as clients send it that put checksums into trailers.
    let cut = b"3;chunk-signature=00\r\nabc\r\n2\r\nde\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n";
    let headers = [
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("x-amz-decoded-content-length", "5"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("content-encoding", "aws-chunked"),
    ];
    let put = guest.file("PUT", &target, &headers, cut);
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(guest.file("GET", &target, &[], b"").body, b"abcde");
    for wrong in ["4", "6"] {
        let mut headers = headers;
        headers[1].1 = wrong;
        assert_eq!(guest.file("PUT", &target, &headers, cut).status, 400, "{wrong}");
    }
    assert_eq!(guest.file("GET", &target, &[], b"").body, b"abcde");
    // In parts.
    let begun = guest.file("POST", &format!("{target}?uploads"), &[], b"").text();
    let id = begun.split_once("<UploadId>").unwrap().1.split('<').next().unwrap().to_owned();
    let mut parts = String::new();
    for number in [1, 2] {
        let part = vec![b'0' + number; 5 << 20];
        let to = format!("{target}?partNumber={number}&uploadId={id}");
        let put = guest.file("PUT", &to, &[("x-amz-checksum-crc32", "AAAA")], &part);
        assert_eq!(put.status, 200, "{}", put.text());
        let tag = put.header("etag").unwrap();
        parts += &format!("<Part><ETag>{tag}</ETag><PartNumber>{number}</PartNumber></Part>");
    }
    let list = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    // Names of parameters are compared decoded.
    let to = format!("{target}?%75ploadId={id}");
    let done = guest.file("POST", &to, &[], list.as_bytes());
    assert!(done.status == 200 && !done.text().contains("Location"), "{}", done.text());
    let got = guest.file("GET", &target, &[("range", "bytes=5242879-5242880")], b"");
    assert_eq!(&got.body[..], b"12");
    // Copied, listed, removed.
    let copy = format!("{table}/data/copy");
    let copied = guest.file("PUT", &copy, &[("x-amz-copy-source", &target)], b"");
    assert_eq!(copied.status, 200, "{}", copied.text());
    let (bucket, prefix) = table[1..].split_once('/').unwrap();
    let list = guest.file("GET", &format!("/{bucket}?list-type=2&prefix={prefix}/data/"), &[], b"");
    assert!(list.status == 200 && list.text().contains("copy"), "{}", list.text());
    assert_eq!(guest.file("DELETE", &copy, &[], b"").status, 204);
    let body = format!("<Delete><Object><Key>{prefix}/data/a b.parquet</Key></Object></Delete>");
    let gone = guest.file("POST", &format!("/{bucket}?delete"), &[], body.as_bytes());
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(guest.tried("GET", &target, &[]), (404, "NoSuchKey".to_owned()));
    let log = guest.log.0.lock();
    let read = log.iter().find(|it| it.0 == format!("GET {target}")).unwrap();
    assert_eq!((read.1, read.5), (200, 1_200_000));
    let text = format!("{log:?}");
    assert!(!text.contains(&store.access_key_id) && !text.contains(&store.secret_access_key));
}

#[test]
fn what_was_not_granted_is_out_of_reach() {
    let store = S3::start();
    let server = cloud(&store);
    let (own, neighbour) = (made(&server, "n", "t"), made(&server, "other", "t"));
    let writer = Guest::of(&server, "cloud", &["n"], true);
    let keys = |path: &str| path[1..].split_once('/').map(|(_, key)| key.to_owned()).unwrap();
    let (bucket, key, other) = (S3::BUCKET, keys(&own), keys(&neighbour));
    for (method, target) in [
        ("GET", format!("{neighbour}/metadata/x")),
        ("PUT", format!("{neighbour}/x")),
        ("GET", format!("{own}/../../{}", &other[other.rfind("other").unwrap()..])),
        ("GET", format!("{own}/%2e%2e/x")),
        ("GET", format!("{own}/..%2f..%2f{other}")),
        ("GET", format!("{own}//x")),
        ("GET", format!("{own}2/x")),
        ("GET", own.clone()),
        ("GET", format!("/other-bucket/{key}/x")),
        ("GET", format!("/{bucket}")),
        ("GET", format!("/{bucket}/")),
        ("HEAD", format!("/{bucket}")),
        ("PUT", format!("/{bucket}")),
        ("DELETE", format!("/{bucket}")),
        ("GET", format!("/{bucket}?list-type=2")),
        ("GET", format!("/{bucket}?list-type=2&prefix=")),
        ("GET", format!("/{bucket}?list-type=2&prefix=lake/")),
        ("GET", format!("/{bucket}?list-type=2&prefix={other}/")),
        ("GET", format!("/{bucket}?list-type=2&prefix={key}")),
        ("GET", format!("/{bucket}?prefix={key}/")),
        ("GET", format!("/{bucket}?uploads")),
        ("GET", format!("/{bucket}?policy")),
        ("GET", format!("/{bucket}?location")),
        ("GET", format!("{own}/x?acl")),
        ("GET", format!("{own}/x?versionId=1")),
        ("GET", format!("{own}/x?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=0")),
        ("OPTIONS", format!("{own}/x")),
    ] {
        let (status, code) = writer.tried(method, &target, &[]);
        assert_eq!(status, 403, "{method} {target} {code}");
    }
    let theirs = format!("{neighbour}/metadata/x");
    for header in [
        ("x-amz-copy-source", theirs.as_str()),
        ("x-amz-acl", "public-read"),
        ("x-amz-security-token", "x"),
    ] {
        let (status, code) = writer.tried("PUT", &format!("{own}/x"), &[header]);
        // Headers with an identity are ignored.
        let expected = if header.0 == "x-amz-security-token" { 200 } else { 403 };
        assert_eq!(status, expected, "{header:?} {code}");
    }
    let list = format!(
        "<Delete><Object><Key>{key}/x</Key></Object>\
        <Object><Key>{other}/x</Key></Object></Delete>"
    );
    let refused = writer.file("POST", &format!("/{bucket}?delete"), &[], list.as_bytes());
    assert_eq!(refused.status, 403, "{}", refused.text());
    // An error of the store reveals nothing of its key.
    let missing = writer.file("GET", &format!("{own}/missing"), &[], b"");
    assert!(missing.status == 404 && !missing.text().contains("Resource"), "{}", missing.text());
    assert_eq!(writer.tried("GET", &format!("{own}/missing"), &[]).1, "NoSuchKey");
}

/// Returns the path at a guest of files below a directory of the server, and the directory itself.
fn local(server: &Server, namespace: &str, table: &str) -> (std::path::PathBuf, String) {
    let path = format!("/v1/main/namespaces/{namespace}/tables/{table}");
    let loaded = server.ask("GET", &path, None).json();
    let location = loaded["metadata"]["location"].as_str().unwrap().to_owned();
    let directory = location.strip_prefix("file://").unwrap().to_owned();
    ((&directory).into(), format!("/files{directory}"))
}

#[test]
fn files_of_a_directory_are_read_and_never_written() {
    let server = Server::start();
    server.fill("n", "t");
    let (directory, own) = local(&server, "n", "t");
    let guest = Guest::of(&server, "main", &["n"], true);
    let config = guest.ask("GET", "/v1/main/namespaces/n/tables/t", None).json()["config"].clone();
    assert_eq!(config["s3.endpoint"], format!("http://{}", guest.address));
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::create_dir_all(directory.join("data")).unwrap();
    std::fs::write(directory.join("data/a b.parquet"), &content).unwrap();
    std::fs::write(directory.join("data/empty"), b"").unwrap();
    let target = format!("{own}/data/a%20b.parquet");
    let got = guest.file("GET", &target, &[], b"");
    assert_eq!((got.status, got.body == content), (200, true));
    let tag = got.header("etag").unwrap().to_owned();
    for (range, expected, content_range) in [
        ("bytes=4-7", &content[4..8], "bytes 4-7/1200000"),
        ("bytes=-4", &content[1_199_996..], "bytes 1199996-1199999/1200000"),
        ("bytes=262140-262147", &content[262_140..262_148], "bytes 262140-262147/1200000"),
    ] {
        let got = guest.file("GET", &target, &[("range", range)], b"");
        assert_eq!((got.status, &got.body[..]), (206, expected), "{range}");
        assert_eq!(got.header("content-range"), Some(content_range));
    }
    let beyond = guest.file("GET", &target, &[("range", "bytes=1200000-")], b"");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */1200000")));
    let head = guest.file("HEAD", &target, &[], b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("1200000")));
    assert_eq!(guest.file("GET", &format!("{own}/data/empty"), &[], b"").status, 200);
    for (name, value, status) in [
        ("if-match", tag.as_str(), 200),
        ("if-match", "\"other\"", 412),
        ("if-range", "\"other\"", 200),
        ("if-range", tag.as_str(), 206),
    ] {
        let range = ("range", "bytes=0-0");
        let headers = [(name, value), range];
        let headers = if name == "if-match" { &headers[..1] } else { &headers[..] };
        assert_eq!(guest.file("GET", &target, headers, b"").status, status, "{name} {value}");
    }
    assert_eq!(guest.tried("GET", &format!("{own}/data/none"), &[]), {
        (404, "NoSuchKey".to_owned())
    });
    // The grant allows writing, but files remain read-only.
    let denied = (403, "AccessDenied".to_owned());
    for (method, target) in [
        ("PUT", target.clone()),
        ("PUT", format!("{own}/data/new")),
        ("DELETE", target.clone()),
        ("POST", format!("{target}?uploads")),
        ("POST", "/files?delete".to_owned()),
        ("GET", "/files?list-type=2&prefix=".to_owned()),
        ("GET", format!("{target}?acl")),
        ("GET", format!("{target}?versionId=1")),
        ("OPTIONS", target.clone()),
    ] {
        assert_eq!(guest.tried(method, &target, &[]), denied, "{method} {target}");
    }
    assert!(std::fs::read(directory.join("data/a b.parquet")).unwrap() == content);
    assert!(!directory.join("data/new").exists());
    let log = guest.log.0.lock();
    let read = log.iter().find(|it| it.0 == format!("GET {target}")).unwrap();
    assert_eq!((read.1, read.2, read.5), (200, AuditOutcome::Done, 1_200_000));
    let refused = log.iter().find(|it| it.0 == format!("DELETE {target}")).unwrap();
    assert_eq!((refused.1, refused.2), (403, AuditOutcome::Refused));
}

#[test]
fn no_path_leads_out_of_a_table_in_a_directory() {
    let server = Server::start();
    server.fill("n", "t");
    server.fill("other", "u");
    let ((directory, own), (beside, neighbour)) =
        (local(&server, "n", "t"), local(&server, "other", "u"));
    let guest = Guest::of(&server, "main", &["n"], false);
    std::fs::create_dir_all(directory.join("data")).unwrap();
    std::fs::write(directory.join("data/x"), b"own").unwrap();
    std::fs::create_dir_all(beside.join("data")).unwrap();
    std::fs::write(beside.join("data/x"), b"theirs").unwrap();
    let secret = server.scratch.path().join("secret");
    std::fs::write(&secret, b"a secret").unwrap();
    // Programs that may write to a table's directory can create links, pipes and directories there.
    let link = |to: &std::path::Path, at: &str| {
        std::os::unix::fs::symlink(to, directory.join(at)).unwrap();
    };
    link(&secret, "data/link");
    link(&directory.join("data/x"), "data/inner");
    link(&beside.join("data"), "linked");
    link(std::path::Path::new("/"), "root");
    let pipe = directory.join("data/pipe");
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
    assert_eq!(guest.file("GET", &format!("{own}/data/x"), &[], b"").body, b"own");
    let table = own.rsplit('/').next().unwrap();
    let (secret, own_u) = (secret.display(), neighbour.rsplit('/').next().unwrap());
    for target in [
        format!("{own}/data/link"),
        format!("{own}/data/inner"),
        format!("{own}/linked/x"),
        format!("{own}/root/etc/passwd"),
        format!("{own}/data/pipe"),
        format!("{own}/data"),
        format!("{own}/data/"),
        own.clone(),
        format!("{own}2/data/x"),
        format!("{neighbour}/data/x"),
        format!("{own}/../../other/{own_u}/data/x"),
        format!("{own}/../{table}/data/x"),
        format!("{own}/%2e%2e/{table}/data/x"),
        format!("{own}/..%2f{table}/data/x"),
        format!("{own}/%252e%252e/{table}/data/x"),
        format!("{own}//data/x"),
        format!("{own}/data/x%00"),
        format!("{own}/data%5cx"),
        format!("/files{secret}"),
        "/files/etc/passwd".to_owned(),
        "/files/proc/self/environ".to_owned(),
        "/files//etc/passwd".to_owned(),
        "/files/".to_owned(),
        "/files".to_owned(),
        format!("/other{}", own.strip_prefix("/files").unwrap()),
        own.strip_prefix("/files").unwrap().to_owned() + "/data/x",
    ] {
        for method in ["GET", "HEAD"] {
            let refused = guest.file(method, &target, &[], b"");
            assert_eq!(refused.status, 403, "{method} {target} {}", refused.text());
            assert!(!refused.text().contains("secret"), "{target}");
        }
    }
    // Files contain all of a table: they are not accessible to a principal restricted by a policy.
    let policy = json!({"principal": "tenant:acme", "namespace": ["n"], "table": "t",
        "row-filter": {"type": "eq", "term": "id", "value": 1}});
    let put = server.ask("PUT", "/management/v1/main/policies/p", Some(&policy));
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(guest.tried("GET", &format!("{own}/data/x"), &[]).0, 403);
    assert!(guest.ask("GET", "/v1/main/namespaces/n/tables/t", None).json()["config"].is_null());
    assert_eq!(server.ask("DELETE", "/management/v1/main/policies/p", None).status, 204);
    assert_eq!(guest.tried("GET", &format!("{own}/data/x"), &[]).0, 200);
    // Access ends with the table.
    assert_eq!(server.ask("DELETE", "/v1/main/namespaces/n/tables/t", None).status, 204);
    assert_eq!(guest.tried("GET", &format!("{own}/data/x"), &[]).0, 403);
}

#[test]
fn the_length_of_a_file_is_said_and_bounded() {
    let store = S3::start();
    let server = cloud(&store);
    let own = made(&server, "n", "t");
    let writer = Guest::of(&server, "cloud", &["n"], true);
    let mut stream = TcpStream::connect(writer.address).unwrap();
    for (header, expected) in
        [("transfer-encoding: chunked", "411"), ("content-length: 9999999999", "400")]
    {
        write!(stream, "PUT {own}/x HTTP/1.1\r\nhost: x\r\n{header}\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head[9..], expected.as_bytes(), "{header}");
        stream = TcpStream::connect(writer.address).unwrap();
    }
}

#[test]
fn who_may_read_writes_no_file() {
    let store = S3::start();
    let server = cloud(&store);
    let own = made(&server, "n", "t");
    let reader = Guest::of(&server, "cloud", &["n"], false);
    let denied = (403, "AccessDenied".to_owned());
    let file = made_file(&reader, &server);
    assert_eq!(reader.tried("GET", &file, &[]).0, 200);
    for (method, target) in [
        ("PUT", format!("{own}/x")),
        ("DELETE", file),
        ("POST", format!("{own}/x?uploads")),
        ("PUT", format!("{own}/x?partNumber=1&uploadId=x")),
    ] {
        assert_eq!(reader.tried(method, &target, &[]), denied, "{method} {target}");
    }
}

#[test]
fn files_of_a_staged_table_come_before_it() {
    let store = S3::start();
    let server = cloud(&store);
    let guest = Guest::of(&server, "cloud", &["n"], true);
    let beside = Guest::of(&server, "cloud", &["n"], true);
    let mut new = new_table("s");
    new["stage-create"] = json!(true);
    let staged = guest.ask("POST", "/v1/cloud/namespaces/n/tables", Some(&new));
    assert_eq!(staged.status, 200, "{}", staged.text());
    assert_eq!(staged.json()["config"]["s3.access-key-id"], "granted");
    let file = format!("{}/data/x", place(&staged));
    assert_eq!(guest.tried("PUT", &file, &[]).0, 200);
    // No other guest has staged it.
    assert_eq!(beside.tried("PUT", &file, &[]).0, 403);
    let commit = staged_commit(&staged.json()["metadata"]);
    let made = guest.ask("POST", "/v1/cloud/namespaces/n/tables/s", Some(&commit));
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(beside.tried("GET", &file, &[]).0, 200);
    // A location with another table cannot be staged.
    new["name"] = json!("u");
    new["location"] = made.json()["metadata"]["location"].clone();
    let refused = guest.ask("POST", "/v1/cloud/namespaces/n/tables", Some(&new));
    assert_refused(&refused, 403, "ForbiddenException");
}
