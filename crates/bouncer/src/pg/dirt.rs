//! What a server connection is suspected to have kept, from the texts that ran on it: whether it
//! may be given to somebody else, has to be asked first, or belongs to its client for now.
//!
//! Pure, and told everything by its caller. The order matters: [`Dirt::saw_text`] for a text when
//! its first reply comes (not when it is sent: a reply before that is another text's), then its
//! tags and errors, then [`Dirt::ready`]. Outside of a transaction [`Dirt::verdict`] says what is
//! next; after [`Verdict::Probe`] the caller calls [`Dirt::asked`] and, with the answer,
//! [`Dirt::answered`].
//!
//! What SQL cannot undo by itself and no words tell is found by sampling: [`Lessons`].
//!
//! Two things no question finds, and they are the reason for two rules. The server shows settings
//! of no module (`app.user`) to nobody who does not name them: after code that is not in the text,
//! [`Dirt::has_hidden_settings`] asks for a `RESET ALL` before *another* client comes. It costs the
//! server as much as an empty query. And there is no way back from `LOAD`, from a seed, and from a
//! connection of dblink: such a server connection stays with its client, and is closed when that
//! leaves. Connections of dblink can be asked for where the database has its functions, by a
//! question of its own: [`Dirt::connections_found`].

mod lessons;
#[cfg(test)]
mod tests;

use wire::pg::frame::TransactionStatus;
use wire::pg::sql::{Change, Effects, Look};

pub(crate) use self::lessons::Lessons;
use self::lessons::{Lesson, Subject};
use super::probe::{Found, Questions, Topics};

/// Shapes of texts in one transaction that a finding is put down to; those beyond are checked as
/// well, and learn nothing from it.
const LEARNERS_MAX: usize = 4;

/// Changes of settings of one transaction that are kept; beyond, the server is asked.
const CHANGES_MAX: usize = 64;

/// Settings of no module that texts mentioned, until they are asked for.
const MENTIONS_MAX: usize = 32;

/// How much is believed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Verify {
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
pub(crate) struct Reasons(u16);

impl Reasons {
    /// It has temporary tables, or others of a temporary kind.
    pub(crate) const TEMP_TABLE: Reasons = Reasons(1);
    /// It holds advisory locks of the session.
    pub(crate) const ADVISORY_LOCK: Reasons = Reasons(1 << 1);
    /// It has a cursor `WITH HOLD`.
    pub(crate) const HOLD_CURSOR: Reasons = Reasons(1 << 2);
    /// It has a statement that SQL prepared.
    pub(crate) const SQL_PREPARE: Reasons = Reasons(1 << 3);
    /// It acts as somebody else.
    pub(crate) const ROLE: Reasons = Reasons(1 << 4);
    /// It listens.
    pub(crate) const LISTEN: Reasons = Reasons(1 << 5);
    /// Its search path makes tables temporary that do not say so.
    pub(crate) const SEARCH_PATH: Reasons = Reasons(1 << 6);
    /// It loaded a library.
    pub(crate) const LOAD: Reasons = Reasons(1 << 7);
    /// Its random numbers were seeded.
    pub(crate) const SEED: Reasons = Reasons(1 << 8);
    /// A function left something in it that lasts as long as the session.
    pub(crate) const SESSION_FUNCTION: Reasons = Reasons(1 << 9);

    /// Each reason with the name that operators see, and what is asked about it.
    pub(crate) const ALL: [(Reasons, &'static str, Topics); 10] = [
        (Reasons::TEMP_TABLE, "temp_table", Topics::TEMP),
        (Reasons::ADVISORY_LOCK, "advisory_lock", Topics::ADVISORY),
        (Reasons::HOLD_CURSOR, "hold_cursor", Topics::CURSORS),
        (Reasons::SQL_PREPARE, "sql_prepare", Topics::PREPARED),
        (Reasons::ROLE, "role", Topics::ROLE),
        (Reasons::LISTEN, "listen", Topics::CHANNELS),
        (Reasons::SEARCH_PATH, "search_path", Topics::NONE),
        (Reasons::LOAD, "load", Topics::NONE),
        (Reasons::SEED, "seed", Topics::NONE),
        (Reasons::SESSION_FUNCTION, "session_function", Topics::NONE),
    ];

    /// Those that last as long as the server connection does.
    const FOR_EVER: Reasons =
        Reasons(Reasons::LOAD.0 | Reasons::SEED.0 | Reasons::SESSION_FUNCTION.0);

    /// Effects of texts that make them so.
    const LASTING: [(Effects, Reasons); 3] = [
        (Effects::LOAD, Reasons::LOAD),
        (Effects::SEED, Reasons::SEED),
        (Effects::LASTING, Reasons::SESSION_FUNCTION),
    ];

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn contains(self, other: Reasons) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names, for those who look on.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = Reasons::ALL.into_iter();
        all.filter(move |(reason, ..)| self.contains(*reason)).map(|(_, name, _)| name)
    }

