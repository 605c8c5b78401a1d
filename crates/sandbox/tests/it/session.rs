//! Sessions: many programs in one sandbox, and the limits of what they can do to it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use sandbox::{
    AttachedDiskImage, DiskSize, Disks, Engine, ProcessEnd, ProcessStreams, SandboxError,
    SandboxedSession, SessionProcess, SessionProgram, SessionSandboxLimits, SessionSetup,
    TerminalDimensions,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::time;

use crate::support::{tests, text};

tests![
    a_program_starts_and_ends,
    what_cannot_be_started_says_why_and_harms_nobody,
    a_hundred_programs_at_once_are_not_mixed,
    a_terminal_has_a_size_and_tells_of_another,
    signals_reach_a_group_or_its_leader,
    orphans_are_reaped,
    nobody_can_harm_the_init,
    the_init_has_given_up_its_privileges,
    a_fork_bomb_ends_where_its_session_does,
    lack_of_memory_ends_one_program_and_not_the_others,
    who_floods_or_closes_its_streams_holds_up_nobody,
    ports_belong_to_their_session,
    no_connection_leads_to_what_the_server_serves,
    a_listener_that_comes_meanwhile_gets_no_connection,
    there_is_no_way_to_the_host_or_the_network,
    a_network_that_was_used_is_not_used_again,
    a_frozen_session_stands_still,
    a_session_gets_its_part_of_the_processor,
    limits_hold,
    a_start_that_nobody_waits_for_is_undone,
    dropping_the_last_handle_ends_everything,
    files_are_served_again_when_their_server_has_died,
    tools_work,
    a_session_ends_with_its_spawner,
];

/// No capabilities.
const NONE: &str = "0000000000000000";
/// Processes in addition to programs: the one that forks them.
const FORK_SERVER: u64 = 1;
/// Processes that a program sees in the session: only itself.
const PS: &str = "bash ps 1\n";
/// Longest wait on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A session with a disk of its own, in a directory that is removed with it.
pub(crate) struct Live {
    pub(crate) session: SandboxedSession,
    pub(crate) disk: Option<AttachedDiskImage>,
    directory: PathBuf,
}

impl Live {
    pub(crate) async fn new(engine: &Engine) -> Live {
        Live::with(engine, SessionSandboxLimits::default()).await
    }

    pub(crate) async fn with(engine: &Engine, limits: SessionSandboxLimits) -> Live {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("cove-session-{}-{}", own.0, own.1));
        std::fs::create_dir(&directory).unwrap();
        let disks = Disks::open(&directory.join("templates")).unwrap();
        let image = directory.join("disk");
        disks.create(&image, DiskSize { bytes: 64 << 20, inodes: 4096 }).unwrap();
        let disk = AttachedDiskImage::attach(&image, SOON).unwrap();
        let sandbox = engine.session_sandbox().await.unwrap();
        let setup = SessionSetup { disk: &disk, layers: &[], limits };
        let session = sandbox.into_session(setup).await.unwrap();
        Live { session, disk: Some(disk), directory }
    }

    pub(crate) async fn start(&self, program: SessionProgram) -> SessionProcess {
        self.session.start(program).await.unwrap()
    }

    pub(crate) async fn shell(&self, script: &str) -> Output {
        Output::of(self.start(shell(script)).await).await
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.disk = None;
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

pub(crate) struct Output {
    pub(crate) end: ProcessEnd,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    pub(crate) async fn of(mut process: SessionProcess) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let ProcessStreams::Pipes(pipes) = &mut process.streams else { panic!("a terminal") };
        drop(pipes.stdin.take());
        time::timeout(SOON, pipes.stdout.read_to_end(&mut stdout)).await.unwrap().unwrap();
        if let Some(errors) = &mut pipes.stderr {
            time::timeout(SOON, errors.read_to_end(&mut stderr)).await.unwrap().unwrap();
        }
        let end = time::timeout(SOON, process.wait()).await.unwrap().unwrap();
        Output { end, stdout: text(&stdout), stderr: text(&stderr) }
    }
}

pub(crate) fn program(argv: &[&str]) -> SessionProgram {
    let bytes_of = |list: &[&str]| list.iter().map(|word| word.as_bytes().to_vec()).collect();
    SessionProgram {
        argv: bytes_of(argv),
        env: bytes_of(&["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user", "LANG=C.UTF-8"]),
        ..SessionProgram::default()
    }
}

pub(crate) fn shell(script: &str) -> SessionProgram {
    program(&["/bin/bash", "-c", script])
}

/// Returns the standard output of a program.
pub(crate) fn pipe(process: &mut SessionProcess) -> &mut pipe::Receiver {
    match &mut process.streams {
        ProcessStreams::Pipes(pipes) => &mut pipes.stdout,
        ProcessStreams::Terminal(_) => panic!("a terminal"),
    }
}

