//! Session state that a server connection may have kept from the texts that ran on it: whether the
//! connection may serve another client, must be probed first, or is pinned to its client.
//!
//! Pure; the caller provides all events. Their order matters: [`SessionDirt::saw_text`] for a text
//! when its first reply arrives (not when it is sent: a reply before that is another text's), then
//! its tags and errors, then [`SessionDirt::ready`]. Outside of a transaction
//! [`SessionDirt::verdict`] returns the next step; after [`ReleaseVerdict::Probe`] the caller calls
//! [`SessionDirt::asked`] and, with the answer, [`SessionDirt::answered`].
//!
//! State that neither SQL can undo nor the text reveals is found by sampling: [`LessonTable`].
//!
//! Two kinds of state cannot be found by probes, which leads to two rules. The server shows custom
//! settings (`app.user`) only by name: after code that is not in the text,
//! [`SessionDirt::has_hidden_settings`] requests a `RESET ALL` before *another* client uses the
//! connection. It costs the server as much as an empty query. And `LOAD`, a seed, and a connection
//! of dblink cannot be undone: such a server connection stays with its client, and is closed when
//! the client leaves. Connections of dblink can be queried where the database has its functions, by
//! a separate query: [`SessionDirt::connections_found`].
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

/// Maximum shapes of texts in one transaction to which a finding is attributed; further ones are
/// checked as well, without a lesson.
const LEARNERS_MAX: usize = 4;

/// Maximum changes of settings in one transaction that are kept; beyond it the server is queried.
const CHANGES_MAX: usize = 64;

/// Maximum custom settings that texts mentioned and that were not queried yet.
const MENTIONS_MAX: usize = 32;

/// Trust in texts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum VerifyPolicy {
    /// Texts are trusted: code that is not in them counts as harmless. The end of a pin is verified
    /// all the same.
    Never,
    /// State that the text does not reveal is probed: always after texts with arbitrary effects, by
    /// samples after functions, procedures and triggers.
    #[default]
    Unknown,
    /// Everything is probed after every transaction.
    Always,
}

/// Reasons why a server connection stays with its client.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct PinReasons(u16);

impl PinReasons {
    /// It has temporary tables, or other temporary objects.
    pub(crate) const TEMP_TABLE: PinReasons = PinReasons(1);
    /// It holds advisory locks of the session.
    pub(crate) const ADVISORY_LOCK: PinReasons = PinReasons(1 << 1);
    /// It has a cursor `WITH HOLD`.
    pub(crate) const HOLD_CURSOR: PinReasons = PinReasons(1 << 2);
    /// It has a statement that was prepared by SQL.
    pub(crate) const SQL_PREPARE: PinReasons = PinReasons(1 << 3);
    /// It has another role.
    pub(crate) const ROLE: PinReasons = PinReasons(1 << 4);
    /// It listens to channels.
    pub(crate) const LISTEN: PinReasons = PinReasons(1 << 5);
    /// Its search path makes tables temporary that are not declared so.
    pub(crate) const SEARCH_PATH: PinReasons = PinReasons(1 << 6);
    /// It loaded a library.
    pub(crate) const LOAD: PinReasons = PinReasons(1 << 7);
    /// Its random numbers were seeded.
    pub(crate) const SEED: PinReasons = PinReasons(1 << 8);
    /// A function left state in it that lasts as long as the session.
    pub(crate) const SESSION_FUNCTION: PinReasons = PinReasons(1 << 9);

    /// Each reason with the name that operators see, and the topic of its probe.
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

    /// Reasons that last as long as the server connection.
    const FOR_EVER: PinReasons =
        PinReasons(PinReasons::LOAD.0 | PinReasons::SEED.0 | PinReasons::SESSION_FUNCTION.0);

    /// Effects of texts that set them.
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

    /// Returns the names, for views.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = PinReasons::ALL.into_iter();
        all.filter(move |(reason, ..)| self.contains(*reason)).map(|(_, name, _)| name)
    }

    fn set(&mut self, other: PinReasons, present: bool) {
        self.0 = if present { self.0 | other.0 } else { self.0 & !other.0 };
    }

    /// Returns the topics of a probe that verifies them.
    fn topics(self) -> ProbeTopics {
        let all = PinReasons::ALL.into_iter().filter(|(reason, ..)| self.contains(*reason));
        all.fold(ProbeTopics::NONE, |topics, (_, _, topic)| topics | topic)
    }
}

/// Use of a server connection at the end of a transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ReleaseVerdict {
    /// It may serve any client; settings are changed as needed.
    Clean,
    /// It must be probed first.
    Probe(ProbeQueries),
    /// It is pinned to its client.
    Pinned(PinReasons),
}

/// Settings that an answer reports; both lists are empty if it reports none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ReportedSettings {
    /// All settings of the session, which replace the known ones; but known custom settings (with a
    /// dot in the name) stay known.
    pub all: Option<Vec<(String, String)>>,
    /// Single settings that changed.
    pub changes: Vec<PgSettingChange>,
}

