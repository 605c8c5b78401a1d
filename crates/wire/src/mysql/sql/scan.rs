//! Single pass over a text that finds its possible lasting effects.
//!
//! It knows the order of words where the order matters, but no grammar otherwise. It prefers false
//! positives to false negatives. It allocates nothing, looks ahead by a bounded number of tokens,
//! and parses a text within the text once.

use super::effects::MysqlEffects;
use super::keywords::{self, KnownWord, MysqlFunctionEffect, Word};
use super::lexer::{CommentReading, MysqlLexer, MysqlToken, MysqlTokenKind, VersionConditions};
use super::mode::SqlMode;
use super::prohibited::{self, TokenPlace};
use super::routine::RoutineBody;
use super::set::{self, AfterTarget};
use super::verbs;
use crate::prohibitions::TextProhibitions;

/// Returns the findings of one or two passes.
pub(super) fn scan(text: &[u8], mode: SqlMode) -> (MysqlEffects, TextProhibitions) {
    within(text, mode, TextDepth::Outer)
}

/// Nesting of a text: on its own, or in a string of another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TextDepth {
    Outer,
    Inner,
}

/// Returns the effects and prohibitions of a text that may stand within another.
fn within(text: &[u8], mode: SqlMode, depth: TextDepth) -> (MysqlEffects, TextProhibitions) {
    let (mut effects, mut prohibitions, conditions) = pass(text, mode, CommentReading::Code, depth);
    match conditions {
        VersionConditions::None => {}
        VersionConditions::One(_) => {
            let (other, prohibited, _) = pass(text, mode, CommentReading::Comment, depth);
            effects |= other;
            prohibitions.deny_all(prohibited);
        }
        VersionConditions::Several => {
            effects |= MysqlEffects::UNPARSED;
            prohibitions.deny_sandboxes(Some(UNREADABLE));
        }
    }
    (effects, prohibitions)
}

/// A text whose content is unknown.
const UNREADABLE: &str = "a text that cannot be read";

/// A text that is the result of an expression.
const COMPUTED: &str = "preparing a text that is not a literal";

fn pass(
    text: &[u8],
    mode: SqlMode,
    reading: CommentReading,
    depth: TextDepth,
) -> (MysqlEffects, TextProhibitions, VersionConditions) {
    let mut scan = MysqlScan::new(MysqlLexer::new(text, mode, reading), depth);
    while let Some(token) = scan.lexer.next() {
        let place = TokenPlace { in_body: scan.body.is_some(), ..scan.place };
        scan.prohibitions.deny_sandboxes(prohibited::token(&token, place, &scan.lexer));
        scan.place.behind_dot = token.is_mark(b'.');
        match &mut scan.body {
            Some(body) => {
                if body.token(&token, &scan.lexer) {
                    scan.body = None;
                    scan.position = 0;
                    scan.before = MysqlPreviousToken::Start;
                }
            }
            None => {
                scan.token(&token);
                scan.before = scan.becomes(&token);
            }
        }
    }
    if scan.lexer.is_broken() {
        scan.effects |= MysqlEffects::UNPARSED;
        scan.prohibitions.deny_sandboxes(Some(UNREADABLE));
    }
    if scan.effects.contains(MysqlEffects::GET_LOCK) && scan.effects.intersects(REPEATS) {
        scan.effects |= MysqlEffects::GET_LOCKS;
    }
    (scan.effects, scan.prohibitions, scan.lexer.conditions())
}

/// Effects with which one call in a text may become several.
const REPEATS: MysqlEffects = MysqlEffects::TABLES
    .with(MysqlEffects::UNKNOWN)
    .with(MysqlEffects::WRITES)
    .with(MysqlEffects::SQL_PREPARE);

/// The token before the current one, as far as it matters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MysqlPreviousToken {
    /// The beginning of a statement.
    Start,
    Word(Word),
    Dot,
    Close,
    Other,
}

/// A name of one or several parts that was just processed.
#[derive(Clone, Copy, Debug)]
struct MysqlNameChain {
    parts: u8,
    last: MysqlToken,
    known: KnownWord,
    /// Token before the first part.
    before: MysqlPreviousToken,
}

/// Position in the assignments of a `SET`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AssignmentState {
    /// None, or no more.
    No,
    /// The next token begins an assignment.
    Target,
    /// Within a value.
    Value,
    /// The next token begins an assignment that ends with the statement after `FOR`.
    StatementTarget,
    StatementValue,
}

