//! MariaDB server that the demo starts in its own directory, and a tenant for it.
//!
//! The server is recorded in the data directory before it starts, as the PostgreSQL server is.

use std::fs::{self, DirBuilder, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::http::Method;
use node::clock::{self, IdGenerator};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::database::{CONNECTIONS_MAX, note, noted, unprivileged, write_for};
use super::{DemoOutcome, delete, get_if_present};
use crate::config::CoveConfig;
use crate::remote::{self, Remote};

/// Name of the tenant.
pub(super) const TENANT: &str = "cove-demo-mariadb";
/// File of the data directory that records the server.
const STATE_FILE: &str = "demo-mariadb.json";
/// Users for a server that root starts: MariaDB does not run as root.
const USERS: [&str; 2] = ["mysql", "nobody"];
/// User and database of the tenant.
const USER: &str = "demo";
const DATABASE: &str = "demo";
/// Time for a server to start, and to end.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Lines of the log that are shown if a server does not start.
const LINES_SHOWN: usize = 5;
/// Directories with the server's programs, in the installation prefixes.
const PLACES: [&str; 2] = ["/usr", "/usr/local"];
/// Settings of a small server whose data is disposable.
const SETTINGS: [&str; 7] = [
    "--skip-name-resolve",
    "--bind-address=127.0.0.1",
    "--innodb-log-file-size=8M",
    "--innodb-use-native-aio=0",
    "--innodb-buffer-pool-size=16M",
    "--innodb-flush-log-at-trx-commit=0",
    "--skip-log-bin",
];
/// Tables with rows, one statement per line: the server runs them before it accepts clients.
const TABLES: &str = "CREATE TABLE customers (id bigint PRIMARY KEY, \
    name varchar(40) NOT NULL, city varchar(20) NOT NULL);\n\
    INSERT INTO customers SELECT seq, CONCAT('customer ', seq), \
    ELT(seq % 5 + 1, 'Lima', 'Oslo', 'Pune', 'Quito', 'Riga') FROM seq_1_to_40;\n\
    CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL, \
    total decimal(10, 2) NOT NULL, ordered_at datetime NOT NULL, KEY (customer), \
    FOREIGN KEY (customer) REFERENCES customers (id));\n\
    INSERT INTO orders SELECT seq, seq * 7 % 40 + 1, (seq * 37 % 9000 + 500) / 100, \
    NOW() - INTERVAL seq HOUR FROM seq_1_to_600;\n";

/// Held while a server is started, or while its record is read to stop it.
static BUSY: Mutex<()> = Mutex::new(());

/// Server that the demo started.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct DemoMariaDb {
    directory: PathBuf,
    /// Id of the process, once it has started.
    #[serde(default)]
    pid: Option<u32>,
}

/// Server that is starting.
struct StartingMariaDb {
    server: DemoMariaDb,
    address: SocketAddr,
    password: String,
}

