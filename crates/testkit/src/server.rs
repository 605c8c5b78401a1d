//! Process of one `cove serve`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::{Client, NetworkPlace, Scratch, log, process, until};

/// Library that simulates another system time, from Debian's package `libfaketime`.
const LIBFAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// Languages of servers whose configuration names none: the built-in ones without a compiled
/// standard library of Go, which takes more than a minute of processor time.
const LANGUAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cove/tests/cases/languages.toml");
/// Time to start on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Time to stop after SIGTERM when no work is running.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Returns a command that runs `binary` without Cove's variables of the test environment.
pub fn command(binary: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"COVE_") {
            command.env_remove(name);
        }
    }
    command
}

/// Running server with its own data directory. Dropping it stops the server, and searches its log
/// for warnings and errors that [`Server::expect_log`] did not announce.
#[derive(Debug)]
pub struct Server {
    child: Child,
    binary: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, String)>,
    place: NetworkPlace,
    scratch: Scratch,
    address: SocketAddr,
    token: String,
    expected: Vec<String>,
    ended: bool,
}

impl Server {
    /// Starts `binary` and waits until it is ready.
    #[must_use]
    pub fn start(binary: &str) -> Server {
        Server::start_with(binary, &[], None)
    }

    /// Starts it with more arguments and optionally a configuration file with this content.
    #[must_use]
    pub fn start_with(binary: &str, arguments: &[&str], config: Option<&str>) -> Server {
        let place = NetworkPlace::LOOPBACK;
        Server::start_in(place, Scratch::new(), binary, arguments, config, Vec::new())
    }

    /// Starts it on a data directory that `prepare` creates: `data` in the test's directory.
    #[must_use]
    pub fn start_on(binary: &str, config: &str, prepare: impl FnOnce(&Scratch)) -> Server {
        let scratch = Scratch::new();
        prepare(&scratch);
        let place = NetworkPlace::LOOPBACK;
        Server::start_in(place, scratch, binary, &[], Some(config), Vec::new())
    }

    /// Starts `binary` on a machine of a network.
    #[must_use]
    pub fn start_at(place: NetworkPlace, binary: &str, config: &str) -> Server {
        Server::start_in(place, Scratch::new(), binary, &[], Some(config), Vec::new())
    }

    /// Starts the catalog alone.
    #[must_use]
    pub fn start_catalog(binary: &str, config: Option<&str>) -> Server {
        Server::start_as(
            &["catalog", "serve", "--http", "127.0.0.1:0"],
            NetworkPlace::LOOPBACK,
            Scratch::new(),
            binary,
            config,
            Vec::new(),
        )
    }

    /// Starts another server with the same tokens and keys, like servers behind one balancer.
    #[must_use]
    pub fn start_beside(&self, config: &str) -> Server {
        self.start_beside_with(NetworkPlace::LOOPBACK, config, Vec::new())
    }

    /// Starts such a server on another machine of a network.
    #[must_use]
    pub fn start_beside_on(&self, place: NetworkPlace, config: &str) -> Server {
        self.start_beside_with(place, config, Vec::new())
    }

    /// Starts such a server with a shifted wall clock: `+10m`, `-40s`.
    ///
    /// # Panics
    /// If `libfaketime` is not installed.
    #[must_use]
    pub fn start_beside_at(&self, config: &str, offset: &str) -> Server {
        let environment = faked_clock(("FAKETIME", offset.to_owned()));
        let server = self.start_beside_with(NetworkPlace::LOOPBACK, config, environment.clone());
        // The log shows its start, in this minute or the previous one.
        let minutes = ["now", "1 minute ago"].map(|when| {
            let mut date = Command::new("date");
            date.args(["-u", "+%Y-%m-%dT%H:%M", "-d", when]);
            let output = date.envs(environment.iter().cloned()).output().expect("run `date`");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        });
        let log = server.log();
        let is_off = minutes.iter().any(|minute| log.contains(minute.as_str()));
        assert!(is_off, "the server's clock is as it was, not {offset}\n{log}");
        server
    }

    /// Starts such a server with a wall clock that [`Server::set_clock`] changes while it runs.
    ///
    /// # Panics
    /// If `libfaketime` is not installed.
    #[must_use]
    pub fn start_beside_with_clock(&self, config: &str) -> Server {
        let file = self.scratch.file("clock", "+0\n").display().to_string();
        let mut environment = faked_clock(("FAKETIME_TIMESTAMP_FILE", file));
        environment.push(("FAKETIME_NO_CACHE", "1".to_owned()));
        self.start_beside_with(NetworkPlace::LOOPBACK, config, environment)
    }

