//! Tables of decisions, a comparison with a naive model, and a real server.

mod model;
mod real;

use wire::pg::sql::{PgNameAction, analyse};

use super::*;

/// A server connection whose texts all succeed unless a test specifies otherwise.
struct Session {
    dirt: SessionDirt,
    lessons: LessonTable,
}

impl Session {
    fn new(verify: VerifyPolicy) -> Session {
        Session { dirt: dirt(verify), lessons: LessonTable::default() }
    }

    fn text(&mut self, text: &str) {
        self.dirt.saw_text(&mut self.lessons, &analyse(text.as_bytes()), false);
        match text {
            "COMMIT" | "ROLLBACK" | "DISCARD ALL" | "DEALLOCATE ALL" => {
                self.dirt.saw_tag(text.as_bytes());
            }
            "COMMIT AND CHAIN" => self.dirt.saw_tag(b"COMMIT"),
            _ if text.starts_with("ROLLBACK TO") => self.dirt.saw_tag(b"ROLLBACK"),
            _ => {}
        }
    }

    /// Runs the texts, each answered separately; the last one ends outside of a transaction.
    fn run(&mut self, texts: &[&str]) -> ReleaseVerdict {
        for (index, text) in texts.iter().enumerate() {
            self.text(text);
            let last = index + 1 == texts.len();
            let status =
                if last { TransactionStatus::Idle } else { TransactionStatus::InTransaction };
            self.dirt.ready(status);
        }
        self.dirt.verdict()
    }

    fn answer(&mut self, found: ProbeFindings) -> ReportedSettings {
        let ReleaseVerdict::Probe(questions) = self.dirt.verdict() else {
            panic!("nothing is asked")
        };
        self.dirt.asked(questions);
        self.dirt.answered(&mut self.lessons, found, &|_| None)
    }
}

fn dirt(verify: VerifyPolicy) -> SessionDirt {
    let mut dirt = SessionDirt::default();
    dirt.set_verify(verify);
    dirt
}

fn probe(topics: ProbeTopics) -> ReleaseVerdict {
    ReleaseVerdict::Probe(ProbeQueries::about(topics))
}

fn named(name: &str) -> ReleaseVerdict {
    let mut questions = ProbeQueries::default();
    questions.ask_for(name);
    ReleaseVerdict::Probe(questions)
}

fn value(name: &str, value: &str) -> PgSettingChange {
    PgSettingChange::Value { name: name.to_owned(), value: value.to_owned() }
}

fn check(texts: &[&str], verdict: ReleaseVerdict, changes: &[PgSettingChange]) {
    let mut session = Session::new(VerifyPolicy::Unknown);
    assert_eq!(session.run(texts), verdict, "{texts:?}");
    assert_eq!(session.dirt.take_changes(), changes, "{texts:?}");
}

#[test]
fn what_a_transaction_leaves_is_adopted_or_asked() {
    for (texts, verdict) in [
        (&["SELECT 1"][..], ReleaseVerdict::Clean),
        (&["BEGIN", "SELECT now()", "COMMIT"], ReleaseVerdict::Clean),
        (&["BEGIN", "SET LOCAL a = 1", "COMMIT"], ReleaseVerdict::Clean),
        (&["SELECT pg_notify('a', '')"], ReleaseVerdict::Clean),
        (&["SELECT pg_advisory_lock(1)"], probe(ProbeTopics::ADVISORY)),
        (&["PREPARE p AS SELECT 1"], probe(ProbeTopics::ALL)),
        (&["SET ROLE a"], probe(ProbeTopics::ROLE)),
        (&["LISTEN a"], probe(ProbeTopics::CHANNELS)),
        (&["DO ''"], probe(ProbeTopics::ALL)),
        (&["SELECT f()"], probe(ProbeTopics::ALL)),
        (&["CALL f()"], probe(ProbeTopics::ALL)),
        (&["SELECT 'a\\'"], probe(ProbeTopics::ALL)),
        (&["LOAD 'a'"], ReleaseVerdict::Pinned(PinReasons::LOAD)),
        (&["SELECT setseed(0)"], ReleaseVerdict::Pinned(PinReasons::SEED)),
        (&["SELECT set_config('a.b', $1, false)"], named("a.b")),
        (&["BEGIN", "SELECT pg_advisory_lock(1)", "ROLLBACK"], probe(ProbeTopics::ADVISORY)),
        (&["BEGIN", "LISTEN a", "SET ROLE b", "ROLLBACK"], ReleaseVerdict::Clean),
        (&["BEGIN", "DO ''", "ROLLBACK"], probe(ProbeTopics::ALL)),
        (
            &["BEGIN", "SELECT f()", "ROLLBACK"],
            probe(ProbeTopics::ADVISORY | ProbeTopics::PREPARED | ProbeTopics::CONNECTIONS),
        ),
    ] {
        check(texts, verdict, &[]);
    }
}

