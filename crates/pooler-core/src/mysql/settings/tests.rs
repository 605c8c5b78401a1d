//! Tests of settings.

mod real;

use super::*;

fn change(from: &MysqlSettings, to: &MysqlSettings) -> String {
    let mut out = Vec::new();
    let any = from.write_change(to, &mut out);
    assert_eq!(any, !out.is_empty());
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn check(from: &[(&str, &str)], to: &[(&str, &str)], wanted: &str) {
    let (from, to) =
        (MysqlSettings::of(from.iter().copied()), MysqlSettings::of(to.iter().copied()));
    assert_eq!(change(&from, &to), wanted);
    assert_eq!(from.fingerprint() == to.fingerprint(), wanted.is_empty());
    assert_eq!(from == to, wanted.is_empty());
}

#[test]
fn a_change_says_only_what_differs() {
    check(&[], &[], "");
    check(&[("a", "1")], &[("A", "1")], "");
    check(&[("b", "1"), ("a", "2")], &[("a", "2"), ("b", "1")], "");
    check(&[], &[("Time_Zone", "UTC")], "SET time_zone='UTC'");
    check(&[("time_zone", "UTC")], &[], "SET time_zone=DEFAULT");
    check(&[("a", "1"), ("b", "1")], &[("b", "2"), ("c", "x y")], "SET a=DEFAULT,b=2,c='x y'");
}

#[test]
fn what_others_depend_on_goes_first() {
    check(
        &[],
        &[
            ("autocommit", "OFF"),
            ("character_set_client", "latin1"),
            ("character_set_results", ""),
            ("collation_connection", "latin1_bin"),
            ("sql_mode", "ANSI_QUOTES"),
            ("sort_buffer_size", "4096"),
        ],
        "SET sql_mode='ANSI_QUOTES',character_set_client='latin1',\
         collation_connection='latin1_bin',character_set_results=NULL,\
         autocommit='OFF',sort_buffer_size=4096",
    );
}

#[test]
fn the_character_set_and_the_collation_of_a_connection_are_one_setting() {
    let charset = ("character_set_connection", "latin1");
    let collation = ("collation_connection", "latin1_bin");
    check(&[charset], &[charset, collation], "SET collation_connection='latin1_bin'");
    check(&[charset, collation], &[charset], "SET character_set_connection='latin1'");
    check(&[collation, charset], &[charset], "");
    check(&[collation], &[charset], "SET character_set_connection='latin1'");
    check(&[collation], &[], "SET character_set_connection=DEFAULT");
    check(&[charset], &[], "SET character_set_connection=DEFAULT");
    check(&[], &[collation], "SET collation_connection='latin1_bin'");
}

#[test]
fn a_value_stays_a_value() {
    check(&[], &[("x.y", "'; DROP TABLE t; --")], "SET x.y='''; DROP TABLE t; --'");
    check(&[], &[("a", r"\'")], "SET a=_utf8mb4 0x5c27");
    check(&[], &[("a", "é")], "SET a=_utf8mb4 0xc3a9");
    check(&[], &[("a", "1\n")], "SET a=_utf8mb4 0x310a");
    for number in ["0", "-1", "18446744073709551615", "10.000000"] {
        check(&[], &[("a", number)], &format!("SET a={number}"));
    }
    for text in ["1.", ".5", "-", "1e3", "0x10", "1 OR 1", "1.2.3", "+1", "NULL", "DEFAULT", ""] {
        check(&[], &[("a", text)], &format!("SET a='{text}'"));
    }
}

#[test]
fn what_cannot_be_replayed_is_left_out() {
    for name in [
        "timestamp",
        "INSERT_ID",
        "rand_seed2",
        "pseudo_thread_id",
        "sql_log_bin",
        "gtid_next",
        "session_track_schema",
        "debug_sync",
        "a b",
        "",
        "1a",
        "a;b",
        "a`",
        "collation_database",
    ] {
        let mut settings = MysqlSettings::default();
        assert_eq!(settings.put(name, Some("x")), SettingChange::NotReplayable, "{name}");
        assert!(settings.is_empty() && settings.fingerprint() == 0);
    }
    assert!(is_harmless("sql_log_bin", "ON") && !is_harmless("sql_log_bin", "OFF"));
    assert!(!is_harmless("timestamp", "0"));
}

#[test]
fn the_lists_are_sorted() {
    for list in [NOT_REPLAYED, NOT_FOR_PLANS] {
        assert!(list.is_sorted());
    }
}

#[test]
fn there_is_a_bound_to_everything() {
    let mut settings = MysqlSettings::default();
    let long = "x".repeat(SETTING_BYTES_MAX + 1);
    assert_eq!(settings.put("a", Some(&long)), SettingChange::TooMuch);
    for number in 0..SETTINGS_MAX {
        assert_eq!(settings.put(&format!("v{number}"), Some("1")), SettingChange::Kept);
    }
    assert_eq!(settings.put("w", Some("1")), SettingChange::TooMuch);
    assert_eq!(settings.put("v1", Some("2")), SettingChange::Kept);
    assert_eq!(settings.put("v1", None), SettingChange::Kept);
    assert_eq!(settings.put("w", Some("1")), SettingChange::Kept);
    let mut settings = MysqlSettings::default();
    let value = "y".repeat(SETTING_BYTES_MAX);
    let kept = (0..SETTINGS_MAX)
        .filter(|number| settings.put(&format!("v{number}"), Some(&value)) == SettingChange::Kept)
        .count();
    assert!(kept * SETTING_BYTES_MAX <= SETTINGS_BYTES_MAX && kept == 3, "{kept}");
    assert_eq!(settings.put_schema(&"s".repeat(SCHEMA_BYTES_MAX + 1)), SettingChange::TooMuch);
}

#[test]
fn what_is_told_in_one_reply_may_come_in_any_order() {
    let charset = ("character_set_connection", "utf8mb4");
    let collation = ("collation_connection", "utf8mb4_bin");
    let client = ("character_set_client", "utf8mb4");
    let wanted = MysqlSettings::of([client, collation]);
    for order in [[charset, collation, client], [collation, client, charset]] {
        let mut settings = MysqlSettings::default();
        assert_eq!(settings.told(order.into_iter(), None), SettingChange::Kept);
        assert_eq!(settings, wanted);
    }
    // `SET NAMES utf8mb4 COLLATE utf8mb4_bin`: the collation is not reported.
    let mut settings = MysqlSettings::of([("collation_connection", "latin1_bin")]);
    assert_eq!(
        settings.told([charset, client].into_iter(), Some("utf8mb4_bin")),
        SettingChange::Kept
    );
    assert_eq!(settings, wanted);
    assert_eq!(settings.told([charset, client].into_iter(), None), SettingChange::Kept);
    assert_eq!(settings.value("collation_connection"), None);
    let put = settings.told([("timestamp", "5.0"), ("a", "1")].into_iter(), None);
    assert_eq!((put, settings.value("a")), (SettingChange::NotReplayable, Some("1")));
}

#[test]
fn a_login_names_its_character_set() {
    for (number, charset, collation) in [
        (8, "latin1", None),
        (33, "utf8mb3", None),
        (45, "utf8mb4", None),
        (46, "utf8mb4", Some("utf8mb4_bin")),
        (63, "binary", None),
        (224, "utf8mb4", Some("utf8mb4_unicode_ci")),
        (255, "utf8mb4", None),
        (0, "utf8mb4", None),
        (54, "utf8mb4", None),
        (2048, "utf8mb4", None),
    ] {
        let mut settings = MysqlSettings::default();
        settings.put_collation(number);
        assert_eq!(settings.value("character_set_client"), Some(charset), "{number}");
        assert_eq!(settings.value("character_set_results"), Some(charset));
        assert_eq!(settings.value("collation_connection"), collation);
        let connection = settings.value("character_set_connection");
        assert_eq!(connection, collation.is_none().then_some(charset));
    }
}

#[test]
fn the_schema_is_chosen_by_a_command_of_its_own() {
    let mut from = MysqlSettings::default();
    let mut to = MysqlSettings::default();
    assert_eq!(to.put_schema("shop"), SettingChange::Kept);
    assert_eq!(from.schema_change(&to), Some("shop"));
    assert_eq!(change(&from, &to), "");
    assert_ne!(from.fingerprint(), to.fingerprint());
    assert_ne!(from.plan_key(), to.plan_key());
    assert_ne!(from, to);
    assert_eq!(from.put_schema("shop"), SettingChange::Kept);
    assert_eq!(from.schema_change(&to), None);
    assert_eq!(from, to);
    assert_eq!(to.put_schema(""), SettingChange::NotReplayable);
}

#[test]
fn a_schema_is_told_as_it_is_written() {
    let mut settings = MysqlSettings::of([("character_set_client", "latin1")]);
    assert_eq!(settings.put_schema("größe"), SettingChange::NotReplayable);
    assert_eq!(settings.put("character_set_client", Some("utf8mb4")), SettingChange::Kept);
    assert_eq!(settings.put_schema("größe"), SettingChange::Kept);
    assert_eq!(settings.put("character_set_client", Some("latin1")), SettingChange::NotReplayable);
    assert_eq!(settings.value("character_set_client"), Some("utf8mb4"));
}

#[test]
fn plans_do_not_depend_on_timeouts() {
    let plain = MysqlSettings::of([("sql_mode", "")]);
    let patient = plain.overlaid(&MysqlSettings::of([("lock_wait_timeout", "1")]));
    assert_eq!(plain.plan_key(), patient.plan_key());
    assert_ne!(plain.fingerprint(), patient.fingerprint());
    assert_ne!(plain.plan_key(), MysqlSettings::of([("sql_mode", "ANSI")]).plan_key());
    let mut now = MysqlSettings::of([("autocommit", "OFF"), ("sql_mode", "ANSI"), ("a", "1")]);
    let _kept = now.put_schema("b");
    let mut then = MysqlSettings::of([("autocommit", "ON"), ("sql_mode", ""), ("b", "2")]);
    let _kept = then.put_schema("a");
    let mut planned = MysqlSettings::of([("autocommit", "OFF"), ("sql_mode", ""), ("b", "2")]);
    let _kept = planned.put_schema("a");
    assert_eq!(now.planned_as(&then), planned);
    assert_eq!(planned.plan_key(), then.plan_key());
}

#[test]
fn a_change_leads_from_anything_to_anything() {
    // A model of a server: the result of a `SET`.
    let names = ["a", "b", "character_set_connection", "collation_connection", "sql_mode"];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |bound: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % bound
    };
    let mut before = MysqlSettings::default();
    for _ in 0..5_000 {
        let mut wanted = before.clone();
        for _ in 0..next(4) {
            let name = names[usize::try_from(next(5)).unwrap()];
            let value = next(4).to_string();
            let _kept = wanted.put(name, (value != "3").then_some(&value));
        }
        let text = change(&before, &wanted);
        let mut server = before.clone();
        for assignment in text.strip_prefix("SET ").unwrap_or("").split(',') {
            let Some((name, value)) = assignment.split_once('=') else { continue };
            let _kept = server.put(name, (value != "DEFAULT").then_some(value));
        }
        assert_eq!(server, wanted, "{text}");
        before = wanted;
    }
}

#[test]
fn equal_settings_share_one_allocation() {
    let mut interner = SettingsInterner::default();
    let one = interner.share(Arc::new(MysqlSettings::of([("a", "1")])));
    let other = interner.share(Arc::new(MysqlSettings::of([("a", "1")])));
    assert!(Arc::ptr_eq(&one, &other));
    for number in 0..3 * INTERNED_MAX {
        drop(interner.share(Arc::new(MysqlSettings::of([("a", number.to_string().as_str())]))));
    }
    assert!(interner.known.len() <= INTERNED_MAX);
    assert!(Arc::ptr_eq(&one, &interner.share(Arc::new(MysqlSettings::of([("a", "1")])))));
}
