//! Texts that consist of one query that a pooler can answer itself.

use super::details::{self, MysqlTokenReader};
use super::keywords::{self, MysqlFunctionEffect, Word};
use super::lexer::{CommentReading, MysqlLexer, MysqlTokenKind, VersionConditions};
use super::mode::SqlMode;
use super::set;
use super::{QuestionTopic, RowLimit, SessionQuestion, verbs};

/// Maximum tokens of such a query.
const TOKENS_MAX: usize = 16;

pub(super) fn question(text: &[u8], mode: SqlMode) -> Option<SessionQuestion> {
    let lexer = MysqlLexer::new(text, mode, CommentReading::Code);
    let mut all = lexer.clone();
    if all.by_ref().take(TOKENS_MAX + 1).count() > TOKENS_MAX || all.is_broken() {
        return None;
    }
    if all.conditions() != VersionConditions::None {
        return None;
    }
    let mut reader = MysqlTokenReader { lexer };
    let question = match verbs::peek(&mut reader.lexer) {
        Word::Show => show(&mut reader)?,
        Word::Select => select(&mut reader)?,
        _ => return None,
    };
    while reader.eat_mark(b';') {}
    reader.lexer.next().is_none().then_some(question)
}

/// Returns whether a text consists of `SELECT GET_LOCK(…)`, with any arguments.
pub(super) fn is_lock_alone(text: &[u8], mode: SqlMode) -> bool {
    let lexer = MysqlLexer::new(text, mode, CommentReading::Code);
    let mut all = lexer.clone();
    let _tokens = all.by_ref().count();
    if all.is_broken() || all.conditions() != VersionConditions::None {
        return false;
    }
    let mut reader = MysqlTokenReader { lexer };
    if !reader.eat(Word::Select) {
        return false;
    }
    let is_lock = reader.lexer.next().is_some_and(|it| {
        it.kind == MysqlTokenKind::Word
            && keywords::known(it.text(text)).call == MysqlFunctionEffect::GetLock
    });
    if !is_lock || !reader.eat_mark(b'(') {
        return false;
    }
    let mut depth = 1usize;
    for token in reader.lexer.by_ref() {
        match token.kind {
            MysqlTokenKind::Mark(b'(') => depth += 1,
            MysqlTokenKind::Mark(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    if depth > 0 || alias(&mut reader).is_none() {
        return false;
    }
    while reader.eat_mark(b';') {}
    reader.lexer.next().is_none()
}

/// Parses `SHOW WARNINGS LIMIT 1`, `SHOW COUNT(*) ERRORS`.
fn show(reader: &mut MysqlTokenReader<'_>) -> Option<SessionQuestion> {
    if reader.eat(Word::Count) {
        let is_call = reader.eat_mark(b'(') && reader.eat_mark(b'*') && reader.eat_mark(b')');
        let (what, column) = match is_call.then(|| verbs::peek(&mut reader.lexer))? {
            Word::Warnings => (QuestionTopic::WarningCount, "@@session.warning_count"),
            Word::Errors => (QuestionTopic::ErrorCount, "@@session.error_count"),
            _ => return None,
        };
        return Some(SessionQuestion { what, column: column.to_owned() });
    }
    let word = verbs::peek(&mut reader.lexer);
    let limit = match reader.eat(Word::Limit) {
        true => limit(reader)?,
        false => RowLimit::NONE,
    };
    let what = match word {
        Word::Warnings => QuestionTopic::Warnings(limit),
        Word::Errors => QuestionTopic::Errors(limit),
        _ => return None,
    };
    Some(SessionQuestion { what, column: String::new() })
}

/// Parses `LIMIT count`, `LIMIT offset, count`, `LIMIT count OFFSET offset`.
fn limit(reader: &mut MysqlTokenReader<'_>) -> Option<RowLimit> {
    let first = number(reader)?;
    if reader.eat_mark(b',') {
        return Some(RowLimit { offset: first, count: number(reader)? });
    }
    let mut ahead = reader.lexer.clone();
    let text = ahead.text();
    let offset = ahead.next().is_some_and(|it| it.text(text).eq_ignore_ascii_case(b"offset"));
    if offset {
        reader.lexer = ahead;
        return Some(RowLimit { offset: number(reader)?, count: first });
    }
    Some(RowLimit { offset: 0, count: first })
}

fn number(reader: &mut MysqlTokenReader<'_>) -> Option<u64> {
    let token = reader.lexer.next()?;
    std::str::from_utf8(token.text(reader.lexer.text())).ok()?.parse().ok()
}

/// Parses `SELECT ROW_COUNT() AS a`, `SELECT @@session.warning_count`.
fn select(reader: &mut MysqlTokenReader<'_>) -> Option<SessionQuestion> {
    let text = reader.lexer.text();
    let first = reader.lexer.next()?;
    let name = first.text(text);
    let mut end = first.end;
    let what = match first.kind {
        MysqlTokenKind::Word => {
            let what = match keywords::known(name).call {
                MysqlFunctionEffect::RowCount => QuestionTopic::RowCount,
                MysqlFunctionEffect::FoundRows => QuestionTopic::FoundRows,
                _ => return None,
            };
            reader.eat_mark(b'(').then_some(())?;
            let close = reader.lexer.next().filter(|it| it.is_mark(b')'))?;
            end = close.end;
            what
        }
        MysqlTokenKind::System => {
            let mut variable = name.get(2..).unwrap_or_default();
            if reader.eat_mark(b'.') {
                matches!(keywords::word(variable), Word::Session | Word::Local).then_some(())?;
                let last = reader.lexer.next()?;
                variable = last.text(text);
                end = last.end;
            }
            match set::unquoted(variable).to_ascii_lowercase().as_slice() {
                b"warning_count" => QuestionTopic::WarningCount,
                b"error_count" => QuestionTopic::ErrorCount,
                _ => return None,
            }
        }
        _ => return None,
    };
    let column = match alias(reader)? {
        Some(alias) => alias,
        None => String::from_utf8(text.get(first.start..end)?.to_vec()).ok()?,
    };
    Some(SessionQuestion { what, column })
}

/// Parses `AS name`, `name`, or nothing; `None` if it is malformed.
fn alias(reader: &mut MysqlTokenReader<'_>) -> Option<Option<String>> {
    let has_as = reader.eat(Word::As);
    let mut ahead = reader.lexer.clone();
    let Some(token) = ahead.next().filter(|it| !it.is_mark(b';')) else {
        return (!has_as).then_some(None);
    };
    let name = match token.kind {
        // Without `AS` a word may be a keyword.
        MysqlTokenKind::Word
            if !has_as && keywords::word(token.text(ahead.text())) != Word::Name =>
        {
            None
        }
        MysqlTokenKind::Word | MysqlTokenKind::Name => details::identifier(&token, &ahead),
        MysqlTokenKind::Text => details::constant(&token, &ahead),
        _ => None,
    }?;
    reader.lexer = ahead;
    Some(Some(name))
}