#[test]
fn settings_change_when_the_transaction_commits() {
    let one = [value("a", "1")];
    for (texts, changes) in [
        (&["SET a = 1"][..], &one[..]),
        (&["BEGIN", "SET a = 1", "COMMIT"], &one),
        (&["BEGIN", "SET a = 1", "ROLLBACK"], &[]),
        (&["BEGIN", "SET a = 1", "COMMIT AND CHAIN", "SET b = 2", "ROLLBACK"], &one),
        (&["RESET ALL"], &[PgSettingChange::DefaultAll]),
        (&["SELECT set_config('a', '1', false)"], &one),
    ] {
        check(texts, ReleaseVerdict::Clean, changes);
    }
    // Changes before and after the savepoint are not distinguished.
    check(&["BEGIN", "SAVEPOINT s", "SET a = 1", "ROLLBACK TO s", "COMMIT"], named("a"), &[]);
    check(&["SET a = 1; COMMIT; SELECT 1/0"], named("a"), &[]);
}

#[test]
fn an_error_undoes_what_came_before_it_in_its_transaction() {
    let mut session = Session::new(VerifyPolicy::Unknown);
    session.text("SET a = 1");
    session.dirt.saw_error();
    session.dirt.ready(TransactionStatus::Idle);
    assert_eq!(session.dirt.verdict(), ReleaseVerdict::Clean);
    assert_eq!(session.dirt.take_changes(), []);
    // A failed explicit transaction ends with the command tag of its end.
    session.run(&["BEGIN"]);
    session.text("SET a = 1");
    session.dirt.ready(TransactionStatus::InTransaction);
    session.text("SELECT 1/0");
    session.dirt.saw_error();
    session.dirt.ready(TransactionStatus::Failed);
    session.text("COMMIT");
    // That is a COMMIT whose tag is ROLLBACK.
    let mut session = Session::new(VerifyPolicy::Unknown);
    session.run(&["SET a = 1", "SELECT 2"]);
    session.dirt.take_changes();
    session.dirt.saw_text(&mut session.lessons, &analyse(b"SET a = 2"), false);
    session.dirt.ready(TransactionStatus::Failed);
    session.dirt.saw_text(&mut session.lessons, &analyse(b"COMMIT"), false);
    session.dirt.saw_tag(b"ROLLBACK");
    session.dirt.ready(TransactionStatus::Idle);
    assert_eq!(session.dirt.take_changes(), []);
}

#[test]
fn a_pin_lasts_until_an_answer_says_that_it_ended() {
    let found = ProbeFindings { advisory_locks: true, ..ProbeFindings::default() };
    let mut session = Session::new(VerifyPolicy::Unknown);
    session.run(&["SELECT pg_advisory_lock(1)"]);
    session.answer(found.clone());
    let pinned = ReleaseVerdict::Pinned(PinReasons::ADVISORY_LOCK);
    assert_eq!(session.dirt.verdict(), pinned);
    assert_eq!(session.run(&["SELECT 1"]), pinned);
    // State that cannot end the pin is remembered, and probed together with state that can.
    assert_eq!(session.run(&["SET ROLE a"]), pinned);
    let both = ProbeTopics::ADVISORY | ProbeTopics::ROLE;
    assert_eq!(session.run(&["SELECT pg_advisory_unlock(1)"]), probe(both));
    session.answer(found);
    assert_eq!(session.dirt.verdict(), pinned);
    session.run(&["SELECT pg_advisory_unlock(1)"]);
    session.answer(ProbeFindings::default());
    assert_eq!(session.dirt.verdict(), ReleaseVerdict::Clean);
    assert_eq!(session.dirt.leave(), DepartureCleanup::Nothing);
}

