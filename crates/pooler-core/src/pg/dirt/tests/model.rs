//! Random sessions against a naive model of the server: the next client gets a clean connection.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wire::pg::frame::TransactionStatus;
use wire::pg::sql::{PgSettingChange, analyse};

use super::super::{DepartureCleanup, LessonTable, ReleaseVerdict, SessionDirt, VerifyPolicy};
use crate::pg::probe::{ProbeFindings, ProbeTopics};

/// A step of a client.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    Commit,
    CommitAndChain,
    Rollback,
    Savepoint,
    RollbackTo,
    Set(u8, u8),
    SetLocal(u8),
    Reset(u8),
    ResetAll,
    SetRole,
    ResetRole,
    Listen,
    Unlisten,
    Temp,
    Drop,
    Lock,
    Unlock,
    Prepare,
    Deallocate,
    Hold,
    Close,
    Block(u8),
    Select,
    Fail,
    DiscardAll,
}

/// Transactional state of a session.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    settings: BTreeMap<String, String>,
    hidden: bool,
    role: bool,
    listens: bool,
    temp: bool,
    hold: bool,
}

/// The server.
#[derive(Debug, Default)]
struct Server {
    state: State,
    /// The state at `BEGIN`, and at the savepoint.
    began: Option<State>,
    saved: Option<State>,
    failed: bool,
    /// These two are not transactional.
    locks: bool,
    prepared: bool,
}

/// The server's answer to one text.
struct Answer {
    text: String,
    /// `None` is an error.
    tag: Option<&'static str>,
}

impl Server {
    fn status(&self) -> TransactionStatus {
        match (self.began.is_some(), self.failed) {
            (false, _) => TransactionStatus::Idle,
            (true, false) => TransactionStatus::InTransaction,
            (true, true) => TransactionStatus::Failed,
        }
    }

    fn end(&mut self, commit: bool) -> &'static str {
        let began = self.began.take();
        let commits = commit && !self.failed;
        if let (Some(began), false) = (began, commits) {
            self.state = began;
        }
        self.saved = None;
        self.failed = false;
        if commits { "COMMIT" } else { "ROLLBACK" }
    }

    fn run(&mut self, step: Step) -> Answer {
        let text = text(step);
        let tag = match step {
            Step::Commit => Some(self.end(true)),
            Step::Rollback => Some(self.end(false)),
            Step::RollbackTo if self.began.is_some() && self.saved.is_some() => {
                self.state = self.saved.clone().unwrap_or_default();
                self.failed = false;
                Some("ROLLBACK")
            }
            Step::CommitAndChain if self.began.is_some() => {
                let tag = self.end(true);
                self.began = Some(self.state.clone());
                Some(tag)
            }
            _ if self.failed => None,
            _ => self.does(step),
        };
        if tag.is_none() && self.began.is_some() {
            self.failed = true;
        }
        Answer { text, tag }
    }

    fn does(&mut self, step: Step) -> Option<&'static str> {
        let state = &mut self.state;
        match step {
            Step::Begin => {
                self.began.get_or_insert_with(|| state.clone());
            }
            Step::Savepoint if self.began.is_some() => self.saved = Some(state.clone()),
            Step::Set(name, value) => {
                state.settings.insert(format!("s{name}"), value.to_string());
            }
            Step::Reset(name) => drop(state.settings.remove(&format!("s{name}"))),
            Step::ResetAll => {
                state.settings.clear();
                state.hidden = false;
            }
            Step::SetRole => state.role = true,
            Step::ResetRole => state.role = false,
            Step::Listen => state.listens = true,
            Step::Unlisten => state.listens = false,
            Step::Temp => state.temp = true,
            Step::Drop => state.temp = false,
            Step::Hold => state.hold = true,
            Step::Close => state.hold = false,
            Step::Lock => self.locks = true,
            Step::Unlock => self.locks = false,
            Step::Prepare => self.prepared = true,
            Step::Deallocate => self.prepared = false,
            Step::Block(what) => match what % 6 {
                0 => drop(state.settings.insert("s9".to_owned(), "1".to_owned())),
                1 => state.hidden = true,
                2 => self.locks = true,
                3 => state.temp = true,
                4 => state.role = true,
                _ => self.prepared = true,
            },
            Step::DiscardAll if self.began.is_none() => {
                *self = Server::default();
                return Some("DISCARD ALL");
            }
            Step::Select | Step::SetLocal(_) => {}
            Step::Savepoint | Step::Fail | Step::DiscardAll => return None,
            Step::Commit | Step::CommitAndChain | Step::Rollback | Step::RollbackTo => return None,
        }
        Some("OK")
    }

    /// Returns the answer to a probe.
    fn found(&self, topics: ProbeTopics, names: &[String]) -> ProbeFindings {
        let state = &self.state;
        let asked = |topic: ProbeTopics| topics.contains(topic);
        let settings = state.settings.clone().into_iter();
        ProbeFindings {
            settings: if asked(ProbeTopics::SETTINGS) { settings.collect() } else { Vec::new() },
            named: names
                .iter()
                .map(|it| (it.clone(), Some(state.settings.get(it).cloned().unwrap_or_default())))
                .collect(),
            role_changed: asked(ProbeTopics::ROLE) && state.role,
            channels: if asked(ProbeTopics::CHANNELS) && state.listens {
                vec!["a".to_owned()]
            } else {
                Vec::new()
            },
            advisory_locks: asked(ProbeTopics::ADVISORY) && self.locks,
            temp_tables: asked(ProbeTopics::TEMP) && state.temp,
            hold_cursors: asked(ProbeTopics::CURSORS) && state.hold,
            sql_prepared: asked(ProbeTopics::PREPARED) && self.prepared,
            connections_function: None,
        }
    }
}

