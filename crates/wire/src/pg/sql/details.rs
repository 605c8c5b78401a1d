//! Details of the few statements that a pooler has to understand: settings and names.
//!
//! Unlike the scan this allocates; it only runs for texts whose effects require it.

use std::ops::Range;

use super::effects::PgEffects;
use super::keywords::{self, LowerWord, NAME_BYTES_MAX, Word};
use super::lexer::{PgLexer, PgToken, PgTokenKind};
use super::quote;
use super::scan::{self, SetConfig};
use super::{DefaultForm, DefaultSite, PgNameAction, PgNameUse, PgSettingChange};

/// Maximum tokens of one statement that are parsed. A `SET` or `LISTEN` with more is not
/// understood.
const STATEMENT_TOKENS_MAX: usize = 256;

/// Maximum names and settings of one text; a text with more is not understood.
const DETAILS_MAX: usize = 64;

/// Findings beyond the effects.
#[derive(Debug, Default)]
pub(super) struct PgTextDetails {
    pub changes: Vec<PgSettingChange>,
    pub names: Vec<PgNameUse>,
    pub unresolved: Vec<String>,
    pub defaults: Vec<DefaultSite>,
    /// True if every call of `set_config` for the session is among the changes.
    pub set_config_understood: bool,
    /// True if every name that is passed to `set_config` is among `unresolved` or the changes.
    pub set_config_named: bool,
    /// True if a `SET` has a value that depends on settings of the server.
    pub set_unread: bool,
    /// True if a relevant part was not understood.
    pub lost: bool,
}

pub(super) fn details(text: &[u8]) -> PgTextDetails {
    let mut details = PgTextDetails {
        set_config_understood: true,
        set_config_named: true,
        ..PgTextDetails::default()
    };
    let mut lexer = PgLexer::new(text);
    let mut statement = 0usize;
    while let Some(first) = lexer.next() {
        if first.is_mark(b';') {
            continue;
        }
        let (tokens, whole) = collect(&mut lexer, first);
        let reader = PgTokenReader { text, tokens: &tokens, at: 0 };
        details.statement(reader, statement, whole);
        statement += 1;
        let settings = details.changes.len() + details.unresolved.len() + details.defaults.len();
        let kept = settings + details.names.len();
        if kept > DETAILS_MAX {
            return PgTextDetails { lost: true, ..PgTextDetails::default() };
        }
    }
    details
}

