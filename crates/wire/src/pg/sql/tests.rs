//! Analysis of texts: tables of texts without effects, of texts with effects, and of details.

use proptest::prelude::*;

use super::lexer::{PgLexer, PgTokenKind};
use super::*;

fn check(text: &str, expected: PgEffects) {
    let soft = PgEffects::HIDDEN | PgEffects::BUILTIN | PgEffects::CREATE | PgEffects::DROP;
    let found = effects(text.as_bytes());
    assert_eq!(found.without(soft), expected, "{text}");
    assert_eq!(effects(text.to_ascii_uppercase().as_bytes()).is_empty(), found.is_empty());
}

#[test]
fn what_leaves_nothing_has_no_bit() {
    for text in [
        "",
        ";",
        "SELECT 1",
        "select 1; ",
        "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
        "SELECT now(), clock_timestamp(), random(), gen_random_uuid()",
        "SELECT count(*), sum(x) OVER (PARTITION BY (y) ORDER BY (z)) FROM t",
        "SELECT count(*) FILTER (WHERE a) FROM t GROUP BY GROUPING SETS ((a), (b))",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM t",
        "SELECT * FROM t WHERE id IN (1, 2) AND (a OR NOT (b)) AND EXISTS (SELECT 1)",
        "SELECT * FROM a JOIN (SELECT 1) b ON (a.x = b.x) LEFT JOIN c USING (id)",
        "SELECT * FROM generate_series(1, 2) AS t(a), unnest(ARRAY[1]) u(b)",
        "INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = excluded.b",
        "INSERT INTO temp (a) VALUES (1)",
        "INSERT INTO temp SELECT 1",
        "UPDATE t SET temp = 1, role = 'x', listen = 2 WHERE hold = 3",
        "DELETE FROM t USING (VALUES (1)) v (id) WHERE t.id = v.id RETURNING *",
        "WITH x (a, b) AS (SELECT 1, 2), y AS MATERIALIZED (SELECT 3) SELECT * FROM x, y",
        "WITH RECURSIVE x (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM x) SELECT * FROM x",
        "SELECT temp, temporary FROM weather",
        "SELECT t.temp, t.set_config, x.listen FROM t",
        "SELECT 'SET a = 1; LISTEN x; set_config('",
        "SELECT $$ SET x = 1; pg_advisory_lock(1) $$",
        "SELECT $a$ $$ $b$ pg_advisory_lock(1) $a$",
        "SELECT E'it\\'s; LISTEN x'",
        "/* SET x = 1; /* LISTEN y; */ still */ SELECT 1 -- ; LOAD 'x'",
        "SELECT \"pg_advisory_lock\" FROM \"my(table\"",
        "SELECT x::numeric(10, 2), y::varchar(3), CAST(z AS timestamp(3)) FROM t",
        "SELECT pg_advisory_xact_lock(1), pg_try_advisory_xact_lock(2)",
        "SELECT pg_catalog.lower('A'), left('abc', 1), right('abc', 1), coalesce(a, b) FROM t",
        "SELECT a OPERATOR(pg_catalog.+) b FROM t",
        "SELECT * FROM t FOR UPDATE SKIP LOCKED",
        "SELECT extract(year from now()), substring('a' from 1), trim(both from 'a')",
        "SELECT interval '1 day', timestamp '2020-01-01', a[1], (b).c, $1::text[] FROM t",
        "VALUES (1), (2)",
        "TABLE t",
        "(SELECT 1) UNION (SELECT 2)",
        "SHOW search_path",
        "EXPLAIN (ANALYZE, BUFFERS) SELECT 1",
        "CREATE TABLE t (id int PRIMARY KEY, temp int)",
        "VACUUM (ANALYZE) t",
        "ANALYZE t (a)",
        "DECLARE c CURSOR FOR SELECT 1",
        "DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1",
        "FETCH 10 FROM c",
        "TRUNCATE t",
        "ALTER ROLE x SET search_path = y",
    ] {
        check(text, PgEffects::NONE);
    }
}

