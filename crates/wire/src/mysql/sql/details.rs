//! Details of the few statements that a pooler has to understand: variables and names.
//!
//! Unlike the scan this allocates; it only runs for texts whose effects require it.

use super::keywords::{self, Word};
use super::lexer::{CommentReading, MysqlLexer, MysqlToken, MysqlTokenKind, VersionConditions};
use super::mode::{CharsetClass, SqlMode};
use super::quote::is_variable_name;
use super::routine::RoutineBody;
use super::set::{self, AssignmentTarget, ScannedValue, ValueScope};
use super::{
    AssignedValue, KillStatement, KillTarget, MysqlNameAction, MysqlNameUse, MysqlTextDetails,
    VariableAssignment, VariableScope, verbs,
};

/// Maximum names and assignments of one text; a text with more is not understood.
const DETAILS_MAX: usize = 64;

/// A text cannot be parsed; it then counts as lost.
#[derive(Clone, Copy, Debug)]
struct UnreadableText;

pub(super) fn details(text: &[u8], mode: SqlMode) -> MysqlTextDetails {
    let mut details = MysqlTextDetails::default();
    let mut lexer = MysqlLexer::new(text, mode, CommentReading::Code);
    while let Some(first) = lexer.next() {
        if first.is_mark(b';') {
            continue;
        }
        let verb = match first.kind {
            MysqlTokenKind::Word => keywords::word(first.text(text)),
            _ => Word::Name,
        };
        let read = details.statement(verb, lexer.clone());
        details.statements += 1;
        let kept = details.names.len() + details.assignments.len();
        if read.is_err() || kept > DETAILS_MAX {
            return MysqlTextDetails { lost: true, ..MysqlTextDetails::default() };
        }
        skip_statement(&mut lexer, verb);
    }
    // Parts that only some servers run may or may not apply.
    if lexer.is_broken() || lexer.conditions() != VersionConditions::None {
        return MysqlTextDetails { lost: true, ..MysqlTextDetails::default() };
    }
    details
}

/// Skips to the position after a statement's semicolon, from that after its first word.
fn skip_statement(lexer: &mut MysqlLexer<'_>, verb: Word) {
    let mut body: Option<RoutineBody> = None;
    while let Some(token) = lexer.next() {
        if let Some(body) = &mut body {
            if body.token(&token, lexer) {
                return;
            }
        } else if token.is_mark(b';') {
            return;
        } else if matches!(verb, Word::Create | Word::Alter) && token.kind == MysqlTokenKind::Word {
            let word = keywords::word(token.text(lexer.text()));
            body = verbs::is_routine(word).then(RoutineBody::new);
        }
    }
}

