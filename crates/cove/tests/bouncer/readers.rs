//! Read-only tenants: side effects that a read-only transaction permits are rejected.

use testkit::my::command;
use testkit::{MyClient, PgBatch, PgClient};

use crate::mysql_support::{behind, front, shared_maria};
use crate::support::{Behind, bounce, shared_postgres};

/// Volatile functions of PostgreSQL 13 to 18 that readers may call, because they change only their
/// own session, report on the server, or are rejected by the server itself in a read-only
/// transaction (`nextval`, `setval`).
const HARMLESS: &[&str] = &[
    "RI_FKey_cascade_del",
    "RI_FKey_cascade_upd",
    "RI_FKey_check_ins",
    "RI_FKey_check_upd",
    "RI_FKey_noaction_del",
    "RI_FKey_noaction_upd",
    "RI_FKey_restrict_del",
    "RI_FKey_restrict_upd",
    "RI_FKey_setdefault_del",
    "RI_FKey_setdefault_upd",
    "RI_FKey_setnull_del",
    "RI_FKey_setnull_upd",
    "amvalidate",
    "array_sample",
    "array_shuffle",
    "bernoulli",
    "brinhandler",
    "bthandler",
    "clock_timestamp",
    "current_query",
    "currtid",
    "currtid2",
    "currval",
    "cursor_to_xml",
    "cursor_to_xmlschema",
    "dsnowball_init",
    "dsnowball_lexize",
    "gen_random_uuid",
    "ginhandler",
    "gisthandler",
    "hashhandler",
    "heap_tableam_handler",
    "lastval",
    "lo_close",
    "lo_get",
    "lo_lseek",
    "lo_lseek64",
    "lo_open",
    "lo_tell",
    "lo_tell64",
    "loread",
    "nextval",
    "pg_advisory_unlock",
    "pg_advisory_unlock_all",
    "pg_advisory_unlock_shared",
    "pg_available_wal_summaries",
    "pg_blocking_pids",
    "pg_collation_actual_version",
    "pg_control_checkpoint",
    "pg_control_init",
    "pg_control_recovery",
    "pg_control_system",
    "pg_current_logfile",
    "pg_current_wal_flush_lsn",
    "pg_current_wal_insert_lsn",
    "pg_current_wal_lsn",
    "pg_database_collation_actual_version",
    "pg_database_size",
    "pg_export_snapshot",
    "pg_get_aios",
    "pg_get_backend_memory_contexts",
    "pg_get_loaded_modules",
    "pg_get_multixact_members",
    "pg_get_sequence_data",
    "pg_get_shmem_allocations",
    "pg_get_shmem_allocations_numa",
    "pg_get_wait_events",
    "pg_get_wal_replay_pause_state",
    "pg_get_wal_resource_managers",
    "pg_get_wal_summarizer_state",
    "pg_hba_file_rules",
    "pg_ident_file_mappings",
    "pg_indexes_size",
    "pg_is_in_backup",
    "pg_is_in_recovery",
    "pg_is_wal_replay_paused",
    "pg_isolation_test_session_is_blocked",
    "pg_jit_available",
    "pg_last_committed_xact",
    "pg_last_wal_receive_lsn",
    "pg_last_wal_replay_lsn",
    "pg_last_xact_replay_timestamp",
    "pg_lock_status",
    "pg_ls_archive_statusdir",
    "pg_ls_dir",
    "pg_ls_logdir",
    "pg_ls_logicalmapdir",
    "pg_ls_logicalsnapdir",
    "pg_ls_replslotdir",
    "pg_ls_summariesdir",
    "pg_ls_tmpdir",
    "pg_ls_waldir",
    "pg_notification_queue_usage",
    "pg_partition_ancestors",
    "pg_partition_tree",
    "pg_prepared_xact",
    "pg_read_binary_file",
    "pg_read_file",
    "pg_read_file_old",
    "pg_relation_size",
    "pg_replication_origin_progress",
    "pg_replication_origin_session_is_setup",
    "pg_replication_origin_session_progress",
    "pg_safe_snapshot_blocking_pids",
    "pg_sequence_last_value",
    "pg_show_all_file_settings",
    "pg_show_replication_origin_status",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "pg_stat_clear_snapshot",
    "pg_stat_file",
    "pg_stat_force_next_flush",
    "pg_stat_get_backend_io",
    "pg_stat_get_backend_wal",
    "pg_stat_get_io",
    "pg_stat_get_recovery_prefetch",
    "pg_stat_get_xact_blocks_fetched",
    "pg_stat_get_xact_blocks_hit",
    "pg_stat_get_xact_function_calls",
    "pg_stat_get_xact_function_self_time",
    "pg_stat_get_xact_function_total_time",
    "pg_stat_get_xact_numscans",
    "pg_stat_get_xact_tuples_deleted",
    "pg_stat_get_xact_tuples_fetched",
    "pg_stat_get_xact_tuples_hot_updated",
    "pg_stat_get_xact_tuples_inserted",
    "pg_stat_get_xact_tuples_newpage_updated",
    "pg_stat_get_xact_tuples_returned",
    "pg_stat_get_xact_tuples_updated",
    "pg_stat_have_stats",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
    "pg_wal_summary_contents",
    "pg_xact_commit_timestamp",
    "pg_xact_commit_timestamp_origin",
    "pg_xact_status",
    "plpgsql_call_handler",
    "plpgsql_inline_handler",
    "plpgsql_validator",
    "random",
    "random_normal",
    "setseed",
    "setval",
    "spghandler",
    "suppress_redundant_updates_trigger",
    "system",
    "timeofday",
    "timezone",
    "tsvector_update_trigger",
    "tsvector_update_trigger_column",
    "txid_status",
    "unique_key_recheck",
    "uuidv4",
    "uuidv7",
];