impl DemoMariaDb {
    fn process(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.pid?).ok()?)
    }

    /// Returns whether its process runs. The arguments are checked, because another process may
    /// have the same id by now; a process that has ended has no arguments.
    fn is_running(&self) -> bool {
        let Some(pid) = self.pid else { return false };
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let wanted = self.directory.display().to_string();
        arguments.windows(wanted.len()).any(|part| part == wanted.as_bytes())
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.directory.join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(LINES_SHOWN).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Creates the tenant of a server that it starts.
pub(super) async fn make(server: &Remote, config: &CoveConfig) -> Result<DemoOutcome> {
    if get_if_present(server, &format!("/v1/tenants/{TENANT}")).await?.is_some() {
        return Ok(DemoOutcome::Present(format!("the tenant {TENANT} is there")));
    }
    anyhow::ensure!(
        remote::is_local(server.base()),
        "the server is on another machine and cannot reach a MariaDB server on this one"
    );
    // Left by a run that was interrupted.
    stop(&config.data_dir).await?;
    let made = tenant(server, config).await;
    if made.is_err() {
        stop(&config.data_dir).await?;
    }
    made
}

async fn tenant(server: &Remote, config: &CoveConfig) -> Result<DemoOutcome> {
    let data_dir = config.data_dir.clone();
    let starting = tokio::task::spawn_blocking(move || start(&data_dir)).await;
    let StartingMariaDb { server: started, address, password } =
        starting.context("start MariaDB")??;
    ready(&started, address).await?;
    let body = json!({
        "name": TENANT, "engine": "mysql", "server": address.to_string(), "database": DATABASE,
        "users": [{"name": USER, "password": password}],
        "limits": {"server_connections_max": CONNECTIONS_MAX},
    });
    server.ask_with(Method::POST, "/v1/tenants", Some(&body)).await?;
    Ok(DemoOutcome::Made(format!("the tenant {TENANT}: database {DATABASE} at {address}")))
}

/// Removes the tenant, and the server.
pub(super) async fn remove(server: &Remote, config: &CoveConfig) -> Result<DemoOutcome> {
    let was_there = delete(server, &format!("/v1/tenants/{TENANT}")).await?;
    let stopped = stop(&config.data_dir).await?;
    Ok(DemoOutcome::Removed(match was_there || stopped {
        true => format!("the tenant {TENANT}, its MariaDB server and its files"),
        false => "there was none".to_owned(),
    }))
}

/// Finds the program that creates a data directory, the server, and their installation prefix.
fn programs() -> Option<(PathBuf, PathBuf, PathBuf)> {
    PLACES.iter().map(Path::new).find_map(|base| {
        let install = base.join("bin/mariadb-install-db");
        let server = ["sbin/mariadbd", "bin/mariadbd"].map(|it| base.join(it));
        let server = server.into_iter().find(|it| it.is_file())?;
        install.is_file().then(|| (install, server, base.to_owned()))
    })
}

/// Starts a server, which creates the tables before it accepts clients.
fn start(data_dir: &Path) -> Result<StartingMariaDb> {
    let _one = BUSY.lock();
    let (install, program, base) = programs()
        .context("no MariaDB server is installed: install the package `mariadb-server`")?;
    let user = unprivileged("MariaDB", &USERS)?;
    let directory = std::env::temp_dir().join(IdGenerator::new()?.next("cove-demo-mariadb-"));
    let mut server = DemoMariaDb { directory: directory.clone(), pid: None };
    let state = data_dir.join(STATE_FILE);
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
    note(&state, &server)?;
    DirBuilder::new().mode(0o700).create(&directory)?;
    if let Some(user) = user {
        chown(&directory, Some(user.uid), Some(user.gid))?;
    }
    let log = File::create(directory.join("server.log"))?;
    let place = |name: &str, path: &str| format!("--{name}={}", directory.join(path).display());
    let command = |program: &Path| -> Result<Command> {
        let mut command = Command::new(program);
        command.current_dir(&directory).env_clear().env("LC_ALL", "C");
        // One of the programs is a script.
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        if let Some(user) = user {
            command.uid(user.uid).gid(user.gid);
        }
        command.args(["--no-defaults", &format!("--basedir={}", base.display())]);
        command.args([place("datadir", "data"), place("tmpdir", "")]).args(SETTINGS);
        Ok(command)
    };
    let status = command(&install)?
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
        .status()
        .with_context(|| format!("run `{}`", install.display()))?;
    anyhow::ensure!(status.success(), "`mariadb-install-db` failed: {}", server.log_end());
    let [root_password, password] =
        [node::auth::random_key()?, node::auth::random_key()?].map(|it| node::hex::encode(&it));
    // Hexadecimal digits cannot end the literal.
    let script = format!(
        "ALTER USER root@localhost IDENTIFIED BY '{root_password}';\nCREATE DATABASE {DATABASE};\n\
         CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{password}';\n\
         GRANT ALL ON {DATABASE}.* TO {USER}@'127.0.0.1';\nUSE {DATABASE};\n{TABLES}"
    );
    write_for(&directory.join("script.sql"), user, &script)?;
    // Released right before the server binds it.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let child = command(&program)?
        .args([place("socket", "socket"), place("pid-file", "pid")])
        .args([place("init-file", "script.sql"), format!("--port={port}")])
        // Ctrl-C signals the demo only, which ends the server later.
        .process_group(0)
        .spawn()
        .with_context(|| format!("run `{}`", program.display()))?;
    server.pid = Some(child.id());
    note(&state, &server)?;
    let address = (Ipv4Addr::LOCALHOST, port).into();
    Ok(StartingMariaDb { server, address, password })
}

/// Waits until the server greets a client: the tables exist then.
async fn ready(server: &DemoMariaDb, address: SocketAddr) -> Result<()> {
    let greeted = async {
        loop {
            anyhow::ensure!(server.is_running(), "MariaDB has ended: {}", server.log_end());
            if let Ok(mut stream) = TcpStream::connect(address).await
                && stream.read_u8().await.is_ok()
            {
                return Ok(());
            }
            sleep(LOOK_INTERVAL).await;
        }
    };
    let late = || format!("MariaDB does not answer: {}", server.log_end());
    tokio::time::timeout(START_MAX, greeted).await.with_context(late)??;
    // It contains the passwords.
    Ok(fs::remove_file(server.directory.join("script.sql"))?)
}

/// Stops the recorded server, if there is one, and removes its files. Waits for a server that is
/// being started.
pub(super) async fn stop(data_dir: &Path) -> Result<bool> {
    let state = data_dir.join(STATE_FILE);
    let path = state.clone();
    let known = tokio::task::spawn_blocking(move || {
        let _one = BUSY.lock();
        noted::<DemoMariaDb>(&path)
    });
    let Some(server) = known.await.context("look for MariaDB")?? else { return Ok(false) };
    let begun = clock::now();
    while server.is_running() {
        // Its data is disposable, so it is killed without a clean shutdown.
        if let Some(pid) = server.process() {
            // A process that has ended meanwhile needs no signal.
            let _ = kill_process(pid, Signal::KILL);
        }
        anyhow::ensure!(begun.elapsed() < START_MAX, "MariaDB does not end");
        sleep(LOOK_INTERVAL).await;
    }
    match fs::remove_dir_all(&server.directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let directory = server.directory.display();
            return Err(error).with_context(|| format!("remove `{directory}`"));
        }
        _ => fs::remove_file(&state)?,
    }
    Ok(true)
}
