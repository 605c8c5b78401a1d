//! Texts with some of their words replaced.

use super::keywords::{self, MysqlFunctionEffect, Word};
use super::lexer::{CommentReading, MysqlLexer, MysqlToken, MysqlTokenKind, VersionConditions};
use super::mode::SqlMode;
use super::quote::quote_identifier;
use super::set;

/// Position at which a text queries the number of its connection.
#[derive(Clone, Copy, Debug)]
struct ConnectionIdQuestion {
    start: usize,
    end: usize,
    /// True if it is a column of the result without an explicit name.
    is_column: bool,
}

pub(super) fn connection_id(text: &[u8], mode: SqlMode, id: u32, out: &mut Vec<u8>) -> bool {
    let mut lexer = MysqlLexer::new(text, mode, CommentReading::Code);
    let began = out.len();
    let mut copied = 0;
    let mut place = RewritePosition::default();
    while let Some(token) = lexer.next() {
        if let Some(question) = place.question(&token, &lexer) {
            out.extend_from_slice(text.get(copied..question.start).unwrap_or_default());
            // In parentheses it cannot merge with an adjacent word or minus sign.
            out.extend_from_slice(format!("({id})").as_bytes());
            let expression = text.get(question.start..question.end).unwrap_or_default();
            if question.is_column && expression.is_ascii() {
                out.extend_from_slice(b" AS ");
                quote_identifier(out, expression);
            }
            copied = question.end;
        }
        place.pass(&token, text);
    }
    let understood = !lexer.is_broken() && lexer.conditions() == VersionConditions::None;
    if copied == 0 || !understood {
        out.truncate(began);
        return false;
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    true
}

/// State of the rewrite after the tokens processed so far.
#[derive(Clone, Copy, Debug, Default)]
struct RewritePosition {
    /// True if the statement has begun.
    begun: bool,
    /// True if the query is stored, not run now: in a view, a routine, the default of a column.
    stores: bool,
    depth: usize,
    /// True if a column of the result may begin here.
    column: bool,
    /// True if the columns of the result are being listed.
    in_columns: bool,
    after_dot: bool,
}

impl RewritePosition {
    fn pass(&mut self, token: &MysqlToken, text: &[u8]) {
        let word = match token.kind {
            MysqlTokenKind::Word if !self.after_dot => keywords::word(token.text(text)),
            _ => Word::Name,
        };
        match token.kind {
            MysqlTokenKind::Mark(b';') => {
                // A routine continues after a semicolon, and its end is unknown.
                *self = RewritePosition { stores: self.stores, ..RewritePosition::default() };
                return;
            }
            MysqlTokenKind::Mark(b'(') => self.depth += 1,
            MysqlTokenKind::Mark(b')') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if !self.begun {
            self.begun = true;
            self.stores |= matches!(word, Word::Create | Word::Alter);
        }
        let top = self.depth == 0;
        if top && word == Word::Select {
            self.in_columns = true;
        } else if top && is_behind_columns(word) {
            self.in_columns = false;
        }
        self.column = top && (word == Word::Select || (self.in_columns && token.is_mark(b',')));
        self.after_dot = token.is_mark(b'.');
    }

    /// Returns the query that begins with `token`.
    fn question(&self, token: &MysqlToken, lexer: &MysqlLexer<'_>) -> Option<ConnectionIdQuestion> {
        if self.stores || self.after_dot {
            return None;
        }
        let text = lexer.text();
        let mut ahead = lexer.clone();
        let name = token.text(text);
        let end = match token.kind {
            MysqlTokenKind::Word | MysqlTokenKind::Name => {
                let call = keywords::known(set::unquoted(name)).call;
                (call == MysqlFunctionEffect::ConnectionId).then_some(())?;
                ahead.next().filter(|it| it.is_mark(b'('))?;
                ahead.next().filter(|it| it.is_mark(b')'))?.end
            }
            MysqlTokenKind::System => {
                let mut name = name.get(2..).unwrap_or_default();
                let mut end = token.end;
                let mut dot = ahead.clone();
                if dot.next().is_some_and(|it| it.is_mark(b'.')) {
                    let last = dot.next()?;
                    name = last.text(text);
                    end = last.end;
                    ahead = dot;
                }
                let is_it = set::unquoted(name).eq_ignore_ascii_case(b"pseudo_thread_id");
                let is_set = ahead
                    .clone()
                    .next()
                    .is_some_and(|it| it.is_mark(b'=') || it.kind == MysqlTokenKind::Assign);
                (is_it && !is_set).then_some(end)?
            }
            _ => return None,
        };
        let ends = match ahead.next() {
            None => true,
            Some(next) if next.kind == MysqlTokenKind::Word => {
                is_behind_columns(keywords::word(next.text(text)))
            }
            Some(next) => next.is_mark(b',') || next.is_mark(b';'),
        };
        Some(ConnectionIdQuestion { start: token.start, end, is_column: self.column && ends })
    }
}

/// Words that end the list of columns of a result.
fn is_behind_columns(word: Word) -> bool {
    matches!(word, Word::From | Word::Into | Word::Where | Word::Limit)
}
