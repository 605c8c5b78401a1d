//! Keys through the shell, with requests in this process. Dropping a request models a disconnect.

use std::sync::atomic::AtomicUsize;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use testkit::Postgres;
use tokio::sync::Semaphore;

use super::*;
use crate::auth::TokenRegistry;
use crate::drain::DrainHandle;
use crate::http::{HttpShell, ShellLimits};
use crate::store::{StoreConfig, StoreUrl};
use crate::telemetry::{HttpMetrics, Registry};
use crate::testing::TempDir;

/// Longest time that a test waits.
const DEADLINE: Duration = Duration::from_secs(20);

/// A server whose handlers count their runs.
struct KeyedServer {
    routes: Router,
    token: String,
    tokens: TokenRegistry,
    store: SqlStore,
    ran: Arc<AtomicUsize>,
    /// One permit for each request of a path that waits.
    gate: Arc<Semaphore>,
    sealer: Sealer,
    _directory: TempDir,
}

/// An answer, and whether it was repeated.
#[derive(Debug, PartialEq, Eq)]
struct Replied {
    status: u16,
    body: String,
    replayed: bool,
}

fn routes(ran: &Arc<AtomicUsize>, gate: &Arc<Semaphore>) -> Router {
    let count = {
        let ran = Arc::clone(ran);
        move || ran.fetch_add(1, Ordering::SeqCst) + 1
    };
    let waiting = {
        let (count, gate) = (count.clone(), Arc::clone(gate));
        move || async move {
            let number = count();
            gate.acquire().await.unwrap().forget();
            (StatusCode::CREATED, [("location", "/v1/made")], format!("made {number}"))
        }
    };
    let (of_things, of_failures, of_long, of_streams) =
        (count.clone(), count.clone(), count.clone(), count.clone());
    Router::new()
        .route(
            "/v1/things",
            post(|body: Bytes| async move {
                let number = of_things();
                let location = [("location", format!("/v1/things/{number}"))];
                (StatusCode::CREATED, location, format!("{number}: {} bytes", body.len()))
            }),
        )
        .route(
            "/v1/failures",
            post(move || async move {
                of_failures();
                HttpError::new(ErrorCode::TooManyRequests, "too many").into_response()
            }),
        )
        .route(
            "/v1/long",
            post(move || async move {
                of_long();
                "x".repeat(usize::try_from(KEPT_BYTES_MAX).unwrap() + 1)
            }),
        )
        .route(
            "/v1/streams",
            post(move || async move {
                of_streams();
                let parts = futures_util::stream::iter([Ok::<_, std::io::Error>("part")]);
                Response::new(Body::from_stream(parts))
            }),
        )
        .route("/v1/slow", post(waiting.clone()))
        .route("/v1/sessions/{id}/exec", post(waiting))
        .route("/v1/console/codes", post(move || async move { format!("code {}", count()) }))
}

impl KeyedServer {
    async fn sqlite() -> KeyedServer {
        let directory = TempDir::new();
        let store = StoreUrl::Sqlite(directory.path().join("store.db"));
        KeyedServer::start(store, directory).await
    }

    async fn start(url: StoreUrl, directory: TempDir) -> KeyedServer {
        let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
        let tokens = TokenRegistry::open(directory.path()).unwrap();
        tokens.ensure_first().unwrap();
        let token = std::fs::read_to_string(tokens.first_token_path()).unwrap().trim().to_owned();
        let (ran, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let sealer = Sealer::new(&[7; 32]);
        let server = KeyedServer {
            routes: Router::new(),
            token,
            tokens,
            store,
            ran,
            gate,
            sealer,
            _directory: directory,
        };
        server.restarted().await
    }

    /// Returns the same server in another run of its process.
    async fn restarted(self) -> KeyedServer {
        let ids = IdGenerator::new().unwrap();
        let keys = IdempotencyKeys::open(self.store.clone(), &self.sealer, &ids).await.unwrap();
        let metrics = HttpMetrics::new(&mut Registry::default());
        let limits = ShellLimits::default();
        let shell = HttpShell::new(limits, self.tokens.clone(), DrainHandle::new(), metrics, ids);
        let routes = shell.with_keys(keys).wrap(routes(&self.ran, &self.gate));
        KeyedServer { routes, ..self }
    }

    fn request(&self, path: &str, key: &str, body: &str) -> Request {
        let request = Request::post(path).header("authorization", format!("Bearer {}", self.token));
        request.header(IDEMPOTENCY_KEY, key).body(Body::from(body.to_owned())).unwrap()
    }

    async fn send(&self, request: Request) -> Replied {
        let routes = TowerToHyperService::new(self.routes.clone());
        let response = routes.call(request).await.unwrap();
        let replayed = response.headers().contains_key(REPLAYED);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Replied { status, body: String::from_utf8(body.to_vec()).unwrap(), replayed }
    }

    async fn post(&self, path: &str, key: &str, body: &str) -> Replied {
        tokio::time::timeout(DEADLINE, self.send(self.request(path, key, body))).await.unwrap()
    }

    fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }

