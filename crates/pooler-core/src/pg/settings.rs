//! Settings of a session: those that a client wants, those of a server connection, and the
//! difference.
//!
//! A map is small, sorted and shared; two maps are mostly the same allocation, and then nothing has
//! to be done. Values have the form that `set_config` accepts.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/runtime-config-client.html>
//! - <https://www.postgresql.org/docs/current/sql-set.html>

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use wire::pg::sql::{is_setting_name, list_items, quote_literal};

/// Maximum settings of a client; one that sets more keeps its server connection.
pub const SETTINGS_MAX: usize = 64;

/// Maximum bytes of one value.
pub const SETTING_BYTES_MAX: usize = 8 * 1024;

/// A small map from names to values, with fingerprints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgSettings {
    /// Sorted by name; names are in lower case.
    entries: Vec<(Box<str>, Box<str>)>,
    fingerprint: u64,
    plan_key: u64,
}

/// Settings that affect neither the meaning of a text nor its plan, so that statements prepared
/// under different values of them are the same.
const NOT_FOR_PLANS: &[&str] = &[
    "application_name",
    "client_min_messages",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "log_min_duration_statement",
    "statement_timeout",
    "transaction_timeout",
];

/// Settings that are not replayed: their change is more than a value, or ends with the transaction.
const NOT_REPLAYED: &[&str] = &[
    "is_superuser",
    "role",
    "seed",
    "session_authorization",
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
];

/// Settings that are lists of quoted names: `SET` would take a string for a single name. Only the
/// server itself has such settings, not extensions (`GUC_LIST_QUOTE` in `guc.h`).
const LISTS: &[&str] = &[
    "local_preload_libraries",
    "search_path",
    "session_preload_libraries",
    "shared_preload_libraries",
    "temp_tablespaces",
    "unix_socket_directories",
];

/// Setting that makes a session read-only. Servers report it from version 14 on.
pub const READ_ONLY: &str = "default_transaction_read_only";

/// Returns whether a setting can be set at another connection at all.
pub fn is_replayable(name: &str) -> bool {
    is_setting_name(name) && !NOT_REPLAYED.iter().any(|not| not.eq_ignore_ascii_case(name))
}

impl PgSettings {
    /// Creates settings from pairs of names and values; those that cannot be replayed are left out.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> PgSettings {
        let mut settings = PgSettings::default();
        for (name, value) in pairs {
            let _replayed = settings.put(name, Some(value));
        }
        settings
    }

    /// Changes a setting; `None` removes it. Returns false, without a change, if it cannot be
    /// replayed, or exceeds [`SETTING_BYTES_MAX`] or [`SETTINGS_MAX`].
    pub fn put(&mut self, name: &str, value: Option<&str>) -> bool {
        if !is_replayable(name) {
            return false;
        }
        let name = name.to_ascii_lowercase();
        match (self.entries.binary_search_by(|entry| entry.0.as_ref().cmp(&name)), value) {
            (_, Some(value)) if value.len() > SETTING_BYTES_MAX => return false,
            (Err(_), Some(_)) if self.entries.len() >= SETTINGS_MAX => return false,
            (Ok(at), Some(value)) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.1 = value.into();
                }
            }
            (Ok(at), None) => drop(self.entries.remove(at)),
            (Err(at), Some(value)) => self.entries.insert(at, (name.into(), value.into())),
            (Err(_), None) => return true,
        }
        self.seal();
        true
    }

    /// Returns these settings, overridden by the others.
    pub fn overlaid(&self, others: &PgSettings) -> PgSettings {
        let mut settings = self.clone();
        for (name, value) in &others.entries {
            let _replayed = settings.put(name, Some(value));
        }
        settings
    }

    /// Returns the value of a setting; its name is in lower case.
    pub fn value(&self, name: &str) -> Option<&str> {
        let at = self.entries.binary_search_by(|entry| entry.0.as_ref().cmp(name)).ok()?;
        self.entries.get(at).map(|entry| entry.1.as_ref())
    }

    /// Returns all settings, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Returns the number of settings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns a number that is the same for equal maps, and very likely differs for others.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the fingerprint of the settings that affect the meaning of a statement.
    pub fn plan_key(&self) -> u64 {
        self.plan_key
    }

    fn seal(&mut self) {
        let mut all = DefaultHasher::new();
        let mut plans = DefaultHasher::new();
        for entry in &self.entries {
            entry.hash(&mut all);
            if !NOT_FOR_PLANS.contains(&entry.0.as_ref()) {
                entry.hash(&mut plans);
            }
        }
        // Empty settings have zero, so that a connection without settings needs no hash.
        self.fingerprint = if self.entries.is_empty() { 0 } else { all.finish() };
        self.plan_key = if self.entries.is_empty() { 0 } else { plans.finish() };
    }

    /// Appends the statements that change a session with these settings to `wanted`, each with a
    /// semicolon.
    pub fn write_change(&self, wanted: &PgSettings, out: &mut Vec<u8>) {
        for (name, _) in &self.entries {
            if wanted.value(name).is_none() {
                out.extend_from_slice(b"RESET ");
                out.extend_from_slice(name.as_bytes());
                out.push(b';');
            }
        }
        for (name, value) in &wanted.entries {
            if self.value(name) != Some(value.as_ref()) {
                write_set(name, value, out);
            }
        }
    }
}

