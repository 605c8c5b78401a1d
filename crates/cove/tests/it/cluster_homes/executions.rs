//! Executions of a token with a small limit, which run at few of several nodes: requests to the
//! other nodes are forwarded there, and jobs are claimed there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};
use testkit::{Client, Postgres, Request, Response, Scratch, Server, until, wait_for_each_other};

use super::SamplerEnd;
use crate::asynchronous::{ended, post, submit_all};
use crate::cluster::{config_with, drain, most_at_once, run_at, span, timed};
use crate::support::{COVE, SOON, beside_others, held, run, shell, wait_for_sleep};

/// Rounds of each caller.
const ROUNDS: usize = 4;

/// Three nodes, one of which is the home of a token that may run one execution.
struct HomeTrio {
    servers: [Server; 3],
    /// Clients of the nodes, with that token.
    callers: [Client; 3],
    home: usize,
    _objects: Scratch,
    _database: Arc<Postgres>,
}

impl HomeTrio {
    fn start(limits: &str) -> HomeTrio {
        let (database, objects) = (Postgres::shared(), Scratch::new());
        let settings = format!(
            "objects.url = \"{}\"\ncluster.limits = \"{limits}\"\ncluster.lease_ms = 3000\n\
             executions.running_max = 4\nexecutions.running_max_per_tenant = 1\n",
            objects.path().display()
        );
        let config = config_with(&database.database(), &settings, "ready = 0");
        let one = Server::start_with(COVE, &[], Some(&config));
        let (two, three) = (one.start_beside(&config), one.start_beside(&config));
        let mut servers = [one, two, three];
        for server in &mut servers {
            // On a busy machine a start may take longer than a lease.
            server.expect_log("the lease of this server is over");
            server.expect_log("this server has not reached the store for so long");
        }
        wait_for_each_other(&servers.each_ref());
        // Without another token there is no limit.
        let caller = servers[0].other_client("caller", &[]);
        let callers = servers.each_ref().map(|server| caller.at(server.client().address()));
        assert!(callers.iter().all(|caller| caller.get("/v1/languages").status == 200));
        run(&callers[0], &shell("true"));
        let home = servers.iter().position(|server| executed(server) > 0).unwrap();
        HomeTrio { servers, callers, home, _objects: objects, _database: database }
    }

    /// Returns the nodes that are not the home.
    fn fronts(&self) -> [usize; 2] {
        [1, 2].map(|next| (self.home + next) % 3)
    }

    /// Waits until these nodes serve their callers, all at one of them.
    fn wait_for_one_home(&self, nodes: &[usize]) {
        until("one node to run what comes to these", SOON, || {
            let before = self.servers_of(nodes).map(executed).collect::<Vec<_>>();
            for at in nodes {
                let answer = self.callers[*at].run(&shell("echo served"));
                if !is_served(&answer) {
                    return Err(answer.text());
                }
            }
            let after = self.servers_of(nodes).map(executed).collect::<Vec<_>>();
            let has_run = |(before, after): &(u64, u64)| before < after;
            match before.iter().copied().zip(after.iter().copied()).filter(has_run).count() {
                1 => Ok(()),
                _ => Err(format!("{before:?} {after:?}")),
            }
        });
    }

    fn servers_of<'a>(&'a self, nodes: &'a [usize]) -> impl Iterator<Item = &'a Server> {
        nodes.iter().map(|at| &self.servers[*at])
    }
}

/// Returns whether an execution ran to its end. One whose node was lost, or that found none, may be
/// retried.
fn is_served(response: &Response) -> bool {
    match response.status {
        200 => {
            assert_eq!(response.json()["stdout"], "served\n", "{}", response.text());
            true
        }
        502 | 503 => false,
        _ => panic!("{} {}", response.status, response.text()),
    }
}

/// Returns the sum of the metrics with this name on one node.
fn figure(server: &Server, name: &str) -> u64 {
    let text = server.client().get("/metrics").text();
    let figures = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.rsplit_once(' ')?.1.parse::<u64>().ok()
    });
    figures.sum()
}

/// Returns the number of executions that ended at a node.
fn executed(server: &Server) -> u64 {
    figure(server, "cove_executions_total")
}

/// Returns the number of requests that a node has served at a path, including forwarded ones.
fn answered(server: &Server, path: &str) -> u64 {
    let text = server.client().get("/metrics").text();
    let route = format!("route=\"{path}\"");
    let counts = text.lines().filter_map(|line| {
        let rest = line.strip_prefix("cove_http_request_duration_seconds_count{")?;
        rest.contains(&route).then(|| rest.rsplit_once(' ')?.1.parse::<u64>().ok())?
    });
    counts.sum()
}