/// Reads until the output contains `end`.
pub(crate) async fn read_until(from: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(end) {
        let mut byte = [0];
        let read = time::timeout(SOON, from.read(&mut byte)).await;
        let n = read.unwrap_or_else(|_| panic!("`{end}` does not come; so far: {seen:?}"));
        assert_eq!(n.unwrap(), 1, "`{end}` does not come; all: {seen:?}");
        seen.push(char::from(byte[0]));
    }
    seen
}

/// Reads the available output.
async fn drain(from: &mut pipe::Receiver) -> String {
    let mut seen = Vec::new();
    let mut room = [0; 4096];
    while let Ok(Ok(n)) = time::timeout(Duration::from_millis(20), from.read(&mut room)).await {
        seen.extend_from_slice(&room[..n]);
    }
    text(&seen)
}

/// Sends a line to a program and reads one back.
async fn echo(process: &mut SessionProcess, line: &str) -> String {
    let ProcessStreams::Pipes(pipes) = &mut process.streams else { panic!("a terminal") };
    pipes.stdin.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
    read_until(&mut pipes.stdout, "\n").await
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    let wait = async {
        while !is_so().await {
            time::sleep(Duration::from_millis(5)).await;
        }
    };
    time::timeout(SOON, wait).await.expect("it does not become so");
}

fn kill(pid: &str) {
    let killed = std::process::Command::new("/bin/kill").args(["-9", pid]).status();
    assert!(killed.unwrap().success());
}

/// Returns the pids of processes with this name and this parent, as the host sees them.
fn processes(name: &str, parent: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_it = |pid: &String| {
        let status = std::fs::read_to_string(status(pid)).unwrap_or_default();
        field(&status, "Name") == name && field(&status, "PPid") == parent
    };
    pids.filter(is_it).collect()
}

fn status(pid: &str) -> String {
    format!("/proc/{pid}/status")
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim()
}

async fn a_program_starts_and_ends(engine: Engine) {
    let live = Live::new(&engine).await;
    let output = live.shell("echo out; echo err >&2; pwd; echo $HOME; exit 3").await;
    assert_eq!(output.end.code, Some(3), "{:?}", output.end);
    assert_eq!(output.stdout, "out\n/workspace\n/home/user\n");
    assert_eq!(output.stderr, "err\n");
    let merged =
        SessionProgram { merged: true, ..shell("echo a; echo b >&2; echo c > /dev/stderr") };
    let output = Output::of(live.start(merged).await).await;
    assert_eq!(output.stdout, "a\nb\nc\n");
    let elsewhere = SessionProgram { cwd: Some(b"/tmp".to_vec()), ..shell("pwd; kill -9 $$") };
    let output = Output::of(live.start(elsewhere).await).await;
    assert_eq!((output.stdout.as_str(), output.end.signal), ("/tmp\n", Some(9)));
    // Larger than the maximum of a frame.
    let long = "x".repeat(100_000);
    let mut large = shell("echo ${#LONG} ${#1}");
    large.env.push(format!("LONG={long}").into_bytes());
    large.argv.extend([b"name".to_vec(), long.into_bytes()]);
    assert_eq!(Output::of(live.start(large).await).await.stdout, "100000 100000\n");
}

async fn what_cannot_be_started_says_why_and_harms_nobody(engine: Engine) {
    let live = Live::new(&engine).await;
    let mut bystander = live.start(SessionProgram { stdin: true, ..shell("cat") }).await;
    for (program, exec, directory) in [
        (program(&["/bin/missing"]), Some(libc::ENOENT), None),
        (program(&["missing"]), Some(libc::ENOENT), None),
        (program(&["/etc/passwd"]), Some(libc::EACCES), None),
        (SessionProgram { cwd: Some(b"missing".to_vec()), ..shell("") }, None, Some(libc::ENOENT)),
        (
            SessionProgram { cwd: Some(b"/etc/passwd".to_vec()), ..shell("") },
            None,
            Some(libc::ENOTDIR),
        ),
        (program(&["/bin/echo", &"x".repeat(200_000)]), Some(libc::E2BIG), None),
    ] {
        let end = Output::of(live.start(program).await).await.end;
        let expected = (None, exec, directory);
        assert_eq!((end.code, end.exec_errno, end.directory_errno), expected, "{end:?}");
    }
    for (program, expected) in [
        (SessionProgram::default(), "argv: it names no program"),
        (program(&["a\0b"]), "argv, env and cwd: they have no NUL bytes"),
        (
            SessionProgram { cwd: Some(vec![0]), ..shell("") },
            "argv, env and cwd: they have no NUL bytes",
        ),
        (program(&["x", &"x".repeat(5 << 20)]), "argv and env: together at most 4 MiB"),
    ] {
        let refused = live.session.start(program).await;
        let Err(SandboxError::Command(message)) = refused else { panic!("{expected}") };
        assert_eq!(message, expected);
    }
    assert_eq!(echo(&mut bystander, "still here\n").await, "still here\n");
    assert_eq!(live.session.processes(), [bystander.pid]);
}