/// Returns the tokens of a statement up to its semicolon, within the maximum, and whether they are
/// complete.
fn collect(lexer: &mut PgLexer<'_>, first: PgToken) -> (Vec<PgToken>, bool) {
    let mut tokens = vec![first];
    let mut depth = usize::from(first.is_mark(b'('));
    let mut whole = true;
    for token in lexer.by_ref() {
        match token.kind {
            PgTokenKind::Mark(b';') if depth == 0 => break,
            PgTokenKind::Mark(b'(') => depth += 1,
            PgTokenKind::Mark(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if tokens.len() < STATEMENT_TOKENS_MAX {
            tokens.push(token);
        } else {
            whole = false;
        }
    }
    (tokens, whole)
}

impl PgTextDetails {
    fn statement(&mut self, mut reader: PgTokenReader<'_>, statement: usize, whole: bool) {
        let start = reader;
        let keyword = reader.range();
        let verb = reader.word();
        if whole {
            self.defaults.extend(start.default_site(statement));
            self.null_sites(start, statement);
        }
        let kept = self.changes.len();
        if start.only_set_config(&mut self.changes) && whole {
            return;
        }
        self.changes.truncate(kept);
        self.other_set_config(start, whole);
        let understood = match verb {
            Word::Set => {
                let read = reader.set(&mut self.changes);
                read || self.set_unread(start, &mut reader)
            }
            Word::Reset => reader.reset(&mut self.changes),
            Word::Listen => self.named(&mut reader, PgNameAction::Listen, statement, keyword),
            Word::Unlisten => match reader.eat_mark(b'*') {
                true => self.act(PgNameAction::UnlistenAll, statement, keyword),
                false => self.named(&mut reader, PgNameAction::Unlisten, statement, keyword),
            },
            Word::Execute => {
                self.named(&mut reader, PgNameAction::Execute, statement, keyword);
                return;
            }
            Word::Prepare => {
                if reader.peek_word() != Word::Transaction {
                    self.named(&mut reader, PgNameAction::Prepare, statement, keyword);
                }
                return;
            }
            Word::Deallocate => self.deallocate(&mut reader, statement, keyword),
            Word::Discard => match reader.lower().bytes() {
                b"all" => self.act(PgNameAction::DiscardAll, statement, keyword),
                _ => true,
            },
            Word::Create | Word::Explain => {
                self.inner_execute(start, statement);
                return;
            }
            _ => return,
        };
        if !understood || !whole || !reader.at_end() {
            self.changes.truncate(kept);
            self.lost = true;
        }
    }

    /// Records calls of `set_config` whose value is `NULL`.
    fn null_sites(&mut self, reader: PgTokenReader<'_>, statement: usize) {
        for (index, token) in reader.tokens.iter().enumerate() {
            if !reader.is_set_config(index) {
                continue;
            }
            let call = reader.call_at(token.end);
            let value = call.value.filter(|it| scan::is_null(it, reader.text));
            let name = call.name.and_then(|it| string(&it, reader.text));
            if let (Some(value), Some(name)) = (value, name) {
                let (name, range) = (name.to_ascii_lowercase(), value.start..value.end);
                self.defaults.push(DefaultSite { form: DefaultForm::Null, statement, name, range });
            }
        }
    }

    /// Handles `SET name = 'a\b'`: the value is one string, whose meaning only the server can
    /// determine.
    fn set_unread<'a>(&mut self, start: PgTokenReader<'a>, end: &mut PgTokenReader<'a>) -> bool {
        let mut reader = start;
        let _set = reader.word();
        let _scope = reader.eat(b"session");
        let Some(name) = reader.setting_name() else { return false };
        let is_set = reader.eat_mark(b'=') || reader.eat(b"to");
        let is_string = reader.token().is_some_and(PgToken::is_constant);
        reader.at += 1;
        let elsewhere = name == "search_path" || is_of_transaction(&name);
        if !is_set || !is_string || !reader.at_end() || elsewhere {
            return false;
        }
        if !self.unresolved.contains(&name) {
            self.unresolved.push(name);
        }
        self.set_unread = true;
        self.set_config_understood = false;
        *end = reader;
        true
    }

    /// Records an action with a name.
    fn named(
        &mut self,
        reader: &mut PgTokenReader<'_>,
        act: PgNameAction,
        statement: usize,
        keyword: Range<usize>,
    ) -> bool {
        let range = reader.range();
        let Some(name) = reader.identifier() else {
            self.lost = true;
            return false;
        };
        self.names.push(PgNameUse { act, statement, name: truncate(name), range, keyword });
        true
    }

    /// Records an action without a name.
    fn act(&mut self, act: PgNameAction, statement: usize, keyword: Range<usize>) -> bool {
        let range = keyword.end..keyword.end;
        self.names.push(PgNameUse { act, statement, name: String::new(), range, keyword });
        true
    }

    fn deallocate(
        &mut self,
        reader: &mut PgTokenReader<'_>,
        statement: usize,
        keyword: Range<usize>,
    ) -> bool {
        if reader.peek_word() == Word::Prepare {
            let ahead = reader.tokens.get(reader.at + 1);
            // `DEALLOCATE prepare` deallocates a statement of that name.
            if ahead.is_some() {
                reader.at += 1;
            }
        }
        if reader.peek_word() == Word::All {
            reader.at += 1;
            return self.act(PgNameAction::DeallocateAll, statement, keyword);
        }
        self.named(reader, PgNameAction::Deallocate, statement, keyword)
    }

    /// Handles `CREATE TABLE … AS EXECUTE name` and `EXPLAIN … EXECUTE name`.
    fn inner_execute(&mut self, mut reader: PgTokenReader<'_>, statement: usize) {
        let explain = reader.word() == Word::Explain;
        let mut before = Word::Name;
        while !reader.at_end() {
            let keyword = reader.range();
            let word = reader.word();
            if word == Word::Execute && (explain || before == Word::As) {
                self.named(&mut reader, PgNameAction::Execute, statement, keyword);
                return;
            }
            before = word;
        }
    }

    /// Handles calls of `set_config` in a statement with other parts: their names are recorded if
    /// they are literals.
    fn other_set_config(&mut self, reader: PgTokenReader<'_>, whole: bool) {
        if !whole {
            self.set_config_understood = false;
            self.set_config_named = false;
        }
        for (index, token) in reader.tokens.iter().enumerate() {
            if !reader.is_set_config(index) {
                continue;
            }
            let call = reader.call_at(token.end);
            if call.local == Some(true) {
                continue;
            }
            self.set_config_understood = false;
            let name = call.name.and_then(|it| string(&it, reader.text));
            match name.map(|it| it.to_ascii_lowercase()) {
                Some(name) if quote::is_setting_name(&name) => {
                    if !self.unresolved.contains(&name) {
                        self.unresolved.push(name);
                    }
                }
                _ => self.set_config_named = false,
            }
        }
    }
}

/// A position within the tokens of one statement.
#[derive(Clone, Copy, Debug)]
struct PgTokenReader<'a> {
    text: &'a [u8],
    tokens: &'a [PgToken],
    at: usize,
}