/// Several statements, of which one follows the end of a transaction.
const ENDED: PgEffects = PgEffects::MULTI.with(PgEffects::TRANSACTION).with(PgEffects::AFTER_END);

/// Texts with their effects.
const LEAVES: &[(&str, PgEffects)] = &[
    ("SET a = 1", PgEffects::SET),
    ("SET SESSION a = 1", PgEffects::SET),
    ("SET \"TimeZone\" TO 'UTC'", PgEffects::SET),
    ("SET TIME ZONE 'UTC'", PgEffects::SET),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", PgEffects::SET),
    ("SET LOCAL a = 1", PgEffects::SET_LOCAL),
    ("SET LOCAL ROLE x", PgEffects::SET_LOCAL),
    ("SET TRANSACTION READ WRITE", PgEffects::SET_LOCAL.with(PgEffects::READ_WRITE)),
    ("SET CONSTRAINTS ALL DEFERRED", PgEffects::SET_LOCAL),
    ("SET ROLE x", PgEffects::ROLE),
    ("SET role = 'x'", PgEffects::ROLE),
    ("SET SESSION \"Role\" = 'x'", PgEffects::ROLE),
    ("SET SESSION ROLE x", PgEffects::ROLE),
    ("SET SESSION AUTHORIZATION x", PgEffects::ROLE),
    ("SET SESSION SESSION AUTHORIZATION x", PgEffects::ROLE),
    ("SET session_authorization TO x", PgEffects::ROLE),
    ("RESET SESSION AUTHORIZATION", PgEffects::ROLE),
    ("RESET ROLE", PgEffects::ROLE),
    ("RESET role", PgEffects::ROLE),
    ("RESET a", PgEffects::RESET),
    ("RESET ALL", PgEffects::RESET),
    ("SET seed = 0.1", PgEffects::SEED),
    ("SET SEED TO 0.1", PgEffects::SEED),
    ("SET LOCAL seed TO 0.1", PgEffects::SEED),
    ("SELECT setseed(0.1)", PgEffects::SEED),
    ("LISTEN a", PgEffects::LISTEN),
    ("UNLISTEN *", PgEffects::UNLISTEN),
    ("NOTIFY a, 'b'", PgEffects::NOTIFY),
    ("SELECT pg_notify('a', 'b')", PgEffects::NOTIFY),
    ("CREATE TEMP TABLE t (a int)", PgEffects::TEMP),
    ("CREATE LOCAL TEMPORARY TABLE t (a int)", PgEffects::TEMP),
    ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", PgEffects::TEMP),
    ("CREATE TEMP SEQUENCE s", PgEffects::TEMP),
    ("CREATE TABLE pg_temp.t (a int)", PgEffects::TEMP),
    ("CREATE TABLE \"pg_temp\".t (a int)", PgEffects::TEMP),
    ("CREATE TABLE pg_temp_3.t (a int)", PgEffects::TEMP),
    ("SELECT 1 INTO TEMP t", PgEffects::TEMP),
    ("SELECT 1into temp t", PgEffects::TEMP),
    ("EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1", PgEffects::TEMP),
    ("SELECT pg_advisory_lock(1)", PgEffects::ADVISORY),
    ("SELECT/**/pg_catalog . pg_try_advisory_lock (1)", PgEffects::ADVISORY),
    ("SELECT \"pg_advisory_lock\"(1)", PgEffects::ADVISORY),
    ("SELECT 1 FROM t WHERE pg_advisory_unlock(1)", PgEffects::ADVISORY),
    ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", PgEffects::HOLD),
    ("CLOSE c", PgEffects::HOLD),
    ("PREPARE p (int) AS SELECT $1", PgEffects::PREPARE),
    ("PREPARE TRANSACTION 'x'", PgEffects::TRANSACTION),
    ("EXECUTE p (1)", PgEffects::EXECUTE),
    ("CREATE TABLE t AS EXECUTE p", PgEffects::EXECUTE),
    ("EXPLAIN ANALYZE EXECUTE p", PgEffects::EXECUTE),
    ("DEALLOCATE p", PgEffects::DEALLOCATE),
    ("DISCARD ALL", PgEffects::DISCARD),
    ("LOAD 'auto_explain'", PgEffects::LOAD),
    ("SELECT currval('s'), lastval()", PgEffects::SEQUENCE_READ),
    ("SELECT nextval('s'), pg_catalog.setval('s', 1)", PgEffects::SEQUENCE_WRITE),
    ("DO $$ BEGIN PERFORM set_config('a', 'b', false); END $$", PgEffects::DO),
    ("CALL p(1)", PgEffects::CALL),
    ("CALL s.p(f(1))", PgEffects::CALL.with(PgEffects::FUNCTION)),
    ("SELECT my_function(1)", PgEffects::FUNCTION),
    ("SELECT public.lower('A')", PgEffects::FUNCTION),
    ("SELECT a.pg_catalog.lower('A')", PgEffects::FUNCTION),
    ("SELECT \"Lower\"('A')", PgEffects::FUNCTION),
    ("SELECT * FROM f(1) AS t(a)", PgEffects::FUNCTION),
    ("SELECT a OPERATOR(public.+) b FROM t", PgEffects::FUNCTION),
    ("SELECT (1) OPERATOR(public.+) b FROM t", PgEffects::FUNCTION),
    ("SELECT query_to_xml('SET a = 1', true, true, '')", PgEffects::FUNCTION),
    ("SELECT ts_stat('SELECT 1')", PgEffects::FUNCTION),
    ("SELECT \"select\"(1)", PgEffects::FUNCTION),
    ("SELECT (a).b(1), a[1].c(2)", PgEffects::FUNCTION),
    ("SELECT set_config('a.b', $1, false)", PgEffects::SET_CONFIG),
    ("SELECT set_config('a.b', 'c', true)", PgEffects::SET_LOCAL),
    ("SELECT set_config('role', 'x', false)", PgEffects::ROLE),
    (
        "SELECT set_config('a' || 'b', 'x', false)",
        PgEffects::SET_CONFIG.with(PgEffects::READ_WRITE),
    ),
    ("SELECT set_config($1, $2, true)", PgEffects::SET_LOCAL.with(PgEffects::READ_WRITE)),
    (
        "SELECT set_config('transaction_read_only', 'off', true)",
        PgEffects::SET_LOCAL.with(PgEffects::READ_WRITE),
    ),
    ("BEGIN", PgEffects::TRANSACTION),
    ("START TRANSACTION READ WRITE", PgEffects::TRANSACTION.with(PgEffects::READ_WRITE)),
    ("ROLLBACK TO SAVEPOINT a", PgEffects::TRANSACTION.with(PgEffects::ROLLBACK_TO)),
    ("COPY t (a) FROM STDIN", PgEffects::COPY),
    ("SELECT 1; SELECT 2", PgEffects::MULTI),
    ("BEGIN; SELECT 1", PgEffects::MULTI.with(PgEffects::TRANSACTION)),
    ("BEGIN; SELECT 1; COMMIT", PgEffects::MULTI.with(PgEffects::TRANSACTION)),
    ("COMMIT; SELECT 1", ENDED),
    ("/**/ end; select 1", ENDED),
    ("SELECT 1; PREPARE TRANSACTION 'x'; SELECT 1", ENDED),
    ("ROLLBACK; SELECT 1", ENDED),
    ("ABORT; BEGIN; ROLLBACK TO a", ENDED.with(PgEffects::ROLLBACK_TO)),
    (
        "ROLLBACK TO a; RELEASE a; SELECT 1",
        PgEffects::MULTI.with(PgEffects::TRANSACTION).with(PgEffects::ROLLBACK_TO),
    ),
    ("ALTER TABLE t ADD CHECK (f(a)); LOAD 'x'", {
        PgEffects::MULTI.with(PgEffects::FUNCTION).with(PgEffects::LOAD)
    }),
    ("FROBNICATE", PgEffects::UNPARSED),
    ("SELECT 'open", PgEffects::UNPARSED),
    ("SELECT $a$ open $b$", PgEffects::UNPARSED),
    ("SELECT 1 /* open /* */", PgEffects::UNPARSED),
    ("SELECT 'a\\' ; SET x = 1 --'", PgEffects::UNPARSED),
    ("SELECT 'a\\\\'", PgEffects::NONE),
    ("SELECT E'a' \n'b\\'; SET x = 1 --'", PgEffects::UNPARSED),
    ("SELECT 1 AS U&\"d!0061t\" UESCAPE '!'", PgEffects::UNPARSED),
    ("CREATE EXTENSION x", PgEffects::UNPARSED),
    ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END", PgEffects::UNPARSED),
    ("CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2)", PgEffects::FUNCTION),
];

