//! Doors to the endpoint of the relay's tests.

use node::clock;
use node::cluster::{LimitScope, NodeDescription, NodeIdentity, NodeMembership, ServingLease};
use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::telemetry::MetricsRegistry;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::budget::{OF_GRANT, OF_TENANT};
use super::*;
use crate::model::tests::{ERROR_END, KEY, Model, ask, model, read_until, request};

/// Report of a request.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    text: String,
    end: ModelEnd,
    status: Option<u16>,
    error: Option<String>,
    tokens: u64,
    is_estimated: bool,
}

#[derive(Debug, Default)]
struct Diary(Mutex<Vec<Seen>>);

impl ModelWitness for Diary {
    fn saw(&self, request: &ModelRequest<'_>) {
        assert!(request.took < Duration::from_secs(20));
        let model = request.model.map(|model| format!(" {model}")).unwrap_or_default();
        self.0.lock().push(Seen {
            text: format!("{} {}{model}", request.method, request.path),
            end: request.end,
            status: request.status,
            error: request.error.map(str::to_owned),
            tokens: request.tokens.total(),
            is_estimated: request.is_estimated,
        });
    }
}

impl Diary {
    /// Returns all reports once there are at least `count`.
    async fn all(&self, count: usize) -> Vec<Seen> {
        let started = clock::now();
        loop {
            let seen = self.0.lock().clone();
            if seen.len() >= count {
                return seen;
            }
            assert!(clock::now() - started < Duration::from_secs(20), "{seen:?}");
            tokio::task::yield_now().await;
        }
    }
}

struct Ground {
    model: Model,
    doors: ModelDoors,
    diary: Arc<Diary>,
}

/// A served door and its address.
struct Served {
    address: std::net::SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ground(tokens_max_per_tenant: u64) -> Ground {
    let model = model().await;
    let url = format!("http://{}", model.address);
    let doors = ModelDoors::new(&url, Some(KEY), TlsRoots::Machine, tokens_max_per_tenant).unwrap();
    Ground { model, doors, diary: Arc::default() }
}

impl Ground {
    fn spec(&self) -> ModelDoorSpec {
        ModelDoorSpec {
            holder: "ses_1".into(),
            is_lasting: true,
            port: 8100,
            tenant: "team".into(),
            models: Vec::new(),
            tokens_max: None,
            dollars_max: None,
            prices: BTreeMap::new(),
            told: Arc::clone(&self.diary) as _,
        }
    }

    async fn serve(&self, spec: ModelDoorSpec) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = self.doors.open(spec);
        let task = tokio::spawn(async move {
            let mut all = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                all.spawn(Arc::clone(&door).serve(stream));
            }
        });
        Served { address, task }
    }
}

