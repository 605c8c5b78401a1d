//! Configuration: `cove.toml`, then `COVE_*`, then flags. The only reader of the environment.
//!
//! Every setting has one path, such as `executions.queue_max`. In the file it is a key in a table;
//! in the environment it is `COVE_EXECUTIONS__QUEUE_MAX`, with `__` in place of the dot; settings
//! that change often have a flag. Unknown keys are errors that name the line.

mod effective;
mod layers;
mod schema;
mod source;

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use executions::faces::{gojudge, judge0, piston, sandbox_fusion};
use node::http::{HostNames, HttpListenerTls, PlaintextPolicy, ShellLimits};
use node::store::CommitDurability;
use node::telemetry::{LevelFilter, LogFormat};
use node::tls::ServerCertificate;
use serde::{Deserialize, Deserializer, de};
use sessions::faces::{ash, e2b};
use toml::Value;

pub(crate) use self::effective::{changed, origin_view, view};
pub(crate) use self::layers::{ConfigLayers, ConfigProblem};
pub(crate) use self::source::ConfigSource;

/// Default address of the HTTP interface.
pub(crate) const HTTP_DEFAULT: &str = "127.0.0.1:4100";

/// First of the user ids that sandboxes of a server run under. Above all ids that distributions,
/// subordinate id ranges and container managers allocate, and below 2^31, the limit of some tools.
const UID_BASE_DEFAULT: u32 = 1_879_048_192;

/// Prefix of the environment variables that are settings.
const ENV_PREFIX: &str = "COVE_";

/// Variables with the prefix that are not settings: the location of the file, and those in which
/// clients find their context, token, server address and pager.
const ENV_NOT_SETTINGS: [&str; 5] =
    ["COVE_CONFIG", "COVE_CONTEXT", "COVE_PAGER", "COVE_TOKEN", "COVE_URL"];

/// Configuration of the server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CoveConfig {
    /// Directory with the server's state.
    pub(crate) data_dir: PathBuf,
    /// Address of the HTTP interface: `host:port`, port 0 for any.
    #[serde(deserialize_with = "listen_address")]
    pub(crate) http: String,
    /// Seconds that running programs may take to end during a drain.
    #[serde(deserialize_with = "seconds")]
    pub(crate) drain_s: Duration,
    pub(crate) log: LogConfig,
    pub(crate) telemetry: crate::traces::TelemetryConfig,
    pub(crate) tls: HttpTlsConfig,
    pub(crate) limits: HttpConfig,
    pub(crate) sandbox: SandboxConfig,
    pub(crate) executions: executions::ExecutionsConfig,
    pub(crate) sessions: sessions::SessionsConfig,
    pub(crate) bouncer: bouncer::config::BouncerConfig,
    pub(crate) catalog: catalog::config::CatalogConfig,
    pub(crate) gateway: gateway::GatewayConfig,
    pub(crate) console: ::console::ConsoleConfig,
    pub(crate) history: crate::history::HistoryConfig,
    pub(crate) mcp: ::mcp::config::McpConfig,
    pub(crate) auth: AuthConfig,
    pub(crate) store: StoreTable,
    pub(crate) objects: ObjectsTable,
    pub(crate) cluster: ClusterConfig,
    /// Key that secrets are sealed with: 64 hexadecimal digits, or a reference to them. Default: a
    /// key in the data directory.
    #[serde(deserialize_with = "api::secret_setting")]
    pub(crate) secrets_key: Option<String>,
    pub(crate) compat: CompatConfig,
    /// Variables with the prefix that are not settings, to be mentioned in the log. They are not
    /// errors: other programs, such as test suites, use variables with this prefix.
    #[serde(skip)]
    pub(crate) ignored_variables: Vec<String>,
}

/// The `[auth]` table: issuers whose tokens are accepted besides Cove's own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuthConfig {
    /// Identity providers.
    pub(crate) issuers: Vec<node::issuers::IssuerConfig>,
}

