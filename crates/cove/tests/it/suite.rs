//! Every hostile program of the table, alone and ten at a time, each followed by a canary, with a
//! comparison of the host before and after. Programs that have a fast mode (from the compile cache,
//! by a prestarted interpreter) also run in that mode, which the response must report.
//!
//! `TEST_CASE=text cargo test -p cove --test it suite` runs only the cases with `text` in their
//! name.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use testkit::{Client, Host, Server, Watch, process, until};

use crate::cases::{self, Case, Fill, Pace, Phase};
use crate::support::{alone_on_host, run, serve_with, settle, warm_up};

/// Number of concurrent programs in the second phase.
const CROWD: usize = 10;
/// First user id of these servers, the number of possible bases, and the distance between them.
const UID_BASE: u32 = 200_000_000;
const UID_BASES: u32 = 30_000;
const UIDS_EACH: u32 = 10_000;
/// Number of concurrent compilations in preparation.
const COMPILERS: usize = 4;
/// Maximum time from a response until the processes of its program are gone.
const GONE: Duration = Duration::from_millis(500);
/// Time limit for the kernel, which removes namespaces in the background.
const SETTLE: Duration = Duration::from_secs(20);

/// A server, and traps on the host around it.
struct World {
    server: Server,
    fill: Fill,
    watch: Watch,
    /// Listeners on the host that a sandbox must not reach.
    _listeners: [UnixListener; 2],
}

impl World {
    fn new() -> World {
        // A separate range of user ids: processes of other servers with the same ids would count
        // towards the limits of programs.
        let uid_base = UID_BASE + std::process::id() % UID_BASES * UIDS_EACH;
        let server = serve_with(&format!("[sandbox]\nuid_base = {uid_base}\n"));
        let scratch = server.scratch().path().to_owned();
        let secret = format!("host-secret-{}", server.pid());
        let marker = server.scratch().file("marker", format!("\"{secret}\"\n"));
        make_public(&scratch);
        let name = format!("cove-test-{}", server.pid());
        let abstract_name = SocketAddr::from_abstract_name(&name).expect("a short name");
        let listeners = [
            UnixListener::bind_addr(&abstract_name).expect("bind an abstract socket"),
            UnixListener::bind(scratch.join("socket")).expect("bind a socket"),
        ];
        let hostname = fs::read_to_string("/proc/sys/kernel/hostname").expect("read the host name");
        let client = server.client();
        warm_up(&client);
        let nodename = run(&client, &json!({"argv": ["uname", "-n"]}));
        let fill = BTreeMap::from([
            ("@MARKER@", marker.display().to_string()),
            ("@SECRET@", secret),
            ("@TOKEN@", server.token().to_owned()),
            ("@DATA@", server.data_dir().display().to_string()),
            ("@SCRATCH@", scratch.display().to_string()),
            ("@HOSTNAME@", hostname.trim().to_owned()),
            ("@NODENAME@", nodename["stdout"].as_str().unwrap_or("").trim().to_owned()),
            ("@PORT@", client.address().port().to_string()),
            ("@SERVER@", server.pid().to_string()),
            ("@ABSTRACT@", name),
        ]);
        let watch = Watch { server: Some(server.pid()), markers: vec![marker] };
        World { server, fill, watch, _listeners: listeners }
    }

    /// Compiles the programs of `cases` and waits for their interpreters, so that everything that
    /// the server keeps exists before the snapshot of the host.
    fn prepare(&self, cases: &[Case]) {
        let compiled: Vec<&Case> = cases.iter().filter(|case| case.is_compiled()).collect();
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..COMPILERS {
                scope.spawn(|| {
                    let client = self.server.client();
                    while let Some(case) = compiled.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let response = client.run(&case.compile_request(&self.fill));
                        assert_eq!(response.status, 200, "{}: {}", case.name, response.text());
                    }
                });
            }
        });
        settle(&self.server.client());
    }

    /// Runs one case and the canary. Returns the errors found.
    fn run(&self, client: &Client, case: &Case, pace: Pace, phase: Phase) -> Vec<String> {
        let attempt = panic::catch_unwind(AssertUnwindSafe(|| {
            let response = client.run(&case.request(&self.fill, pace));
            if response.status != 200 {
                return vec![format!("{} {}", response.status, response.text())];
            }
            let answer = response.json();
            let mut wrong = case.check(&answer, phase, &self.fill);
            if answer["mode"] != case.mode(pace) {
                wrong.push(format!("mode {}, expected {}", answer["mode"], case.mode(pace)));
            }
            if !wrong.is_empty() {
                wrong.push(shorten(&answer.to_string()));
            }
            if let Some(marker) = case.gone(pace) {
                until(&format!("no process {marker}"), GONE, || {
                    let left = process::with_marker(&marker);
                    if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
                });
            }
            wrong.extend(self.canary(client, pace));
            wrong
        }));
        attempt.unwrap_or_else(|panic| vec![message(&*panic)])
    }

    fn canary(&self, client: &Client, pace: Pace) -> Option<String> {
        let mut limits = cases::limits();
        limits.insert("wall_ms".to_owned(), json!(20_000));
        let source = cases::CANARY.replace("@NODENAME@", &self.fill["@NODENAME@"]);
        let answer = run(
            client,
            &json!({"language": "python", "source": source, "limits": limits,
                "fresh": pace == Pace::Fresh}),
        );
        let clean = answer["verdict"] == "OK" && answer["stdout"] == "clean\n";
        (!clean).then(|| format!("canary: {}", shorten(&answer.to_string())))
    }
}