async fn a_hundred_programs_at_once_are_not_mixed(engine: Engine) {
    let live = Live::new(&engine).await;
    let run = |n: usize| {
        let session = live.session.clone();
        async move {
            let script = format!("read x; echo $x-{n}; echo e{n} >&2; exit {}", n % 100);
            let mut process =
                session.start(SessionProgram { stdin: true, ..shell(&script) }).await.unwrap();
            let ProcessStreams::Pipes(pipes) = &mut process.streams else { panic!("a terminal") };
            let mut stdin = pipes.stdin.take().unwrap();
            stdin.write_all(format!("in{n}\n").as_bytes()).await.unwrap();
            drop(stdin);
            let output = Output::of(process).await;
            assert_eq!(output.stdout, format!("in{n}-{n}\n"));
            assert_eq!(output.stderr, format!("e{n}\n"));
            assert_eq!(output.end.code, i32::try_from(n % 100).ok());
        }
    };
    let all: Vec<_> = (0..100).map(|n| tokio::spawn(run(n))).collect();
    for one in all {
        one.await.unwrap();
    }
    assert!(live.session.processes().is_empty());
}

async fn a_terminal_has_a_size_and_tells_of_another(engine: Engine) {
    let live = Live::new(&engine).await;
    let script = "trap 'stty size; exit 7' WINCH; tty; stty size; while :; do sleep 0.01; done";
    let terminal = Some(TerminalDimensions { rows: 20, cols: 70 });
    let mut first = live.start(SessionProgram { terminal, ..shell(script) }).await;
    // A second one beside it is another terminal.
    let other = live.start(SessionProgram { terminal, ..shell("tty") }).await;
    let ProcessStreams::Terminal(mut other) = other.streams else { panic!("pipes") };
    assert_eq!(read_until(&mut other, "\r\n").await, "/dev/pts/1\r\n");
    let ProcessStreams::Terminal(mut ours) = first.streams else { panic!("pipes") };
    assert_eq!(read_until(&mut ours, "70\r\n").await, "/dev/pts/0\r\n20 70\r\n");
    first.handle.resize(TerminalDimensions { rows: 30, cols: 90 }).unwrap();
    let mut rest = Vec::new();
    time::timeout(SOON, ours.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(text(&rest), "30 90\r\n");
    assert_eq!(first.handle.wait().await.unwrap().code, Some(7));
    // Input arrives, and its interrupt character interrupts.
    let process =
        live.start(SessionProgram { terminal, ..shell("read x; echo got $x; cat") }).await;
    let (mut handle, ProcessStreams::Terminal(mut ours)) = (process.handle, process.streams) else {
        panic!("pipes")
    };
    ours.write_all(b"word\n").await.unwrap();
    read_until(&mut ours, "got word").await;
    ours.write_all(&[3]).await.unwrap();
    assert_eq!(time::timeout(SOON, handle.wait()).await.unwrap().unwrap().signal, Some(2));
}

async fn signals_reach_a_group_or_its_leader(engine: Engine) {
    let live = Live::new(&engine).await;
    let script = "trap 'echo leader; exit 5' TERM; \
                  (trap 'echo child; exit' TERM; echo ready; while :; do sleep 0.01; done) & \
                  while :; do sleep 0.01; done";
    let mut process = live.start(shell(script)).await;
    read_until(pipe(&mut process), "ready\n").await;
    live.session.signal(process.pid, libc::SIGTERM).await.unwrap();
    let output = Output::of(process).await;
    let mut lines: Vec<&str> = output.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, output.end.code), (vec!["child", "leader"], Some(5)));
    let mut process = live.start(shell(script)).await;
    read_until(pipe(&mut process), "ready\n").await;
    process.handle.signal_alone(libc::SIGTERM).await.unwrap();
    assert_eq!(process.wait().await.unwrap().code, Some(5));
    // The process has been reaped; signals to it are no error.
    process.signal(libc::SIGTERM).await.unwrap();
    live.session.signal(1, libc::SIGKILL).await.unwrap();
    assert!(process.signal(0).await.is_err() && process.signal(64).await.is_err());
}

/// The init reaps processes that have no waiting parent, without a report.
async fn orphans_are_reaped(engine: Engine) {
    let live = Live::new(&engine).await;
    let script = "for i in $(seq 50); do (setsid sh -c 'exit 3' &); done; \
                  mkfifo fifo; (setsid sh -c 'read x < fifo' &); echo > fifo";
    assert_eq!(live.shell(script).await.end.code, Some(0));
    eventually(|| async { live.session.usage().await.unwrap().processes <= FORK_SERVER }).await;
    let zombies = live.shell("ps -e -o stat= | grep -c Z").await;
    assert_eq!(zombies.stdout, "0\n", "{}", zombies.stderr);
}