impl Served {
    async fn client(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Returns the answer to a request that is not streamed.
    async fn answer(&self, head: &str, body: &str) -> String {
        let mut client = self.client().await;
        client.write_all(request(head, body).as_bytes()).await.unwrap();
        whole(&mut client).await
    }

    /// Requests a message; returns the answer's status and error type.
    async fn message(&self, body: &str) -> (u16, Option<String>) {
        let answer = self.answer("POST /v1/messages", body).await;
        (status(&answer), kind(&answer))
    }
}

/// Reads an answer with a declared length.
async fn whole(client: &mut TcpStream) -> String {
    let mut text = read_until(client, "\r\n\r\n").await;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.unwrap().parse().unwrap();
    let head = text.find("\r\n\r\n").unwrap() + 4;
    while text.len() < head + length {
        text += &read_until(client, "}").await;
    }
    text
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn kind(answer: &str) -> Option<String> {
    let (_, document) = answer.split_once("\r\n\r\n")?;
    let document: serde_json::Value = serde_json::from_str(document).ok()?;
    Some(document["error"]["type"].as_str()?.to_owned())
}

const HELLO: &str = r#"{"model":"small","max_tokens":1000,"messages":[]}"#;
const STREAM: &str = r#"{"model":"small","max_tokens":1000,"stream":true}"#;

#[tokio::test]
async fn the_key_is_added_outside_and_never_seen_inside() {
    let mut ground = ground(0).await;
    let served = ground.serve(ground.spec()).await;
    let sent = request("POST /v1/messages?beta=true", HELLO);
    let answer = ask(&mut served.client().await, &sent, "}}").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(!answer.contains(KEY) && !answer.contains("cookie"), "{answer}");
    let asked = ground.model.asked.recv().await.unwrap();
    assert!(asked.starts_with("POST /v1/messages?beta=true HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("x-api-key: sk-secret\r\n"), "{asked}");
    assert!(asked.contains("content-type: application/json\r\n"), "{asked}");
    assert!(asked.ends_with(HELLO), "{asked}");
    assert!(!asked.contains("provided-by-cove") && !asked.contains("Bearer"), "{asked}");
    let expected = Seen {
        text: "POST /v1/messages small".to_owned(),
        end: ModelEnd::Answered,
        status: Some(200),
        error: None,
        tokens: 5,
        is_estimated: false,
    };
    assert_eq!(ground.diary.all(1).await, [expected]);
    let shown = format!("{:?} {:?}", ground.doors, ground.doors.open(ground.spec()));
    assert!(!shown.contains(KEY), "{shown}");
}

#[tokio::test]
async fn what_is_free_is_not_charged() {
    let mut ground = ground(0).await;
    let spec = ModelDoorSpec { tokens_max: Some(1), ..ground.spec() };
    let served = ground.serve(spec).await;
    for _ in 0..2 {
        let answer = served.answer("GET /v1/models/small", "").await;
        assert_eq!(status(&answer), 200);
        assert!(ground.model.asked.recv().await.unwrap().ends_with("\r\n\r\n"));
        let answer = served.answer("POST /v1/messages/count_tokens", HELLO).await;
        assert_eq!(status(&answer), 200);
        assert!(ground.model.asked.recv().await.unwrap().ends_with(HELLO));
    }
    let seen = ground.diary.all(4).await;
    // Usage in answers counts only for messages.
    assert!(seen.iter().all(|seen| seen.tokens == 0), "{seen:?}");
}

#[tokio::test]
async fn other_models_and_other_paths_are_refused() {
    let mut ground = ground(0).await;
    let models = vec!["small".to_owned(), "tiny".to_owned()];
    let served = ground.serve(ModelDoorSpec { models, ..ground.spec() }).await;
    let forbidden = (403, Some("permission_error".to_owned()));
    let invalid = (400, Some("invalid_request_error".to_owned()));
    for (body, expected) in [
        (r#"{"model":"big"}"#, &forbidden),
        (r#"{"model":"small "}"#, &forbidden),
        (r#"{"model":"Small"}"#, &forbidden),
        (r#"{"model":"small","fallback_model":"big"}"#, &forbidden),
        (r#"{"model":"small","tools":[{"type":"advisor","model":"big"}]}"#, &forbidden),
        (r#"{"model":"small","model":"big"}"#, &invalid),
        (r#"{"model":"small","Model":"big"}"#, &invalid),
        (r#"{"max_tokens":1}"#, &invalid),
        ("model=small", &invalid),
        ("", &invalid),
    ] {
        assert_eq!(served.message(body).await, *expected, "{body}");
    }
    let counted = served.answer("POST /v1/messages/count_tokens", r#"{"model":"big"}"#).await;
    assert_eq!(status(&counted), 403);
    let path = served.answer("POST /v1/messages/batches", HELLO).await;
    assert_eq!((status(&path), kind(&path).as_deref()), (404, Some("not_found_error")));
    let encoded = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-encoding: identity\r\n\
         content-length: {}\r\n\r\n{HELLO}",
        HELLO.len()
    );
    let encoded = ask(&mut served.client().await, &encoded, ERROR_END).await;
    assert_eq!(status(&encoded), 415);
    assert!(ground.model.asked.try_recv().is_err(), "nothing of it was sent");
    for body in [HELLO, r#"{"model":"tiny","tools":[{"name":"a"},{"model":"small"}]}"#] {
        assert_eq!(served.message(body).await.0, 200);
    }
    let seen = ground.diary.all(15).await;
    let refused = seen.iter().filter(|seen| seen.end == ModelEnd::Refused);
    assert_eq!(refused.count(), 13, "{seen:?}");
    assert_eq!(seen[0].text, "POST /v1/messages big");
    assert_eq!((seen[0].status, seen[0].tokens), (Some(403), 0));
    assert_eq!(seen[0].error.as_deref(), Some("this model is not granted"));
}

#[tokio::test]
async fn a_budget_stops_and_is_not_begun_anew() {
    let mut ground = ground(0).await;
    let spec = ModelDoorSpec { tokens_max: Some(9), ..ground.spec() };
    let served = ground.serve(spec.clone()).await;
    for _ in 0..2 {
        assert_eq!(served.message(HELLO).await.0, 200);
        ground.model.asked.recv().await.unwrap();
    }
    let answer = served.answer("POST /v1/messages", HELLO).await;
    assert_eq!((status(&answer), kind(&answer).as_deref()), (429, Some("rate_limit_error")));
    assert!(answer.contains(OF_GRANT) && answer.contains("x-should-retry: false"), "{answer}");
    assert_eq!(status(&served.answer("GET /v1/models", "").await), 429);
    // As when its sandbox is restarted, or when it is granted again.
    drop(served);
    let again = ground.serve(spec.clone()).await;
    assert_eq!(again.message(HELLO).await.0, 429);
    assert!(ground.model.asked.try_recv().is_err(), "something was sent");
    // A larger budget has something left, and other budgets are separate.
    let more = ground.serve(ModelDoorSpec { tokens_max: Some(11), ..spec.clone() }).await;
    assert_eq!(more.message(HELLO).await.0, 200);
    assert_eq!(more.message(HELLO).await.0, 429);
    let other = ground.serve(ModelDoorSpec { holder: "ses_2".into(), ..spec }).await;
    assert_eq!(other.message(HELLO).await.0, 200);
    let none = ModelDoorSpec { holder: "ses_3".into(), tokens_max: Some(0), ..ground.spec() };
    assert_eq!(ground.serve(none).await.message(HELLO).await.0, 429);
}

#[tokio::test]
async fn budgets_outlast_the_server() {
    let scratch = testkit::Scratch::new();
    let price = ModelPrice { input: 500_000.0, output: 1_500_000.0, ..ModelPrice::default() };
    let prices = BTreeMap::from([("small".to_owned(), price)]);
    for (run, whose) in [("1", None), ("2", Some([OF_GRANT, OF_GRANT, OF_TENANT]))] {
        let mut registry = Registry::default();
        let url = StoreUrl::Sqlite(scratch.path().join("db"));
        let store = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
        let (id, incarnation, home) = ("srv_1".to_owned(), run.to_owned(), String::new());
        let run = NodeIdentity { id, incarnation, home };
        let (description, lease) = (NodeDescription::default(), Duration::from_secs(60));
        let member = NodeMembership::join(&store, run, &description, lease).await.unwrap();
        let scope = LimitScope::Node;
        let ledger = AmountLedger::open(&store, &member, scope, &mut registry).await.unwrap();
        // A message uses five tokens, and costs 5.50 dollars.
        let mut ground = ground(15).await;
        ground.doors = ground.doors.kept_in(Some(ledger.clone()));
        let of = |holder: &str, tenant: &str| ModelDoorSpec {
            holder: holder.into(),
            tenant: tenant.into(),
            prices: prices.clone(),
            ..ground.spec()
        };
        let tokens = ModelDoorSpec { tokens_max: Some(5), ..of("ses_1", "a") };
        let dollars = ModelDoorSpec { dollars_max: Some(5.5), ..of("ses_2", "a") };
        let of_tenant = ModelDoorSpec { is_lasting: false, ..of("exe_1", "a") };
        for (at, spec) in [tokens, dollars, of_tenant].into_iter().enumerate() {
            let answer = ground.serve(spec).await.answer("POST /v1/messages", HELLO).await;
            match whose {
                None => assert_eq!(status(&answer), 200, "{answer}"),
                Some(whose) => assert!(answer.contains(whose[at]), "{answer}"),
            }
        }
        let other = ground.serve(of("ses_3", "b")).await;
        assert_eq!(other.message(HELLO).await.0, 200);
        ledger.close().await;
        store.close().await;
    }
}

#[tokio::test]
async fn the_grants_of_a_tenant_have_a_budget_together() {
    let ground = ground(10).await;
    let door = |holder: &str, tenant: &str| {
        ground.serve(ModelDoorSpec {
            holder: holder.into(),
            tenant: tenant.into(),
            ..ground.spec()
        })
    };
    for holder in ["ses_1", "ses_2"] {
        assert_eq!(door(holder, "team").await.message(HELLO).await.0, 200);
    }
    let answer = door("ses_3", "team").await.answer("POST /v1/messages", HELLO).await;
    assert!(status(&answer) == 429 && answer.contains(OF_TENANT), "{answer}");
    assert_eq!(door("ses_4", "others").await.message(HELLO).await.0, 200);
}

#[tokio::test]
async fn dollars_are_counted_by_model() {
    let ground = ground(0).await;
    // A message uses two input and three output tokens: 5.50 dollars.
    let price = ModelPrice { input: 500_000.0, output: 1_500_000.0, ..ModelPrice::default() };
    let prices = BTreeMap::from([("small".to_owned(), price)]);
    let spec = ModelDoorSpec { dollars_max: Some(11.0), prices, ..ground.spec() };
    let served = ground.serve(spec).await;
    assert_eq!(served.message(r#"{"model":"unpriced"}"#).await.0, 403);
    for expected in [200, 200, 429] {
        assert_eq!(served.message(HELLO).await.0, expected);
    }
}

#[tokio::test]
async fn streams_are_counted_and_leaving_early_is_not_free() {
    let ground = ground(0).await;
    let served = ground.serve(ground.spec()).await;
    let sent = request("POST /v1/messages", STREAM);
    let mut client = served.client().await;
    client.write_all(sent.as_bytes()).await.unwrap();
    for end in ["\"output_tokens\":1}}}", "content_block_delta\"}", "0\r\n\r\n"] {
        ground.model.go.send("go").unwrap();
        assert!(read_until(&mut client, end).await.contains(end));
    }
    let seen = ground.diary.all(1).await;
    assert_eq!((seen[0].tokens, seen[0].is_estimated), (18, false));
    // Everything except the end, which would report the usage.
    let mut client = served.client().await;
    client.write_all(sent.as_bytes()).await.unwrap();
    for end in ["\"output_tokens\":1}}}", "content_block_delta\"}"] {
        ground.model.go.send("go").unwrap();
        read_until(&mut client, end).await;
    }
    drop(client);
    let seen = ground.diary.all(2).await;
    assert!(seen[1].tokens > 18 && seen[1].tokens < 1000 && seen[1].is_estimated, "{seen:?}");
}

#[tokio::test]
async fn who_leaves_before_the_answer_pays_for_what_it_may_be() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut ground = ground(0).await;
    ground.doors = ModelDoors::new(&url, None, TlsRoots::Machine, 0).unwrap();
    let served = ground.serve(ground.spec()).await;
    let mut client = served.client().await;
    client.write_all(request("POST /v1/messages", HELLO).as_bytes()).await.unwrap();
    let (endpoint, _) = listener.accept().await.unwrap();
    endpoint.readable().await.unwrap();
    drop(client);
    let seen = ground.diary.all(1).await;
    let expected = 1000 + u64::try_from(HELLO.len()).unwrap() / 4;
    assert_eq!((seen[0].tokens, seen[0].is_estimated, seen[0].status), (expected, true, None));
    assert_eq!(seen[0].end, ModelEnd::Failed);
    // No endpoint answers there any more, so nothing is charged.
    drop((listener, endpoint));
    assert_eq!(served.message(HELLO).await, (502, Some("api_error".to_owned())));
    let seen = ground.diary.all(2).await;
    assert_eq!((seen[1].tokens, seen[1].end), (0, ModelEnd::Failed));
}

#[tokio::test]
async fn large_requests_of_one_sandbox_are_bounded() {
    let ground = ground(0).await;
    let served = ground.serve(ground.spec()).await;
    let part = "x".repeat(1 << 20);
    let head = |length: usize| {
        format!("POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n")
    };
    // Two requests of maximum size, without their ends.
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = served.client().await;
        client.write_all(head(BODY_BYTES_MAX).as_bytes()).await.unwrap();
        for _ in 0..BODY_BYTES_MAX / part.len() - 1 {
            client.write_all(part.as_bytes()).await.unwrap();
        }
        client.write_all(&part.as_bytes()[1..]).await.unwrap();
        held.push(client);
    }
    let started = clock::now();
    while ground.doors.0.room.held() < 2 * (BODY_BYTES_MAX - 1) {
        assert!(clock::now() - started < Duration::from_secs(20));
        tokio::task::yield_now().await;
    }
    let refused = (529, Some("overloaded_error".to_owned()));
    assert_eq!(served.message(&format!(r#"{{"model":"small","x":"{part}"}}"#)).await, refused);
    // Another sandbox is not affected.
    let other = ground.serve(ModelDoorSpec { holder: "ses_2".into(), ..ground.spec() }).await;
    assert_eq!(other.message(HELLO).await.0, 200);
    // Their held bytes are released.
    drop(held);
    ground.diary.all(4).await;
    assert_eq!(served.message(HELLO).await.0, 200);
    let large = ask(&mut served.client().await, &head(BODY_BYTES_MAX + 1), ERROR_END).await;
    assert!(large.starts_with("HTTP/1.1 413 "), "{large}");
}

#[tokio::test]
async fn dropping_a_connection_ends_its_request() {
    let mut ground = ground(0).await;
    let door = ground.doors.open(ground.spec());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let serving = tokio::spawn(door.serve(listener.accept().await.unwrap().0));
    ground.model.go.send("go").unwrap();
    ask(&mut client, &request("POST /v1/messages", STREAM), "output_tokens").await;
    serving.abort();
    ground.model.left.recv().await.unwrap();
    assert_eq!(read_until(&mut client, "never").await, "");
    assert!(ground.diary.all(1).await[0].is_estimated);
}

#[tokio::test]
async fn figures_are_of_all_doors() {
    let ground = ground(0).await;
    let mut registry = Registry::default();
    ground.doors.register(&mut registry);
    let served = ground.serve(ground.spec()).await;
    served.message(HELLO).await;
    ground.diary.all(1).await;
    let text = MetricsRegistry::new(registry).render().unwrap();
    assert!(text.contains("cove_gateway_model_output_tokens_total 3"), "{text}");
    let wrong = ModelDoors::new("ftp://a", None, TlsRoots::Machine, 0).unwrap_err();
    assert!(matches!(wrong, ModelDoorsError::Url(_)));
    let wrong = ModelDoors::new("http://a", Some("a\nb"), TlsRoots::Machine, 0).unwrap_err();
    assert_eq!(wrong, ModelDoorsError::Key);
}

#[tokio::test]
async fn a_door_is_closed_after_the_lease() {
    let mut ground = ground(0).await;
    let lease = ServingLease::of(Duration::from_secs(3600));
    ground.doors = ground.doors.fenced_by(EffectFence::new(lease.clone()));
    let served = ground.serve(ground.spec()).await;
    let asking = r#"{"model":"m","max_tokens":1}"#;
    let refused = served.answer("POST /v1/messages", asking).await;
    assert!(
        refused.starts_with("HTTP/1.1 503 ") && refused.contains("lost its lease"),
        "{refused}"
    );
    let seen = ground.diary.all(1).await;
    assert_eq!((seen[0].end, seen[0].status, seen[0].tokens), (ModelEnd::Refused, Some(503), 0));
    assert!(ground.model.asked.try_recv().is_err());
    lease.renewed(clock::boot_ms());
    let answered = served.answer("POST /v1/messages", asking).await;
    assert!(answered.starts_with("HTTP/1.1 200 OK"), "{answered}");
    assert!(ground.model.asked.recv().await.is_some());
}
