//! The output of a statement's program, in lines of JSON. Pure. The program runs in the sandbox, so
//! its output is untrusted: lines, columns and the stored result are limited.

use api::{QueryColumn, QueryLimit};
use serde::Deserialize;
use serde_json::Value;

use crate::reader::room::{ResultRoom, RowFate};
use crate::reader::values::{self, ValueForm};
use crate::reader::{MESSAGE_BYTES_MAX, ResultTable};

/// Most columns of a result, as in MySQL.
const COLUMNS_MAX: usize = 4_096;

/// Most characters that are kept of a message, and of its code.
const MESSAGE_CHARS_MAX: usize = 2_000;
const CODE_CHARS_MAX: usize = 60;

/// Composite types, whose values are JSON.
const NESTED: [&str; 5] = ["STRUCT", "MAP", "UNION", "JSON", "VARIANT"];

/// Reason why an output is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("the program in the session wrote a line that is too long")]
    LongLine,
    #[error("the program in the session wrote a malformed result")]
    Malformed,
}

/// Kinds of failures that the program reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AnswerFailureKind {
    /// Statement of a kind that is never run.
    Refused,
    /// Invalid statement.
    Statement,
    /// Values that do not fit the statement.
    Parameters,
    /// Missing package.
    Missing,
    /// Error of the catalog or a library.
    Catalog,
}

/// Failure that the program reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerFailure {
    pub(super) kind: AnswerFailureKind,
    pub(super) code: String,
    pub(super) message: String,
}

/// Line of the output that is no row.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerLine {
    Columns(Vec<(String, String)>),
    End(Option<QueryLimit>),
    Error { kind: AnswerFailureKind, code: Option<String>, message: String },
}

/// Parses an output as it arrives.
#[derive(Debug)]
pub(super) struct AnswerReader {
    /// Incomplete last line.
    pending: Vec<u8>,
    room: ResultRoom,
    columns: Option<Vec<(QueryColumn, ValueForm)>>,
    rows: Vec<Vec<Value>>,
    end: Option<Result<Option<QueryLimit>, AnswerFailure>>,
}

impl AnswerReader {
    /// Creates a reader for at most `rows` rows.
    pub(super) fn new(rows: u32) -> AnswerReader {
        let room = ResultRoom::new(rows);
        AnswerReader { pending: Vec::new(), room, columns: None, rows: Vec::new(), end: None }
    }