/// The `[tls]` table: HTTPS at all listeners of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpTlsConfig {
    /// The server's certificate, followed by intermediate certificates: a PEM file.
    pub(crate) cert: Option<PathBuf>,
    /// Private key: a PEM file.
    pub(crate) key: Option<PathBuf>,
    /// Clients that are served without TLS if there is a certificate.
    #[serde(deserialize_with = "plaintext")]
    pub(crate) plaintext: PlaintextPolicy,
}

impl HttpTlsConfig {
    /// Reads the files; none if they are not configured.
    pub(crate) fn listener(&self) -> anyhow::Result<Option<HttpListenerTls>> {
        let certificate = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => ServerCertificate::open(cert, key)
                .context("failed to set up TLS (`tls.cert`, `tls.key`)")?,
            (None, None) => return Ok(None),
            (Some(_), None) => bail!("tls.key is missing: `tls.cert` needs the key that it is for"),
            (None, Some(_)) => bail!("tls.cert is missing: `tls.key` needs the certificate"),
        };
        Ok(Some(HttpListenerTls { certificate, plaintext: self.plaintext }))
    }
}

/// The `[store]` table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreTable {
    /// `sqlite:PATH`, or `postgres://…` to share the state among several servers; a reference
    /// (`env:NAME`, `file:PATH`) keeps a password out of the file. Default: a file in the data
    /// directory.
    #[serde(deserialize_with = "api::secret_address")]
    pub(crate) url: Option<String>,
    /// Durability of an acknowledged write: it survives the end of the process, or a power failure.
    #[serde(deserialize_with = "durability")]
    pub(crate) durability: CommitDurability,
}

/// The `[objects]` table: agents' and sessions' files at rest.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ObjectsTable {
    /// A directory, or `s3://BUCKET/PREFIX?endpoint=…&region=…` to share objects among several
    /// servers. Default: a directory in the data directory.
    pub(crate) url: Option<String>,
    /// For S3: id of the access key. The three credentials accept references. Without any of them,
    /// the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN` are used.
    pub(crate) access_key_id: Option<String>,
    /// Secret access key.
    #[serde(deserialize_with = "api::secret_setting")]
    pub(crate) secret_access_key: Option<String>,
    /// Session token of temporary credentials.
    #[serde(deserialize_with = "api::secret_setting")]
    pub(crate) session_token: Option<String>,
}

/// Time that terminals may continue on a draining node.
const DRAIN_TERMINALS: Duration = Duration::from_secs(300);

/// The `[cluster]` table: servers that share a store.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClusterConfig {
    /// Address at which other nodes reach this one: `host:port`, port 0 for any. By default there
    /// is none, and other nodes cannot forward requests to this one.
    #[serde(deserialize_with = "optional_listen_address")]
    pub(crate) listen: Option<String>,
    /// Address that is announced to other nodes, if it differs from the listening address.
    #[serde(deserialize_with = "optional_listen_address")]
    pub(crate) advertise: Option<String>,
    /// Place that this node shares with others that may fail together.
    pub(crate) zone: String,
    /// Kubernetes node that this server runs on.
    pub(crate) kubernetes: crate::kubernetes::KubernetesConfig,
    /// Milliseconds for which this node counts as alive after its last renewal.
    pub(crate) lease_ms: Option<u64>,
    /// Scope of limits on server connections, clients and executions: each node, or all together.
    pub(crate) limits: node::cluster::LimitScope,
    /// Time that terminals may continue while this node drains.
    #[serde(deserialize_with = "seconds")]
    pub(crate) drain_terminals_s: Duration,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig {
            listen: None,
            advertise: None,
            zone: String::new(),
            kubernetes: crate::kubernetes::KubernetesConfig::default(),
            lease_ms: None,
            limits: node::cluster::LimitScope::default(),
            drain_terminals_s: DRAIN_TERMINALS,
        }
    }
}

