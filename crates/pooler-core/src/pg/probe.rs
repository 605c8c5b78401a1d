//! Probe of the state that a server connection's session still has: the query, and its answer.
//!
//! The probe is one simple query with one statement, sent while the client's reply is already on
//! its way. Every name in it is qualified, including operators and types, so that a `search_path`
//! cannot replace them. It needs no privilege that `PUBLIC` lacks, works from version 12 to 18, and
//! leaves no state. This module sends nothing itself.
//!
//! Costs on one core with version 15, beyond 40 µs for `SELECT 1`: settings 600 to 800 µs, because
//! the server writes all of them; advisory locks 60, temporary objects 30, prepared statements 15,
//! cursors 10, channels and role negligible; all except the settings together 140. So a probe
//! queries only state that may have changed, and settings by name if the name is known.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::{BitOr, BitOrAssign};
use std::sync::LazyLock;

use wire::pg::sql::is_setting_name;

/// Maximum rows of an answer that are read. The longest lists are channels, and settings, of which
/// a server has about 400.
pub(crate) const ANSWER_ROWS_MAX: usize = 4096;

/// Maximum settings that are queried by name in one probe; if there are more, all settings are
/// queried.
pub(crate) const NAMES_MAX: usize = 16;

/// Maximum custom settings that are queried in addition to all others.
pub(crate) const HIDDEN_NAMES_MAX: usize = 64;

/// Kinds of state that a session can keep.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProbeTopics(u8);

impl ProbeTopics {
    pub(crate) const NONE: ProbeTopics = ProbeTopics(0);
    /// All settings that were set in the session.
    pub(crate) const SETTINGS: ProbeTopics = ProbeTopics(1);
    /// Session user and role.
    pub(crate) const ROLE: ProbeTopics = ProbeTopics(1 << 1);
    /// Channels that it listens to.
    pub(crate) const CHANNELS: ProbeTopics = ProbeTopics(1 << 2);
    /// Advisory locks.
    pub(crate) const ADVISORY: ProbeTopics = ProbeTopics(1 << 3);
    /// Temporary tables, types, functions and other objects of a schema.
    pub(crate) const TEMP: ProbeTopics = ProbeTopics(1 << 4);
    /// Cursors that outlive their transaction.
    pub(crate) const CURSORS: ProbeTopics = ProbeTopics(1 << 5);
    /// Statements that were prepared by SQL.
    pub(crate) const PREPARED: ProbeTopics = ProbeTopics(1 << 6);
    /// A function that lists connections of dblink.
    pub(crate) const CONNECTIONS: ProbeTopics = ProbeTopics(1 << 7);
    /// All topics.
    pub(crate) const ALL: ProbeTopics = ProbeTopics(0xff);

    pub(crate) const fn contains(self, other: ProbeTopics) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn intersects(self, other: ProbeTopics) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn and(self, other: ProbeTopics) -> ProbeTopics {
        ProbeTopics(self.0 & other.0)
    }

    pub(crate) const fn without(self, other: ProbeTopics) -> ProbeTopics {
        ProbeTopics(self.0 & !other.0)
    }
}

impl BitOr for ProbeTopics {
    type Output = ProbeTopics;

    fn bitor(self, other: ProbeTopics) -> ProbeTopics {
        ProbeTopics(self.0 | other.0)
    }
}

impl BitOrAssign for ProbeTopics {
    fn bitor_assign(&mut self, other: ProbeTopics) {
        *self = *self | other;
    }
}

/// Queries of a probe.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProbeQueries {
    pub topics: ProbeTopics,
    /// Settings to query by name; [`is_setting_name`] accepts each of them.
    names: Vec<String>,
    /// Custom settings to query in addition, because their changes are not visible.
    hidden: Vec<String>,
}