    fn set(&mut self, other: Reasons, present: bool) {
        self.0 = if present { self.0 | other.0 } else { self.0 & !other.0 };
    }

    /// What is asked to know whether they still hold.
    fn topics(self) -> Topics {
        let all = Reasons::ALL.into_iter().filter(|(reason, ..)| self.contains(*reason));
        all.fold(Topics::NONE, |topics, (_, _, topic)| topics | topic)
    }
}

/// What becomes of a server connection at the end of a transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// It may be given to anybody who has its settings, or gets them.
    Clean,
    /// This is to be asked first.
    Probe(Questions),
    /// It stays with its client.
    Pinned(Reasons),
}

/// What an answer says about settings; both lists are empty when it says nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Settings {
    /// All settings of the session, in place of what was known of it; but what was known of those
    /// of no module (with a dot in the name) stays known.
    pub all: Option<Vec<(String, String)>>,
    /// Single settings that changed.
    pub changes: Vec<Change>,
}

/// What has to happen when the client leaves, before somebody else may come. A transaction that is
/// still open was rolled back before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Leave {
    /// Nothing.
    Nothing,
    /// `DISCARD ALL`, then [`Dirt::discarded`].
    Discard,
    /// Nothing helps.
    Close,
}

/// What runs in the present transaction, and ends with it in one way or the other.
#[derive(Debug, Default)]
struct Running {
    effects: Effects,
    /// Settings that change if it commits.
    changes: Vec<Change>,
    /// Questions about what `effects` alone does not say.
    questions: Questions,
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
pub(crate) struct Dirt {
    verify: Verify,
    pins: Reasons,
    running: Running,
    /// What was done and not asked about yet.
    suspicion: Questions,
    /// Settings of no module that may have been made.
    mentions: Vec<String>,
    /// Effects of the texts that were prepared by SQL: what `EXECUTE` may do.
    prepared: Effects,
    /// Shapes of the texts that a finding will be put down to.
    learners: [Option<u64>; LEARNERS_MAX],
    /// The lesson for these, until it is known whether they opened connections of dblink.
    lesson: Option<Lesson>,
    /// Settings that changed, until the caller takes them.
    changes: Vec<Change>,
    /// What the outstanding question is about.
    asking: Option<Questions>,
    /// Settings may have been made that nobody can see.
    hidden_settings: bool,
}

impl Dirt {
    /// How much is believed from now on.
    pub(crate) fn set_verify(&mut self, verify: Verify) {
        self.verify = verify;
    }

    /// Why it belongs to its client; updated by [`Dirt::answered`] and by the end of transactions.
    pub(crate) fn pins(&self) -> Reasons {
        self.pins
    }

