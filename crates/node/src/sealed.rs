//! Small secrets at rest: encrypted, authenticated, and bound to their place.
//!
//! AES-256-GCM. Sealed secrets can be stored where others may read or change them: a reader learns
//! only the length, and every change is detected, including a secret that is moved to another place
//! (`about` names the place).
//!
//! # Layout
//! | bytes | content |
//! |---|---|
//! | 1 | version: 1 |
//! | 8 | id of the key: the beginning of its hash |
//! | 12 | nonce, random |
//! | n | the secret, encrypted |
//! | 16 | tag |
//!
//! Random nonces of 96 bits are sufficient for 2^32 secrets of one key (NIST SP 800-38D, 8.3),
//! which is more than users will enter.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use sha2::{Digest as _, Sha256};

use crate::auth;
use crate::data_dir::{self, write_atomic};
use crate::hex;

/// Longest secret.
pub const SECRET_BYTES_MAX: usize = 64 << 10;

/// File with the key of a data directory, in hexadecimal digits; only its owner may read it.
pub const KEY_FILE: &str = "secrets.key";

/// Version of the sealed form.
const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 8;
const HEADER_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_LEN;

/// Context of the hash that is a key's id: no other use of the key has the same context.
const KEY_ID_OF: &[u8] = b"cove sealed secrets 1";
/// Prefix of the purposes of derived keys.
const DERIVED_FOR: &str = "cove derived key 1: ";

/// Reason why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum SealKeyError {
    /// The configured key is malformed.
    #[error("`secrets_key` must have 64 hexadecimal digits")]
    Malformed,
    /// The key in the data directory is malformed.
    #[error("`{}` does not have 64 hexadecimal digits", .0.display())]
    MalformedFile(PathBuf),
    /// The file cannot be read.
    #[error("read `{}`", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] data_dir::DataDirError),
    /// No key can be generated.
    #[error("make a key")]
    Make(#[source] auth::TokenError),
}

/// Reason why a secret is not sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The secret is too long.
    #[error("a secret has at most {SECRET_BYTES_MAX} bytes")]
    TooLong,
    /// The kernel returned no random bytes.
    #[error("draw random bytes")]
    Random(#[source] io::Error),
    /// Not sealed by this module, or truncated.
    #[error("malformed sealed secret")]
    Malformed,
    /// Sealed by a later version.
    #[error("the secret was sealed in a way unknown to this version ({0})")]
    Version(u8),
    /// Sealed with another key.
    #[error("the secret was sealed with the key {0}, but the current key is {1}")]
    OtherKey(String, String),
    /// Changed, or sealed for another place.
    #[error("the secret was changed since it was sealed, or belongs elsewhere")]
    Changed,
}

/// Seals and opens secrets. Its key is in memory only here and is never shown.
pub struct Sealer {
    key: LessSafeKey,
    id: [u8; KEY_ID_BYTES],
    /// Root of the derived keys.
    root: hmac::Key,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("key_id", &hex::encode(&self.id)).finish_non_exhaustive()
    }
}

/// An opened secret. It has no `Display`, and its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainSecret(Vec<u8>);

impl PlainSecret {
    /// Returns the bytes, for their user.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns it as text; none if it is not UTF-8.
    #[must_use]
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for PlainSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(..)")
    }
}

impl Sealer {
    /// Name of the file with its key in a data directory.
    pub const KEY_FILE: &str = "secrets.key";