impl ProbeQueries {
    pub(crate) fn about(topics: ProbeTopics) -> ProbeQueries {
        ProbeQueries { topics, ..ProbeQueries::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.names.is_empty()
    }

    /// Returns the settings that are queried by name.
    #[cfg(test)]
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Queries a setting by name; queries all of them if the name is invalid or there are too many.
    pub(crate) fn ask_for(&mut self, name: &str) {
        if self.topics.contains(ProbeTopics::SETTINGS) || self.names.iter().any(|it| it == name) {
            // A custom setting is not among all settings, so its name is kept in addition.
            if self.names.iter().any(|it| it == name) || !name.contains('.') {
                return;
            }
        }
        // Custom settings are queried even if there are too many names.
        let most = if name.contains('.') { HIDDEN_NAMES_MAX } else { NAMES_MAX };
        if self.names.len() >= most || !is_setting_name(name) {
            self.topics |= ProbeTopics::SETTINGS;
            return;
        }
        self.names.push(name.to_owned());
    }

    pub(crate) fn merge(&mut self, other: &ProbeQueries) {
        self.topics |= other.topics;
        for name in &other.names {
            self.ask_for(name);
        }
    }

    /// Queries a custom setting in addition, if all settings are queried.
    pub(crate) fn ask_for_hidden(&mut self, name: &str) {
        let known = self.names.iter().chain(&self.hidden).any(|it| it == name);
        let room = self.hidden.len() < HIDDEN_NAMES_MAX && is_setting_name(name);
        if self.topics.contains(ProbeTopics::SETTINGS) && !known && room {
            self.hidden.push(name.to_owned());
        }
    }

    /// Returns the settings that are queried in addition.
    pub(crate) fn hidden(&self) -> &[String] {
        &self.hidden
    }

    /// Returns whether this setting is queried in addition.
    pub(crate) fn is_hidden(&self, name: &str) -> bool {
        self.hidden.iter().any(|it| it == name)
    }

    /// Returns the probe as one statement. Each row of its answer has three columns: topic, name,
    /// value.
    pub(crate) fn sql(&self) -> Cow<'static, str> {
        static ALL: LazyLock<String> = LazyLock::new(|| write(ProbeTopics::ALL, [].iter()));
        let names = self.names.iter().chain(&self.hidden);
        match names.clone().next().is_none() && self.topics == ProbeTopics::ALL {
            true => Cow::Borrowed(ALL.as_str()),
            false => Cow::Owned(write(self.topics, names)),
        }
    }
}

/// Queries by topic. `2615` is the object id of `pg_namespace`, fixed in `pg_namespace.dat`: every
/// object in a schema depends on the schema, whatever its kind, and the index on dependencies makes
/// the query cheap.
///
/// `13` is the language C (`pg_language.dat`), in which only superusers create functions. Another
/// user's function of this name must not run as the probed role; for the same reason the function
/// is called by its number and not by its name.
const PARTS: [(ProbeTopics, &str); 8] = [
    (
        ProbeTopics::SETTINGS,
        "SELECT 's', name, setting FROM pg_catalog.pg_show_all_settings() \
         WHERE source OPERATOR(pg_catalog.=) 'session'",
    ),
    (
        ProbeTopics::ROLE,
        "SELECT 'r', session_user::pg_catalog.text, pg_catalog.current_setting('role')",
    ),
    (ProbeTopics::CHANNELS, "SELECT 'c', it, NULL FROM pg_catalog.pg_listening_channels() it"),
    (
        ProbeTopics::ADVISORY,
        "SELECT 'a', NULL, NULL WHERE EXISTS (SELECT FROM pg_catalog.pg_lock_status() \
         WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())",
    ),
    (
        ProbeTopics::TEMP,
        "SELECT 't', NULL, NULL WHERE EXISTS (SELECT FROM pg_catalog.pg_depend \
         WHERE refclassid OPERATOR(pg_catalog.=) 2615::pg_catalog.oid \
         AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())",
    ),
    (
        ProbeTopics::CURSORS,
        "SELECT 'h', NULL, NULL WHERE EXISTS \
         (SELECT FROM pg_catalog.pg_cursor() WHERE is_holdable)",
    ),
    (
        ProbeTopics::PREPARED,
        "SELECT 'p', NULL, NULL WHERE EXISTS \
         (SELECT FROM pg_catalog.pg_prepared_statement() WHERE from_sql)",
    ),
    (
        ProbeTopics::CONNECTIONS,
        "SELECT 'd', oid::pg_catalog.text, NULL FROM pg_catalog.pg_proc \
         WHERE proname OPERATOR(pg_catalog.=) 'dblink_get_connections' \
         AND prosrc OPERATOR(pg_catalog.=) 'dblink_get_connections' \
         AND prolang OPERATOR(pg_catalog.=) 13::pg_catalog.oid \
         AND pg_catalog.has_schema_privilege(pronamespace, 'USAGE') \
         AND pg_catalog.has_function_privilege(oid, 'EXECUTE')",
    ),
];

