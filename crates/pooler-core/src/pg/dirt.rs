//! What a server connection is suspected to have kept, from the texts that ran on it: whether it
//! may be given to somebody else, has to be asked first, or belongs to its client for now.
//!
//! Pure, and told everything by its caller. The order matters: [`SessionDirt::saw_text`] for a text
//! when its first reply comes (not when it is sent: a reply before that is another text's), then
//! its tags and errors, then [`SessionDirt::ready`]. Outside of a transaction
//! [`SessionDirt::verdict`] says what is next; after [`ReleaseVerdict::Probe`] the caller calls
//! [`SessionDirt::asked`] and, with the answer, [`SessionDirt::answered`].
//!
//! What SQL cannot undo by itself and no words tell is found by sampling: [`LessonTable`].
//!
//! Two things no question finds, and they are the reason for two rules. The server shows settings
//! of no module (`app.user`) to nobody who does not name them: after code that is not in the text,
//! [`SessionDirt::has_hidden_settings`] asks for a `RESET ALL` before *another* client comes. It
//! costs the server as much as an empty query. And there is no way back from `LOAD`, from a seed,
//! and from a connection of dblink: such a server connection stays with its client, and is closed
//! when that leaves. Connections of dblink can be asked for where the database has its functions,
//! by a question of its own: [`SessionDirt::connections_found`].
//!
//! # References
//! - <https://www.postgresql.org/docs/current/sql-discard.html>
//! - <https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS>

mod lessons;
#[cfg(test)]
mod tests;

use wire::pg::frame::TransactionStatus;
use wire::pg::sql::{PgEffects, PgSettingChange, TextAnalysis};

pub(crate) use self::lessons::LessonTable;
use self::lessons::{CheckLesson, SuspectText};
use super::probe::{ProbeFindings, ProbeQueries, ProbeTopics};

/// Shapes of texts in one transaction that a finding is put down to; those beyond are checked as
/// well, and learn nothing from it.
const LEARNERS_MAX: usize = 4;

/// Changes of settings of one transaction that are kept; beyond, the server is asked.
const CHANGES_MAX: usize = 64;

/// Settings of no module that texts mentioned, until they are asked for.
const MENTIONS_MAX: usize = 32;

/// How much is believed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum VerifyPolicy {
    /// Texts are believed: code that is not in them is taken for harmless. That a pin has ended is
    /// asked all the same.
    Never,
    /// What the text does not tell is asked: always after what may be anything, by samples after
    /// functions, procedures and triggers.
    #[default]
    Unknown,
    /// After every transaction everything is asked.
    Always,
}

/// Why a server connection stays with its client.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct PinReasons(u16);

impl PinReasons {
    /// It has temporary tables, or others of a temporary kind.
    pub(crate) const TEMP_TABLE: PinReasons = PinReasons(1);
    /// It holds advisory locks of the session.
    pub(crate) const ADVISORY_LOCK: PinReasons = PinReasons(1 << 1);
    /// It has a cursor `WITH HOLD`.
    pub(crate) const HOLD_CURSOR: PinReasons = PinReasons(1 << 2);
    /// It has a statement that SQL prepared.
    pub(crate) const SQL_PREPARE: PinReasons = PinReasons(1 << 3);
    /// It acts as somebody else.
    pub(crate) const ROLE: PinReasons = PinReasons(1 << 4);
    /// It listens.
    pub(crate) const LISTEN: PinReasons = PinReasons(1 << 5);
    /// Its search path makes tables temporary that do not say so.
    pub(crate) const SEARCH_PATH: PinReasons = PinReasons(1 << 6);
    /// It loaded a library.
    pub(crate) const LOAD: PinReasons = PinReasons(1 << 7);
    /// Its random numbers were seeded.
    pub(crate) const SEED: PinReasons = PinReasons(1 << 8);
    /// A function left something in it that lasts as long as the session.
    pub(crate) const SESSION_FUNCTION: PinReasons = PinReasons(1 << 9);