/// Appends a block of code that sets a setting to an exact value: `SET` would reassemble the items
/// of a list. The block returns no rows, like `SET`.
pub(crate) fn write_block(name: &str, value: &str, is_local: bool, out: &mut Vec<u8>) {
    let mut literal = Vec::new();
    quote_literal(&mut literal, value);
    let literal = String::from_utf8_lossy(&literal);
    let body = format!("BEGIN PERFORM pg_catalog.set_config('{name}',{literal},{is_local}); END");
    out.extend_from_slice(b"DO ");
    quote_literal(out, &body);
}

/// Returns whether `SET` may change the spelling of a value.
pub(crate) fn is_respelled(name: &str, value: &str) -> bool {
    LISTS.contains(&name) && value.split(',').skip(1).any(|item| !item.starts_with(' '))
}

/// Appends `verb name TO value`, for any kind of setting. False: a malformed list.
pub(crate) fn write_assignment(verb: &str, name: &str, value: &str, out: &mut Vec<u8>) -> bool {
    let list = LISTS.contains(&name);
    let items = match list {
        true => list_items(value),
        false => Some(vec![value.to_owned()]),
    };
    let Some(mut items) = items else { return false };
    if items.is_empty() {
        // An empty list cannot be written; a list of an empty name has the same meaning.
        items.push(String::new());
    }
    out.extend_from_slice(format!("{verb} {name} TO ").as_bytes());
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        quote_literal(out, item);
    }
    true
}

/// Appends a call of `set_config` for the session.
pub(crate) fn write_call(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"pg_catalog.set_config('");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"',");
    quote_literal(out, value);
    out.extend_from_slice(b",false)");
}

fn write_set(name: &str, value: &str, out: &mut Vec<u8>) {
    if LISTS.contains(&name) {
        out.extend_from_slice(b"SELECT ");
        write_call(name, value, out);
        out.push(b';');
    } else {
        out.extend_from_slice(b"SET ");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b" TO ");
        quote_literal(out, value);
        out.push(b';');
    }
}

/// Parameters that a server reports, in its spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedParameters(Vec<(Box<str>, Box<str>)>);

impl ReportedParameters {
    /// Creates the parameters of a server's greeting.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> ReportedParameters {
        let mut parameters = ReportedParameters::default();
        for (name, value) in pairs {
            parameters.put(name, value);
        }
        parameters
    }

    /// Returns the value of a parameter.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|entry| *entry.0 == *name).map(|entry| entry.1.as_ref())
    }

    /// Returns all parameters, in the order of their first report.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Records the value of a parameter. A server reports about fifteen; beyond [`SETTINGS_MAX`]
    /// new ones are ignored.
    pub fn put(&mut self, name: &str, value: &str) {
        if let Some(entry) = self.0.iter_mut().find(|entry| *entry.0 == *name) {
            entry.1 = value.into();
        } else if self.0.len() < SETTINGS_MAX {
            self.0.push((name.into(), value.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: &[(&str, &str)], to: &[(&str, &str)], wanted: &str) {
        let (from, to) = (PgSettings::of(from.iter().copied()), PgSettings::of(to.iter().copied()));
        let mut out = Vec::new();
        from.write_change(&to, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
        assert_eq!(from.fingerprint() == to.fingerprint(), wanted.is_empty());
    }

    #[test]
    fn a_change_says_only_what_differs() {
        check(&[], &[], "");
        check(&[("a", "1")], &[("A", "1")], "");
        check(&[("b", "1"), ("a", "2")], &[("a", "2"), ("b", "1")], "");
        check(&[], &[("TimeZone", "UTC")], "SET timezone TO 'UTC';");
        check(&[("timezone", "UTC")], &[], "RESET timezone;");
        check(
            &[("a", "1"), ("b", "1")],
            &[("b", "2"), ("c", "3")],
            "RESET a;SET b TO '2';SET c TO '3';",
        );
    }

    #[test]
    fn a_value_stays_a_value() {
        check(&[], &[("x.y", "'; DROP TABLE t; --")], "SET x.y TO '''; DROP TABLE t; --';");
        check(&[], &[("a", r"\'")], r"SET a TO  E'\\''';");
        check(
            &[],
            &[("search_path", r#"a, "B c""#)],
            r#"SELECT pg_catalog.set_config('search_path','a, "B c"',false);"#,
        );
    }

    #[test]
    fn what_cannot_be_replayed_is_left_out() {
        for name in
            ["role", "Session_Authorization", "a b", "", "1a", "a;b", "transaction_isolation"]
        {
            assert!(PgSettings::of([(name, "x")]).is_empty(), "{name}");
        }
    }

    #[test]
    fn plans_do_not_depend_on_names_of_applications() {
        let plain = PgSettings::of([("timezone", "UTC")]);
        let named = plain.overlaid(&PgSettings::of([("application_name", "x")]));
        assert_eq!(plain.plan_key(), named.plan_key());
        assert_ne!(plain.fingerprint(), named.fingerprint());
        assert_ne!(plain.plan_key(), PgSettings::of([("timezone", "GMT")]).plan_key());
    }
}
