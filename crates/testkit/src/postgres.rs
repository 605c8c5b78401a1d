//! A PostgreSQL server of a test.

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::service::{Service, directory, find, free_port, give_away, unprivileged};
use crate::{Certificate, Scratch};

/// A running server that trusts whoever reaches it: on a Unix socket in its directory, and on a
/// port of loopback. It flushes nothing, because nothing of it outlives the test.
#[derive(Debug)]
pub struct Postgres {
    service: Service,
    port: u16,
    databases: AtomicU32,
}

impl Postgres {
    /// Makes a cluster and starts a server on it.
    #[must_use]
    pub fn start() -> Postgres {
        Postgres::start_in(directory(), &[])
    }

    /// The same, speaking TLS on its port, with a certificate for `localhost` that nobody signed
    /// but itself: [`Postgres::certificate`].
    #[must_use]
    pub fn start_with_tls() -> Postgres {
        let scratch = directory();
        let certificate = Certificate::new(&scratch);
        give_away(&certificate.key);
        let file = |path: &Path| path.display().to_string();
        let settings = [
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", file(&certificate.certificate)),
            format!("ssl_key_file={}", file(&certificate.key)),
        ];
        Postgres::start_in(scratch, &settings)
    }

    fn start_in(scratch: Scratch, settings: &[String]) -> Postgres {
        let directories = debian_directories();
        let data = scratch.path().join("data");
        let mut initdb = unprivileged(&find("initdb", &directories), "KILL");
        initdb.args(["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]);
        let made = initdb.args(["--no-locale", "--pgdata"]).arg(&data).output();
        let made = made.expect("start initdb");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        // The port names the socket as well. The directory of the socket is the test's own.
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
        let service = Service::start(scratch, &find("postgres", &directories), arguments, "QUIT");
        let server = Postgres { service, port, databases: AtomicU32::new(0) };
        server.wait_ready();
        server
    }

    /// One server for all tests that hold it at the same time; it ends with the last of them.
    #[must_use]
    pub fn shared() -> Arc<Postgres> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        match shared.upgrade() {
            Some(server) => server,
            None => {
                let server = Arc::new(Postgres::start());
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
            // Its last line says whether it takes connections.
            let text = fs::read_to_string(&pid_file).map_err(|error| error.to_string())?;
            let ready = text.lines().any(|line| line.trim() == "ready");
            ready.then_some(()).ok_or(text)
        });
    }

    /// The address of the database `name` over TCP.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{name}?sslmode=disable", self.port)
    }

    /// What a client has to trust of a server that speaks TLS.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.service.path().join("certificate.pem")
    }

    /// Makes an empty database that nobody else uses, and gives its address.
    #[must_use]
    pub fn database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.sql(&format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Runs SQL by `psql` as the superuser in the database `postgres` and gives what it prints.
    pub fn sql(&self, sql: &str) -> String {
        let mut psql = unprivileged(&find("psql", &debian_directories()), "KILL");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &self.url("postgres"), "-c", sql]);
        let output = psql.output().expect("start psql");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {errors}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Ends every connection, as a restart of the server does.
    pub fn cut_connections(&self) {
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
        );
    }
}

/// Where Debian keeps the server's programs, which are not in `PATH`; the newest version first.
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