/// Statements of a read-only PostgreSQL client, with the name in the error.
const OF_POSTGRES: &[(&str, &str)] = &[
    ("SELECT lo_put(4711, 0, 'OVERWRITTEN')", "lo_put"),
    ("SELECT pg_catalog.\"lo_unlink\"(4711)", "lo_unlink"),
    ("SELECT lo_unlink /* */ (loid) FROM pg_largeobject", "lo_unlink"),
    ("SELECT lo_from_bytea(0, 'x') FROM generate_series(1, 9)", "lo_from_bytea"),
    ("SELECT lo_create(4712)", "lo_create"),
    ("SELECT lowrite(lo_open(4711, 131072), 'x')", "lowrite"),
    ("SELECT lo_truncate(lo_open(4711, 131072), 0)", "lo_truncate"),
    ("SELECT query_to_xml('SELECT lo_unlink(4711)', true, true, '')", "query_to_xml"),
    ("SELECT * FROM ts_stat('SELECT lo_unlink(4711)')", "ts_stat"),
    ("CALL lift()", "CALL"),
    ("CALL empty()", "CALL"),
    ("DO $$ BEGIN PERFORM lo_unlink(4711); END $$", "DO"),
    ("VACUUM FULL kept", "VACUUM"),
    ("ANALYZE kept", "ANALYZE"),
    ("CLUSTER kept USING kept_pkey", "CLUSTER"),
    ("REINDEX TABLE kept", "REINDEX"),
    ("CHECKPOINT", "CHECKPOINT"),
    ("LOAD 'plpgsql'", "LOAD"),
    ("LOCK TABLE kept", "LOCK"),
    ("NOTIFY a, 'b'", "NOTIFY"),
    ("LISTEN a", "LISTEN"),
    ("SELECT pg_notify('a', 'b')", "pg_notify"),
    ("SELECT pg_advisory_lock(1)", "pg_advisory_lock"),
    ("SELECT pg_try_advisory_lock(1)", "pg_try_advisory_lock"),
    ("SELECT pg_advisory_xact_lock(1)", "pg_advisory_xact_lock"),
    ("SELECT pg_logical_emit_message(false, 'a', 'b')", "pg_logical_emit_message"),
    ("SELECT txid_current()", "txid_current"),
    ("SELECT pg_terminate_backend(1)", "pg_terminate_backend"),
    ("PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION"),
    ("COMMIT PREPARED 'x'", "COMMIT PREPARED"),
    ("ROLLBACK PREPARED 'x'", "ROLLBACK PREPARED"),
    ("ALTER SYSTEM SET work_mem = '1MB'", "ALTER SYSTEM"),
    ("COPY (SELECT 1) TO PROGRAM 'true'", "COPY"),
    ("COPY kept TO '/tmp/kept'", "COPY"),
];

/// Returns whether the bouncer rejects the preparation of a PostgreSQL text.
fn is_refused(client: &mut PgClient, text: &str) -> bool {
    let answer = client.ask(&PgBatch::new().parse("", text).sync()).expect("an answer");
    let error = answer.error();
    error.is_some_and(|it| it.code() == "25006" && it.message().contains("is refused"))
}

