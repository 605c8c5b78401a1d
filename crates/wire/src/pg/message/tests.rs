//! Tests of the builders: every message byte by byte, and none that ends early.

use proptest::prelude::*;

use super::*;
use crate::pg::frame::TransactionStatus;
use crate::pg::startup::ProtocolVersion;

/// Builds after existing bytes, and compares.
fn check(build: impl FnOnce(&mut Vec<u8>), expected: &[u8]) {
    let mut out = b"before".to_vec();
    build(&mut out);
    assert_eq!(out.strip_prefix(b"before"), Some(expected), "{}", out.escape_ascii());
}

#[test]
fn messages_of_a_server() {
    check(backend::authentication_ok, b"R\0\0\0\x08\0\0\0\0");
    check(backend::authentication_cleartext, b"R\0\0\0\x08\0\0\0\x03");
    check(|out| backend::authentication_md5(out, *b"salt"), b"R\0\0\0\x0c\0\0\0\x05salt");
    check(|out| backend::authentication_sasl(out, &["A", "BC"]), b"R\0\0\0\x0e\0\0\0\x0aA\0BC\0\0");
    check(|out| backend::authentication_sasl_continue(out, b"r=1"), b"R\0\0\0\x0b\0\0\0\x0br=1");
    check(|out| backend::authentication_sasl_final(out, b"v=1"), b"R\0\0\0\x0b\0\0\0\x0cv=1");
    check(|out| backend::parameter_status(out, "a", ""), b"S\0\0\0\x07a\0\0");
    check(|out| backend::backend_key_data(out, 7, b"key!"), b"K\0\0\0\x0c\0\0\0\x07key!");
    check(|out| backend::ready_for_query(out, TransactionStatus::Idle), b"Z\0\0\0\x05I");
    check(|out| backend::ready_for_query(out, TransactionStatus::InTransaction), b"Z\0\0\0\x05T");
    check(|out| backend::ready_for_query(out, TransactionStatus::Failed), b"Z\0\0\0\x05E");
    check(|out| backend::command_complete(out, "SELECT 1"), b"C\0\0\0\x0dSELECT 1\0");
    check(
        |out| backend::error(out, &ErrorFields::fatal("08000", "no").with_hint("so")),
        b"E\0\0\0\x22SFATAL\0VFATAL\0C08000\0Mno\0Hso\0\0",
    );
    let notice =
        ErrorFields { severity: NoticeSeverity::Notice, ..ErrorFields::error("00000", "hi") };
    check(|out| backend::notice(out, &notice), b"N\0\0\0\x20SNOTICE\0VNOTICE\0C00000\0Mhi\0\0");
    check(|out| backend::notification(out, 7, "c", "p"), b"A\0\0\0\x0c\0\0\0\x07c\0p\0");
    check(backend::parse_complete, b"1\0\0\0\x04");
    check(backend::bind_complete, b"2\0\0\0\x04");
    check(backend::close_complete, b"3\0\0\0\x04");
    check(backend::no_data, b"n\0\0\0\x04");
    check(backend::empty_query, b"I\0\0\0\x04");
    check(
        |out| backend::row_description(out, &[("a", 25)]),
        b"T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0",
    );
    check(
        |out| backend::data_row(out, &[Some("a\0b"), None]),
        b"D\0\0\0\x11\0\x02\0\0\0\x03a\0b\xff\xff\xff\xff",
    );
    check(
        |out| backend::negotiate_protocol_version(out, 2, &["_pq_.x"]),
        b"v\0\0\0\x13\0\x03\0\x02\0\0\0\x01_pq_.x\0",
    );
}

#[test]
fn messages_of_a_client() {
    check(
        |out| frontend::startup(out, ProtocolVersion::V3_0, &[("user", "a")]),
        b"\0\0\0\x10\0\x03\0\0user\0a\0\0",
    );
    check(frontend::ssl_request, b"\0\0\0\x08\x04\xd2\x16\x2f");
    check(
        |out| frontend::cancel_request(out, 7, b"key!"),
        b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07key!",
    );
    check(|out| frontend::password(out, b"pw"), b"p\0\0\0\x07pw\0");
    check(|out| frontend::sasl_initial_response(out, "M", b"n,,"), b"p\0\0\0\x0dM\0\0\0\0\x03n,,");
    check(|out| frontend::sasl_response(out, b"c="), b"p\0\0\0\x06c=");
    check(|out| frontend::query(out, ";"), b"Q\0\0\0\x06;\0");
    check(|out| frontend::parse(out, "s", "q", &[23]), b"P\0\0\0\x0es\0q\0\0\x01\0\0\0\x17");
    check(
        |out| frontend::bind(out, "s", &[Some("ab"), None]),
        b"B\0\0\0\x17\0s\0\0\0\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\0",
    );
    check(|out| frontend::execute(out, 2), b"E\0\0\0\x09\0\0\0\0\x02");
    check(|out| frontend::describe_statement(out, "s"), b"D\0\0\0\x07Ss\0");
    check(|out| frontend::close_statement(out, "s"), b"C\0\0\0\x07Ss\0");
    check(frontend::sync, b"S\0\0\0\x04");
    check(frontend::flush, b"H\0\0\0\x04");
    check(frontend::terminate, b"X\0\0\0\x04");
    check(|out| frontend::copy_fail(out, "no"), b"f\0\0\0\x07no\0");
}

proptest! {
    /// A value with NUL bytes can neither end a message early nor add a second one.
    #[test]
    fn a_value_stays_inside_of_its_message(text in "[a-z\0]{0,20}", other in "[a-z\0Q]{0,20}") {
        let mut out = Vec::new();
        frontend::query(&mut out, &text);
        let visible = text.split('\0').next().unwrap_or_default();
        prop_assert_eq!(out.len(), visible.len() + 6);
        prop_assert_eq!(out.iter().filter(|byte| **byte == 0).count(), 4);

        let mut out = Vec::new();
        backend::error(&mut out, &ErrorFields::error("42P05", &text).with_hint(&other));
        let length = u32::from_be_bytes(out[1..5].try_into().expect("four bytes"));
        prop_assert_eq!(usize::try_from(length).expect("small") + 1, out.len());
    }
}
