//! Detects the end of the body of a routine, trigger or event: it is stored, not run.
//!
//! Only certain beginnings of blocks are counted. So the end of a body may be detected too early
//! (its rest is then taken for statements that run), but never too late.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/create-procedure.html>

use super::keywords::{self, Word};
use super::lexer::{MysqlLexer, MysqlToken, MysqlTokenKind};
use super::verbs;

/// A definition in progress, from the position after the word for its kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoutineBody {
    depth: usize,
    before: Word,
    /// True if the first word of a block may follow the previous token.
    may_begin: bool,
}

impl RoutineBody {
    pub(super) fn new() -> RoutineBody {
        RoutineBody { depth: 0, before: Word::Name, may_begin: false }
    }

    /// Processes a token; `lexer` is after it. Returns whether the definition ends with it.
    pub(super) fn token(&mut self, token: &MysqlToken, lexer: &MysqlLexer<'_>) -> bool {
        let word = match token.kind {
            MysqlTokenKind::Word => keywords::word(token.text(lexer.text())),
            _ => Word::Name,
        };
        match word {
            Word::Begin if self.may_begin && begins_block(lexer) => self.depth += 1,
            // The statement and the expression; `END CASE` is the end of the former.
            Word::Case if self.may_begin && self.before != Word::End => self.depth += 1,
            Word::End => {
                let of = verbs::peek(&mut lexer.clone());
                if !matches!(of, Word::If | Word::While | Word::Loop | Word::Repeat | Word::For) {
                    self.depth = self.depth.saturating_sub(1);
                }
            }
            _ => {}
        }
        // After a dot every word is a name.
        self.may_begin = !token.is_mark(b'.');
        self.before = word;
        self.depth == 0 && token.is_mark(b';')
    }
}

/// Returns whether `BEGIN` starts a block, by the tokens after it: elsewhere it may be a name.
fn begins_block(lexer: &MysqlLexer<'_>) -> bool {
    let mut ahead = lexer.clone();
    let Some(token) = ahead.next() else { return false };
    let is_label =
        token.kind == MysqlTokenKind::Word && ahead.next().is_some_and(|it| it.is_mark(b':'));
    let word = match token.kind {
        MysqlTokenKind::Word => keywords::word(token.text(lexer.text())),
        _ => Word::Name,
    };
    is_label || word.begins_inner()
}
