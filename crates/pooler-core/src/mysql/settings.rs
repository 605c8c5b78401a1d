//! Settings of a session: those that a client wants, those of a server connection, and the
//! difference.
//!
//! A map is small, sorted and shared; two maps are mostly the same allocation, and then nothing has
//! to be done. Values have the form in which a server's tracker reports them. The schema is among
//! the settings, but is not a variable: it is changed by a command of its own.
//!
//! The character set and the collation of a connection are one setting with two names: each changes
//! the other, and servers report only the one that was named. The map keeps the more specific one:
//! the collation if it was named, else the character set, which implies its default collation.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/server-system-variables.html>
//! - <https://dev.mysql.com/doc/refman/8.4/en/session-state-tracking.html>

mod collations;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use wire::mysql::sql::SqlMode;

use crate::pg::statements::HashedMap;

/// Maximum settings of a client; one that sets more keeps its server connection.
pub const SETTINGS_MAX: usize = 64;

/// Maximum bytes of one value.
pub const SETTING_BYTES_MAX: usize = 8 * 1024;

/// Maximum bytes of all names and values together.
pub const SETTINGS_BYTES_MAX: usize = 32 * 1024;

/// Maximum bytes of the name of a schema: 64 characters in UTF-8.
pub const SCHEMA_BYTES_MAX: usize = 256;

/// Maximum bytes of the name of a variable: servers have none that long.
const NAME_BYTES_MAX: usize = 64;

/// Maximum distinct settings that an [`SettingsInterner`] keeps.
const INTERNED_MAX: usize = 512;

/// The variable that decides how texts are parsed.
pub const SQL_MODE: &str = "sql_mode";

const CHARSET_CLIENT: &str = "character_set_client";
const CHARSET_CONNECTION: &str = "character_set_connection";
const CHARSET_RESULTS: &str = "character_set_results";
const COLLATION_CONNECTION: &str = "collation_connection";

/// Variables that go first in a `SET`, in this order: the later ones depend on the earlier ones,
/// and all others follow them.
const FIRST: &[&str] = &[
    SQL_MODE,
    // These determine the default collation of a character set.
    "old_mode",
    "character_set_collations",
    "default_collation_for_utf8mb4",
    CHARSET_CLIENT,
    CHARSET_CONNECTION,
    COLLATION_CONNECTION,
    CHARSET_RESULTS,
];

/// Settings that affect neither the meaning of a text nor the description of its result, so that
/// statements prepared under different values of them are the same.
const NOT_FOR_PLANS: &[&str] = &[
    "autocommit",
    "completion_type",
    "idle_readonly_transaction_timeout",
    "idle_transaction_timeout",
    "idle_write_transaction_timeout",
    "innodb_lock_wait_timeout",
    "interactive_timeout",
    "lock_wait_timeout",
    "log_slow_query",
    "log_slow_query_time",
    "long_query_time",
    "max_execution_time",
    "max_statement_time",
    "net_read_timeout",
    "net_write_timeout",
    "slow_query_log",
    "sql_log_off",
    "transaction_isolation",
    "transaction_read_only",
    "tx_isolation",
    "tx_read_only",
    "wait_timeout",
];

/// Variables that are not replayed: their change is more than a value, holds for one statement
/// only, follows from another setting, is for administrators of the server, or is reserved for the
/// pooler.
const NOT_REPLAYED: &[&str] = &[
    "character_set_database",
    "collation_database",
    "default_master_connection",
    "error_count",
    "external_user",
    "identity",
    "immediate_server_version",
    "in_transaction",
    "insert_id",
    "last_gtid",
    "last_insert_id",
    "max_allowed_packet",
    "max_user_connections",
    "net_buffer_length",
    "optimizer_trace",
    "original_commit_timestamp",
    "original_server_version",
    "profiling",
    "profiling_history_size",
    "proxy_user",
    "pseudo_replica_mode",
    "pseudo_slave_mode",
    "pseudo_thread_id",
    "rand_seed1",
    "rand_seed2",
    "require_row_format",
    "resultset_metadata",
    "server_id",
    "skip_parallel_replication",
    "skip_replication",
    "sql_log_bin",
    "sql_slave_skip_counter",
    "statement_id",
    "system_versioning_asof",
    "timestamp",
    "transaction_allow_batching",
    "warning_count",
    "wsrep_gtid_seq_no",
    "wsrep_on",
];

/// Prefixes of such variables.
const NOT_REPLAYED_PREFIXES: &[&str] = &["debug", "gtid_", "ndb_", "session_track_"];

