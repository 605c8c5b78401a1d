//! Tables of what is decided, a comparison with a naive model, and a real server.

mod model;
mod real;

use wire::pg::sql::{Act, look};

use super::*;

/// A server connection whose texts all succeed unless a test says otherwise.
struct Session {
    dirt: Dirt,
    lessons: Lessons,
}

impl Session {
    fn new(verify: Verify) -> Session {
        Session { dirt: dirt(verify), lessons: Lessons::default() }
    }

    fn text(&mut self, text: &str) {
        self.dirt.saw_text(&mut self.lessons, &look(text.as_bytes()), false);
        match text {
            "COMMIT" | "ROLLBACK" | "DISCARD ALL" | "DEALLOCATE ALL" => {
                self.dirt.saw_tag(text.as_bytes());
            }
            "COMMIT AND CHAIN" => self.dirt.saw_tag(b"COMMIT"),
            _ if text.starts_with("ROLLBACK TO") => self.dirt.saw_tag(b"ROLLBACK"),
            _ => {}
        }
    }

    /// Runs the texts, each answered on its own; the last leaves the transaction.
    fn run(&mut self, texts: &[&str]) -> Verdict {
        for (index, text) in texts.iter().enumerate() {
            self.text(text);
            let last = index + 1 == texts.len();
            let status =
                if last { TransactionStatus::Idle } else { TransactionStatus::InTransaction };
            self.dirt.ready(status);
        }
        self.dirt.verdict()
    }

    fn answer(&mut self, found: Found) -> Settings {
        let Verdict::Probe(questions) = self.dirt.verdict() else { panic!("nothing is asked") };
        self.dirt.asked(questions);
        self.dirt.answered(&mut self.lessons, found, &|_| None)
    }
}

fn dirt(verify: Verify) -> Dirt {
    let mut dirt = Dirt::default();
    dirt.set_verify(verify);
    dirt
}

fn probe(topics: Topics) -> Verdict {
    Verdict::Probe(Questions::about(topics))
}

fn named(name: &str) -> Verdict {
    let mut questions = Questions::default();
    questions.ask_for(name);
    Verdict::Probe(questions)
}

fn value(name: &str, value: &str) -> Change {
    Change::Value { name: name.to_owned(), value: value.to_owned() }
}

fn check(texts: &[&str], verdict: Verdict, changes: &[Change]) {
    let mut session = Session::new(Verify::Unknown);
    assert_eq!(session.run(texts), verdict, "{texts:?}");
    assert_eq!(session.dirt.take_changes(), changes, "{texts:?}");
}