#[test]
fn what_may_end_a_pin_is_asked_about() {
    for (begin, found, reason, end) in [
        ("CREATE TEMP TABLE t ()", "temp", PinReasons::TEMP_TABLE, "DROP TABLE t"),
        ("CREATE TEMP TABLE t ()", "temp", PinReasons::TEMP_TABLE, "DISCARD TEMP"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "hold", PinReasons::HOLD_CURSOR, "CLOSE c"),
        ("PREPARE p AS SELECT 1", "sql", PinReasons::SQL_PREPARE, "DEALLOCATE p"),
        ("SET ROLE a", "role", PinReasons::ROLE, "RESET ROLE"),
        ("LISTEN a", "listen", PinReasons::LISTEN, "UNLISTEN a"),
        ("LISTEN a", "listen", PinReasons::LISTEN, "DO ''"),
    ] {
        let mut session = Session::new(VerifyPolicy::Unknown);
        session.run(&[begin]);
        session.answer(ProbeFindings {
            temp_tables: found == "temp",
            hold_cursors: found == "hold",
            sql_prepared: found == "sql",
            role_changed: found == "role",
            channels: Vec::from_iter((found == "listen").then(|| "a".to_owned())),
            ..ProbeFindings::default()
        });
        assert_eq!(session.dirt.verdict(), ReleaseVerdict::Pinned(reason), "{begin}");
        assert_eq!(session.dirt.pins().names().count(), 1);
        assert_eq!(session.dirt.leave(), DepartureCleanup::Discard, "{begin}");
        assert!(matches!(session.run(&[end]), ReleaseVerdict::Probe(_)), "{end}");
        session.answer(ProbeFindings::default());
        assert_eq!(session.dirt.verdict(), ReleaseVerdict::Clean, "{end}");
    }
}

#[test]
fn discard_all_ends_what_can_end() {
    let mut session = Session::new(VerifyPolicy::Unknown);
    session.run(&["DO ''"]);
    session.answer(ProbeFindings {
        temp_tables: true,
        role_changed: true,
        ..ProbeFindings::default()
    });
    assert!(session.dirt.has_hidden_settings());
    assert_eq!(session.run(&["DISCARD ALL"]), ReleaseVerdict::Clean);
    assert_eq!(session.dirt.take_changes(), [PgSettingChange::DefaultAll]);
    assert!(!session.dirt.has_hidden_settings());
    // Code that ran while the lock pinned the connection may have opened a connection of dblink.
    session.run(&["SELECT pg_advisory_lock(1)"]);
    session.answer(ProbeFindings { advisory_locks: true, ..ProbeFindings::default() });
    session.run(&["SELECT f()"]);
    assert_eq!(session.run(&["DISCARD ALL"]), probe(ProbeTopics::CONNECTIONS));
    session.answer(ProbeFindings::default());
    assert_eq!(session.dirt.verdict(), ReleaseVerdict::Clean);
    session.run(&["LOAD 'a'"]);
    assert_eq!(session.run(&["DISCARD ALL"]), ReleaseVerdict::Pinned(PinReasons::LOAD));
    assert_eq!(session.dirt.leave(), DepartureCleanup::Close);
}

#[test]
fn an_execute_does_what_was_prepared() {
    let prepared = ProbeFindings { sql_prepared: true, ..ProbeFindings::default() };
    let mut session = Session::new(VerifyPolicy::Unknown);
    session.run(&["PREPARE p AS SELECT pg_advisory_lock(1)"]);
    session.answer(prepared);
    let pinned = ReleaseVerdict::Pinned(PinReasons::SQL_PREPARE);
    assert_eq!(session.run(&["EXECUTE p"]), pinned);
    // The lock is probed before another client uses the connection.
    let both = ProbeTopics::PREPARED | ProbeTopics::ADVISORY;
    assert_eq!(session.run(&["DEALLOCATE p"]), probe(both));
    // Without a statement its effects are unknown.
    let mut session = Session::new(VerifyPolicy::Unknown);
    assert_eq!(session.run(&["EXECUTE p"]), probe(ProbeTopics::ALL));
}

