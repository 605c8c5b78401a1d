//! The actual state that texts leave in the session of a server, determined by other queries than
//! the probe's.

use std::collections::{BTreeMap, BTreeSet};

use testkit::Postgres;
use testkit::pg::PgClient;
use wire::pg::frame::TransactionStatus;
use wire::pg::sql::{PgSettingChange, analyse};

use super::super::{
    DepartureCleanup, LessonTable, PinReasons, ProbeTopics, ReleaseVerdict, SessionDirt,
    VerifyPolicy,
};
use crate::pg::probe::{ProbeQueries, ProbeReader};

/// Functions, triggers and views that leave state which the calling text does not show.
const OBJECTS: &str = "
    CREATE ROLE other;
    CREATE TABLE plain (a int);
    CREATE TABLE watched (a int);
    CREATE SEQUENCE numbers;
    CREATE FUNCTION sets() RETURNS text LANGUAGE sql AS
        $$SELECT set_config('work_mem', '3MB', false)$$;
    CREATE FUNCTION sets_app() RETURNS text LANGUAGE sql AS
        $$SELECT set_config('app.a', 'secret', false)$$;
    CREATE FUNCTION locks() RETURNS void LANGUAGE sql AS $$SELECT pg_advisory_lock(7)$$;
    CREATE FUNCTION makes() RETURNS void LANGUAGE plpgsql AS
        $$BEGIN CREATE TEMP TABLE hidden_one (a int); END$$;
    CREATE FUNCTION prepares() RETURNS void LANGUAGE plpgsql AS
        $$BEGIN EXECUTE 'PREPARE hidden_p AS SELECT 1'; END$$;
    CREATE FUNCTION becomes() RETURNS void LANGUAGE plpgsql AS
        $$BEGIN EXECUTE 'SET ROLE other'; END$$;
    CREATE FUNCTION hears() RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE 'LISTEN deep'; END$$;
    CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN PERFORM set_config('work_mem', '5MB', false); RETURN NEW; END$$;
    CREATE TRIGGER t BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION fires();
    CREATE VIEW view_that_sets AS SELECT set_config('work_mem', '6MB', false);
    CREATE PROCEDURE commits() LANGUAGE plpgsql AS
        $$BEGIN PERFORM set_config('work_mem', '7MB', false); COMMIT; RAISE 'late'; END$$;
    CREATE SCHEMA own;
    CREATE FUNCTION own.lower(text) RETURNS text LANGUAGE sql AS
        $$SELECT set_config('work_mem', '8MB', false)$$;
    CREATE FUNCTION plus(int, text) RETURNS text LANGUAGE sql AS
        $$SELECT set_config('work_mem', '9MB', false)$$;
    CREATE OPERATOR #+# (LEFTARG = int, RIGHTARG = text, FUNCTION = plus);
";

/// Relevant state of a session.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Truth {
    settings: BTreeMap<String, String>,
    /// `app.a`, which is shown only by name.
    app: String,
    kinds: BTreeSet<&'static str>,
}

const KINDS: [(&str, &str); 6] = [
    ("temp_table", "SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()"),
    (
        "advisory_lock",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ),
    ("hold_cursor", "SELECT count(*) FROM pg_cursors WHERE is_holdable"),
    ("sql_prepare", "SELECT count(*) FROM pg_prepared_statements"),
    ("role", "SELECT (current_user <> 'postgres' OR session_user <> 'postgres')::int"),
    ("listen", "SELECT count(*) FROM pg_listening_channels()"),
];

/// Queries the state in a transaction that is rolled back, with a search path of its own.
fn truth(client: &mut PgClient) -> Truth {
    client.run("BEGIN; SET LOCAL search_path = pg_catalog");
    let sql = "SELECT name, setting FROM pg_settings WHERE source = 'session' \
        AND name <> 'search_path' ORDER BY 1";
    let mut truth = Truth::default();
    for row in client.run(sql).rows() {
        let [Some(name), Some(value)] = row.as_slice() else { panic!("{row:?}") };
        truth.settings.insert(name.to_ascii_lowercase(), value.clone());
    }
    truth.app = client.value("SELECT coalesce(current_setting('app.a', true), '')");
    for (kind, sql) in KINDS {
        if client.value(sql) != "0" {
            truth.kinds.insert(kind);
        }
    }
    client.run("ROLLBACK");
    truth
}