/// The `[compat]` table: interfaces of other systems.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompatConfig {
    pub(crate) piston: FaceConfig<piston::PistonConfig>,
    pub(crate) judge0: FaceConfig<judge0::Judge0Config>,
    pub(crate) go_judge: FaceConfig<gojudge::GojudgeConfig>,
    pub(crate) sandbox_fusion: FaceConfig<sandbox_fusion::SandboxFusionConfig>,
    pub(crate) ash: ash::AshConfig,
    pub(crate) dbbouncer: FaceConfig<NoSettings>,
    pub(crate) e2b: FaceConfig<e2b::E2bConfig>,
    /// Serve all clients that reach a listener of a face without a token, not only programs of this
    /// machine.
    pub(crate) insecure_open: bool,
}

/// Configuration of one compatibility interface.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, bound(deserialize = "T: Default + Deserialize<'de>"))]
pub(crate) struct FaceConfig<T> {
    /// Address of its own listener, at `/`: `host:port`. Programs of this machine need no token
    /// there.
    #[serde(deserialize_with = "optional_listen_address")]
    pub(crate) listen: Option<String>,
    /// Settings of the interface itself.
    pub(crate) settings: T,
}

/// Settings of a face that has none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NoSettings {}

/// The `[log]` table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    pub(crate) format: LogFormat,
    #[serde(deserialize_with = "level")]
    pub(crate) level: LevelFilter,
}

/// Free space on the data directory's disk below which the server is not ready.
const DISK_FREE_BYTES_MIN: u64 = 64 << 20;

/// The `[limits]` table: limits of the HTTP server, by the names of [`node::http::ShellLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpConfig {
    connections_max: usize,
    connections_per_address_max: usize,
    streams_max: usize,
    header_bytes_max: usize,
    #[serde(deserialize_with = "seconds")]
    header_read_s: Duration,
    body_bytes_max: u64,
    #[serde(deserialize_with = "seconds")]
    body_pause_s: Duration,
    body_bytes_per_s_min: u64,
    bodies_bytes_max: u64,
    #[serde(deserialize_with = "seconds")]
    write_stall_s: Duration,
    disk_free_bytes_min: u64,
}

/// The `[sandbox]` table. Defaults depend on the number of cores.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SandboxConfig {
    /// Sandboxes kept prepared.
    pub(crate) warm: Option<usize>,
    /// Start interpreters ahead of their programs if the language table describes how.
    pub(crate) warm_runtimes: bool,
    /// Number of sandboxes kept prepared with each interpreter, instead of the table's numbers.
    pub(crate) warm_runtimes_ready: Option<usize>,
    /// Processes that prepare sandboxes.
    pub(crate) spawners: Option<usize>,
    /// First of the user ids that sandboxes run under.
    pub(crate) uid_base: u32,
    /// Run even if the kernel does not limit memory or processes here.
    pub(crate) insecure_no_limits: bool,
}

impl Default for CoveConfig {
    fn default() -> CoveConfig {
        CoveConfig {
            data_dir: PathBuf::new(),
            http: HTTP_DEFAULT.to_owned(),
            drain_s: Duration::from_secs(30),
            log: LogConfig::default(),
            telemetry: crate::traces::TelemetryConfig::default(),
            tls: HttpTlsConfig::default(),
            limits: HttpConfig::default(),
            sandbox: SandboxConfig::default(),
            executions: executions::ExecutionsConfig::default(),
            sessions: sessions::SessionsConfig::default(),
            bouncer: bouncer::config::BouncerConfig::default(),
            catalog: catalog::config::CatalogConfig::default(),
            gateway: gateway::GatewayConfig::default(),
            console: ::console::ConsoleConfig::default(),
            history: crate::history::HistoryConfig::default(),
            mcp: ::mcp::config::McpConfig::default(),
            auth: AuthConfig::default(),
            store: StoreTable::default(),
            objects: ObjectsTable::default(),
            cluster: ClusterConfig::default(),
            secrets_key: None,
            compat: CompatConfig::default(),
            ignored_variables: Vec::new(),
        }
    }
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig { format: LogFormat::Text, level: LevelFilter::INFO }
    }
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        let limits = ShellLimits::default();
        HttpConfig {
            connections_max: limits.connections_max,
            connections_per_address_max: limits.connections_per_address_max,
            streams_max: limits.streams_max,
            header_bytes_max: limits.header_bytes_max,
            header_read_s: limits.header_read_max,
            body_bytes_max: limits.body_bytes_max,
            body_pause_s: limits.body_pause_max,
            body_bytes_per_s_min: limits.body_bytes_per_s_min,
            bodies_bytes_max: limits.bodies_bytes_max,
            write_stall_s: limits.write_stall_max,
            disk_free_bytes_min: DISK_FREE_BYTES_MIN,
        }
    }
}

