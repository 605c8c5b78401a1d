//! Prohibited parts of MariaDB texts, for read-only clients and sandboxes.

use super::*;

fn prohibitions(text: &str) -> TextProhibitions {
    let found = effects_and_prohibitions(text.as_bytes(), PLAIN).1;
    for dressed in [format!("/* ' */ # \" \n{text}"), format!("/*!50000 {text} */")] {
        // A comment within a comment ends it, and a statement that ends within one is not parsed.
        if !text.contains("*/") && !text.contains(';') {
            let again = effects_and_prohibitions(dressed.as_bytes(), PLAIN).1;
            assert_eq!(again, found, "{dressed}");
        }
    }
    found
}

#[test]
fn what_is_more_than_reading_is_named() {
    for (text, named) in [
        ("CALL p()", "CALL"),
        ("SELECT 1; call p()", "CALL"),
        ("SET STATEMENT max_statement_time = 1 FOR CALL p()", "CALL"),
        ("EXECUTE IMMEDIATE 'CALL p()'", "CALL"),
        ("PREPARE s FROM 'CALL p()'", "CALL"),
        ("LOCK TABLES t READ", "LOCK TABLES"),
        ("HANDLER t OPEN", "HANDLER"),
        ("HANDLER d.t OPEN AS h", "HANDLER"),
        ("EXECUTE IMMEDIATE 'HANDLER t OPEN'", "HANDLER"),
        ("BACKUP LOCK t", "BACKUP"),
        ("BACKUP STAGE START", "BACKUP"),
        ("ANALYZE TABLE t", "ANALYZE TABLE"),
        ("ANALYZE NO_WRITE_TO_BINLOG TABLE t", "ANALYZE TABLE"),
        ("OPTIMIZE TABLE t", "OPTIMIZE TABLE"),
        ("REPAIR TABLE t", "REPAIR TABLE"),
        ("CHECK TABLE t", "CHECK TABLE"),
        ("CACHE INDEX t IN c", "CACHE INDEX"),
        ("LOAD INDEX INTO CACHE t", "LOAD INDEX"),
        ("FLUSH TABLES WITH READ LOCK", "FLUSH"),
        ("RESET MASTER", "RESET"),
        ("PURGE BINARY LOGS BEFORE NOW()", "PURGE"),
        ("CHANGE MASTER TO master_host = 'x'", "CHANGE REPLICATION SOURCE"),
        ("START SLAVE", "START REPLICA"),
        ("STOP SLAVE", "STOP REPLICA"),
        ("XA START 'x'", "XA"),
        ("XA COMMIT 'x'", "XA"),
        ("INSTALL SONAME 'x'", "INSTALL"),
        ("SHUTDOWN", "SHUTDOWN"),
        ("ALTER INSTANCE RELOAD TLS", "ALTER INSTANCE"),
        ("SET GLOBAL max_connections = 1", "SET of a variable that is not the session's"),
        ("SET @a = 1, @@global.general_log = 0", "SET of a variable that is not the session's"),
        ("SET PERSIST x = 1", "SET of a variable that is not the session's"),
        ("SELECT GET_LOCK('a', 1)", "GET_LOCK"),
        ("SELECT `get_lock`('a', 1)", "GET_LOCK"),
        ("DO get_lock /* */ ('a', 1)", "GET_LOCK"),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", "INTO OUTFILE"),
        ("SELECT 1 INTO DUMPFILE '/tmp/x'", "INTO OUTFILE"),
        ("SELECT * FROM t LOCK IN SHARE MODE", "LOCK IN SHARE MODE"),
        ("SELECT * FROM t FOR SHARE", "FOR SHARE"),
    ] {
        assert_eq!(prohibitions(text).for_readers, Some(named), "{text}");
    }
}