impl MysqlTextDetails {
    fn statement(&mut self, verb: Word, reader: MysqlLexer<'_>) -> Result<(), UnreadableText> {
        let mut reader = MysqlTokenReader { lexer: reader };
        match verb {
            Word::Set => self.set(&mut reader),
            Word::Use => {
                let name = reader.identifier()?;
                self.act(MysqlNameAction::Use, None, name);
                reader.ends()
            }
            Word::Prepare => {
                let name = reader.identifier()?;
                self.act(MysqlNameAction::Prepare, None, name.to_lowercase());
                Ok(())
            }
            Word::Execute => {
                let immediate = verbs::peek(&mut reader.lexer.clone()) == Word::Immediate;
                if immediate {
                    self.act(MysqlNameAction::ExecuteImmediate, None, String::new());
                } else {
                    let name = reader.identifier()?;
                    self.act(MysqlNameAction::Execute, None, name.to_lowercase());
                }
                Ok(())
            }
            Word::Deallocate => self.deallocate(&mut reader),
            Word::Create => self.create(&mut reader),
            Word::Drop => self.drop_names(&mut reader),
            Word::Handler => self.handler(&mut reader),
            Word::Kill => {
                let kill = kill(&mut reader);
                self.kill = Some(kill);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn act(&mut self, act: MysqlNameAction, schema: Option<String>, name: String) {
        self.names.push(MysqlNameUse { statement: self.statements, act, schema, name });
    }

    fn deallocate(&mut self, reader: &mut MysqlTokenReader<'_>) -> Result<(), UnreadableText> {
        reader.word(Word::Prepare)?;
        let name = reader.identifier()?;
        self.act(MysqlNameAction::Deallocate, None, name.to_lowercase());
        reader.ends()
    }

    /// Parses `CREATE [OR REPLACE] TEMPORARY TABLE [IF NOT EXISTS] name`.
    fn create(&mut self, reader: &mut MysqlTokenReader<'_>) -> Result<(), UnreadableText> {
        if reader.eat(Word::Or) {
            reader.word(Word::Replace)?;
        }
        if !reader.eat(Word::Temporary) {
            return Ok(());
        }
        let act = match () {
            () if reader.eat(Word::Table) => MysqlNameAction::CreateTemporary,
            () if reader.eat(Word::Sequence) => MysqlNameAction::CreateTemporarySequence,
            () => return Err(UnreadableText),
        };
        if reader.eat(Word::If) {
            reader.word(Word::Not)?;
            reader.word(Word::Exists)?;
        }
        let (schema, name) = reader.qualified()?;
        self.act(act, schema, name);
        Ok(())
    }

    /// Parses `DROP [TEMPORARY] TABLE [IF EXISTS] name, …`.
    fn drop_names(&mut self, reader: &mut MysqlTokenReader<'_>) -> Result<(), UnreadableText> {
        if reader.peek() == Word::Prepare {
            return self.deallocate(reader);
        }
        let temporary = reader.eat(Word::Temporary);
        let act = match () {
            () if reader.eat(Word::Table) || reader.eat(Word::Tables) => MysqlNameAction::Drop,
            () if reader.eat(Word::Sequence) => MysqlNameAction::DropSequence,
            () if temporary => return Err(UnreadableText),
            () => return Ok(()),
        };
        if reader.eat(Word::If) {
            reader.word(Word::Exists)?;
        }
        loop {
            let (schema, name) = reader.qualified()?;
            self.act(act, schema, name);
            if !reader.eat_mark(b',') {
                return Ok(());
            }
            // A long list is lost; it is not read to its end.
            if self.names.len() > DETAILS_MAX {
                return Err(UnreadableText);
            }
        }
    }

    /// Parses `HANDLER table OPEN [[AS] alias]` and `HANDLER name CLOSE`.
    fn handler(&mut self, reader: &mut MysqlTokenReader<'_>) -> Result<(), UnreadableText> {
        let (schema, name) = reader.qualified()?;
        if reader.eat(Word::Close) {
            self.act(MysqlNameAction::CloseHandler, schema, name);
        } else if reader.eat(Word::Open) {
            reader.eat(Word::As);
            match reader.ends() {
                Ok(()) => self.act(MysqlNameAction::OpenHandler, schema, name),
                Err(UnreadableText) => {
                    let alias = reader.identifier()?;
                    self.act(MysqlNameAction::OpenHandler, None, alias);
                }
            }
        }
        Ok(())
    }

    fn assign(
        &mut self,
        scope: VariableScope,
        name: &str,
        value: AssignedValue,
    ) -> Result<(), UnreadableText> {
        if !is_variable_name(name.as_bytes()) || self.assignments.len() > DETAILS_MAX {
            return Err(UnreadableText);
        }
        self.assignments.push(VariableAssignment {
            statement: self.statements,
            scope,
            is_untold: false,
            name: name.to_owned(),
            value,
        });
        Ok(())
    }

    /// Parses all assignments of a `SET`.
    fn set(&mut self, reader: &mut MysqlTokenReader<'_>) -> Result<(), UnreadableText> {
        let mut first_of_all = true;
        loop {
            let first = reader.lexer.next().ok_or(UnreadableText)?;
            match set::parse(&first, &mut reader.lexer) {
                AssignmentTarget::User | AssignmentTarget::Password | AssignmentTarget::Role => {}
                AssignmentTarget::Variable { held, name } => self.variable(held, &name, reader)?,
                AssignmentTarget::Names => self.set_names(reader)?,
                AssignmentTarget::CharacterSet => self.set_character_set(reader)?,
                AssignmentTarget::Transaction(held) => return self.transaction(held, reader),
                AssignmentTarget::DefaultRole => return Ok(()),
                AssignmentTarget::Statement if first_of_all => return self.set_statement(reader),
                AssignmentTarget::Statement | AssignmentTarget::Unknown => {
                    return Err(UnreadableText);
                }
            }
            first_of_all = false;
            if !reader.next_assignment() {
                return Ok(());
            }
        }
    }

    fn variable(
        &mut self,
        held: ValueScope,
        name: &MysqlToken,
        reader: &mut MysqlTokenReader<'_>,
    ) -> Result<(), UnreadableText> {
        let text = reader.lexer.text();
        let name = set::unquoted(name.text(text)).to_ascii_lowercase();
        let scope = match held {
            ValueScope::Session => VariableScope::Session,
            ValueScope::Global => VariableScope::Global,
            ValueScope::Unsaid if set::is_of_transaction(&name) => VariableScope::Next,
            ValueScope::Unsaid => VariableScope::Session,
            ValueScope::Next => VariableScope::Next,
        };
        let name = String::from_utf8(name).map_err(|_| UnreadableText)?;
        let value = reader.value();
        self.assign(scope, &name, value)?;
        if let Some(last) = self.assignments.last_mut() {
            last.is_untold = held == ValueScope::Unsaid && scope == VariableScope::Session;
        }
        Ok(())
    }

    /// Parses `NAMES x [COLLATE y]`.
    fn set_names(&mut self, reader: &mut MysqlTokenReader<'_>) -> Result<(), UnreadableText> {
        let value = reader.character_set()?;
        for name in ["character_set_client", "character_set_connection", "character_set_results"] {
            self.assign(VariableScope::Session, name, value.clone())?;
        }
        if reader.eat(Word::Collate) {
            let collation = reader.character_set()?;
            self.assign(VariableScope::Session, "collation_connection", collation)?;
        } else if value == AssignedValue::Default {
            self.assign(VariableScope::Session, "collation_connection", AssignedValue::Default)?;
        }
        Ok(())
    }

    /// Parses `CHARACTER SET x`, which sets that of the connection to that of the database.
    fn set_character_set(
        &mut self,
        reader: &mut MysqlTokenReader<'_>,
    ) -> Result<(), UnreadableText> {
        let value = reader.character_set()?;
        self.assign(VariableScope::Session, "character_set_client", value.clone())?;
        self.assign(VariableScope::Session, "character_set_results", value)?;
        self.assign(VariableScope::Session, "character_set_connection", AssignedValue::Expression)?;
        self.assign(VariableScope::Session, "collation_connection", AssignedValue::Expression)
    }

    /// Parses `TRANSACTION ISOLATION LEVEL x, READ ONLY`.
    fn transaction(
        &mut self,
        held: ValueScope,
        reader: &mut MysqlTokenReader<'_>,
    ) -> Result<(), UnreadableText> {
        let scope = match held {
            ValueScope::Session => VariableScope::Session,
            ValueScope::Global => VariableScope::Global,
            ValueScope::Unsaid | ValueScope::Next => VariableScope::Next,
        };
        loop {
            if reader.eat(Word::Read) {
                let only = match reader.eat(Word::Only) {
                    true => "1",
                    false => "0",
                };
                if only == "0" {
                    reader.word(Word::Write)?;
                }
                let value = AssignedValue::Literal(only.to_owned());
                self.assign(scope, "transaction_read_only", value)?;
            } else {
                reader.word(Word::Isolation)?;
                reader.word(Word::Level)?;
                let level = reader.isolation_level().ok_or(UnreadableText)?;
                let value = AssignedValue::Literal(level.to_owned());
                self.assign(scope, "transaction_isolation", value)?;
            }
            if !reader.eat_mark(b',') {
                return reader.ends();
            }
        }
    }

    /// Parses `STATEMENT … FOR statement`: its assignments end with the statement.
    fn set_statement(&mut self, reader: &mut MysqlTokenReader<'_>) -> Result<(), UnreadableText> {
        let mut depth = 0usize;
        let text = reader.lexer.text();
        while let Some(token) = reader.lexer.next() {
            match token.kind {
                MysqlTokenKind::Mark(b';') => return Err(UnreadableText),
                MysqlTokenKind::Mark(b'(') => depth += 1,
                MysqlTokenKind::Mark(b')') => depth = depth.saturating_sub(1),
                MysqlTokenKind::Word
                    if depth == 0 && keywords::word(token.text(text)) == Word::For =>
                {
                    let verb = verbs::peek(&mut reader.lexer);
                    return match verb {
                        // Not allowed there, and must not recurse.
                        Word::Set => Err(UnreadableText),
                        _ => self.statement(verb, reader.lexer.clone()),
                    };
                }
                _ => {}
            }
        }
        Err(UnreadableText)
    }
}

/// Parses `KILL [HARD | SOFT] [CONNECTION | QUERY [ID]] …`, from the position after its first word.
fn kill(reader: &mut MysqlTokenReader<'_>) -> KillStatement {
    let _how = reader.eat(Word::Hard) || reader.eat(Word::Soft);
    let connection = !reader.eat(Word::Query);
    if connection {
        reader.eat(Word::Connection);
    }
    let text = reader.lexer.text();
    let target = match reader.lexer.next() {
        Some(token) if token.kind == MysqlTokenKind::Number => {
            let digits = std::str::from_utf8(token.text(text)).unwrap_or_default();
            match (digits.parse(), reader.ends()) {
                (Ok(id), Ok(())) => KillTarget::Id(id),
                _ => KillTarget::Other,
            }
        }
        Some(token) if token.text(text).eq_ignore_ascii_case(b"connection_id") => {
            let is_call = reader.eat_mark(b'(') && reader.eat_mark(b')') && reader.ends().is_ok();
            if is_call { KillTarget::Own } else { KillTarget::Other }
        }
        _ => KillTarget::Other,
    };
    KillStatement { connection, target }
}

/// A position within a statement.
#[derive(Clone, Debug)]
pub(super) struct MysqlTokenReader<'a> {
    pub lexer: MysqlLexer<'a>,
}

impl MysqlTokenReader<'_> {
    pub(super) fn peek(&self) -> Word {
        verbs::peek(&mut self.lexer.clone())
    }

    /// Skips a word, if it is next.
    pub(super) fn eat(&mut self, word: Word) -> bool {
        let mut ahead = self.lexer.clone();
        let found = verbs::peek(&mut ahead) == word;
        if found {
            self.lexer = ahead;
        }
        found
    }

    fn word(&mut self, word: Word) -> Result<(), UnreadableText> {
        self.eat(word).then_some(()).ok_or(UnreadableText)
    }

    pub(super) fn eat_mark(&mut self, mark: u8) -> bool {
        let mut ahead = self.lexer.clone();
        let found = ahead.next().is_some_and(|it| it.is_mark(mark));
        if found {
            self.lexer = ahead;
        }
        found
    }

    /// Returns whether the statement has ended.
    fn ends(&self) -> Result<(), UnreadableText> {
        let over = self.lexer.clone().next().is_none_or(|it| it.is_mark(b';'));
        over.then_some(()).ok_or(UnreadableText)
    }

    fn identifier(&mut self) -> Result<String, UnreadableText> {
        let token = self.lexer.next().ok_or(UnreadableText)?;
        identifier(&token, &self.lexer).ok_or(UnreadableText)
    }

    /// Parses `name` or `schema.name`.
    fn qualified(&mut self) -> Result<(Option<String>, String), UnreadableText> {
        let first = self.identifier()?;
        match self.eat_mark(b'.') {
            true => Ok((Some(first), self.identifier()?)),
            false => Ok((None, first)),
        }
    }

    /// Parses the value after the name of a variable; the position is then after a constant, or
    /// unchanged before any other expression.
    fn value(&mut self) -> AssignedValue {
        let mut ahead = self.lexer.clone();
        match set::value(&mut ahead) {
            ScannedValue::Default => {
                self.lexer = ahead;
                AssignedValue::Default
            }
            ScannedValue::Constant { negative, token } => match constant(&token, &ahead) {
                Some(value) if negative => AssignedValue::Literal(format!("-{value}")),
                Some(value) => AssignedValue::Literal(value),
                None => AssignedValue::Expression,
            },
            ScannedValue::Expression => AssignedValue::Expression,
        }
    }

    /// Parses the name of a character set or collation.
    fn character_set(&mut self) -> Result<AssignedValue, UnreadableText> {
        let token = self.lexer.next().ok_or(UnreadableText)?;
        let text = token.text(self.lexer.text());
        match token.kind {
            MysqlTokenKind::Word if keywords::word(text) == Word::Default => {
                Ok(AssignedValue::Default)
            }
            MysqlTokenKind::Word | MysqlTokenKind::Name | MysqlTokenKind::Text => {
                constant(&token, &self.lexer).map(AssignedValue::Literal).ok_or(UnreadableText)
            }
            _ => Err(UnreadableText),
        }
    }

    fn isolation_level(&mut self) -> Option<&'static str> {
        let mut level = String::new();
        for _ in 0..2 {
            let mut ahead = self.lexer.clone();
            let Some(token) = ahead.next().filter(|it| it.kind == MysqlTokenKind::Word) else {
                break;
            };
            level.push_str(std::str::from_utf8(token.text(self.lexer.text())).ok()?);
            self.lexer = ahead;
        }
        match level.to_ascii_lowercase().as_str() {
            "readuncommitted" => Some("READ-UNCOMMITTED"),
            "readcommitted" => Some("READ-COMMITTED"),
            "repeatableread" => Some("REPEATABLE-READ"),
            "serializable" => Some("SERIALIZABLE"),
            _ => None,
        }
    }