    /// Sets the wall clock of such a server to this many seconds after the real time, and waits
    /// until its log shows that.
    ///
    /// # Panics
    /// If it does not.
    pub fn set_clock(&self, ahead_s: i64) {
        let file = self.environment.iter().find(|(name, _)| *name == "FAKETIME_TIMESTAMP_FILE");
        let (_, file) = file.expect("a server whose clock can be set");
        fs::write(file, format!("{ahead_s:+}\n")).expect("set the clock");
        let said = self.log().len();
        until("the clock to be another one", STOP_LIMIT, || {
            // SIGHUP makes it log a reload.
            self.signal("HUP");
            let mut wanted = Command::new("date");
            wanted.args(["-u", "+%Y-%m-%dT%H:%M", "-d", &format!("{ahead_s} seconds")]);
            let output = wanted.output().expect("run `date`");
            let wanted = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let log = self.log();
            match log[said..].contains(&wanted) {
                true => Ok(()),
                false => Err(format!("no {wanted} in {}", &log[said..])),
            }
        });
    }

    fn start_beside_with(
        &self,
        place: NetworkPlace,
        config: &str,
        environment: Vec<(&'static str, String)>,
    ) -> Server {
        let scratch = Scratch::new();
        let data = scratch.path().join("data");
        fs::DirBuilder::new().mode(0o700).create(&data).expect("create the data directory");
        for name in ["token", "tokens.jsonl", "webhook.key", "secrets.key"] {
            match fs::copy(self.data_dir().join(name), data.join(name)) {
                // The configuration contains the key.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => drop(copied.expect("copy what servers share")),
            }
        }
        let binary = self.binary.display().to_string();
        Server::start_in(place, scratch, &binary, &[], Some(config), environment)
    }

    fn start_in(
        place: NetworkPlace,
        scratch: Scratch,
        binary: &str,
        arguments: &[&str],
        config: Option<&str>,
        mut environment: Vec<(&'static str, String)>,
    ) -> Server {
        if !config.is_some_and(|config| config.contains("languages")) {
            environment.push(("COVE_EXECUTIONS__LANGUAGES", LANGUAGES.to_owned()));
        }
        let mut all = vec!["serve"];
        let listeners = ["--http", "--bouncer", "--bouncer-mysql"];
        let addresses = [4100, 6432, 6033].map(|port| place.listener(port).to_string());
        for (listener, address) in listeners.iter().zip(&addresses) {
            all.extend([*listener, address]);
        }
        all.extend(arguments);
        Server::start_as(&all, place, scratch, binary, config, environment)
    }

    fn start_as(
        arguments: &[&str],
        place: NetworkPlace,
        scratch: Scratch,
        binary: &str,
        config: Option<&str>,
        environment: Vec<(&'static str, String)>,
    ) -> Server {
        let mut all: Vec<OsString> = arguments.iter().map(Into::into).collect();
        all.extend(["--data-dir".into(), scratch.path().join("data").into_os_string()]);
        if let Some(config) = config {
            all.extend(["--config".into(), scratch.file("cove.toml", config).into_os_string()]);
        }
        let mut server = Server {
            child: spawn(&place, binary.as_ref(), &all, &environment, &scratch),
            binary: PathBuf::from(binary),
            arguments: all,
            environment,
            scratch,
            address: SocketAddr::new(place.address, 0),
            place,
            token: String::new(),
            expected: Vec::new(),
            ended: false,
        };
        server.wait_until_ready();
        server
    }

    /// Kills the server as a crash would, unless it has ended, and restarts it on the same data. It
    /// then listens on another port.
    pub fn restart(&mut self) {
        if !self.ended {
            self.signal("KILL");
            self.wait(STOP_LIMIT);
        }
        // The old addresses would lead to any program that uses the port now.
        match fs::remove_file(self.data_dir().join("addresses.json")) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
        self.child =
            spawn(&self.place, &self.binary, &self.arguments, &self.environment, &self.scratch);
        self.ended = false;
        self.wait_until_ready();
    }

    /// Starts the next server on the same data, which stops this one because of `--takeover` among
    /// its arguments, and waits until the next server is ready.
    ///
    /// # Panics
    /// If this one does not stop as after SIGTERM.
    pub fn replace(&mut self) {
        let next =
            spawn(&self.place, &self.binary, &self.arguments, &self.environment, &self.scratch);
        let mut former = std::mem::replace(&mut self.child, next);
        let status = until("the end of the former server", STOP_LIMIT, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the next server ended at its start: {status}\n{}", self.log());
            }
            match former.try_wait() {
                Ok(Some(status)) => Ok(status),
                Ok(None) => Err("running".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        });
        assert!(status.success(), "the former server: {status}\n{}", self.log());
        self.wait_until_ready();
    }

    /// Returns a command with the data directory and the configuration of this server.
    #[must_use]
    pub fn command(&self, name: &str) -> Command {
        let mut command = command(&self.binary);
        command.args([name, "--data-dir"]).arg(self.data_dir());
        let config = self.scratch.path().join("cove.toml");
        if config.exists() {
            command.arg("--config").arg(config);
        }
        command
    }

    /// Returns a client with a new token, and thus another tenant.
    #[must_use]
    pub fn other_client(&self, name: &str, more: &[&str]) -> Client {
        let mut create = self.command("token");
        let output = create.args(["create", "--name", name]).args(more).output();
        let output = output.expect("run `cove token create`");
        assert!(output.status.success(), "cove token create: {output:?}");
        let token = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let client = Client::new(self.address, Some(token));
        // A running server accepts new tokens within a second.
        until("the new token to be known", STOP_LIMIT, || {
            let response = client.get("/v1/languages");
            if response.status == 200 { Ok(()) } else { Err(response.text()) }
        });
        client
    }

    fn wait_until_ready(&mut self) {
        self.address = until("addresses.json and /health/ready", START_LIMIT, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the server ended at its start: {status}\n{}", self.log());
            }
            let address = read_address(&self.data_dir(), "http")?;
            let ready =
                Client::new(address, None).try_send(&crate::Request::new("GET", "/health/ready"));
            match ready {
                Ok(response) if response.status == 200 => Ok(address),
                Ok(response) => Err(format!("{} {}", response.status, response.text())),
                Err(error) => Err(error.to_string()),
            }
        });
        let mut token = self.command("token");
        if !self.data_dir().join("token").exists() {
            // On a shared store the first token belongs to the first server.
            token.args(["create", "--name", "testkit", "--operator"]);
        }
        let output = token.output().expect("run `cove token`");
        assert!(output.status.success(), "cove token: {output:?}");
        self.token = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(!self.token.is_empty(), "cove token printed nothing");
    }

    /// Returns a client with the server's token.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.address, Some(self.token.clone()))
    }