fn connect(server: &Postgres, user: &str, database: &str) -> PgClient {
    let parameters = [("user", user), ("database", database)];
    PgClient::login(&server.address(), &parameters, "").unwrap()
}

/// A connection that is tracked as in a pooler.
struct Watched {
    client: PgClient,
    dirt: SessionDirt,
    lessons: LessonTable,
    known: BTreeMap<String, String>,
}

impl Watched {
    fn new(server: &Postgres, database: &str, verify: VerifyPolicy) -> Watched {
        Watched {
            client: connect(server, "postgres", database),
            dirt: super::dirt(verify),
            lessons: LessonTable::default(),
            known: BTreeMap::new(),
        }
    }

    /// Runs one text and records the reply. Errors are allowed.
    fn text(&mut self, text: &str) {
        let answer = self.client.query(text).unwrap();
        let own = self.known.contains_key("search_path");
        self.dirt.saw_text(&mut self.lessons, &analyse(text.as_bytes()), own);
        for message in &answer.messages {
            match message.tag {
                b'C' => self.dirt.saw_tag(message.text().as_bytes()),
                b'E' => self.dirt.saw_error(),
                b'Z' => self.dirt.ready(match message.body[0] {
                    b'I' => TransactionStatus::Idle,
                    b'T' => TransactionStatus::InTransaction,
                    _ => TransactionStatus::Failed,
                }),
                _ => {}
            }
        }
        let changes = self.dirt.take_changes();
        self.change(changes);
        if answer.messages.last().is_some_and(|it| it.body == b"I") {
            self.settle();
        }
    }

    fn change(&mut self, changes: Vec<PgSettingChange>) {
        for change in changes {
            match change {
                PgSettingChange::Value { name, value } => drop(self.known.insert(name, value)),
                PgSettingChange::Default { name } => drop(self.known.remove(&name)),
                PgSettingChange::DefaultAll => self.known.clear(),
            }
        }
    }

    /// Runs the probe that the verdict requests.
    fn settle(&mut self) -> ReleaseVerdict {
        let verdict = self.dirt.verdict();
        let ReleaseVerdict::Probe(questions) = verdict else {
            return verdict;
        };
        let answer = self.client.run(&questions.sql());
        self.dirt.asked(questions);
        let mut reader = ProbeReader::new();
        for row in answer.messages.iter().filter(|it| it.tag == b'D') {
            reader.row(&row.body, "postgres").unwrap();
        }
        let known = self.known.clone();
        let knows = |name: &str| known.get(name).cloned();
        let settings = self.dirt.answered(&mut self.lessons, reader.finish(), &knows);
        if let Some(all) = settings.all {
            self.known.retain(|name, _| name.contains('.'));
            self.known.extend(all.into_iter().map(|(name, it)| (name.to_ascii_lowercase(), it)));
        }
        self.change(settings.changes);
        self.dirt.verdict()
    }

    /// Compares the tracked state with the actual one.
    fn check(&mut self, texts: &[&str]) {
        let pins = match self.settle() {
            ReleaseVerdict::Clean => PinReasons::default(),
            ReleaseVerdict::Pinned(reasons) => reasons,
            ReleaseVerdict::Probe(_) => panic!("{texts:?}: asked twice"),
        };
        let truth = truth(&mut self.client);
        let believed: BTreeSet<&str> = pins.names().filter(|it| *it != "search_path").collect();
        assert_eq!(believed, truth.kinds, "{texts:?}");
        let known: BTreeSet<&str> = self.known.keys().map(String::as_str).collect();
        for name in truth.settings.keys() {
            assert!(known.contains(name.as_str()), "{texts:?}: {name} is not known: {known:?}");
        }
        if !self.dirt.has_hidden_settings() {
            let app = self.known.get("app.a").map_or("", String::as_str);
            assert_eq!(app, truth.app, "{texts:?}");
        }
    }