impl<'a> PgTokenReader<'a> {
    fn at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn token(&self) -> Option<&'a PgToken> {
        self.tokens.get(self.at)
    }

    /// Returns the range of the current token in the text.
    fn range(&self) -> Range<usize> {
        self.token().map_or(self.text.len()..self.text.len(), |it| it.start..it.end)
    }

    /// Returns the current token as an unquoted word in lower case, and skips it.
    fn lower(&mut self) -> LowerWord {
        let token = self.token().filter(|it| it.kind == PgTokenKind::Word);
        self.at += 1;
        LowerWord::fold(token.map_or(b"".as_slice(), |it| it.text(self.text)))
    }

    fn word(&mut self) -> Word {
        keywords::word(self.lower().bytes())
    }

    fn peek_word(&self) -> Word {
        self.clone_at().word()
    }

    fn clone_at(&self) -> PgTokenReader<'a> {
        *self
    }

    fn eat_mark(&mut self, mark: u8) -> bool {
        let found = self.token().is_some_and(|it| it.is_mark(mark));
        self.at += usize::from(found);
        found
    }

    fn eat(&mut self, text: &[u8]) -> bool {
        let found = self.clone_at().lower().bytes() == text;
        self.at += usize::from(found);
        found
    }

    fn identifier(&mut self) -> Option<String> {
        let token = self.token()?;
        self.at += 1;
        identifier(token, self.text)
    }

    /// Parses `[SESSION | LOCAL] …` after `SET`. A setting that ends with the transaction is
    /// understood and changes nothing; a role has an effect of its own.
    fn set(&mut self, changes: &mut Vec<PgSettingChange>) -> bool {
        let mut local = false;
        if self.eat(b"local") {
            local = true;
        } else if self.peek_word() == Word::Session {
            let mut ahead = self.clone_at();
            ahead.at += 1;
            match ahead.peek_word() {
                Word::Characteristics => return self.characteristics(changes),
                Word::Authorization => return self.skip(),
                _ => self.at += 1,
            }
        }
        let change = match self.peek_word() {
            _ if local => return self.skip(),
            Word::Transaction | Word::Constraints | Word::Role | Word::Session => {
                return self.skip();
            }
            _ => self.assignment(),
        };
        match change {
            // With a path to temporary tables, undeclared tables would become temporary.
            Some(PgSettingChange::Value { name, value })
                if name == "search_path" && value.to_ascii_lowercase().contains("pg_temp") =>
            {
                false
            }
            Some(change) => {
                // These belong to the current transaction, whatever their scope.
                if !change.name().is_some_and(is_of_transaction) {
                    changes.push(change);
                }
                true
            }
            None => false,
        }
    }

    /// Returns the position of a statement that only sets settings to their defaults.
    fn default_site(mut self, statement: usize) -> Option<DefaultSite> {
        let range = self.token()?.start..self.tokens.last()?.end;
        let mut changes = Vec::new();
        let form = match self.word() {
            Word::Reset if self.reset(&mut changes) => DefaultForm::Reset,
            Word::Set => {
                let local = self.eat(b"local");
                let _scope = !local && self.eat(b"session");
                let keywords = [Word::Transaction, Word::Constraints, Word::Role, Word::Session];
                if keywords.contains(&self.peek_word()) {
                    return None;
                }
                changes.extend(self.assignment());
                if local { DefaultForm::SetLocal } else { DefaultForm::Set }
            }
            _ => return None,
        };
        let (form, name) = match changes.pop()? {
            PgSettingChange::Default { name } if !is_of_transaction(&name) => (form, name),
            PgSettingChange::DefaultAll => (DefaultForm::ResetAll, String::new()),
            PgSettingChange::Default { .. } | PgSettingChange::Value { .. } => return None,
        };
        self.at_end().then_some(DefaultSite { form, statement, name, range })
    }

    fn skip(&mut self) -> bool {
        self.at = self.tokens.len();
        true
    }

    fn assignment(&mut self) -> Option<PgSettingChange> {
        let after = |count: usize| {
            let mut ahead = self.clone_at();
            ahead.at += count;
            ahead.lower()
        };
        let ahead = self.clone_at().lower();
        match ahead.bytes() {
            b"time" if after(1).bytes() == b"zone" => {
                self.at += 2;
                let local = self.clone_at().lower();
                if matches!(local.bytes(), b"local" | b"default") {
                    self.at += 1;
                    return Some(PgSettingChange::Default { name: "timezone".to_owned() });
                }
                return self.value("timezone".to_owned());
            }
            b"names" if self.tokens.len() <= self.at + 2 => {
                self.at += 1;
                let name = "client_encoding".to_owned();
                return if self.at_end() {
                    Some(PgSettingChange::Default { name })
                } else {
                    self.value(name)
                };
            }
            b"schema" if self.tokens.get(self.at + 1).is_some_and(PgToken::is_constant) => {
                self.at += 1;
                return self.value("search_path".to_owned());
            }
            b"xml" if after(1).bytes() == b"option" => {
                self.at += 2;
                return self.value("xmloption".to_owned());
            }
            _ => {}
        }
        let name = self.setting_name()?;
        if !self.eat_mark(b'=') && !self.eat(b"to") {
            return None;
        }
        self.value(name)
    }

    /// Parses a name with dots, in lower case, the form in which names of settings are compared.
    fn setting_name(&mut self) -> Option<String> {
        let mut name = self.identifier()?;
        while self.eat_mark(b'.') {
            name.push('.');
            name.push_str(&self.identifier()?);
        }
        name.make_ascii_lowercase();
        quote::is_setting_name(&name).then_some(name)
    }

    /// Parses the value after `TO`, up to the end.
    fn value(&mut self, name: String) -> Option<PgSettingChange> {
        if self.eat(b"default") {
            return Some(PgSettingChange::Default { name });
        }
        let names = is_list_of_names(&name);
        let mut value = String::new();
        loop {
            let item = self.item()?;
            match names {
                true => quote::push_list_item(&mut value, &item),
                false => value.push_str(&item),
            }
            if self.at_end() {
                return Some(PgSettingChange::Value { name, value });
            }
            if !self.eat_mark(b',') {
                return None;
            }
            value.push_str(", ");
        }
    }

    fn item(&mut self) -> Option<String> {
        let mut item = String::new();
        if self.eat_mark(b'-') {
            item.push('-');
        } else {
            self.eat_mark(b'+');
        }
        let token = self.token()?;
        self.at += 1;
        if token.kind == PgTokenKind::Number {
            item.push_str(std::str::from_utf8(token.text(self.text)).ok()?);
            return Some(item);
        }
        if !item.is_empty() {
            return None;
        }
        match token.kind {
            PgTokenKind::Word | PgTokenKind::Quoted => identifier(token, self.text),
            _ => string(token, self.text),
        }
    }

    /// Parses `RESET …`.
    fn reset(&mut self, changes: &mut Vec<PgSettingChange>) -> bool {
        match self.peek_word() {
            Word::Role | Word::Session => return self.skip(),
            Word::All => {
                self.at += 1;
                changes.push(PgSettingChange::DefaultAll);
                return true;
            }
            _ => {}
        }
        if self.eat(b"time") {
            changes.push(PgSettingChange::Default { name: "timezone".to_owned() });
            return self.eat(b"zone");
        }
        if self.eat(b"transaction") {
            return self.skip();
        }
        match self.setting_name() {
            Some(name) if is_of_transaction(&name) => true,
            Some(name) => {
                changes.push(PgSettingChange::Default { name });
                true
            }
            None => false,
        }
    }

    /// Parses `SESSION CHARACTERISTICS AS TRANSACTION mode [, …]`.
    fn characteristics(&mut self, changes: &mut Vec<PgSettingChange>) -> bool {
        for expected in ["session", "characteristics", "as", "transaction"] {
            if !self.eat(expected.as_bytes()) {
                return false;
            }
        }
        loop {
            let Some((name, value)) = self.mode() else {
                return false;
            };
            changes.push(PgSettingChange::Value { name: name.to_owned(), value: value.to_owned() });
            self.eat_mark(b',');
            if self.at_end() {
                return true;
            }
        }
    }

    fn mode(&mut self) -> Option<(&'static str, &'static str)> {
        let one = self.lower();
        let two = self.clone_at().lower();
        let mode = match (one.bytes(), two.bytes()) {
            (b"read", b"only") => ("default_transaction_read_only", "on"),
            (b"read", b"write") => ("default_transaction_read_only", "off"),
            (b"not", b"deferrable") => ("default_transaction_deferrable", "off"),
            (b"deferrable", _) => return Some(("default_transaction_deferrable", "on")),
            (b"isolation", b"level") => {
                self.at += 1;
                return Some(("default_transaction_isolation", self.isolation()?));
            }
            _ => return None,
        };
        self.at += 1;
        Some(mode)
    }

    fn isolation(&mut self) -> Option<&'static str> {
        let one = self.lower();
        if one.bytes() == b"serializable" {
            return Some("serializable");
        }
        let two = self.lower();
        match (one.bytes(), two.bytes()) {
            (b"repeatable", b"read") => Some("repeatable read"),
            (b"read", b"committed") => Some("read committed"),
            (b"read", b"uncommitted") => Some("read uncommitted"),
            _ => None,
        }
    }

    /// Returns whether the parenthesis at `index` opens a call of the built-in `set_config`.
    fn is_set_config(&self, index: usize) -> bool {
        let Some(name) = index.checked_sub(1).and_then(|it| self.tokens.get(it)) else {
            return false;
        };
        let text = name.text(self.text);
        let lower = match name.kind {
            PgTokenKind::Word => LowerWord::fold(text),
            PgTokenKind::Quoted => LowerWord::quoted(text),
            _ => return false,
        };
        self.tokens.get(index).is_some_and(|it| it.is_mark(b'(')) && lower.bytes() == b"set_config"
    }

    /// Returns the call whose arguments begin at `start` of the text.
    fn call_at(&self, start: usize) -> SetConfig {
        let rest = self.text.get(start..).unwrap_or_default();
        let mut call = scan::set_config(&mut PgLexer::new(rest));
        for token in [&mut call.name, &mut call.value].into_iter().flatten() {
            token.start += start;
            token.end += start;
        }
        call.end = call.end.map(|end| end + start);
        call
    }

    /// Parses `SELECT set_config('a', 'b', false) [, …]` and nothing else.
    fn only_set_config(mut self, changes: &mut Vec<PgSettingChange>) -> bool {
        if !self.eat(b"select") {
            return false;
        }
        loop {
            if self.eat(b"pg_catalog") && !self.eat_mark(b'.') {
                return false;
            }
            self.at += 1;
            if !self.is_set_config(self.at) {
                return false;
            }
            let Some(change) = self.one_set_config() else {
                return false;
            };
            changes.extend(change);
            if self.at_end() {
                return true;
            }
            if !self.eat_mark(b',') {
                return false;
            }
        }
    }

    /// Parses one call, from its parenthesis on; a local one changes nothing.
    fn one_set_config(&mut self) -> Option<Option<PgSettingChange>> {
        let call = self.call_at(self.token()?.end);
        let end = call.end?;
        while self.token().is_some_and(|it| it.end <= end) {
            self.at += 1;
        }
        let name = string(&call.name?, self.text)?.to_ascii_lowercase();
        let value = call.value?;
        if scan::is_null(&value, self.text) {
            let lasts = !call.local? && !is_of_transaction(&name);
            let is_name = quote::is_setting_name(&name);
            return is_name.then(|| lasts.then_some(PgSettingChange::Default { name }));
        }
        let value = string(&value, self.text)?;
        let path = name == "search_path" && value.to_ascii_lowercase().contains("pg_temp");
        if path || !quote::is_setting_name(&name) {
            return None;
        }
        match call.local? {
            true => Some(None),
            false if is_of_transaction(&name) => Some(None),
            false => Some(Some(PgSettingChange::Value { name, value })),
        }
    }
}