/// Variables without a value, which trackers report as an empty one.
const NULLABLE: &[&str] = &[
    CHARSET_RESULTS,
    "default_tmp_storage_engine",
    "enforce_storage_engine",
    "innodb_ft_user_stopword_table",
    "innodb_tmpdir",
];

/// Values of variables that are not replayed, with which a variable has no lasting effect.
const HARMLESS: &[(&str, &str)] = &[
    ("optimizer_trace", "enabled=off"),
    ("optimizer_trace", "enabled=off,one_line=off"),
    ("profiling", "OFF"),
    ("skip_parallel_replication", "OFF"),
    ("skip_replication", "OFF"),
    ("sql_log_bin", "ON"),
    ("system_versioning_asof", "DEFAULT"),
];

/// Result of a change of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingChange {
    /// Kept, to be replayed from now on.
    Kept,
    /// Not replayable.
    NotReplayable,
    /// The maximum is exceeded.
    TooMuch,
}

/// A small map from names of variables to values, with the schema and fingerprints.
#[derive(Clone, Debug, Default)]
pub struct MysqlSettings {
    /// Sorted by name; names are in lower case.
    entries: Vec<(Box<str>, Box<str>)>,
    schema: Option<Box<str>>,
    fingerprint: u64,
    plan_key: u64,
    mode: SqlMode,
}

impl PartialEq for MysqlSettings {
    fn eq(&self, other: &MysqlSettings) -> bool {
        self.fingerprint == other.fingerprint
            && self.schema == other.schema
            && self.entries == other.entries
    }
}

impl Eq for MysqlSettings {}

/// Returns whether a variable can be set at another connection at all; its name is in lower case.
pub fn is_replayable(name: &str) -> bool {
    is_name(name)
        && NOT_REPLAYED.binary_search(&name).is_err()
        && !NOT_REPLAYED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether a variable that cannot be replayed has no effect with this value: its pin then
/// ends.
pub fn is_harmless(name: &str, value: &str) -> bool {
    HARMLESS.iter().any(|(other, harmless)| *other == name && harmless.eq_ignore_ascii_case(value))
}

/// Names of plugins' variables contain a dot; any other special character would need quotes, and no
/// variable has one.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    first && name.len() <= NAME_BYTES_MAX && name.bytes().all(allowed)
}