async fn nobody_can_harm_the_init(engine: Engine) {
    let live = Live::new(&engine).await;
    let script = "import ctypes, os, signal, sys\n\
                  l = ctypes.CDLL(None, use_errno=True)\n\
                  def answer(call):\n    \
                  try: call(); return 0\n    \
                  except OSError as e: return e.errno\n\
                  print(answer(lambda: os.kill(1, 9)), answer(lambda: os.kill(1, 0)), end=' ')\n\
                  print(l.ptrace(16, 1, 0, 0), l.process_vm_readv(1, 0, 0, 0, 0, 0), end=' ')\n\
                  print(os.path.exists('/proc/1'), answer(lambda: os.open('/proc/1/mem', 2)))\n\
                  fds = [n for n in os.listdir('/proc/self/fd')]\n\
                  print(sorted(fds)[:3], len(fds))\n\
                  print([n for n in os.listdir('/proc') if n.isdigit()] == [str(os.getpid())])\n\
                  print(l.setuid(0), l.setuid(os.getuid() - 1))\n\
                  sys.stdout.flush()\n\
                  os.kill(-1, 9)";
    let output = Output::of(live.start(program(&["/usr/bin/python3", "-c", script])).await).await;
    let expected = "1 1 -1 -1 False 2\n['0', '1', '2'] 4\nTrue\n-1 -1\n";
    assert_eq!(output.stdout, expected, "{}", output.stderr);
    for _ in 0..3 {
        assert_eq!(live.shell("kill -9 -1; echo alive").await.stdout, "alive\n");
    }
    assert!(live.session.is_alive());
}

/// As the host sees it: the init may only signal, become the user and give files away, and the
/// policy of programs applies to it.
async fn the_init_has_given_up_its_privileges(engine: Engine) {
    let live = Live::new(&engine).await;
    let spawners: Vec<String> = processes("cove-spawner", &std::process::id().to_string());
    let restricted = || {
        let inits = spawners.iter().flat_map(|spawner| processes("cove-init", spawner));
        let statuses = inits.filter_map(|pid| std::fs::read_to_string(status(&pid)).ok());
        // An init that waits for its session is not restricted yet.
        statuses.filter(|status| field(status, "Seccomp") == "2").collect::<Vec<_>>()
    };
    // Those of dropped sessions may still exist.
    eventually(|| async { restricted().len() == 1 }).await;
    for status in restricted() {
        assert!(field(&status, "NSpid").ends_with("\t1"), "{status}");
        let capabilities = ["CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb"];
        let capabilities = capabilities.map(|name| field(&status, name));
        let few = "00000000000000e1";
        assert_eq!(capabilities, [few, few, NONE, NONE, NONE], "{status}");
        assert_eq!(field(&status, "NoNewPrivs"), "1");
    }
    drop(live);
}

async fn a_fork_bomb_ends_where_its_session_does(engine: Engine) {
    let limits = SessionSandboxLimits { processes: 40, ..SessionSandboxLimits::default() };
    let live = Live::with(&engine, limits).await;
    let bomb = "import os, time\n\
                while True:\n    \
                try: os.fork()\n    \
                except OSError: time.sleep(0.01)";
    let mut bomb = live.start(program(&["/usr/bin/python3", "-c", bomb])).await;
    eventually(|| async { live.session.usage().await.unwrap().processes >= 40 }).await;
    // The limit does not apply to the init, nor to the programs that it starts.
    let usage = live.session.usage().await.unwrap();
    assert!(usage.processes <= 42, "{usage:?}");
    assert_eq!(live.shell("echo $((1 + 1))").await.stdout, "2\n");
    bomb.signal(libc::SIGKILL).await.unwrap();
    assert_eq!(bomb.wait().await.unwrap().signal, Some(9));
    eventually(|| async { live.session.usage().await.unwrap().processes <= FORK_SERVER }).await;
}

async fn lack_of_memory_ends_one_program_and_not_the_others(engine: Engine) {
    let limits = SessionSandboxLimits { memory_bytes: 64 << 20, ..SessionSandboxLimits::default() };
    let live = Live::with(&engine, limits).await;
    let mut bystander = live.start(SessionProgram { stdin: true, ..shell("cat") }).await;
    for _ in 0..2 {
        let bomb = "x = [bytearray(1 << 20) for _ in range(1000)]";
        let bomb = live.start(program(&["/usr/bin/python3", "-c", bomb])).await;
        let end = Output::of(bomb).await.end;
        assert_eq!((end.signal, end.oom_kills), (Some(9), 1), "{end:?}");
    }
    assert_eq!(echo(&mut bystander, "still here\n").await, "still here\n");
    let usage = live.session.usage().await.unwrap();
    assert_eq!(usage.oom_kills, 2, "{usage:?}");
    assert!((32 << 20..=64 << 20).contains(&usage.memory_peak_bytes), "{usage:?}");
    assert!(usage.memory_bytes < usage.memory_peak_bytes, "{usage:?}");
    // Memory that belongs to no process: programs cannot start, and the init lives on.
    let hog = "head -c 80M /dev/zero > /dev/shm/hog";
    let end = live.shell(hog).await.end;
    assert!(end.oom_kills > 0 || end.code != Some(0), "{end:?}");
    assert!(live.session.usage().await.is_ok());
    assert!(live.session.is_alive());
}

