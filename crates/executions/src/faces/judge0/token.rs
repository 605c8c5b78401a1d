//! Tokens of submissions: an execution's id, written as a random UUID, which clients expect.
//!
//! An id has 48 bits of time and 80 random ones; a UUID of version 4 has 122 free bits. Six bits of
//! the time are 0 until the year 2109, so that the conversion is reversible.

use api::ExecutionId;

const PREFIX: &str = "ex_";
/// Crockford's base 32.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const DIGITS_OF_ID: usize = 26;
/// Bits of a UUID that are free, in its three parts around version and variant.
const FREE_BITS: [u32; 3] = [48, 12, 62];
const FREE_BITS_ALL: u32 = 122;

/// Returns the token of an execution. An id in another format is its own token.
pub(super) fn of(id: &ExecutionId) -> String {
    match number(&id.0) {
        Some(number) if number >> FREE_BITS_ALL == 0 => uuid(number),
        _ => id.0.clone(),
    }
}

/// Returns the execution of a token; an invalid token becomes an id that does not exist.
pub(super) fn id(token: &str) -> ExecutionId {
    let number = parse_uuid(token);
    ExecutionId(number.map_or_else(|| token.to_owned(), |number| PREFIX.to_owned() + &text(number)))
}

fn number(id: &str) -> Option<u128> {
    let digits = id.strip_prefix(PREFIX).filter(|digits| digits.len() == DIGITS_OF_ID)?;
    digits.bytes().try_fold(0_u128, |number, byte| {
        let digit = DIGITS.iter().position(|digit| *digit == byte)?;
        number.checked_mul(32)?.checked_add(u128::try_from(digit).ok()?)
    })
}

fn text(mut number: u128) -> String {
    let mut digits = [b'0'; DIGITS_OF_ID];
    for digit in digits.iter_mut().rev() {
        *digit = usize::try_from(number % 32).map_or(b'0', |index| DIGITS[index]);
        number /= 32;
    }
    digits.iter().map(|&digit| char::from(digit)).collect()
}

fn uuid(number: u128) -> String {
    let [_, middle, low] = FREE_BITS;
    let part = |shift: u32, bits: u32| number >> shift & ((1 << bits) - 1);
    let version = 0x4 << 76;
    let variant = 0b10 << 62;
    let all =
        number >> (middle + low) << 80 | version | part(low, middle) << 64 | variant | part(0, low);
    let hex = format!("{all:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn parse_uuid(text: &str) -> Option<u128> {
    let dashes = |(index, byte): (usize, u8)| (byte == b'-') == [8, 13, 18, 23].contains(&index);
    if text.len() != 36 || !text.is_ascii() || !text.bytes().enumerate().all(dashes) {
        return None;
    }
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let all = u128::from_str_radix(&digits, 16).ok()?;
    let [high, middle, low] = FREE_BITS;
    let part = |shift: u32, bits: u32| all >> shift & ((1 << bits) - 1);
    let random = part(76, 4) == 0x4 && part(62, 2) == 0b10;
    random.then(|| part(80, high) << (middle + low) | part(64, middle) << low | part(0, low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_random_uuid_and_leads_back() {
        for id in [
            "ex_01KBJ8QZ5N8M3V0Y2R7T4W6X9A",
            "ex_00000000000000000000000000",
            "ex_01ZZZZZZZZZZZZZZZZZZZZZZZZ",
        ] {
            let id = ExecutionId(id.to_owned());
            let token = of(&id);
            assert_eq!((token.len(), &token[14..15]), (36, "4"), "{token}");
            assert!("89ab".contains(&token[19..20]), "{token}");
            assert_eq!(super::id(&token), id);
            assert_eq!(super::id(&token.to_uppercase()), id);
        }
    }

    #[test]
    fn what_does_not_fit_stands_for_itself() {
        for id in ["ex_7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "ex_short", "bull:7", ""] {
            assert_eq!(of(&ExecutionId(id.to_owned())), id);
            assert_eq!(super::id(id).0, id);
        }
        for token in [
            "00000000-0000-1000-8000-000000000000",
            "d85cd024-1548-4165-96c7-7bc88673f19",
            "é".repeat(18).as_str(),
        ] {
            assert_eq!(id(token).0, token);
        }
    }
}
