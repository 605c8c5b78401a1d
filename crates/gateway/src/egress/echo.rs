//! Recognition of a secret that a response repeats, whole or in part, plain or encoded.
//!
//! The proxy adds secrets to requests outside the sandbox, so answers must not carry them back. A
//! [`SecretScanner`] knows each secret in the encodings that servers use when they echo a request
//! (Base64, hexadecimal, percent-encoding, JSON and HTML escapes, reversed) and finds any
//! [`FRAGMENT_BYTES`] of them in a row, in any case. Encodings that mix a key in (encryption,
//! hashes) are out of reach of a comparison.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use bytes::{Bytes, BytesMut};

/// Bytes of a secret, in one of its encodings, that are recognised anywhere. Long enough that
/// ordinary content does not contain them by accident.
pub(super) const FRAGMENT_BYTES: usize = 12;

/// Shortest word of a secret that is searched for by itself, and shortest prefix of a fragment at
/// the end of a response that counts as a part of one: the rest could follow in the next response.
pub(super) const WORD_BYTES_MIN: usize = 8;

/// Bytes of a window that the filter checks before the windows are searched.
const FILTER_BYTES: usize = 4;
/// Bits of the filter.
const FILTER_BITS: usize = 1 << 16;

/// A run of [`FRAGMENT_BYTES`] bytes of an encoding, in lower case.
type Window = [u8; FRAGMENT_BYTES];

/// The forms of a rule's secrets, prepared for the search.
#[derive(Clone)]
pub(super) struct SecretScanner {
    forms: Arc<SecretForms>,
}

struct SecretForms {
    /// Sorted, so that a window or the prefix of one is found by bisection.
    windows: Vec<Window>,
    /// Forms that are shorter than a window, in lower case.
    short: Vec<Box<[u8]>>,
    /// One bit for each hash of a window's first bytes.
    filter: Box<[u64]>,
}

/// Prints no secret.
impl fmt::Debug for SecretScanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretScanner").finish_non_exhaustive()
    }
}

impl SecretScanner {
    /// Creates a scanner for the values of headers that hold secrets; `None` without values.
    pub(super) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<SecretScanner> {
        let mut windows = BTreeSet::new();
        let mut short = BTreeSet::new();
        for value in values {
            for word in words_of(value) {
                for form in forms_of(word) {
                    let form = form.to_ascii_lowercase();
                    match form.len() {
                        0 => {}
                        1..FRAGMENT_BYTES => drop(short.insert(form.into_boxed_slice())),
                        _ => windows.extend(form.array_windows::<FRAGMENT_BYTES>().copied()),
                    }
                }
            }
        }
        if windows.is_empty() && short.is_empty() {
            return None;
        }
        let mut filter = vec![0_u64; FILTER_BITS / 64].into_boxed_slice();
        for window in &windows {
            let bit = filter_bit(window);
            filter[bit / 64] |= 1 << (bit % 64);
        }
        let forms = SecretForms {
            windows: windows.into_iter().collect(),
            short: short.into_iter().collect(),
            filter,
        };
        Some(SecretScanner { forms: Arc::new(forms) })
    }

    /// Returns whether a part of a secret occurs in `bytes`.
    pub(super) fn finds(&self, bytes: &[u8]) -> bool {
        self.finds_folded(&bytes.to_ascii_lowercase())
    }

    fn finds_folded(&self, folded: &[u8]) -> bool {
        let SecretForms { windows, short, filter } = &*self.forms;
        let is_known = |window: &Window| {
            let bit = filter_bit(window);
            filter[bit / 64] & (1 << (bit % 64)) != 0 && windows.binary_search(window).is_ok()
        };
        folded.array_windows::<FRAGMENT_BYTES>().any(is_known)
            || short.iter().any(|form| folded.windows(form.len()).any(|it| it == &**form))
    }

    /// Returns the number of bytes at the end of `bytes` that are the prefix of a fragment.
    fn unfinished(&self, bytes: &[u8]) -> usize {
        let SecretForms { windows, short, .. } = &*self.forms;
        let longest = bytes.len().min(FRAGMENT_BYTES - 1);
        let tail = bytes[bytes.len() - longest..].to_ascii_lowercase();
        let begins = |part: &[u8]| {
            let first = windows.partition_point(|window| window.as_slice() < part);
            windows.get(first).is_some_and(|window| window.starts_with(part))
                || short.iter().any(|form| form.len() > part.len() && form.starts_with(part))
        };
        (1..=longest).rev().find(|length| begins(&tail[longest - length..])).unwrap_or(0)
    }
}

