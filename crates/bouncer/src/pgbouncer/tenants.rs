//! Conversion of PgBouncer's files to the bouncer's own configuration.
//!
//! Each line of `[databases]` becomes one tenant. An unsupported setting is rejected if ignoring it
//! would weaken access control or lose data, and is otherwise reported as an [`IgnoredSetting`].

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use api::{
    AuthQuerySpec, PoolMode, TenantLimitsSpec, TenantSpec, TenantUserSpec, TlsMode, UserAuth,
};

use super::ini::{IniEntry, IniError, ParsedIni, connection_string};
use super::settings::{SettingEffect, SettingValues, find};
use crate::config::{
    BouncerConfig, ConsoleTable, ConsoleUser, ListenAddresses, MysqlTable, ServerTable, TlsTable,
};
use crate::relay::dialect::DATABASE;
use crate::tenants::{UserRuleSet, UserRules, UserTimes};

/// Number of connections where PgBouncer has no limit.
const UNLIMITED: u32 = 100_000;

/// Directory of sockets in which libpq looks for a server when no host is named, on Debian.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";

/// Value for timeouts that PgBouncer turns off by 0 and that must be finite here.
const LONG_S: f64 = 86_400.0;

/// Settings of `[pgbouncer]` without effect here, besides those marked as such in their definition.
const UNUSED: &[(&str, &str)] = &[
    ("application_name_add_host", "addresses are in SHOW CLIENTS"),
    ("autodb_idle_timeout", "only listed databases exist"),
    ("disable_pqexec", "simple queries are always taken"),
    ("ignore_startup_parameters", "every parameter is kept for its client"),
    ("log_stats", "figures are in the metrics"),
    ("login_notify_message", "clients get no notice at login"),
    ("pool_idle_timeout", "empty pools cost nothing"),
    ("query_wait_notify", "waiting clients get no notice"),
    ("scram_iterations", "secrets keep the iterations that they were made with"),
    ("server_check_delay", "a broken connection is noticed when it breaks"),
    ("server_check_query", "a broken connection is noticed when it breaks"),
    ("server_fast_close", "connections are closed when they are released"),
    ("server_round_robin", "the connection used last is used first"),
    ("track_extra_parameters", "every setting of a client is kept"),
];

/// A lifetime that has passed when the connection first comes to rest.
const ONCE_S: f64 = 0.001;

/// Keys of a database without effect here.
const UNUSED_OF_DATABASE: &[&str] = &["connect_query", "load_balance_hosts", "application_name"];

/// Setting of the file that has no effect, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredSetting {
    /// Name of the setting.
    pub what: String,
    /// Why it has no effect.
    pub why: String,
}

/// Result of translating a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatedFile {
    /// The bouncer's configuration.
    pub config: BouncerConfig,
    /// Settings of the file without effect.
    pub notes: Vec<IgnoredSetting>,
}

/// Translates a file, its settings in force, and its users.
///
/// # Errors
/// The first setting that is not supported, with its line.
pub fn translate(
    ini: &ParsedIni,
    values: &SettingValues,
    users: &[(String, String)],
) -> Result<TranslatedFile, IniError> {
    let passwords = users.iter().map(|(user, password)| (&**user, &**password)).collect();
    let mut translator = FileTranslator { ini, values, passwords, users, notes: Vec::new() };
    let config = translator.config()?;
    translator.unused();
    Ok(TranslatedFile { config, notes: translator.notes })
}

struct FileTranslator<'a> {
    ini: &'a ParsedIni,
    values: &'a SettingValues,
    users: &'a [(String, String)],
    passwords: HashMap<&'a str, &'a str>,
    notes: Vec<IgnoredSetting>,
}

/// Keys and values of a line.
type Pairs = BTreeMap<String, String>;