    /// Creates a sealer with a key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Sealer {
        let mut hash = Sha256::new();
        hash.update(KEY_ID_OF);
        hash.update(key);
        let hash: [u8; 32] = hash.finalize().into();
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&hash[..KEY_ID_BYTES]);
        let root = hmac::Key::new(hmac::HMAC_SHA256, key);
        let key = UnboundKey::new(&AES_256_GCM, key);
        // It has no other reason to refuse one, see its documentation.
        let key = key.expect("AES-256 takes every key of 32 bytes");
        Sealer { key: LessSafeKey::new(key), id, root }
    }

    /// Derives a key for another purpose, the same one on every server that seals with this key. It
    /// reveals nothing of this key, or of the keys for other purposes.
    #[must_use]
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        let tag = hmac::sign(&self.root, format!("{DERIVED_FOR}{purpose}").as_bytes());
        let mut key = [0; 32];
        // Both have 32 bytes: the length of SHA-256.
        key.copy_from_slice(tag.as_ref());
        key
    }

    /// Creates a sealer with a configured key: 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn from_text(text: &str) -> Result<Sealer, SealKeyError> {
        Ok(Sealer::new(&Sealer::key_from_text(text)?))
    }

    /// Returns the key of a text: 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn key_from_text(text: &str) -> Result<[u8; 32], SealKeyError> {
        hex::decode_32(text.trim()).ok_or(SealKeyError::Malformed)
    }

    /// Creates a sealer with the key of a data directory, which is generated if missing. If the
    /// file is lost, the secrets sealed with it are lost.
    ///
    /// # Errors
    /// If the file cannot be read, parsed or written.
    pub fn of_data_dir(directory: &Path) -> Result<Sealer, SealKeyError> {
        Ok(Sealer::new(&Sealer::key_of_data_dir(directory)?))
    }

    /// Returns the key of a data directory, which is generated if missing.
    ///
    /// # Errors
    /// As of [`Sealer::of_data_dir`].
    pub fn key_of_data_dir(directory: &Path) -> Result<[u8; 32], SealKeyError> {
        let path = directory.join(Sealer::KEY_FILE);
        match fs::read_to_string(&path) {
            Ok(text) => hex::decode_32(text.trim()).ok_or(SealKeyError::MalformedFile(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = auth::random_key().map_err(SealKeyError::Make)?;
                Sealer::keep_key(directory, &made)?;
                Ok(made)
            }
            Err(source) => Err(SealKeyError::Read { path, source }),
        }
    }

    /// Stores a key as that of a data directory.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep_key(directory: &Path, key: &[u8; 32]) -> Result<(), SealKeyError> {
        let text = format!("{}\n", hex::encode(key));
        Ok(write_atomic(&directory.join(Sealer::KEY_FILE), text.as_bytes())?)
    }

    /// Seals a secret for the place that `about` names, such as a tenant and an id. The same text
    /// is needed to open it; it is not stored.
    ///
    /// # Errors
    /// If it is too long, or the kernel returns no random bytes.
    pub fn seal(&self, secret: &[u8], about: &str) -> Result<Vec<u8>, SealError> {
        if secret.len() > SECRET_BYTES_MAX {
            return Err(SealError::TooLong);
        }
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|error| SealError::Random(error.into()))?;
        let mut sealed = Vec::with_capacity(HEADER_BYTES + secret.len() + AES_256_GCM.tag_len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.id);
        sealed.extend_from_slice(&nonce);
        let bound = bound(&sealed, about);
        let mut inside = secret.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let done = self.key.seal_in_place_append_tag(nonce, Aad::from(bound), &mut inside);
        // It fails only for secrets longer than 64 GiB.
        done.map_err(|_| SealError::TooLong)?;
        sealed.append(&mut inside);
        Ok(sealed)
    }

    /// Opens a secret that was sealed for the same place.
    ///
    /// # Errors
    /// If it was changed, belongs elsewhere, was sealed with another key or by a later version.
    pub fn open(&self, sealed: &[u8], about: &str) -> Result<PlainSecret, SealError> {
        let (header, inside) = sealed.split_at_checked(HEADER_BYTES).ok_or(SealError::Malformed)?;
        let (version, rest) = header.split_first().ok_or(SealError::Malformed)?;
        if *version != VERSION {
            return Err(SealError::Version(*version));
        }
        let (id, nonce) = rest.split_at_checked(KEY_ID_BYTES).ok_or(SealError::Malformed)?;
        if id != self.id {
            return Err(SealError::OtherKey(hex::encode(id), hex::encode(&self.id)));
        }
        if inside.len() > SECRET_BYTES_MAX + AES_256_GCM.tag_len() {
            return Err(SealError::TooLong);
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Malformed)?;
        let mut inside = inside.to_vec();
        let bound = Aad::from(bound(header, about));
        let opened = self.key.open_in_place(nonce, bound, &mut inside);
        let length = opened.map_err(|_| SealError::Changed)?.len();
        inside.truncate(length);
        Ok(PlainSecret(inside))
    }

    /// As [`Sealer::seal`], for columns and files of text: base64.
    ///
    /// # Errors
    /// As of [`Sealer::seal`].
    pub fn seal_text(&self, secret: &str, about: &str) -> Result<String, SealError> {
        Ok(STANDARD_NO_PAD.encode(self.seal(secret.as_bytes(), about)?))
    }

    /// As [`Sealer::open`], for secrets sealed by [`Sealer::seal_text`].
    ///
    /// # Errors
    /// As of [`Sealer::open`].
    pub fn open_text(&self, sealed: &str, about: &str) -> Result<PlainSecret, SealError> {
        let sealed = STANDARD_NO_PAD.decode(sealed).map_err(|_| SealError::Malformed)?;
        self.open(&sealed, about)
    }
}