/// Returns a program in go-judge's format.
fn command(script: &str) -> Value {
    let files = json!([{"content": ""}, {"name": "stdout", "max": 1024}]);
    json!({"args": ["/bin/sh", "-c", script], "env": ["PATH=/usr/bin:/bin"], "files": files,
           "cpuLimit": 5_000_000_000_u64, "clockLimit": 10_000_000_000_u64,
           "memoryLimit": 128 << 20, "procLimit": 50})
}

/// Requests to any node run at the home, one after the other.
#[test]
fn executions_of_all_nodes_run_at_the_home_of_a_small_limit() {
    let _guard = beside_others();
    let trio = HomeTrio::start("strict");
    let (home, fronts) = (&trio.servers[trio.home], trio.fronts().map(|at| &trio.servers[at]));
    let is_over = AtomicBool::new(false);
    let (spans, most) = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(figure(home, "cove_executions_running"));
                for front in fronts {
                    for name in ["cove_executions_running", "cove_executions_waiting"] {
                        assert_eq!(figure(front, name), 0, "{name} at a node that is no home");
                    }
                }
            }
            most
        });
        let end = SamplerEnd(&is_over);
        let jobs: Vec<String> = trio
            .callers
            .iter()
            .flat_map(|caller| submit_all(caller, &[timed("0.1"), timed("0.1")]))
            .collect();
        let callers: Vec<Client> = trio.callers.iter().cycle().take(6).cloned().collect();
        let mut spans = run_at(&callers, ROUNDS, "0.05");
        let record = |id: &String| span(&ended(&trio.callers[0], id)["result"]["stdout"]);
        spans.extend(jobs.iter().map(record));
        drop(end);
        (spans, sampler.join().unwrap())
    });
    assert_eq!((most_at_once(&spans), most), (1, 1), "{spans:?}");
    assert_eq!(spans.len(), 6 * ROUNDS + 6);
    assert_eq!(executed(home), 1 + spans.len() as u64);
    assert_eq!(fronts.map(executed), [0, 0]);
}

/// Requests are forwarded to the home unchanged, and so are the responses.
#[test]
fn each_interface_is_served_at_the_home_of_a_small_limit() {
    let _guard = beside_others();
    let trio = HomeTrio::start("soft");
    let (home, fronts) = (&trio.servers[trio.home], trio.fronts());
    let mut expected = executed(home);
    for at in fronts {
        let caller = &trio.callers[at];
        // Longer than the part that is kept for a retry.
        let long = "x".repeat(300_000);
        let files = json!([{"name": "long", "content": long}]);
        let request = json!({"argv": ["/bin/sh", "-c", "wc -c <long"], "files": files});
        assert_eq!(run(caller, &request)["stdout"], "300000\n");

        let body = json!({"language": "bash", "version": "*", "files": [{"content": "echo pist"}]});
        let answer = post(caller, "/compat/piston/api/v2/execute", &body);
        assert_eq!(answer.json()["run"]["stdout"], "pist\n", "{}", answer.text());
        let body = json!({"language": "bash", "code": "echo fusion"});
        let answer = post(caller, "/compat/sandbox-fusion/run_code", &body);
        assert_eq!(answer.json()["run_result"]["stdout"], "fusion\n", "{}", answer.text());
        // A submission is a job.
        let body = json!({"language_id": 46, "source_code": "echo judged"});
        let answer =
            post(caller, "/compat/judge0/submissions?base64_encoded=false&wait=true", &body);
        assert_eq!(answer.json()["stdout"], "judged\n", "{}", answer.text());
        expected += 4;

        let body = json!({"cmd": [command("echo judge")]});
        let answer = post(caller, "/compat/go-judge/run", &body);
        assert_eq!(answer.json()[0]["files"]["stdout"], "judge\n", "{}", answer.text());
        let mut socket = caller.websocket("/compat/go-judge/ws").expect("a WebSocket");
        for number in 0..3 {
            let cmd = command(&format!("echo {number}"));
            socket.send(&json!({"requestId": "x", "cmd": [cmd]}));
            let answer = socket.json();
            assert_eq!(answer["results"][0]["files"]["stdout"], format!("{number}\n"), "{answer}");
        }

        // Errors have the same text.
        let refused = caller.run(&json!({"language": "none-such", "source": "x"}));
        let at_home = trio.callers[trio.home].run(&json!({"language": "none-such", "source": "x"}));
        assert_eq!((refused.status, refused.text()), (at_home.status, at_home.text()));
        assert!((400..500).contains(&refused.status), "{}", refused.text());
        let stranger = Client::new(trio.servers[at].client().address(), Some("cove_x".to_owned()));
        assert_eq!(stranger.run(&shell("true")).status, 401);
    }
    assert_eq!(executed(home), expected);
    assert_eq!(fronts.map(|at| executed(&trio.servers[at])), [0, 0]);
    for path in ["/compat/go-judge/run", "/compat/go-judge/ws"] {
        assert_eq!(answered(home, path), 2, "{path}");
    }
    // Another token has other homes, and an operator's token is treated like others.
    assert_eq!(run(&trio.servers[fronts[0]].client(), &shell("echo own"))["stdout"], "own\n");
}

