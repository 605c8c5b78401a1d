//! Prohibited parts of PostgreSQL texts, for read-only clients and sandboxes.

use super::super::analyse;
use super::*;

#[test]
fn the_lists_are_sorted_and_in_lower_case() {
    for list in [FUNCTIONS, READ_ANYTHING, SECRETS] {
        assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "{list:?}");
        assert!(list.iter().all(|it| LowerWord::fold(it.as_bytes()).bytes() == it.as_bytes()));
    }
    let first = |it: &&str| matches!(it.as_bytes()[0], b'_' | b'p' | b's' | b'u');
    assert!(SECRETS.iter().all(first));
}

fn found(text: &str) -> TextProhibitions {
    let found = analyse(text.as_bytes()).prohibitions;
    let commented = format!("/* ' */ ; -- \"\n{text}");
    assert_eq!(analyse(commented.as_bytes()).prohibitions, found, "{commented}");
    found
}

#[test]
fn what_is_more_than_reading_is_named() {
    for (text, named) in [
        ("SELECT lo_put(1, 0, 'x')", "lo_put"),
        ("SELECT LO_UNLINK /* */ (loid) FROM pg_largeobject", "lo_unlink"),
        ("SELECT pg_catalog . \"lo_unlink\"(1)", "lo_unlink"),
        ("select \"pg_catalog\".lo_from_bytea(0, '')", "lo_from_bytea"),
        ("SELECT count(lo_creat(-1)) FROM generate_series(1, 9)", "lo_creat"),
        ("SELECT * FROM lo_truncate64(0, 1)", "lo_truncate64"),
        ("SELECT * FROM ROWS FROM (lowrite(0, ''))", "lowrite"),
        ("WITH x AS (SELECT lo_import('/etc/passwd')) TABLE x", "lo_import"),
        ("PREPARE x AS SELECT lo_unlink($1)", "lo_unlink"),
        ("DECLARE c CURSOR FOR SELECT lo_unlink(1)", "lo_unlink"),
        ("COPY (SELECT lo_unlink(1)) TO STDOUT", "lo_unlink"),
        ("EXPLAIN ANALYZE SELECT lo_unlink(1)", "lo_unlink"),
        ("SELECT query_to_xml('SELECT 1', true, true, '')", "query_to_xml"),
        ("SELECT * FROM ts_stat('SELECT 1')", "ts_stat"),
        ("SELECT * FROM extensions.dblink('', 'SELECT 1') t (a int)", "dblink"),
        ("SELECT dblink_exec('', '')", "dblink"),
        ("SELECT * FROM crosstab3('SELECT 1')", "crosstab"),
        ("SELECT pg_notify('a', 'b')", "pg_notify"),
        ("SELECT pg_try_advisory_xact_lock(1)", "pg_try_advisory_xact_lock"),
        ("SELECT pg_logical_emit_message(true, '', '')", "pg_logical_emit_message"),
        ("SELECT pg_stat_reset_shared('io')", "pg_stat_reset"),
        ("SELECT bt_index_parent_check('t_pkey')", "bt_index_parent_check"),
        ("SELECT txid_current()", "txid_current"),
        ("CALL p()", "CALL"),
        ("SELECT 1; call p()", "CALL"),
        ("DO $$ BEGIN END $$", "DO"),
        ("VACUUM (FULL) t", "VACUUM"),
        ("ANALYZE t", "ANALYZE"),
        ("CLUSTER t", "CLUSTER"),
        ("REINDEX TABLE t", "REINDEX"),
        ("CHECKPOINT", "CHECKPOINT"),
        ("LOAD 'x'", "LOAD"),
        ("LISTEN a", "LISTEN"),
        ("NOTIFY a, 'b'", "NOTIFY"),
        ("LOCK t", "LOCK"),
        ("LOCK TABLE access, share", "LOCK"),
        ("LOCK TABLE t IN SHARE MODE", "LOCK"),
        ("LOCK TABLE t IN ACCESS EXCLUSIVE MODE", "LOCK"),
        ("LOCK TABLE t; SELECT 1 IN ACCESS SHARE MODE", "LOCK"),
        ("PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION"),
        ("COMMIT PREPARED 'x'", "COMMIT PREPARED"),
        ("ROLLBACK PREPARED 'x'", "ROLLBACK PREPARED"),
        ("ALTER SYSTEM SET work_mem = 1", "ALTER SYSTEM"),
        ("COPY t TO '/tmp/x'", "COPY with files and programs of the server"),
        ("COPY (SELECT 1) TO PROGRAM 'x'", "COPY with files and programs of the server"),
        ("COPY t (a) FROM '/etc/passwd'", "COPY with files and programs of the server"),
    ] {
        assert_eq!(found(text).for_readers, Some(named), "{text}");
    }
}