/// Opens the marker to all users, so that only the sandbox protects it.
fn make_public(directory: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    for (path, mode) in [(directory.to_owned(), 0o777), (directory.join("marker"), 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("open up the marker");
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
}

fn shorten(text: &str) -> String {
    let end = text.char_indices().nth(1500).map_or(text.len(), |(at, _)| at);
    text[..end].to_owned()
}

fn selected() -> Vec<Case> {
    let wanted = std::env::var_os("TEST_CASE").unwrap_or_default();
    let wanted = wanted.to_string_lossy();
    cases::all().into_iter().filter(|case| case.name.contains(&*wanted)).collect()
}

/// Returns every case with each mode in which it can run.
fn at_every_pace(cases: &[Case]) -> Vec<(&Case, Pace)> {
    let fresh = cases.iter().map(|case| (case, Pace::Fresh));
    let fast = cases.iter().filter(|case| case.has_fast_mode()).map(|case| (case, Pace::Fast));
    fresh.chain(fast).collect()
}

/// Runs `cases` on `threads` threads, one client each.
fn run_all(world: &World, cases: &[(&Case, Pace)], threads: usize, phase: Phase) -> Vec<String> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let work = || {
            let client = world.server.client();
            let mut failures = Vec::new();
            while let Some((case, pace)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                let wrong = world.run(&client, case, *pace, phase);
                if !wrong.is_empty() {
                    let wrong = wrong.join("\n    ");
                    failures.push(format!("{} ({pace:?})\n    {wrong}", case.name));
                }
            }
            failures
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    })
}

fn report(failures: &[String], count: usize) {
    assert!(
        failures.is_empty(),
        "{} failures among {count} cases:\n  {}",
        failures.len(),
        failures.join("\n  ")
    );
}

#[test]
fn every_hostile_program_alone_gets_its_verdict_and_leaves_nothing() {
    let _guard = alone_on_host();
    let world = World::new();
    let cases = selected();
    assert_eq!(world.canary(&world.server.client(), Pace::Fast), None);
    world.prepare(&cases);
    let before = Host::snapshot(&world.watch);
    let (sleepers, others): (Vec<_>, Vec<_>) =
        at_every_pace(&cases).into_iter().partition(|(case, _)| case.sleeper);
    let mut failures = run_all(&world, &sleepers, sleepers.len().max(1), Phase::Alone);
    failures.extend(run_all(&world, &others, 1, Phase::Alone));
    failures.extend(before.returns(SETTLE).err());
    report(&failures, sleepers.len() + others.len());
}

#[test]
fn hostile_programs_in_a_crowd_get_their_verdicts_and_an_honest_one_stays_right() {
    let _guard = alone_on_host();
    let world = World::new();
    let cases = selected();
    assert_eq!(world.canary(&world.server.client(), Pace::Fast), None);
    world.prepare(&cases);
    let before = Host::snapshot(&world.watch);
    let cases = at_every_pace(&cases);
    let load_ended = AtomicBool::new(false);
    let (mut failures, honest) = thread::scope(|scope| {
        let honest = scope.spawn(|| run_honestly(&world.server.client(), &load_ended));
        let failures = run_all(&world, &cases, CROWD, Phase::Crowd);
        load_ended.store(true, Ordering::Release);
        (failures, honest.join().expect("the honest client"))
    });
    failures.extend(before.returns(SETTLE).err());
    report(&failures, cases.len());
    assert!(honest > 0, "the honest program never ran");
}

/// Runs a program with a different result each time until the load has ended. Returns the number of
/// runs.
fn run_honestly(client: &Client, load_ended: &AtomicBool) -> u32 {
    let mut count = 0;
    loop {
        let source = "import sys; print(sum(range(int(sys.argv[1]))), sys.stdin.read())";
        let top = 1000 + count;
        let answer = run(
            client,
            &json!({"language": "python", "source": source, "args": [top.to_string()],
                "stdin": format!("line {count}"), "limits": {"wall_ms": 20_000}}),
        );
        let expected = format!("{} line {count}\n", (0..top).sum::<u32>());
        assert_eq!(answer["verdict"], "OK", "{answer}");
        assert_eq!(answer["stdout"], expected.as_str(), "{answer}");
        count += 1;
        if load_ended.load(Ordering::Acquire) {
            return count;
        }
    }
}