    /// Skips the rest of an assignment, and returns whether another one follows.
    fn next_assignment(&mut self) -> bool {
        let mut depth = 0usize;
        for token in self.lexer.by_ref() {
            match token.kind {
                MysqlTokenKind::Mark(b';') => return false,
                MysqlTokenKind::Mark(b',') if depth == 0 => return true,
                MysqlTokenKind::Mark(b'(') => depth += 1,
                MysqlTokenKind::Mark(b')') => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        false
    }
}

/// Returns a name without its quotes.
pub(super) fn identifier(token: &MysqlToken, lexer: &MysqlLexer<'_>) -> Option<String> {
    let text = token.text(lexer.text());
    match token.kind {
        MysqlTokenKind::Word => String::from_utf8(text.to_vec()).ok(),
        MysqlTokenKind::Name => undoubled(text, false, lexer.mode()),
        _ => None,
    }
}

/// Returns the value of a constant, unless only the server can determine it.
pub(super) fn constant(token: &MysqlToken, lexer: &MysqlLexer<'_>) -> Option<String> {
    let text = token.text(lexer.text());
    match token.kind {
        MysqlTokenKind::Word => match keywords::word(text) {
            Word::True => Some("1".to_owned()),
            Word::False => Some("0".to_owned()),
            _ if text.eq_ignore_ascii_case(b"null") => None,
            _ => String::from_utf8(text.to_vec()).ok(),
        },
        MysqlTokenKind::Name => undoubled(text, false, lexer.mode()),
        MysqlTokenKind::Text if text.first().is_some_and(u8::is_ascii_alphabetic) => None,
        MysqlTokenKind::Text => undoubled(text, !lexer.mode().no_backslash_escapes, lexer.mode()),
        MysqlTokenKind::Number => {
            let plain = text.iter().all(|it| it.is_ascii_digit() || *it == b'.');
            plain.then(|| String::from_utf8(text.to_vec()).ok()).flatten()
        }
        _ => None,
    }
}

/// Returns the decoded text between quotes.
fn undoubled(text: &[u8], escapes: bool, mode: SqlMode) -> Option<String> {
    let (quote, inner) = text.split_first()?;
    let inner = inner.get(..inner.len().checked_sub(1)?)?;
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if escapes => match bytes.next()? {
                b'0' => out.push(0),
                b'b' => out.push(8),
                b'n' => out.push(b'\n'),
                b'r' => out.push(b'\r'),
                b't' => out.push(b'\t'),
                b'Z' => out.push(26),
                // Pattern escapes keep their backslash.
                kept @ (b'%' | b'_') => out.extend([b'\\', kept]),
                other => out.push(other),
            },
            byte if byte == *quote => out.push(bytes.next()?),
            byte => out.push(byte),
        }
    }
    let readable = mode.charset == CharsetClass::Utf8 || out.is_ascii();
    readable.then(|| String::from_utf8(out).ok()).flatten()
}
