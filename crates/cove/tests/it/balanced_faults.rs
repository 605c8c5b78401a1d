//! Three nodes behind a balancer, with components that are killed, slow or cut off while a client
//! works: acknowledged operations persist, no operation is done twice, and the cluster recovers by
//! itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    BalancedPort, Client, Cutter, Network, PgAddress, PgClient, Postgres, Request, Response,
    ServerCluster, until,
};

use crate::asynchronous::{post, post_request};
use crate::sessions_support::{Sessions, config, ok, probe};
use crate::support::{COVE, beside_others};

/// Time within which a retried request must succeed, during any restart.
const INSIST_MAX: Duration = Duration::from_secs(120);
/// Warnings and errors of nodes during faults.
const EXPECTED: [&str; 13] = [
    "nothing listens at its address",
    "failed to tell that a node is lost",
    "the lease of this server is over",
    "could not be taken over",
    "the server does not answer tenant=",
    "the store cannot be reached",
    "lost the store",
    "reach the store",
    "failed to pass a request on",
    "the queue cannot be reached",
    "Redis did not answer",
    "a session is another server's now",
    "its worker was lost; it is queued again",
];
/// Rounds of the client while a component is slow, or after it was killed.
const ROUNDS: usize = 2;

/// Client that does each kind of operation in every round, and retries until it gets a response.
struct InsistentClient {
    http: Client,
    bouncer: PgAddress,
    session: String,
}

/// Returns whether a response asks for a retry.
fn says_come_again(answer: &Response) -> bool {
    matches!(answer.status, 502..=504)
}

fn insist(client: &Client, request: &Request) -> Response {
    until("an answer", INSIST_MAX, || match client.try_send(request) {
        Ok(answer) if says_come_again(&answer) => Err(answer.text()),
        Ok(answer) => Ok(answer),
        Err(error) => Err(error.to_string()),
    })
}

impl InsistentClient {
    fn send(&self, request: &Request) -> Response {
        insist(&self.http, request)
    }

    /// Runs a command in the session, which is stopped after its node was killed.
    fn exec(&self, command: &str) -> String {
        let session = |verb: &str| format!("/v1/sessions/{}/{verb}", self.session);
        let run = post_request(&session("exec"), &json!({"command": command}));
        until("the command to have run", INSIST_MAX, || {
            let answer = self.send(&run);
            if answer.status == 409 {
                let resumed = self.send(&post_request(&session("resume"), &json!({})));
                return Err(format!("{}; {}", answer.text(), resumed.text()));
            }
            Ok(ok(&answer)["stdout"].as_str().unwrap().to_owned())
        })
    }

    /// Does all operations with this number, which may have been done before.
    fn round(&self, number: usize) {
        let command = format!("grep -qx {number} kept || echo {number} >> kept; tail -n 1 kept");
        assert_eq!(self.exec(&command), format!("{number}\n"));

        let job = json!({"argv": ["echo", number.to_string()]});
        let submit = post_request("/v1/executions", &job);
        let submit = submit.header("idempotency-key", &format!("round-{number}"));
        let id = ok(&self.send(&submit))["id"].as_str().unwrap().to_owned();
        let record = until("the execution to have ended", INSIST_MAX, || {
            let record = self.send(&Request::new("GET", &format!("/v1/executions/{id}"))).json();
            if record["state"] == "finished" { Ok(record) } else { Err(record.to_string()) }
        });
        assert_eq!(record["result"]["stdout"], format!("{number}\n"), "{record}");

        let namespace = json!({"namespace": [format!("n{number}")]});
        let made = self.send(&post_request("/catalog/v1/main/namespaces", &namespace));
        assert!(matches!(made.status, 200 | 409), "{}", made.text());

        until("the row to be written", INSIST_MAX, || {
            let parameters = [("user", "insistent"), ("database", "shop")];
            let login = PgClient::login(&self.bouncer, &parameters, "pw");
            let mut client = login.map_err(|error| error.to_string())?;
            let sql = format!("INSERT INTO rounds VALUES ({number}) ON CONFLICT DO NOTHING");
            let answer = client.query(&sql).map_err(|error| error.to_string())?;
            answer.error().map_or(Ok(()), |error| Err(error.to_string()))
        });
    }

    /// Checks that the results of this many rounds exist, each once.
    fn check(&self, rounds: usize) {
        let all: String = (0..rounds).map(|number| format!("{number}\n")).collect();
        assert_eq!(self.exec("sort -n kept"), all);
        let listed = ok(&self.send(&Request::new("GET", "/catalog/v1/main/namespaces")));
        let listed = listed["namespaces"].as_array().unwrap().iter();
        let listed: BTreeSet<&str> = listed.filter_map(|name| name[0].as_str()).collect();
        for number in 0..rounds {
            assert!(listed.contains(format!("n{number}").as_str()), "{listed:?}");
        }
        let list = ok(&self.send(&Request::new("GET", "/v1/executions?limit=200")));
        assert_eq!(list["executions"].as_array().map(Vec::len), Some(rounds), "{list}");
    }
}

/// Cluster in which nodes may log warnings, with a session and a tenant of the bouncer.
struct TroubledCluster {
    cluster: ServerCluster,
    client: InsistentClient,
    /// Database of the tenant, and the proxy between it and the nodes.
    backend: Postgres,
    _way: Cutter,
}

