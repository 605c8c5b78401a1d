//! Single pass over a text that finds its possible lasting effects.
//!
//! It knows the order of words where the order matters, but no grammar otherwise. It prefers false
//! positives to false negatives. It allocates nothing, never goes back by more than
//! [`ARGUMENT_TOKENS_MAX`] tokens, and does not recurse.

use super::effects::PgEffects;
use super::keywords::{self, LowerWord, PgFunctionEffect, Word};
use super::lexer::{PgLexer, PgToken, PgTokenKind};
use super::prohibited;
use crate::prohibitions::TextProhibitions;

/// Maximum tokens of a call of `set_config` that are read; a longer call is not understood. Calls
/// may be nested, and each is parsed on its own.
pub(super) const ARGUMENT_TOKENS_MAX: usize = 32;

/// Result of one pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct PgScanResult {
    pub effects: PgEffects,
    /// Equal for texts that differ in constants, spaces and comments only.
    pub fingerprint: u64,
    pub statements: usize,
    pub prohibitions: TextProhibitions,
}

pub(super) fn scan(text: &[u8]) -> PgScanResult {
    let mut scan = PgScan::new(text);
    while let Some(token) = scan.lexer.next() {
        scan.fingerprint(&token);
        scan.token(&token);
        scan.before = scan.becomes(&token);
    }
    if scan.lexer.is_broken() {
        scan.effects |= PgEffects::UNPARSED;
        scan.prohibitions.deny_sandboxes(Some("a text that cannot be read"));
    }
    if scan.statements > 1 {
        scan.effects |= PgEffects::MULTI;
    }
    PgScanResult {
        effects: scan.effects,
        fingerprint: scan.hash,
        statements: scan.statements,
        prohibitions: scan.prohibitions,
    }
}

/// The token before the current one, as far as it matters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PgPreviousToken {
    /// The beginning of a statement.
    Start,
    Word(Word),
    Dot,
    Cast,
    Close,
    Constant,
    Other,
}

/// A name of one or several parts that was just processed.
#[derive(Clone, Copy, Debug)]
struct PgNameChain {
    parts: u8,
    last: PgToken,
    word: Word,
    /// True if the only part before the last one is `pg_catalog`.
    in_catalog: bool,
    /// Token before the first part.
    before: PgPreviousToken,
}

#[derive(Debug)]
struct PgScan<'a> {
    text: &'a [u8],
    lexer: PgLexer<'a>,
    effects: PgEffects,
    prohibitions: TextProhibitions,
    hash: u64,
    /// Constant at the end of the hashed text: none, one, or one followed by a comma.
    constants: ConstantState,
    statements: usize,
    depth: usize,
    /// First word of the current statement, and the number of its tokens so far.
    verb: Word,
    position: usize,
    before: PgPreviousToken,
    chain: PgNameChain,
    /// True if the last `INTO` belongs to an `INSERT` or a `MERGE`.
    into_existing: bool,
    /// True if semicolons do not end statements: in an SQL body of a function.
    in_body: bool,
    /// True if a statement was scanned that may end the transaction.
    ended: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ConstantState {
    None,
    One,
    OneAndComma,
}

