//! `cove bouncer --pgbouncer-ini FILE`: the pooler alone, started and controlled as PgBouncer is.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use bouncer::Bouncer;
use bouncer::config::BouncerConfig;
use bouncer::pgbouncer::command::ShutdownWait;
use bouncer::pgbouncer::console::ConsoleHost;
use bouncer::pgbouncer::ini::{self, ParsedIni};
use bouncer::pgbouncer::settings::SettingValues;
use bouncer::pgbouncer::{tenants, userlist};
use bouncer::relay::orders::ThreadCommand;
use bouncer::relay::snapshot::{ClientState, ServerState};
use bouncer::relay::{ErrorDialect, Relay};
use bouncer::service::RelayThreads as _;
use node::drain::{DrainHandle, Hangups};
use node::{auth, clock, telemetry};
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing_subscriber::Layer as _;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{BouncerContext, ConfigUpdate, LOOK_EVERY, RunningBouncer};
use crate::cli::BouncerArgs;

/// Drain timeout of a database for which the file sets none.
const DRAIN: Duration = Duration::from_secs(60);

/// Longest file of users, in bytes.
const USERS_BYTES_MAX: u64 = 64 << 20;

/// Longest settings file, in bytes.
const INI_BYTES_MAX: u64 = 16 << 20;

/// PgBouncer settings file, and the changes made since it was read.
#[derive(Debug)]
pub(super) struct IniFile {
    path: PathBuf,
    state: Mutex<PgbouncerState>,
    ending: watch::Sender<Option<ShutdownWait>>,
}

#[derive(Debug)]
struct PgbouncerState {
    ini: ParsedIni,
    values: SettingValues,
    /// True if `SET` changed a value, which the next reload applies; otherwise it reads the file.
    is_set: bool,
    /// Ineffective settings that were logged already.
    noted: BTreeSet<String>,
}

impl IniFile {
    /// Reads the file.
    pub(super) fn open(path: &Path) -> Result<(Arc<IniFile>, BouncerConfig), String> {
        let (ini, values) = load(path)?;
        let state = PgbouncerState { ini, values, is_set: false, noted: BTreeSet::new() };
        let file = IniFile {
            path: path.to_owned(),
            state: Mutex::new(state),
            ending: watch::Sender::new(None),
        };
        let config = file.translated(&mut file.state.lock())?;
        Ok((Arc::new(file), config))
    }

    /// Reads the file again, or applies values changed by `SET`.
    pub(super) fn reread(&self) -> Result<BouncerConfig, String> {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.is_set) {
            let (ini, values) = load(&self.path)?;
            let before = std::mem::replace(&mut state.ini, ini);
            let values_before = std::mem::replace(&mut state.values, values);
            return self.translated(&mut state).inspect_err(|error| {
                tracing::error!("{error}");
                state.ini = before;
                state.values = values_before;
            });
        }
        self.translated(&mut state)
    }

    fn translated(&self, state: &mut PgbouncerState) -> Result<BouncerConfig, String> {
        let users = match state.values.text("auth_file") {
            "" => Vec::new(),
            file => {
                let path = PathBuf::from(file);
                match read(&path, USERS_BYTES_MAX) {
                    Ok(text) => {
                        userlist::parse(&text).map_err(|error| format!("{file}: {error}"))?
                    }
                    // The file may be created later; until then no user can log in.
                    Err(error) => {
                        tracing::error!("could not open auth_file {}: {error}", path.display());
                        Vec::new()
                    }
                }
            }
        };
        let translated = tenants::translate(&state.ini, &state.values, &users);
        let translated = translated.map_err(|error| error.to_string())?;
        for note in translated.notes {
            if state.noted.insert(note.what.clone()) {
                tracing::warn!("{} has no effect: {}", note.what, note.why);
            }
        }
        Ok(translated.config)
    }

    /// Starts the shutdown, as `SHUTDOWN` does.
    pub(super) fn end(&self, wait: ShutdownWait) {
        self.ending.send_modify(|ending| {
            *ending = Some(match (*ending, wait) {
                // A second request stops at once.
                (Some(_), _) | (None, ShutdownWait::Nobody) => ShutdownWait::Nobody,
                (None, wait) => wait,
            });
        });
    }

    /// Returns a receiver that reports a shutdown request and its mode.
    pub(super) fn endings(&self) -> watch::Receiver<Option<ShutdownWait>> {
        self.ending.subscribe()
    }
}