impl Default for SandboxConfig {
    fn default() -> SandboxConfig {
        SandboxConfig {
            warm: None,
            warm_runtimes: true,
            warm_runtimes_ready: None,
            spawners: None,
            uid_base: UID_BASE_DEFAULT,
            insecure_no_limits: false,
        }
    }
}

impl HttpConfig {
    /// Returns the free space on the data directory's disk that readiness requires.
    pub(crate) fn disk_free_bytes_min(&self) -> u64 {
        self.disk_free_bytes_min
    }

    pub(crate) fn limits(&self) -> ShellLimits {
        ShellLimits {
            connections_max: self.connections_max,
            connections_per_address_max: self.connections_per_address_max,
            streams_max: self.streams_max,
            header_bytes_max: self.header_bytes_max,
            header_read_max: self.header_read_s,
            body_bytes_max: self.body_bytes_max,
            body_pause_max: self.body_pause_s,
            body_bytes_per_s_min: self.body_bytes_per_s_min,
            bodies_bytes_max: self.bodies_bytes_max,
            write_stall_max: self.write_stall_s,
            ..ShellLimits::default()
        }
    }
}

/// Reads a number of seconds, which may have a fraction.
pub(crate) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number of seconds")]
    enum NumberForm {
        Whole(u32),
        Broken(f64),
    }
    let seconds = match NumberForm::deserialize(deserializer)? {
        NumberForm::Whole(seconds) => f64::from(seconds),
        NumberForm::Broken(seconds) => seconds,
    };
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| de::Error::custom(format!("{seconds} is not a number of seconds")))
}

/// Reads a listening address: a host or an IP address, and a port.
fn listen_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_address = text.rsplit_once(':').is_some_and(|(host, port)| {
        // An IPv6 address requires brackets; otherwise its last group would be taken for the port.
        let is_host = !host.is_empty() && (host.starts_with('[') || !host.contains(':'));
        is_host && port.parse::<u16>().is_ok()
    });
    if !is_address {
        let message = format!("`{text}` is not HOST:PORT, such as `127.0.0.1:4100`");
        return Err(de::Error::custom(message));
    }
    Ok(text)
}

fn optional_listen_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    listen_address(deserializer).map(Some)
}

fn plaintext<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PlaintextPolicy, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "never" => Ok(PlaintextPolicy::Never),
        "loopback" => Ok(PlaintextPolicy::Loopback),
        "always" => Ok(PlaintextPolicy::Always),
        other => {
            Err(de::Error::custom(format!("`{other}` must be `never`, `loopback` or `always`")))
        }
    }
}

fn durability<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CommitDurability, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "process" => Ok(CommitDurability::Process),
        "power" => Ok(CommitDurability::Power),
        other => {
            let message = format!("`{other}` is not a durability; use `process` or `power`");
            Err(de::Error::custom(message))
        }
    }
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LevelFilter, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        let levels = "`off`, `error`, `warn`, `info`, `debug` and `trace`";
        de::Error::custom(format!("`{text}` is not a log level; use {levels}"))
    })
}

/// Error in the configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CoveConfigError {
    /// The file cannot be read.
    #[error("read configuration `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Some settings do not exist or have invalid values.
    #[error("{}", listed(.0))]
    Problems(Vec<ConfigProblem>),
    /// A reference cannot be resolved.
    #[error("{setting}: {message}")]
    Reference { setting: String, message: String },
    /// A variable or a flag has an invalid value.
    #[error("{origin}: {message}")]
    Value { origin: String, message: String },
    /// No data directory is configured and there is no default.
    #[error("no home directory for the data directory; specify one with --data-dir")]
    NoHome,
}

