//! UUIDs that Ash's clients expect as ids.
//!
//! Native ids are a prefix and 128 bits, time first. The UUID has the same bits, so the ids convert
//! in both directions without a table. An object without an id of its own, such as an event, gets a
//! UUID derived from the object that it belongs to.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Digits of native ids (Crockford's base 32), by value.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Number of digits of an id: 130 bits, of which the first two are zero.
const DIGITS_OF_ID: usize = 26;
/// Positions of a UUID's hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// Characters of a UUID.
const UUID_CHARS: usize = 36;

/// Prefix of a session's id.
pub(super) const SESSION: &str = "ses_";
/// Prefix of a credential's id.
pub(super) const CREDENTIAL: &str = "cred_";
/// Prefix of an attachment's id.
pub(super) const ATTACHMENT: &str = "att_";

/// Returns the UUID of an id. An id in another form gets a UUID that cannot be converted back.
pub(super) fn uuid(id: &str) -> String {
    exact(id).unwrap_or_else(|| derived(&[id]))
}

/// Returns the UUID of an id that [`ours`] converts back; none if that is impossible.
pub(super) fn exact(id: &str) -> Option<String> {
    let digits = id.rsplit('_').next()?.as_bytes();
    if digits.len() != DIGITS_OF_ID || !(b'0'..=b'7').contains(digits.first()?) {
        return None;
    }
    let mut number = 0_u128;
    for digit in digits {
        let value = DIGITS.iter().position(|known| known == digit)?;
        number = number << 5 | u128::try_from(value).ok()?;
    }
    Some(shown(number))
}

/// Returns the id with this prefix for a UUID.
pub(super) fn ours(prefix: &str, uuid: &str) -> Option<String> {
    let is_shaped = uuid.len() == UUID_CHARS
        && uuid.bytes().enumerate().all(|(place, byte)| match HYPHENS.contains(&place) {
            true => byte == b'-',
            false => byte.is_ascii_hexdigit(),
        });
    if !is_shaped {
        return None;
    }
    let number = u128::from_str_radix(&uuid.replace('-', ""), 16).ok()?;
    let mut id = String::with_capacity(prefix.len() + DIGITS_OF_ID);
    id.push_str(prefix);
    for place in (0..DIGITS_OF_ID).rev() {
        let digit = usize::from((number >> (5 * place)).to_le_bytes()[0] & 31);
        id.push(char::from(DIGITS[digit]));
    }
    Some(id)
}

/// Derives a UUID from these parts (RFC 9562 §5.8, whose bits are free to choose).
pub(super) fn derived(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(hash.finalize()) {
        *to = from;
    }
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    shown(u128::from_be_bytes(bytes))
}

fn shown(number: u128) -> String {
    let mut text = String::with_capacity(UUID_CHARS);
    for (index, byte) in number.to_be_bytes().iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _always = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use node::clock::IdGenerator;

    use super::*;

    #[test]
    fn ids_and_uuids_lead_to_each_other() {
        let ids = IdGenerator::new().unwrap();
        for _ in 0..1000 {
            let id = ids.next(SESSION);
            assert_eq!(ours(SESSION, &uuid(&id)).as_deref(), Some(&*id));
        }
        let zero = "ses_00000000000000000000000000";
        assert_eq!(uuid(zero), "00000000-0000-0000-0000-000000000000");
        let all = "ses_7ZZZZZZZZZZZZZZZZZZZZZZZZZ";
        assert_eq!(uuid(all), "ffffffff-ffff-ffff-ffff-ffffffffffff");
        let shouted = uuid(all).to_uppercase();
        assert_eq!(ours(SESSION, &shouted).as_deref(), Some(all));
    }

    #[test]
    fn order_of_ids_is_order_of_uuids() {
        let ids = IdGenerator::new().unwrap();
        let mut last = String::new();
        for _ in 0..1000 {
            let next = uuid(&ids.next(SESSION));
            assert!(next > last, "{next} is not after {last}");
            last = next;
        }
    }

    #[test]
    fn what_is_no_uuid_names_nothing() {
        for text in [
            "",
            "ses_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "ffffffffffffffffffffffffffffffff",
            "ffffffff-ffff-ffff-ffff-fffffffffff",
            "ffffffff-ffff-ffff-ffff-ffffffffffff0",
            "fffffffff-fff-ffff-ffff-ffffffffffff",
            "gfffffff-ffff-ffff-ffff-ffffffffffff",
            "+fffffff-ffff-ffff-ffff-ffffffffffff",
            "\u{e9}ffffff-ffff-ffff-ffff-ffffffffffff",
        ] {
            assert_eq!(ours(SESSION, text), None, "{text}");
        }
    }

    #[test]
    fn ids_of_other_forms_have_uuids_of_their_own() {
        for id in
            ["", "x", "ses_", "ses_8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "ses_U0000000000000000000000000"]
        {
            assert_eq!(exact(id), None, "{id}");
            assert_eq!(uuid(id), uuid(id));
            assert_eq!(uuid(id).len(), UUID_CHARS);
        }
        assert_ne!(derived(&["ab", "c"]), derived(&["a", "bc"]));
        let uuid = derived(&["ses_1", "message", "7"]);
        assert!(uuid[14..].starts_with('8') && "89ab".contains(&uuid[19..20]), "{uuid}");
    }
}