impl FileTranslator<'_> {
    fn config(&mut self) -> Result<BouncerConfig, IniError> {
        let values = self.values;
        let auth = self.auth()?;
        if values.text("auth_dbname") == DATABASE {
            let what = format!("cannot use the reserved \"{DATABASE}\" database as an auth_dbname");
            return Err(IniError::Line { at: self.place("auth_dbname"), what });
        }
        let mut config = BouncerConfig {
            listen: ListenAddresses::Several(self.addresses()),
            mysql: MysqlTable { enabled: false, ..MysqlTable::default() },
            unix_socket_dir: path(values.text("unix_socket_dir")),
            unix_socket_mode: values.text("unix_socket_mode").to_owned(),
            clients_max: count(values.count("max_client_conn")),
            login_s: count(values.seconds("client_login_timeout").as_secs().max(1)),
            tls: TlsTable {
                mode: tls_mode(values.text("client_tls_sslmode")),
                cert: path(values.text("client_tls_cert_file")),
                key: path(values.text("client_tls_key_file")),
                client_ca: path(values.text("client_tls_ca_file")),
            },
            server_connections_max: UNLIMITED,
            console: self.console(auth),
            ..BouncerConfig::default()
        };
        config.rules = self.rules(auth)?;
        // PgBouncer has no health checks: an unreachable server is noticed by the clients that need
        // it.
        config.health.interval_s = 0;
        let users = self.user_specs(auth);
        // The last line of a name counts, as in PgBouncer.
        let databases: BTreeMap<&str, &IniEntry> =
            self.ini.databases.iter().map(|entry| (&*entry.key, entry)).collect();
        for entry in databases.values() {
            if entry.key == "*" {
                let why = "only listed databases exist".to_owned();
                self.notes.push(IgnoredSetting { what: "[databases] *".into(), why });
                continue;
            }
            let (tenant, server) = self.tenant(entry, &databases, &users)?;
            config.servers.insert(tenant.server.clone(), server);
            config.tenants.push(tenant);
        }
        Ok(config)
    }

    fn addresses(&self) -> Vec<String> {
        let port = self.values.text("listen_port");
        let listen = self.values.text("listen_addr").split(',').map(str::trim);
        let address = |host: &str| match host {
            "*" => vec![format!("0.0.0.0:{port}"), format!("[::]:{port}")],
            host if host.contains(':') => vec![format!("[{host}]:{port}")],
            host => vec![format!("{host}:{port}")],
        };
        listen.filter(|host| !host.is_empty()).flat_map(address).collect()
    }

    fn auth(&self) -> Result<UserAuth, IniError> {
        let refused = |what: String| IniError::Line { at: self.place("auth_type"), what };
        Ok(match self.values.text("auth_type") {
            "trust" => UserAuth::Trust,
            "cert" => UserAuth::Cert,
            "peer" => UserAuth::Peer,
            "md5" | "scram-sha-256" | "plain" => UserAuth::Password,
            other => {
                return Err(refused(format!(
                    "auth_type {other} cannot be had: trust, md5, scram-sha-256, plain, cert and \
                     peer can"
                )));
            }
        })
    }

    /// Returns the place where a setting was last set.
    fn place(&self, key: &str) -> String {
        let last = self.ini.settings.iter().rev().find(|entry| entry.key == key);
        last.map_or_else(|| key.to_owned(), |entry| entry.at.clone())
    }

    fn console(&self, auth: UserAuth) -> ConsoleTable {
        let of = |setting| {
            let names = self.values.text(setting).split(',').map(str::trim);
            let names = names.filter(|name| !name.is_empty());
            let password = |name| (*self.passwords.get(name).unwrap_or(&"")).to_owned();
            names.map(move |name| ConsoleUser { name: name.to_owned(), password: password(name) })
        };
        ConsoleTable {
            auth,
            admin_users: of("admin_users").collect(),
            stats_users: of("stats_users").collect(),
        }
    }

    /// Returns the users of the file that can authenticate.
    fn user_specs(&self, auth: UserAuth) -> Vec<TenantUserSpec> {
        let known = self.users.iter().filter(|(_, password)| !self.is_locked(auth, password));
        let spec = |(name, password): &(String, String)| TenantUserSpec {
            name: name.clone(),
            auth,
            password: Some(password.clone()).filter(|it| !it.is_empty()),
            ..TenantUserSpec::default()
        };
        known.map(spec).collect()
    }

    /// Returns whether a user of the file has no usable secret there.
    fn is_locked(&self, auth: UserAuth, password: &str) -> bool {
        // With SCRAM configured, MD5 secrets are too weak.
        let is_weak = self.values.text("auth_type") == "scram-sha-256" && is_md5(password);
        auth == UserAuth::Password && (password.is_empty() || is_weak)
    }

    /// Returns the rules of `[users]`, including those for users that `auth_query` finds.
    fn rules(&mut self, auth: UserAuth) -> Result<UserRuleSet, IniError> {
        let mut users: BTreeMap<String, UserRules> = BTreeMap::new();
        for entry in &self.ini.users {
            let mut own = pairs(entry)?;
            let refused = |what: String| IniError::Line { at: entry.at.clone(), what };
            let mut number = |key: &str| match own.remove(key) {
                None => Ok(None),
                Some(text) => match text.parse::<f64>() {
                    Ok(number) if (0.0..=LONG_S * 365.0).contains(&number) => Ok(Some(number)),
                    Ok(_) | Err(_) => Err(refused(format!("{}: {key}={text}", entry.key))),
                },
            };
            let pool_size = number("pool_size")?.map(whole_of);
            let connections = number("max_user_connections")?.map(whole_of);
            let clients_max = number("max_user_client_connections")?.map(whole_of);
            let mut time = |key| number(key).map(|it| it.map(Duration::from_secs_f64));
            let rules = UserRules {
                is_locked: false,
                pool_size: pool_size.filter(|count| *count > 0),
                connections_max: connections.filter(|count| *count > 0),
                clients_max: clients_max.filter(|count| *count > 0),
                times: UserTimes {
                    wait: time("query_wait_timeout")?,
                    query: time("query_timeout")?,
                    transaction: time("transaction_timeout")?,
                    idle_in_transaction: time("idle_transaction_timeout")?,
                    client_idle: time("client_idle_timeout")?,
                },
                mode: own.remove("pool_mode").as_deref().and_then(pool_mode),
            };
            for key in own.into_keys() {
                let why = "of users this is their database's".to_owned();
                self.notes
                    .push(IgnoredSetting { what: format!("[users] {}: {key}", entry.key), why });
            }
            users.insert(entry.key.clone(), rules);
        }
        for (name, _) in self.users.iter().filter(|(_, it)| self.is_locked(auth, it)) {
            users.entry(name.clone()).or_default().is_locked = true;
        }
        let count = |setting| Some(count(self.values.count(setting))).filter(|count| *count > 0);
        Ok(UserRuleSet {
            auth,
            users,
            watchers_max: count("max_db_client_connections"),
            user_watchers_max: count("max_user_client_connections"),
        })
    }

    fn tenant(
        &mut self,
        entry: &IniEntry,
        databases: &BTreeMap<&str, &IniEntry>,
        users: &[TenantUserSpec],
    ) -> Result<(TenantSpec, ServerTable), IniError> {
        let refused = |what: String| IniError::Line { at: entry.at.clone(), what };
        let name = &entry.key;
        let mut own = pairs(entry)?;
        for key in UNUSED_OF_DATABASE.iter().filter(|key| own.remove(**key).is_some()) {
            let what = format!("[databases] {name}: {key}");
            self.notes.push(IgnoredSetting { what, why: "cannot be had".into() });
        }
        let host = own.remove("host").unwrap_or_else(|| SOCKET_DIRECTORY.to_owned());
        let port = own.remove("port").unwrap_or_else(|| "5432".to_owned());
        let address = if host.contains([':', ',']) {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let server_user = own.remove("user");
        let limits = self.limits(&mut own, server_user.is_some());
        let password = own.remove("password");
        let known = server_user.as_deref().and_then(|user| self.passwords.get(user));
        let password = password.or_else(|| known.map(|it| (*it).to_owned()));
        let mode = own.remove("pool_mode");
        let tenant = TenantSpec {
            name: name.clone(),
            server: address.clone(),
            database: own.remove("dbname"),
            pool_mode: pool_mode(mode.as_deref().unwrap_or(self.values.text("pool_mode"))),
            users: users.to_vec(),
            server_password: password
                .filter(|it| server_user.is_some() && !it.is_empty())
                .filter(|it| !it.starts_with("SCRAM-SHA-256$")),
            server_user,
            auth_query: self.auth_query(&mut own, databases)?,
            settings: ["client_encoding", "datestyle", "timezone"]
                .into_iter()
                .filter_map(|key| own.remove(key).map(|value| (key.to_owned(), value)))
                .collect(),
            limits,
            ..TenantSpec::default()
        };
        if let Some(key) = own.into_keys().next() {
            return Err(refused(format!("{name} has an unknown key {key}")));
        }
        Ok((tenant, self.server(address)))
    }

    fn server(&self, address: String) -> ServerTable {
        let file = |key| path(self.values.text(key));
        // They are set one after the other; an incomplete pair is not used.
        let is_whole = ["server_tls_cert_file", "server_tls_key_file"]
            .iter()
            .all(|key| !self.values.text(key).is_empty());
        let tls = tls_mode(self.values.text("server_tls_sslmode"));
        ServerTable {
            address,
            connections_max: Some(UNLIMITED),
            // Requiring encryption without verification is a decision to trust the server's key;
            // without any setting the mode is `prefer`.
            trust_server_key: tls == TlsMode::Require,
            tls,
            ca: file("server_tls_ca_file"),
            cert: file("server_tls_cert_file").filter(|_| is_whole),
            key: file("server_tls_key_file").filter(|_| is_whole),
            ..ServerTable::default()
        }
    }

    fn auth_query(
        &self,
        own: &mut Pairs,
        databases: &BTreeMap<&str, &IniEntry>,
    ) -> Result<Option<AuthQuerySpec>, IniError> {
        let mut of = |key| {
            let text = own.remove(key).unwrap_or_else(|| self.values.text(key).to_owned());
            Some(text).filter(|text| !text.is_empty())
        };
        let (user, query, database) = (of("auth_user"), of("auth_query"), of("auth_dbname"));
        let Some(user) = user else { return Ok(None) };
        let default = find("auth_query").map(|setting| setting.default);
        let database = match database.as_deref().and_then(|name| databases.get(name)) {
            Some(entry) => pairs(entry)?.remove("dbname").or(database),
            None => database,
        };
        let password = self.passwords.get(&*user).map(|it| (*it).to_owned());
        Ok(Some(AuthQuerySpec {
            user,
            password: password.filter(|it| !it.is_empty()),
            database,
            query: query.filter(|query| Some(query.as_str()) != default),
        }))
    }

    fn limits(&self, own: &mut Pairs, is_forced: bool) -> TenantLimitsSpec {
        let mut number = |keys: &[&str], setting: &str| {
            let own = keys.iter().find_map(|key| own.remove(*key));
            let own = own.and_then(|text| text.parse::<f64>().ok());
            own.unwrap_or_else(|| self.values.text(setting).parse().unwrap_or(0.0))
        };
        let mut whole = |keys: &[&str], setting: &str| Some(whole_of(number(keys, setting)));
        let pool_size = whole(&["pool_size"], "default_pool_size");
        let connections = whole(&["max_db_connections"], "max_db_connections");
        let connections = connections.filter(|it| *it > 0).unwrap_or(UNLIMITED);
        // One role has one pool: its size is then the database's, so that the reserve is on top of
        // it.
        let (connections, pool_size) = match (is_forced, pool_size) {
            (true, Some(size)) if (1..connections).contains(&size) => (size, None),
            _ => (connections, pool_size),
        };
        let min = whole(&["min_pool_size"], "min_pool_size").unwrap_or(0);
        let reserve = whole(&["reserve_pool_size", "reserve_pool"], "reserve_pool_size");
        let clients_max = whole(&["max_db_client_connections"], "max_db_client_connections");
        let seconds = |setting| Some(self.values.seconds(setting).as_secs_f64());
        let positive =
            |setting, zero: f64| seconds(setting).map(|it| if it > 0.0 { it } else { zero });
        TenantLimitsSpec {
            server_connections_max: Some(connections),
            server_connections_min: Some(min.min(connections)),
            server_connections_reserve: reserve,
            reserve_after_s: seconds("reserve_pool_timeout"),
            user_server_connections_max: pool_size,
            clients_max,
            user_clients_max: Some(count(self.values.count("max_user_client_connections"))),
            waiting_max: Some(UNLIMITED),
            prepared_statements_max: Some(count(self.values.count("max_prepared_statements"))),
            connect_s: positive("server_connect_timeout", LONG_S),
            wait_s: Some(number(&["query_wait_timeout"], "query_wait_timeout")),
            query_s: seconds("query_timeout"),
            transaction_s: seconds("transaction_timeout"),
            idle_in_transaction_s: seconds("idle_transaction_timeout"),
            client_idle_s: seconds("client_idle_timeout"),
            client_write_s: None,
            server_idle_s: seconds("server_idle_timeout"),
            // In PgBouncer 0 means a single use.
            server_lifetime_s: Some(number(&["server_lifetime"], "server_lifetime").max(ONCE_S)),
            server_retry_s: positive("server_login_retry", 0.01),
        }
    }

    /// Reports the settings of `[pgbouncer]` and `[peers]` that have no effect.
    fn unused(&mut self) {
        for (setting, value) in self.values.iter().filter(|(it, value)| *value != it.default) {
            let listed = UNUSED.iter().find(|(name, _)| *name == setting.name);
            let why = match setting.change {
                SettingEffect::NoEffect(why) => Some(why),
                SettingEffect::Live | SettingEffect::Restart => listed.map(|(_, why)| *why),
            };
            let what = format!("{} = {value}", setting.name);
            self.notes.extend(why.map(|why| IgnoredSetting { what, why: why.to_owned() }));
        }
        if !self.ini.peers.is_empty() {
            let why = "one process has all threads".to_owned();
            self.notes.push(IgnoredSetting { what: "[peers]".into(), why });
        }
    }
}