    async fn until_ran(&self, times: usize) {
        let ran = async {
            while self.ran() < times {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, ran).await.expect("the handler runs");
    }

    async fn change(&self, sql: &'static str) {
        self.store.transact("test", move |it| it.execute(sql, &[])).await.unwrap();
    }
}

fn created(body: &str, replayed: bool) -> Replied {
    Replied { status: 201, body: body.to_owned(), replayed }
}

fn assert_conflict(reply: &Replied, says: &str) {
    assert_eq!((reply.status, reply.replayed), (409, false), "{reply:?}");
    assert!(reply.body.contains(says) && reply.body.contains("idempotency-key"), "{reply:?}");
}

#[tokio::test]
async fn a_request_is_carried_out_once_for_each_key() {
    let server = KeyedServer::sqlite().await;
    assert_eq!(server.post("/v1/things", "a", "body").await, created("1: 4 bytes", false));
    assert_eq!(server.post("/v1/things", "a", "body").await, created("1: 4 bytes", true));
    assert_eq!(server.post("/v1/things", "b", "body").await, created("2: 4 bytes", false));
    for (path, body) in [("/v1/things", "other"), ("/v1/things?x=1", "body"), ("/v1/slow", "body")]
    {
        assert_conflict(&server.post(path, "a", body).await, "was used for another request");
    }
    assert_eq!(server.ran(), 2);

    // Stored answers outlive the process.
    let mut server = server.restarted().await;
    assert_eq!(server.post("/v1/things", "a", "body").await, created("1: 4 bytes", true));

    // A key belongs to its token.
    let (_, other) = server.tokens.create("other", false).unwrap();
    server.token = other.expose();
    assert_eq!(server.post("/v1/things", "a", "body").await, created("3: 4 bytes", false));

    // A key expires.
    server.change("UPDATE cove_idempotency_keys SET begun_ms = 0").await;
    assert_eq!(server.post("/v1/things", "a", "body").await, created("4: 4 bytes", false));
    assert_eq!(server.post("/v1/things", "a", "body").await, created("4: 4 bytes", true));
}

#[tokio::test]
async fn headers_of_an_answer_are_kept() {
    let server = KeyedServer::sqlite().await;
    for _ in 0..2 {
        let routes = TowerToHyperService::new(server.routes.clone());
        let response = routes.call(server.request("/v1/things", "a", "x")).await.unwrap();
        assert_eq!(response.headers()["location"], "/v1/things/1");
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        assert!(response.headers().contains_key("x-request-id"));
    }
}

#[tokio::test]
async fn what_failed_is_tried_again_and_what_is_not_kept_is_refused() {
    let server = KeyedServer::sqlite().await;
    for times in 1..3 {
        assert_eq!(server.post("/v1/failures", "a", "").await.status, 429);
        assert_eq!(server.ran(), times);
    }
    for path in ["/v1/long", "/v1/streams"] {
        assert_eq!(server.post(path, path, "").await.status, 200, "{path}");
        assert_conflict(&server.post(path, path, "").await, "a stream, or too long");
    }
    assert_eq!(server.ran(), 4);
    // Sign-in codes are not repeated, with a key or without.
    assert_eq!(server.post("/v1/console/codes", "a", "").await.body, "code 5");
    assert_eq!(server.post("/v1/console/codes", "a", "").await.body, "code 6");
}

#[tokio::test]
async fn a_second_request_waits_for_the_first() {
    let server = KeyedServer::sqlite().await;
    let requests = (0..5).map(|_| server.post("/v1/slow", "a", ""));
    let all = futures_util::future::join_all(requests);
    let open = async {
        server.until_ran(1).await;
        server.gate.add_permits(1);
    };
    let (all, ()) = tokio::join!(all, open);
    assert_eq!(all.iter().filter(|it| !it.replayed).count(), 1);
    assert!(all.iter().all(|it| it.status == 201 && it.body == "made 1"), "{all:?}");
    assert_eq!(server.ran(), 1);
}

#[tokio::test]
async fn a_client_that_left_comes_back_for_its_answer() {
    let server = KeyedServer::sqlite().await;
    for (path, number) in [("/v1/slow", 1), ("/v1/sessions/s/exec", 2)] {
        tokio::select! {
            reply = server.post(path, path, "") => panic!("{reply:?}"),
            () = server.until_ran(number) => {}
        }
    }
    server.gate.add_permits(1);
    assert_eq!(server.post("/v1/slow", "/v1/slow", "").await, created("made 1", true));
    // A command ends with its client, and its progress is unknown.
    let reply = server.post("/v1/sessions/s/exec", "/v1/sessions/s/exec", "").await;
    assert_conflict(&reply, "did not come to its end");
    assert_eq!(server.ran(), 2);
}

#[tokio::test]
async fn what_a_stopped_server_had_begun_is_not_done_again() {
    let server = KeyedServer::sqlite().await;
    server.post("/v1/things", "a", "").await;
    server.change("UPDATE cove_idempotency_keys SET state = 'begun', answer = NULL").await;
    let server = server.restarted().await;
    assert_conflict(&server.post("/v1/things", "a", "").await, "did not come to its end");
    assert_eq!(server.ran(), 1);
}

#[tokio::test]
async fn malformed_keys_are_refused() {
    let server = KeyedServer::sqlite().await;
    let cases = [
        (vec![""], "must have 1 to 255 bytes"),
        (vec!["a", "b"], "is specified twice"),
        (vec!["caf\u{e9}"], "must be printable ASCII"),
    ];
    let long = "k".repeat(256);
    for (keys, expected) in cases.into_iter().chain([(vec![&*long], "must have 1 to 255 bytes")]) {
        let mut request = server.request("/v1/things", "x", "");
        request.headers_mut().remove(IDEMPOTENCY_KEY);
        for key in keys {
            let value = HeaderValue::from_bytes(key.as_bytes()).unwrap();
            request.headers_mut().append(IDEMPOTENCY_KEY, value);
        }
        let reply = server.send(request).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.body.contains(expected), "{expected}: {reply:?}");
    }
    assert_eq!(server.ran(), 0);
}

