//! Rows of nodes, on SQLite and on PostgreSQL.

use testkit::{Postgres, Scratch};

use super::*;
use crate::store::{StoreConfig, StoreUrl};
use crate::telemetry::Registry;

const NOW: u64 = 1_800_000_000_000;

async fn check(claim: impl AsyncFn(&NodeRegistry)) {
    let scratch = Scratch::new();
    let server = tokio::task::spawn_blocking(Postgres::shared).await.unwrap();
    let sqlite = StoreUrl::Sqlite(scratch.path().join("db"));
    for url in [sqlite, StoreUrl::Postgres(server.database())] {
        let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
        claim(&NodeRegistry::open(&store).await.unwrap()).await;
    }
}

/// Lease of a node whose row does not say how long it is.
fn lease_ms() -> u64 {
    NodeLoad::default().lease_ms()
}

fn run(id: &str, incarnation: &str, home: &str) -> NodeIdentity {
    let [id, incarnation, home] = [id, incarnation, home].map(str::to_owned);
    NodeIdentity { id, incarnation, home }
}

/// A copied directory has its server's name, and so has a server that was suspended while its copy
/// started.
#[tokio::test]
async fn one_run_of_a_server_speaks_for_it() {
    check(async |nodes| {
        let register = async |run: &NodeIdentity, now_ms| {
            nodes.register(run, &NodeDescription::default(), true, now_ms).await.unwrap()
        };
        let renew = async |run: &NodeIdentity, now_ms| {
            let renewed = nodes.renew(run, NodeState::Active, NodeLoad::default(), now_ms).await;
            renewed.unwrap().is_some()
        };
        let (first, again) = (run("here", "1", "a"), run("here", "2", "a"));
        let copy = run("here", "3", "b");
        assert_eq!(register(&first, NOW).await, NodeRegistration::Done);
        assert!(renew(&first, NOW + 1).await);
        // A restart in the same directory, which has one server at a time: the run before has
        // ended.
        assert_eq!(register(&again, NOW + 2).await, NodeRegistration::Done);
        assert!(!renew(&first, NOW + 3).await);
        nodes.leave(&first).await.unwrap();
        assert!(renew(&again, NOW + 4).await);
        // In another directory it may be alive.
        let seen = NodeRegistration::SeenElsewhere(NOW + 4);
        assert_eq!(register(&copy, NOW + 3 + lease_ms()).await, seen);
        assert!(!renew(&copy, NOW + 5).await);
        // Not renewed for a whole lease. A run that returns then is rejected.
        assert_eq!(register(&copy, NOW + 4 + lease_ms()).await, NodeRegistration::Done);
        assert!(!renew(&again, NOW + 5 + lease_ms()).await);
        // A store that is not shared has no other servers, and a stopped server has ended.
        let moved = run("here", "4", "c");
        let description = NodeDescription::default();
        let alone = nodes.register(&moved, &description, false, NOW + 5 + lease_ms()).await;
        assert_eq!(alone.unwrap(), NodeRegistration::Done);
        nodes.leave(&moved).await.unwrap();
        let back = register(&run("here", "5", "d"), NOW + 6 + lease_ms()).await;
        assert_eq!(back, NodeRegistration::Done);
    })
    .await;
}