fn write<'a>(topics: ProbeTopics, names: impl Iterator<Item = &'a String>) -> String {
    let mut sql = String::new();
    let mut part = |text: std::fmt::Arguments<'_>| {
        let between = if sql.is_empty() { "" } else { " UNION ALL " };
        // Writing to a string does not fail.
        let _written = write!(sql, "{between}{text}");
    };
    for (topic, text) in PARTS {
        if topics.contains(topic) {
            part(format_args!("{text}"));
        }
    }
    for name in names {
        // The name has no quote and no backslash: `ask_for` checked it.
        part(format_args!("SELECT 'n', '{name}', pg_catalog.current_setting('{name}', true)"));
    }
    sql
}

/// Findings about a session.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProbeFindings {
    /// Settings made in the session with their values, in the form that `set_config` accepts.
    /// Without custom settings (`app.user`), which the server shows only by name.
    pub settings: Vec<(String, String)>,
    /// Settings that were queried by name; `None` if one does not exist.
    pub named: Vec<(String, Option<String>)>,
    /// True if the session has another role than the one that logged in.
    pub role_changed: bool,
    pub channels: Vec<String>,
    pub advisory_locks: bool,
    pub temp_tables: bool,
    pub hold_cursors: bool,
    pub sql_prepared: bool,
    /// The number of the function that lists connections of dblink.
    pub connections_function: Option<u32>,
}

/// Why an answer is invalid. The server connection is then unusable.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("unexpected row in the reply")]
    Malformed,
    #[error("the answer has more than {ANSWER_ROWS_MAX} rows")]
    TooLong,
}

/// Reads the answer, row by row.
#[derive(Debug)]
pub(crate) struct ProbeReader {
    found: ProbeFindings,
    rows: usize,
}

impl ProbeReader {
    pub(crate) fn new() -> ProbeReader {
        ProbeReader { found: ProbeFindings::default(), rows: 0 }
    }