#[test]
fn a_path_to_temporary_tables_pins_until_it_is_left() {
    let mut session = Session::new(VerifyPolicy::Unknown);
    session.run(&["SET search_path = pg_temp, public"]);
    let settings = vec![("search_path".to_owned(), "pg_temp, public".to_owned())];
    let answer =
        session.answer(ProbeFindings { settings: settings.clone(), ..ProbeFindings::default() });
    assert_eq!(answer.all, Some(settings));
    assert_eq!(session.dirt.verdict(), ReleaseVerdict::Pinned(PinReasons::SEARCH_PATH));
    assert_eq!(session.run(&["SET search_path = public"]), ReleaseVerdict::Clean);
}

#[test]
fn an_own_search_path_takes_the_trust_from_built_in_functions() {
    let mut session = Session::new(VerifyPolicy::Unknown);
    session.dirt.saw_text(&mut session.lessons, &analyse(b"SELECT lower('A')"), true);
    session.dirt.ready(TransactionStatus::Idle);
    assert_eq!(session.dirt.verdict(), probe(ProbeTopics::ALL));
}

#[test]
fn how_much_is_asked_goes_by_the_mode() {
    for (verify, text, asks) in [
        (VerifyPolicy::Always, "SELECT 1", true),
        (VerifyPolicy::Unknown, "SELECT 1", false),
        (VerifyPolicy::Unknown, "SELECT a FROM t", true),
        (VerifyPolicy::Never, "SELECT a FROM t", false),
        (VerifyPolicy::Never, "SELECT f()", false),
        (VerifyPolicy::Never, "DO ''", false),
        (VerifyPolicy::Never, "SELECT pg_advisory_lock(1)", true),
    ] {
        let verdict = Session::new(verify).run(&[text]);
        assert_eq!(matches!(verdict, ReleaseVerdict::Probe(_)), asks, "{verify:?} {text}");
    }
    let mut session = Session::new(VerifyPolicy::Never);
    session.run(&["SELECT f()"]);
    assert!(session.dirt.has_hidden_settings());
    session.dirt.settings_reset();
    session.dirt.saw_function_call();
    session.dirt.ready(TransactionStatus::Idle);
    assert!(session.dirt.has_hidden_settings());
}

#[test]
fn a_function_that_was_caught_is_asked_about_every_time() {
    let mut session = Session::new(VerifyPolicy::Unknown);
    session.run(&["SELECT f(1)"]);
    session.answer(ProbeFindings {
        settings: vec![("a".to_owned(), "1".to_owned())],
        ..ProbeFindings::default()
    });
    for number in 0..20 {
        let text = format!("SELECT f({number})");
        assert_eq!(session.run(&[&text]), probe(ProbeTopics::ALL));
        session.answer(ProbeFindings::default());
    }
    for number in 0..3 {
        let text = format!("SELECT g({number})");
        assert_eq!(session.run(&[&text]), probe(ProbeTopics::ALL));
        session.answer(ProbeFindings::default());
    }
    assert_eq!(session.run(&["SELECT g(4)"]), ReleaseVerdict::Clean);
}

#[test]
fn settings_beyond_the_limit_are_asked_about() {
    let mut session = Session::new(VerifyPolicy::Unknown);
    let texts: Vec<String> = (0..=CHANGES_MAX).map(|it| format!("SET a{it} = 1")).collect();
    let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    texts.insert(0, "BEGIN");
    texts.push("COMMIT");
    assert_eq!(session.run(&texts), probe(ProbeTopics::SETTINGS));
    assert_eq!(analyse(b"DISCARD ALL").names[0].act, PgNameAction::DiscardAll);
}
