//! PostgreSQL server that the demo starts in its own directory, and a tenant for it.
//!
//! The server is recorded in the data directory before it starts, so that `--remove` finds it even
//! if the run that started it was interrupted.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use axum::http::Method;
use node::clock::IdGenerator;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{DEMO, DemoOutcome, delete, get_if_present};
use crate::config::CoveConfig;
use crate::remote::{self, Remote};

/// File of the data directory that records the demo's database.
const STATE_FILE: &str = "demo.json";
/// Directory of distribution packages whose programs are not on the search path.
const PACKAGED: &str = "/usr/lib/postgresql";
/// Users for a server that root starts: PostgreSQL does not run as root.
const USERS: [&str; 2] = ["postgres", "nobody"];
const WHAT: &str = "PostgreSQL";
const SUPERUSER: &str = "postgres";
/// User and database of the tenant.
const USER: &str = "demo";
const DATABASE: &str = "demo";
/// Server connections that all clients of the tenant share.
pub(super) const CONNECTIONS_MAX: u32 = 5;
/// Tables with rows. The password is set separately.
const TABLES: &str = "
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, city text NOT NULL);
INSERT INTO customers SELECT n, 'customer ' || n,
  (ARRAY['Lima', 'Oslo', 'Pune', 'Quito', 'Riga'])[n % 5 + 1] FROM generate_series(1, 40) n;
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL REFERENCES customers,
  total numeric(10, 2) NOT NULL, ordered_at timestamptz NOT NULL);
INSERT INTO orders SELECT n, n * 7 % 40 + 1, (n * 37 % 9000 + 500) / 100.0,
  now() - n * interval '1 hour' FROM generate_series(1, 600) n;
CREATE INDEX orders_customer ON orders (customer);
";

/// Held while a server is started or stopped: an interrupted run would do both at once.
static BUSY: Mutex<()> = Mutex::new(());

/// Server that the demo started.
#[derive(Debug, Deserialize, Serialize)]
struct DemoDatabase {
    directory: PathBuf,
    programs: PathBuf,
    /// Set once the database is filled.
    #[serde(default)]
    login: Option<DatabaseLogin>,
}

/// Login of clients.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct DatabaseLogin {
    pub(super) user: String,
    pub(super) password: String,
}

/// User of the operating system.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnixUser {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Address of a database, and its login.
#[derive(Debug)]
struct DatabaseAddress {
    server: String,
    database: String,
    user: String,
    password: String,
}

impl DatabaseAddress {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    fn parse(url: &str) -> Result<DatabaseAddress> {
        let read = || {
            let rest = url.strip_prefix("postgres://").or(url.strip_prefix("postgresql://"))?;
            let (login, place) = rest.rsplit_once('@')?;
            let (user, password) = login.split_once(':')?;
            let (server, database) = place.split_once('/')?;
            let is_whole = [user, password, server, database].iter().all(|it| !it.is_empty());
            let [server, database, user, password] =
                [server, database, user, password].map(str::to_owned);
            is_whole.then_some(DatabaseAddress { server, database, user, password })
        };
        read().context(
            "--postgres: it must have the form postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        )
    }
}

/// Creates the tenant, for the given database or for a server that it starts.
pub(super) async fn make(
    server: &Remote,
    config: &CoveConfig,
    url: Option<&str>,
) -> Result<DemoOutcome> {
    if get_if_present(server, &format!("/v1/tenants/{DEMO}")).await?.is_some() {
        return Ok(DemoOutcome::Present(format!("the tenant {DEMO} is there")));
    }
    let address = match url {
        Some(url) => DatabaseAddress::parse(url)?,
        None => {
            anyhow::ensure!(
                remote::is_local(server.base()),
                "the server is on another machine: name a database that it reaches by --postgres"
            );
            let data_dir = config.data_dir.clone();
            let started = tokio::task::spawn_blocking(move || start(&data_dir)).await;
            started.context("start PostgreSQL")??
        }
    };
    let body = json!({
        "name": DEMO, "engine": "postgres", "server": address.server, "database": address.database,
        "users": [{"name": address.user, "password": address.password}],
        "limits": {"server_connections_max": CONNECTIONS_MAX},
    });
    if let Err(failure) = server.ask_with(Method::POST, "/v1/tenants", Some(&body)).await {
        if url.is_none() {
            stop(&config.data_dir)?;
        }
        return Err(failure.into());
    }
    let (server, database) = (address.server, address.database);
    Ok(DemoOutcome::Made(format!("the tenant {DEMO}: database {database} at {server}")))
}

/// Removes the tenant, and the server if the demo has started one.
pub(super) async fn remove(server: &Remote, config: &CoveConfig) -> Result<DemoOutcome> {
    let was_there = delete(server, &format!("/v1/tenants/{DEMO}")).await?;
    let data_dir = config.data_dir.clone();
    let stopped =
        tokio::task::spawn_blocking(move || stop(&data_dir)).await.context("stop it")??;
    Ok(DemoOutcome::Removed(match (was_there, stopped) {
        (_, true) => format!("the tenant {DEMO}, its PostgreSQL server and its files"),
        (true, false) => format!("the tenant {DEMO}; its database is left as it is"),
        (false, false) => "there was none".to_owned(),
    }))
}

/// Finds the directory of PostgreSQL's programs: of the newest packaged version, or on the search
/// path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(PACKAGED).into_iter().flatten().flatten();
    let packaged = versions.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((version, entry.path().join("bin")))
    });
    let has_all =
        |path: &Path| ["initdb", "pg_ctl", "psql"].iter().all(|name| path.join(name).is_file());
    let newest = packaged.filter(|(_, path)| has_all(path)).max_by_key(|(version, _)| *version);
    newest.map(|(_, path)| path).or_else(|| {
        ["/usr/local/bin", "/usr/bin", "/usr/local/pgsql/bin", "/opt/homebrew/bin"]
            .map(PathBuf::from)
            .into_iter()
            .find(|path| has_all(path))
    })
}