/// Returns the authenticated data that is not stored: the header, and the place.
fn bound(header: &[u8], about: &str) -> Vec<u8> {
    [header, about.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::TempDir;

    const SECRET: &str = "sk-ant-very-secret";

    fn sealer(byte: u8) -> Sealer {
        Sealer::new(&[byte; 32])
    }

    #[test]
    fn derived_keys_are_for_one_purpose_each() {
        let sealer = Sealer::new(&[7; 32]);
        let key = sealer.derived_key("a");
        assert_eq!(key, Sealer::new(&[7; 32]).derived_key("a"));
        for other in [sealer.derived_key("b"), Sealer::new(&[8; 32]).derived_key("a"), [7; 32]] {
            assert_ne!(key, other);
        }
    }

    #[test]
    fn what_is_sealed_opens_in_its_place_and_shows_nothing() {
        let sealer = sealer(1);
        for secret in ["", SECRET, &"x".repeat(SECRET_BYTES_MAX)] {
            let sealed = sealer.seal(secret.as_bytes(), "tenant/cred").unwrap();
            assert_eq!(sealed.len(), 1 + 8 + 12 + secret.len() + 16);
            let opened = sealer.open(&sealed, "tenant/cred").unwrap();
            assert_eq!(opened.expose_text(), Some(secret));
            assert_eq!(format!("{opened:?}"), "Plain(..)");
            let text = sealer.seal_text(secret, "a").unwrap();
            assert_eq!(sealer.open_text(&text, "a").unwrap().expose(), secret.as_bytes());
        }
        let sealed = sealer.seal(SECRET.as_bytes(), "a").unwrap();
        assert!(!sealed.windows(4).any(|part| SECRET.as_bytes().windows(4).any(|it| it == part)));
        assert_ne!(sealed, sealer.seal(SECRET.as_bytes(), "a").unwrap(), "nonces are random");
        let too_long = vec![0; SECRET_BYTES_MAX + 1];
        assert!(matches!(sealer.seal(&too_long, "a"), Err(SealError::TooLong)));
        assert!(!format!("{sealer:?}").contains(&"01".repeat(4)));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let sealer = sealer(1);
        let sealed = sealer.seal(SECRET.as_bytes(), "a").unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let error = sealer.open(&changed, "a").unwrap_err();
            let is_expected = match bit / 8 {
                0 => matches!(error, SealError::Version(_)),
                1..9 => matches!(error, SealError::OtherKey(..)),
                _ => matches!(error, SealError::Changed),
            };
            assert!(is_expected, "bit {bit}: {error}");
        }
        for length in 0..sealed.len() {
            let error = sealer.open(&sealed[..length], "a").unwrap_err();
            assert!(matches!(error, SealError::Malformed | SealError::Changed), "{length}");
        }
        let longer = [&*sealed, b"x"].concat();
        assert!(matches!(sealer.open(&longer, "a"), Err(SealError::Changed)));
        assert!(matches!(sealer.open_text("no base64!", "a"), Err(SealError::Malformed)));
    }

    #[test]
    fn another_place_and_another_key_open_nothing() {
        let sealed = sealer(1).seal(SECRET.as_bytes(), "tenant-1/cred").unwrap();
        for about in ["", "tenant-2/cred", "tenant-1/cred2", "tenant-1/cre"] {
            let error = sealer(1).open(&sealed, about).unwrap_err();
            assert!(matches!(error, SealError::Changed), "{about}");
        }
        let error = sealer(2).open(&sealed, "tenant-1/cred").unwrap_err();
        assert!(matches!(error, SealError::OtherKey(..)));
        // Not by its id alone: with the id of the right key it does not open either.
        let mut named = sealed;
        named[1..9].copy_from_slice(&sealer(2).id);
        let error = sealer(2).open(&named, "tenant-1/cred").unwrap_err();
        assert!(matches!(error, SealError::Changed));
    }

    /// Ensures that the next version opens secrets of this one: made with an independent
    /// implementation (Python's `cryptography`).
    #[test]
    fn the_layout_does_not_change() {
        let sealed = concat!(
            "01",
            "6f3f9a2fe3b74ab7",
            "000102030405060708090a0b",
            "6beac411737df43f12c09cb1913d0f888448af332bddfddc07f7ac1918d9aaee9e2d"
        );
        let bytes: Vec<u8> = (0..sealed.len() / 2)
            .map(|at| u8::from_str_radix(&sealed[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        let opened = sealer(7).open(&bytes, "tenant/cred").unwrap();
        assert_eq!(opened.expose_text(), Some(SECRET));
    }

    #[test]
    fn a_data_directory_has_one_key() {
        let temp = TempDir::new();
        let sealed = Sealer::of_data_dir(temp.path()).unwrap().seal(b"s", "a").unwrap();
        let path = temp.path().join(Sealer::KEY_FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Sealer::of_data_dir(temp.path()).unwrap();
        assert_eq!(again.open(&sealed, "a").unwrap().expose(), b"s");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(Sealer::from_text(&text).unwrap().open(&sealed, "a").unwrap().expose(), b"s");
        for wrong in ["", "00", &"x".repeat(64), &"é".repeat(32)] {
            assert!(matches!(Sealer::from_text(wrong), Err(SealKeyError::Malformed)), "{wrong}");
            fs::write(&path, wrong).unwrap();
            let error = Sealer::of_data_dir(temp.path()).unwrap_err();
            assert!(matches!(error, SealKeyError::MalformedFile(_)), "{wrong}");
        }
    }
}