    /// Returns the address of a listener, by its name.
    ///
    /// # Panics
    /// If there is none with this name.
    #[must_use]
    pub fn listener(&self, name: &str) -> SocketAddr {
        read_address(&self.data_dir(), name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the first token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the process id of the server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// Returns a directory for files of the test, which is removed with the server.
    #[must_use]
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Returns everything that the server printed and logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.scratch.path().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Declares that a WARN or ERROR line that contains `text` is expected.
    pub fn expect_log(&mut self, text: &str) {
        self.expected.push(text.to_owned());
    }

    /// Sends a signal, named without `SIG`.
    pub fn signal(&self, name: &str) {
        process::signal(self.pid(), name);
    }

    /// Waits until the server has ended.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let status = until("the end of the server", limit, || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err("running".to_owned()),
            Err(error) => Err(error.to_string()),
        });
        self.ended = true;
        status
    }

    fn stop(&mut self) -> Result<(), String> {
        if self.ended {
            return Ok(());
        }
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the server had ended by itself: {status}"));
        }
        self.signal("TERM");
        let stopped =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.wait(STOP_LIMIT)));
        match stopped {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("after SIGTERM: {status}")),
            Err(_) => {
                drop(self.child.kill());
                drop(self.child.wait());
                Err(format!("still there {STOP_LIMIT:?} after SIGTERM"))
            }
        }
    }
}

/// Starts a server that appends to the existing log.
fn spawn(
    place: &NetworkPlace,
    binary: &Path,
    arguments: &[OsString],
    environment: &[(&'static str, String)],
    scratch: &Scratch,
) -> Child {
    let path = scratch.path().join("server.log");
    let log = File::options().create(true).append(true).open(path).expect("open the log");
    let errors = log.try_clone().expect("share the log");
    let mut command = place.command(binary);
    command.args(arguments).stdin(Stdio::null()).stdout(log).stderr(errors);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.spawn().unwrap_or_else(|error| panic!("start {}: {error}", binary.display()))
}

fn read_address(data_dir: &Path, name: &str) -> Result<SocketAddr, String> {
    let path = data_dir.join("addresses.json");
    let text = fs::read(&path).map_err(|error| error.to_string())?;
    let json: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let address = json[name].as_str().ok_or_else(|| format!("no {name:?} in {json}"))?;
    address.parse().map_err(|_| format!("{address:?} is not an address"))
}

/// Returns the environment of a program whose wall clock a variable sets.
fn faked_clock(by: (&'static str, String)) -> Vec<(&'static str, String)> {
    let library = Path::new(LIBFAKETIME);
    assert!(library.exists(), "there is no `{LIBFAKETIME}`; scripts/test-deps.sh installs it");
    let preload = ("LD_PRELOAD", LIBFAKETIME.to_owned());
    // A wrong wall clock does not affect the monotonic one.
    vec![preload, by, ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned())]
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = self.stop();
        let log = self.log();
        if std::thread::panicking() {
            let tail: Vec<&str> = log.lines().rev().take(30).collect();
            for line in tail.into_iter().rev() {
                report(line);
            }
            return;
        }
        if let Err(problem) = stopped {
            panic!("{problem}\n{log}");
        }
        let alarms = log::unlisted(&log, &self.expected);
        assert!(alarms.is_empty(), "unexpected in the server's log:\n{}", alarms.join("\n"));
    }
}

#[expect(clippy::print_stderr, reason = "shown by the test harness when the test has failed")]
fn report(line: &str) {
    eprintln!("server: {line}");
}