/// Returns whether a path, which may contain list indexes (`bouncer.tenants[0].server`), is that of
/// a setting.
pub(crate) fn is_setting(path: &str) -> bool {
    let keys = path.split('.').map(|key| key.split('[').next().unwrap_or(key));
    let mut node = schema::schema();
    for key in keys {
        let Some(child) = node.child(key) else { return false };
        node = child.element().unwrap_or(child);
    }
    true
}

/// Returns the table or setting whose name is closest to a mistyped one.
pub(crate) fn nearest_section(section: &str) -> Option<String> {
    let mut known = Vec::new();
    schema::schema().each_setting(&mut |path, _| {
        for end in 1..=path.len() {
            let name = path[..end].join(".");
            if known.last() != Some(&name) && !known.contains(&name) {
                known.push(name);
            }
        }
    });
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    schema::nearest(section, &known).map(str::to_owned)
}

/// Returns problems, one per line.
fn listed(problems: &[ConfigProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Environment of the process, read once; tests construct their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
    pub(crate) is_root: bool,
    colours: ColourChoice,
    /// True if standard output goes to a pager, and thus to a person.
    is_paged: bool,
}

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColourChoice {
    #[default]
    Auto,
    Always,
    Never,
}

impl Environment {
    /// Reads the environment of this process. Variables that are not UTF-8 are ignored.
    pub(crate) fn of_this_process() -> Environment {
        let variables = env::vars_os();
        let variables = variables.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let variables = variables.collect();
        Environment { variables, is_root: crate::host::is_root(), ..Environment::default() }
    }

    /// Returns an environment for a test.
    #[cfg(test)]
    pub(crate) fn made_up(variables: BTreeMap<String, String>) -> Environment {
        Environment { variables, ..Environment::default() }
    }

    /// Returns the value of a variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the value of a variable that is set, which may be empty.
    pub(crate) fn get_set(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Returns the caller's home directory.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from)
    }

    /// Records the colour option of the command line.
    pub(crate) fn set_colours(&mut self, colours: ColourChoice) {
        self.colours = colours;
    }

    /// Records that standard output goes to a pager.
    pub(crate) fn note_pager(&mut self) {
        self.is_paged = true;
    }

    /// Returns whether standard output goes to a pager.
    pub(crate) fn is_paged(&self) -> bool {
        self.is_paged
    }

    /// Returns whether standard output may be coloured.
    pub(crate) fn has_colours(&self) -> bool {
        self.has_colours_on(self.is_paged || io::stdout().is_terminal())
    }

    /// Returns whether standard error may be coloured.
    pub(crate) fn has_log_colours(&self) -> bool {
        self.has_colours_on(io::stderr().is_terminal())
    }

    /// Returns whether to use colours: the command line takes precedence over the environment
    /// (<https://no-color.org>).
    fn has_colours_on(&self, is_for_people: bool) -> bool {
        match self.colours {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto => is_for_people && self.get("NO_COLOR").is_none(),
        }
    }

    /// Returns whether the character set of the terminal is UTF-8 (POSIX.1 §8.2: the first of these
    /// variables that is set decides).
    pub(crate) fn is_utf8(&self) -> bool {
        let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| self.get(name));
        let set = set.unwrap_or_default().to_ascii_lowercase();
        set.contains("utf-8") || set.contains("utf8")
    }

    /// Returns the default data directory.
    pub(crate) fn default_data_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            return Some(PathBuf::from("/var/lib/cove"));
        }
        let data = self.get("XDG_DATA_HOME").map(PathBuf::from);
        let data = data.filter(|path| path.is_absolute());
        data.or_else(|| Some(self.home()?.join(".local/share"))).map(|data| data.join("cove"))
    }

    /// Returns the default configuration file.
    fn default_file(&self) -> Option<PathBuf> {
        if self.is_root {
            return Some(PathBuf::from("/etc/cove/cove.toml"));
        }
        self.config_home().map(|it| it.join("cove/cove.toml"))
    }

    /// Returns the directory of the caller's own settings (XDG Base Directory Specification,
    /// <https://specifications.freedesktop.org/basedir-spec/latest/>).
    pub(crate) fn config_home(&self) -> Option<PathBuf> {
        let config = self.get("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = config.filter(|path| path.is_absolute());
        config.or_else(|| Some(self.home()?.join(".config")))
    }
}