    /// Each reason with the name that operators see, and what is asked about it.
    pub(crate) const ALL: [(PinReasons, &'static str, ProbeTopics); 10] = [
        (PinReasons::TEMP_TABLE, "temp_table", ProbeTopics::TEMP),
        (PinReasons::ADVISORY_LOCK, "advisory_lock", ProbeTopics::ADVISORY),
        (PinReasons::HOLD_CURSOR, "hold_cursor", ProbeTopics::CURSORS),
        (PinReasons::SQL_PREPARE, "sql_prepare", ProbeTopics::PREPARED),
        (PinReasons::ROLE, "role", ProbeTopics::ROLE),
        (PinReasons::LISTEN, "listen", ProbeTopics::CHANNELS),
        (PinReasons::SEARCH_PATH, "search_path", ProbeTopics::NONE),
        (PinReasons::LOAD, "load", ProbeTopics::NONE),
        (PinReasons::SEED, "seed", ProbeTopics::NONE),
        (PinReasons::SESSION_FUNCTION, "session_function", ProbeTopics::NONE),
    ];

    /// Those that last as long as the server connection does.
    const FOR_EVER: PinReasons =
        PinReasons(PinReasons::LOAD.0 | PinReasons::SEED.0 | PinReasons::SESSION_FUNCTION.0);

    /// Effects of texts that make them so.
    const LASTING: [(PgEffects, PinReasons); 3] = [
        (PgEffects::LOAD, PinReasons::LOAD),
        (PgEffects::SEED, PinReasons::SEED),
        (PgEffects::LASTING, PinReasons::SESSION_FUNCTION),
    ];

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn contains(self, other: PinReasons) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names, for those who look on.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = PinReasons::ALL.into_iter();
        all.filter(move |(reason, ..)| self.contains(*reason)).map(|(_, name, _)| name)
    }

    fn set(&mut self, other: PinReasons, present: bool) {
        self.0 = if present { self.0 | other.0 } else { self.0 & !other.0 };
    }

    /// Returns what is asked to know whether they still hold.
    fn topics(self) -> ProbeTopics {
        let all = PinReasons::ALL.into_iter().filter(|(reason, ..)| self.contains(*reason));
        all.fold(ProbeTopics::NONE, |topics, (_, _, topic)| topics | topic)
    }
}

/// What becomes of a server connection at the end of a transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ReleaseVerdict {
    /// It may be given to anybody who has its settings, or gets them.
    Clean,
    /// This is to be asked first.
    Probe(ProbeQueries),
    /// It stays with its client.
    Pinned(PinReasons),
}

/// What an answer says about settings; both lists are empty when it says nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ReportedSettings {
    /// All settings of the session, in place of what was known of it; but what was known of those
    /// of no module (with a dot in the name) stays known.
    pub all: Option<Vec<(String, String)>>,
    /// Single settings that changed.
    pub changes: Vec<PgSettingChange>,
}

/// What has to happen when the client leaves, before somebody else may come. A transaction that is
/// still open was rolled back before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DepartureCleanup {
    /// Nothing.
    Nothing,
    /// `DISCARD ALL`, then [`SessionDirt::discarded`].
    Discard,
    /// Nothing helps.
    Close,
}

/// What runs in the present transaction, and ends with it in one way or the other.
#[derive(Debug, Default)]
struct TransactionEffects {
    effects: PgEffects,
    /// Settings that change if it commits.
    changes: Vec<PgSettingChange>,
    /// Questions about what `effects` alone does not say.
    questions: ProbeQueries,
    /// Something ran.
    ran: bool,
    /// A statement of it failed.
    failed: bool,
    /// It can not be told which part of it came to pass.
    unclear: bool,
    /// Code that is not in a text is to be checked.
    check: bool,
    /// Settings of no module that such code was told of.
    mentions: Vec<String>,
}

/// What is suspected of one server connection.
#[derive(Debug, Default)]
pub(crate) struct SessionDirt {
    verify: VerifyPolicy,
    pins: PinReasons,
    running: TransactionEffects,
    /// What was done and not asked about yet.
    suspicion: ProbeQueries,
    /// Settings of no module that may have been made.
    mentions: Vec<String>,
    /// Effects of the texts that were prepared by SQL: what `EXECUTE` may do.
    prepared: PgEffects,
    /// Shapes of the texts that a finding will be put down to.
    learners: [Option<u64>; LEARNERS_MAX],
    /// The lesson for these, until it is known whether they opened connections of dblink.
    lesson: Option<CheckLesson>,
    /// Settings that changed, until the caller takes them.
    changes: Vec<PgSettingChange>,
    /// What the outstanding question is about.
    asking: Option<ProbeQueries>,
    /// Settings may have been made that nobody can see.
    hidden_settings: bool,
}

impl SessionDirt {
    /// How much is believed from now on.
    pub(crate) fn set_verify(&mut self, verify: VerifyPolicy) {
        self.verify = verify;
    }