impl ConsoleHost for IniFile {
    fn words(&self) -> ErrorDialect {
        ErrorDialect::PgBouncer
    }

    fn values(&self) -> SettingValues {
        self.state.lock().values.clone()
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        let mut state = self.state.lock();
        let before = state.values.clone();
        state.values.set(key, value)?;
        // Rejects a value that cannot be applied here, rather than at the next reload.
        if let Err(error) = self.translated(&mut state) {
            state.values = before;
            return Err(error);
        }
        state.is_set = true;
        Ok(())
    }

    fn shutdown(&self, wait: ShutdownWait) {
        self.end(wait);
    }

    fn is_shutting_down(&self) -> bool {
        self.ending.borrow().is_some()
    }
}

fn load(path: &Path) -> Result<(ParsedIni, SettingValues), String> {
    let mut reading = |path: &Path| read(path, INI_BYTES_MAX);
    let ini = ini::load(path, &mut reading).map_err(|error| error.to_string())?;
    let values = SettingValues::from_entries(&ini.settings).map_err(|error| error.to_string())?;
    Ok((ini, values))
}

/// Reads a file of limited length.
fn read(path: &Path, bytes_max: u64) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    match u64::try_from(read).is_ok_and(|read| read <= bytes_max) {
        true => Ok(text),
        false => Err(io::Error::other(format!("it has more than {bytes_max} bytes"))),
    }
}

/// Runs `cove bouncer --pgbouncer-ini FILE`.
pub(super) fn run(args: &BouncerArgs) -> Result<ExitCode> {
    let path = args.pgbouncer_ini.as_deref().context("no file of PgBouncer")?;
    let (ini, _) = load(path).map_err(|error| anyhow!("{error}"))?;
    let values = SettingValues::from_entries(&ini.settings)?;
    let journal = LogJournal::open(values.text("logfile"), args.quiet)?;
    journal.install()?;
    let (file, config) = IniFile::open(path).map_err(|error| anyhow!("{error}"))?;
    let pid_file = PidFile::write(values.text("pidfile"))?;
    let done = super::control_plane()?.block_on(work(file, config));
    drop(pid_file);
    done.map(|()| ExitCode::SUCCESS)
}

async fn work(file: Arc<IniFile>, config: BouncerConfig) -> Result<()> {
    let mut registry = telemetry::registry(env!("CARGO_PKG_VERSION"));
    let login_secret = auth::random_key().context("failed to make a key")?;
    let host: Arc<dyn ConsoleHost> = Arc::<IniFile>::clone(&file);
    let hangups = Some(Hangups::new().context("failed to listen to signals")?);
    let context =
        BouncerContext { store: None, login_secret, host, succession: None, hangups, limits: None };
    let again = Arc::clone(&file);
    let update = ConfigUpdate {
        config,
        // Passwords in the file are literal.
        resolve: Arc::new(|_, text| Ok(text.to_owned())),
        reread: Arc::new(move || again.reread()),
    };
    let running = RunningBouncer::start_with(update, context, &mut registry).await?;
    let RunningBouncer { bouncer, relay, client_tls, server_tls, mut hangups, for_peers: _ } =
        running.context("there is no bouncer")?;
    let drain = DrainHandle::new();
    tokio::select! {
        () = bouncer.work(&drain, DRAIN) => {}
        () = super::reload(&bouncer, hangups.as_mut()) => {}
        () = super::renew_certificates(&client_tls, &server_tls) => {}
        done = handle_signals(&file, &bouncer) => done?,
        () = end(&file, &bouncer, &relay) => {}
    }
    node::task::blocking(move || relay.stop()).await.context("the end failed")
}

