//! Real servers that tests need besides Cove: each has its own directory and port, and ends when it
//! is dropped or the test process ends.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{Scratch, process, until};

/// User of the servers if the test runs as root, with which PostgreSQL refuses to start.
const USER: &str = "nobody";
/// Time to start on a busy machine.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);

/// Process of a server, with its directory.
#[derive(Debug)]
pub(crate) struct Service {
    scratch: Scratch,
    pid: u32,
    /// Signal that stops it at once without losing data.
    stop: &'static str,
    waiter: Option<JoinHandle<()>>,
}

/// Returns a program from `PATH` or these directories.
pub(crate) fn find(program: &str, directories: &[PathBuf]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(&path).chain(directories.iter().cloned());
    let mut candidates = candidates.map(|directory| directory.join(program));
    candidates
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("there is no `{program}`; scripts/test-deps.sh installs it"))
}

/// Creates an empty directory that belongs to the servers' user.
pub(crate) fn directory() -> Scratch {
    let scratch = Scratch::new();
    give_away(scratch.path());
    scratch
}

/// Makes the servers' user the owner of a file or directory.
pub(crate) fn give_away(path: &Path) {
    if let Some((uid, gid)) = dropped() {
        chown(path, Some(uid), Some(gid)).expect("give a file to the server's user");
    }
}

/// Returns the user and group ids of servers; none if the test does not run as root.
fn dropped() -> Option<(u32, u32)> {
    let status = fs::read_to_string("/proc/self/status").expect("read /proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("a user id");
    // Real, effective, saved, file system (proc_pid_status(5)).
    if line.split_whitespace().nth(1) != Some("0") {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("read /etc/passwd");
    let line = users.lines().find(|line| line.split(':').next() == Some(USER));
    let fields: Vec<&str> = line.unwrap_or_else(|| panic!("no user {USER}")).split(':').collect();
    let number = |index: usize| fields[index].parse().expect("a number in /etc/passwd");
    Some((number(2), number(3)))
}

/// Returns a command that runs without privileges and receives `signal` when the thread that
/// started it ends.
pub(crate) fn unprivileged(program: &Path, signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    if let Some((uid, gid)) = dropped() {
        command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
        command.arg("--clear-groups");
    }
    command.arg("--pdeathsig").arg(signal).arg("--").arg(program);
    // The server may not be able to enter the test's directory.
    command.current_dir("/").stdin(Stdio::null());
    command
}

impl Service {
    /// Starts `program` in `scratch`, with the log file `log` there.
    pub(crate) fn start(
        scratch: Scratch,
        program: &Path,
        arguments: Vec<OsString>,
        stop: &'static str,
    ) -> Service {
        let mut command = unprivileged(program, stop);
        command.args(arguments);
        Service::start_command(scratch, command, stop)
    }

    /// Starts a command that ends with the thread that starts it.
    pub(crate) fn start_command(scratch: Scratch, command: Command, stop: &'static str) -> Service {
        let (pid, waiter) = spawn(&scratch, command);
        Service { scratch, pid, stop, waiter: Some(waiter) }
    }

    /// Starts a command that replaces the ended one.
    pub(crate) fn start_again(&mut self, command: Command) {
        self.stop();
        let (pid, waiter) = spawn(&self.scratch, command);
        (self.pid, self.waiter) = (pid, Some(waiter));
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub(crate) fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Waits until `probe` succeeds; panics with the log on a timeout.
    pub(crate) fn wait_ready(&self, what: &str, mut probe: impl FnMut() -> Result<(), String>) {
        until(what, START_LIMIT, || {
            if self.waiter.as_ref().is_some_and(JoinHandle::is_finished) {
                panic!("{what} ended at its start:\n{}", self.log());
            }
            probe().map_err(|error| format!("{error}\n{}", self.log()))
        });
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// Sends a signal, named without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        process::signal(self.pid, name);
    }

    /// Stops the process and waits for its end.
    pub(crate) fn stop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            if !waiter.is_finished() {
                process::signal(self.pid, self.stop);
            }
            drop(waiter.join());
        }
    }
}

/// Starts a process with the log file `log` in `scratch`.
fn spawn(scratch: &Scratch, mut command: Command) -> (u32, JoinHandle<()>) {
    let path = scratch.path().join("log");
    let log = File::options().create(true).append(true).open(path).expect("open the log");
    let errors = log.try_clone().expect("share the log");
    command.stdout(log).stderr(errors);
    let (started, pid) = mpsc::channel();
    // The kernel sends the signal when the thread that started the process ends, and test threads
    // end before the values that tests share. This thread ends with the process.
    let waiter = thread::spawn(move || {
        let mut child: Child = command.spawn().expect("start the server");
        started.send(child.id()).expect("somebody waits for the id");
        child.wait().expect("wait for the server");
    });
    let pid = pid.recv().expect("the server was started");
    (pid, waiter)
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ports below those that Linux allocates dynamically (`ip_local_port_range` in ip(7)).
const PORTS: Range<u32> = 10_000..32_000;
/// Number of ports for the servers of one process, before those of the next one.
const PORTS_EACH: u32 = 97;

/// Returns an unused TCP port for a server that requires a fixed one. No other server of this
/// process receives it, and the kernel never allocates it to clients or listeners at port 0, so it
/// stays free until the server starts, and during a restart.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_EACH);
    let mut candidates = PORTS.map(|_| {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + number % (PORTS.end - PORTS.start);
        u16::try_from(port).expect("ports are numbers of two bytes")
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    candidates.find(is_free).expect("a port that nobody listens at")
}
