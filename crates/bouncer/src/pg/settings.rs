//! Settings of a session: what a client wants, what a server connection has, and the difference.
//!
//! A map is small, sorted and shared; two maps are mostly the same allocation, and then there is
//! nothing to do. Values come in two forms, because a list such as a search path cannot be said as
//! one string: the raw value, as the server keeps it, and the right-hand side of the client's own
//! `SET`.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Settings that a client may keep; one that sets more is not replayed beyond it but held.
pub const SETTINGS_MAX: usize = 64;

/// Bytes of one value.
pub const SETTING_BYTES_MAX: usize = 8 * 1024;

/// What a setting was set to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// The raw value, as `current_setting` gives it.
    Raw(Box<str>),
    /// What followed `SET name TO`, which the server has accepted once.
    Clause(Box<str>),
}

/// A small map from names to values, and fingerprints of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Sorted by name; names are in lower case.
    entries: Vec<(Box<str>, Value)>,
    fingerprint: u64,
    plan_key: u64,
}

/// Settings that change neither how a text is understood nor how it is planned, so that statements
/// prepared under different values of them are the same.
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

/// Settings that are not replayed: what they change is more than a value, or is over with the
/// transaction.
const NOT_REPLAYED: &[&str] = &[
    "is_superuser",
    "role",
    "seed",
    "session_authorization",
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
];

/// Settings that are lists of quoted names: a string given to `SET` would be one name. Only the
/// server itself has such settings, extensions cannot (`GUC_LIST_QUOTE` in `guc.h`).
const LISTS: &[&str] = &[
    "local_preload_libraries",
    "search_path",
    "session_preload_libraries",
    "shared_preload_libraries",
    "temp_tablespaces",
    "unix_socket_directories",
];

/// Whether a setting can be given to another connection at all.
pub fn is_replayable(name: &str) -> bool {
    is_name(name) && !NOT_REPLAYED.iter().any(|not| not.eq_ignore_ascii_case(name))
}

/// Whether this is the name of a setting and nothing but.
fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$'))
}

impl Settings {
    /// Of pairs of names and raw values; what cannot be replayed is left out.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in pairs {
            if is_replayable(name) {
                settings.put(name, Some(Value::Raw(value.into())));
            }
        }
        settings
    }

    /// Changes one; none removes it. The caller has asked [`is_replayable`].
    pub fn put(&mut self, name: &str, value: Option<Value>) {
        let name = name.to_ascii_lowercase();
        match (self.entries.binary_search_by(|entry| entry.0.as_ref().cmp(&name)), value) {
            (Ok(at), Some(value)) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.1 = value;
                }
            }
            (Ok(at), None) => drop(self.entries.remove(at)),
            (Err(at), Some(value)) => self.entries.insert(at, (name.into(), value)),
            (Err(_), None) => {}
        }
        self.seal();
    }

    /// These, and over them the others.
    pub fn overlaid(&self, others: &Settings) -> Settings {
        let mut settings = self.clone();
        for (name, value) in &others.entries {
            settings.put(name, Some(value.clone()));
        }
        settings
    }

    /// The value of a setting; its name in lower case.
    pub fn value(&self, name: &str) -> Option<&Value> {
        let at = self.entries.binary_search_by(|entry| entry.0.as_ref().cmp(name)).ok()?;
        self.entries.get(at).map(|entry| &entry.1)
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A number that equal maps share, and different ones hardly.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The same, of those settings only that change how a statement is understood.
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
        // Nothing is zero, so that a connection without settings needs no hash to say so.
        self.fingerprint = if self.entries.is_empty() { 0 } else { all.finish() };
        self.plan_key = if self.entries.is_empty() { 0 } else { plans.finish() };
    }

    /// Appends the statements that make a session with these settings one with `wanted`, each with
    /// a semicolon.
    pub fn write_change(&self, wanted: &Settings, out: &mut Vec<u8>) {
        for (name, _) in &self.entries {
            if wanted.value(name).is_none() {
                out.extend_from_slice(b"RESET ");
                out.extend_from_slice(name.as_bytes());
                out.push(b';');
            }
        }
        for (name, value) in &wanted.entries {
            if self.value(name) != Some(value) {
                write_set(name, value, out);
            }
        }
    }
}

fn write_set(name: &str, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Raw(text) if LISTS.contains(&name) => {
            out.extend_from_slice(b"SELECT pg_catalog.set_config('");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"',");
            write_literal(text, out);
            out.extend_from_slice(b",false);");
        }
        Value::Raw(text) => {
            write_to(name, out);
            write_literal(text, out);
            out.push(b';');
        }
        Value::Clause(clause) => {
            write_to(name, out);
            out.extend_from_slice(clause.as_bytes());
            // The clause may end with a comment to the end of the line.
            out.extend_from_slice(b"\n;");
        }
    }
}

fn write_to(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"SET ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b" TO ");
}

/// A string that means the same whatever `standard_conforming_strings` says.
fn write_literal(text: &str, out: &mut Vec<u8>) {
    if text.contains('\\') {
        out.extend_from_slice(b" E");
    }
    out.push(b'\'');
    for byte in text.bytes().filter(|byte| *byte != 0) {
        if matches!(byte, b'\'' | b'\\') {
            out.push(byte);
        }
        out.push(byte);
    }
    out.push(b'\'');
}

/// The parameters that a server reports, as it spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(Box<str>, Box<str>)>);

impl Parameters {
    /// Of the greeting of a server.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Parameters {
        let mut parameters = Parameters::default();
        for (name, value) in pairs {
            parameters.put(name, value);
        }
        parameters
    }

    /// The value of one.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|entry| *entry.0 == *name).map(|entry| entry.1.as_ref())
    }

    /// All, in the order in which they were reported first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// One has this value now. A server reports about fifteen; beyond [`SETTINGS_MAX`] new ones are
    /// not remembered.
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
        let (from, to) = (Settings::of(from.iter().copied()), Settings::of(to.iter().copied()));
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
            assert!(Settings::of([(name, "x")]).is_empty(), "{name}");
        }
    }

    #[test]
    fn plans_do_not_depend_on_names_of_applications() {
        let plain = Settings::of([("timezone", "UTC")]);
        let named = plain.overlaid(&Settings::of([("application_name", "x")]));
        assert_eq!(plain.plan_key(), named.plan_key());
        assert_ne!(plain.fingerprint(), named.fingerprint());
        assert_ne!(plain.plan_key(), Settings::of([("timezone", "GMT")]).plan_key());
    }
}
