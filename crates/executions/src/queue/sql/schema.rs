//! The tables, and the encoding of untrusted text in them.

use node::store::{FromValue, MigrationStep, SqlRow, SqlStoreError, SqlValue};

/// Service that owns the tables.
pub(super) const SERVICE: &str = "executions";

/// Migration steps of the tables; steps are only ever added.
pub(super) const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Each {
        sqlite: include_str!("schema.sqlite.sql"),
        postgres: include_str!("schema.postgres.sql"),
    },
    MigrationStep::Each {
        sqlite: include_str!("bytes.sqlite.sql"),
        postgres: include_str!("bytes.postgres.sql"),
    },
    MigrationStep::Each {
        sqlite: include_str!("verdict.sqlite.sql"),
        postgres: include_str!("verdict.postgres.sql"),
    },
];

/// Escape character in stored text: the control character named "substitute".
const SUBSTITUTE: char = '\u{1a}';

/// Encodes a text for storage. PostgreSQL does not support the character NUL, and names and labels
/// are untrusted; so NUL is replaced, and so is the empty text, because no cursor precedes it.
pub(super) fn text(original: &str) -> SqlValue {
    if original.is_empty() {
        return SqlValue::Text(format!("{SUBSTITUTE}e"));
    }
    if !original.contains(['\0', SUBSTITUTE]) {
        return SqlValue::Text(original.to_owned());
    }
    let doubled = original.replace(SUBSTITUTE, "\u{1a}\u{1a}");
    SqlValue::Text(doubled.replace('\0', "\u{1a}0"))
}

/// Returns a text or `NULL`.
pub(super) fn text_or_null(original: Option<&str>) -> SqlValue {
    original.map_or(SqlValue::Null, text)
}

/// Decodes a stored text.
pub(super) fn original(stored: String) -> String {
    if !stored.contains(SUBSTITUTE) {
        return stored;
    }
    let mut text = String::with_capacity(stored.len());
    let mut characters = stored.chars();
    while let Some(character) = characters.next() {
        if character != SUBSTITUTE {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('0') => text.push('\0'),
            Some(SUBSTITUTE) => text.push(SUBSTITUTE),
            // `e`, for the empty text; we write no other escapes.
            Some(_) | None => {}
        }
    }
    text
}

/// Encodes milliseconds, or any other count, for storage.
pub(super) fn number(value: u64) -> SqlValue {
    SqlValue::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Reads the columns of a row one after the other.
pub(super) struct JobColumns<'a> {
    row: &'a SqlRow,
    next: usize,
}

impl<'a> JobColumns<'a> {
    pub(super) fn of(row: &'a SqlRow) -> JobColumns<'a> {
        JobColumns { row, next: 0 }
    }

    /// Returns the next column.
    pub(super) fn take<T: FromValue>(&mut self) -> Result<T, SqlStoreError> {
        let value = self.row.get(self.next);
        self.next += 1;
        value
    }

    /// Returns the next column, an untrusted text.
    pub(super) fn text(&mut self) -> Result<String, SqlStoreError> {
        self.take().map(original)
    }

    /// Returns the next column, an untrusted text that may be missing.
    pub(super) fn text_or_null(&mut self) -> Result<Option<String>, SqlStoreError> {
        Ok(self.take::<Option<String>>()?.map(original))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_is_stored_without_nul() {
        for before in ["", "a", "\0", "\u{1a}", "\u{1a}0", "\0\u{1a}\u{1a}e\0", "é'\"\u{1f980}"] {
            let SqlValue::Text(stored) = text(before) else { panic!("no text") };
            assert!(!stored.contains('\0') && !stored.is_empty(), "{before:?}");
            assert_eq!(original(stored), before);
        }
    }
}
