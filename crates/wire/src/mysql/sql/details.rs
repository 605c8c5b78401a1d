//! What the few statements say that a pooler has to understand: variables, and names.
//!
//! Unlike the scan this allocates; it is reached only by texts whose effects ask for it.

use super::lexer::{Conditions, Kind, Lexer, Reading, Token};
use super::mode::{Charset, SqlMode};
use super::quote::is_variable_name;
use super::routine::Body;
use super::set::{self, Held, Target, Value};
use super::words::{self, Word};
use super::{Act, Assigned, Assignment, Details, Kill, KillTarget, Name, Scope, verbs};

/// Names and assignments of one text that are kept; a text with more is not understood.
const DETAILS_MAX: usize = 64;

/// What cannot be read; the text then counts as lost.
#[derive(Clone, Copy, Debug)]
struct Lost;

pub(super) fn details(text: &[u8], mode: SqlMode) -> Details {
    let mut details = Details::default();
    let mut lexer = Lexer::new(text, mode, Reading::Code);
    while let Some(first) = lexer.next() {
        if first.is_mark(b';') {
            continue;
        }
        let verb = match first.kind {
            Kind::Word => words::word(first.text(text)),
            _ => Word::Name,
        };
        let read = details.statement(verb, lexer.clone());
        details.statements += 1;
        let kept = details.names.len() + details.assignments.len();
        if read.is_err() || kept > DETAILS_MAX {
            return Details { lost: true, ..Details::default() };
        }
        skip_statement(&mut lexer, verb);
    }
    // What some servers run and others do not may be said or not.
    if lexer.is_broken() || lexer.conditions() != Conditions::None {
        return Details { lost: true, ..Details::default() };
    }
    details
}

/// Goes behind the semicolon of a statement, from behind its first word.
fn skip_statement(lexer: &mut Lexer<'_>, verb: Word) {
    let mut body: Option<Body> = None;
    while let Some(token) = lexer.next() {
        if let Some(body) = &mut body {
            if body.token(&token, lexer) {
                return;
            }
        } else if token.is_mark(b';') {
            return;
        } else if matches!(verb, Word::Create | Word::Alter) && token.kind == Kind::Word {
            let word = words::word(token.text(lexer.text()));
            body = verbs::is_routine(word).then(Body::new);
        }
    }
}