    /// A text runs. `own_search_path` says that the client chose one. A text that the caller wrote
    /// anew (`LISTEN`) is passed with the effects it has as it was sent.
    pub(crate) fn saw_text(&mut self, lessons: &mut Lessons, look: &Look, own_search_path: bool) {
        let mut effects = look.effects;
        if own_search_path {
            effects = effects.with_own_search_path();
        }
        if effects.intersects(Effects::PREPARE) {
            self.prepared |= effects.without(Effects::PREPARE);
        }
        if effects.intersects(Effects::EXECUTE) {
            // Without a text that SQL prepared it is one that the protocol did, or is none.
            effects |= match self.pins.contains(Reasons::SQL_PREPARE)
                || self.running.effects.intersects(Effects::PREPARE)
            {
                true => self.prepared,
                false => Effects::UNPARSED,
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
        self.running.effects |= Effects::FUNCTION;
        self.running.check |= self.verify != Verify::Never;
    }

    /// What a text changes of settings.
    fn settings_of(&mut self, look: &Look, effects: Effects) {
        let running = &mut self.running;
        // Part of it may be committed and part of it not: `SET a = 1; COMMIT; SELECT 1/0`.
        running.unclear |= effects.contains(Effects::MULTI | Effects::TRANSACTION);
        let full = running.changes.len() + look.changes.len() > CHANGES_MAX;
        if full {
            running.questions.topics |= Topics::SETTINGS;
        } else {
            running.changes.extend(look.changes.iter().cloned());
        }
        if effects.intersects(Effects::SET_CONFIG) {
            match &look.asked {
                Some(names) => names.iter().for_each(|name| running.questions.ask_for(name)),
                None => running.questions.topics |= Topics::SETTINGS,
            }
        }
    }

    /// Whether code that is not in the text is checked this time.
    fn sample(&mut self, lessons: &mut Lessons, effects: Effects, fingerprint: u64) {
        if self.verify != Verify::Unknown {
            return;
        }
        let subject = match effects {
            it if it.intersects(Effects::FUNCTION | Effects::CALL) => Subject::Function,
            it if it.intersects(Effects::HIDDEN) => Subject::Hidden,
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
            b"ROLLBACK" if self.running.effects.intersects(Effects::ROLLBACK_TO) => {
                self.running.unclear = true;
            }
            b"ROLLBACK" => self.settle(false),
            b"DISCARD ALL" => {
                self.discarded();
                self.changes.push(Change::DefaultAll);
            }
            b"DEALLOCATE ALL" => self.prepared = Effects::NONE,
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
        for (effect, reason) in Reasons::LASTING {
            if effects.intersects(effect) {
                self.pins.set(reason, true);
            }
        }
        let mut questions = running.questions;
        // A procedure and a block may commit on their own before they fail.
        let partly = running.unclear || effects.intersects(Effects::DO | Effects::CALL);
        let foreign = effects.intersects(FOREIGN) || questions.topics.contains(Topics::SETTINGS);
        let checks = running.check || effects.intersects(Effects::DO | Effects::UNPARSED);
        questions.topics |= told(effects) | self.ends(effects);
        if checks && self.verify != Verify::Never {
            questions.topics |= Topics::ALL;
        }
        if running.unclear {
            for change in &running.changes {
                match change.name() {
                    Some(name) => questions.ask_for(name),
                    None => questions.topics |= Topics::SETTINGS,
                }
            }
        } else if committed {
            self.change(running.changes);
        }
        if !committed && !partly {
            self.learners = [None; LEARNERS_MAX];
            // These take no part in transactions.
            let kept = Topics::ADVISORY | Topics::PREPARED | Topics::CONNECTIONS;
            questions = Questions::about(questions.topics.and(kept));
        }
        merge_names(&mut self.mentions, &running.mentions);
        self.hidden_settings |= (committed || partly) && (foreign || running.check);
        if self.verify == Verify::Always {
            questions.topics |= Topics::ALL;
            self.hidden_settings |= effects.intersects(Effects::HIDDEN);
        }
        self.suspicion.merge(&questions);
    }

    /// Settings changed for the session.
    fn change(&mut self, changes: Vec<Change>) {
        for change in &changes {
            let all = *change == Change::DefaultAll;
            if all || change.name() == Some("search_path") {
                // One that leads to temporary tables is never among understood changes.
                self.pins.set(Reasons::SEARCH_PATH, false);
            }
        }
        self.changes.extend(changes);
    }

    /// What else may have ended a pin.
    fn ends(&self, effects: Effects) -> Topics {
        let ending = [
            (Reasons::TEMP_TABLE, Effects::DROP | Effects::DISCARD, Topics::TEMP),
            (Reasons::LISTEN, Effects::UNLISTEN, Topics::CHANNELS),
        ];
        let ended = ending
            .iter()
            .filter(|(reason, by, _)| self.pins.contains(*reason) && effects.intersects(*by));
        ended.fold(Topics::NONE, |topics, (_, _, topic)| topics | *topic)
    }

    /// The changes of settings that came to pass, in order, since this was asked last.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// What becomes of the server connection now, outside of a transaction and with nothing
    /// outstanding.
    pub(crate) fn verdict(&self) -> Verdict {
        let pinned = self.pins.topics();
        let asks = !self.suspicion.is_empty();
        let may_end = self.suspicion.topics.intersects(pinned)
            // A setting may be the search path, or has to be known by the client's next server.
            || (asks && pinned.is_empty());
        if !asks || (!self.pins.is_empty() && !may_end) {
            return match self.pins.is_empty() {
                true => Verdict::Clean,
                false => Verdict::Pinned(self.pins),
            };
        }
        let mut questions = self.suspicion.clone();
        questions.topics |= pinned;
        for name in &self.mentions {
            questions.ask_for_hidden(name);
        }
        Verdict::Probe(questions)
    }

    /// The question of the verdict was sent.
    pub(crate) fn asked(&mut self, questions: Questions) {
        self.suspicion = Questions::default();
        self.mentions.clear();
        self.asking = Some(questions);
    }

    /// Whether the question that is under way may tell of settings that code has reset.
    pub(crate) fn asks_about_resets(&self) -> bool {
        let asks = |questions: &Questions| questions.topics.contains(Topics::SETTINGS);
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
    /// the verdict is [`Dirt::verdict`].
    pub(crate) fn answered(
        &mut self,
        lessons: &mut Lessons,
        found: Found,
        known: &dyn Fn(&str) -> Option<String>,
    ) -> Settings {
        let questions = self.asking.take().unwrap_or_default();
        let asked = questions.topics;
        let before = self.pins;
        for (reason, present) in [
            (Reasons::TEMP_TABLE, found.temp_tables),
            (Reasons::ADVISORY_LOCK, found.advisory_locks),
            (Reasons::HOLD_CURSOR, found.hold_cursors),
            (Reasons::SQL_PREPARE, found.sql_prepared),
            (Reasons::ROLE, found.role_changed),
            (Reasons::LISTEN, !found.channels.is_empty()),
        ] {
            if asked.intersects(reason.topics()) {
                self.pins.set(reason, present);
            }
        }
        if !self.pins.contains(Reasons::SQL_PREPARE) && asked.contains(Topics::PREPARED) {
            self.prepared = Effects::NONE;
        }
        let mut surprises = !before.contains(self.pins);
        // What was there before, or may be, says nothing about the texts that ran.
        let unclear = !self.pins.is_empty();
        let mut changed = false;
        let all = asked.contains(Topics::SETTINGS).then_some(found.settings);
        if let Some(all) = &all {
            surprises |= all.iter().any(|(name, _)| known(name).is_none());
            changed |= all.iter().any(|(name, value)| known(name).as_ref() != Some(value));
            let path = all.iter().find(|(name, _)| name == "search_path");
            self.pins.set(Reasons::SEARCH_PATH, path.is_some_and(|it| is_temporary(&it.1)));
        }
        let mut changes = Vec::with_capacity(found.named.len());
        for (name, value) in found.named {
            if name == "search_path" {
                let temporary = value.as_deref().is_some_and(is_temporary);
                self.pins.set(Reasons::SEARCH_PATH, temporary);
            }
            if questions.is_hidden(&name) {
                let known = known(&name).unwrap_or_default();
                if value.as_ref().is_none_or(|value| *value == known) {
                    continue;
                }
                surprises = true;
            }
            // One that does not exist was never set.
            changes.extend(value.map(|value| Change::Value { name, value }));
        }
        let lesson = if surprises {
            Lesson::Left
        } else if unclear {
            Lesson::Unclear
        } else if changed {
            Lesson::Changed
        } else {
            Lesson::Nothing
        };
        if asked.contains(Topics::ALL) {
            self.lesson = Some(lesson);
            if found.connections_function.is_none() {
                self.learn(lessons, lesson);
            }
        }
        Settings { all, changes }
    }

    /// Puts what was found down to the texts that ran.
    fn learn(&mut self, lessons: &mut Lessons, lesson: Lesson) {
        self.lesson = None;
        for fingerprint in self.learners.iter_mut().filter_map(Option::take) {
            lessons.learn(fingerprint, lesson);
        }
    }

    /// Takes the answer to whether the session has connections of dblink; those without a
    /// name are in no list.
    pub(crate) fn connections_found(&mut self, lessons: &mut Lessons, found: bool) {
        // A text may have said so as well, of one that is in no list.
        if found {
            self.pins.set(Reasons::SESSION_FUNCTION, true);
        }
        if let Some(lesson) = self.lesson {
            self.learn(lessons, if found { Lesson::Left } else { lesson });
        }
    }

    /// Connections of dblink could not be asked for now.
    pub(crate) fn connections_unknown(&mut self) {
        self.suspicion.topics |= Topics::CONNECTIONS;
    }

    /// Says whether to ask for connections of dblink when the client leaves: nothing takes
    /// these away. From now on that counts as asked.
    pub(crate) fn asks_for_connections(&mut self) -> bool {
        let topics = self.suspicion.topics;
        self.suspicion.topics = topics.without(Topics::CONNECTIONS);
        topics.contains(Topics::CONNECTIONS) && !self.pins.contains(Reasons::SESSION_FUNCTION)
    }

    /// Whether `RESET ALL` has to come before another client does, because there may be settings
    /// that nobody sees. Its own client keeps them.
    pub(crate) fn has_hidden_settings(&self) -> bool {
        self.hidden_settings
    }

    /// `RESET ALL` was sent: the settings are those that the session began with.
    pub(crate) fn settings_reset(&mut self) {
        self.hidden_settings = false;
        self.pins.set(Reasons::SEARCH_PATH, false);
    }

    /// What has to happen when the client leaves. Its transaction was ended, and [`Dirt::ready`]
    /// was told; what runs all the same counts as done.
    pub(crate) fn leave(&self) -> Leave {
        let lasting = Effects::LOAD | Effects::SEED | Effects::LASTING;
        if self.pins.0 & Reasons::FOR_EVER.0 != 0 || self.running.effects.intersects(lasting) {
            return Leave::Close;
        }
        let quiet = Effects::HIDDEN
            | Effects::BUILTIN
            | Effects::TRANSACTION
            | Effects::NOTIFY
            | Effects::SEQUENCE_WRITE;
        let idle = self.running.effects.without(quiet).is_empty() && !self.running.check;
        let clean = self.pins.is_empty() && self.suspicion.is_empty() && self.asking.is_none();
        match idle && clean {
            true => Leave::Nothing,
            false => Leave::Discard,
        }
    }

    /// `DISCARD ALL` succeeded: all is as it was when the session began, but for what lasts.
    pub(crate) fn discarded(&mut self) {
        let mut pins = Reasons(self.pins.0 & Reasons::FOR_EVER.0);
        for (effect, reason) in Reasons::LASTING {
            if self.running.effects.intersects(effect) {
                pins.set(reason, true);
            }
        }
        // Connections of dblink outlive it, and nobody may have asked for them yet: not while
        // another pin kept the server connection.
        let mut asked = self.suspicion.topics | self.running.questions.topics;
        if self.running.check && self.verify != Verify::Never {
            asked |= Topics::ALL;
        }
        let suspicion = Questions::about(asked.and(Topics::CONNECTIONS));
        *self = Dirt { verify: self.verify, pins, suspicion, ..Dirt::default() };
    }
}

/// Code that is not in the text. What `EXECUTE` does is known from what was prepared.
const FOREIGN: Effects =
    Effects::DO.with(Effects::CALL).with(Effects::FUNCTION).with(Effects::UNPARSED);

/// What the words of a text themselves ask about.
fn told(effects: Effects) -> Topics {
    let told = [
        (Effects::ROLE, Topics::ROLE),
        (Effects::LISTEN, Topics::CHANNELS),
        (Effects::TEMP, Topics::TEMP),
        (Effects::ADVISORY, Topics::ADVISORY),
        (Effects::HOLD, Topics::CURSORS),
        (Effects::PREPARE, Topics::PREPARED),
        (Effects::DEALLOCATE, Topics::PREPARED),
    ];
    let told = told.iter().filter(|(effect, _)| effects.intersects(*effect));
    told.fold(Topics::NONE, |topics, (_, topic)| topics | *topic)
}

/// Adds names that are not there, while there is room.
fn merge_names(names: &mut Vec<String>, others: &[String]) {
    for other in others {
        if names.len() < MENTIONS_MAX && !names.contains(other) {
            names.push(other.clone());
        }
    }
}

/// Whether tables are temporary on this search path though they do not say so.
fn is_temporary(path: &str) -> bool {
    path.to_ascii_lowercase().contains("pg_temp")
}