fn filter_bit(window: &Window) -> usize {
    let mut first = [0; FILTER_BYTES];
    first.copy_from_slice(&window[..FILTER_BYTES]);
    // Fibonacci hashing: the highest bits of the product are well mixed.
    let hash = u32::from_le_bytes(first).wrapping_mul(0x9E37_79B1);
    usize::try_from(hash >> 16).unwrap_or(0) % FILTER_BITS
}

/// Returns the words of a secret that are long enough not to occur by accident, or else the whole
/// secret: `Bearer KEY` must not be returned as `KEY` either.
fn words_of(secret: &str) -> Vec<&[u8]> {
    let long = secret.split_whitespace().filter(|word| word.len() >= WORD_BYTES_MIN);
    let words: Vec<&[u8]> = long.map(str::as_bytes).collect();
    if words.is_empty() { vec![secret.as_bytes()] } else { words }
}

/// Returns the encodings of a word in which servers echo requests.
fn forms_of(word: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = spellings(word);
    // `Basic dXNlcjpwYXNz` encodes a user name and password.
    let unpadded = word.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    if let Ok(decoded) = BASE64_STANDARD_NO_PAD.decode(&word[..unpadded])
        && decoded.len() >= WORD_BYTES_MIN
        && decoded.iter().all(|byte| (b' '..=b'~').contains(byte))
    {
        forms.extend(spellings(&decoded));
    }
    forms
}

fn spellings(word: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![word.to_vec(), word.iter().rev().copied().collect()];
    let each = |spell: fn(u8) -> String| {
        word.iter().flat_map(|byte| spell(*byte).into_bytes()).collect::<Vec<u8>>()
    };
    forms.push(each(|byte| format!("{byte:02x}")));
    forms.push(each(|byte| format!("%{byte:02x}")));
    forms.push(each(|byte| format!("\\x{byte:02x}")));
    forms.push(each(|byte| format!("\\u{byte:04x}")));
    forms.push(each(|byte| format!("&#{byte};")));
    forms.push(each(|byte| format!("&#x{byte:x};")));
    // Forms and URLs escape only what they must.
    forms.push(each(|byte| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    }));
    // JSON with the required escapes only.
    forms.push(each(|byte| match byte {
        b'"' | b'\\' | b'/' => format!("\\{}", char::from(byte)),
        _ => char::from(byte).to_string(),
    }));
    for shift in 0..3 {
        // In a longer text a word has one of three alignments; the digits at both ends depend on
        // its neighbours.
        let mut padded = vec![0; shift];
        padded.extend_from_slice(word);
        let text = BASE64_STANDARD.encode(&padded);
        let first = (shift * 8).div_ceil(6);
        let last = padded.len() * 8 / 6;
        if let Some(digits) = text.as_bytes().get(first..last) {
            let for_urls = digits.iter().map(|digit| match digit {
                b'+' => b'-',
                b'/' => b'_',
                other => *other,
            });
            forms.push(for_urls.collect());
            forms.push(digits.to_vec());
        }
    }
    // Forms that are too short to be significant are dropped.
    forms.retain(|form| form.len() >= WORD_BYTES_MIN.min(word.len()));
    forms
}

/// The search through a body that arrives in chunks.
#[derive(Debug)]
pub(super) struct EchoFilter {
    scanner: Option<SecretScanner>,
    /// The end of the received data, which may be the prefix of a fragment.
    held: Bytes,
}

impl EchoFilter {
    /// Creates a filter for one body; without a scanner everything passes.
    pub(super) fn new(scanner: Option<SecretScanner>) -> EchoFilter {
        EchoFilter { scanner, held: Bytes::new() }
    }

    /// Returns the data that may be passed on; `None` if a part of a secret is in it.
    pub(super) fn pass(&mut self, data: Bytes) -> Option<Bytes> {
        let Some(scanner) = &self.scanner else { return Some(data) };
        let mut all = BytesMut::with_capacity(self.held.len() + data.len());
        all.extend_from_slice(&self.held);
        all.extend_from_slice(&data);
        if scanner.finds(&all) {
            return None;
        }
        let held = scanner.unfinished(&all);
        self.held = all.split_off(all.len() - held).freeze();
        Some(all.freeze())
    }