impl MysqlSettings {
    /// Creates settings from pairs of names and values; those that cannot be replayed are left out.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> MysqlSettings {
        let mut settings = MysqlSettings::default();
        for (name, value) in pairs {
            let _kept = settings.put(name, Some(value));
        }
        settings
    }

    /// Sets the variables that a login with this collation sets.
    pub fn put_collation(&mut self, number: u16) {
        let (charset, collation) = collations::of_login(number);
        for name in [CHARSET_CLIENT, CHARSET_CONNECTION, CHARSET_RESULTS] {
            let _kept = self.put(name, Some(charset));
        }
        if let Some(collation) = collation {
            let _kept = self.put(COLLATION_CONNECTION, Some(collation));
        }
    }

    /// Returns the schema of unqualified names.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Sets the schema. A name is not replayable if it cannot be sent to a server independently of
    /// the character set.
    pub fn put_schema(&mut self, schema: &str) -> SettingChange {
        if schema.is_empty() {
            // The schema was dropped; no command selects none.
            return SettingChange::NotReplayable;
        }
        if schema.len() > SCHEMA_BYTES_MAX {
            return SettingChange::TooMuch;
        }
        if !is_plain(schema, self.value(CHARSET_CLIENT)) {
            return SettingChange::NotReplayable;
        }
        if self.schema() != Some(schema) {
            self.schema = Some(schema.into());
            self.seal();
        }
        SettingChange::Kept
    }

    /// Changes one variable; `None` removes it, which means the server's default. If the change
    /// cannot be kept, nothing is changed.
    pub fn put(&mut self, name: &str, value: Option<&str>) -> SettingChange {
        let name = name.to_ascii_lowercase();
        if !is_replayable(&name) {
            return SettingChange::NotReplayable;
        }
        if name == CHARSET_CLIENT
            && let Some(schema) = &self.schema
            && !is_plain(schema, value)
        {
            return SettingChange::NotReplayable;
        }
        let put = self.place(&name, value);
        // Each of the two changes the other.
        match name.as_str() {
            CHARSET_CONNECTION if put == SettingChange::Kept => self.remove(COLLATION_CONNECTION),
            COLLATION_CONNECTION if put == SettingChange::Kept => self.remove(CHARSET_CONNECTION),
            _ => {}
        }
        self.seal();
        put
    }

    fn place(&mut self, name: &str, value: Option<&str>) -> SettingChange {
        let found = self.entries.binary_search_by(|entry| entry.0.as_ref().cmp(name));
        let Some(value) = value else {
            if let Ok(at) = found {
                drop(self.entries.remove(at));
            }
            return SettingChange::Kept;
        };
        let before = self.value(name).map_or(0, str::len);
        let is_new = found.is_err();
        let bytes = self.bytes() - before + value.len() + if is_new { name.len() } else { 0 };
        if value.len() > SETTING_BYTES_MAX
            || bytes > SETTINGS_BYTES_MAX
            || (is_new && self.entries.len() >= SETTINGS_MAX)
        {
            return SettingChange::TooMuch;
        }
        match found {
            Ok(at) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.1 = value.into();
                }
            }
            Err(at) => self.entries.insert(at, (name.into(), value.into())),
        }
        SettingChange::Kept
    }

    fn remove(&mut self, name: &str) {
        if let Ok(at) = self.entries.binary_search_by(|entry| entry.0.as_ref().cmp(name)) {
            drop(self.entries.remove(at));
        }
    }

    fn bytes(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Applies the variables that a server's tracker reported in one reply, in any order.
    /// `collation` is the one of a `SET NAMES` with `COLLATE`, which no server reports. Returns the
    /// worst result.
    pub fn told<'a>(
        &mut self,
        changes: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        collation: Option<&str>,
    ) -> SettingChange {
        let mut worst = SettingChange::Kept;
        // The collation is more specific, and so is applied last.
        let is_collation = |name: &str| name.eq_ignore_ascii_case(COLLATION_CONNECTION);
        let others = changes.clone().filter(|(name, _)| !is_collation(name));
        let collations = changes.filter(|(name, _)| is_collation(name));
        for (name, value) in others.chain(collations) {
            worst = worst.or(self.put(name, Some(value)));
        }
        match collation {
            Some(collation) => worst.or(self.put(COLLATION_CONNECTION, Some(collation))),
            None => worst,
        }
    }

    /// Returns these settings, overridden by the others.
    #[must_use]
    pub fn overlaid(&self, others: &MysqlSettings) -> MysqlSettings {
        let mut settings = self.clone();
        for (name, value) in &others.entries {
            let _kept = settings.put(name, Some(value));
        }
        if let Some(schema) = &others.schema {
            let _kept = settings.put_schema(schema);
        }
        settings
    }

    /// Returns these settings, but those that affect the meaning of statements are the others'.
    #[must_use]
    pub(crate) fn planned_as(&self, others: &MysqlSettings) -> MysqlSettings {
        let is_for_plans = |name: &str| NOT_FOR_PLANS.binary_search(&name).is_err();
        let own = self.entries.iter().filter(|(name, _)| !is_for_plans(name));
        let theirs = others.entries.iter().filter(|(name, _)| is_for_plans(name));
        let mut settings = MysqlSettings {
            entries: own.chain(theirs).cloned().collect(),
            schema: others.schema.clone(),
            ..MysqlSettings::default()
        };
        settings.entries.sort();
        settings.seal();
        settings
    }

    /// Returns the value of a variable; its name is in lower case.
    pub fn value(&self, name: &str) -> Option<&str> {
        let at = self.entries.binary_search_by(|entry| entry.0.as_ref().cmp(name)).ok()?;
        self.entries.get(at).map(|entry| entry.1.as_ref())
    }

    /// Returns all variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Returns the number of variables.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no variable and no schema.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.schema.is_none()
    }

    /// Returns a number that is the same for equal settings, and very likely differs for others.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the fingerprint of those settings only that change how a statement is understood, or
    /// how its result is described.
    pub fn plan_key(&self) -> u64 {
        self.plan_key
    }

    /// Returns the parsing mode of texts under these settings.
    pub fn mode(&self) -> SqlMode {
        self.mode
    }

    fn seal(&mut self) {
        let mut all = DefaultHasher::new();
        let mut plans = DefaultHasher::new();
        self.schema.hash(&mut all);
        self.schema.hash(&mut plans);
        for entry in &self.entries {
            entry.hash(&mut all);
            if NOT_FOR_PLANS.binary_search(&entry.0.as_ref()).is_err() {
                entry.hash(&mut plans);
            }
        }
        // Empty settings have zero, like a map that was never sealed.
        self.fingerprint = if self.is_empty() { 0 } else { all.finish() };
        self.plan_key = if self.is_empty() { 0 } else { plans.finish() };
        let sql_mode = self.value(SQL_MODE).unwrap_or_default();
        let charset = self.value(CHARSET_CLIENT).unwrap_or("utf8mb4");
        self.mode = SqlMode::of(sql_mode.as_bytes(), charset.as_bytes());
    }

    /// Returns the schema that has to be selected to change a session with these settings to
    /// `wanted`. A session without a schema cannot be restored: every client should have one.
    pub fn schema_change<'a>(&self, wanted: &'a MysqlSettings) -> Option<&'a str> {
        wanted.schema().filter(|schema| self.schema() != Some(schema))
    }

    /// Appends the statement that changes the variables of a session with these settings to those
    /// of `wanted`; returns whether any differ.
    pub fn write_change(&self, wanted: &MysqlSettings, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        for name in FIRST {
            self.write_one(name, wanted, start, out);
        }
        for (name, _) in &self.entries {
            if wanted.value(name).is_none() && !FIRST.contains(&name.as_ref()) {
                self.write_one(name, wanted, start, out);
            }
        }
        for (name, _) in &wanted.entries {
            if !FIRST.contains(&name.as_ref()) {
                self.write_one(name, wanted, start, out);
            }
        }
        out.len() > start
    }

    fn write_one(&self, name: &str, wanted: &MysqlSettings, start: usize, out: &mut Vec<u8>) {
        let to = wanted.value(name);
        let changes = match name {
            // One setting with two names.
            CHARSET_CONNECTION => {
                let has_collation =
                    |settings: &MysqlSettings| settings.value(COLLATION_CONNECTION).is_some();
                (self.value(name) != to || has_collation(self))
                    && !has_collation(wanted)
                    && (to.is_some() || self.value(name).is_some() || has_collation(self))
            }
            COLLATION_CONNECTION => to.is_some() && self.value(name) != to,
            _ => self.value(name) != to,
        };
        if !changes {
            return;
        }
        out.extend_from_slice(if out.len() == start { b"SET " } else { b"," });
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        match to {
            Some(value) => write_value(name, value, out),
            None => out.extend_from_slice(b"DEFAULT"),
        }
    }
}

