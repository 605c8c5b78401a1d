//! Variables, names and queries in texts, and rewritten texts.

use super::*;

fn literal(name: &str, value: &str) -> (VariableScope, String, AssignedValue) {
    (VariableScope::Session, name.to_owned(), AssignedValue::Literal(value.to_owned()))
}

fn other(
    scope: VariableScope,
    name: &str,
    value: AssignedValue,
) -> (VariableScope, String, AssignedValue) {
    (scope, name.to_owned(), value)
}

fn names_of(charset: &str) -> Vec<(VariableScope, String, AssignedValue)> {
    let names = ["character_set_client", "character_set_connection", "character_set_results"];
    names.iter().map(|name| literal(name, charset)).collect()
}

fn check(text: &str, expected: &[(VariableScope, String, AssignedValue)]) {
    let details = details(text.as_bytes(), PLAIN);
    assert!(!details.lost, "{text}");
    let found: Vec<_> =
        details.assignments.into_iter().map(|it| (it.scope, it.name, it.value)).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn assignments_are_read() {
    for (text, expected) in [
        ("SET a = 1", vec![literal("a", "1")]),
        ("SET Sql_Mode := 'it''s', @x = (1, 2), b = \"x\"", {
            vec![literal("sql_mode", "it's"), literal("b", "x")]
        }),
        ("SET a = -1.5, SESSION b = ON, @@c = TRUE, `d` = latin1, @@local.e = + 2", {
            let d = literal("d", "latin1");
            vec![literal("a", "-1.5"), literal("b", "ON"), literal("c", "1"), d, literal("e", "2")]
        }),
        ("SET a = 'x\\n\\'\\%\\\\'", vec![literal("a", "x\n'\\%\\")]),
        (
            "SET a = DEFAULT; SELECT 1",
            vec![other(VariableScope::Session, "a", AssignedValue::Default)],
        ),
        ("SET a = 'x' 'y', b = 1", {
            vec![other(VariableScope::Session, "a", AssignedValue::Expression), literal("b", "1")]
        }),
        ("SET a = NULL, b = @@c, d = f(1, 2), e = 0x1f, g = 1e5, h = _utf8'x', i = N'x'", {
            let name = |name| other(VariableScope::Session, name, AssignedValue::Expression);
            ["a", "b", "d", "e", "g", "h", "i"].map(name).to_vec()
        }),
        ("SET GLOBAL a = 1, @@persist.b = 2, @@global.c.d = 3", {
            let global = |name, value: &str| {
                other(VariableScope::Global, name, AssignedValue::Literal(value.to_owned()))
            };
            vec![global("a", "1"), global("b", "2"), global("d", "3")]
        }),
        ("SET @@tx_isolation = 'SERIALIZABLE'", {
            let value = AssignedValue::Literal("SERIALIZABLE".to_owned());
            vec![other(VariableScope::Next, "tx_isolation", value)]
        }),
        ("SET TRANSACTION READ ONLY", {
            let value = AssignedValue::Literal("1".to_owned());
            vec![other(VariableScope::Next, "transaction_read_only", value)]
        }),
        ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE", {
            vec![
                literal("transaction_isolation", "READ-COMMITTED"),
                literal("transaction_read_only", "0"),
            ]
        }),
        ("SET NAMES utf8mb4", names_of("utf8mb4")),
        ("SET NAMES 'latin1' COLLATE 'latin1_bin', a = 1", {
            let mut all = names_of("latin1");
            all.extend([literal("collation_connection", "latin1_bin"), literal("a", "1")]);
            all
        }),
        ("SET CHARACTER SET latin1", {
            let unresolved = |name| other(VariableScope::Session, name, AssignedValue::Expression);
            vec![
                literal("character_set_client", "latin1"),
                literal("character_set_results", "latin1"),
                unresolved("character_set_connection"),
                unresolved("collation_connection"),
            ]
        }),
        ("SET STATEMENT a = 1, b = (SELECT 1) FOR SELECT 2", vec![]),
        ("SET PASSWORD = 'x'", vec![]),
        ("SET ROLE a", vec![]),
        ("SELECT 1; SET a = 1; SET b = 2;", vec![literal("a", "1"), literal("b", "2")]),
        ("/*!40101 SET a = 1 */", vec![literal("a", "1")]),
        ("CREATE PROCEDURE p() BEGIN SET a = 1; END; SET b = 2", vec![literal("b", "2")]),
    ] {
        check(text, &expected);
    }
}

#[test]
fn what_cannot_be_read_is_lost() {
    for text in [
        "SET",
        "SET a",
        "SET a b",
        "SET a.b = 1",
        "SET RESOURCE GROUP g",
        "SET TRANSACTION",
        "SET TRANSACTION ISOLATION LEVEL x",
        "SET STATEMENT a = 1",
        "SET STATEMENT a = 1 FOR SET b = 2",
        "SET a = 'open",
        "SET a = 1 /*!80000 , b = 2 */",
        "USE",
        "USE 'a'",
        "USE a b",
        "PREPARE",
        "DEALLOCATE s",
        "CREATE TEMPORARY VIEW v",
        "DROP TEMPORARY VIEW v",
        "DROP TABLE",
    ] {
        let found = details(text.as_bytes(), PLAIN);
        assert!(found.lost, "{text}");
        assert!(found.assignments.is_empty() && found.names.is_empty(), "{text}");
    }
    let many: String = (0..100).map(|number| format!("a{number} = 1,")).collect();
    assert!(details(format!("SET {many} b = 1").as_bytes(), PLAIN).lost);
}

