//! Texts in MySQL's and MariaDB's SQL: all readers of a text agree about it, in every mode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::mysql::sql::{
    SqlMode, details, effects, effects_and_prohibitions, is_lock_alone, question,
    rewrite_connection_id,
};

const MODES: [&[u8]; 4] = [b"", b"ANSI_QUOTES", b"NO_BACKSLASH_ESCAPES", b"ORACLE"];
const CHARACTER_SETS: [&[u8]; 3] = [b"utf8mb4", b"latin1", b"gbk"];

fuzz_target!(|bytes: &[u8]| {
    let Some((&mode, text)) = bytes.split_first() else { return };
    let sql_mode = MODES[usize::from(mode) % MODES.len()];
    let character_set = CHARACTER_SETS[usize::from(mode) / MODES.len() % CHARACTER_SETS.len()];
    let mode = SqlMode::of(sql_mode, character_set);
    assert_eq!(effects(text, mode), effects_and_prohibitions(text, mode).0);
    let _ = details(text, mode);
    let _ = question(text, mode);
    let _ = is_lock_alone(text, mode);
    let mut rewritten = b"before ".to_vec();
    let is_rewritten = rewrite_connection_id(text, mode, 4711, &mut rewritten);
    assert!(rewritten.starts_with(b"before "));
    assert!(is_rewritten || rewritten.len() == 7, "nothing is appended where nothing is asked");
});