#[test]
fn a_reader_of_postgresql_does_nothing_that_a_transaction_would_let_happen() {
    let writer = Behind::new("kept", "transaction", 1);
    let [one, other] = ["transaction", "session"].map(|mode| {
        let reader = Behind::new(&format!("keeping_{mode}"), mode, 1);
        reader.with("read_only = true").with("database = \"kept\"")
    });
    let bounced = bounce(shared_postgres(), "", &[writer, one, other]);
    let mut writer = bounced.login("kept");
    writer.run(
        "CREATE TABLE kept (id int PRIMARY KEY); CREATE SEQUENCE numbers; \
         CREATE PROCEDURE empty() LANGUAGE sql AS ''; \
         CREATE PROCEDURE lift() LANGUAGE plpgsql AS $$ BEGIN \
         COMMIT; SET TRANSACTION READ WRITE; INSERT INTO kept VALUES (1); COMMIT; END $$; \
         CREATE FUNCTION ends() RETURNS int LANGUAGE plpgsql AS $$ BEGIN \
         COMMIT; SET TRANSACTION READ WRITE; INSERT INTO kept VALUES (1); RETURN 1; END $$",
    );
    writer.run("SELECT lo_from_bytea(4711, 'kept')");
    for tenant in ["keeping_transaction", "keeping_session"] {
        let mut reader = bounced.login(tenant);
        for (text, named) in OF_POSTGRES {
            let error = reader.fail(text);
            assert_eq!(error.code(), "25006", "{tenant}: {text}: {}", error.message());
            assert!(error.message().contains(named), "{tenant}: {text}: {}", error.message());
            let several = format!("SELECT 1; {text}");
            assert_eq!(reader.fail(&several).code(), "25006", "{tenant}: {several}");
            assert!(is_refused(&mut reader, text), "{tenant}: {text}, prepared");
        }
        // A function cannot end a transaction, and rows cannot be locked in a read-only one.
        assert_eq!(reader.fail("SELECT ends()").code(), "2D000");
        assert_eq!(reader.fail("SELECT * FROM kept FOR SHARE").code(), "25006");
        assert_eq!(reader.fail("SELECT nextval('numbers')").code(), "25006");
        assert_eq!(reader.fail("SELECT setval('numbers', 9)").code(), "25006");
        // Reading is unchanged, and so are the locks of `pg_dump`.
        assert_eq!(reader.value("SELECT convert_from(lo_get(4711), 'UTF8')"), "kept");
        reader.run("BEGIN");
        reader.run("LOCK TABLE kept IN ACCESS SHARE MODE");
        reader.run("COMMIT");
    }
    assert_eq!(writer.value("SELECT convert_from(lo_get(4711), 'UTF8')"), "kept");
    assert_eq!(writer.value("SELECT count(*) FROM kept"), "0");
}

/// Object id of `lo_unlink` in every server's `pg_proc`.
const LO_UNLINK: u32 = 964;

#[test]
fn function_calls_by_number_are_refused_to_readers() {
    let writer = Behind::new("numbered", "transaction", 1);
    let reader = Behind::new("numbering", "transaction", 1);
    let reader = reader.with("read_only = true").with("database = \"numbered\"");
    let bounced = bounce(shared_postgres(), "", &[writer, reader]);
    let mut writer = bounced.login("numbered");
    writer.run("SELECT lo_from_bytea(4711, 'kept')");
    let mut reader = bounced.login("numbering");
    // One binary argument of four bytes, and a binary result.
    let call = [LO_UNLINK.to_be_bytes(), [0, 1, 0, 1], [0, 1, 0, 0], [0, 4, 0, 0]].concat();
    let call = PgBatch::new().message(b'F', &[&call, &[0x12, 0x67, 0, 1]]);
    reader.send(&call.0).expect("send");
    let (_, last) = reader.end();
    assert_eq!(last.last().expect("a message").error().code(), "25006");
    assert_eq!(writer.value("SELECT convert_from(lo_get(4711), 'UTF8')"), "kept");
    // The same call by a writer succeeds.
    let answer = writer.ask(&call).expect("an answer");
    assert!(answer.error().is_none(), "{:?}", answer.error());
    assert_eq!(writer.fail("SELECT lo_get(4711)").code(), "42704");
}

/// Functions of newer servers must be classified here before they are allowed.
#[test]
fn every_volatile_function_of_postgresql_is_refused_to_readers_or_known_to_be_harmless() {
    let reader = Behind::new("volatile", "transaction", 1).with("read_only = true");
    let bounced = bounce(shared_postgres(), "", &[reader]);
    let names = bounced.postgres.sql(
        "SELECT string_agg(DISTINCT proname, ' ') FROM pg_proc WHERE provolatile = 'v' \
         AND prokind IN ('f', 'p') AND pronamespace = 'pg_catalog'::regnamespace",
    );
    let mut reader = bounced.login("volatile");
    let mut wrong = Vec::new();
    for name in names.split_whitespace() {
        let is_decided = HARMLESS.contains(&name);
        if is_refused(&mut reader, &format!("SELECT \"{name}\"()")) == is_decided {
            wrong.push(name);
        }
    }
    assert!(names.split_whitespace().count() > 200, "{names}");
    assert_eq!(wrong, Vec::<&str>::new());
}