    /// Why it belongs to its client; updated by [`SessionDirt::answered`] and by the end of
    /// transactions.
    pub(crate) fn pins(&self) -> PinReasons {
        self.pins
    }

    /// A text runs. `own_search_path` says that the client chose one. A text that the caller wrote
    /// anew (`LISTEN`) is passed with the effects it has as it was sent.
    pub(crate) fn saw_text(
        &mut self,
        lessons: &mut LessonTable,
        look: &TextAnalysis,
        own_search_path: bool,
    ) {
        let mut effects = look.effects;
        if own_search_path {
            effects = effects.with_own_search_path();
        }
        if effects.intersects(PgEffects::PREPARE) {
            self.prepared |= effects.without(PgEffects::PREPARE);
        }
        if effects.intersects(PgEffects::EXECUTE) {
            // Without a text that SQL prepared it is one that the protocol did, or is none.
            effects |= match self.pins.contains(PinReasons::SQL_PREPARE)
                || self.running.effects.intersects(PgEffects::PREPARE)
            {
                true => self.prepared,
                false => PgEffects::UNPARSED,
            };
        }
        self.running.ran = true;
        self.running.effects |= effects;
        merge_names(&mut self.running.mentions, &look.mentions);
        self.settings_of(look, effects);
        self.sample(lessons, effects, look.fingerprint);
    }

    /// A function was called by the message for that: which one, only the server knows.
    pub(crate) fn saw_function_call(&mut self) {
        self.running.ran = true;
        self.running.effects |= PgEffects::FUNCTION;
        self.running.check |= self.verify != VerifyPolicy::Never;
    }

    /// What a text changes of settings.
    fn settings_of(&mut self, look: &TextAnalysis, effects: PgEffects) {
        let running = &mut self.running;
        // Part of it may be committed and part of it not: `SET a = 1; COMMIT; SELECT 1/0`.
        running.unclear |= effects.contains(PgEffects::MULTI | PgEffects::TRANSACTION);
        let full = running.changes.len() + look.changes.len() > CHANGES_MAX;
        if full {
            running.questions.topics |= ProbeTopics::SETTINGS;
        } else {
            running.changes.extend(look.changes.iter().cloned());
        }
        if effects.intersects(PgEffects::SET_CONFIG) {
            match &look.unresolved {
                Some(names) => names.iter().for_each(|name| running.questions.ask_for(name)),
                None => running.questions.topics |= ProbeTopics::SETTINGS,
            }
        }
    }

    /// Returns whether code that is not in the text is checked this time.
    fn sample(&mut self, lessons: &mut LessonTable, effects: PgEffects, fingerprint: u64) {
        if self.verify != VerifyPolicy::Unknown {
            return;
        }
        let subject = match effects {
            it if it.intersects(PgEffects::FUNCTION | PgEffects::CALL) => SuspectText::Function,
            it if it.intersects(PgEffects::HIDDEN) => SuspectText::Hidden,
            _ => return,
        };
        if !lessons.is_due(subject, fingerprint) {
            return;
        }
        self.running.check = true;
        if let Some(free) = self.learners.iter_mut().find(|it| it.is_none()) {
            *free = Some(fingerprint);
        }
    }

    /// A statement ended with this tag.
    pub(crate) fn saw_tag(&mut self, tag: &[u8]) {
        match tag {
            b"COMMIT" | b"PREPARE TRANSACTION" => self.settle(true),
            // `ROLLBACK TO` has the same tag and ends nothing.
            b"ROLLBACK" if self.running.effects.intersects(PgEffects::ROLLBACK_TO) => {
                self.running.unclear = true;
            }
            b"ROLLBACK" => self.settle(false),
            b"DISCARD ALL" => {
                self.discarded();
                self.changes.push(PgSettingChange::DefaultAll);
            }
            b"DEALLOCATE ALL" => self.prepared = PgEffects::NONE,
            _ => {}
        }
    }

    /// A statement failed.
    pub(crate) fn saw_error(&mut self) {
        self.running.failed = true;
    }

    /// The server is ready for the next one. Outside of a transaction all that ran has come to
    /// pass, or has not.
    pub(crate) fn ready(&mut self, status: TransactionStatus) {
        match status {
            TransactionStatus::Idle => self.settle(!self.running.failed),
            // The failure of a statement may be undone by `ROLLBACK TO`; the tag of the end says
            // which end it was.
            TransactionStatus::InTransaction | TransactionStatus::Failed => {
                self.running.failed = false;
            }
        }
    }