#[test]
fn names_are_read() {
    for (text, expected) in [
        ("USE `a``b`", vec![(MysqlNameAction::Use, None, "a`b")]),
        (
            "use A; use b",
            vec![(MysqlNameAction::Use, None, "A"), (MysqlNameAction::Use, None, "b")],
        ),
        ("PREPARE S FROM 'SELECT 1'", vec![(MysqlNameAction::Prepare, None, "s")]),
        ("EXECUTE `S` USING @a", vec![(MysqlNameAction::Execute, None, "s")]),
        ("EXECUTE IMMEDIATE 'SELECT 1'", vec![(MysqlNameAction::ExecuteImmediate, None, "")]),
        ("DEALLOCATE PREPARE S; DROP PREPARE t", {
            vec![(MysqlNameAction::Deallocate, None, "s"), (MysqlNameAction::Deallocate, None, "t")]
        }),
        ("CREATE OR REPLACE TEMPORARY TABLE IF NOT EXISTS `D`.T (a int)", {
            vec![(MysqlNameAction::CreateTemporary, Some("D"), "T")]
        }),
        (
            "CREATE TEMPORARY SEQUENCE s",
            vec![(MysqlNameAction::CreateTemporarySequence, None, "s")],
        ),
        ("DROP TEMPORARY SEQUENCE s", vec![(MysqlNameAction::DropSequence, None, "s")]),
        (
            "DROP SEQUENCE IF EXISTS s, d.r",
            vec![
                (MysqlNameAction::DropSequence, None, "s"),
                (MysqlNameAction::DropSequence, Some("d"), "r"),
            ],
        ),
        ("CREATE TABLE t (a int)", vec![]),
        ("DROP TEMPORARY TABLE IF EXISTS a, d.b RESTRICT", {
            vec![(MysqlNameAction::Drop, None, "a"), (MysqlNameAction::Drop, Some("d"), "b")]
        }),
        ("DROP TABLES a", vec![(MysqlNameAction::Drop, None, "a")]),
        ("DROP VIEW a", vec![]),
        ("HANDLER d.t OPEN", vec![(MysqlNameAction::OpenHandler, Some("d"), "t")]),
        ("HANDLER t OPEN AS h", vec![(MysqlNameAction::OpenHandler, None, "h")]),
        ("HANDLER h CLOSE", vec![(MysqlNameAction::CloseHandler, None, "h")]),
        ("HANDLER h READ FIRST", vec![]),
        ("SET STATEMENT a = 1 FOR CREATE TEMPORARY TABLE t (a int)", {
            vec![(MysqlNameAction::CreateTemporary, None, "t")]
        }),
    ] {
        let details = details(text.as_bytes(), PLAIN);
        assert!(!details.lost, "{text}");
        let names: Vec<_> = details
            .names
            .iter()
            .map(|it| (it.act, it.schema.as_deref(), it.name.as_str()))
            .collect();
        assert_eq!(names, expected, "{text}");
    }
    let found = details(b"SELECT 1; USE a; USE b; CREATE PROCEDURE p() BEGIN END; USE c", PLAIN);
    assert_eq!(found.use_database(), Some("c"));
    assert_eq!(found.statements, 5);
    assert_eq!(found.names.last().map(|it| it.statement), Some(4));
}

#[test]
fn whom_to_kill_is_read() {
    for (text, connection, target) in [
        ("KILL 5", true, KillTarget::Id(5)),
        ("KILL CONNECTION 5;", true, KillTarget::Id(5)),
        ("kill hard query 18446744073709551615", false, KillTarget::Id(u64::MAX)),
        ("KILL SOFT CONNECTION_ID ( )", true, KillTarget::Own),
        ("KILL QUERY connection_id()", false, KillTarget::Own),
        ("KILL QUERY ID 5", false, KillTarget::Other),
        ("KILL USER a", true, KillTarget::Other),
        ("KILL 5 + 1", true, KillTarget::Other),
        ("KILL CONNECTION_ID() + 1", true, KillTarget::Other),
        ("KILL @a", true, KillTarget::Other),
        ("KILL 0x5", true, KillTarget::Other),
        ("KILL", true, KillTarget::Other),
        ("KILL 99999999999999999999", true, KillTarget::Other),
    ] {
        let kill = details(text.as_bytes(), PLAIN).kill;
        assert_eq!(kill, Some(KillStatement { connection, target }), "{text}");
    }
}