async fn who_floods_or_closes_its_streams_holds_up_nobody(engine: Engine) {
    let live = Live::new(&engine).await;
    // Their output is not read.
    let floods: Vec<SessionProcess> =
        [live.start(shell("yes")).await, live.start(shell("yes >&2")).await].into_iter().collect();
    let terminal = Some(TerminalDimensions { rows: 20, cols: 70 });
    let typed = live.start(SessionProgram { terminal, ..shell("yes") }).await;
    let closed = live.start(shell("exec 0<&- 1>&- 2>&-; sleep 0.1; exit 4")).await;
    assert_eq!(Output::of(closed).await.end.code, Some(4));
    for _ in 0..10 {
        assert_eq!(live.shell("echo on").await.stdout, "on\n");
    }
    for mut flood in floods.into_iter().chain([typed]) {
        flood.signal(libc::SIGKILL).await.unwrap();
        assert_eq!(flood.wait().await.unwrap().signal, Some(9));
    }
}

async fn ports_belong_to_their_session(engine: Engine) {
    let (live, other) = (Live::new(&engine).await, Live::new(&engine).await);
    let server = "import socket\n\
                  s = socket.create_server(('127.0.0.1', 8000)); print('ready', flush=True)\n\
                  while True:\n    c, _ = s.accept(); c.sendall(c.recv(100).upper()); c.close()";
    let mut server = live.start(program(&["/usr/bin/python3", "-c", server])).await;
    read_until(pipe(&mut server), "ready\n").await;
    let mut connection = live.session.connect(8000).await.unwrap();
    connection.write_all(b"hello").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "HELLO");
    for (session, port) in [(&live.session, 8001), (&other.session, 8000)] {
        let refused = session.connect(port).await;
        assert!(matches!(refused, Err(SandboxError::PortRefused(p)) if p == port), "{refused:?}");
    }
    // The other way round: the server listens, and a program connects.
    let listener = other.session.listen(0).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo hi >&3; cat <&3");
    let client = other.start(shell(&client)).await;
    let (mut accepted, _) = time::timeout(SOON, listener.accept()).await.unwrap().unwrap();
    assert_eq!(read_until(&mut accepted, "\n").await, "hi\n");
    accepted.write_all(b"bye\n").await.unwrap();
    drop(accepted);
    assert_eq!(Output::of(client).await.stdout, "bye\n");
    let taken = other.session.listen(port).await;
    assert!(matches!(&taken, Err(SandboxError::Refused(f)) if f.errno == libc::EADDRINUSE));
}

/// The server's ports in the sandbox are for programs inside: a caller that came through the server
/// would act in their name.
async fn no_connection_leads_to_what_the_server_serves(engine: Engine) {
    let live = Live::new(&engine).await;
    let of_server = |answer: &Result<_, SandboxError>, port: u16| match answer {
        Err(SandboxError::PortOfServer(refused)) => *refused == port,
        _ => false,
    };
    let first = live.session.listen(8181).await.unwrap();
    let free = live.session.listen(0).await.unwrap();
    let free_port = free.local_addr().unwrap().port();
    for port in [8181, free_port] {
        let refused = live.session.connect(port).await;
        assert!(of_server(&refused, port), "{refused:?}");
    }
    // Other ways to write the address work for programs there, and only for them.
    let client = "for host in 127.0.0.1 127.0.0.2 localhost; do\n\
                  (exec 3<>/dev/tcp/$host/8181) 2>/dev/null && echo $host; done; true";
    let reached = Output::of(live.start(shell(client)).await).await.stdout;
    assert_eq!(reached, "127.0.0.1\nlocalhost\n");
    // Nor after the listener was dropped: a pending connection could still arrive at the next one.
    drop(first);
    let refused = live.session.connect(8181).await;
    assert!(of_server(&refused, 8181), "{refused:?}");
    // A program's port stays the program's, even if the server has requested it.
    let server = "import socket\n\
                  s = socket.create_server(('127.0.0.1', 8100)); print('ready', flush=True)\n\
                  while True:\n    c, _ = s.accept(); c.sendall(b'program'); c.close()";
    let mut server = live.start(program(&["/usr/bin/python3", "-c", server])).await;
    read_until(pipe(&mut server), "ready\n").await;
    let taken = live.session.listen(8100).await;
    assert!(matches!(&taken, Err(SandboxError::Refused(f)) if f.errno == libc::EADDRINUSE));
    let mut connection = live.session.connect(8100).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "program");
}