    /// Returns the data held back at the end of the body; `None` if it is too much of a secret.
    pub(super) fn finish(&mut self) -> Option<Bytes> {
        let held = std::mem::take(&mut self.held);
        (held.len() < WORD_BYTES_MIN).then_some(held)
    }

    /// Number of bytes that are held back.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "Bearer planted-canary/17+x";

    fn scanner() -> SecretScanner {
        SecretScanner::new([SECRET]).unwrap()
    }

    #[test]
    fn a_secret_is_found_however_it_is_cut() {
        let text = b"a planted-plan, and the planted-canary/17+x itself";
        for cut in 1..text.len() {
            let mut filter = EchoFilter::new(Some(scanner()));
            let mut passed = Vec::new();
            let is_found = text.chunks(cut).any(|piece| {
                let found = filter.pass(Bytes::copy_from_slice(piece));
                passed.extend_from_slice(found.as_deref().unwrap_or_default());
                found.is_none()
            });
            assert!(is_found, "{cut}");
            assert!(text.starts_with(&passed) && passed.len() <= 24, "{cut}");
        }
    }

    #[test]
    fn ordinary_content_passes_and_its_end_is_given_back() {
        let mut filter = EchoFilter::new(Some(scanner()));
        let mut passed = Vec::new();
        for piece in [&b"planted"[..], b"-can", b"opy plant"] {
            passed.extend_from_slice(&filter.pass(Bytes::copy_from_slice(piece)).unwrap());
        }
        assert_eq!(passed, b"planted-canopy ");
        assert_eq!(filter.held_bytes(), 5);
        assert_eq!(filter.finish().unwrap(), "plant");
        // Too long to be an accident: the rest could follow in the next response.
        assert_eq!(filter.pass(Bytes::from_static(b"planted-")).unwrap(), "");
        assert_eq!(filter.finish(), None);
    }

    #[test]
    fn encodings_and_parts_of_a_secret_are_found() {
        let key = "planted-canary/17+x";
        let each = |write: fn(u8) -> String| key.bytes().map(write).collect::<String>();
        let basic = SecretScanner::new([&*format!(
            "Basic {}",
            BASE64_STANDARD.encode("user:planted-canary/17+x")
        )])
        .unwrap();
        for (what, text) in [
            ("as it is", key.to_owned()),
            ("in upper case", key.to_uppercase()),
            ("its first part", key[..12].to_owned()),
            ("its middle", key[4..16].to_owned()),
            ("reversed", key.chars().rev().collect()),
            ("hexadecimal", each(|byte| format!("{byte:02x}"))),
            ("hexadecimal, upper case", each(|byte| format!("{byte:02X}"))),
            ("percent-encoded", each(|byte| format!("%{byte:02X}"))),
            ("a form's field", "planted-canary%2F17%2Bx".to_owned()),
            ("escaped by JSON", "planted-canary\\/17+x".to_owned()),
            ("escapes of JSON", each(|byte| format!("\\u{byte:04X}"))),
            ("escapes of Python", each(|byte| format!("\\x{byte:02x}"))),
            ("HTML, decimal", each(|byte| format!("&#{byte};"))),
            ("HTML, hexadecimal", each(|byte| format!("&#x{byte:X};"))),
            ("Base64 at 0", BASE64_STANDARD.encode(key)),
            ("Base64 at 1", BASE64_STANDARD.encode(format!("a{key}b"))),
            ("Base64 at 2", BASE64_STANDARD.encode(format!("ab{key}"))),
            ("Base64 of a part", BASE64_STANDARD.encode(&key[3..16])),
            ("Base64 for URLs", base64::prelude::BASE64_URL_SAFE.encode(format!("a{key}"))),
        ] {
            for around in ["", "you sent "] {
                assert!(scanner().finds(format!("{around}{text}{around}").as_bytes()), "{what}");
            }
            assert!(basic.finds(text.as_bytes()), "{what}, of a Basic credential");
        }
        for text in ["", "planted", "planted-can", "a canary was planted", "706c616e74"] {
            assert!(!scanner().finds(text.as_bytes()), "{text}");
        }
        let short = SecretScanner::new(["a key"]).unwrap();
        assert!(short.finds(b"this is A KEY") && !short.finds(b"a ke"));
        assert!(SecretScanner::new([]).is_none());
        assert!(!format!("{:?}", scanner()).contains("canary"));
    }
}