/// Statements of a read-only MySQL client, with the name in the error.
const OF_MYSQL: &[(&str, &str)] = &[
    ("CALL lift()", "CALL"),
    ("CALL empty()", "CALL"),
    ("/*!50000 CALL lift() */", "CALL"),
    ("SET STATEMENT max_statement_time = 9 FOR CALL lift()", "CALL"),
    ("EXECUTE IMMEDIATE 'CALL lift()'", "CALL"),
    ("LOCK TABLES kept READ", "LOCK TABLES"),
    ("HANDLER kept OPEN", "HANDLER"),
    ("BACKUP LOCK kept", "BACKUP"),
    ("BACKUP STAGE START", "BACKUP"),
    ("ANALYZE TABLE kept", "ANALYZE TABLE"),
    ("CHECK TABLE kept", "CHECK TABLE"),
    ("OPTIMIZE TABLE kept", "OPTIMIZE TABLE"),
    ("FLUSH TABLES", "FLUSH"),
    ("FLUSH TABLES kept WITH READ LOCK", "FLUSH"),
    ("CACHE INDEX kept IN c", "CACHE INDEX"),
    ("LOAD INDEX INTO CACHE kept", "LOAD INDEX"),
    ("RESET QUERY CACHE", "RESET"),
    ("PURGE BINARY LOGS BEFORE NOW()", "PURGE"),
    ("START SLAVE", "START REPLICA"),
    ("STOP SLAVE", "STOP REPLICA"),
    ("CHANGE MASTER TO master_host = 'x'", "CHANGE REPLICATION SOURCE"),
    ("XA START 'x'", "XA"),
    ("XA COMMIT 'x'", "XA"),
    ("INSTALL SONAME 'x'", "INSTALL"),
    ("SHUTDOWN", "SHUTDOWN"),
    ("SET GLOBAL max_connections = 10", "SET"),
    ("SET @a = 1, @@global.general_log = 0", "SET"),
    ("SELECT GET_LOCK('a', 1)", "GET_LOCK"),
    ("DO GET_LOCK('a', 1)", "GET_LOCK"),
    ("SELECT 1 INTO OUTFILE '/tmp/kept'", "INTO OUTFILE"),
    ("SELECT 1 INTO DUMPFILE '/tmp/kept'", "INTO OUTFILE"),
    ("SELECT * FROM kept LOCK IN SHARE MODE", "LOCK IN SHARE MODE"),
];

/// Statements that change data, which the server itself rejects in a read-only transaction.
const REFUSED_BY_MARIADB: &[&str] = &[
    "INSERT INTO kept VALUES (1)",
    "SELECT * FROM kept FOR UPDATE",
    "CREATE TABLE other (x INT)",
    "CREATE TEMPORARY TABLE other (x INT)",
    "ALTER TABLE kept FORCE",
    "DROP TABLE kept",
    "TRUNCATE kept",
    "RENAME TABLE kept TO lost",
    "CREATE OR REPLACE VIEW v AS SELECT 1",
    "SELECT NEXTVAL(numbers)",
    "SELECT SETVAL(numbers, 9)",
];

fn fails_prepared(client: &mut MyClient, text: &str) -> u16 {
    let answer = client.simple(command::STMT_PREPARE, text.as_bytes()).expect("an answer");
    answer.expect_err("an error").code
}

#[test]
fn a_reader_of_mysql_does_nothing_that_a_transaction_would_let_happen() {
    let readers = ["transaction", "session"]
        .map(|mode| behind(&format!("mykeeping_{mode}"), mode, 1).with("read_only = true"));
    let fronted = front(shared_maria(), "", &readers);
    for tenant in ["mykeeping_transaction", "mykeeping_session"] {
        for definition in [
            "CREATE TABLE kept (id INT PRIMARY KEY) ENGINE=InnoDB",
            "CREATE SEQUENCE numbers",
            "CREATE PROCEDURE empty() DO 0",
            "CREATE PROCEDURE lift() INSERT INTO kept VALUES (1)",
        ] {
            fronted.maria.sql(&format!("USE {tenant}; {definition}"));
        }
        let mut reader = fronted.login(tenant);
        for (text, named) in OF_MYSQL {
            let error = reader.fail(text);
            assert_eq!(error.code, 1792, "{tenant}: {text}: {error:?}");
            assert!(error.message.contains(named), "{tenant}: {text}: {error:?}");
            assert_eq!(fails_prepared(&mut reader, text), 1792, "{tenant}: {text}, prepared");
        }
        for text in REFUSED_BY_MARIADB {
            assert_eq!(reader.fail(text).code, 1792, "{tenant}: {text}");
        }
        let flush = reader.simple(7, &[4]).expect("an answer").expect_err("an error");
        assert_eq!(flush.code, 1792, "{tenant}: COM_REFRESH");
        assert_eq!(reader.value("SELECT COUNT(*) FROM kept"), "0", "{tenant}");
    }
}