/// Cleanup that is required when the client leaves, before another client uses the connection. An
/// open transaction was rolled back before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DepartureCleanup {
    /// Nothing.
    Nothing,
    /// `DISCARD ALL`, then [`SessionDirt::discarded`].
    Discard,
    /// No cleanup is possible.
    Close,
}

/// Effects of the current transaction, which take effect or are undone at its end.
#[derive(Debug, Default)]
struct TransactionEffects {
    effects: PgEffects,
    /// Settings that change if it commits.
    changes: Vec<PgSettingChange>,
    /// Queries about effects that `effects` alone does not show.
    questions: ProbeQueries,
    /// True if anything ran.
    ran: bool,
    /// True if a statement failed.
    failed: bool,
    /// True if it is unknown which part of it took effect.
    unclear: bool,
    /// True if code that is not in a text must be checked.
    check: bool,
    /// Custom settings whose names were passed to such code.
    mentions: Vec<String>,
}

/// Suspected state of one server connection.
#[derive(Debug, Default)]
pub(crate) struct SessionDirt {
    verify: VerifyPolicy,
    pins: PinReasons,
    running: TransactionEffects,
    /// State that was possibly left and not probed yet.
    suspicion: ProbeQueries,
    /// Custom settings that may have been set.
    mentions: Vec<String>,
    /// Effects of the texts that were prepared by SQL: possible effects of `EXECUTE`.
    prepared: PgEffects,
    /// Shapes of the texts to which a finding will be attributed.
    learners: [Option<u64>; LEARNERS_MAX],
    /// The lesson for these, until it is known whether they opened connections of dblink.
    lesson: Option<CheckLesson>,
    /// Settings that changed, until the caller takes them.
    changes: Vec<PgSettingChange>,
    /// Topics of the outstanding query.
    asking: Option<ProbeQueries>,
    /// True if settings may have been set that cannot be queried.
    hidden_settings: bool,
}

impl SessionDirt {
    /// Sets the trust in texts.
    pub(crate) fn set_verify(&mut self, verify: VerifyPolicy) {
        self.verify = verify;
    }

    /// Returns the pins; updated by [`SessionDirt::answered`] and at the end of transactions.
    pub(crate) fn pins(&self) -> PinReasons {
        self.pins
    }

    /// Records a running text. `own_search_path` is true if the client chose a search path. A text
    /// that the caller rewrote (`LISTEN`) is passed with the effects of the original.
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
            // Without a statement that SQL prepared, it executes one of the protocol, or none.
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

    /// Records a function call by the protocol's message; only the server knows which function it
    /// is.
    pub(crate) fn saw_function_call(&mut self) {
        self.running.ran = true;
        self.running.effects |= PgEffects::FUNCTION;
        self.running.check |= self.verify != VerifyPolicy::Never;
    }

