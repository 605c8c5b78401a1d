//! The settings of `[pgbouncer]`: their names, defaults, and their meaning for Cove.

use super::ini::{IniEntry, IniError};

/// Kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// 0 or 1 (also yes, no, on, off, true, false).
    Flag,
    /// A whole number that is not negative.
    Count,
    /// Seconds, fractions allowed.
    Seconds,
    /// A word of this list.
    Word(&'static [&'static str]),
    /// Anything.
    Text,
}

/// When a new value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingEffect {
    /// At once, by `SET` or `RELOAD`.
    Live,
    /// At the next start only.
    Restart,
    /// Never: the setting is accepted, because files have it, and does nothing here, for the given
    /// reason.
    NoEffect(&'static str),
}

/// A setting.
#[derive(Debug)]
pub struct PgbouncerSetting {
    /// Name, as in the file and in `SHOW CONFIG`.
    pub name: &'static str,
    /// PgBouncer's default.
    pub default: &'static str,
    /// Kind of the value.
    pub kind: SettingKind,
    /// When a new value takes effect.
    pub change: SettingEffect,
}

const POOL_MODES: &[&str] = &["session", "transaction", "statement"];
const TLS_MODES: &[&str] = &["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
const AUTH_TYPES: &[&str] =
    &["any", "trust", "plain", "md5", "scram-sha-256", "cert", "hba", "peer", "pam", "ldap"];
const AUTH_QUERY: &str = "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE \
                          rolpassword END FROM pg_authid WHERE rolname=$1 AND rolcanlogin";
const BUFFERS: SettingEffect = SettingEffect::NoEffect("buffers have sizes of their own here");
const RESOLVER: SettingEffect =
    SettingEffect::NoEffect("names are resolved by the system's resolver");
const MANAGER: SettingEffect = SettingEffect::NoEffect("a service manager does this");

const fn of(
    name: &'static str,
    default: &'static str,
    kind: SettingKind,
    change: SettingEffect,
) -> PgbouncerSetting {
    PgbouncerSetting { name, default, kind, change }
}

/// All of them, sorted by name.
pub const SETTINGS: &[PgbouncerSetting] = &[
    of("admin_users", "", SettingKind::Text, SettingEffect::Live),
    of("application_name_add_host", "0", SettingKind::Flag, SettingEffect::Live),
    of("auth_dbname", "", SettingKind::Text, SettingEffect::Live),
    of("auth_file", "", SettingKind::Text, SettingEffect::Live),
    of("auth_hba_file", "", SettingKind::Text, SettingEffect::Live),
    of("auth_ident_file", "", SettingKind::Text, SettingEffect::Live),
    of("auth_ldap_options", "", SettingKind::Text, SettingEffect::Live),
    of("auth_query", AUTH_QUERY, SettingKind::Text, SettingEffect::Live),
    of("auth_type", "md5", SettingKind::Word(AUTH_TYPES), SettingEffect::Live),
    of("auth_user", "", SettingKind::Text, SettingEffect::Live),
    of("autodb_idle_timeout", "3600", SettingKind::Seconds, SettingEffect::Live),
    of("cancel_wait_timeout", "10", SettingKind::Seconds, SettingEffect::Live),
    of("client_idle_timeout", "0", SettingKind::Seconds, SettingEffect::Live),
    of("client_login_timeout", "60", SettingKind::Seconds, SettingEffect::Live),
    of("client_tls13_ciphers", "", SettingKind::Text, SettingEffect::Restart),
    of("client_tls_ca_file", "", SettingKind::Text, SettingEffect::Live),
    of("client_tls_cert_file", "", SettingKind::Text, SettingEffect::Live),
    of("client_tls_ciphers", "default", SettingKind::Text, SettingEffect::Restart),
    of(
        "client_tls_dheparams",
        "auto",
        SettingKind::Text,
        SettingEffect::NoEffect("no finite-field groups"),
    ),
    of("client_tls_ecdhcurve", "auto", SettingKind::Text, SettingEffect::Restart),
    of("client_tls_key_file", "", SettingKind::Text, SettingEffect::Live),
    of("client_tls_protocols", "secure", SettingKind::Text, SettingEffect::Restart),
    of("client_tls_sslmode", "disable", SettingKind::Word(TLS_MODES), SettingEffect::Live),
    of("conffile", "", SettingKind::Text, SettingEffect::Live),
    of("default_pool_size", "20", SettingKind::Count, SettingEffect::Live),
    of("disable_pqexec", "0", SettingKind::Flag, SettingEffect::Restart),
    of("dns_max_ttl", "15", SettingKind::Seconds, RESOLVER),
    of("dns_nxdomain_ttl", "15", SettingKind::Seconds, RESOLVER),
    of("dns_zone_check_period", "0", SettingKind::Seconds, RESOLVER),
    of("idle_transaction_timeout", "0", SettingKind::Seconds, SettingEffect::Live),
    of("ignore_startup_parameters", "", SettingKind::Text, SettingEffect::Live),
    of("job_name", "pgbouncer", SettingKind::Text, SettingEffect::Restart),
    of("listen_addr", "", SettingKind::Text, SettingEffect::Restart),
    of("listen_backlog", "128", SettingKind::Count, SettingEffect::Restart),
    of("listen_port", "6432", SettingKind::Count, SettingEffect::Restart),
    of("log_connections", "1", SettingKind::Flag, SettingEffect::Live),
    of("log_disconnections", "1", SettingKind::Flag, SettingEffect::Live),
    of("log_pooler_errors", "1", SettingKind::Flag, SettingEffect::Live),
    of("log_stats", "1", SettingKind::Flag, SettingEffect::Live),
    of("logfile", "", SettingKind::Text, SettingEffect::Restart),
    of("login_notify_message", "", SettingKind::Text, SettingEffect::Live),
    of("max_client_conn", "100", SettingKind::Count, SettingEffect::Live),
    of("max_db_client_connections", "0", SettingKind::Count, SettingEffect::Live),
    of("max_db_connections", "0", SettingKind::Count, SettingEffect::Live),
    of("max_packet_size", "2147483647", SettingKind::Count, SettingEffect::Live),
    of("max_prepared_statements", "200", SettingKind::Count, SettingEffect::Live),
    of("max_user_client_connections", "0", SettingKind::Count, SettingEffect::Live),
    of("max_user_connections", "0", SettingKind::Count, SettingEffect::Live),
    of("min_pool_size", "0", SettingKind::Count, SettingEffect::Live),
    of("peer_id", "0", SettingKind::Count, SettingEffect::NoEffect("one process has all threads")),
    of("pidfile", "", SettingKind::Text, SettingEffect::Restart),
    of("pkt_buf", "4096", SettingKind::Count, BUFFERS),
    of("pool_idle_timeout", "0", SettingKind::Seconds, SettingEffect::Live),
    of("pool_mode", "session", SettingKind::Word(POOL_MODES), SettingEffect::Live),
    of("query_timeout", "0", SettingKind::Seconds, SettingEffect::Live),
    of("query_wait_notify", "5", SettingKind::Seconds, SettingEffect::Live),
    of("query_wait_timeout", "120", SettingKind::Seconds, SettingEffect::Live),
    of("reserve_pool_size", "0", SettingKind::Count, SettingEffect::Live),
    of("reserve_pool_timeout", "5", SettingKind::Seconds, SettingEffect::Live),
    of("resolv_conf", "", SettingKind::Text, RESOLVER),
    of("sbuf_loopcnt", "5", SettingKind::Count, BUFFERS),
    of("scram_iterations", "4096", SettingKind::Count, SettingEffect::Live),
    of("server_check_delay", "30", SettingKind::Seconds, SettingEffect::Live),
    of("server_check_query", "<empty>", SettingKind::Text, SettingEffect::Live),
    of("server_connect_timeout", "15", SettingKind::Seconds, SettingEffect::Live),
    of("server_fast_close", "0", SettingKind::Flag, SettingEffect::Live),
    of("server_idle_timeout", "600", SettingKind::Seconds, SettingEffect::Live),
    of("server_lifetime", "3600", SettingKind::Seconds, SettingEffect::Live),
    of("server_login_retry", "15", SettingKind::Seconds, SettingEffect::Live),
    of("server_reset_query", "DISCARD ALL", SettingKind::Text, SettingEffect::Live),
    of("server_reset_query_always", "0", SettingKind::Flag, SettingEffect::Live),
    of("server_round_robin", "0", SettingKind::Flag, SettingEffect::Live),
    of("server_tls13_ciphers", "", SettingKind::Text, SettingEffect::Restart),
    of("server_tls_ca_file", "", SettingKind::Text, SettingEffect::Live),
    of("server_tls_cert_file", "", SettingKind::Text, SettingEffect::Live),
    of("server_tls_ciphers", "default", SettingKind::Text, SettingEffect::Restart),
    of("server_tls_key_file", "", SettingKind::Text, SettingEffect::Live),
    of("server_tls_protocols", "secure", SettingKind::Text, SettingEffect::Restart),
    of("server_tls_sslmode", "prefer", SettingKind::Word(TLS_MODES), SettingEffect::Live),
    of("service_name", "pgbouncer", SettingKind::Text, SettingEffect::Restart),
    of("so_reuseport", "0", SettingKind::Flag, SettingEffect::Restart),
    of("stats_period", "60", SettingKind::Seconds, SettingEffect::Live),
    of("stats_users", "", SettingKind::Text, SettingEffect::Live),
    of("suspend_timeout", "10", SettingKind::Seconds, SettingEffect::Live),
    of("syslog", "0", SettingKind::Flag, MANAGER),
    of("syslog_facility", "daemon", SettingKind::Text, MANAGER),
    of("syslog_ident", "pgbouncer", SettingKind::Text, MANAGER),
    of(
        "tcp_defer_accept",
        "1",
        SettingKind::Count,
        SettingEffect::NoEffect("accepting costs no process here"),
    ),
    of("tcp_keepalive", "1", SettingKind::Flag, SettingEffect::Live),
    of("tcp_keepcnt", "0", SettingKind::Count, SettingEffect::Live),
    of("tcp_keepidle", "0", SettingKind::Count, SettingEffect::Live),
    of("tcp_keepintvl", "0", SettingKind::Count, SettingEffect::Live),
    of("tcp_socket_buffer", "0", SettingKind::Count, BUFFERS),
    of("tcp_user_timeout", "0", SettingKind::Count, SettingEffect::Live),
    of("track_extra_parameters", "IntervalStyle", SettingKind::Text, SettingEffect::Live),
    of("transaction_timeout", "0", SettingKind::Seconds, SettingEffect::Live),
    of("unix_socket_dir", "/tmp", SettingKind::Text, SettingEffect::Restart),
    of("unix_socket_group", "", SettingKind::Text, SettingEffect::Restart),
    of("unix_socket_mode", "0777", SettingKind::Text, SettingEffect::Restart),
    of("user", "", SettingKind::Text, SettingEffect::Restart),
    of("verbose", "0", SettingKind::Count, SettingEffect::Live),
];

/// Returns the setting of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static PgbouncerSetting> {
    let index = SETTINGS.binary_search_by(|setting| setting.name.cmp(name)).ok()?;
    Some(&SETTINGS[index])
}