impl Details {
    fn statement(&mut self, verb: Word, reader: Lexer<'_>) -> Result<(), Lost> {
        let mut reader = Reader { lexer: reader };
        match verb {
            Word::Set => self.set(&mut reader),
            Word::Use => {
                let name = reader.identifier()?;
                self.act(Act::Use, None, name);
                reader.ends()
            }
            Word::Prepare => {
                let name = reader.identifier()?;
                self.act(Act::Prepare, None, name.to_lowercase());
                Ok(())
            }
            Word::Execute => {
                let immediate = verbs::peek(&mut reader.lexer.clone()) == Word::Immediate;
                if immediate {
                    self.act(Act::ExecuteImmediate, None, String::new());
                } else {
                    let name = reader.identifier()?;
                    self.act(Act::Execute, None, name.to_lowercase());
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

    fn act(&mut self, act: Act, schema: Option<String>, name: String) {
        self.names.push(Name { statement: self.statements, act, schema, name });
    }

    fn deallocate(&mut self, reader: &mut Reader<'_>) -> Result<(), Lost> {
        reader.word(Word::Prepare)?;
        let name = reader.identifier()?;
        self.act(Act::Deallocate, None, name.to_lowercase());
        reader.ends()
    }

    /// `CREATE [OR REPLACE] TEMPORARY TABLE [IF NOT EXISTS] name`
    fn create(&mut self, reader: &mut Reader<'_>) -> Result<(), Lost> {
        if reader.eat(Word::Or) {
            reader.word(Word::Replace)?;
        }
        if !reader.eat(Word::Temporary) {
            return Ok(());
        }
        let act = match () {
            () if reader.eat(Word::Table) => Act::CreateTemporary,
            () if reader.eat(Word::Sequence) => Act::CreateTemporarySequence,
            () => return Err(Lost),
        };
        if reader.eat(Word::If) {
            reader.word(Word::Not)?;
            reader.word(Word::Exists)?;
        }
        let (schema, name) = reader.qualified()?;
        self.act(act, schema, name);
        Ok(())
    }

    /// `DROP [TEMPORARY] TABLE [IF EXISTS] name, …`
    fn drop_names(&mut self, reader: &mut Reader<'_>) -> Result<(), Lost> {
        if reader.peek() == Word::Prepare {
            return self.deallocate(reader);
        }
        let temporary = reader.eat(Word::Temporary);
        let act = match () {
            () if reader.eat(Word::Table) || reader.eat(Word::Tables) => Act::Drop,
            () if reader.eat(Word::Sequence) => Act::DropSequence,
            () if temporary => return Err(Lost),
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
            // A long list is lost; it is not to be read to its end first.
            if self.names.len() > DETAILS_MAX {
                return Err(Lost);
            }
        }
    }

    /// `HANDLER table OPEN [[AS] alias]`, `HANDLER name CLOSE`
    fn handler(&mut self, reader: &mut Reader<'_>) -> Result<(), Lost> {
        let (schema, name) = reader.qualified()?;
        if reader.eat(Word::Close) {
            self.act(Act::CloseHandler, schema, name);
        } else if reader.eat(Word::Open) {
            reader.eat(Word::As);
            match reader.ends() {
                Ok(()) => self.act(Act::OpenHandler, schema, name),
                Err(Lost) => {
                    let alias = reader.identifier()?;
                    self.act(Act::OpenHandler, None, alias);
                }
            }
        }
        Ok(())
    }

    fn assign(&mut self, scope: Scope, name: &str, value: Assigned) -> Result<(), Lost> {
        if !is_variable_name(name.as_bytes()) || self.assignments.len() > DETAILS_MAX {
            return Err(Lost);
        }
        self.assignments.push(Assignment {
            statement: self.statements,
            scope,
            is_untold: false,
            name: name.to_owned(),
            value,
        });
        Ok(())
    }

    /// All assignments of a `SET`.
    fn set(&mut self, reader: &mut Reader<'_>) -> Result<(), Lost> {
        let mut first_of_all = true;
        loop {
            let first = reader.lexer.next().ok_or(Lost)?;
            match set::parse(&first, &mut reader.lexer) {
                Target::User | Target::Password | Target::Role => {}
                Target::Variable { held, name } => self.variable(held, &name, reader)?,
                Target::Names => self.set_names(reader)?,
                Target::CharacterSet => self.set_character_set(reader)?,
                Target::Transaction(held) => return self.transaction(held, reader),
                Target::DefaultRole => return Ok(()),
                Target::Statement if first_of_all => return self.set_statement(reader),
                Target::Statement | Target::Unknown => return Err(Lost),
            }
            first_of_all = false;
            if !reader.next_assignment() {
                return Ok(());
            }
        }
    }

    fn variable(&mut self, held: Held, name: &Token, reader: &mut Reader<'_>) -> Result<(), Lost> {
        let text = reader.lexer.text();
        let name = set::unquoted(name.text(text)).to_ascii_lowercase();
        let scope = match held {
            Held::Session => Scope::Session,
            Held::Global => Scope::Global,
            Held::Unsaid if set::is_of_transaction(&name) => Scope::Next,
            Held::Unsaid => Scope::Session,
            Held::Next => Scope::Next,
        };
        let name = String::from_utf8(name).map_err(|_| Lost)?;
        let value = reader.value();
        self.assign(scope, &name, value)?;
        if let Some(last) = self.assignments.last_mut() {
            last.is_untold = held == Held::Unsaid && scope == Scope::Session;
        }
        Ok(())
    }

    /// `NAMES x [COLLATE y]`
    fn set_names(&mut self, reader: &mut Reader<'_>) -> Result<(), Lost> {
        let value = reader.character_set()?;
        for name in ["character_set_client", "character_set_connection", "character_set_results"] {
            self.assign(Scope::Session, name, value.clone())?;
        }
        if reader.eat(Word::Collate) {
            let collation = reader.character_set()?;
            self.assign(Scope::Session, "collation_connection", collation)?;
        } else if value == Assigned::Default {
            self.assign(Scope::Session, "collation_connection", Assigned::Default)?;
        }
        Ok(())
    }

    /// `CHARACTER SET x`: that of the connection becomes that of the database.
    fn set_character_set(&mut self, reader: &mut Reader<'_>) -> Result<(), Lost> {
        let value = reader.character_set()?;
        self.assign(Scope::Session, "character_set_client", value.clone())?;
        self.assign(Scope::Session, "character_set_results", value)?;
        self.assign(Scope::Session, "character_set_connection", Assigned::Expression)?;
        self.assign(Scope::Session, "collation_connection", Assigned::Expression)
    }

    /// `TRANSACTION ISOLATION LEVEL x, READ ONLY`
    fn transaction(&mut self, held: Held, reader: &mut Reader<'_>) -> Result<(), Lost> {
        let scope = match held {
            Held::Session => Scope::Session,
            Held::Global => Scope::Global,
            Held::Unsaid | Held::Next => Scope::Next,
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
                let value = Assigned::Literal(only.to_owned());
                self.assign(scope, "transaction_read_only", value)?;
            } else {
                reader.word(Word::Isolation)?;
                reader.word(Word::Level)?;
                let level = reader.isolation_level().ok_or(Lost)?;
                let value = Assigned::Literal(level.to_owned());
                self.assign(scope, "transaction_isolation", value)?;
            }
            if !reader.eat_mark(b',') {
                return reader.ends();
            }
        }
    }

    /// `STATEMENT … FOR statement`: its assignments end with the statement.
    fn set_statement(&mut self, reader: &mut Reader<'_>) -> Result<(), Lost> {
        let mut depth = 0usize;
        let text = reader.lexer.text();
        while let Some(token) = reader.lexer.next() {
            match token.kind {
                Kind::Mark(b';') => return Err(Lost),
                Kind::Mark(b'(') => depth += 1,
                Kind::Mark(b')') => depth = depth.saturating_sub(1),
                Kind::Word if depth == 0 && words::word(token.text(text)) == Word::For => {
                    let verb = verbs::peek(&mut reader.lexer);
                    return match verb {
                        // Not allowed there, and not to be read again and again.
                        Word::Set => Err(Lost),
                        _ => self.statement(verb, reader.lexer.clone()),
                    };
                }
                _ => {}
            }
        }
        Err(Lost)
    }
}

/// `KILL [HARD | SOFT] [CONNECTION | QUERY [ID]] …`, from behind its first word.
fn kill(reader: &mut Reader<'_>) -> Kill {
    let _how = reader.eat(Word::Hard) || reader.eat(Word::Soft);
    let connection = !reader.eat(Word::Query);
    if connection {
        reader.eat(Word::Connection);
    }
    let text = reader.lexer.text();
    let target = match reader.lexer.next() {
        Some(token) if token.kind == Kind::Number => {
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
    Kill { connection, target }
}

/// A place within a statement.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    pub lexer: Lexer<'a>,
}

impl Reader<'_> {
    pub(super) fn peek(&self) -> Word {
        verbs::peek(&mut self.lexer.clone())
    }

    /// Passes a word, if it is there.
    pub(super) fn eat(&mut self, word: Word) -> bool {
        let mut ahead = self.lexer.clone();
        let found = verbs::peek(&mut ahead) == word;
        if found {
            self.lexer = ahead;
        }
        found
    }

    fn word(&mut self, word: Word) -> Result<(), Lost> {
        self.eat(word).then_some(()).ok_or(Lost)
    }

    pub(super) fn eat_mark(&mut self, mark: u8) -> bool {
        let mut ahead = self.lexer.clone();
        let found = ahead.next().is_some_and(|it| it.is_mark(mark));
        if found {
            self.lexer = ahead;
        }
        found
    }

    /// Whether the statement is over.
    fn ends(&self) -> Result<(), Lost> {
        let over = self.lexer.clone().next().is_none_or(|it| it.is_mark(b';'));
        over.then_some(()).ok_or(Lost)
    }

    fn identifier(&mut self) -> Result<String, Lost> {
        let token = self.lexer.next().ok_or(Lost)?;
        identifier(&token, &self.lexer).ok_or(Lost)
    }

    /// `name`, `schema.name`
    fn qualified(&mut self) -> Result<(Option<String>, String), Lost> {
        let first = self.identifier()?;
        match self.eat_mark(b'.') {
            true => Ok((Some(first), self.identifier()?)),
            false => Ok((None, first)),
        }
    }

    /// The value behind the name of a variable; afterwards the place is behind a constant, or still
    /// before anything else.
    fn value(&mut self) -> Assigned {
        let mut ahead = self.lexer.clone();
        match set::value(&mut ahead) {
            Value::Default => {
                self.lexer = ahead;
                Assigned::Default
            }
            Value::Constant { negative, token } => match constant(&token, &ahead) {
                Some(value) if negative => Assigned::Literal(format!("-{value}")),
                Some(value) => Assigned::Literal(value),
                None => Assigned::Expression,
            },
            Value::Expression => Assigned::Expression,
        }
    }

    /// A name of a character set or collation.
    fn character_set(&mut self) -> Result<Assigned, Lost> {
        let token = self.lexer.next().ok_or(Lost)?;
        let text = token.text(self.lexer.text());
        match token.kind {
            Kind::Word if words::word(text) == Word::Default => Ok(Assigned::Default),
            Kind::Word | Kind::Name | Kind::Text => {
                constant(&token, &self.lexer).map(Assigned::Literal).ok_or(Lost)
            }
            _ => Err(Lost),
        }
    }

    fn isolation_level(&mut self) -> Option<&'static str> {
        let mut words = String::new();
        for _ in 0..2 {
            let mut ahead = self.lexer.clone();
            let Some(token) = ahead.next().filter(|it| it.kind == Kind::Word) else { break };
            words.push_str(std::str::from_utf8(token.text(self.lexer.text())).ok()?);
            self.lexer = ahead;
        }
        match words.to_ascii_lowercase().as_str() {
            "readuncommitted" => Some("READ-UNCOMMITTED"),
            "readcommitted" => Some("READ-COMMITTED"),
            "repeatableread" => Some("REPEATABLE-READ"),
            "serializable" => Some("SERIALIZABLE"),
            _ => None,
        }
    }

    /// Passes what is left of an assignment, and says whether another follows.
    fn next_assignment(&mut self) -> bool {
        let mut depth = 0usize;
        for token in self.lexer.by_ref() {
            match token.kind {
                Kind::Mark(b';') => return false,
                Kind::Mark(b',') if depth == 0 => return true,
                Kind::Mark(b'(') => depth += 1,
                Kind::Mark(b')') => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        false
    }
}

/// A name without its quotes.
pub(super) fn identifier(token: &Token, lexer: &Lexer<'_>) -> Option<String> {
    let text = token.text(lexer.text());
    match token.kind {
        Kind::Word => String::from_utf8(text.to_vec()).ok(),
        Kind::Name => undoubled(text, false, lexer.mode()),
        _ => None,
    }
}

/// The value of a constant, unless only the server can tell.
pub(super) fn constant(token: &Token, lexer: &Lexer<'_>) -> Option<String> {
    let text = token.text(lexer.text());
    match token.kind {
        Kind::Word => match words::word(text) {
            Word::True => Some("1".to_owned()),
            Word::False => Some("0".to_owned()),
            _ if text.eq_ignore_ascii_case(b"null") => None,
            _ => String::from_utf8(text.to_vec()).ok(),
        },
        Kind::Name => undoubled(text, false, lexer.mode()),
        Kind::Text if text.first().is_some_and(u8::is_ascii_alphabetic) => None,
        Kind::Text => undoubled(text, !lexer.mode().no_backslash_escapes, lexer.mode()),
        Kind::Number => {
            let plain = text.iter().all(|it| it.is_ascii_digit() || *it == b'.');
            plain.then(|| String::from_utf8(text.to_vec()).ok()).flatten()
        }
        _ => None,
    }
}

/// What stands between quotes, decoded.
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
                // Those of patterns keep their backslash.
                kept @ (b'%' | b'_') => out.extend([b'\\', kept]),
                other => out.push(other),
            },
            byte if byte == *quote => out.push(bytes.next()?),
            byte => out.push(byte),
        }
    }
    let readable = mode.charset == Charset::Utf8 || out.is_ascii();
    readable.then(|| String::from_utf8(out).ok()).flatten()
}