    /// Records a text's changes of settings.
    fn settings_of(&mut self, look: &TextAnalysis, effects: PgEffects) {
        let running = &mut self.running;
        // A part of it may be committed and another one not: `SET a = 1; COMMIT; SELECT 1/0`.
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

    /// Decides whether code that is not in the text is checked this time.
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

    /// Records the command tag of a statement.
    pub(crate) fn saw_tag(&mut self, tag: &[u8]) {
        match tag {
            b"COMMIT" | b"PREPARE TRANSACTION" => self.settle(true),
            // `ROLLBACK TO` has the same tag and does not end the transaction.
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

    /// Records a failed statement.
    pub(crate) fn saw_error(&mut self) {
        self.running.failed = true;
    }

    /// Records that the server is ready. Outside of a transaction the effects of all that ran are
    /// settled.
    pub(crate) fn ready(&mut self, status: TransactionStatus) {
        match status {
            TransactionStatus::Idle => self.settle(!self.running.failed),
            // `ROLLBACK TO` may undo the failure of a statement; the final command tag shows how
            // the transaction ended.
            TransactionStatus::InTransaction | TransactionStatus::Failed => {
                self.running.failed = false;
            }
        }
    }

    /// Handles the end of a transaction. Its effects become suspected state, or are dropped.
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
        // A procedure or block may commit by itself before it fails.
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
            // These are not transactional.
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

    /// Records changed settings of the session.
    fn change(&mut self, changes: Vec<PgSettingChange>) {
        for change in &changes {
            let all = *change == PgSettingChange::DefaultAll;
            if all || change.name() == Some("search_path") {
                // A path that leads to temporary tables is never among known changes.
                self.pins.set(PinReasons::SEARCH_PATH, false);
            }
        }
        self.changes.extend(changes);
    }

    /// Returns the topics of pins that the text may have ended besides.
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

    /// Returns the settled changes of settings, in order, since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<PgSettingChange> {
        std::mem::take(&mut self.changes)
    }

    /// Returns the use of the server connection, outside of a transaction and with nothing
    /// outstanding.
    pub(crate) fn verdict(&self) -> ReleaseVerdict {
        let pinned = self.pins.topics();
        let asks = !self.suspicion.is_empty();
        let may_end = self.suspicion.topics.intersects(pinned)
            // A setting may be the search path, or must be known for the client's next server.
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

    /// Records that the query of the verdict was sent.
    pub(crate) fn asked(&mut self, questions: ProbeQueries) {
        self.suspicion = ProbeQueries::default();
        self.mentions.clear();
        self.asking = Some(questions);
    }

    /// Returns whether the outstanding query may reveal settings that code has reset.
    pub(crate) fn asks_about_resets(&self) -> bool {
        let asks = |questions: &ProbeQueries| questions.topics.contains(ProbeTopics::SETTINGS);
        self.hidden_settings && self.asking.as_ref().is_some_and(asks)
    }

    /// Records that the query was cancelled and not answered.
    pub(crate) fn unanswered(&mut self) {
        if let Some(questions) = self.asking.take() {
            merge_names(&mut self.mentions, questions.hidden());
            self.suspicion.merge(&questions);
        }
    }

    /// Handles the answer. `known` returns the value that the session was given, as far as the
    /// caller knows; a setting without one is attributed to the texts that ran, and so is a custom
    /// setting with another value, because the server keeps those letter by letter. Returns the
    /// settings that the answer reports; [`SessionDirt::verdict`] returns the next step.
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
        // Earlier or possible earlier state does not show what the texts left that ran.
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
            // A setting that does not exist was never set.
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

    /// Attributes the findings to the texts that ran.
    fn learn(&mut self, lessons: &mut LessonTable, lesson: CheckLesson) {
        self.lesson = None;
        for fingerprint in self.learners.iter_mut().filter_map(Option::take) {
            lessons.learn(fingerprint, lesson);
        }
    }

    /// Handles the answer whether the session has connections of dblink; unnamed ones are in no
    /// list.
    pub(crate) fn connections_found(&mut self, lessons: &mut LessonTable, found: bool) {
        // A text may also have shown an unnamed one, which is in no list.
        if found {
            self.pins.set(PinReasons::SESSION_FUNCTION, true);
        }
        if let Some(lesson) = self.lesson {
            self.learn(lessons, if found { CheckLesson::Left } else { lesson });
        }
    }

    /// Records that connections of dblink could not be queried.
    pub(crate) fn connections_unknown(&mut self) {
        self.suspicion.topics |= ProbeTopics::CONNECTIONS;
    }

    /// Returns whether to query connections of dblink when the client leaves: nothing closes these.
    /// From then on the query counts as sent.
    pub(crate) fn asks_for_connections(&mut self) -> bool {
        let topics = self.suspicion.topics;
        self.suspicion.topics = topics.without(ProbeTopics::CONNECTIONS);
        topics.contains(ProbeTopics::CONNECTIONS)
            && !self.pins.contains(PinReasons::SESSION_FUNCTION)
    }

    /// Returns whether `RESET ALL` must run before another client uses the connection, because
    /// there may be settings that cannot be queried. Its own client keeps them.
    pub(crate) fn has_hidden_settings(&self) -> bool {
        self.hidden_settings
    }

    /// Records that `RESET ALL` was sent: the settings are the initial ones of the session.
    pub(crate) fn settings_reset(&mut self) {
        self.hidden_settings = false;
        self.pins.set(PinReasons::SEARCH_PATH, false);
    }

    /// Returns the required cleanup when the client leaves. Its transaction must have been ended
    /// and [`SessionDirt::ready`] called; texts that still run count as done.
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

    /// Records a successful `DISCARD ALL`: the state is the initial one, except for state that
    /// lasts.
    pub(crate) fn discarded(&mut self) {
        let mut pins = PinReasons(self.pins.0 & PinReasons::FOR_EVER.0);
        for (effect, reason) in PinReasons::LASTING {
            if self.running.effects.intersects(effect) {
                pins.set(reason, true);
            }
        }
        // Connections of dblink outlast it, and may not have been queried yet, while another pin
        // kept the server connection.
        let mut asked = self.suspicion.topics | self.running.questions.topics;
        if self.running.check && self.verify != VerifyPolicy::Never {
            asked |= ProbeTopics::ALL;
        }
        let suspicion = ProbeQueries::about(asked.and(ProbeTopics::CONNECTIONS));
        *self = SessionDirt { verify: self.verify, pins, suspicion, ..SessionDirt::default() };
    }
}

/// Effects of code that is not in the text. Those of `EXECUTE` are known from what was prepared.
const FOREIGN: PgEffects =
    PgEffects::DO.with(PgEffects::CALL).with(PgEffects::FUNCTION).with(PgEffects::UNPARSED);

/// Returns the topics that the text itself shows.
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

/// Adds names that are missing, while there is room.
fn merge_names(names: &mut Vec<String>, others: &[String]) {
    for other in others {
        if names.len() < MENTIONS_MAX && !names.contains(other) {
            names.push(other.clone());
        }
    }
}

/// Returns whether undeclared tables are temporary on this search path.
fn is_temporary(path: &str) -> bool {
    path.to_ascii_lowercase().contains("pg_temp")
}