#[test]
fn what_leaves_something_has_its_bit() {
    for (text, expected) in LEAVES {
        check(text, *expected);
    }
}

#[test]
fn a_zero_byte_hides_nothing() {
    assert!(effects(b"SELECT 1\0; SET x = 1").contains(PgEffects::UNPARSED));
}

#[test]
fn bytes_of_other_encodings_do_not_hide_a_quote() {
    // In SJIS the backslash is the second byte of a character; in UTF-8 it escapes the quote.
    assert!(effects(b"SELECT E'\x83\\'; SET x = 1 --'").contains(PgEffects::UNPARSED));
    assert!(effects(b"SELECT E'\\\x83\\'; SET x = 1 --'").contains(PgEffects::UNPARSED));
}

#[test]
fn code_that_is_not_in_the_text_is_suspected() {
    for (text, hidden) in [
        ("SELECT 1 AS one", false),
        ("SELECT $1::int8", false),
        ("BEGIN", false),
        ("SHOW x", false),
        ("SELECT a FROM t", true),
        ("SELECT 'x'::mood", true),
        ("SELECT CAST('x' AS mood)", true),
        ("INSERT INTO t VALUES (1)", true),
        ("TABLE t", true),
        ("ALTER TABLE t ADD c int", true),
        ("COPY t FROM STDIN", true),
    ] {
        assert_eq!(effects(text.as_bytes()).contains(PgEffects::HIDDEN), hidden, "{text}");
    }
}