#[derive(Debug)]
struct MysqlScan<'a> {
    text: &'a [u8],
    lexer: MysqlLexer<'a>,
    within: TextDepth,
    effects: MysqlEffects,
    prohibitions: TextProhibitions,
    place: TokenPlace,
    depth: usize,
    /// True if there was a previous statement.
    several: bool,
    /// True if the text so far changes the parsing mode for the rest.
    reads_differently: bool,
    /// First word of the current statement, and the number of its tokens so far.
    verb: Word,
    position: usize,
    before: MysqlPreviousToken,
    /// True if `@@` precedes the dots.
    system: bool,
    chain: MysqlNameChain,
    assigning: AssignmentState,
    /// Kind of object of `CREATE` and similar statements, once known.
    object: Word,
    /// True if a name before a parenthesis can be that of a function.
    calls: bool,
    /// True if the names of `WITH` have not ended yet.
    in_with: bool,
    /// Body of a routine, which is skipped.
    body: Option<RoutineBody>,
}

impl<'a> MysqlScan<'a> {
    fn new(lexer: MysqlLexer<'a>, within: TextDepth) -> MysqlScan<'a> {
        MysqlScan {
            text: lexer.text(),
            lexer,
            within,
            effects: MysqlEffects::NONE,
            prohibitions: TextProhibitions::NONE,
            place: TokenPlace::default(),
            depth: 0,
            several: false,
            reads_differently: false,
            verb: Word::Name,
            position: 0,
            before: MysqlPreviousToken::Start,
            system: false,
            chain: MysqlNameChain {
                parts: 0,
                last: MysqlToken { kind: MysqlTokenKind::Word, start: 0, end: 0 },
                known: keywords::known(b""),
                before: MysqlPreviousToken::Start,
            },
            assigning: AssignmentState::No,
            object: Word::Name,
            calls: true,
            in_with: false,
            body: None,
        }
    }

    fn becomes(&mut self, token: &MysqlToken) -> MysqlPreviousToken {
        self.system = match token.kind {
            MysqlTokenKind::System => true,
            MysqlTokenKind::Mark(b'.') => self.system,
            MysqlTokenKind::Word | MysqlTokenKind::Name => {
                self.system && self.before == MysqlPreviousToken::Dot
            }
            _ => false,
        };
        match token.kind {
            MysqlTokenKind::Word | MysqlTokenKind::Name => {
                MysqlPreviousToken::Word(self.chain.known.word)
            }
            MysqlTokenKind::Mark(b'.') => MysqlPreviousToken::Dot,
            MysqlTokenKind::Mark(b')') => MysqlPreviousToken::Close,
            MysqlTokenKind::Mark(b';') if self.position == 0 => MysqlPreviousToken::Start,
            _ => MysqlPreviousToken::Other,
        }
    }

    fn token(&mut self, token: &MysqlToken) {
        self.assign(token);
        match token.kind {
            MysqlTokenKind::Word | MysqlTokenKind::Name => self.name(token),
            MysqlTokenKind::Mark(b';') => {
                // Within parentheses too: the rest is scanned in any case.
                self.position = 0;
                self.depth = 0;
                return;
            }
            MysqlTokenKind::Mark(b'(') => self.open(token),
            MysqlTokenKind::Mark(b')') => self.depth = self.depth.saturating_sub(1),
            // The name before this dot is not a plain one.
            MysqlTokenKind::Mark(b'.') if !matches!(self.before, MysqlPreviousToken::Word(_)) => {
                self.chain.parts = 2
            }
            MysqlTokenKind::User => self.user_variable(),
            MysqlTokenKind::System => {
                self.begin_if_new(Word::Name);
                self.effects |= set::reads(token.text(self.text).get(2..).unwrap_or_default());
            }
            _ => self.begin_if_new(Word::Name),
        }
        self.position += 1;
    }

    fn begin_if_new(&mut self, word: Word) {
        if self.position > 0 {
            return;
        }
        if self.several {
            self.effects |= MysqlEffects::MULTI;
        }
        if self.reads_differently {
            self.effects |= MysqlEffects::UNPARSED;
        }
        self.several = true;
        self.begin(word, &self.lexer.clone());
    }

    /// Handles the first word of a statement, or of one after `EXPLAIN` or `SET STATEMENT`, with
    /// the tokens after it.
    fn begin(&mut self, word: Word, ahead: &MysqlLexer<'a>) {
        self.verb = word;
        self.object = Word::Name;
        self.calls = !verbs::defines(word);
        self.in_with = word == Word::With;
        self.assigning = AssignmentState::No;
        self.prohibitions.deny_readers(prohibited::statement(word, ahead));
        let effects = match word {
            Word::Set => {
                self.assigning = AssignmentState::Target;
                MysqlEffects::NONE
            }
            Word::Prepare | Word::Execute => {
                verbs::begins(word, ahead) | self.prepared(word, ahead)
            }
            _ => verbs::begins(word, ahead),
        };
        self.effects |= effects;
    }

    /// Handles a word, or a quoted name.
    fn name(&mut self, token: &MysqlToken) {
        let text = token.text(self.text);
        let after_dot = self.before == MysqlPreviousToken::Dot;
        let known = match token.kind {
            MysqlTokenKind::Word => keywords::known(text),
            _ => keywords::known(b""),
        };
        if after_dot && self.system {
            self.effects |= set::reads(text);
        }
        if after_dot {
            self.chain.parts = self.chain.parts.saturating_add(1);
            // `sequence.NEXTVAL`, `sequence.CURRVAL` of `sql_mode=ORACLE`.
            match known.word {
                Word::Nextval => self.effects |= MysqlEffects::SEQUENCE_NEXT,
                Word::Currval => self.effects |= MysqlEffects::SEQUENCE,
                _ => {}
            }
        } else {
            self.chain.parts = 1;
            self.chain.before = self.before;
        }
        self.chain.last = *token;
        self.chain.known = known;
        // After a dot every word is a name.
        if after_dot {
            self.chain.known.word = Word::Name;
        }
        let word = self.chain.known.word;
        match self.position {
            0 => self.begin_if_new(word),
            _ => self.word(word),
        }
    }

    /// Handles a word that is not the first of its statement.
    fn word(&mut self, word: Word) {
        let before = match self.before {
            MysqlPreviousToken::Word(before) => before,
            _ => Word::Name,
        };
        match word {
            Word::Select | Word::With | Word::Values => {
                self.calls = true;
                self.inner_verb(word);
            }
            Word::Insert | Word::Update | Word::Delete | Word::Replace => self.inner_verb(word),
            Word::From | Word::Join | Word::Table | Word::Tables => {
                self.effects |= MysqlEffects::TABLES;
            }
            Word::Into => self.into(),
            Word::SqlCalcFoundRows => self.effects |= MysqlEffects::CALC_FOUND_ROWS,
            Word::Value if before == Word::Next => self.effects |= MysqlEffects::SEQUENCE_NEXT,
            Word::Value if before == Word::Previous => self.effects |= MysqlEffects::SEQUENCE,
            Word::Write if before == Word::Read => {
                if matches!(self.verb, Word::Start | Word::Set | Word::Begin) {
                    self.effects |= MysqlEffects::READ_WRITE;
                }
            }
            Word::Lock | Word::Export if self.verb == Word::Flush => {
                self.effects |= MysqlEffects::LOCK_TABLES;
            }
            Word::Warnings | Word::Errors if self.verb == Word::Show => {
                self.effects |= MysqlEffects::SHOW_WARNINGS;
            }
            Word::Local if self.verb == Word::Load => self.effects |= MysqlEffects::LOCAL_INFILE,
            // It cannot be an unquoted name: within a block it is that statement.
            Word::Kill => self.effects |= MysqlEffects::KILL,
            Word::Rename if self.verb == Word::Alter => self.effects |= MysqlEffects::TEMP_RENAME,
            Word::For if self.assigning == AssignmentState::StatementValue && self.depth == 0 => {
                self.assigning = AssignmentState::No;
                let mut ahead = self.lexer.clone();
                let next = verbs::peek(&mut ahead);
                self.begin(next, &ahead);
                if next == Word::Set {
                    // The assignments are not checked: they may permit writing, or contain a
                    // password.
                    self.effects |= MysqlEffects::READ_WRITE;
                    self.prohibitions.deny_sandboxes(Some("SET STATEMENT … FOR SET"));
                }
            }
            _ => {}
        }
        if matches!(word, Word::For | Word::Lock) {
            self.prohibitions.deny_readers(prohibited::locks_rows(word, &self.lexer));
        }
        if matches!(self.verb, Word::Create | Word::Alter) {
            self.defined(word, before);
        }
    }

    /// Reads the kind of object of `CREATE` and `ALTER`.
    fn defined(&mut self, word: Word, before: Word) {
        if word == Word::Temporary && matches!(before, Word::Create | Word::Replace) {
            self.effects |= MysqlEffects::TEMP_CREATE;
        }
        if self.object != Word::Name {
            return;
        }
        match word {
            _ if verbs::is_routine(word) => {
                self.object = word;
                self.effects |= MysqlEffects::ROUTINE;
                self.body = Some(RoutineBody::new());
            }
            Word::Table | Word::View | Word::Index | Word::Database | Word::Schema => {
                self.object = word;
            }
            Word::User | Word::Role | Word::Server | Word::Sequence | Word::Resource => {
                self.object = word;
            }
            _ => {}
        }
    }

    /// Handles a verb within a statement: after `EXPLAIN`, `ANALYZE` or `WITH`.
    fn inner_verb(&mut self, word: Word) {
        if self.depth > 0 {
            return;
        }
        match self.verb {
            Word::Explain | Word::Describe | Word::Desc | Word::Analyze => {
                self.begin(word, &self.lexer.clone());
            }
            Word::With => {
                self.in_with = false;
                self.effects |= verbs::begins(word, &self.lexer);
            }
            _ => {}
        }
    }

    /// Handles `INTO @a`, `INTO OUTFILE`.
    fn into(&mut self) {
        self.effects |= MysqlEffects::TABLES;
        let Some(next) = self.lexer.clone().next() else { return };
        match next.kind {
            MysqlTokenKind::User => self.effects |= MysqlEffects::USER_VARIABLE_WRITE,
            MysqlTokenKind::Word => {
                if matches!(keywords::word(next.text(self.text)), Word::Outfile | Word::Dumpfile) {
                    self.effects |= MysqlEffects::WRITES;
                    self.prohibitions.deny_readers(Some("INTO OUTFILE"));
                }
            }
            _ => {}
        }
    }

    fn user_variable(&mut self) {
        self.begin_if_new(Word::Name);
        self.effects |= MysqlEffects::USER_VARIABLE_READ;
        let assigned =
            self.lexer.clone().next().is_some_and(|it| it.kind == MysqlTokenKind::Assign);
        if assigned || !verbs::only_reads_user_variables(self.verb) {
            self.effects |= MysqlEffects::USER_VARIABLE_WRITE;
        }
    }

    /// Tracks the beginnings and ends of a `SET`'s assignments.
    fn assign(&mut self, token: &MysqlToken) {
        let temporary = match self.assigning {
            AssignmentState::No => return,
            AssignmentState::Target => false,
            AssignmentState::StatementTarget => true,
            AssignmentState::Value | AssignmentState::StatementValue => {
                if self.depth == 0 && token.is_mark(b',') {
                    self.assigning = match self.assigning {
                        AssignmentState::Value => AssignmentState::Target,
                        _ => AssignmentState::StatementTarget,
                    };
                }
                return;
            }
        };
        let target = set::target(token, &self.lexer, self.position == 1);
        if target.effects.intersects(MysqlEffects::GLOBAL) {
            self.prohibitions.deny_readers(Some("SET of a variable that is not the session's"));
        }
        if keywords::word(token.text(self.text)) == Word::Password {
            self.prohibitions.deny_sandboxes(Some("SET PASSWORD"));
        }
        self.effects |= match temporary {
            // The former values are restored at the end of the statement.
            true => target.effects.without(ENDS_WITH_STATEMENT),
            false => target.effects,
        };
        self.reads_differently |= target.reads_differently && !temporary;
        self.assigning = match (target.next, temporary) {
            (AfterTarget::Over, _) => AssignmentState::No,
            (AfterTarget::Statement, _) => AssignmentState::StatementTarget,
            (AfterTarget::Value, false) => AssignmentState::Value,
            (AfterTarget::Value, true) => AssignmentState::StatementValue,
        };
    }

    /// Handles an opening parenthesis: a call, if a possible function name precedes it.
    fn open(&mut self, token: &MysqlToken) {
        self.depth += 1;
        if self.position == 0 {
            // `(SELECT …)`
            self.begin_if_new(Word::Select);
        }
        let MysqlPreviousToken::Word(word) = self.before else { return };
        let MysqlNameChain { parts, last, known, before } = self.chain;
        self.prohibitions.deny_readers(prohibited::call(&last, self.text));
        if parts == 1 && last.kind == MysqlTokenKind::Word {
            self.call(known.call);
            let spaced = known.no_space && last.end != token.start;
            match known.call {
                MysqlFunctionEffect::Unknown if word.never_a_function() => return,
                MysqlFunctionEffect::Unknown => {}
                _ if spaced => {}
                _ => return,
            }
        } else if parts == 1 {
            // A quoted name can be that of a built-in function as well as one of the database.
            let text = last.text(self.text);
            let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
            self.call(keywords::known(inner).call);
        }
        let first = self.position <= 1;
        if self.calls && !first && !self.is_no_function(before) {
            self.effects |= MysqlEffects::UNKNOWN_FUNCTION;
        }
    }

    fn call(&mut self, call: MysqlFunctionEffect) {
        if call == MysqlFunctionEffect::GetLock && self.effects.contains(MysqlEffects::GET_LOCK) {
            self.effects |= MysqlEffects::GET_LOCKS;
        }
        self.effects |= called(call);
    }

    /// Returns whether a name at this position cannot be that of a called function.
    fn is_no_function(&self, before: MysqlPreviousToken) -> bool {
        match before {
            // The column list of an alias: `(SELECT 1) t (a)`.
            MysqlPreviousToken::Close => true,
            MysqlPreviousToken::Word(word) => matches!(
                word,
                Word::Into
                    | Word::Table
                    | Word::As
                    | Word::With
                    | Word::Recursive
                    | Word::Index
                    | Word::References
                    | Word::Call
                    | Word::Prepare
                    | Word::Insert
                    | Word::Replace
                    | Word::Ignore
                    | Word::Delayed
                    | Word::LowPriority
                    | Word::HighPriority
            ),
            MysqlPreviousToken::Other => self.in_with && self.depth == 1,
            MysqlPreviousToken::Start | MysqlPreviousToken::Dot => false,
        }
    }

    /// Returns the effects of the prepared text of `PREPARE name FROM '…'` or
    /// `EXECUTE IMMEDIATE '…'`.
    fn prepared(&mut self, word: Word, ahead: &MysqlLexer<'a>) -> MysqlEffects {
        let mut ahead = ahead.clone();
        let immediate = verbs::peek(&mut ahead) == Word::Immediate;
        if word == Word::Execute && !immediate {
            return MysqlEffects::NONE;
        }
        if word == Word::Prepare {
            verbs::peek(&mut ahead);
        }
        // Read-only clients must not prepare an unknown text.
        let unseen = MysqlEffects::READ_WRITE;
        let (Some(string), TextDepth::Outer) = (ahead.next(), self.within) else {
            self.prohibitions.deny_sandboxes(Some(COMPUTED));
            return unseen;
        };
        let goes_on = ahead.next().is_some_and(|it| {
            !it.is_mark(b';') && keywords::word(it.text(self.text)) != Word::Using
        });
        let text = string.text(self.text);
        let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
        let plain = inner.iter().all(|it| *it != b'\\' && Some(it) != text.first());
        if string.kind != MysqlTokenKind::Text || !plain || goes_on || text.first() == Some(&b'N') {
            self.prohibitions.deny_sandboxes(Some(COMPUTED));
            return unseen;
        }
        let (inner, prohibitions) = within(inner, self.lexer.mode(), TextDepth::Inner);
        self.prohibitions.deny_all(prohibitions);
        // The prepared text is run by an `EXECUTE` that does not contain it.
        let kept = MysqlEffects::READ_WRITE.with(MysqlEffects::KILL);
        match word {
            Word::Execute => inner,
            _ => inner.without(inner.without(kept)),
        }
    }
}

/// Effects that `SET STATEMENT` reverts itself.
const ENDS_WITH_STATEMENT: MysqlEffects = MysqlEffects::SET
    .with(MysqlEffects::SET_EXPRESSION)
    .with(MysqlEffects::SET_FIXED)
    .with(MysqlEffects::NAMES);

/// Returns the effects of a call of a built-in function.
fn called(call: MysqlFunctionEffect) -> MysqlEffects {
    match call {
        MysqlFunctionEffect::Harmless | MysqlFunctionEffect::Unknown => MysqlEffects::NONE,
        MysqlFunctionEffect::GetLock => MysqlEffects::GET_LOCK,
        MysqlFunctionEffect::ReleaseLock => MysqlEffects::RELEASE_LOCK,
        MysqlFunctionEffect::ReleaseAllLocks => MysqlEffects::RELEASE_ALL_LOCKS,
        MysqlFunctionEffect::LastInsertId => MysqlEffects::LAST_INSERT_ID,
        MysqlFunctionEffect::RowCount => MysqlEffects::ROW_COUNT,
        MysqlFunctionEffect::FoundRows => MysqlEffects::FOUND_ROWS,
        MysqlFunctionEffect::ConnectionId => MysqlEffects::CONNECTION_ID,
        MysqlFunctionEffect::SequenceNext => MysqlEffects::SEQUENCE_NEXT,
        MysqlFunctionEffect::SequenceLast => MysqlEffects::SEQUENCE,
    }
}