/// The values in force: those of the file, with later changes by `SET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingValues(Vec<String>);

impl Default for SettingValues {
    fn default() -> SettingValues {
        SettingValues(SETTINGS.iter().map(|setting| setting.default.to_owned()).collect())
    }
}

impl SettingValues {
    /// Creates the values of `[pgbouncer]`; absent settings have their defaults.
    ///
    /// # Errors
    /// The first line with an unknown name or a value of the wrong kind.
    pub fn from_entries(entries: &[IniEntry]) -> Result<SettingValues, IniError> {
        let mut values = SettingValues::default();
        for IniEntry { at, key, value } in entries {
            let wrong = |what| IniError::Line { at: at.clone(), what };
            values.set(key, value).map_err(wrong)?;
        }
        Ok(values)
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// If there is no such setting, or the value is of the wrong kind.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let found = SETTINGS.binary_search_by(|setting| setting.name.cmp(name));
        let index = found.map_err(|_| format!("there is no setting {name}"))?;
        let kind = SETTINGS[index].kind;
        let value = canonical(kind, value)
            .ok_or_else(|| format!("{name} cannot be {value:?}: {}", expected(kind)))?;
        self.0[index] = value;
        Ok(())
    }

    /// Returns the value of a setting, as `SHOW CONFIG` shows it.
    ///
    /// # Panics
    /// If there is no such setting: names are literals of this crate.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let found = SETTINGS.binary_search_by(|setting| setting.name.cmp(name));
        &self.0[found.expect("a name of the table")]
    }

    /// Returns a [`SettingKind::Flag`].
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == "1"
    }

    /// Returns a [`SettingKind::Count`].
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(u64::MAX)
    }

    /// Returns a [`SettingKind::Seconds`]; 0 means "never" where PgBouncer's documentation says so.
    #[must_use]
    pub fn seconds(&self, name: &str) -> std::time::Duration {
        std::time::Duration::from_secs_f64(self.text(name).parse().unwrap_or_default())
    }

    /// Returns names with their values, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&'static PgbouncerSetting, &str)> {
        SETTINGS.iter().zip(self.0.iter().map(String::as_str))
    }
}