fn start() -> TroubledCluster {
    let (backend, network) = (Postgres::start(), Network::start(3));
    backend
        .sql("CREATE ROLE insistent LOGIN PASSWORD 'pw'; CREATE TABLE rounds (n int PRIMARY KEY)");
    backend.sql("GRANT SELECT, INSERT ON rounds TO insistent");
    let way = network.expose(backend.tcp());
    let mut cluster =
        ServerCluster::start(COVE, network, Arc::new(Postgres::start()), &config("ready = 0"));
    for node in &mut cluster.nodes {
        EXPECTED.iter().for_each(|text| node.expect_log(text));
    }
    let http = cluster.client(BalancedPort::Requests);
    let sessions = Sessions { client: http.clone() };
    sessions.deploy(&probe("probe"));
    let session = sessions.create(&json!({"agent": "probe"}));
    let tenant = json!({
        "name": "shop", "server": way.address(), "database": "postgres",
        "users": [{"name": "insistent", "password": "pw"}],
    });
    assert_eq!(post(&http, "/v1/tenants", &tenant).status, 201);
    let bouncer = PgAddress::Tcp(cluster.port(BalancedPort::Postgres));
    let client = InsistentClient { http, bouncer, session };
    TroubledCluster { cluster, client, backend, _way: way }
}

#[test]
fn each_part_may_be_killed_or_slow_while_a_client_works() {
    let _guard = beside_others();
    let TroubledCluster { mut cluster, client, backend, _way } = start();
    let (done, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                client.round(done.load(Ordering::Relaxed));
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let some_rounds = |what: &str| {
            let wanted = done.load(Ordering::Relaxed) + ROUNDS;
            until(what, INSIST_MAX, || match done.load(Ordering::Relaxed) {
                // Joining the thread reports its error.
                _ if worker.is_finished() => panic!("the client has given up"),
                done if done >= wanted => Ok(()),
                done => Err(format!("{done} of {wanted} rounds")),
            });
        };
        some_rounds("the client to work");
        for index in 0..3 {
            cluster.nodes[index].restart();
            some_rounds("work beside a node that was killed");
        }
        cluster.balancer.restart();
        some_rounds("work behind another balancer");
        cluster.queue.restart();
        some_rounds("work with another Redis");
        cluster.database.kill_connections();
        cluster.database.wait_recovered();
        some_rounds("work on a store that has recovered");
        let [to_database, _, to_objects] = &cluster.ways;
        to_database.delay(Duration::from_millis(20));
        some_rounds("work on a slow store");
        to_database.delay(Duration::ZERO);
        to_objects.silence(true);
        some_rounds("work while there are no objects to be had");
        to_objects.silence(false);
        ends.store(true, Ordering::Relaxed);
    });
    let rounds = done.load(Ordering::Relaxed);
    client.check(rounds);
    assert_eq!(backend.sql("SELECT count(*) FROM rounds"), rounds.to_string());
    let nodes: Value = ok(&client.send(&Request::new("GET", "/v1/nodes")));
    let nodes = nodes["nodes"].as_array().unwrap();
    assert!(nodes.iter().all(|node| node["state"] == "active") && nodes.len() == 3, "{nodes:?}");
}

/// The cable of the session's node is unplugged: packets are lost without an error.
#[test]
fn a_node_that_is_cut_off_is_given_up_and_gives_up_what_it_had() {
    let _guard = beside_others();
    let TroubledCluster { cluster, client, backend: _backend, _way } = start();
    client.round(0);
    // The state in the object store is that with which another node continues.
    for verb in ["stop", "resume"] {
        let target = format!("/v1/sessions/{}/{verb}", client.session);
        ok(&client.send(&post_request(&target, &json!({}))));
    }
    let has_sandbox = |index: usize| {
        let target = Request::new("GET", "/v1/sandboxes?here=true");
        let counts = ok(&insist(&cluster.nodes[index].client(), &target));
        counts["running"] != 0 || counts["waiting"] != 0
    };
    let owner = (0..3).find(|index| has_sandbox(*index)).expect("a node has the session");
    let others: Vec<Client> =
        (0..3).filter(|index| *index != owner).map(|index| cluster.nodes[index].client()).collect();
    cluster.network.connect(owner, false);

    // A read returns the store's state, and a request that needs the node asks for a retry.
    let target = format!("/v1/sessions/{}", client.session);
    assert_eq!(ok(&others[0].get(&target))["id"], client.session);
    let refused = post(&others[1], &format!("{target}/exec"), &json!({"command": "true"}));
    assert!(says_come_again(&refused), "{}", refused.text());
    // All other operations continue, and those on the session after its node's lease has expired.
    client.round(1);
    client.check(2);
    cluster.network.connect(owner, true);
    until("the node to have given it up", INSIST_MAX, || match has_sandbox(owner) {
        true => Err("it has the session still".to_owned()),
        false => Ok(()),
    });
    for node in &cluster.nodes {
        // The node that was cut off may not see the others yet.
        let command = json!({"command": "sort -n kept"});
        let kept = insist(&node.client(), &post_request(&format!("{target}/exec"), &command));
        assert_eq!(ok(&kept)["stdout"], "0\n1\n");
    }
}