#[test]
fn what_shows_or_changes_secrets_is_named() {
    for (text, named) in [
        ("SHOW GRANTS", "SHOW GRANTS"),
        ("show /* */ grants for current_user()", "SHOW GRANTS"),
        ("SHOW CREATE USER", "SHOW CREATE USER"),
        ("SHOW CREATE SERVER s", "SHOW CREATE SERVER"),
        ("SHOW FULL PROCESSLIST", "SHOW PROCESSLIST"),
        ("SHOW EXPLAIN FOR 1", "SHOW EXPLAIN"),
        ("EXPLAIN FOR CONNECTION 1", "EXPLAIN FOR CONNECTION"),
        ("SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS"),
        ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"),
        ("SHOW ENGINE INNODB STATUS", "SHOW ENGINE"),
        ("SELECT 1; SHOW GRANTS", "SHOW GRANTS"),
        ("EXECUTE IMMEDIATE 'SHOW GRANTS'", "SHOW GRANTS"),
        ("PREPARE s FROM 'SHOW GRANTS'", "SHOW GRANTS"),
        ("PREPARE s FROM @a", "preparing a text that is not a literal"),
        ("EXECUTE IMMEDIATE CONCAT('SHOW GR', 'ANTS')", "preparing a text that is not a literal"),
        ("CREATE PROCEDURE p() BEGIN SELECT 1; SHOW GRANTS; END", "SHOW GRANTS"),
        ("CREATE PROCEDURE p() PREPARE s FROM @a", "PREPARE in a routine"),
        ("CREATE PROCEDURE p() EXECUTE IMMEDIATE @a", "PREPARE in a routine"),
        ("SELECT * FROM mysql.user", "a table of mysql"),
        ("SELECT * FROM `MYSQL` . `global_priv`", "a table of mysql"),
        ("SELECT authentication_string FROM user", "authentication_string"),
        ("SELECT * FROM performance_schema.threads", "performance_schema"),
        ("SELECT * FROM sys.x$processlist", "a view of sys"),
        ("SELECT info FROM information_schema.processlist", "processlist"),
        ("USE mysql", "a database of the server's own"),
        ("USE `mysql`", "a database of the server's own"),
        ("SET PASSWORD = PASSWORD('x')", "SET PASSWORD"),
        ("SET @a = 1, PASSWORD FOR app = PASSWORD('x')", "SET PASSWORD"),
        ("SET STATEMENT a = 1 FOR SET PASSWORD = PASSWORD('x')", "SET STATEMENT … FOR SET"),
        ("ALTER USER app IDENTIFIED BY 'x'", "ALTER USER"),
        ("SELECT LOAD_FILE('/etc/passwd')", "LOAD_FILE"),
        ("LOAD DATA INFILE '/etc/passwd' INTO TABLE t", "LOAD DATA of the server's files"),
        ("load xml concurrent infile 'x' into table t", "LOAD DATA of the server's files"),
        ("SELECT 'it", "a text that cannot be read"),
    ] {
        assert_eq!(prohibitions(text).for_sandboxes, Some(named), "{text}");
    }
}

#[test]
fn what_is_reading_is_not_named() {
    for text in [
        "SELECT 'SHOW GRANTS; CALL p()'",
        "SELECT t.call, t.show, `grants`, `lock` FROM t",
        "SELECT id FROM shows AS grants",
        "UPDATE users SET password = 'x', user = 'y'",
        "INSERT INTO users (user, password) VALUES ('SHOW GRANTS', 'x')",
        "SELECT user FROM user",
        "ANALYZE SELECT 1",
        "ANALYZE FORMAT=JSON SELECT 1",
        "EXPLAIN SELECT 1",
        "CHECKSUM TABLE t",
        "START TRANSACTION READ ONLY",
        "SET NAMES utf8mb4",
        "SET SESSION sql_mode = ''",
        "SELECT RELEASE_ALL_LOCKS(), IS_FREE_LOCK('a')",
        "SELECT name FROM mysql.time_zone_name",
        "SELECT * FROM sys.version",
        "SHOW TABLES",
        "SHOW CREATE TABLE t",
        "SHOW ENGINES",
        "SHOW WARNINGS",
        "SHOW VARIABLES LIKE 'x'",
        "PREPARE s FROM 'SELECT 1'",
        "UNLOCK TABLES",
        "LOAD DATA LOCAL INFILE 'x' INTO TABLE t",
        "LOAD DATA LOW_PRIORITY LOCAL INFILE 'x' INTO TABLE t",
        "SELECT handler, load data FROM t",
    ] {
        assert_eq!(prohibitions(text), TextProhibitions::NONE, "{text}");
    }
}
