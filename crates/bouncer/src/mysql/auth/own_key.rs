//! A key of our own for clients that send their password over a connection that is not encrypted.
//!
//! It is made when the first one needs it, lives in memory, and is made anew after some thousand
//! uses. How long it takes to decrypt with it depends on it (RUSTSEC-2023-0071): whoever records a
//! password and then measures very many decryptions could find it out. Decryption is blinded, and a
//! key that was used [`USES_MAX`] times is no key any more. Who can avoid it uses TLS.

use std::sync::Arc;

use parking_lot::Mutex;
use rsa::pkcs8::{DecodePublicKey as _, EncodePublicKey as _, LineEnding};
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPrivateKey, RsaPublicKey};
use sha1::Sha1;
use zeroize::Zeroizing;

/// As MySQL makes them.
const KEY_BITS: usize = 2048;

/// Decryptions with one key: far below what measuring its time takes.
const USES_MAX: u32 = 4096;

/// The longest text with a server's public key that is read, and its longest key in bits: a server
/// does not choose how much we calculate.
const PEM_BYTES_MAX: usize = 8192;
const SERVER_KEY_BYTES_MAX: usize = 1024;

/// Why there is nothing encrypted.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No key can be made.
    #[error("make a key")]
    Make(#[source] rsa::Error),
    /// It cannot be written or read.
    #[error("malformed public key")]
    Public,
    /// The password does not fit into the key.
    #[error("the password is too long for the server's key")]
    TooLong,
}

/// The key. Shared by all threads.
#[derive(Default)]
pub struct OwnKey(Mutex<Option<Made>>);

#[derive(Clone)]
struct Made {
    private: Arc<RsaPrivateKey>,
    public: Arc<str>,
    uses: u32,
}

impl OwnKey {
    /// The public key, as MySQL sends it. Makes it if there is none, which takes some tenths of a
    /// second: see [`OwnKey::prepare`].
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn public_pem(&self) -> Result<Arc<str>, KeyError> {
        // Held while one is made: whoever comes meanwhile would make another one.
        let mut made = self.0.lock();
        if let Some(made) = made.as_ref().filter(|made| made.uses < USES_MAX) {
            return Ok(Arc::clone(&made.public));
        }
        let private = RsaPrivateKey::new(&mut OsRng, KEY_BITS).map_err(KeyError::Make)?;
        let public = private.to_public_key().to_public_key_pem(LineEnding::LF);
        let public: Arc<str> = public.map_err(|_| KeyError::Public)?.into();
        *made = Some(Made { private: Arc::new(private), public: Arc::clone(&public), uses: 0 });
        Ok(public)
    }

    /// Makes the key if there is none, so that no client waits for it.
    pub fn prepare(&self) {
        if let Err(error) = self.public_pem() {
            tracing::warn!(error = &error as &dyn std::error::Error, "make a key");
        }
    }

    /// What was encrypted with the public key; none when it was not, or the key was used too often.
    /// About a millisecond.
    #[must_use]
    pub fn decrypt(&self, bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let private = {
            let mut made = self.0.lock();
            let made = made.as_mut().filter(|made| made.uses < USES_MAX)?;
            made.uses = made.uses.saturating_add(1);
            Arc::clone(&made.private)
        };
        let plain = private.decrypt_blinded(&mut OsRng, Oaep::new::<Sha1>(), bytes);
        plain.ok().map(Zeroizing::new)
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
/// When it sent none that can be used.
pub fn encrypt(pem: &[u8], plain: &[u8]) -> Result<Vec<u8>, KeyError> {
    let text = pem.strip_suffix(&[0]).unwrap_or(pem);
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= PEM_BYTES_MAX);
    let key = text.and_then(|text| RsaPublicKey::from_public_key_pem(text).ok());
    let key = key.ok_or(KeyError::Public)?;
    if rsa::traits::PublicKeyParts::size(&key) > SERVER_KEY_BYTES_MAX {
        return Err(KeyError::Public);
    }
    key.encrypt(&mut OsRng, Oaep::new::<Sha1>(), plain).map_err(|_| KeyError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encrypted_with_the_public_key_is_read_with_ours_only() {
        let (key, other) = (OwnKey::default(), OwnKey::default());
        assert!(key.decrypt(b"before there is a key").is_none());
        let pem = key.public_pem().expect("a key");
        assert!(pem.starts_with("-----BEGIN PUBLIC KEY-----\n"), "{pem}");
        assert_eq!(key.public_pem().expect("the same"), pem);
        let hidden = encrypt(pem.as_bytes(), b"secret\0").expect("encrypt");
        assert_eq!(hidden.len(), KEY_BITS / 8);
        assert_eq!(key.decrypt(&hidden).as_deref().map(Vec::as_slice), Some(&b"secret\0"[..]));
        other.prepare();
        assert!(other.decrypt(&hidden).is_none());
        for bad in [&b""[..], &hidden[1..], &[0; 256], &[0xFF; 256]] {
            assert!(key.decrypt(bad).is_none());
        }
        for (pem, plain) in [(&b"no key"[..], 7), (b"", 7), (pem.as_bytes(), 215)] {
            assert!(encrypt(pem, &vec![b'x'; plain]).is_err());
        }
        key.0.lock().as_mut().expect("a key").uses = USES_MAX;
        assert!(key.decrypt(&hidden).is_none());
        assert_ne!(key.public_pem().expect("the next"), pem);
    }
}