    /// A transaction ended. What it did becomes suspicion, or is gone.
    fn settle(&mut self, committed: bool) {
        let running = std::mem::take(&mut self.running);
        let effects = running.effects;
        if !running.ran {
            return;
        }
        for (effect, reason) in PinReasons::LASTING {
            if effects.intersects(effect) {
                self.pins.set(reason, true);
            }
        }
        let mut questions = running.questions;
        // A procedure and a block may commit on their own before they fail.
        let partly = running.unclear || effects.intersects(PgEffects::DO | PgEffects::CALL);
        let foreign =
            effects.intersects(FOREIGN) || questions.topics.contains(ProbeTopics::SETTINGS);
        let checks = running.check || effects.intersects(PgEffects::DO | PgEffects::UNPARSED);
        questions.topics |= told(effects) | self.ends(effects);
        if checks && self.verify != VerifyPolicy::Never {
            questions.topics |= ProbeTopics::ALL;
        }
        if running.unclear {
            for change in &running.changes {
                match change.name() {
                    Some(name) => questions.ask_for(name),
                    None => questions.topics |= ProbeTopics::SETTINGS,
                }
            }
        } else if committed {
            self.change(running.changes);
        }
        if !committed && !partly {
            self.learners = [None; LEARNERS_MAX];
            // These take no part in transactions.
            let kept = ProbeTopics::ADVISORY | ProbeTopics::PREPARED | ProbeTopics::CONNECTIONS;
            questions = ProbeQueries::about(questions.topics.and(kept));
        }
        merge_names(&mut self.mentions, &running.mentions);
        self.hidden_settings |= (committed || partly) && (foreign || running.check);
        if self.verify == VerifyPolicy::Always {
            questions.topics |= ProbeTopics::ALL;
            self.hidden_settings |= effects.intersects(PgEffects::HIDDEN);
        }
        self.suspicion.merge(&questions);
    }

    /// Settings changed for the session.
    fn change(&mut self, changes: Vec<PgSettingChange>) {
        for change in &changes {
            let all = *change == PgSettingChange::DefaultAll;
            if all || change.name() == Some("search_path") {
                // One that leads to temporary tables is never among understood changes.
                self.pins.set(PinReasons::SEARCH_PATH, false);
            }
        }
        self.changes.extend(changes);
    }

    /// Returns what else may have ended a pin.
    fn ends(&self, effects: PgEffects) -> ProbeTopics {
        let ending = [
            (PinReasons::TEMP_TABLE, PgEffects::DROP | PgEffects::DISCARD, ProbeTopics::TEMP),
            (PinReasons::LISTEN, PgEffects::UNLISTEN, ProbeTopics::CHANNELS),
        ];
        let ended = ending
            .iter()
            .filter(|(reason, by, _)| self.pins.contains(*reason) && effects.intersects(*by));
        ended.fold(ProbeTopics::NONE, |topics, (_, _, topic)| topics | *topic)
    }

    /// The changes of settings that came to pass, in order, since this was asked last.
    pub(crate) fn take_changes(&mut self) -> Vec<PgSettingChange> {
        std::mem::take(&mut self.changes)
    }

    /// Returns what becomes of the server connection now, outside of a transaction and with nothing
    /// outstanding.
    pub(crate) fn verdict(&self) -> ReleaseVerdict {
        let pinned = self.pins.topics();
        let asks = !self.suspicion.is_empty();
        let may_end = self.suspicion.topics.intersects(pinned)
            // A setting may be the search path, or has to be known by the client's next server.
            || (asks && pinned.is_empty());
        if !asks || (!self.pins.is_empty() && !may_end) {
            return match self.pins.is_empty() {
                true => ReleaseVerdict::Clean,
                false => ReleaseVerdict::Pinned(self.pins),
            };
        }
        let mut questions = self.suspicion.clone();
        questions.topics |= pinned;
        for name in &self.mentions {
            questions.ask_for_hidden(name);
        }
        ReleaseVerdict::Probe(questions)
    }

    /// The question of the verdict was sent.
    pub(crate) fn asked(&mut self, questions: ProbeQueries) {
        self.suspicion = ProbeQueries::default();
        self.mentions.clear();
        self.asking = Some(questions);
    }