#[test]
fn an_own_search_path_takes_the_trust_from_plain_names() {
    let hard = |text: &str| effects(text.as_bytes()).with_own_search_path();
    assert!(hard("SELECT lower('A')").contains(PgEffects::FUNCTION));
    assert!(!hard("SELECT pg_catalog.lower('A')").contains(PgEffects::FUNCTION));
    assert!(hard("CREATE TABLE t (a int)").contains(PgEffects::TEMP));
}

fn value(name: &str, value: &str) -> PgSettingChange {
    PgSettingChange::Value { name: name.to_owned(), value: value.to_owned() }
}

fn default(name: &str) -> PgSettingChange {
    PgSettingChange::Default { name: name.to_owned() }
}

#[test]
fn changes_of_settings_are_understood() {
    for (text, expected) in [
        ("SET a.b = 'it''s'", vec![value("a.b", "it's")]),
        ("SET work_mem TO '64MB';", vec![value("work_mem", "64MB")]),
        ("SET Work_Mem = 65536", vec![value("work_mem", "65536")]),
        ("SET x = -1", vec![value("x", "-1")]),
        ("SET x = +1.5", vec![value("x", "1.5")]),
        ("SET x = ON", vec![value("x", "on")]),
        ("SET x = E'a\\'b\\\\'", vec![value("x", "a'b\\")]),
        ("SET x = $$a'b$$", vec![value("x", "a'b")]),
        ("SET x TO DEFAULT", vec![default("x")]),
        ("SET SESSION x TO DEFAULT", vec![default("x")]),
        ("SET DateStyle = ISO, MDY", vec![value("datestyle", "iso, mdy")]),
        ("SET search_path = \"$user\", public", vec![value("search_path", "\"$user\", public")]),
        ("SET search_path TO 'A', 'b, c'", vec![value("search_path", "\"A\", \"b, c\"")]),
        ("SET SCHEMA 'Mine'", vec![value("search_path", "\"Mine\"")]),
        ("SET NAMES 'utf8'", vec![value("client_encoding", "utf8")]),
        ("SET NAMES", vec![default("client_encoding")]),
        ("SET TIME ZONE 'Europe/Berlin'", vec![value("timezone", "Europe/Berlin")]),
        ("SET TIME ZONE -7", vec![value("timezone", "-7")]),
        ("SET TIME ZONE LOCAL", vec![default("timezone")]),
        ("SET XML OPTION DOCUMENT", vec![value("xmloption", "document")]),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            vec![
                value("default_transaction_isolation", "repeatable read"),
                value("default_transaction_read_only", "on"),
            ],
        ),
        ("SET transaction_isolation = 'serializable'", vec![]),
        ("RESET x", vec![default("x")]),
        ("RESET ALL", vec![PgSettingChange::DefaultAll]),
        ("RESET TIME ZONE", vec![default("timezone")]),
        ("SET LOCAL x = 1", vec![]),
        ("SET ROLE x", vec![]),
        ("SET a = 1; SELECT 1; SET b = 2", vec![value("a", "1"), value("b", "2")]),
        ("SELECT pg_catalog.set_config('search_path', '', false);", vec![value("search_path", "")]),
        (
            "SELECT set_config('a', '1', false), set_config('b', '2', false)",
            vec![value("a", "1"), value("b", "2")],
        ),
        ("SELECT set_config('a', '1', true)", vec![]),
    ] {
        let analysis = analyse(text.as_bytes());
        assert_eq!(analysis.changes, expected, "{text}");
        assert!(
            !analysis.effects.intersects(PgEffects::UNPARSED | PgEffects::SET_CONFIG),
            "{text}"
        );
    }
}