/// Handles signals as PgBouncer does, except `SIGHUP`, which the reload task handles. Returns only
/// on an error.
async fn handle_signals(file: &IniFile, bouncer: &Bouncer) -> Result<()> {
    let of = |kind| signal(kind).context("failed to listen to signals");
    let mut terminate = of(SignalKind::terminate())?;
    let mut interrupt = of(SignalKind::interrupt())?;
    let mut quit = of(SignalKind::quit())?;
    let mut pause = of(SignalKind::user_defined1())?;
    let mut resume = of(SignalKind::user_defined2())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => {
                tracing::info!("got SIGTERM, shutting down, waiting for all clients disconnect");
                file.end(ShutdownWait::Clients);
            }
            _ = interrupt.recv() => {
                tracing::info!("got SIGINT, shutting down, waiting for all servers connections \
                                to be released");
                file.end(ShutdownWait::Servers);
            }
            _ = quit.recv() => {
                tracing::info!("got SIGQUIT, fast exit");
                file.end(ShutdownWait::Nobody);
            }
            _ = pause.recv() => {
                tracing::info!("got SIGUSR1, pausing all activity");
                each(bouncer, |name| bouncer.pause(name, false));
            }
            _ = resume.recv() => {
                if file.is_shutting_down() {
                    tracing::info!("got SIGUSR2 while shutting down, ignoring");
                } else {
                    tracing::info!("got SIGUSR2, continuing from PAUSE");
                    each(bouncer, |name| bouncer.resume(name));
                }
            }
        }
    }
}

fn each(bouncer: &Bouncer, act: impl Fn(&str) -> Result<(), bouncer::BouncerError>) {
    for tenant in bouncer.routing().tenants() {
        if let Err(error) = act(&tenant.name) {
            // The tenant was removed meanwhile.
            tracing::debug!(%error, tenant = &*tenant.name, "act on a database");
        }
    }
}

/// Waits for a shutdown request, and then for servers or clients if its mode requires that.
async fn end(file: &IniFile, bouncer: &Bouncer, relay: &Relay) {
    let mut endings = file.endings();
    let mut wait = None;
    loop {
        match wait {
            Some(ShutdownWait::Nobody) => return,
            Some(ShutdownWait::Servers) if !any_busy(bouncer).await => return,
            Some(ShutdownWait::Clients) if !any_client(bouncer).await => return,
            Some(ShutdownWait::Servers | ShutdownWait::Clients) | None => {}
        }
        let next_check = async {
            match wait {
                Some(_) => tokio::time::sleep(LOOK_EVERY).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = endings.changed() => {
                if changed.is_err() {
                    return;
                }
                wait = *endings.borrow_and_update();
                relay.order(&|| ThreadCommand::StopListening);
                if wait == Some(ShutdownWait::Servers) {
                    each(bouncer, |name| bouncer.pause(name, false));
                }
            }
            () = next_check => {}
        }
    }
}

/// Returns whether a client holds a server connection.
async fn any_busy(bouncer: &Bouncer) -> bool {
    let snapshots = bouncer.snapshots().await;
    let mut servers = snapshots.iter().flat_map(|snapshot| &snapshot.servers);
    servers.any(|server| server.state == ServerState::Active)
}

/// Returns whether a client is connected, apart from clients of the console.
async fn any_client(bouncer: &Bouncer) -> bool {
    let snapshots = bouncer.snapshots().await;
    let mut clients = snapshots.iter().flat_map(|snapshot| &snapshot.clients);
    clients.any(|client| !matches!(client.state, ClientState::Console | ClientState::Closing))
}

/// Destinations of log lines.
struct LogJournal {
    file: Option<Arc<File>>,
    is_quiet: bool,
}

impl LogJournal {
    fn open(path: &str, is_quiet: bool) -> Result<LogJournal> {
        let open = |path: &str| File::options().create(true).append(true).open(path);
        let file = (!path.is_empty()).then(|| open(path)).transpose();
        let file = file.with_context(|| format!("open the logfile {path}"))?.map(Arc::new);
        Ok(LogJournal { file, is_quiet })
    }

    /// Sends all log lines to the destinations, in PgBouncer's format.
    fn install(self) -> Result<()> {
        let is_logged = |of: &tracing::Metadata<'_>| {
            *of.level() <= tracing::Level::INFO || of.target() == bouncer::relay::JOURNAL
        };
        let lines = tracing_subscriber::fmt::layer()
            .event_format(LogLineFormat)
            .with_ansi(false)
            .with_writer(move || LogOutput { file: self.file.clone(), is_quiet: self.is_quiet })
            .with_filter(tracing_subscriber::filter::filter_fn(is_logged));
        tracing_subscriber::registry().with(lines).try_init().context("failed to start the log")
    }
}