    /// Returns whether the question that is under way may tell of settings that code has reset.
    pub(crate) fn asks_about_resets(&self) -> bool {
        let asks = |questions: &ProbeQueries| questions.topics.contains(ProbeTopics::SETTINGS);
        self.hidden_settings && self.asking.as_ref().is_some_and(asks)
    }

    /// No answer came, because the question was cancelled.
    pub(crate) fn unanswered(&mut self) {
        if let Some(questions) = self.asking.take() {
            merge_names(&mut self.mentions, questions.hidden());
            self.suspicion.merge(&questions);
        }
    }

    /// The answer came. `known` is the value that the caller knows the session to have been given;
    /// a setting without one is put down to the texts that ran, and so is another value of one of
    /// no module, of which the server keeps each letter. Gives what the answer says about settings;
    /// the verdict is [`SessionDirt::verdict`].
    pub(crate) fn answered(
        &mut self,
        lessons: &mut LessonTable,
        found: ProbeFindings,
        known: &dyn Fn(&str) -> Option<String>,
    ) -> ReportedSettings {
        let questions = self.asking.take().unwrap_or_default();
        let asked = questions.topics;
        let before = self.pins;
        for (reason, present) in [
            (PinReasons::TEMP_TABLE, found.temp_tables),
            (PinReasons::ADVISORY_LOCK, found.advisory_locks),
            (PinReasons::HOLD_CURSOR, found.hold_cursors),
            (PinReasons::SQL_PREPARE, found.sql_prepared),
            (PinReasons::ROLE, found.role_changed),
            (PinReasons::LISTEN, !found.channels.is_empty()),
        ] {
            if asked.intersects(reason.topics()) {
                self.pins.set(reason, present);
            }
        }
        if !self.pins.contains(PinReasons::SQL_PREPARE) && asked.contains(ProbeTopics::PREPARED) {
            self.prepared = PgEffects::NONE;
        }
        let mut surprises = !before.contains(self.pins);
        // What was there before, or may be, says nothing about the texts that ran.
        let unclear = !self.pins.is_empty();
        let mut changed = false;
        let all = asked.contains(ProbeTopics::SETTINGS).then_some(found.settings);
        if let Some(all) = &all {
            surprises |= all.iter().any(|(name, _)| known(name).is_none());
            changed |= all.iter().any(|(name, value)| known(name).as_ref() != Some(value));
            let path = all.iter().find(|(name, _)| name == "search_path");
            self.pins.set(PinReasons::SEARCH_PATH, path.is_some_and(|it| is_temporary(&it.1)));
        }
        let mut changes = Vec::with_capacity(found.named.len());
        for (name, value) in found.named {
            if name == "search_path" {
                let temporary = value.as_deref().is_some_and(is_temporary);
                self.pins.set(PinReasons::SEARCH_PATH, temporary);
            }
            if questions.is_hidden(&name) {
                let known = known(&name).unwrap_or_default();
                if value.as_ref().is_none_or(|value| *value == known) {
                    continue;
                }
                surprises = true;
            }
            // One that does not exist was never set.
            changes.extend(value.map(|value| PgSettingChange::Value { name, value }));
        }
        let lesson = if surprises {
            CheckLesson::Left
        } else if unclear {
            CheckLesson::Unclear
        } else if changed {
            CheckLesson::Changed
        } else {
            CheckLesson::Nothing
        };
        if asked.contains(ProbeTopics::ALL) {
            self.lesson = Some(lesson);
            if found.connections_function.is_none() {
                self.learn(lessons, lesson);
            }
        }
        ReportedSettings { all, changes }
    }

    /// Puts what was found down to the texts that ran.
    fn learn(&mut self, lessons: &mut LessonTable, lesson: CheckLesson) {
        self.lesson = None;
        for fingerprint in self.learners.iter_mut().filter_map(Option::take) {
            lessons.learn(fingerprint, lesson);
        }
    }

    /// Takes the answer to whether the session has connections of dblink; those without a
    /// name are in no list.
    pub(crate) fn connections_found(&mut self, lessons: &mut LessonTable, found: bool) {
        // A text may have said so as well, of one that is in no list.
        if found {
            self.pins.set(PinReasons::SESSION_FUNCTION, true);
        }
        if let Some(lesson) = self.lesson {
            self.learn(lessons, if found { CheckLesson::Left } else { lesson });
        }
    }