/// A home is killed during an execution: another node becomes the home.
#[test]
fn executions_whose_home_is_killed_run_at_another_node() {
    let _guard = beside_others();
    let mut trio = HomeTrio::start("strict");
    let fronts = trio.fronts();
    for at in fronts {
        trio.servers[at].expect_log("nothing listens at its address");
        trio.servers[at].expect_log("failed to pass a request on");
    }
    let lost = thread::scope(|scope| {
        let caller = trio.callers[fronts[0]].clone();
        let running = scope.spawn(move || caller.run(&held("sleep 98.4217")));
        wait_for_sleep("98.4217");
        trio.servers[trio.home].signal("KILL");
        running.join().unwrap()
    });
    assert_eq!((lost.status, &lost.json()["error"]["code"]), (502, &json!("node_lost")));
    trio.wait_for_one_home(&fronts);
    let jobs = submit_all(&trio.callers[fronts[1]], &[timed("0.1"), timed("0.1")]);
    let mut spans: Vec<_> = jobs
        .iter()
        .map(|id| span(&ended(&trio.callers[fronts[0]], id)["result"]["stdout"]))
        .collect();
    let callers = fronts.map(|at| trio.callers[at].clone());
    spans.extend(run_at(&callers, ROUNDS, "0.05"));
    assert_eq!(most_at_once(&spans), 1, "{spans:?}");
    let home = trio.home;
    trio.servers[home].wait(SOON);
}

/// A home is stopped during an execution: it loses its lease, and later returns.
#[test]
fn executions_whose_home_stands_still_run_at_another_node() {
    let _guard = beside_others();
    let mut trio = HomeTrio::start("soft");
    let fronts = trio.fronts();
    for server in &mut trio.servers {
        server.expect_log("failed to pass a request on");
    }
    let lost = thread::scope(|scope| {
        let caller = trio.callers[fronts[0]].clone();
        let running = scope.spawn(move || caller.run(&held("sleep 98.4218")));
        wait_for_sleep("98.4218");
        trio.servers[trio.home].signal("STOP");
        running.join().unwrap()
    });
    assert_eq!((lost.status, &lost.json()["error"]["code"]), (502, &json!("node_lost")));
    trio.wait_for_one_home(&fronts);
    trio.servers[trio.home].signal("CONT");
    trio.wait_for_one_home(&[0, 1, 2]);
    let before = executed(&trio.servers[trio.home]);
    for at in fronts {
        run(&trio.callers[at], &shell("true"));
    }
    assert_eq!(executed(&trio.servers[trio.home]), before + 2, "it is the home again");
}

/// A draining node is not a home, and forwards requests to the current one.
#[test]
fn executions_of_a_home_that_drains_run_at_another_node() {
    let _guard = beside_others();
    let trio = HomeTrio::start("strict");
    let home = &trio.servers[trio.home];
    drain(home, "drain");
    // The nodes notice it one after the other.
    until("another node to be the home", SOON, || {
        let before = executed(home);
        for caller in &trio.callers {
            let answer = caller.run(&shell("echo served"));
            if !is_served(&answer) {
                return Err(answer.text());
            }
        }
        let here = executed(home) - before;
        if here == 0 { Ok(()) } else { Err(format!("{here} at the node that drains")) }
    });
    trio.wait_for_one_home(&[0, 1, 2]);
    let before = executed(home);
    for caller in &trio.callers {
        let body = json!({"language": "bash", "version": "*", "files": [{"content": "echo x"}]});
        let request = Request::new("POST", "/compat/piston/api/v2/execute");
        let request = request.header("content-type", "application/json").body(body.to_string());
        assert_eq!(caller.send(&request).json()["run"]["stdout"], "x\n");
    }
    assert_eq!(executed(home), before);
}