fn text(step: Step) -> String {
    match step {
        Step::Begin => "BEGIN".to_owned(),
        Step::Commit => "COMMIT".to_owned(),
        Step::CommitAndChain => "COMMIT AND CHAIN".to_owned(),
        Step::Rollback => "ROLLBACK".to_owned(),
        Step::Savepoint => "SAVEPOINT s".to_owned(),
        Step::RollbackTo => "ROLLBACK TO s".to_owned(),
        Step::Set(name, value) => format!("SET s{name} = {value}"),
        Step::SetLocal(name) => format!("SET LOCAL s{name} = 5"),
        Step::Reset(name) => format!("RESET s{name}"),
        Step::ResetAll => "RESET ALL".to_owned(),
        Step::SetRole => "SET ROLE other".to_owned(),
        Step::ResetRole => "RESET ROLE".to_owned(),
        Step::Listen => "LISTEN a".to_owned(),
        Step::Unlisten => "UNLISTEN a".to_owned(),
        Step::Temp => "CREATE TEMP TABLE t (a int)".to_owned(),
        Step::Drop => "DROP TABLE t".to_owned(),
        Step::Lock => "SELECT pg_advisory_lock(1)".to_owned(),
        Step::Unlock => "SELECT pg_advisory_unlock(1)".to_owned(),
        Step::Prepare => "PREPARE p AS SELECT 1".to_owned(),
        Step::Deallocate => "DEALLOCATE p".to_owned(),
        Step::Hold => "DECLARE c CURSOR WITH HOLD FOR SELECT 1".to_owned(),
        Step::Close => "CLOSE c".to_owned(),
        Step::Block(what) => format!("DO '{what}'"),
        Step::Select => "SELECT 1".to_owned(),
        Step::Fail => "SELECT 1/0".to_owned(),
        Step::DiscardAll => "DISCARD ALL".to_owned(),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let transaction = prop_oneof![
        Just(Step::Begin),
        Just(Step::Begin),
        Just(Step::Commit),
        Just(Step::Commit),
        Just(Step::CommitAndChain),
        Just(Step::Rollback),
        Just(Step::Savepoint),
        Just(Step::RollbackTo),
        Just(Step::Fail),
        Just(Step::Select),
    ];
    let setting = prop_oneof![
        (0..3_u8, 0..3_u8).prop_map(|(name, value)| Step::Set(name, value)),
        (0..3_u8).prop_map(Step::SetLocal),
        (0..3_u8).prop_map(Step::Reset),
        Just(Step::ResetAll),
    ];
    let other = prop_oneof![
        Just(Step::SetRole),
        Just(Step::ResetRole),
        Just(Step::Listen),
        Just(Step::Unlisten),
        Just(Step::Temp),
        Just(Step::Drop),
        Just(Step::Lock),
        Just(Step::Unlock),
        Just(Step::Prepare),
        Just(Step::Deallocate),
        Just(Step::Hold),
        Just(Step::Close),
        any::<u8>().prop_map(Step::Block),
        Just(Step::DiscardAll),
    ];
    prop_oneof![4 => transaction, 2 => setting, 3 => other]
}

/// Single steps, and transactions with savepoints.
fn chunk() -> impl Strategy<Value = Vec<Step>> {
    let inner = prop_oneof![
        3 => (0..3_u8, 0..3_u8).prop_map(|(name, value)| Step::Set(name, value)),
        2 => Just(Step::Savepoint),
        2 => Just(Step::RollbackTo),
        1 => Just(Step::Fail),
        1 => step(),
    ];
    let transaction = proptest::collection::vec(inner, 0..7).prop_map(|mut steps| {
        steps.insert(0, Step::Begin);
        steps.push(Step::Commit);
        steps
    });
    prop_oneof![2 => step().prop_map(|it| vec![it]), 1 => transaction]
}

/// The server and the tracker under test.
#[derive(Debug, Default)]
struct Pair {
    server: Server,
    dirt: SessionDirt,
    lessons: LessonTable,
    known: BTreeMap<String, String>,
}

impl Pair {
    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let answer = self.server.run(step);
        self.dirt.saw_text(&mut self.lessons, &analyse(answer.text.as_bytes()), false);
        match answer.tag {
            Some(tag) => self.dirt.saw_tag(tag.as_bytes()),
            None => self.dirt.saw_error(),
        }
        self.dirt.ready(self.server.status());
        self.change();
        match self.server.status() {
            TransactionStatus::Idle => self.judge(),
            TransactionStatus::InTransaction | TransactionStatus::Failed => Ok(()),
        }
    }

    fn change(&mut self) {
        for change in self.dirt.take_changes() {
            self.apply(change);
        }
    }

    fn apply(&mut self, change: PgSettingChange) {
        match change {
            PgSettingChange::Value { name, value } if value.is_empty() => {
                drop(self.known.remove(&name))
            }
            PgSettingChange::Value { name, value } => drop(self.known.insert(name, value)),
            PgSettingChange::Default { name } => drop(self.known.remove(&name)),
            PgSettingChange::DefaultAll => self.known.clear(),
        }
    }

    fn judge(&mut self) -> Result<(), TestCaseError> {
        if let ReleaseVerdict::Probe(questions) = self.dirt.verdict() {
            let found = self.server.found(questions.topics, questions.names());
            self.dirt.asked(questions);
            let known = self.known.clone();
            let knows = |name: &str| known.get(name).cloned();
            let settings = self.dirt.answered(&mut self.lessons, found, &knows);
            if let Some(all) = settings.all {
                self.known = all.into_iter().collect();
            }
            settings.changes.into_iter().for_each(|it| self.apply(it));
        }
        let state = &self.server.state;
        match self.dirt.verdict() {
            ReleaseVerdict::Probe(_) => prop_assert!(false, "asked twice"),
            ReleaseVerdict::Pinned(_) => {}
            ReleaseVerdict::Clean => {
                let kinds = [state.role, state.listens, state.temp, state.hold];
                prop_assert!(!kinds.contains(&true), "{:?}", self.server);
                prop_assert!(!self.server.locks && !self.server.prepared, "{:?}", self.server);
                prop_assert_eq!(&self.known, &state.settings);
                prop_assert!(!state.hidden || self.dirt.has_hidden_settings());
                prop_assert_eq!(self.dirt.leave(), DepartureCleanup::Nothing);
            }
        }
        Ok(())
    }

    /// Checks that no pin is left whose reason has ended.
    fn unpins(&mut self) -> Result<(), TestCaseError> {
        for step in [
            Step::Rollback,
            Step::ResetRole,
            Step::Unlisten,
            Step::Drop,
            Step::Unlock,
            Step::Deallocate,
            Step::Close,
        ] {
            self.step(step)?;
        }
        prop_assert_eq!(self.dirt.verdict(), ReleaseVerdict::Clean);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_called_clean_is_clean(
        chunks in proptest::collection::vec(chunk(), 1..20),
        always in any::<bool>(),
    ) {
        let mut pair = Pair::default();
        pair.dirt.set_verify(if always { VerifyPolicy::Always } else { VerifyPolicy::Unknown });
        for step in chunks.into_iter().flatten() {
            pair.step(step)?;
        }
        pair.unpins()?;
    }
}