    /// Connections of dblink could not be asked for now.
    pub(crate) fn connections_unknown(&mut self) {
        self.suspicion.topics |= ProbeTopics::CONNECTIONS;
    }

    /// Says whether to ask for connections of dblink when the client leaves: nothing takes
    /// these away. From now on that counts as asked.
    pub(crate) fn asks_for_connections(&mut self) -> bool {
        let topics = self.suspicion.topics;
        self.suspicion.topics = topics.without(ProbeTopics::CONNECTIONS);
        topics.contains(ProbeTopics::CONNECTIONS)
            && !self.pins.contains(PinReasons::SESSION_FUNCTION)
    }

    /// Returns whether `RESET ALL` has to come before another client does, because there may be
    /// settings that nobody sees. Its own client keeps them.
    pub(crate) fn has_hidden_settings(&self) -> bool {
        self.hidden_settings
    }

    /// `RESET ALL` was sent: the settings are those that the session began with.
    pub(crate) fn settings_reset(&mut self) {
        self.hidden_settings = false;
        self.pins.set(PinReasons::SEARCH_PATH, false);
    }

    /// Returns what has to happen when the client leaves. Its transaction was ended, and
    /// [`SessionDirt::ready`] was told; what runs all the same counts as done.
    pub(crate) fn leave(&self) -> DepartureCleanup {
        let lasting = PgEffects::LOAD | PgEffects::SEED | PgEffects::LASTING;
        if self.pins.0 & PinReasons::FOR_EVER.0 != 0 || self.running.effects.intersects(lasting) {
            return DepartureCleanup::Close;
        }
        let quiet = PgEffects::HIDDEN
            | PgEffects::BUILTIN
            | PgEffects::TRANSACTION
            | PgEffects::NOTIFY
            | PgEffects::SEQUENCE_WRITE;
        let idle = self.running.effects.without(quiet).is_empty() && !self.running.check;
        let clean = self.pins.is_empty() && self.suspicion.is_empty() && self.asking.is_none();
        match idle && clean {
            true => DepartureCleanup::Nothing,
            false => DepartureCleanup::Discard,
        }
    }

    /// `DISCARD ALL` succeeded: all is as it was when the session began, but for what lasts.
    pub(crate) fn discarded(&mut self) {
        let mut pins = PinReasons(self.pins.0 & PinReasons::FOR_EVER.0);
        for (effect, reason) in PinReasons::LASTING {
            if self.running.effects.intersects(effect) {
                pins.set(reason, true);
            }
        }
        // Connections of dblink outlive it, and nobody may have asked for them yet: not while
        // another pin kept the server connection.
        let mut asked = self.suspicion.topics | self.running.questions.topics;
        if self.running.check && self.verify != VerifyPolicy::Never {
            asked |= ProbeTopics::ALL;
        }
        let suspicion = ProbeQueries::about(asked.and(ProbeTopics::CONNECTIONS));
        *self = SessionDirt { verify: self.verify, pins, suspicion, ..SessionDirt::default() };
    }
}

/// Code that is not in the text. What `EXECUTE` does is known from what was prepared.
const FOREIGN: PgEffects =
    PgEffects::DO.with(PgEffects::CALL).with(PgEffects::FUNCTION).with(PgEffects::UNPARSED);

/// Returns what the words of a text themselves ask about.
fn told(effects: PgEffects) -> ProbeTopics {
    let told = [
        (PgEffects::ROLE, ProbeTopics::ROLE),
        (PgEffects::LISTEN, ProbeTopics::CHANNELS),
        (PgEffects::TEMP, ProbeTopics::TEMP),
        (PgEffects::ADVISORY, ProbeTopics::ADVISORY),
        (PgEffects::HOLD, ProbeTopics::CURSORS),
        (PgEffects::PREPARE, ProbeTopics::PREPARED),
        (PgEffects::DEALLOCATE, ProbeTopics::PREPARED),
    ];
    let told = told.iter().filter(|(effect, _)| effects.intersects(*effect));
    told.fold(ProbeTopics::NONE, |topics, (_, topic)| topics | *topic)
}

/// Adds names that are not there, while there is room.
fn merge_names(names: &mut Vec<String>, others: &[String]) {
    for other in others {
        if names.len() < MENTIONS_MAX && !names.contains(other) {
            names.push(other.clone());
        }
    }
}

/// Returns whether tables are temporary on this search path though they do not say so.
fn is_temporary(path: &str) -> bool {
    path.to_ascii_lowercase().contains("pg_temp")
}