/// Returns the value of a setting that may be secret: the text itself, or the trimmed content of
/// the reference `env:NAME` or `file:PATH`.
pub(crate) fn resolve(
    setting: &str,
    text: &str,
    environment: &Environment,
) -> Result<String, CoveConfigError> {
    let error = |message| CoveConfigError::Reference { setting: setting.to_owned(), message };
    if let Some(name) = text.strip_prefix("env:") {
        let value = environment.get(name);
        return value.map(str::to_owned).ok_or_else(|| error(format!("`{name}` is not set")));
    }
    if let Some(path) = text.strip_prefix("file:") {
        let read = fs::read_to_string(path);
        let read = read.map_err(|cause| error(format!("read `{path}`: {cause}")))?;
        return Ok(read.trim().to_owned());
    }
    Ok(text.to_owned())
}

/// Values of flags, in the order in which they override other layers: path, value and flag.
pub(crate) type Flags = Vec<(&'static str, Value, &'static str)>;

impl CoveConfig {
    /// Returns the server's host names for browsers: the configured ones, and the listener's if any
    /// are configured.
    pub(crate) fn host_names(&self) -> HostNames {
        let mut known: Vec<String> =
            self.mcp.hosts.iter().chain(&self.console.hosts).cloned().collect();
        let (listener, _port) = self.http.rsplit_once(':').unwrap_or((&self.http, ""));
        if !known.is_empty() {
            known.push(listener.to_owned());
        }
        HostNames::new(known, "`console.hosts` or `mcp.hosts`")
    }

    /// Merges file, environment and flags. `file` is the flag's value; a named file must exist, the
    /// default file need not.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: &Environment,
        flags: Flags,
    ) -> Result<CoveConfig, CoveConfigError> {
        LoadedConfig::read(file, environment, flags).map(|loaded| loaded.config)
    }
}

/// Configuration with the layers that it was made from.
#[derive(Clone, Debug)]
pub(crate) struct LoadedConfig {
    pub(crate) config: CoveConfig,
    pub(crate) layers: ConfigLayers,
}

impl LoadedConfig {
    /// Reads all layers, each of which must be valid.
    pub(crate) fn read(
        file: Option<&Path>,
        environment: &Environment,
        flags: Flags,
    ) -> Result<LoadedConfig, CoveConfigError> {
        let layers = ConfigLayers::read(file, environment, flags)?;
        match layers.problems.is_empty() {
            true => LoadedConfig::of(layers, environment),
            false => Err(CoveConfigError::Problems(layers.problems)),
        }
    }

    /// Creates a configuration from the valid settings of the layers.
    pub(crate) fn of(
        layers: ConfigLayers,
        environment: &Environment,
    ) -> Result<LoadedConfig, CoveConfigError> {
        let read = CoveConfig::deserialize(layers.values.clone());
        let mut config = read.map_err(|error: toml::de::Error| CoveConfigError::Value {
            origin: "configuration".to_owned(),
            message: error.message().to_owned(),
        })?;
        config.ignored_variables = layers.ignored_variables.clone();
        if config.data_dir.as_os_str().is_empty() {
            config.data_dir = environment.default_data_dir().ok_or(CoveConfigError::NoHome)?;
        }
        // Other processes receive paths below it, and may have another working directory.
        config.data_dir = std::path::absolute(&config.data_dir).map_err(|error| {
            CoveConfigError::Value { origin: "data_dir".to_owned(), message: error.to_string() }
        })?;
        Ok(LoadedConfig { config, layers })
    }

    /// Returns the configuration for display.
    pub(crate) fn view(&self) -> api::ConfigView {
        effective::view(&self.layers, &self.config.data_dir.display().to_string())
    }
}

impl fmt::Display for CoveConfig {
    /// Formats the configuration as one line for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data in {}, http at {}", self.data_dir.display(), self.http)
    }
}

#[cfg(test)]
mod tests;