/// Concurrent connections and listeners, in any order, never meet.
async fn a_listener_that_comes_meanwhile_gets_no_connection(engine: Engine) {
    let live = Live::new(&engine).await;
    for port in 9000..9040 {
        let (connected, listener) =
            tokio::join!(live.session.connect(port), live.session.listen(port));
        assert!(listener.is_ok(), "{listener:?}");
        let refused =
            matches!(connected, Err(SandboxError::PortOfServer(_) | SandboxError::PortRefused(_)));
        assert!(refused, "{port}: {connected:?}");
    }
}

/// Tries a port of the host, the network, and every possible kind of socket; with only a loopback
/// it prints [`NO_WAYS_OUT`].
pub(crate) fn ways_out(port: u16) -> String {
    format!(
        "import errno, socket\n\
         def answer(f):\n    \
         try: f(); return 'DONE'\n    \
         except OSError as e: return errno.errorcode[e.errno]\n\
         tcp = lambda a: answer(lambda: socket.create_connection((a, {port}), 5))\n\
         print(tcp('127.0.0.1'), tcp('10.0.0.1'), tcp('169.254.169.254'), tcp('::1'))\n\
         kinds = [(16, 3, 0), (17, 3, 0), (2, 3, 255), (2, 1, 132), (2, 1, 262), (2, 6, 0),\n    \
         (10, 3, 58), (40, 1, 0), (38, 5, 0), (2, 2, 136)]\n\
         print(*[answer(lambda: socket.socket(*kind)) for kind in kinds])\n\
         print(*[answer(lambda: socket.socket(*kind)) for kind in\n    \
         [(1, 1, 0), (1, 5, 0), (2, 1, 0), (2, 2, 0), (2, 1, 6), (2, 2, 17), (10, 1, 0)]])\n\
         print(*[answer(lambda: socket.socket().setsockopt(6, 31, name)) for name in\n    \
         [b'tls', b'mptcp']], answer(lambda: socket.socket().setsockopt(6, 1, 1)))"
    )
}

pub(crate) const NO_WAYS_OUT: &str = "ECONNREFUSED ENETUNREACH ENETUNREACH ECONNREFUSED\n\
    EAFNOSUPPORT EAFNOSUPPORT ESOCKTNOSUPPORT EPROTONOSUPPORT EPROTONOSUPPORT \
    ESOCKTNOSUPPORT ESOCKTNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EPROTONOSUPPORT\n\
    DONE DONE DONE DONE DONE DONE DONE\n\
    ENOPROTOOPT ENOPROTOOPT DONE\n";

async fn there_is_no_way_to_the_host_or_the_network(engine: Engine) {
    let live = Live::new(&engine).await;
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = ways_out(host.local_addr().unwrap().port());
    let output = Output::of(live.start(program(&["/usr/bin/python3", "-c", &script])).await).await;
    assert_eq!(output.stdout, NO_WAYS_OUT, "{}", output.stderr);
    // No execution has a loopback, whatever its slot was used for before.
    let script = "import socket\ntry: socket.create_server(('127.0.0.1', 8000))\n\
                  except OSError as e: print(e.errno)";
    let exit = crate::support::run(&engine, crate::support::python(script)).await;
    assert_eq!(text(&exit.stdout), "97\n");
}

/// The next session of the slot does not see even the remains of a connection.
async fn a_network_that_was_used_is_not_used_again(engine: Engine) {
    let counters = "cat /proc/self/net/dev | tail -1 | tr -s ' ' | cut -d ' ' -f 3; \
                    grep -c . /proc/self/net/tcp";
    for _ in 0..12 {
        let live = Live::new(&engine).await;
        assert_eq!(live.shell(counters).await.stdout, "0\n1\n");
        let listener = live.session.listen(9000).await.unwrap();
        let client = live.start(shell("exec 3<>/dev/tcp/127.0.0.1/9000; sleep 60")).await;
        let connection = time::timeout(SOON, listener.accept()).await.unwrap().unwrap();
        drop(live);
        drop((listener, client, connection));
    }
}