    /// Processes the body of a `DataRow`. `login` is the user that logged in on this server
    /// connection. A role that a login gets by `ALTER ROLE … SET role` counts as changed.
    pub(crate) fn row(&mut self, body: &[u8], login: &str) -> Result<(), ProbeError> {
        self.rows += 1;
        if self.rows > ANSWER_ROWS_MAX {
            return Err(ProbeError::TooLong);
        }
        let [topic, name, value] = columns(body).ok_or(ProbeError::Malformed)?;
        let name = || name.map(str::to_owned).ok_or(ProbeError::Malformed);
        let value = || value.map(str::to_owned);
        let found = &mut self.found;
        match topic {
            // A setting without a value was never set: an empty text.
            Some("s") => found.settings.push((name()?, value().unwrap_or_default())),
            Some("n") => found.named.push((name()?, value())),
            Some("r") => {
                found.role_changed = name()? != login || value().as_deref() != Some("none")
            }
            Some("c") => found.channels.push(name()?),
            Some("a") => found.advisory_locks = true,
            Some("t") => found.temp_tables = true,
            Some("h") => found.hold_cursors = true,
            Some("p") => found.sql_prepared = true,
            Some("d") => {
                let number = name()?.parse().map_err(|_| ProbeError::Malformed)?;
                found.connections_function = Some(number);
            }
            _ => return Err(ProbeError::Malformed),
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> ProbeFindings {
        self.found
    }
}

/// Returns the three columns of a row in text format.
fn columns(body: &[u8]) -> Option<[Option<&str>; 3]> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    if u16::from_be_bytes(*count) != 3 {
        return None;
    }
    let mut columns = [None; 3];
    for column in &mut columns {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // A negative length is NULL.
        if let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) {
            let (text, after) = rest.split_at_checked(length)?;
            *column = Some(std::str::from_utf8(text).ok()?);
            rest = after;
        }
    }
    rest.is_empty().then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[Option<&str>]) -> Vec<u8> {
        let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
        for column in columns {
            let length = column.map_or(-1, |it| i32::try_from(it.len()).unwrap());
            body.extend(length.to_be_bytes());
            body.extend(column.unwrap_or_default().bytes());
        }
        body
    }

    #[test]
    fn an_answer_is_read() {
        let mut reader = ProbeReader::new();
        for columns in [
            [Some("s"), Some("work_mem"), Some("3072")],
            [Some("n"), Some("app.user"), Some("7")],
            [Some("n"), Some("app.none"), None],
            [Some("c"), Some("news"), None],
            [Some("r"), Some("me"), Some("none")],
            [Some("a"), None, None],
            [Some("p"), None, None],
            [Some("d"), Some("16500"), None],
        ] {
            reader.row(&row(&columns), "me").unwrap();
        }
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = ProbeFindings {
            settings: vec![pair("work_mem", "3072")],
            named: vec![
                ("app.user".to_owned(), Some("7".to_owned())),
                ("app.none".to_owned(), None),
            ],
            channels: vec!["news".to_owned()],
            advisory_locks: true,
            sql_prepared: true,
            connections_function: Some(16500),
            ..ProbeFindings::default()
        };
        assert_eq!(reader.finish(), expected);
    }

    #[test]
    fn a_role_is_that_of_the_login_or_changed() {
        for (user, role, changed) in
            [("me", "none", false), ("you", "none", true), ("me", "you", true)]
        {
            let mut reader = ProbeReader::new();
            reader.row(&row(&[Some("r"), Some(user), Some(role)]), "me").unwrap();
            assert_eq!(reader.finish().role_changed, changed);
        }
    }

    #[test]
    fn a_row_that_was_not_asked_for_is_refused() {
        let good = row(&[Some("a"), None, None]);
        let mut long = good.clone();
        long.push(0);
        for body in [
            row(&[Some("x"), None, None]),
            row(&[None, None, None]),
            row(&[Some("s"), None, None]),
            row(&[Some("d"), Some("x"), None]),
            row(&[Some("a"), None]),
            row(&[Some("a"), None, None, None]),
            good[..good.len() - 1].to_vec(),
            long,
            Vec::new(),
            vec![0, 3, 0x7f, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(ProbeReader::new().row(&body, "me"), Err(ProbeError::Malformed), "{body:?}");
        }
        let mut reader = ProbeReader::new();
        for _ in 0..ANSWER_ROWS_MAX {
            reader.row(&good, "me").unwrap();
        }
        assert_eq!(reader.row(&good, "me"), Err(ProbeError::TooLong));
    }

    #[test]
    fn only_what_is_asked_is_in_the_question() {
        let mut questions = ProbeQueries::about(ProbeTopics::ADVISORY);
        questions.ask_for("app.user");
        questions.ask_for("app.user");
        let sql = questions.sql();
        assert_eq!(sql.matches("UNION ALL").count(), 1);
        assert!(sql.contains("'advisory'") && sql.contains("'app.user'"), "{sql}");
        questions.ask_for("it's");
        assert!(questions.topics.contains(ProbeTopics::SETTINGS));
        let mut many = ProbeQueries::default();
        for number in 0..=NAMES_MAX {
            many.ask_for(&format!("a{number}"));
        }
        assert!(many.topics.contains(ProbeTopics::SETTINGS));
        assert_eq!(ProbeQueries::about(ProbeTopics::ALL).sql().matches("UNION ALL").count(), 7);
        let mut all = ProbeQueries::about(ProbeTopics::ALL);
        for name in ["app.user", "app.user", "it's", "app.role"] {
            all.ask_for_hidden(name);
        }
        assert_eq!(all.sql().matches("UNION ALL").count(), 9);
        questions = ProbeQueries::about(ProbeTopics::ADVISORY);
        questions.ask_for_hidden("app.user");
        assert_eq!(questions, ProbeQueries::about(ProbeTopics::ADVISORY));
    }
}