impl<'a> PgScan<'a> {
    fn new(text: &'a [u8]) -> PgScan<'a> {
        PgScan {
            text,
            lexer: PgLexer::new(text),
            effects: PgEffects::NONE,
            prohibitions: TextProhibitions::NONE,
            hash: 0,
            constants: ConstantState::None,
            statements: 0,
            depth: 0,
            verb: Word::Name,
            position: 0,
            before: PgPreviousToken::Start,
            chain: PgNameChain {
                parts: 0,
                last: PgToken { kind: PgTokenKind::Word, start: 0, end: 0 },
                word: Word::Name,
                in_catalog: false,
                before: PgPreviousToken::Start,
            },
            into_existing: false,
            in_body: false,
            ended: false,
        }
    }

    fn becomes(&self, token: &PgToken) -> PgPreviousToken {
        match token.kind {
            PgTokenKind::Word | PgTokenKind::Quoted => PgPreviousToken::Word(self.chain.word),
            PgTokenKind::Cast => PgPreviousToken::Cast,
            PgTokenKind::Mark(b'.') => PgPreviousToken::Dot,
            PgTokenKind::Mark(b')') => PgPreviousToken::Close,
            PgTokenKind::Mark(b';') if self.position == 0 => PgPreviousToken::Start,
            PgTokenKind::Mark(_) => PgPreviousToken::Other,
            _ => PgPreviousToken::Constant,
        }
    }

    fn token(&mut self, token: &PgToken) {
        match token.kind {
            PgTokenKind::Word | PgTokenKind::Quoted => self.name(token),
            PgTokenKind::Mark(b';') if self.depth == 0 && !self.in_body => {
                self.position = 0;
                self.into_existing = false;
                return;
            }
            PgTokenKind::Mark(b'(') => self.open(),
            PgTokenKind::Mark(b')') => self.depth = self.depth.saturating_sub(1),
            // The name before this dot is not a plain one: the owner of a function called after it
            // is unknown.
            PgTokenKind::Mark(b'.') if !matches!(self.before, PgPreviousToken::Word(_)) => {
                self.chain.parts = 2
            }
            _ => self.begin_if_new(Word::Name),
        }
        self.position += 1;
    }

    fn begin_if_new(&mut self, word: Word) {
        if self.position == 0 {
            self.statements += 1;
            self.verb = word;
            let effects = self.begins(word);
            self.effects |= effects;
            self.prohibitions.deny_all(prohibited::statement(word, &self.lexer));
            if self.ended {
                self.effects |= PgEffects::AFTER_END;
            }
            let begins =
                matches!(word, Word::Begin | Word::Start | Word::Savepoint | Word::Release);
            self.ended |= effects.intersects(PgEffects::TRANSACTION) && !begins;
        }
    }

    /// Handles a word or a quoted identifier.
    fn name(&mut self, token: &PgToken) {
        let text = token.text(self.text);
        let after_dot = self.before == PgPreviousToken::Dot;
        // After a dot every word is a name.
        let word = match token.kind {
            PgTokenKind::Word if !after_dot => keywords::word(text),
            _ => Word::Name,
        };
        if after_dot {
            let first = self.chain.parts == 1;
            self.chain.in_catalog = first && self.lower(&self.chain.last).bytes() == CATALOG;
            self.chain.parts = self.chain.parts.saturating_add(1);
        } else {
            self.chain.parts = 1;
            self.chain.in_catalog = false;
            self.chain.before = self.before;
        }
        self.chain.last = *token;
        self.chain.word = word;
        self.prohibitions.deny_all(prohibited::name(self.lower(token).bytes()));
        let plain = text.strip_prefix(b"\"").unwrap_or(text);
        if plain.get(..TEMPORARY.len()).is_some_and(|it| it.eq_ignore_ascii_case(TEMPORARY)) {
            self.effects |= PgEffects::TEMP;
        }
        if self.before == PgPreviousToken::Cast && !keywords::is_own_type(self.lower(token).bytes())
        {
            self.effects |= PgEffects::HIDDEN;
        }
        if self.position == 0 {
            self.begin_if_new(word);
        } else {
            self.word(word);
        }
    }

    /// Returns the name of a token.
    fn lower(&self, token: &PgToken) -> LowerWord {
        let text = token.text(self.text);
        match token.kind {
            PgTokenKind::Quoted => LowerWord::quoted(text),
            _ => LowerWord::fold(text),
        }
    }

    /// Handles a word that is not the first of its statement.
    fn word(&mut self, word: Word) {
        let before = match self.before {
            PgPreviousToken::Word(before) => before,
            _ => Word::Name,
        };
        match word {
            Word::Temp | Word::Temporary => {
                let new = match before {
                    Word::Create | Word::Replace | Word::Local | Word::Global => true,
                    // `SELECT INTO TEMP t`, but not `INSERT INTO temp`.
                    Word::Into => !self.into_existing,
                    _ => false,
                };
                if new {
                    self.effects |= PgEffects::TEMP;
                }
            }
            Word::Into => {
                self.into_existing = matches!(before, Word::Insert | Word::Merge);
                self.effects |= PgEffects::HIDDEN;
            }
            Word::From | Word::Table | Word::Cast => self.effects |= PgEffects::HIDDEN,
            Word::Create => self.effects |= PgEffects::CREATE,
            Word::Default if self.verb == Word::Set => self.effects |= PgEffects::DEFAULT,
            // `SET TIME ZONE LOCAL` means the default as well; in `SET LOCAL` the word is the
            // scope.
            Word::Local if self.verb == Word::Set && self.position > 1 => {
                self.effects |= PgEffects::DEFAULT;
            }
            Word::Execute if before == Word::As || self.verb == Word::Explain => {
                self.effects |= PgEffects::EXECUTE;
            }
            Word::Hold if self.verb == Word::Declare && before != Word::Without => {
                self.effects |= PgEffects::HOLD;
            }
            Word::Write if before == Word::Read => {
                if matches!(self.verb, Word::Begin | Word::Start | Word::Set) {
                    self.effects |= PgEffects::READ_WRITE;
                }
            }
            Word::To if self.verb == Word::Rollback => {
                self.effects |= PgEffects::ROLLBACK_TO;
                // The findings before it are kept.
                self.ended = self.effects.intersects(PgEffects::AFTER_END);
            }
            // The script of an extension can have any effect.
            Word::Extension if self.verb == Word::Create => self.effects |= PgEffects::UNPARSED,
            Word::Atomic if before == Word::Begin => {
                self.in_body = true;
                self.effects |= PgEffects::UNPARSED;
            }
            _ => {}
        }
    }

    /// Returns the effects of a statement's first word.
    fn begins(&self, word: Word) -> PgEffects {
        match word {
            Word::Select | Word::Values | Word::Show | Word::With => PgEffects::NONE,
            Word::Fetch | Word::Move => PgEffects::NONE,
            Word::Insert | Word::Update | Word::Delete | Word::Merge | Word::Table => {
                PgEffects::HIDDEN
            }
            Word::Begin | Word::Start | Word::Commit | Word::End | Word::Rollback => {
                PgEffects::TRANSACTION
            }
            Word::Abort | Word::Savepoint | Word::Release => PgEffects::TRANSACTION,
            Word::Set => self.set(),
            Word::Reset => self.reset(),
            Word::Listen => PgEffects::LISTEN,
            Word::Unlisten => PgEffects::UNLISTEN,
            Word::Notify => PgEffects::NOTIFY,
            Word::Prepare => match self.next_word() {
                Word::Transaction => PgEffects::TRANSACTION,
                _ => PgEffects::PREPARE | PgEffects::HIDDEN,
            },
            Word::Execute => PgEffects::EXECUTE,
            Word::Deallocate => PgEffects::DEALLOCATE,
            Word::Discard => PgEffects::DISCARD,
            Word::Load => PgEffects::LOAD,
            Word::Do => PgEffects::DO,
            Word::Call => PgEffects::CALL,
            Word::Declare => PgEffects::HIDDEN,
            Word::Close => PgEffects::HOLD,
            Word::Copy => PgEffects::COPY | PgEffects::HIDDEN,
            Word::Create => PgEffects::CREATE | PgEffects::HIDDEN,
            Word::Drop | Word::Alter => PgEffects::DROP | PgEffects::HIDDEN,
            Word::Explain | Word::Truncate | Word::Comment | Word::Grant | Word::Revoke => {
                PgEffects::HIDDEN
            }
            Word::Analyze | Word::Analyse | Word::Vacuum | Word::Cluster | Word::Reindex => {
                PgEffects::HIDDEN
            }
            Word::Lock | Word::Refresh | Word::Reassign | Word::Security | Word::Import => {
                PgEffects::HIDDEN
            }
            Word::Checkpoint => PgEffects::NONE,
            _ => PgEffects::UNPARSED,
        }
    }

    /// Returns the word after the current token.
    fn next_word(&self) -> Word {
        peek(&mut self.lexer.clone(), self.text)
    }

    /// Returns the effects of `SET …`, by its kind.
    fn set(&self) -> PgEffects {
        let mut ahead = self.lexer.clone();
        let mut word = peek(&mut ahead, self.text);
        if word == Word::Local {
            let first = peek_lower(&mut ahead, self.text);
            return local(first.bytes());
        }
        if word == Word::Session {
            let mut after = ahead.clone();
            match peek(&mut after, self.text) {
                Word::Authorization => return PgEffects::ROLE,
                Word::Characteristics => return PgEffects::SET,
                _ => {}
            }
            word = peek(&mut ahead, self.text);
            if word == Word::Session {
                return PgEffects::ROLE;
            }
        }
        match word {
            Word::Transaction | Word::Constraints => return PgEffects::SET_LOCAL,
            Word::Role => return PgEffects::ROLE,
            Word::Seed => return PgEffects::SEED,
            _ => {}
        }
        // The name is read again, because it may be quoted.
        let mut ahead = self.lexer.clone();
        let mut name = peek_lower(&mut ahead, self.text);
        if name.bytes() == b"session" {
            name = peek_lower(&mut ahead, self.text);
        }
        named(name.bytes(), PgEffects::SET)
    }

    fn reset(&self) -> PgEffects {
        let mut ahead = self.lexer.clone();
        match peek(&mut ahead, self.text) {
            Word::Role | Word::Session => PgEffects::ROLE,
            _ => named(peek_lower(&mut self.lexer.clone(), self.text).bytes(), PgEffects::RESET),
        }
    }

    /// Handles an opening parenthesis: a call, if a possible function name precedes it.
    fn open(&mut self) {
        self.depth += 1;
        if self.position == 0 {
            // `(SELECT …)`
            self.begin_if_new(Word::Select);
        }
        let PgPreviousToken::Word(word) = self.before else {
            return;
        };
        let chain = self.chain;
        // Regardless of the token before it: an alias of such a name is refused as well.
        self.prohibitions.deny_all(prohibited::call(self.lower(&chain.last).bytes()));
        // `EXPLAIN (…)`, `VACUUM (…)`
        if self.position <= 1 || (chain.parts == 1 && self.is_grammar(word, chain.before)) {
            return;
        }
        if word != Word::Operator && self.is_no_function(chain.before) {
            return;
        }
        if keywords::is_lasting(self.lower(&chain.last).bytes()) {
            self.effects |= PgEffects::LASTING;
        }
        if chain.parts > 1 && !chain.in_catalog {
            self.effects |= PgEffects::FUNCTION;
            return;
        }
        if chain.parts == 1 {
            self.effects |= PgEffects::BUILTIN;
        }
        self.effects |= match keywords::call(self.lower(&chain.last).bytes()) {
            PgFunctionEffect::Harmless => PgEffects::NONE,
            PgFunctionEffect::Advisory => PgEffects::ADVISORY,
            PgFunctionEffect::Notify => PgEffects::NOTIFY,
            PgFunctionEffect::Seed => PgEffects::SEED,
            PgFunctionEffect::SequenceRead => PgEffects::SEQUENCE_READ,
            PgFunctionEffect::SequenceWrite => PgEffects::SEQUENCE_WRITE,
            PgFunctionEffect::SetConfig => self.set_config(),
            PgFunctionEffect::Unknown => PgEffects::FUNCTION,
        };
    }

    /// Returns whether the parenthesis after `word` belongs to the grammar, given the token before.
    fn is_grammar(&self, word: Word, before: PgPreviousToken) -> bool {
        let after =
            |words: &[Word]| matches!(before, PgPreviousToken::Word(it) if words.contains(&it));
        match word {
            Word::Over | Word::Filter => before == PgPreviousToken::Close,
            Word::By => after(&[Word::Order, Word::Group, Word::Partition]),
            Word::Sets => after(&[Word::Grouping]),
            Word::Conflict => after(&[Word::On]),
            Word::Key => after(&[Word::Primary, Word::Foreign]),
            Word::Materialized => after(&[Word::As, Word::Not]),
            Word::Operator => {
                let mut ahead = self.lexer.clone();
                peek_lower(&mut ahead, self.text).bytes() == CATALOG
            }
            Word::Join => {
                matches!(self.next_word(), Word::Select | Word::Values | Word::With | Word::Table)
            }
            _ => word.never_a_function(),
        }
    }

    /// Returns whether a name at this position cannot be that of a called function.
    fn is_no_function(&self, before: PgPreviousToken) -> bool {
        match before {
            // A type with a modifier; the column list of an alias: `f(x) t(a, b)`.
            PgPreviousToken::Cast | PgPreviousToken::Close => true,
            PgPreviousToken::Word(word) => match word {
                Word::As | Word::With | Word::Recursive | Word::Into | Word::Exists => true,
                Word::Only | Word::References | Word::Function | Word::Procedure => true,
                Word::Routine | Word::Aggregate | Word::View | Word::Table => true,
                Word::Execute | Word::Call => true,
                Word::Copy | Word::Vacuum | Word::Analyze | Word::Prepare => word == self.verb,
                _ => false,
            },
            PgPreviousToken::Start
            | PgPreviousToken::Dot
            | PgPreviousToken::Constant
            | PgPreviousToken::Other => false,
        }
    }

    /// Returns the effects of a call of `set_config`, from the position after its parenthesis.
    fn set_config(&self) -> PgEffects {
        let call = set_config(&mut self.lexer.clone());
        let name = call.name.map_or(b"".as_slice(), |name| inner(name.text(self.text)));
        let name = LowerWord::fold(name);
        let mut lasts = match call.local {
            Some(true) => local(name.bytes()),
            _ => named(name.bytes(), PgEffects::SET_CONFIG),
        };
        if call.value.is_some_and(|value| is_null(&value, self.text)) {
            lasts |= PgEffects::DEFAULT;
        }
        match name.bytes().is_empty() {
            // An unknown name may be any.
            true => lasts | PgEffects::READ_WRITE,
            false => lasts,
        }
    }

    /// Adds a token to the hash. All constants are equal, and a list of them is like a single one.
    fn fingerprint(&mut self, token: &PgToken) {
        if token.is_constant() {
            if self.constants != ConstantState::OneAndComma {
                self.mix(b"?", 0);
            }
            self.constants = ConstantState::One;
            return;
        }
        if token.is_mark(b',') && self.constants == ConstantState::One {
            self.constants = ConstantState::OneAndComma;
            return;
        }
        if self.constants == ConstantState::OneAndComma {
            self.mix(b",", 0);
        }
        self.constants = ConstantState::None;
        let fold = match token.kind {
            PgTokenKind::Word => FOLD,
            _ => 0,
        };
        self.mix(token.text(self.text), fold);
    }

    /// Multiplies and mixes, eight bytes at a time. This hash chooses samples and protects nothing:
    /// collisions can only be constructed within one's own pool.
    fn mix(&mut self, bytes: &[u8], fold: u64) {
        for chunk in bytes.chunks(8) {
            let mut eight = [0; 8];
            for (to, from) in eight.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.hash = (self.hash ^ (u64::from_le_bytes(eight) | fold)).wrapping_mul(HASH_FACTOR);
            self.hash ^= self.hash >> 32;
        }
    }
}

/// The golden ratio in 64 bits, odd.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maps both cases of a letter to one value; other characters of names stay distinct.
const FOLD: u64 = 0x2020_2020_2020_2020;

/// The schema of all built-in objects.
const CATALOG: &[u8] = b"pg_catalog";

/// Prefix of the names of temporary schemas.
const TEMPORARY: &[u8] = b"pg_temp";

fn peek_lower(lexer: &mut PgLexer<'_>, text: &[u8]) -> LowerWord {
    match lexer.next() {
        Some(token) if token.kind == PgTokenKind::Word => LowerWord::fold(token.text(text)),
        Some(token) if token.kind == PgTokenKind::Quoted => {
            LowerWord::fold(LowerWord::quoted(token.text(text)).bytes())
        }
        _ => LowerWord::fold(b""),
    }
}

fn peek(lexer: &mut PgLexer<'_>, text: &[u8]) -> Word {
    match lexer.next() {
        Some(token) if token.kind == PgTokenKind::Word => keywords::word(token.text(text)),
        _ => Word::Name,
    }
}

/// Returns the effects of changing the setting `name`; `lasting` unless the name has others.
fn named(name: &[u8], lasting: PgEffects) -> PgEffects {
    let kind = match name {
        b"role" | b"session_authorization" => PgEffects::ROLE,
        b"seed" => PgEffects::SEED,
        _ => lasting,
    };
    kind | read_write(name)
}

/// Returns the effects of changing the setting `name` until the transaction ends. A change of the
/// role ends, too; a seed has a lasting effect.
fn local(name: &[u8]) -> PgEffects {
    match name {
        b"seed" => PgEffects::SEED,
        _ => PgEffects::SET_LOCAL | read_write(name),
    }
}

fn read_write(name: &[u8]) -> PgEffects {
    match name {
        b"transaction_read_only" | b"default_transaction_read_only" => PgEffects::READ_WRITE,
        _ => PgEffects::NONE,
    }
}

/// Returns the text between the quotes of a plain string.
pub(super) fn inner(string: &[u8]) -> &[u8] {
    string.get(1..string.len().saturating_sub(1)).unwrap_or_default()
}

/// The literal arguments of a call of `set_config`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetConfig {
    /// A plain string, not checked for quotes or backslashes: one with these equals no name.
    pub name: Option<PgToken>,
    pub value: Option<PgToken>,
    pub local: Option<bool>,
    /// Position after the parenthesis that ends the call.
    pub end: Option<usize>,
}

