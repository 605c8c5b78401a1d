//! RSA key for clients that send their password over an unencrypted connection.
//!
//! It is generated before it is needed, lives in memory, and is replaced after some thousand uses,
//! never by a thread that serves other clients. The time of a decryption depends on the key
//! (RUSTSEC-2023-0071): an attacker who records a password and then measures very many decryptions
//! could recover it. Decryption is blinded, and a key is discarded after [`USES_MAX`] uses. TLS
//! avoids the problem.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rsa::pkcs8::{DecodePublicKey as _, EncodePublicKey as _, LineEnding};
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPrivateKey, RsaPublicKey};
use sha1::Sha1;
use zeroize::Zeroizing;

/// Size of the key, as in MySQL.
const KEY_BITS: usize = 2048;

/// Maximum decryptions with one key: far fewer than a timing attack needs.
const USES_MAX: u32 = 4096;

/// Decryptions after which the next key is generated. The remaining ones are for clients that have
/// this key.
const USES_WORN: u32 = USES_MAX / 4 * 3;

/// Maximum text of a server's public key, and its maximum size in bits: a server must not choose
/// the amount of computation.
const PEM_BYTES_MAX: usize = 8192;
const SERVER_KEY_BYTES_MAX: usize = 1024;

/// Error of an encryption.
#[derive(Debug, thiserror::Error)]
pub enum RsaKeyError {
    /// No key can be generated.
    #[error("make a key")]
    Make(#[source] rsa::Error),
    /// The public key cannot be encoded or decoded.
    #[error("malformed public key")]
    Public,
    /// The password is too long for the key.
    #[error("the password is too long for the server's key")]
    TooLong,
}

/// The current key. Shared by all threads.
#[derive(Default)]
pub struct OwnKey {
    current: Mutex<Option<Arc<KeyPair>>>,
    /// Held while a key is generated, so that other threads do not generate one as well.
    making: Mutex<()>,
}

/// A generated key.
pub struct KeyPair {
    private: RsaPrivateKey,
    public: String,
    uses: AtomicU32,
}

impl OwnKey {
    /// Returns the key for a new client; `None` if there is no usable one: see [`OwnKey::renew`].
    #[must_use]
    pub fn current(&self) -> Option<Arc<KeyPair>> {
        self.current.lock().clone().filter(|made| made.uses() < USES_MAX)
    }

    /// Generates a key if there is none or it is worn, which takes some tenths of a second.
    ///
    /// # Errors
    /// If it cannot be generated.
    pub fn renew(&self) -> Result<Arc<KeyPair>, RsaKeyError> {
        let _making = self.making.lock();
        if let Some(made) = self.current().filter(|made| !made.is_worn()) {
            return Ok(made);
        }
        let private = RsaPrivateKey::new(&mut OsRng, KEY_BITS).map_err(RsaKeyError::Make)?;
        let public = private.to_public_key().to_public_key_pem(LineEnding::LF);
        let public = public.map_err(|_| RsaKeyError::Public)?;
        let made = Arc::new(KeyPair { private, public, uses: AtomicU32::new(0) });
        *self.current.lock() = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Generates the key if there is none, so that no client waits for it.
    pub fn prepare(&self) {
        if let Err(error) = self.renew() {
            tracing::warn!(error = &error as &dyn std::error::Error, "make a key");
        }
    }
}

impl KeyPair {
    /// Returns the public key, as MySQL sends it.
    #[must_use]
    pub fn public_pem(&self) -> &str {
        &self.public
    }

    /// Returns whether the next key should be generated.
    #[must_use]
    pub fn is_worn(&self) -> bool {
        self.uses() >= USES_WORN
    }

    /// Returns the plaintext of bytes that were encrypted with the public key; `None` if they were
    /// not, or the key was used too often. Takes about a millisecond.
    #[must_use]
    pub fn decrypt(&self, bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if self.uses.fetch_add(1, Ordering::Relaxed) >= USES_MAX {
            self.uses.store(USES_MAX, Ordering::Relaxed);
            return None;
        }
        let plain = self.private.decrypt_blinded(&mut OsRng, Oaep::new::<Sha1>(), bytes);
        plain.ok().map(Zeroizing::new)
    }

    fn uses(&self) -> u32 {
        self.uses.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPair(..)")
    }
}

impl std::fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnKey(..)")
    }
}

/// Encrypts with the public key that a server sent.
///
/// # Errors
/// If the key is unusable.
pub fn encrypt(pem: &[u8], plain: &[u8]) -> Result<Vec<u8>, RsaKeyError> {
    let text = pem.strip_suffix(&[0]).unwrap_or(pem);
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= PEM_BYTES_MAX);
    let key = text.and_then(|text| RsaPublicKey::from_public_key_pem(text).ok());
    let key = key.ok_or(RsaKeyError::Public)?;
    if rsa::traits::PublicKeyParts::size(&key) > SERVER_KEY_BYTES_MAX {
        return Err(RsaKeyError::Public);
    }
    key.encrypt(&mut OsRng, Oaep::new::<Sha1>(), plain).map_err(|_| RsaKeyError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encrypted_with_the_public_key_is_read_with_ours_only() {
        let (keys, others) = (OwnKey::default(), OwnKey::default());
        assert!(keys.current().is_none());
        let key = keys.renew().expect("a key");
        let pem = key.public_pem().as_bytes();
        assert!(key.public_pem().starts_with("-----BEGIN PUBLIC KEY-----\n"), "{key:?}");
        assert_eq!(keys.renew().expect("the same").public_pem(), key.public_pem());
        let hidden = encrypt(pem, b"secret\0").expect("encrypt");
        assert_eq!(hidden.len(), KEY_BITS / 8);
        assert_eq!(key.decrypt(&hidden).as_deref().map(Vec::as_slice), Some(&b"secret\0"[..]));
        others.prepare();
        assert!(others.current().expect("another").decrypt(&hidden).is_none());
        for bad in [&b""[..], &hidden[1..], &[0; 256], &[0xFF; 256]] {
            assert!(key.decrypt(bad).is_none());
        }
        for (pem, plain) in [(&b"no key"[..], 7), (b"", 7), (pem, 215)] {
            assert!(encrypt(pem, &vec![b'x'; plain]).is_err());
        }
        // The next key is ready before this one is used up, and clients that have this one can use
        // it.
        key.uses.store(USES_WORN, Ordering::Relaxed);
        assert!(key.is_worn());
        assert_eq!(keys.current().expect("still").public_pem(), key.public_pem());
        let next = keys.renew().expect("the next");
        assert_ne!(next.public_pem(), key.public_pem());
        assert_eq!(keys.current().expect("the next").public_pem(), next.public_pem());
        assert!(key.decrypt(&hidden).is_some());
        key.uses.store(USES_MAX, Ordering::Relaxed);
        assert!(key.decrypt(&hidden).is_none() && key.decrypt(&hidden).is_none());
        next.uses.store(USES_MAX, Ordering::Relaxed);
        assert!(keys.current().is_none(), "nobody is given a key that is used up");
    }
}
