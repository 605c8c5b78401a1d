//! Refusals in MySQL's form: a number, MySQL's SQLSTATE, a message.
//!
//! # References
//! - <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html>

use wire::mysql::packet;

use crate::pg::login::PgLoginRefusal;

/// Pseudo SQLSTATE: TLS is required. MySQL's own number for it, 3159, has only the general
/// SQLSTATE.
pub(super) const TLS_ONLY: &str = "HY000/tls";

/// Pseudo SQLSTATE: the client does not support the required method.
pub(super) const METHOD: &str = "HY000/method";

/// By SQLSTATE: MySQL's number for it, and the SQLSTATE that MySQL has with that number. PostgreSQL
/// has more distinct codes, and not everything has a counterpart; drivers decide by the number
/// whether a connection is broken and whether to retry. No number is from 2000 to 2999: those are
/// for errors that clients detect themselves, and MariaDB's clients reject packets with them.
const ERRORS: [(&str, u16, &[u8; 5]); 24] = [
    ("08000", 3032, b"HY000"), // the server is offline
    ("08001", 3032, b"HY000"),
    ("08004", 1040, b"08004"),
    ("08006", 1158, b"08S01"), // the server was lost
    ("08P01", 1043, b"08S01"), // bad handshake
    ("0A000", 1235, b"42000"), // not supported
    ("22023", 1210, b"HY000"), // incorrect arguments
    ("25006", 1792, b"25006"), // read-only transaction
    ("25P03", 4031, b"HY000"), // disconnected because of inactivity
    ("26000", 1243, b"HY000"), // no such prepared statement
    ("28000", 1045, b"28000"), // access denied
    ("28P01", 1045, b"28000"),
    ("3D000", 1049, b"42000"), // no such database
    ("40001", 1213, b"40001"), // serialisation failure or deadlock
    ("42501", 1227, b"42000"), // insufficient privilege
    ("42601", 1064, b"42000"), // a syntax error
    ("53000", 1041, b"HY000"), // out of resources
    ("53200", 1041, b"HY000"),
    ("53300", 1040, b"08004"), // too many connections
    ("53400", 1226, b"42000"), // a limit of this user is reached
    ("57014", 1317, b"70100"), // interrupted
    ("57P01", 1053, b"08S01"), // shutting down
    (TLS_ONLY, 3159, b"HY000"),
    (METHOD, 1251, b"08004"),
];

/// Error without a counterpart: one that has no number of its own.
const UNKNOWN: (u16, &[u8; 5]) = (1105, b"HY000");

/// Returns MySQL's number for an SQLSTATE of PostgreSQL, and the SQLSTATE that belongs to that
/// number.
#[must_use]
pub fn errno_of(sqlstate: &str) -> (u16, [u8; 5]) {
    let found = ERRORS.iter().find(|(one, _, _)| *one == sqlstate);
    let (errno, state) = match (found, sqlstate) {
        (Some((_, errno, state)), _) => (*errno, *state),
        // All kinds of shutdown, and all kinds of idle timeouts.
        (None, "57P02" | "57P03") => (1053, b"08S01"),
        (None, "25P04" | "57P05") => (4031, b"HY000"),
        (None, _) => UNKNOWN,
    };
    (errno, *state)
}

/// Appends a refusal, as the packet with the number `seq`, which becomes the next one.
pub fn put_refusal(out: &mut Vec<u8>, seq: &mut u8, refusal: &PgLoginRefusal) {
    let (errno, state) = errno_of(refusal.code);
    packet::put_err(out, seq, errno, state, sentence(refusal).as_bytes());
}

/// Appends a refusal in place of the greeting. It has no SQLSTATE: the client does not know yet
/// whether the protocol has one, and would show it to users.
pub fn put_refusal_unasked(out: &mut Vec<u8>, refusal: &PgLoginRefusal) {
    let (errno, _) = errno_of(refusal.code);
    let mut payload = vec![packet::ERR];
    payload.extend_from_slice(&errno.to_le_bytes());
    payload.extend_from_slice(sentence(refusal).as_bytes());
    let mut seq = 0;
    wire::mysql::frame::put_packet(out, &mut seq, &payload);
}

fn sentence(refusal: &PgLoginRefusal) -> String {
    match &refusal.hint {
        Some(hint) => format!("{} ({hint})", refusal.message),
        None => refusal.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_numbers_that_drivers_know() {
        for (sqlstate, errno, state) in [
            ("53300", 1040, b"08004"),
            ("28P01", 1045, b"28000"),
            ("57P01", 1053, b"08S01"),
            ("57P03", 1053, b"08S01"),
            ("57P05", 4031, b"HY000"),
            ("08006", 1158, b"08S01"),
            ("XX000", 1105, b"HY000"),
            (TLS_ONLY, 3159, b"HY000"),
        ] {
            assert_eq!(errno_of(sqlstate), (errno, *state), "{sqlstate}");
        }
        let is_clients = |errno: u16| (2000..3000).contains(&errno);
        assert!(!ERRORS.iter().any(|(_, errno, _)| is_clients(*errno)));
        let sorted = ERRORS.iter().take(22).is_sorted_by_key(|(sqlstate, _, _)| *sqlstate);
        assert!(sorted, "each SQLSTATE is found in its place");
    }

    #[test]
    fn a_refusal_in_place_of_the_greeting_has_no_sqlstate() {
        let refusal = PgLoginRefusal::new("53300", "too many");
        let mut out = Vec::new();
        put_refusal_unasked(&mut out, &refusal);
        assert_eq!(out, b"\x0b\0\0\0\xff\x10\x04too many");
        let (mut out, mut seq) = (Vec::new(), 2);
        let hint = Some("later".to_owned());
        put_refusal(&mut out, &mut seq, &PgLoginRefusal { hint, ..refusal });
        assert_eq!(out, b"\x19\0\0\x02\xff\x10\x04#08004too many (later)");
        assert_eq!(seq, 3);
    }
}