async fn a_frozen_session_stands_still(engine: Engine) {
    let live = Live::new(&engine).await;
    let mut clock = live.start(shell("while :; do echo tick; sleep 0.005; done")).await;
    read_until(pipe(&mut clock), "tick\ntick\n").await;
    live.session.freeze().await.unwrap();
    drain(pipe(&mut clock)).await;
    time::sleep(Duration::from_millis(100)).await;
    assert_eq!(drain(pipe(&mut clock)).await, "");
    // The init is not frozen; programs that it starts are.
    assert!(live.session.usage().await.unwrap().processes > 0);
    let waiting = live.start(shell("echo thawed")).await;
    assert!(waiting.handle.end().is_none());
    live.session.thaw().await.unwrap();
    assert_eq!(Output::of(waiting).await.stdout, "thawed\n");
    read_until(pipe(&mut clock), "tick\n").await;
    // A frozen session that is dropped ends as well, and its slot is reused.
    live.session.freeze().await.unwrap();
    let ended = live.session.ended();
    drop(live);
    time::timeout(SOON, ended).await.unwrap();
    for _ in 0..12 {
        let live = Live::new(&engine).await;
        assert_eq!(live.shell("echo runs").await.stdout, "runs\n");
        let exit = crate::support::run(&engine, crate::support::shell("echo runs")).await;
        assert_eq!(text(&exit.stdout), "runs\n");
    }
}

/// Returns the value of `cpu.shares` or `cpu.weight` of the group of a process, and the whole share
/// of that file.
fn cpu_share(pid: &str) -> Option<(u32, u32)> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (bases, file, whole) = match controllers {
            "" => (["", "unified"], "cpu.weight", 100),
            _ if controllers.split(',').any(|name| name == "cpu") => {
                ([controllers, "cpu"], "cpu.shares", 1024)
            }
            _ => return None,
        };
        let read = |base| {
            let path = format!("/sys/fs/cgroup/{base}{path}/{file}");
            std::fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        Some((bases.into_iter().find_map(read)?, whole))
    })
}

/// Returns the time slice of a process in nanoseconds, if the kernel lets a process choose it
/// (Linux 6.12 and later).
fn time_slice(pid: &str) -> Option<u64> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    let version: (u32, u32) = (numbers.next()?, numbers.next()?);
    let scheduling = std::fs::read_to_string(format!("/proc/{pid}/sched")).ok()?;
    let line = scheduling.lines().find(|line| line.starts_with("se.slice"))?;
    let slice = line.split(':').nth(1)?.trim().parse().ok()?;
    (version >= (6, 12)).then_some(slice)
}

async fn a_session_gets_its_part_of_the_processor(engine: Engine) {
    for round in 1..=2 {
        let live = Live::new(&engine).await;
        let seconds = format!("{}.{round}5", 100_000 + std::process::id());
        let _sleeping = live.start(program(&["/bin/sleep", &seconds])).await;
        let find = || {
            let entries = std::fs::read_dir("/proc").unwrap().flatten();
            let mut pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
            pids.find(|pid| {
                let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
                line.is_ok_and(|line| line.contains(&seconds))
            })
        };
        eventually(|| async { find().is_some() }).await;
        let pid = find().unwrap();
        let shares = "control groups share the processor where the tests run";
        let (share, whole) = cpu_share(&pid).expect(shares);
        // Independent of an earlier session of the slot.
        assert_eq!(share, whole);
        assert!([None, Some(6_000_000)].contains(&time_slice(&pid)), "{:?}", time_slice(&pid));
        for (parts, expected) in [(4, whole / 4), (100_000, 2), (0, whole), (16, whole / 16)] {
            live.session.divide_cpu_share(parts).await.unwrap();
            assert_eq!(cpu_share(&pid), Some((expected, whole)), "{parts}");
        }
        drop(live);
    }
}

async fn limits_hold(engine: Engine) {
    let limits = SessionSandboxLimits {
        open_files: 20,
        file_size_bytes: 1 << 20,
        tmp_bytes: 2 << 20,
        tmp_inodes: 10,
        stack_bytes: 1 << 20,
        ..SessionSandboxLimits::default()
    };
    let live = Live::with(&engine, limits).await;
    let script = "ulimit -n; ulimit -f; ulimit -s; ulimit -c; \
                  head -c 3M /dev/zero > /dev/shm/a 2>&1; stat -c %s /dev/shm/a; \
                  head -c 1M /dev/zero > /tmp/b; head -c 1M /dev/zero > /tmp/c; rm /dev/shm/a; \
                  for i in $(seq 20); do touch /tmp/f$i 2> /dev/null || break; done; echo $i";
    let output = live.shell(script).await;
    assert_eq!(output.stdout, "20\n1024\n1024\n0\n1048576\n9\n", "{}", output.stderr);
    assert!(output.stderr.contains("No space left on device"), "{}", output.stderr);
}

async fn a_start_that_nobody_waits_for_is_undone(engine: Engine) {
    let live = Live::new(&engine).await;
    let mut undone = 0;
    while undone < 20 {
        let mut start = Box::pin(live.session.start(shell("sleep 60")));
        let polled = std::future::poll_fn(|cx| Poll::Ready(start.as_mut().poll(cx)));
        match polled.await {
            // Sent, and not yet answered.
            Poll::Pending => undone += 1,
            Poll::Ready(started) => started.unwrap().signal(libc::SIGKILL).await.unwrap(),
        }
    }
    eventually(|| async { live.session.processes().is_empty() }).await;
    eventually(|| async { live.session.usage().await.unwrap().processes <= FORK_SERVER }).await;
}