/// Writer of log lines.
struct LogOutput {
    file: Option<Arc<File>>,
    is_quiet: bool,
}

impl io::Write for LogOutput {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.is_quiet || self.file.is_none() {
            io::stderr().write_all(line)?;
        }
        if let Some(file) = &self.file {
            (&**file).write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Format of a line: time, process id, level, message.
struct LogLineFormat;

impl<S, N> FormatEvent<S, N> for LogLineFormat
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        let now = clock::rfc3339(UNIX_EPOCH + Duration::from_millis(clock::wall_ms()));
        let now = now.replace('T', " ").replace('Z', " UTC");
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => "ERROR",
            tracing::Level::WARN => "WARNING",
            _ => "LOG",
        };
        write!(writer, "{now} [{}] {level}", std::process::id())?;
        let mut fields = LogLineFields { writer: writer.by_ref(), written: Ok(()) };
        event.record(&mut fields);
        fields.written?;
        writeln!(writer)
    }
}

/// Writes the message and the fields of a line. Texts have their quotes as they are, so that a
/// server's error is found in the log as the server reported it; control characters are escaped, so
/// that a text never begins a line of its own.
struct LogLineFields<'a> {
    writer: Writer<'a>,
    written: fmt::Result,
}

impl LogLineFields<'_> {
    fn push(&mut self, field: &Field, value: &str, quote: &str) {
        if self.written.is_err() {
            return;
        }
        self.written = match field.name() {
            "message" => self.writer.write_str(" "),
            name => write!(self.writer, " {name}={quote}"),
        };
        for character in value.chars() {
            let written = match character.is_control() {
                true => write!(self.writer, "{}", character.escape_debug()),
                false => self.writer.write_char(character),
            };
            self.written = self.written.and(written);
        }
        self.written = self.written.and(self.writer.write_str(quote));
    }
}

impl Visit for LogLineFields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value, "\"");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, &format!("{value:?}"), "");
    }
}

/// File with the process id, removed on drop.
struct PidFile(PathBuf);

impl PidFile {
    fn write(path: &str) -> Result<Option<PidFile>> {
        if path.is_empty() {
            return Ok(None);
        }
        let written = std::fs::write(path, format!("{}\n", std::process::id()));
        written.with_context(|| format!("write the pidfile {path}"))?;
        Ok(Some(PidFile(PathBuf::from(path))))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // The file may have been removed already; there is no caller to report to.
        drop(std::fs::remove_file(&self.0));
    }
}

#[cfg(test)]
mod tests {
    //! Lines of the log in PgBouncer's form.

    use super::*;

    #[derive(Clone, Default)]
    struct LogText(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogText {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_keeps_quotes_and_is_one_line_whatever_is_in_it() {
        let log = LogText::default();
        let written = log.clone();
        let lines = tracing_subscriber::fmt::layer()
            .event_format(LogLineFormat)
            .with_writer(move || written.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let cause = "relation \"users\" does not exist\n2026-01-01 LOG forged\u{1b}[2J";
            tracing::warn!(code = "42P01", cause, age = 3, place = %"a\nb", "login failed");
        });
        let text = String::from_utf8(log.0.lock().clone()).unwrap();
        let (_, text) = text.split_once("] ").unwrap();
        let expected = r#"WARNING login failed code="42P01" cause="relation "users" does not exist\n2026-01-01 LOG forged\u{1b}[2J" age=3 place=a\nb"#;
        assert_eq!(text, format!("{expected}\n"));
    }
}