#[test]
fn what_a_transaction_leaves_is_adopted_or_asked() {
    for (texts, verdict) in [
        (&["SELECT 1"][..], Verdict::Clean),
        (&["BEGIN", "SELECT now()", "COMMIT"], Verdict::Clean),
        (&["BEGIN", "SET LOCAL a = 1", "COMMIT"], Verdict::Clean),
        (&["SELECT pg_notify('a', '')"], Verdict::Clean),
        (&["SELECT pg_advisory_lock(1)"], probe(Topics::ADVISORY)),
        (&["PREPARE p AS SELECT 1"], probe(Topics::ALL)),
        (&["SET ROLE a"], probe(Topics::ROLE)),
        (&["LISTEN a"], probe(Topics::CHANNELS)),
        (&["DO ''"], probe(Topics::ALL)),
        (&["SELECT f()"], probe(Topics::ALL)),
        (&["CALL f()"], probe(Topics::ALL)),
        (&["SELECT 'a\\'"], probe(Topics::ALL)),
        (&["LOAD 'a'"], Verdict::Pinned(Reasons::LOAD)),
        (&["SELECT setseed(0)"], Verdict::Pinned(Reasons::SEED)),
        (&["SELECT set_config('a.b', $1, false)"], named("a.b")),
        (&["BEGIN", "SELECT pg_advisory_lock(1)", "ROLLBACK"], probe(Topics::ADVISORY)),
        (&["BEGIN", "LISTEN a", "SET ROLE b", "ROLLBACK"], Verdict::Clean),
        (&["BEGIN", "DO ''", "ROLLBACK"], probe(Topics::ALL)),
        (
            &["BEGIN", "SELECT f()", "ROLLBACK"],
            probe(Topics::ADVISORY | Topics::PREPARED | Topics::CONNECTIONS),
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
        (&["RESET ALL"], &[Change::DefaultAll]),
        (&["SELECT set_config('a', '1', false)"], &one),
    ] {
        check(texts, Verdict::Clean, changes);
    }
    // What came before the savepoint is not told apart from what came after.
    check(&["BEGIN", "SAVEPOINT s", "SET a = 1", "ROLLBACK TO s", "COMMIT"], named("a"), &[]);
    check(&["SET a = 1; COMMIT; SELECT 1/0"], named("a"), &[]);
}

#[test]
fn an_error_undoes_what_came_before_it_in_its_transaction() {
    let mut session = Session::new(Verify::Unknown);
    session.text("SET a = 1");
    session.dirt.saw_error();
    session.dirt.ready(TransactionStatus::Idle);
    assert_eq!(session.dirt.verdict(), Verdict::Clean);
    assert_eq!(session.dirt.take_changes(), []);
    // A transaction that failed and was begun by hand ends with the tag of its end.
    session.run(&["BEGIN"]);
    session.text("SET a = 1");
    session.dirt.ready(TransactionStatus::InTransaction);
    session.text("SELECT 1/0");
    session.dirt.saw_error();
    session.dirt.ready(TransactionStatus::Failed);
    session.text("COMMIT");
    // That is: a COMMIT whose tag says ROLLBACK.
    let mut session = Session::new(Verify::Unknown);
    session.run(&["SET a = 1", "SELECT 2"]);
    session.dirt.take_changes();
    session.dirt.saw_text(&mut session.lessons, &look(b"SET a = 2"), false);
    session.dirt.ready(TransactionStatus::Failed);
    session.dirt.saw_text(&mut session.lessons, &look(b"COMMIT"), false);
    session.dirt.saw_tag(b"ROLLBACK");
    session.dirt.ready(TransactionStatus::Idle);
    assert_eq!(session.dirt.take_changes(), []);
}

#[test]
fn a_pin_lasts_until_an_answer_says_that_it_ended() {
    let found = Found { advisory_locks: true, ..Found::default() };
    let mut session = Session::new(Verify::Unknown);
    session.run(&["SELECT pg_advisory_lock(1)"]);
    session.answer(found.clone());
    let pinned = Verdict::Pinned(Reasons::ADVISORY_LOCK);
    assert_eq!(session.dirt.verdict(), pinned);
    assert_eq!(session.run(&["SELECT 1"]), pinned);
    // What cannot end it is remembered, and asked together with what can.
    assert_eq!(session.run(&["SET ROLE a"]), pinned);
    let both = Topics::ADVISORY | Topics::ROLE;
    assert_eq!(session.run(&["SELECT pg_advisory_unlock(1)"]), probe(both));
    session.answer(found);
    assert_eq!(session.dirt.verdict(), pinned);
    session.run(&["SELECT pg_advisory_unlock(1)"]);
    session.answer(Found::default());
    assert_eq!(session.dirt.verdict(), Verdict::Clean);
    assert_eq!(session.dirt.leave(), Leave::Nothing);
}

#[test]
fn what_may_end_a_pin_is_asked_about() {
    for (begin, found, reason, end) in [
        ("CREATE TEMP TABLE t ()", "temp", Reasons::TEMP_TABLE, "DROP TABLE t"),
        ("CREATE TEMP TABLE t ()", "temp", Reasons::TEMP_TABLE, "DISCARD TEMP"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "hold", Reasons::HOLD_CURSOR, "CLOSE c"),
        ("PREPARE p AS SELECT 1", "sql", Reasons::SQL_PREPARE, "DEALLOCATE p"),
        ("SET ROLE a", "role", Reasons::ROLE, "RESET ROLE"),
        ("LISTEN a", "listen", Reasons::LISTEN, "UNLISTEN a"),
        ("LISTEN a", "listen", Reasons::LISTEN, "DO ''"),
    ] {
        let mut session = Session::new(Verify::Unknown);
        session.run(&[begin]);
        session.answer(Found {
            temp_tables: found == "temp",
            hold_cursors: found == "hold",
            sql_prepared: found == "sql",
            role_changed: found == "role",
            channels: Vec::from_iter((found == "listen").then(|| "a".to_owned())),
            ..Found::default()
        });
        assert_eq!(session.dirt.verdict(), Verdict::Pinned(reason), "{begin}");
        assert_eq!(session.dirt.pins().names().count(), 1);
        assert_eq!(session.dirt.leave(), Leave::Discard, "{begin}");
        assert!(matches!(session.run(&[end]), Verdict::Probe(_)), "{end}");
        session.answer(Found::default());
        assert_eq!(session.dirt.verdict(), Verdict::Clean, "{end}");
    }
}

#[test]
fn discard_all_ends_what_can_end() {
    let mut session = Session::new(Verify::Unknown);
    session.run(&["DO ''"]);
    session.answer(Found { temp_tables: true, role_changed: true, ..Found::default() });
    assert!(session.dirt.has_hidden_settings());
    assert_eq!(session.run(&["DISCARD ALL"]), Verdict::Clean);
    assert_eq!(session.dirt.take_changes(), [Change::DefaultAll]);
    assert!(!session.dirt.has_hidden_settings());
    // Code that ran while the lock kept the connection may have opened one of dblink.
    session.run(&["SELECT pg_advisory_lock(1)"]);
    session.answer(Found { advisory_locks: true, ..Found::default() });
    session.run(&["SELECT f()"]);
    assert_eq!(session.run(&["DISCARD ALL"]), probe(Topics::CONNECTIONS));
    session.answer(Found::default());
    assert_eq!(session.dirt.verdict(), Verdict::Clean);
    session.run(&["LOAD 'a'"]);
    assert_eq!(session.run(&["DISCARD ALL"]), Verdict::Pinned(Reasons::LOAD));
    assert_eq!(session.dirt.leave(), Leave::Close);
}

#[test]
fn an_execute_does_what_was_prepared() {
    let prepared = Found { sql_prepared: true, ..Found::default() };
    let mut session = Session::new(Verify::Unknown);
    session.run(&["PREPARE p AS SELECT pg_advisory_lock(1)"]);
    session.answer(prepared);
    let pinned = Verdict::Pinned(Reasons::SQL_PREPARE);
    assert_eq!(session.run(&["EXECUTE p"]), pinned);
    // The lock is asked about before anybody else comes.
    let both = Topics::PREPARED | Topics::ADVISORY;
    assert_eq!(session.run(&["DEALLOCATE p"]), probe(both));
    // Without one it is not known what it does.
    let mut session = Session::new(Verify::Unknown);
    assert_eq!(session.run(&["EXECUTE p"]), probe(Topics::ALL));
}

#[test]
fn a_path_to_temporary_tables_pins_until_it_is_left() {
    let mut session = Session::new(Verify::Unknown);
    session.run(&["SET search_path = pg_temp, public"]);
    let settings = vec![("search_path".to_owned(), "pg_temp, public".to_owned())];
    let answer = session.answer(Found { settings: settings.clone(), ..Found::default() });
    assert_eq!(answer.all, Some(settings));
    assert_eq!(session.dirt.verdict(), Verdict::Pinned(Reasons::SEARCH_PATH));
    assert_eq!(session.run(&["SET search_path = public"]), Verdict::Clean);
}

#[test]
fn an_own_search_path_takes_the_trust_from_built_in_functions() {
    let mut session = Session::new(Verify::Unknown);
    session.dirt.saw_text(&mut session.lessons, &look(b"SELECT lower('A')"), true);
    session.dirt.ready(TransactionStatus::Idle);
    assert_eq!(session.dirt.verdict(), probe(Topics::ALL));
}

#[test]
fn how_much_is_asked_goes_by_the_mode() {
    for (verify, text, asks) in [
        (Verify::Always, "SELECT 1", true),
        (Verify::Unknown, "SELECT 1", false),
        (Verify::Unknown, "SELECT a FROM t", true),
        (Verify::Never, "SELECT a FROM t", false),
        (Verify::Never, "SELECT f()", false),
        (Verify::Never, "DO ''", false),
        (Verify::Never, "SELECT pg_advisory_lock(1)", true),
    ] {
        let verdict = Session::new(verify).run(&[text]);
        assert_eq!(matches!(verdict, Verdict::Probe(_)), asks, "{verify:?} {text}");
    }
    let mut session = Session::new(Verify::Never);
    session.run(&["SELECT f()"]);
    assert!(session.dirt.has_hidden_settings());
    session.dirt.settings_reset();
    session.dirt.saw_function_call();
    session.dirt.ready(TransactionStatus::Idle);
    assert!(session.dirt.has_hidden_settings());
}

#[test]
fn a_function_that_was_caught_is_asked_about_every_time() {
    let mut session = Session::new(Verify::Unknown);
    session.run(&["SELECT f(1)"]);
    session.answer(Found { settings: vec![("a".to_owned(), "1".to_owned())], ..Found::default() });
    for number in 0..20 {
        let text = format!("SELECT f({number})");
        assert_eq!(session.run(&[&text]), probe(Topics::ALL));
        session.answer(Found::default());
    }
    for number in 0..3 {
        let text = format!("SELECT g({number})");
        assert_eq!(session.run(&[&text]), probe(Topics::ALL));
        session.answer(Found::default());
    }
    assert_eq!(session.run(&["SELECT g(4)"]), Verdict::Clean);
}

#[test]
fn settings_beyond_the_limit_are_asked_about() {
    let mut session = Session::new(Verify::Unknown);
    let texts: Vec<String> = (0..=CHANGES_MAX).map(|it| format!("SET a{it} = 1")).collect();
    let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    texts.insert(0, "BEGIN");
    texts.push("COMMIT");
    assert_eq!(session.run(&texts), probe(Topics::SETTINGS));
    assert_eq!(look(b"DISCARD ALL").names[0].act, Act::DiscardAll);
}