    /// Processes bytes; returns whether more are needed.
    ///
    /// # Errors
    /// If they are invalid.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<bool, AnswerError> {
        let mut rest = bytes;
        while self.end.is_none() {
            let Some(at) = rest.iter().position(|byte| *byte == b'\n') else {
                if self.pending.len() + rest.len() > MESSAGE_BYTES_MAX {
                    return Err(AnswerError::LongLine);
                }
                self.pending.extend_from_slice(rest);
                return Ok(true);
            };
            let (line, after) = rest.split_at(at);
            rest = after.get(1..).unwrap_or_default();
            if self.pending.len() + line.len() > MESSAGE_BYTES_MAX {
                return Err(AnswerError::LongLine);
            }
            match self.pending.is_empty() {
                true => self.line(line)?,
                false => {
                    let mut whole = std::mem::take(&mut self.pending);
                    whole.extend_from_slice(line);
                    self.line(&whole)?;
                }
            }
        }
        Ok(false)
    }

    /// Returns the result; `None` if the output is incomplete.
    pub(super) fn finish(self) -> Option<Result<ResultTable, AnswerFailure>> {
        let limit = match self.end? {
            Ok(limit) => limit,
            Err(failure) => return Some(Err(failure)),
        };
        let columns = self.columns.unwrap_or_default();
        let columns = columns.into_iter().map(|(column, _)| column).collect();
        Some(Ok(ResultTable { columns, rows: self.rows, limit }))
    }

    fn line(&mut self, line: &[u8]) -> Result<(), AnswerError> {
        match (line.first(), &self.columns) {
            (Some(b'['), Some(columns)) => {
                let texts: Vec<Option<String>> = parsed(line)?;
                if texts.len() != columns.len() {
                    return Err(AnswerError::Malformed);
                }
                match self.room.row(line.len()) {
                    RowFate::Keep => {
                        let values = columns.iter().zip(texts);
                        self.rows
                            .push(values.map(|((_, form), text)| shown(*form, text)).collect());
                    }
                    // The rest is not read: the program is killed.
                    RowFate::Discard | RowFate::Stop => self.end = Some(Ok(self.room.limit())),
                }
            }
            (Some(b'{'), columns) => match parsed(line)? {
                AnswerLine::Columns(named) if columns.is_none() && named.len() <= COLUMNS_MAX => {
                    let of = |(name, type_name): (String, String)| {
                        let form = form_of(&type_name);
                        (QueryColumn { name, type_name }, form)
                    };
                    self.columns = Some(named.into_iter().map(of).collect());
                }
                AnswerLine::End(limit) if columns.is_some() => self.end = Some(Ok(limit)),
                AnswerLine::Error { kind, code, message } => {
                    let code = cut(&code.unwrap_or_else(|| "catalog".to_owned()), CODE_CHARS_MAX);
                    let message = cut(&message, MESSAGE_CHARS_MAX);
                    self.end = Some(Err(AnswerFailure { kind, code, message }));
                }
                AnswerLine::Columns(_) | AnswerLine::End(_) => return Err(AnswerError::Malformed),
            },
            _ => return Err(AnswerError::Malformed),
        }
        Ok(())
    }
}