#[test]
fn questions_that_can_be_answered() {
    let limit = |offset, count| RowLimit { offset, count };
    for (text, what, column) in [
        ("SHOW WARNINGS", QuestionTopic::Warnings(RowLimit::NONE), ""),
        ("show /* x */ warnings limit 5;", QuestionTopic::Warnings(limit(0, 5)), ""),
        ("SHOW ERRORS LIMIT 2, 5", QuestionTopic::Errors(limit(2, 5)), ""),
        ("SHOW ERRORS LIMIT 5 OFFSET 2", QuestionTopic::Errors(limit(2, 5)), ""),
        ("SHOW COUNT(*) WARNINGS", QuestionTopic::WarningCount, "@@session.warning_count"),
        ("SHOW COUNT ( * ) ERRORS", QuestionTopic::ErrorCount, "@@session.error_count"),
        ("SELECT @@Warning_Count", QuestionTopic::WarningCount, "@@Warning_Count"),
        ("SELECT @@local.error_count AS e", QuestionTopic::ErrorCount, "e"),
        ("SELECT ROW_COUNT()", QuestionTopic::RowCount, "ROW_COUNT()"),
        ("select found_rows () `n`;", QuestionTopic::FoundRows, "n"),
        ("SELECT FOUND_ROWS ( ) AS 'it''s'", QuestionTopic::FoundRows, "it's"),
        ("SELECT found_rows()\n", QuestionTopic::FoundRows, "found_rows()"),
    ] {
        let expected = SessionQuestion { what, column: column.to_owned() };
        assert_eq!(question(text.as_bytes(), PLAIN), Some(expected), "{text}");
    }
    for text in [
        "SHOW WARNINGS LIMIT ?",
        "SHOW TABLES",
        "SELECT FOUND_ROWS() + 1",
        "SELECT FOUND_ROWS(), 1",
        "SELECT FOUND_ROWS(1)",
        "SELECT FOUND_ROWS() FROM t",
        "SELECT FOUND_ROWS(); SELECT 1",
        "SELECT @@global.warning_count",
        "SELECT @@version",
        "SELECT 1",
        "SELECT FOUND_ROWS() /*!80000 + 1 */",
        "SELECT FOUND_ROWS() AS",
        "",
    ] {
        assert_eq!(question(text.as_bytes(), PLAIN), None, "{text}");
    }
}

#[test]
fn the_number_of_the_connection_is_the_clients_own() {
    for (text, expected) in [
        ("SELECT CONNECTION_ID()", "SELECT (7) AS `CONNECTION_ID()`"),
        ("SELECT connection_id ( )FROM t", "SELECT (7) AS `connection_id ( )`FROM t"),
        ("SELECT 1, CONNECTION_ID(), 2", "SELECT 1, (7) AS `CONNECTION_ID()`, 2"),
        ("SELECT CONNECTION_ID() AS a", "SELECT (7) AS a"),
        ("SELECT CONNECTION_ID() a", "SELECT (7) a"),
        ("SELECT 5--CONNECTION_ID()", "SELECT 5--(7)"),
        ("SELECT CONNECTION_ID() + 1", "SELECT (7) + 1"),
        ("SELECT a FROM t WHERE b IN (1, CONNECTION_ID())", "SELECT a FROM t WHERE b IN (1, (7))"),
        ("SELECT a FROM t ORDER BY a, CONNECTION_ID()", "SELECT a FROM t ORDER BY a, (7)"),
        ("SELECT `connection_id`()", "SELECT (7) AS ```connection_id``()`"),
        ("KILL QUERY CONNECTION_ID()", "KILL QUERY (7)"),
        ("SELECT @@pseudo_thread_id", "SELECT (7) AS `@@pseudo_thread_id`"),
        ("SELECT @@session.pseudo_thread_id, 1", {
            "SELECT (7) AS `@@session.pseudo_thread_id`, 1"
        }),
        ("INSERT INTO t VALUES (CONNECTION_ID(), 'CONNECTION_ID()')", {
            "INSERT INTO t VALUES ((7), 'CONNECTION_ID()')"
        }),
        ("SELECT 1; DO CONNECTION_ID()", "SELECT 1; DO (7)"),
    ] {
        let mut out = b"x".to_vec();
        assert!(rewrite_connection_id(text.as_bytes(), PLAIN, 7, &mut out), "{text}");
        assert_eq!(String::from_utf8(out).unwrap(), format!("x{expected}"));
    }
    for text in [
        "SELECT 1",
        "SELECT 'CONNECTION_ID()'",
        "SELECT CONNECTION_ID",
        "SELECT CONNECTION_ID(1)",
        "SELECT s.CONNECTION_ID()",
        "SET pseudo_thread_id = 1",
        "SET @@pseudo_thread_id = 1",
        "CREATE VIEW v AS SELECT CONNECTION_ID()",
        "CREATE PROCEDURE p() BEGIN SELECT 1; SELECT CONNECTION_ID(); END",
        "SELECT CONNECTION_ID(), 'open",
        "SELECT CONNECTION_ID() /*!80000 + 1 */",
    ] {
        let mut out = b"x".to_vec();
        assert!(!rewrite_connection_id(text.as_bytes(), PLAIN, 7, &mut out), "{text}");
        assert_eq!(out, b"x");
    }
}
