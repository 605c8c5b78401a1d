//! Functions, relations and statements that are prohibited for read-only clients and sandboxes, by
//! their names.
//!
//! A read-only transaction of PostgreSQL prevents changes that `pg_dump` would show afterwards, but
//! not the "commands OK in a read-only transaction": maintenance, locks, notifications, `CALL` and
//! `DO` (`ClassifyUtilityCommandAsReadOnly` in
//! <https://github.com/postgres/postgres/blob/REL_17_STABLE/src/backend/tcop/utility.c>). The
//! server checks functions individually, and those for large objects only from version 16 on
//! (<https://www.postgresql.org/docs/16/release-16.html>, "Disallow large object modification in
//! read-only transactions"). Code of the database that calls them is not visible here: its effects
//! are limited only by the rights of the role.

use super::keywords::{self, LowerWord, Word};
use super::lexer::{PgLexer, PgToken, PgTokenKind};
use crate::prohibitions::TextProhibitions;

/// Functions that do more than reading, as named in errors. Sorted.
const FUNCTIONS: &[&str] = &[
    "autoprewarm_dump_now",
    "autoprewarm_start_worker",
    "brin_desummarize_range",
    "brin_summarize_new_values",
    "brin_summarize_range",
    "bt_index_parent_check",
    "connectby",
    "database_to_xml",
    "database_to_xml_and_xmlschema",
    "gin_clean_pending_list",
    "heap_force_freeze",
    "heap_force_kill",
    "lo_creat",
    "lo_create",
    "lo_export",
    "lo_from_bytea",
    "lo_import",
    "lo_put",
    "lo_truncate",
    "lo_truncate64",
    "lo_unlink",
    "lowrite",
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_backup_start",
    "pg_backup_stop",
    "pg_buffercache_evict",
    "pg_buffercache_evict_all",
    "pg_buffercache_evict_relation",
    "pg_buffercache_mark_dirty",
    "pg_buffercache_mark_dirty_all",
    "pg_buffercache_mark_dirty_relation",
    "pg_cancel_backend",
    "pg_clear_attribute_stats",
    "pg_clear_relation_stats",
    "pg_copy_logical_replication_slot",
    "pg_copy_physical_replication_slot",
    "pg_create_logical_replication_slot",
    "pg_create_physical_replication_slot",
    "pg_create_restore_point",
    "pg_current_xact_id",
    "pg_drop_replication_slot",
    "pg_extension_config_dump",
    "pg_file_rename",
    "pg_file_sync",
    "pg_file_unlink",
    "pg_file_write",
    "pg_import_system_collations",
    "pg_log_backend_memory_contexts",
    "pg_log_standby_snapshot",
    "pg_logical_emit_message",
    "pg_logical_slot_get_binary_changes",
    "pg_logical_slot_get_changes",
    "pg_logical_slot_peek_binary_changes",
    "pg_logical_slot_peek_changes",
    "pg_nextoid",
    "pg_notify",
    "pg_prewarm",
    "pg_promote",
    "pg_reload_conf",
    "pg_replication_slot_advance",
    "pg_restore_attribute_stats",
    "pg_restore_extended_stats",
    "pg_restore_relation_stats",
    "pg_rotate_logfile",
    "pg_rotate_logfile_old",
    "pg_start_backup",
    "pg_stat_statements_reset",
    "pg_stop_backup",
    "pg_stop_making_pinned_objects",
    "pg_switch_wal",
    "pg_sync_replication_slots",
    "pg_terminate_backend",
    "pg_truncate_freespace_map",
    "pg_truncate_visibility_map",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
    "pg_wal_replay_pause",
    "pg_wal_replay_resume",
    "query_to_xml",
    "query_to_xml_and_xmlschema",
    "query_to_xmlschema",
    "schema_to_xml",
    "schema_to_xml_and_xmlschema",
    "table_to_xml",
    "table_to_xml_and_xmlschema",
    "ts_rewrite",
    "ts_stat",
    "txid_current",
    "xpath_table",
    "xslt_process",
];

/// Families of such functions, by the prefixes of their names.
const FAMILIES: &[&str] =
    &["binary_upgrade_", "crosstab", "dblink", "pg_replication_origin_", "pg_stat_reset"];

/// Harmless functions of these families: they report, and end, state of the session itself.
const HARMLESS_OF_FAMILIES: &[&str] = &[
    "pg_replication_origin_oid",
    "pg_replication_origin_progress",
    "pg_replication_origin_session_is_setup",
    "pg_replication_origin_session_progress",
];

/// Functions that read what a value names (a query, a table), or files of the server: neither
/// passwords nor other clients' texts could be kept from a sandbox that calls them. Sorted.
const READ_ANYTHING: &[&str] = &[
    "connectby",
    "database_to_xml",
    "database_to_xml_and_xmlschema",
    "lo_import",
    "pg_read_binary_file",
    "pg_read_file",
    "pg_read_file_old",
    "query_to_xml",
    "query_to_xml_and_xmlschema",
    "schema_to_xml",
    "schema_to_xml_and_xmlschema",
    "table_to_xml",
    "table_to_xml_and_xmlschema",
    "ts_rewrite",
    "ts_stat",
    "xpath_table",
];

/// Relations, columns and functions that contain passwords, their hashes or the texts of other
/// clients. Sorted.
const SECRETS: &[&str] = &[
    "_pg_user_mappings",
    "pg_authid",
    "pg_file_settings",
    "pg_hba_file_rules",
    "pg_ident_file_mappings",
    "pg_prepared_statement",
    "pg_prepared_statements",
    "pg_shadow",
    "pg_show_all_file_settings",
    "pg_stat_activity",
    "pg_stat_get_activity",
    "pg_stat_get_backend_activity",
    "pg_stat_get_wal_receiver",
    "pg_stat_monitor",
    "pg_stat_statements",
    "pg_stat_wal_receiver",
    "pg_user_mapping",
    "pg_user_mappings",
    "subconninfo",
    "umoptions",
    "user_mapping_options",
];