/// Parses the arguments of a call, from the position after the opening parenthesis to the closing
/// one.
pub(super) fn set_config(lexer: &mut PgLexer<'_>) -> SetConfig {
    let text = lexer.text();
    let mut call = SetConfig::default();
    let mut depth = 0usize;
    let mut argument = 0usize;
    // For each argument its token, if it has only one.
    let mut only: Option<PgToken> = None;
    let mut tokens = 0usize;
    for token in lexer.by_ref().take(ARGUMENT_TOKENS_MAX) {
        let ends = depth == 0 && (token.is_mark(b',') || token.is_mark(b')'));
        if ends {
            let only = only.take().filter(|_| tokens == 1);
            match argument {
                0 => call.name = only.filter(|it| it.kind == PgTokenKind::Plain),
                1 => call.value = only,
                _ => call.local = only.and_then(|it| truth(it.text(text))),
            }
            argument += 1;
            tokens = 0;
            if token.is_mark(b')') {
                call.end = Some(token.end);
                break;
            }
            continue;
        }
        match token.kind {
            PgTokenKind::Mark(b'(' | b'[') => depth += 1,
            PgTokenKind::Mark(b')' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        only = Some(token);
        tokens += 1;
    }
    if call.end.is_none() || argument != 3 {
        return SetConfig { end: call.end, ..SetConfig::default() };
    }
    call
}

/// Returns true for the argument `NULL`, which sets a setting to its default.
pub(super) fn is_null(value: &PgToken, text: &[u8]) -> bool {
    value.kind == PgTokenKind::Word && LowerWord::fold(value.text(text)).bytes() == b"null"
}

fn truth(text: &[u8]) -> Option<bool> {
    let lower = LowerWord::fold(text);
    match lower.bytes() {
        b"true" | b"'t'" | b"'true'" | b"'on'" | b"'1'" => Some(true),
        b"false" | b"'f'" | b"'false'" | b"'off'" | b"'0'" => Some(false),
        _ => None,
    }
}

/// Returns the first word of a text.
pub(super) fn first(text: &[u8]) -> Word {
    let mut lexer = PgLexer::new(text);
    let mut first = lexer.next();
    while first.is_some_and(|it| it.is_mark(b';')) {
        first = lexer.next();
    }
    match first {
        Some(token) if token.kind == PgTokenKind::Word => keywords::word(token.text(text)),
        _ => Word::Name,
    }
}