#[tokio::test]
async fn a_token_has_a_bounded_number_of_keys() {
    let server = KeyedServer::sqlite().await;
    server.post("/v1/things", "first", "").await;
    let sql = "INSERT INTO cove_idempotency_keys
        (token_id, idempotency_key, fingerprint, server_run, state, begun_ms)
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
        SELECT token_id, 'more' || i, fingerprint, server_run, 'not_kept', begun_ms + i
        FROM n, cove_idempotency_keys WHERE idempotency_key = 'first'";
    server.change(sql).await;
    // Old keys are removed gradually.
    for number in 0..=KEYS_PER_CLEANING {
        server.post("/v1/things", &format!("last{number}"), "").await;
    }
    let count = server.store.read("test", |it| {
        let row = it.query_one("SELECT COUNT(*) FROM cove_idempotency_keys", &[])?;
        row.ok_or(SqlStoreError::Spoiled)?.get::<i64>(0)
    });
    let most = KEYS_PER_TOKEN_MAX + i64::from(KEYS_PER_CLEANING) + 1;
    assert!(count.await.unwrap() <= most);
    let before = server.ran();
    assert!(!server.post("/v1/things", "first", "").await.replayed);
    assert_eq!(server.ran(), before + 1);
}

#[tokio::test]
async fn nodes_on_one_store_share_keys() {
    let postgres = tokio::task::spawn_blocking(Postgres::shared).await.unwrap();
    let url = StoreUrl::Postgres(postgres.database());
    let one = KeyedServer::start(url.clone(), TempDir::new()).await;
    let two = KeyedServer::start(url, TempDir::new()).await;
    // The same token and handlers at another node.
    let two = KeyedServer { tokens: one.tokens.clone(), token: one.token.clone(), ..two };
    let two = KeyedServer { ran: Arc::clone(&one.ran), gate: Arc::clone(&one.gate), ..two };
    let two = two.restarted().await;
    assert_eq!(one.post("/v1/things", "a", "").await, created("1: 0 bytes", false));
    assert_eq!(two.post("/v1/things", "a", "").await, created("1: 0 bytes", true));
    let open = async {
        one.until_ran(2).await;
        // Only its row distinguishes it from a request that has ended.
        let second = two.post("/v1/slow", "b", "");
        let first = async { one.gate.add_permits(1) };
        tokio::join!(second, first).0
    };
    let (first, second) = tokio::join!(one.post("/v1/slow", "b", ""), open);
    assert_eq!((first, second), (created("made 2", false), created("made 2", true)));
    assert_eq!(one.ran(), 2);
}