/// Returns whether a setting belongs to the transaction in which it is set.
fn is_of_transaction(name: &str) -> bool {
    matches!(name, "transaction_isolation" | "transaction_read_only" | "transaction_deferrable")
}

/// Returns whether a setting's value is a list of names, each quoted separately: `GUC_LIST_QUOTE`
/// in `utils/misc/guc_tables.c`. Extensions cannot add such settings.
fn is_list_of_names(name: &str) -> bool {
    matches!(
        name,
        "search_path"
            | "temp_tablespaces"
            | "session_preload_libraries"
            | "shared_preload_libraries"
            | "local_preload_libraries"
            | "unix_socket_directories"
    )
}

/// Returns the name of a token, folded as in the server.
fn identifier(token: &PgToken, text: &[u8]) -> Option<String> {
    let bytes = token.text(text);
    match token.kind {
        PgTokenKind::Word => Some(std::str::from_utf8(bytes).ok()?.to_ascii_lowercase()),
        PgTokenKind::Quoted => {
            let inner = std::str::from_utf8(scan::inner(bytes)).ok()?;
            (!inner.is_empty()).then(|| inner.replace("\"\"", "\""))
        }
        _ => None,
    }
}

/// Returns the text of a string, if it is unambiguous.
fn string(token: &PgToken, text: &[u8]) -> Option<String> {
    let bytes = token.text(text);
    match token.kind {
        PgTokenKind::Plain => {
            let inner = std::str::from_utf8(scan::inner(bytes)).ok()?;
            (!inner.contains('\\')).then(|| inner.replace("''", "'"))
        }
        PgTokenKind::Escaped => {
            let inner = std::str::from_utf8(bytes.get(2..bytes.len().checked_sub(1)?)?).ok()?;
            unescape(inner)
        }
        PgTokenKind::Dollar => {
            let tag = bytes.get(1..)?.iter().position(|&it| it == b'$')? + 2;
            let inner = bytes.get(tag..bytes.len().checked_sub(tag)?)?;
            Some(std::str::from_utf8(inner).ok()?.to_owned())
        }
        _ => None,
    }
}

/// Returns the value of an `E'…'`; numeric escapes are not supported.
fn unescape(inner: &str) -> Option<String> {
    let mut value = String::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => value.push(match letters.next()? {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                '0'..='9' | 'x' | 'u' | 'U' => return None,
                other => other,
            }),
            '\'' => {
                letters.next();
                value.push('\'');
            }
            other => value.push(other),
        }
    }
    Some(value)
}

/// Truncates a name like the server: to 63 bytes, and not within a character.
fn truncate(mut name: String) -> String {
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    name
}

/// Effects that require details.
pub(super) const WITH_DETAILS: PgEffects = PgEffects::SET
    .with(PgEffects::DEFAULT)
    .with(PgEffects::RESET)
    .with(PgEffects::SET_CONFIG)
    .with(PgEffects::LISTEN)
    .with(PgEffects::UNLISTEN)
    .with(PgEffects::PREPARE)
    .with(PgEffects::EXECUTE)
    .with(PgEffects::DEALLOCATE)
    .with(PgEffects::DISCARD);