impl SettingChange {
    /// Returns the worse of two results: a setting beyond the maximum could be kept otherwise.
    fn or(self, other: SettingChange) -> SettingChange {
        match (self, other) {
            (SettingChange::NotReplayable, _) | (_, SettingChange::NotReplayable) => {
                SettingChange::NotReplayable
            }
            (SettingChange::TooMuch, _) | (_, SettingChange::TooMuch) => SettingChange::TooMuch,
            (SettingChange::Kept, SettingChange::Kept) => SettingChange::Kept,
        }
    }
}

/// Returns whether a name has the same bytes in a client's character set as in the tracker's.
fn is_plain(name: &str, charset: Option<&str>) -> bool {
    name.is_ascii() || charset.is_none_or(|charset| charset.starts_with("utf8"))
}

/// Appends a value as a literal that has the same meaning under any SQL mode and character set.
fn write_value(name: &str, value: &str, out: &mut Vec<u8>) {
    if value.is_empty() && NULLABLE.contains(&name) {
        out.extend_from_slice(b"NULL");
    } else if is_number(value) {
        // A quoted number is not a number for a numeric variable.
        out.extend_from_slice(value.as_bytes());
    } else if value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\') {
        out.push(b'\'');
        for byte in value.bytes() {
            out.push(byte);
            if byte == b'\'' {
                out.push(byte);
            }
        }
        out.push(b'\'');
    } else {
        out.extend_from_slice(b"_utf8mb4 0x");
        out.extend_from_slice(super::literal::hex_digits(value.as_bytes()).as_bytes());
    }
}

fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let all = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all(whole) && all(part)
}

/// Shares equal settings of many sessions in one allocation. For one thread.
#[derive(Debug, Default)]
pub struct SettingsInterner {
    known: HashedMap<u64, Arc<MysqlSettings>>,
}

impl SettingsInterner {
    /// Returns equal settings in a shared allocation.
    pub fn share(&mut self, settings: Arc<MysqlSettings>) -> Arc<MysqlSettings> {
        let fingerprint = settings.fingerprint();
        if let Some(known) = self.known.get(&fingerprint)
            && **known == *settings
        {
            return known.clone();
        }
        if self.known.len() >= INTERNED_MAX {
            self.known.retain(|_, known| Arc::strong_count(known) > 1);
        }
        if self.known.len() < INTERNED_MAX {
            drop(self.known.insert(fingerprint, settings.clone()));
        }
        settings
    }
}

#[cfg(test)]
mod tests;