/// A node that finds nothing left of another records it; a node wrongly recorded so is notified.
#[tokio::test]
async fn a_node_of_which_nothing_is_left_is_not_waited_for() {
    check(async |nodes| {
        let (first, again) = (run("here", "1", "a"), run("here", "2", "b"));
        let description = NodeDescription::default();
        let load = NodeLoad { lease_ms: 1500, ..NodeLoad::default() };
        nodes.register(&first, &description, true, NOW).await.unwrap();
        let renew = async |state| nodes.renew(&first, state, load, NOW).await.unwrap().unwrap();
        // Its row says how long its lease is.
        let renewed = renew(NodeState::Active).await;
        assert!(!renewed.was_expired && renewed.nodes[0].lease_ms() == 1500);
        assert!(renewed.nodes[0].is_alive(NOW + 1499) && !renewed.nodes[0].is_alive(NOW + 1500));
        // A different run than the one that was looked for exists.
        assert!(!nodes.expire("here", "2").await.unwrap());
        assert!(nodes.expire("here", "1").await.unwrap());
        assert!(!nodes.expire("here", "1").await.unwrap(), "once is enough");
        let lost = &nodes.list().await.unwrap()[0];
        assert!(!lost.is_alive(NOW) && lost.load.is_lost);
        // The node is still alive, and renews its row.
        let renewed = renew(NodeState::Active).await;
        assert!(renewed.was_expired && renewed.nodes[0].is_alive(NOW));
        assert!(!renew(NodeState::Draining).await.was_expired);
        // A stopping node closes its listener before it has stored everything.
        assert!(!nodes.expire("here", "1").await.unwrap());
        renew(NodeState::Active).await;
        assert!(nodes.expire("here", "1").await.unwrap());
        // It need not be waited for, wherever it returns.
        let back = nodes.register(&again, &description, true, NOW).await.unwrap();
        assert_eq!(back, NodeRegistration::Done);
        assert_eq!(nodes.renew(&first, NodeState::Active, load, NOW).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_node_says_what_it_is_and_how_busy() {
    check(async |nodes| {
        let description = NodeDescription {
            address: Some("10.0.0.1:4100".to_owned()),
            peer_address: Some("10.0.0.1:4190".to_owned()),
            roles: vec!["session".to_owned(), "front".to_owned()],
            zone: "a".to_owned(),
            version: "0.1.0".to_owned(),
        };
        let (one, two) = (run("one", "1", "a"), run("two", "1", "b"));
        nodes.register(&one, &description, true, NOW).await.unwrap();
        nodes.register(&two, &NodeDescription::default(), true, NOW + 1).await.unwrap();
        let load = NodeLoad { sandboxes: 3, sandboxes_max: 8, ..NodeLoad::default() };
        let renewed =
            nodes.renew(&one, NodeState::Active, load, NOW + 9).await.unwrap().unwrap().nodes;
        let expected = NodeRecord {
            id: "one".to_owned(),
            incarnation: "1".to_owned(),
            started_ms: NOW,
            seen_ms: NOW + 9,
            state: NodeState::Active,
            drain_wanted: false,
            description,
            load,
        };
        assert_eq!(renewed[0], expected);
        assert_eq!((renewed[1].state, renewed[1].load), (NodeState::Joining, NodeLoad::default()));
        assert_eq!(nodes.list().await.unwrap(), renewed);

        // A node with a requested drain drains after a restart, too.
        assert!(nodes.ask_to_drain("two", true).await.unwrap());
        assert!(!nodes.ask_to_drain("three", true).await.unwrap());
        nodes.register(&two, &NodeDescription::default(), true, NOW + 2).await.unwrap();
        assert!(nodes.list().await.unwrap()[1].drain_wanted);
        assert!(nodes.ask_to_drain("two", false).await.unwrap());
        assert!(!nodes.list().await.unwrap()[1].drain_wanted);

        let alive = async |id: &'static str, now_ms| {
            let alive =
                nodes.store.read("alive", move |it| is_alive(it, id, now_ms)).await.unwrap();
            let record = nodes.list().await.unwrap().into_iter().find(|node| node.id == id);
            assert_eq!(record.is_some_and(|node| node.is_alive(now_ms)), alive, "{id}");
            alive
        };
        assert!(alive("one", NOW + 8 + lease_ms()).await);
        assert!(!alive("one", NOW + 9 + lease_ms()).await);
        assert!(!alive("three", NOW).await);
        nodes.leave(&two).await.unwrap();
        assert!(!alive("two", NOW + 3).await);

        // Rows of nodes that never returned are removed eventually.
        let later = NOW + FORGOTTEN_AFTER_MS + 10;
        nodes.register(&two, &NodeDescription::default(), true, later).await.unwrap();
        let left: Vec<_> = nodes.list().await.unwrap().into_iter().map(|node| node.id).collect();
        assert_eq!(left, ["two"]);
    })
    .await;
}

/// Rows of an older or newer version have fewer or more fields.
#[test]
fn a_load_of_another_version_is_read() {
    let read = |text: &str| serde_json::from_str::<NodeLoad>(text).unwrap();
    assert_eq!(read("{}"), NodeLoad::default());
    let known = NodeLoad { executions: 2, ..NodeLoad::default() };
    assert_eq!(read(r#"{"executions":2,"gpus":[1]}"#), known);
}

/// Numbers that are the same in each run of a seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

async fn sqlite(scratch: &Scratch, name: &str) -> NodeRegistry {
    let url = StoreUrl::Sqlite(scratch.path().join(name));
    let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
    NodeRegistry::open(&store).await.unwrap()
}

/// A run of the simulation, and the time until which it may believe that it is its node's current
/// one.
struct SimulatedRun {
    identity: NodeIdentity,
    until_ms: u64,
}

/// Nodes start, stop, are suspended and copied; time passes at random. No two runs from different
/// directories are ever current for one name at the same time.
#[tokio::test]
async fn no_two_runs_speak_for_a_name_whatever_happens() {
    const NAMES: u64 = 12;
    let scratch = Scratch::new();
    for seed in 0..4 {
        let nodes = sqlite(&scratch, &seed.to_string()).await;
        let (mut draws, mut now_ms) = (Draws(seed), NOW);
        let mut runs: Vec<SimulatedRun> = Vec::new();
        let mut refused = 0;
        for step in 0..1_500_u64 {
            now_ms += [1, 700, 1_000, 9_000][usize::try_from(draws.below(4)).unwrap()];
            let name = format!("srv_{}", draws.below(NAMES));
            let home = format!("home {}", draws.below(2));
            let place =
                runs.iter().position(|it| it.identity.id == name && it.identity.home == home);
            let is_valid = match (draws.below(10), place) {
                // A directory has one server at a time: its previous server has ended.
                (0, _) | (_, None) => {
                    if let Some(place) = place {
                        runs.swap_remove(place);
                    }
                    let identity = run(&name, &format!("run {step}"), &home);
                    let description = NodeDescription::default();
                    let done = nodes.register(&identity, &description, true, now_ms).await.unwrap();
                    let is_done = done == NodeRegistration::Done;
                    runs.extend(is_done.then_some(SimulatedRun { identity, until_ms: 0 }));
                    refused += u32::from(!is_done);
                    is_done
                }
                (1, Some(place)) => {
                    nodes.leave(&runs.swap_remove(place).identity).await.unwrap();
                    false
                }
                // It is suspended.
                (2..5, Some(_)) => false,
                (_, Some(place)) => {
                    let identity = runs[place].identity.clone();
                    let load = NodeLoad::default();
                    let renewed =
                        nodes.renew(&identity, NodeState::Active, load, now_ms).await.unwrap();
                    if renewed.is_none() {
                        runs.swap_remove(place);
                    }
                    renewed.is_some()
                }
            };
            if !is_valid {
                continue;
            }
            let speaks = |it: &&mut SimulatedRun| it.identity.id == name;
            for other in runs.iter_mut().filter(speaks) {
                if other.identity.home == home {
                    other.until_ms = now_ms + lease_ms();
                } else {
                    let until_ms = other.until_ms;
                    assert!(until_ms <= now_ms, "seed {seed}, step {step}: two speak for {name}");
                }
            }
        }
        assert!(refused > 20, "hardly a copy was refused: {refused}");
    }
}

/// A thousand nodes are known to each other, and none of them is once a lease has passed.
#[tokio::test]
async fn a_thousand_nodes_know_each_other() {
    let scratch = Scratch::new();
    let nodes = sqlite(&scratch, "db").await;
    let all: Vec<_> = (0..1000).map(|it| run(&format!("srv_{it}"), "1", &it.to_string())).collect();
    let description = NodeDescription::default();
    let registered = all.iter().map(|it| nodes.register(it, &description, true, NOW));
    for registered in futures_util::future::join_all(registered).await {
        assert_eq!(registered.unwrap(), NodeRegistration::Done);
    }
    let renewed = nodes.renew(&all[0], NodeState::Active, NodeLoad::default(), NOW + lease_ms());
    let seen = renewed.await.unwrap().unwrap().nodes;
    assert_eq!(seen.len(), 1000);
    assert!(seen.iter().all(|node| node.is_alive(NOW + lease_ms() - 1)));
    let alive = seen.iter().filter(|node| node.is_alive(NOW + lease_ms()));
    assert_eq!(alive.map(|node| node.id.as_str()).collect::<Vec<_>>(), ["srv_0"]);
}