/// Maximum time that can be configured: a hundred years.
const SECONDS_MAX: f64 = 3.2e9;

fn canonical(kind: SettingKind, value: &str) -> Option<String> {
    Some(match kind {
        SettingKind::Flag => match value.to_ascii_lowercase().as_str() {
            "1" | "yes" | "on" | "true" => "1".to_owned(),
            "0" | "no" | "off" | "false" => "0".to_owned(),
            _ => return None,
        },
        SettingKind::Count => value.parse::<u64>().ok()?.to_string(),
        SettingKind::Seconds => {
            let seconds: f64 = value.parse().ok()?;
            (0.0..=SECONDS_MAX).contains(&seconds).then(|| seconds.to_string())?
        }
        SettingKind::Word(words) => {
            let lower = value.to_ascii_lowercase();
            words.contains(&lower.as_str()).then_some(lower)?
        }
        SettingKind::Text => value.to_owned(),
    })
}

fn expected(kind: SettingKind) -> String {
    match kind {
        SettingKind::Flag => "0 or 1".to_owned(),
        SettingKind::Count => "a non-negative number".to_owned(),
        SettingKind::Seconds => "seconds".to_owned(),
        SettingKind::Word(words) => format!("one of {}", words.join(", ")),
        SettingKind::Text => "a text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_default_is_of_its_kind() {
        assert!(SETTINGS.is_sorted_by(|a, b| a.name < b.name));
        for setting in SETTINGS {
            let default = canonical(setting.kind, setting.default);
            assert_eq!(default.as_deref(), Some(setting.default), "{}", setting.name);
        }
    }

    #[test]
    fn values_are_checked_when_they_are_set() {
        let mut values = SettingValues::default();
        for (name, value, shown) in [
            ("pool_mode", "Transaction", "transaction"),
            ("tcp_keepalive", "off", "0"),
            ("server_lifetime", "2.5", "2.5"),
            ("max_client_conn", "007", "7"),
            ("auth_file", "/a b", "/a b"),
        ] {
            values.set(name, value).unwrap();
            assert_eq!(values.text(name), shown, "{name}");
        }
        assert_eq!(values.seconds("server_lifetime").as_millis(), 2500);
        assert!(!values.flag("tcp_keepalive"));
        for (name, value) in [
            ("nope", "1"),
            ("pool_mode", "none"),
            ("tcp_keepalive", "2"),
            ("server_lifetime", "-1"),
            ("server_lifetime", "NaN"),
            ("max_client_conn", "-1"),
        ] {
            values.set(name, value).unwrap_err();
        }
    }
}