#[test]
fn what_shows_or_changes_secrets_is_named() {
    for (text, named) in [
        ("SELECT * FROM pg_user_mappings", "pg_user_mappings"),
        ("TABLE pg_catalog.\"pg_shadow\"", "pg_shadow"),
        ("SELECT (m).umoptions FROM pg_user_mapping m", "umoptions"),
        ("SELECT * FROM information_schema.user_mapping_options", "user_mapping_options"),
        ("SELECT query FROM PG_STAT_ACTIVITY", "pg_stat_activity"),
        ("SELECT pg_stat_get_backend_activity(1)", "pg_stat_get_backend_activity"),
        ("SELECT * FROM pg_prepared_statements", "pg_prepared_statements"),
        ("CREATE VIEW v AS SELECT * FROM pg_stat_statements", "pg_stat_statements"),
        ("SELECT table_to_xml('pg_shadow', true, true, '')", "table_to_xml"),
        ("SELECT pg_read_file('pg_hba.conf')", "pg_read_file"),
        ("COPY t FROM '/var/log/postgresql.log'", "COPY with files and programs of the server"),
        ("copy t from program 'cat /etc/passwd'", "COPY with files and programs of the server"),
        ("ALTER ROLE app PASSWORD 'x'", "a password of ALTER ROLE"),
        ("alter user current_user with encrypted password 'x'", "a password of ALTER ROLE"),
        ("SELECT * FROM U&\"pg\\005fshadow\"", "a text that cannot be read"),
        ("SELECT '\\', a FROM t --'", "a text that cannot be read"),
    ] {
        let named = Some(named);
        let found = found(text).for_sandboxes;
        assert!(found == named || found == Some("pg_user_mapping"), "{text}: {found:?}");
    }
}

#[test]
fn what_is_reading_is_not_named() {
    for text in [
        "SELECT lo_get(1), loread(lo_open(1, 262144), 9), lo_close(0)",
        "SELECT lo_put, query_to_xml FROM t",
        "SELECT 'lo_unlink(1)', $$ CALL p() $$",
        "SELECT pg_advisory_unlock_all()",
        "SELECT pg_replication_origin_progress('x', true)",
        "SELECT pg_export_snapshot(), pg_sleep(0), nextval('s')",
        "LOCK TABLE a, ONLY b IN ACCESS SHARE MODE NOWAIT",
        "COPY t TO STDOUT",
        "COPY (SELECT a FROM t) TO STDOUT (FORMAT csv)",
        "COPY t FROM STDIN",
        "EXPLAIN (ANALYZE) SELECT 1",
        "COMMIT",
        "PREPARE prepared AS SELECT 1",
        "ALTER ROLE app SET work_mem = 1",
        "ALTER USER MAPPING FOR app SERVER s OPTIONS (SET password 'x')",
        "ALTER TABLE users ADD password text",
        "UPDATE users SET password = 'x'",
        "SELECT * FROM pg_locks, pg_stat_user_tables, pg_roles, pg_prepared_xacts",
        "UNLISTEN *",
    ] {
        assert_eq!(found(text), TextProhibitions::NONE, "{text}");
    }
}