/// Returns whether a password is the MD5 hash of one.
fn is_md5(text: &str) -> bool {
    let digits = text.strip_prefix("md5").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn pairs(entry: &IniEntry) -> Result<Pairs, IniError> {
    let pairs = connection_string(&entry.value)
        .map_err(|what| IniError::Line { at: entry.at.clone(), what })?;
    Ok(pairs.into_iter().collect())
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(UNLIMITED).min(UNLIMITED)
}

/// Converts a number of a connection string to a count.
fn whole_of(number: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped, and a cast of NaN is 0"
    )]
    let whole = number.clamp(0.0, f64::from(UNLIMITED)) as u32;
    whole
}

fn pool_mode(text: &str) -> Option<PoolMode> {
    match text {
        "session" => Some(PoolMode::Session),
        "transaction" => Some(PoolMode::Transaction),
        "statement" => Some(PoolMode::Statement),
        _ => None,
    }
}

fn tls_mode(text: &str) -> TlsMode {
    match text {
        "disable" => TlsMode::Disable,
        "allow" => TlsMode::Allow,
        "prefer" => TlsMode::Prefer,
        "verify-ca" => TlsMode::VerifyCa,
        "verify-full" => TlsMode::VerifyFull,
        // Values were checked; of the rest this is the strictest that needs no certificate.
        _ => TlsMode::Require,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::pgbouncer::ini;

    fn translated(text: &str) -> Result<TranslatedFile, IniError> {
        let ini = ini::load(Path::new("a.ini"), &mut |_| Ok(text.to_owned()))?;
        let values = SettingValues::from_entries(&ini.settings)?;
        let users = [("ann", "apple"), ("bob", "md5x"), ("eve", "")];
        let users: Vec<_> = users.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        translate(&ini, &values, &users)
    }

    #[test]
    fn a_file_becomes_tenants_with_their_limits() {
        let text = "[databases]\n\
                    p0 = port=6666 host=127.0.0.1 dbname=x user=ann pool_size=2 reserve_pool=3\n\
                    p1 = host=::1 pool_mode=statement max_db_connections=4 min_pool_size=9\n\
                    p2 = auth_user=bob auth_dbname=p0 timezone=UTC connect_query='set a=1'\n\
                    [users]\n\
                    ann = max_user_connections=3 pool_mode=session query_timeout=1 nonsense=2\n\
                    [pgbouncer]\nauth_type=trust\nlisten_addr = 127.0.0.1, ::1\nlisten_port=99\n\
                    query_timeout=1.5\nserver_login_retry=0\nadmin_users=ann\npkt_buf=75\n\
                    unix_socket_dir=/x\n";
        let TranslatedFile { config, notes } = translated(text).unwrap();
        assert_eq!(config.listen.addresses(), ["127.0.0.1:99", "[::1]:99"]);
        assert_eq!(config.console.admin_users[0].password, "apple");
        let [p0, p1, p2] = config.tenants.as_slice() else { panic!("{:?}", config.tenants) };
        assert_eq!((&*p0.server, p0.database.as_deref()), ("127.0.0.1:6666", Some("x")));
        assert_eq!(p0.server_user.as_deref(), Some("ann"));
        assert_eq!(p0.server_password.as_deref(), Some("apple"));
        assert_eq!(p0.limits.server_connections_max, Some(2));
        assert_eq!(p0.limits.server_connections_reserve, Some(3));
        assert_eq!(p0.limits.query_s, Some(1.5));
        assert_eq!(p0.pool_mode, Some(PoolMode::Session));
        let ann = &p0.users[0];
        assert_eq!((&*ann.name, ann.auth), ("ann", UserAuth::Trust));
        let rules = config.rules.of("ann");
        assert_eq!(
            (rules.server_connections_max(), rules.mode),
            (Some(3), Some(PoolMode::Session))
        );
        assert_eq!(rules.times.query, Some(Duration::from_secs(1)));
        assert_eq!((&*p1.server, p1.pool_mode), ("[::1]:5432", Some(PoolMode::Statement)));
        assert_eq!(p1.limits.server_connections_min, Some(4));
        assert_eq!(p2.server, "/var/run/postgresql:5432");
        let query = p2.auth_query.as_ref().unwrap();
        assert_eq!((query.user.as_str(), query.database.as_deref()), ("bob", Some("x")));
        assert_eq!(p2.settings.get("timezone").map(String::as_str), Some("UTC"));
        let what: Vec<&str> = notes.iter().map(|note| &*note.what).collect();
        let expected = ["[users] ann: nonsense", "[databases] p2: connect_query", "pkt_buf = 75"];
        assert_eq!(what, expected);
    }

    #[test]
    fn users_without_a_password_are_known_but_nobody() {
        for (auth, listed, is_locked) in
            [("md5", 2, true), ("scram-sha-256", 2, true), ("trust", 3, false)]
        {
            let text = format!(
                "[databases]\np0 = host=127.0.0.1\n[users]\n\
                 eve = max_user_client_connections=2\n\
                 [pgbouncer]\nauth_type={auth}\n"
            );
            let config = translated(&text).unwrap().config;
            assert_eq!(config.tenants[0].users.len(), listed, "{auth}");
            let eve = config.rules.of("eve");
            assert_eq!((eve.is_locked, eve.clients_max), (is_locked, Some(2)), "{auth}");
        }
    }

    #[test]
    fn half_a_certificate_is_none() {
        for (lines, expected) in [
            ("server_tls_key_file=/k", None),
            ("server_tls_cert_file=/c", None),
            ("server_tls_key_file=/k\nserver_tls_cert_file=/c", Some(PathBuf::from("/c"))),
        ] {
            let text = format!("[databases]\np0 = host=127.0.0.1\n[pgbouncer]\n{lines}\n");
            let config = translated(&text).unwrap().config;
            let table = config.servers.values().next().unwrap();
            assert_eq!((&table.cert, table.key.is_some()), (&expected, expected.is_some()));
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_its_line() {
        for (text, expected) in [
            ("[pgbouncer]\nauth_type=pam", "a.ini:2: auth_type pam cannot be had"),
            ("[databases]\na = nonsense=1", "a.ini:2: a has an unknown key nonsense"),
            ("[databases]\na = host", "a.ini:2: no = after"),
            (
                "[databases]\n[pgbouncer]\nauth_dbname=pgbouncer",
                "a.ini:3: cannot use the reserved \"pgbouncer\" database as an auth_dbname",
            ),
            ("[users]\nann = query_timeout=-1", "a.ini:2: ann: query_timeout=-1"),
        ] {
            let text = match text.contains("auth_type") {
                true => text.to_owned(),
                false => format!("{text}\n[pgbouncer]\nauth_type=md5"),
            };
            let error = translated(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_server_that_must_encrypt_is_shown_a_password_as_there() {
        for (mode, expected) in [
            ("", (TlsMode::Prefer, false)),
            ("server_tls_sslmode=disable\n", (TlsMode::Disable, false)),
            ("server_tls_sslmode=prefer\n", (TlsMode::Prefer, false)),
            ("server_tls_sslmode=require\n", (TlsMode::Require, true)),
            ("server_tls_sslmode=verify-full\n", (TlsMode::VerifyFull, false)),
        ] {
            let text = format!("[databases]\np0 = host=127.0.0.1\n[pgbouncer]\n{mode}");
            let TranslatedFile { config, .. } = translated(&text).unwrap();
            let table = config.servers.values().next().unwrap();
            assert_eq!((table.tls, table.trust_server_key), expected, "{mode}");
        }
    }
}