/// Returns the user for a server: none for the current user, or the first existing one of `users`
/// if this process runs as root.
pub(super) fn unprivileged(what: &str, users: &[&str]) -> Result<Option<UnixUser>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let accounts = fs::read_to_string("/etc/passwd").context("read `/etc/passwd`")?;
    let of = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(str::parse);
        Some(UnixUser { uid: ids.next()?.ok()?, gid: ids.next()?.ok()? })
    };
    let user = users.iter().find_map(|name| of(name));
    let user = user.with_context(|| {
        format!("{what} does not run as root, and there is no user `{}`", users.join("` or `"))
    })?;
    Ok(Some(user))
}

impl DemoDatabase {
    fn command(&self, program: &str, user: Option<UnixUser>) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(&self.directory).env_clear().env("LC_ALL", "C").stdin(Stdio::null());
        if let Some(user) = user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    /// Runs a program to its end; if it fails, the error contains its output.
    fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        user: Option<UnixUser>,
        arguments: &[A],
        password: &str,
    ) -> Result<()> {
        let mut command = self.command(program, user);
        // A server that the program starts keeps its streams open, so they are a file.
        let log_path = self.directory.join(format!("{program}.log"));
        let log = fs::File::create(&log_path)?;
        command.args(arguments).env("PGPASSWORD", password);
        command.stdout(log.try_clone()?).stderr(log);
        let status = command.status().with_context(|| format!("run `{program}`"))?;
        let log_text = || fs::read_to_string(&log_path).unwrap_or_default();
        anyhow::ensure!(status.success(), "`{program}` failed ({status}): {}", log_text().trim());
        Ok(())
    }
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// Records a server, and replaces the previous record.
pub(super) fn note(state: &Path, server: &impl Serialize) -> Result<()> {
    let beside = state.with_extension("new");
    let write = || {
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => write_private(&beside, &serde_json::to_string(server)?)?,
        }
        fs::rename(&beside, state)
    };
    write().with_context(|| format!("write `{}`", state.display()))
}