/// Name of a `COPY` that bypasses the client's connection.
const COPY_ELSEWHERE: &str = "COPY with files and programs of the server";

/// Returns the list's entry for a name, if there is one.
fn find(list: &[&'static str], name: &[u8]) -> Option<&'static str> {
    let at = list.binary_search_by(|it| it.as_bytes().cmp(name)).ok()?;
    list.get(at).copied()
}

/// Checks a called function, by its folded name; its schema does not matter.
pub(super) fn call(name: &[u8]) -> TextProhibitions {
    let family = || {
        let is_exempt = HARMLESS_OF_FAMILIES.iter().any(|it| it.as_bytes() == name);
        FAMILIES.iter().find(|it| name.starts_with(it.as_bytes()) && !is_exempt).copied()
    };
    TextProhibitions {
        for_readers: find(FUNCTIONS, name).or_else(family),
        for_sandboxes: find(READ_ANYTHING, name),
    }
}

/// Checks any name.
pub(super) fn name(name: &[u8]) -> TextProhibitions {
    // Most names are none of these, and begin with another letter.
    let for_sandboxes = match name.first() {
        Some(b'_' | b'p' | b's' | b'u') => find(SECRETS, name),
        _ => None,
    };
    TextProhibitions { for_sandboxes, ..TextProhibitions::NONE }
}

/// Checks a statement, by its first word and the rest up to its end.
pub(super) fn statement(word: Word, lexer: &PgLexer<'_>) -> TextProhibitions {
    let for_readers = match word {
        Word::Call => Some("CALL"),
        Word::Do => Some("DO"),
        Word::Load => Some("LOAD"),
        Word::Listen => Some("LISTEN"),
        Word::Notify => Some("NOTIFY"),
        Word::Vacuum => Some("VACUUM"),
        Word::Analyze | Word::Analyse => Some("ANALYZE"),
        Word::Cluster => Some("CLUSTER"),
        Word::Reindex => Some("REINDEX"),
        Word::Checkpoint => Some("CHECKPOINT"),
        Word::Lock if !has_keywords(lexer, &[b"in", b"access", b"share", b"mode"]) => Some("LOCK"),
        Word::Prepare if begins(lexer, b"transaction") => Some("PREPARE TRANSACTION"),
        Word::Commit if begins(lexer, b"prepared") => Some("COMMIT PREPARED"),
        Word::Rollback if begins(lexer, b"prepared") => Some("ROLLBACK PREPARED"),
        Word::Alter if begins(lexer, b"system") => Some("ALTER SYSTEM"),
        Word::Copy if copies_elsewhere(lexer) => Some(COPY_ELSEWHERE),
        _ => None,
    };
    let for_sandboxes = match word {
        Word::Alter if is_role(lexer) && has_keywords(lexer, &[b"password"]) => {
            Some("a password of ALTER ROLE")
        }
        // They can contain any data of the server, including password hashes and its log.
        Word::Copy => for_readers,
        _ => None,
    };
    TextProhibitions { for_readers, for_sandboxes }
}

fn lower(token: &PgToken, text: &[u8]) -> LowerWord {
    match token.kind {
        PgTokenKind::Word => LowerWord::fold(token.text(text)),
        _ => LowerWord::fold(b""),
    }
}

/// Returns true if this word is next.
fn begins(lexer: &PgLexer<'_>, word: &[u8]) -> bool {
    let next = lexer.clone().next();
    next.is_some_and(|it| lower(&it, lexer.text()).bytes() == word)
}

/// Returns true for `ALTER ROLE`, `ALTER USER`, `ALTER GROUP`; not for `ALTER USER MAPPING`.
fn is_role(lexer: &PgLexer<'_>) -> bool {
    let mut ahead = lexer.clone();
    let is_role = ahead
        .next()
        .is_some_and(|it| matches!(lower(&it, lexer.text()).bytes(), b"role" | b"user" | b"group"));
    is_role && !begins(&ahead, b"mapping")
}

/// Returns true if the rest of the statement contains these words in sequence and unquoted.
fn has_keywords(lexer: &PgLexer<'_>, keywords: &[&[u8]]) -> bool {
    let mut found = 0;
    for token in lexer.clone().take_while(|it| !it.is_mark(b';')) {
        let lower = lower(&token, lexer.text());
        let is_next = |at: usize| keywords.get(at).is_some_and(|it| *it == lower.bytes());
        found = match (is_next(found), is_next(0)) {
            (true, _) => found + 1,
            (false, true) => 1,
            (false, false) => 0,
        };
        if found == keywords.len() {
            return true;
        }
    }
    false
}

/// Returns true for a `COPY` that reads or writes anything but the client's connection.
fn copies_elsewhere(lexer: &PgLexer<'_>) -> bool {
    let mut ahead = lexer.clone();
    let mut depth = 0usize;
    while let Some(token) = ahead.next().filter(|it| !it.is_mark(b';')) {
        match token.kind {
            PgTokenKind::Mark(b'(') => depth += 1,
            PgTokenKind::Mark(b')') => depth = depth.saturating_sub(1),
            PgTokenKind::Word if depth == 0 => {
                let word = keywords::word(token.text(lexer.text()));
                if matches!(word, Word::To | Word::From) {
                    return !begins(&ahead, b"stdout") && !begins(&ahead, b"stdin");
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