#[test]
fn what_is_not_understood_says_so() {
    for text in [
        "SET",
        "SET x",
        "SET x = a b",
        "SET x FROM CURRENT",
        "SET TIME ZONE INTERVAL '1' HOUR",
        "SET search_path = pg_temp, public",
        "SET search_path = 'PG_TEMP'",
        "SET \"a b\" = 1",
        "RESET",
        "LISTEN",
        "LISTEN 'a'",
        "LISTEN a b",
    ] {
        let analysis = analyse(text.as_bytes());
        assert!(analysis.effects.contains(PgEffects::UNPARSED), "{text}");
        assert!(analysis.changes.is_empty(), "{text}");
    }
}

#[test]
fn set_config_that_is_not_alone_names_what_to_ask_for() {
    let some = |names: &[&str]| Some(names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    for (text, unresolved) in [
        ("SELECT set_config('App.User', $1, false)", some(&["app.user"])),
        ("SELECT set_config('a', x, false), set_config('b', '1', true) FROM t", some(&["a"])),
        ("SELECT set_config('a', 'b', $1)", some(&["a"])),
        ("SELECT set_config($1, 'b', false)", None),
        ("SELECT set_config('a', 'b', false), set_config(x, 'b', false) FROM t", None),
        ("PREPARE p AS SELECT set_config('a', 'b', false)", some(&["a"])),
        ("CREATE TABLE t AS SELECT set_config('a', 'b', false)", some(&["a"])),
        ("EXPLAIN ANALYZE SELECT set_config('a', 'b', false)", some(&["a"])),
        ("SELECT set_config('a', 'b', false) WHERE false", some(&["a"])),
        ("SELECT set_config('search_path', 'pg_temp', false)", some(&["search_path"])),
        ("SET a = 'a\\b'", some(&["a"])),
        ("set session App.User to E'\\x41'", some(&["app.user"])),
        ("SELECT set_config('a', 'b', false) FROM (SELECT set_config(f(), 'c', false)) x", None),
    ] {
        let analysis = analyse(text.as_bytes());
        assert!(analysis.effects.contains(PgEffects::SET_CONFIG), "{text}");
        assert_eq!(analysis.unresolved, unresolved, "{text}");
        assert!(analysis.changes.is_empty(), "{text}");
    }
}

#[test]
fn code_that_is_elsewhere_may_be_told_of_settings() {
    for (text, mentions) in [
        ("SELECT f('App.User', 'it''s', '1.5')", &["app.user"][..]),
        ("DO $x$ BEGIN PERFORM f('a.b', 'c.d'); END $x$", &["a.b", "c.d"]),
        ("DO 'BEGIN PERFORM f(''a.b'', ''a.b''); END'", &["a.b"]),
        ("SELECT 'a.b'", &[]),
    ] {
        assert_eq!(analyse(text.as_bytes()).mentions, mentions, "{text}");
    }
    let many: String = (0..100).map(|number| format!("'a.b{number}',")).collect();
    assert_eq!(analyse(format!("SELECT f({many} 1)").as_bytes()).mentions.len(), 16);
}

#[test]
fn names_are_found_where_they_stand() {
    for (text, act, name, place) in [
        ("PREPARE p AS SELECT 1", PgNameAction::Prepare, "p", "p"),
        ("EXECUTE \"P q\" (1)", PgNameAction::Execute, "P q", "\"P q\""),
        ("CREATE TABLE t AS EXECUTE P", PgNameAction::Execute, "p", "P"),
        ("EXPLAIN (ANALYZE) EXECUTE P(1)", PgNameAction::Execute, "p", "P"),
        ("DEALLOCATE PREPARE Foo", PgNameAction::Deallocate, "foo", "Foo"),
        ("DEALLOCATE prepare", PgNameAction::Deallocate, "prepare", "prepare"),
        ("DEALLOCATE ALL", PgNameAction::DeallocateAll, "", ""),
        ("DEALLOCATE PREPARE ALL", PgNameAction::DeallocateAll, "", ""),
        ("DISCARD ALL", PgNameAction::DiscardAll, "", ""),
        ("LISTEN \"a\"\"b\"", PgNameAction::Listen, "a\"b", "\"a\"\"b\""),
        ("UNLISTEN X", PgNameAction::Unlisten, "x", "X"),
        ("UNLISTEN *", PgNameAction::UnlistenAll, "", ""),
    ] {
        let analysis = analyse(text.as_bytes());
        let [found] = analysis.names.as_slice() else { panic!("{text}: {:?}", analysis.names) };
        assert_eq!((found.act, found.name.as_str()), (act, name), "{text}");
        assert_eq!(&text[found.range.clone()], place, "{text}");
    }
    let long = "é".repeat(40);
    let analysis = analyse(format!("LISTEN {long}").as_bytes());
    assert_eq!(analysis.names[0].name, "é".repeat(31));
}

#[test]
fn listen_becomes_unlisten() {
    let text = b"BEGIN; listen A; SELECT 'LISTEN b'; UNLISTEN *; LISTEN \"C\"";
    let (rewritten, actions) = rewrite_listen(text).unwrap();
    let expected = "BEGIN; UNLISTEN A; SELECT 'LISTEN b'; UNLISTEN *; UNLISTEN \"C\"";
    assert_eq!(rewritten, expected.as_bytes());
    let action = |statement, subscription| ListenAction { statement, subscription };
    let expected = [
        action(1, SubscriptionChange::Begin("a".to_owned())),
        action(3, SubscriptionChange::EndAll),
        action(4, SubscriptionChange::Begin("C".to_owned())),
    ];
    assert_eq!(actions, expected);
    for text in ["SELECT 1", "LISTEN 'a'", "LISTEN a; SELECT 'b\\'"] {
        assert_eq!(rewrite_listen(text.as_bytes()), None, "{text}");
    }
    assert_eq!(rewrite_name(b"EXECUTE a(1)", 8..9, b"cove_1"), b"EXECUTE cove_1(1)");
}

#[test]
fn asking_to_write_is_seen() {
    for (text, expected) in [
        ("SET default_transaction_read_only = off", true),
        ("SET default_transaction_read_only TO DEFAULT", true),
        ("SET default_transaction_read_only = on", false),
        ("SET default_transaction_read_only = on; SET LOCAL transaction_read_only = off", true),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", true),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", false),
        ("BEGIN READ WRITE", true),
        ("BEGIN READ ONLY", false),
        ("SELECT set_config('default_transaction_read_only', 'off', false)", true),
        ("SELECT read, write FROM t", false),
        ("RESET default_transaction_read_only", true),
    ] {
        let found = analyse(text.as_bytes()).effects.contains(PgEffects::READ_WRITE);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn texts_with_other_constants_have_one_fingerprint() {
    let print = |text: &str| analyse(text.as_bytes()).fingerprint;
    for (one, other, same) in [
        ("SELECT f(1)", "select  F( 'x' ) -- y", true),
        ("SELECT 1 WHERE a IN (1,2,3)", "SELECT 1 WHERE a IN ($1)", true),
        ("SELECT f(1)", "SELECT g(1)", false),
        ("SELECT a, b", "SELECT ab", false),
        ("SELECT \"A\"", "SELECT \"a\"", false),
    ] {
        assert_eq!(print(one) == print(other), same, "{one} | {other}");
    }
}

#[test]
fn a_difficult_text_takes_linear_time() {
    let many = 200_000;
    for text in [
        "(".repeat(many),
        "/*".repeat(many),
        "$a$a".repeat(many),
        "set_config(".repeat(many),
        "SELECT set_config('a','b',".repeat(many / 8),
        "SET a = ".repeat(many / 8),
        ";".repeat(many),
        "LISTEN a;".repeat(many / 8),
        "'\\".repeat(many),
    ] {
        let analysis = analyse(text.as_bytes());
        assert!(analysis.names.len() <= 64 && analysis.changes.len() <= 64);
    }
}

/// Texts of parts that are likely to interact badly.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        proptest::sample::select(vec![
            "'",
            "\"",
            "$$",
            "$a$",
            "/*",
            "*/",
            "--",
            "\n",
            "\\",
            "E'",
            "U&'",
            "U&\"",
            ";",
            "(",
            ")",
            ",",
            ".",
            "::",
            "SET",
            " a ",
            "=",
            "set_config",
            "'a'",
            "false",
            "LISTEN",
            "EXECUTE",
            "ALL",
            "pg_catalog",
            "TEMP",
            "CREATE",
            "1",
            "$1",
            "\u{e9}",
            "TO",
            "SELECT",
        ])
        .prop_map(|it| it.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 1..3),
    ];
    proptest::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn tokens_are_in_order_and_within_the_text(text in text()) {
        let mut last = 0;
        let mut lexer = PgLexer::new(&text);
        for token in lexer.by_ref() {
            prop_assert!(token.start >= last && token.end > token.start);
            prop_assert!(token.end <= text.len());
            last = token.end;
            let first = text[token.start];
            prop_assert_eq!(token.kind == PgTokenKind::Quoted, first == b'"');
        }
    }

    #[test]
    fn nothing_panics_and_both_answers_agree(text in text()) {
        let analysis = analyse(&text);
        let found = effects(&text);
        // The second analysis may only remove what it understood.
        let refined = PgEffects::SET_CONFIG | PgEffects::READ_WRITE;
        prop_assert!(analysis.effects.with(refined).contains(found));
        for name in &analysis.names {
            prop_assert!(text.get(name.range.clone()).is_some());
        }
        let _rewritten = rewrite_listen(&text);
    }

    #[test]
    fn a_quoted_literal_is_one_token(value in ".*") {
        let mut out = Vec::new();
        quote_literal(&mut out, &value);
        let kinds: Vec<PgTokenKind> = PgLexer::new(&out).map(|it| it.kind).collect();
        if value.contains('\0') {
            return Ok(());
        }
        // A character beyond ASCII before a backslash is ambiguous, and counts as broken.
        let expected = if value.contains('\\') { PgTokenKind::Escaped } else { PgTokenKind::Plain };
        prop_assert!(kinds == [expected] || kinds.is_empty(), "{kinds:?}");
    }
}