fn parsed<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, AnswerError> {
    serde_json::from_slice(line).map_err(|_| AnswerError::Malformed)
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

fn shown(form: ValueForm, text: Option<String>) -> Value {
    match (form, text) {
        (_, None) => Value::Null,
        (ValueForm::Text, Some(text)) => Value::String(text),
        (form, Some(text)) => values::value(form, text.as_bytes()),
    }
}

/// Returns the format of a type's values, by DuckDB's name of the type.
///
/// # References
/// - <https://duckdb.org/docs/stable/sql/data_types/overview>
fn form_of(type_name: &str) -> ValueForm {
    match type_name {
        "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT" | "HUGEINT" | "UTINYINT" | "USMALLINT"
        | "UINTEGER" | "UBIGINT" | "UHUGEINT" => ValueForm::Integer,
        "FLOAT" | "DOUBLE" => ValueForm::Float,
        // `true` and `false`, as in JSON.
        "BOOLEAN" => ValueForm::Document,
        "BLOB" => ValueForm::HexBytes,
        other if other.ends_with(']') => ValueForm::Document,
        other if NESTED.iter().any(|nested| other.starts_with(nested)) => ValueForm::Document,
        _ => ValueForm::Text,
    }
}

/// Entry of the fuzz target.
#[cfg(any(test, fuzzing))]
pub(in crate::reader) mod fuzzing {
    use super::AnswerReader;

    /// Parses an output that arrives in parts of `cut` bytes. Returns the number of kept rows and
    /// the outcome.
    pub(in crate::reader) fn answer(bytes: &[u8], rows: u32, cut: usize) -> String {
        let mut reader = AnswerReader::new(rows);
        for part in bytes.chunks(cut) {
            match reader.push(part) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return error.to_string(),
            }
        }
        let limit = usize::try_from(rows).unwrap_or(usize::MAX);
        assert!(reader.rows.len() <= limit, "more rows than were asked for");
        format!("{:?}", reader.finish())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLUMNS: &str = r#"{"columns":[["a","BIGINT"],["b","STRUCT(x INTEGER)"]]}"#;

    /// Parses lines, in parts of `part` bytes.
    fn read(lines: &[&str], rows: u32, part: usize) -> Result<AnswerReader, AnswerError> {
        let (text, mut reader) = (lines.join("\n") + "\n", AnswerReader::new(rows));
        for bytes in text.as_bytes().chunks(part) {
            reader.push(bytes)?;
        }
        Ok(reader)
    }

    #[test]
    fn an_answer_is_a_table_however_it_arrives() {
        let lines = [COLUMNS, r#"["1","{\"x\":null}"]"#, r#"["-2",null]"#, r#"{"end":null}"#];
        for part in [1, 7, 10_000] {
            let table = read(&lines, 2, part).unwrap().finish().unwrap().unwrap();
            assert_eq!(
                table.rows,
                [vec![json!(1), json!({"x": null})], vec![json!(-2), json!(null)]]
            );
            assert_eq!((table.columns[1].name.as_str(), table.limit), ("b", None));
            let table = read(&lines, 1, part).unwrap().finish().unwrap().unwrap();
            assert_eq!((table.rows.len(), table.limit), (1, Some(QueryLimit::Rows)));
        }
        let ended = read(&[COLUMNS, r#"{"end":"bytes"}"#, "behind it"], 1, 9).unwrap();
        assert_eq!(ended.finish().unwrap().unwrap().limit, Some(QueryLimit::Bytes));
    }

    #[test]
    fn what_is_no_answer_is_not_read() {
        let long = "x".repeat(MESSAGE_BYTES_MAX + 1);
        for (lines, expected) in [
            (vec!["hello"], AnswerError::Malformed),
            (vec![""], AnswerError::Malformed),
            (vec![r#"["1",null]"#], AnswerError::Malformed),
            (vec![r#"{"end":null}"#], AnswerError::Malformed),
            (vec![COLUMNS, COLUMNS], AnswerError::Malformed),
            (vec![COLUMNS, r#"["1"]"#], AnswerError::Malformed),
            (vec![COLUMNS, r#"[1,2]"#], AnswerError::Malformed),
            (vec![COLUMNS, r#"{"end":"never"}"#], AnswerError::Malformed),
            (vec![r#"{"error":{"kind":"mine","code":null,"message":""}}"#], AnswerError::Malformed),
            (vec![long.as_str()], AnswerError::LongLine),
        ] {
            let read = read(&lines, 5, 4096).err();
            assert_eq!(read, Some(expected), "{}", cut(&lines.concat(), 100));
        }
        assert!(read(&[COLUMNS, r#"["1",null]"#], 5, 3).unwrap().finish().is_none());
    }

    #[test]
    fn a_failure_is_cut_to_what_is_shown() {
        let message = "x".repeat(9_000);
        let line = json!({"error": {"kind": "missing", "code": "duckdb", "message": message}});
        let failure = read(&[&line.to_string()], 1, 100).unwrap().finish().unwrap().unwrap_err();
        assert_eq!((failure.kind, failure.code.as_str()), (AnswerFailureKind::Missing, "duckdb"));
        assert_eq!(failure.message.len(), MESSAGE_CHARS_MAX);
    }

    #[test]
    fn types_decide_what_values_are() {
        for (type_name, text, expected) in [
            ("BIGINT", "9007199254740993", json!("9007199254740993")),
            ("BOOLEAN", "true", json!(true)),
            ("DOUBLE", "nan", json!("nan")),
            ("DECIMAL(10,2)", "1.10", json!("1.10")),
            ("BLOB", "\\x00FF", json!("AP8=")),
            ("INTEGER[]", "[1,null]", json!([1, null])),
            ("MAP(VARCHAR, INTEGER)", r#"{"k":1}"#, json!({"k": 1})),
            ("TIMESTAMP WITH TIME ZONE", "2026-11-28 12:00:00.5+00", {
                json!("2026-11-28 12:00:00.5+00")
            }),
        ] {
            assert_eq!(shown(form_of(type_name), Some(text.to_owned())), expected, "{type_name}");
        }
    }
}