    /// Checks the state that the next client finds.
    fn check_next(&mut self, texts: &[&str]) {
        match self.dirt.leave() {
            DepartureCleanup::Nothing => {}
            DepartureCleanup::Discard => {
                self.client.run("DISCARD ALL");
                self.dirt.discarded();
                self.known.clear();
            }
            DepartureCleanup::Close => return,
        }
        if self.dirt.has_hidden_settings() {
            self.client.run("RESET ALL");
            self.dirt.settings_reset();
        }
        // The pooler resets the settings that it knows of.
        for name in std::mem::take(&mut self.known).into_keys() {
            self.client.run(&format!("RESET {name}"));
        }
        assert_eq!(truth(&mut self.client), Truth::default(), "{texts:?}");
        assert_eq!(self.client.value("SELECT current_setting('role')"), "none", "{texts:?}");
    }
}

/// Each row runs on a connection of its own. Some fail on purpose.
const LEFT: &[&[&str]] = &[
    &["SET work_mem = '2MB'"],
    &["SET SESSION DateStyle = 'SQL', DMY"],
    &["SET TIME ZONE 'UTC'"],
    &["SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE"],
    &["SET NAMES 'latin1'"],
    &["SET app.a = 'x'"],
    &["SET app.a TO E'x\\ty'"],
    &["SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY"],
    &["SET work_mem = '2MB'; SET app.a = 'x'; SELECT 1"],
    &["SET work_mem = '2MB'; SET app.a = 'x'; SELECT 1/0"],
    &["SET work_mem = '2MB'; COMMIT; SET app.a = 'x'; SELECT 1/0"],
    &["BEGIN; SET work_mem = '2MB'; COMMIT; SELECT 1/0"],
    &["BEGIN", "SET work_mem = '2MB'", "COMMIT"],
    &["BEGIN", "SET work_mem = '2MB'", "ROLLBACK"],
    &["BEGIN", "SET work_mem = '2MB'", "SELECT 1/0", "COMMIT"],
    &["BEGIN", "SET work_mem = '2MB'", "COMMIT AND CHAIN", "SET app.a = 'x'", "ROLLBACK"],
    &["BEGIN", "SAVEPOINT s", "SET work_mem = '2MB'", "ROLLBACK TO s", "COMMIT"],
    &["BEGIN", "SET work_mem = '2MB'", "SAVEPOINT s", "SELECT 1/0", "ROLLBACK TO s", "COMMIT"],
    &["BEGIN", "SAVEPOINT s", "SET ROLE other", "RELEASE s", "COMMIT"],
    &["BEGIN", "SET LOCAL work_mem = '2MB'", "COMMIT"],
    &["SET work_mem = '2MB'", "RESET work_mem"],
    &["SET work_mem = '2MB'", "SET work_mem TO DEFAULT"],
    &["SET work_mem = '2MB'", "RESET ALL"],
    &["SET work_mem = '2MB'", "DISCARD ALL"],
    &["SET no_such_setting = 1"],
    &["SELECT set_config('work_mem', '2MB', false)"],
    &["SELECT pg_catalog.set_config('app.a', 'it''s', false), set_config('work_mem', '2MB', true)"],
    &["SELECT set_config('app.a', 'x' || 'y', false)"],
    &["SELECT set_config('app.' || 'a', 'x', false)"],
    &["SELECT set_config(name, '2MB', false) FROM pg_settings WHERE name = 'work_mem'"],
    &["SELECT set_config('app.a', 'x', true)"],
    &["BEGIN", "SELECT set_config('app.a', 'x' || 'y', false)", "ROLLBACK"],
    &["SELECT \"set_config\"('work_mem', '2MB', false)"],
    &["/* a */ SeT/**/work_mem='2MB' -- b"],
    &["SET ROLE other"],
    &["SET ROLE other", "RESET ROLE"],
    &["SET ROLE other", "SET ROLE NONE"],
    &["SET SESSION AUTHORIZATION other"],
    &["SET role = 'other'"],
    &["SELECT set_config('role', 'other', false)"],
    &["BEGIN", "SET LOCAL ROLE other", "COMMIT"],
    &["LISTEN a"],
    &["LISTEN a", "UNLISTEN a"],
    &["LISTEN a; LISTEN b", "UNLISTEN a"],
    &["BEGIN", "LISTEN a", "ROLLBACK"],
    &["NOTIFY a, 'b'"],
    &["CREATE TEMP TABLE t (a int)"],
    &["CREATE TEMP TABLE t (a int)", "DROP TABLE t"],
    &["CREATE TEMP TABLE t (a int)", "DISCARD TEMP"],
    &["BEGIN", "CREATE TEMP TABLE t (a int) ON COMMIT DROP", "COMMIT"],
    &["BEGIN", "CREATE TEMPORARY TABLE t (a int)", "ROLLBACK"],
    &["CREATE TEMP TABLE t AS SELECT 1"],
    &["SELECT 1 AS a INTO TEMPORARY t"],
    &["CREATE TEMP VIEW v AS SELECT 1"],
    &["CREATE LOCAL TEMP SEQUENCE s"],
    &["CREATE TABLE pg_temp.t (a int)"],
    &["EXPLAIN (ANALYZE) CREATE TEMP TABLE t AS SELECT 1"],
    &["SET search_path = pg_temp", "CREATE TABLE t (a int)"],
    &["SELECT set_config('search_path', 'pg_temp', false)", "CREATE TABLE t (a int)"],
    &["SELECT pg_advisory_lock(1)"],
    &["SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)"],
    &["SELECT pg_advisory_lock(1), pg_advisory_lock(2)", "SELECT pg_advisory_unlock(1)"],
    &["SELECT pg_try_advisory_lock_shared(1)", "SELECT pg_advisory_unlock_all()"],
    &["BEGIN", "SELECT pg_advisory_lock(1)", "ROLLBACK"],
    &["SELECT pg_advisory_lock(1) FROM (SELECT 1/0) x"],
    &["SELECT pg_advisory_xact_lock(1)"],
    &["BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "COMMIT"],
    &["DECLARE c CURSOR WITH HOLD FOR SELECT 1", "CLOSE c"],
    &["BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "ROLLBACK"],
    &["BEGIN", "DECLARE c CURSOR FOR SELECT 1", "COMMIT"],
    &["PREPARE p AS SELECT 1"],
    &["PREPARE p AS SELECT 1", "EXECUTE p", "DEALLOCATE p"],
    &["PREPARE p AS SELECT 1", "DEALLOCATE ALL"],
    &["BEGIN", "PREPARE p AS SELECT 1", "ROLLBACK"],
    &["PREPARE p AS SELECT set_config('work_mem', '2MB', false)", "EXECUTE p", "DEALLOCATE p"],
    &["PREPARE p AS SELECT sets()", "CREATE TABLE from_p AS EXECUTE p", "DROP TABLE from_p"],
    &["DO $$BEGIN PERFORM set_config('work_mem', '2MB', false); END$$"],
    &["DO $$BEGIN PERFORM set_config('app.a', 'x', false); END$$"],
    &["DO $$BEGIN PERFORM set_config('work_mem', '2MB', false); COMMIT; RAISE 'late'; END$$"],
    &["CALL commits()"],
    &["SELECT sets()"],
    &["SELECT sets_app()"],
    &["SELECT locks()"],
    &["BEGIN", "SELECT locks()", "ROLLBACK"],
    &["SELECT makes()"],
    &["SELECT prepares()"],
    &["BEGIN", "SELECT prepares()", "ROLLBACK"],
    &["SELECT becomes()"],
    &["SELECT hears()"],
    &["SELECT * FROM plain WHERE sets() IS NULL OR a = 1", "INSERT INTO plain SELECT 1"],
    &["SELECT own.lower('A')"],
    &["SET search_path = own, pg_catalog", "SELECT lower('A')"],
    &["SELECT 1 #+# 'a'::text FROM pg_class LIMIT 1"],
    &["INSERT INTO watched VALUES (1)"],
    &["WITH x AS (INSERT INTO watched VALUES (1) RETURNING a) SELECT * FROM x"],
    &["SELECT * FROM view_that_sets"],
    &["TABLE view_that_sets"],
    &["COPY (SELECT sets()) TO STDOUT"],
    &["COPY (TABLE view_that_sets) TO STDOUT"],
    &["EXPLAIN ANALYZE SELECT sets()"],
    &["CREATE TABLE c (a text DEFAULT sets())", "INSERT INTO c DEFAULT VALUES", "DROP TABLE c"],
    &["SELECT 'a\\'", "SELECT '; SET work_mem = 1"],
    &["SET standard_conforming_strings = off", "SELECT 'a\\'' , set_config('app.a','x',false) --'"],
];

/// Texts that leave no state, and must be trusted without a probe.
const CLEAN: &[&[&str]] = &[
    &["SELECT 1"],
    &["SELECT * FROM plain WHERE a IN (1, 2) FOR UPDATE"],
    &["INSERT INTO plain (a) VALUES (1) ON CONFLICT DO NOTHING"],
    &["UPDATE plain SET a = a + 1"],
    &["DELETE FROM plain"],
    &["BEGIN", "SELECT now()", "SAVEPOINT a", "RELEASE a", "COMMIT"],
    &["BEGIN ISOLATION LEVEL SERIALIZABLE", "SET TRANSACTION READ ONLY", "ROLLBACK"],
    &["BEGIN", "SET CONSTRAINTS ALL DEFERRED", "COMMIT"],
    &["SELECT nextval('numbers')"],
    &["SELECT lower('A'), count(*), sum(a) FROM plain GROUP BY ()"],
    &["SELECT row_number() OVER (ORDER BY a), jsonb_build_object('a', 1) FROM plain"],
    &["SHOW ALL"],
    &["SELECT pg_sleep(0), random(), gen_random_uuid(), txid_current()"],
    &["SELECT 'SET a = 1; LISTEN b; CREATE TEMP TABLE c ()'"],
    &["CREATE TABLE made (a int)", "ALTER TABLE made ADD b int", "DROP TABLE made"],
    &["VACUUM plain", "ANALYZE plain (a)", "TRUNCATE plain"],
    &["EXPLAIN (ANALYZE) SELECT * FROM generate_series(1, 3) AS g (a)"],
    &["BEGIN", "DECLARE c CURSOR FOR SELECT 1", "FETCH ALL FROM c", "COMMIT"],
    &["NOTIFY a, 'b'", "SELECT pg_notify('a', 'c')"],
    &["SELECT set_config('work_mem', '2MB', true)"],
];

fn check_all(server: &Postgres) {
    let url = server.database();
    let database = url.rsplit('/').next().and_then(|it| it.split('?').next()).unwrap();
    connect(server, "postgres", database).run(OBJECTS);
    for texts in LEFT {
        for verify in [VerifyPolicy::Unknown, VerifyPolicy::Always] {
            let mut watched = Watched::new(server, database, verify);
            texts.iter().for_each(|text| watched.text(text));
            watched.check(texts);
            watched.check_next(texts);
        }
    }
    for texts in CLEAN {
        let mut watched = Watched::new(server, database, VerifyPolicy::Never);
        texts.iter().for_each(|text| watched.text(text));
        assert_eq!(watched.dirt.verdict(), ReleaseVerdict::Clean, "{texts:?}");
        assert!(!watched.dirt.has_hidden_settings(), "{texts:?}");
        assert!(watched.known.is_empty(), "{texts:?}");
        watched.check_next(texts);
    }
}

#[test]
fn what_a_server_keeps_is_never_missed() {
    check_all(&Postgres::start());
}

#[test]
fn what_a_newer_server_keeps_is_never_missed() {
    check_all(&Postgres::start_18(&[]));
}

#[test]
fn a_role_without_rights_and_a_hostile_path_get_the_same_answer() {
    let server = Postgres::start();
    connect(&server, "postgres", "postgres").run(
        "CREATE ROLE poor LOGIN;
         CREATE SCHEMA trap;
         GRANT USAGE ON SCHEMA trap TO poor;
         CREATE FUNCTION trap.eq(text, text) RETURNS bool LANGUAGE plpgsql
            AS 'BEGIN RAISE ''trap''; END';
         CREATE FUNCTION trap.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 0';
         CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.eq);
         CREATE DOMAIN trap.oid AS int CHECK (value IS NULL);
         CREATE DOMAIN trap.text AS int CHECK (value IS NULL);",
    );
    let mut client = connect(&server, "poor", "postgres");
    client.run("SET search_path = trap, pg_catalog");
    client.run("SELECT pg_catalog.pg_advisory_lock(1)");
    let answer = client.run(&ProbeQueries::about(ProbeTopics::ALL).sql());
    let mut reader = ProbeReader::new();
    for row in answer.messages.iter().filter(|it| it.tag == b'D') {
        reader.row(&row.body, "poor").unwrap();
    }
    let found = reader.finish();
    assert!(found.advisory_locks && !found.role_changed && !found.temp_tables);
    let path = ("search_path".to_owned(), "trap, pg_catalog".to_owned());
    assert_eq!(found.settings, [path]);
}