async fn dropping_the_last_handle_ends_everything(engine: Engine) {
    let live = Live::new(&engine).await;
    let mut process = live.start(shell("trap '' TERM HUP; echo on; sleep 60; echo off")).await;
    read_until(pipe(&mut process), "on\n").await;
    let ended = live.session.ended();
    let clone = live.session.clone();
    let Live { session, .. } = &live;
    assert!(session.is_alive() && clone.is_alive());
    drop(clone);
    assert!(live.session.is_alive());
    let ProcessStreams::Pipes(mut pipes) = process.streams else { panic!("a terminal") };
    drop(live);
    let mut rest = Vec::new();
    time::timeout(SOON, pipes.stdout.read_to_end(&mut rest)).await.unwrap().unwrap();
    time::timeout(SOON, ended).await.unwrap();
    let mut handle = process.handle;
    let end = handle.wait().await;
    assert!(matches!(end, Err(SandboxError::Lost(_))), "{end:?}");
    assert!(matches!(handle.signal(9).await, Err(SandboxError::Lost(_))));
}

async fn files_are_served_again_when_their_server_has_died(engine: Engine) {
    let live = Live::new(&engine).await;
    live.shell("echo content > file; mkdir d; touch d/x").await;
    let files = live.session.files().await.unwrap();
    let listing = files.list("/workspace", 1, 100).await.unwrap();
    let mut names: Vec<String> = listing.entries.iter().map(|it| it.name.clone()).collect();
    names.sort();
    assert_eq!(names, ["d", "file"]);
    // No program can send it a signal; the host can.
    for spawner in processes("cove-spawner", &std::process::id().to_string()) {
        let inits = processes("cove-init", &spawner);
        inits.iter().flat_map(|init| processes("cove-files", init)).for_each(|pid| kill(&pid));
    }
    eventually(|| async { !files.is_alive() }).await;
    let again = live.session.files().await.unwrap();
    assert_eq!(again.list("/workspace", 1, 100).await.unwrap().entries.len(), 2);
}

async fn tools_work(engine: Engine) {
    let live = Live::new(&engine).await;
    let inotify = "import ctypes, os\nl = ctypes.CDLL(None)\nfd = l.inotify_init1(0)\n\
                   assert l.inotify_add_watch(fd, b'/workspace', 0x100) == 1\n\
                   open('/workspace/new', 'w')\nprint(os.read(fd, 100)[16:19])";
    let pool = "import multiprocessing\nprint(multiprocessing.Pool(2).map(abs, [-1, -2]))";
    let shell = |script| ["/bin/bash", "-c", script];
    for (argv, expected) in [
        (["/bin/bash", "-l", "-c", "echo $0"].as_slice(), "/bin/bash\n"),
        (&["/usr/bin/python3", "-c", inotify], "b'new'\n"),
        (&["/usr/bin/python3", "-c", pool], "[1, 2]\n"),
        (&shell("flock lock echo locked"), "locked\n"),
        (&shell("ps -e -o comm= > l; sort -u l | tr '\\n' ' '; pgrep -x bash > n; wc -l < n"), PS),
        (&shell("cat /proc/self/cgroup | grep -v ':/$'"), ""),
        (&shell("cat /proc/self/mountinfo | grep -c -e /root -e cove-session -e /tmp/cove"), "0\n"),
    ] {
        let output = Output::of(live.start(program(argv)).await).await;
        assert_eq!(output.stdout, expected, "{argv:?}: {}", output.stderr);
    }
    if std::path::Path::new("/usr/bin/git").exists() {
        let script = "git init -q r && cd r && echo x > f && git add f && \
                      git -c user.name=n -c user.email=e commit -qm m && cd .. && \
                      git clone -q r s && ls s";
        let output = live.shell(script).await;
        assert_eq!(output.stdout, "f\n", "{}", output.stderr);
    }
}

/// Last, because it kills every spawner.
async fn a_session_ends_with_its_spawner(engine: Engine) {
    let live = Live::new(&engine).await;
    let mut process = live.start(shell("sleep 60")).await;
    let ended = live.session.ended();
    for spawner in processes("cove-spawner", &std::process::id().to_string()) {
        kill(&spawner);
    }
    time::timeout(SOON, ended).await.unwrap();
    assert!(!live.session.is_alive());
    assert!(matches!(process.wait().await, Err(SandboxError::Lost(_))));
    assert!(live.session.start(shell("")).await.is_err());
    drop(live);
    let live = Live::new(&engine).await;
    assert_eq!(live.shell("echo again").await.stdout, "again\n");
}