/// Reads the record of a server, if there is one.
pub(super) fn noted<T: DeserializeOwned>(state: &Path) -> Result<Option<T>> {
    match fs::read_to_string(state) {
        Ok(text) => {
            let read = serde_json::from_str(&text);
            read.map(Some).with_context(|| format!("read `{}`", state.display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read `{}`", state.display())),
    }
}

/// Returns the login to the database that the demo started; none if it started none.
///
/// # Errors
/// If the record cannot be read.
pub(super) fn login(data_dir: &Path) -> Result<Option<DatabaseLogin>> {
    let database = noted::<DemoDatabase>(&data_dir.join(STATE_FILE))?;
    Ok(database.and_then(|database| database.login))
}

/// Writes a file that only this user can read.
pub(super) fn write_for(path: &Path, user: Option<UnixUser>, text: &str) -> io::Result<()> {
    write_private(path, text)?;
    user.map_or(Ok(()), |user| chown(path, Some(user.uid), Some(user.gid)))
}

/// Starts a server and fills a database.
fn start(data_dir: &Path) -> Result<DatabaseAddress> {
    let _one = BUSY.lock();
    let programs = programs().context(
        "no PostgreSQL server is installed: install the package `postgresql`, or \
         name a database by --postgres",
    )?;
    // Left by a run that was interrupted.
    stop_started(data_dir)?;
    let user = unprivileged(WHAT, &USERS)?;
    // Not in the data directory, which only its owner may enter.
    let name = IdGenerator::new()?.next("cove-demo-postgres-");
    let directory = std::env::temp_dir().join(name);
    let mut database = DemoDatabase { directory: directory.clone(), programs, login: None };
    // The server may be on another machine, and this one may have no data directory yet.
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
    let state = data_dir.join(STATE_FILE);
    note(&state, &database)?;
    DirBuilder::new().mode(0o700).create(&directory)?;
    if let Some(user) = user {
        chown(&directory, Some(user.uid), Some(user.gid))?;
    }
    let filled = fill(&database, user).and_then(|address| {
        let DatabaseAddress { user, password, .. } = &address;
        let login = DatabaseLogin { user: user.clone(), password: password.clone() };
        database.login = Some(login);
        note(&state, &database)?;
        Ok(address)
    });
    if filled.is_err() {
        stop_started(data_dir)?;
    }
    filled
}

fn fill(database: &DemoDatabase, user: Option<UnixUser>) -> Result<DatabaseAddress> {
    let [superuser_password, password] =
        [node::auth::random_key()?, node::auth::random_key()?].map(|it| node::hex::encode(&it));
    let password_file = database.directory.join("password");
    write_for(&password_file, user, &superuser_password)?;
    let data = database.directory.join("data");
    let (data, directory) = (data.as_os_str(), database.directory.display().to_string());
    let pwfile = format!("--pwfile={}", password_file.display());
    let auth = "--auth=scram-sha-256";
    let options = ["-U", SUPERUSER, auth, "--no-sync", "-E", "UTF8", "--locale=C"];
    let mut arguments = vec![OsStr::new("-D"), data, OsStr::new(&pwfile)];
    arguments.extend(options.map(OsStr::new));
    database.run("initdb", user, &arguments, "")?;
    // Released right before the server binds it.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let options = format!("-p {port} -h 127.0.0.1 -k '' -c fsync=off -c max_connections=50");
    let log = format!("{directory}/postgres.log");
    let arguments = ["-w", "-o", options.as_str(), "-l", log.as_str(), "start", "-D"];
    let mut arguments: Vec<_> = arguments.map(OsStr::new).to_vec();
    arguments.push(data);
    database.run("pg_ctl", user, &arguments, "")?;
    let port_text = port.to_string();
    // In a file, because other users can see a program's arguments.
    let script = database.directory.join("script.sql");
    let psql = |login: &str, password: &str, database_name: &str, sql: &str| {
        write_for(&script, user, sql)?;
        let server = ["-h", "127.0.0.1", "-p", &port_text, "-U", login, "-d", database_name];
        let how = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "script.sql"];
        let arguments: Vec<&str> = server.into_iter().chain(how).collect();
        database.run("psql", user, &arguments, password)?;
        Ok::<_, anyhow::Error>(fs::remove_file(&script)?)
    };
    // Hexadecimal digits cannot end the literal.
    let role = format!(
        "CREATE ROLE {USER} LOGIN PASSWORD '{password}';\nCREATE DATABASE {DATABASE} OWNER {USER};"
    );
    psql(SUPERUSER, &superuser_password, SUPERUSER, &role)?;
    psql(USER, &password, DATABASE, TABLES)?;
    Ok(DatabaseAddress {
        server: format!("127.0.0.1:{port}"),
        database: DATABASE.to_owned(),
        user: USER.to_owned(),
        password,
    })
}

/// Stops the recorded server, if there is one, and removes its files. Waits for a server that is
/// being started.
pub(super) fn stop(data_dir: &Path) -> Result<bool> {
    let _one = BUSY.lock();
    stop_started(data_dir)
}

fn stop_started(data_dir: &Path) -> Result<bool> {
    let state = data_dir.join(STATE_FILE);
    let Some(database) = noted::<DemoDatabase>(&state)? else { return Ok(false) };
    let data = database.directory.join("data");
    if data.join("postmaster.pid").exists() {
        let arguments = ["-m", "immediate", "-w", "stop", "-D"];
        let mut arguments: Vec<_> = arguments.map(OsStr::new).to_vec();
        arguments.push(data.as_os_str());
        database.run("pg_ctl", unprivileged(WHAT, &USERS)?, &arguments, "")?;
    }
    match fs::remove_dir_all(&database.directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let directory = database.directory.display();
            return Err(error).with_context(|| format!("remove `{directory}`"));
        }
        _ => fs::remove_file(&state)?,
    }
    Ok(true)
}
