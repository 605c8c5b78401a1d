//! Keys of SCRAM: those that a server stores, and those that a client derives from a password.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc5802#section-3>
//! - <https://www.rfc-editor.org/rfc/rfc7677>

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use super::SALT_BYTES_MAX;

/// Iterations of derived secrets, as in PostgreSQL.
pub const ITERATIONS_DEFAULT: u32 = 4096;

/// Maximum iterations that a peer may request: half a second of hashing. A server could otherwise
/// request two thousand million and block all clients of the thread.
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// Bytes of a generated salt, as in PostgreSQL.
const SALT_BYTES: usize = 16;

/// Secret that a server stores for a user: sufficient to check clients, not to log in as one.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramSecret {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

impl ScramSecret {
    /// Derives the secret from a password. Takes milliseconds.
    #[must_use]
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> ScramSecret {
        ScramKeys::derive(password, salt, iterations).secret()
    }

    /// Creates a secret without a password, always the same for one `user` of one process. Its salt
    /// is that of [`ScramSecret::mock_salt`]. No client can prove it, because no key is known whose
    /// hash is the stored one.
    #[must_use]
    pub fn mock(process_secret: &[u8; 32], user: &str) -> ScramSecret {
        let part = |label: &[u8]| hmac(process_secret, &[label, user.as_bytes()]);
        ScramSecret {
            iterations: ITERATIONS_DEFAULT,
            salt: Self::mock_salt(process_secret, user).to_vec(),
            stored_key: part(b"stored key of "),
            server_key: part(b"server key of "),
        }
    }

    /// Returns the salt of a user in this process, existing or not.
    #[must_use]
    pub fn mock_salt(process_secret: &[u8; 32], user: &str) -> [u8; SALT_BYTES] {
        let whole = hmac(process_secret, &[b"salt of ", user.as_bytes()]);
        let mut salt = [0; SALT_BYTES];
        salt.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
        salt
    }

    /// Parses `SCRAM-SHA-256$iterations:salt$stored key:server key`; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<ScramSecret> {
        let (iterations, rest) = text.strip_prefix("SCRAM-SHA-256$")?.split_once(':')?;
        let (salt, keys) = rest.split_once('$')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|it| (1..=ITERATIONS_MAX).contains(it))?;
        let salt = BASE64.decode(salt).ok()?;
        (1..=SALT_BYTES_MAX).contains(&salt.len()).then_some(())?;
        Some(ScramSecret {
            iterations,
            salt,
            stored_key: decode_key(stored_key)?,
            server_key: decode_key(server_key)?,
        })
    }

    /// Returns the number of iterations.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Returns the salt.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Returns whether this is the password. Takes milliseconds.
    #[must_use]
    pub fn is_of(&self, password: &str) -> bool {
        let own = Self::derive(password, &self.salt, self.iterations);
        self.stored_key.ct_eq(&own.stored_key).into()
    }

    /// Returns the keys that log in to a server with this same secret, from the key that a client's
    /// proof disclosed.
    #[must_use]
    pub fn keys(&self, client_key: [u8; 32]) -> ScramKeys {
        let (salt, server_key) = (self.salt.clone(), self.server_key);
        ScramKeys { iterations: self.iterations, salt, client_key, server_key }
    }

    /// Returns the client's key, if `proof` proves its possession.
    pub(super) fn check(&self, proof: [u8; 32], auth_message: &[&[u8]]) -> Option<[u8; 32]> {
        let mut client_key = hmac(&self.stored_key, auth_message);
        client_key.iter_mut().zip(proof).for_each(|(key, proof)| *key ^= proof);
        let right: bool = sha256(&client_key).ct_eq(&self.stored_key).into();
        right.then_some(client_key)
    }

    pub(super) fn signature(&self, auth_message: &[&[u8]]) -> [u8; 32] {
        hmac(&self.server_key, auth_message)
    }
}

/// Text form, as stored by PostgreSQL.
impl fmt::Display for ScramSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|it| BASE64.encode(it));
        write!(f, "SCRAM-SHA-256${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl fmt::Debug for ScramSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramSecret(..)")
    }
}

impl Drop for ScramSecret {
    fn drop(&mut self) {
        self.stored_key.zeroize();
        self.server_key.zeroize();
    }
}

/// Keys for logging in: equivalent to the password for every server with the same salt.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    iterations: u32,
    salt: Vec<u8>,
    client_key: [u8; 32],
    server_key: [u8; 32],
}

impl ScramKeys {
    /// Derives the keys from a password. Takes milliseconds, so it should be done once per salt,
    /// not per connection.
    #[must_use]
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> ScramKeys {
        // A password that SASLprep rejects is used unchanged, as by PostgreSQL and its clients.
        let prepared = stringprep::saslprep(password);
        let prepared = prepared.as_deref().unwrap_or(password).as_bytes();
        let salted = Zeroizing::new(salted_password(prepared, salt, iterations));
        let [client_key, server_key] =
            [&b"Client Key"[..], b"Server Key"].map(|label| hmac(&*salted, &[label]));
        ScramKeys { iterations, salt: salt.to_vec(), client_key, server_key }
    }

    /// Parses keys written by [`ScramKeys::export`]; `None` for any other text.
    #[must_use]
    pub fn import(text: &str) -> Option<ScramKeys> {
        let mut parts = text.split(':');
        let iterations = parts.next()?.parse().ok().filter(|it| *it <= ITERATIONS_MAX)?;
        let salt = BASE64.decode(parts.next()?).ok().filter(|it| it.len() <= SALT_BYTES_MAX)?;
        let client_key = decode_key(parts.next()?)?;
        let server_key = decode_key(parts.next()?)?;
        let keys = ScramKeys { iterations, salt, client_key, server_key };
        parts.next().is_none().then_some(keys)
    }

    /// Returns the keys as text, for another node of the same cluster that logs in with them.
    #[must_use]
    pub fn export(&self) -> Zeroizing<String> {
        let [salt, client, server] =
            [&self.salt[..], &self.client_key, &self.server_key].map(|it| BASE64.encode(it));
        Zeroizing::new(format!("{}:{salt}:{client}:{server}", self.iterations))
    }

    /// Returns the secret that a server stores for the same password.
    #[must_use]
    pub fn secret(&self) -> ScramSecret {
        ScramSecret {
            iterations: self.iterations,
            salt: self.salt.clone(),
            stored_key: sha256(&self.client_key),
            server_key: self.server_key,
        }
    }

    /// Returns whether they have this salt and number of iterations, so that they can answer its
    /// challenge.
    #[must_use]
    pub fn fit(&self, salt: &[u8], iterations: u32) -> bool {
        self.salt == salt && self.iterations == iterations
    }

    pub(super) fn proof(&self, auth_message: &[&[u8]]) -> [u8; 32] {
        let mut proof = hmac(&sha256(&self.client_key), auth_message);
        proof.iter_mut().zip(self.client_key).for_each(|(proof, key)| *proof ^= key);
        proof
    }

    pub(super) fn signature(&self, auth_message: &[&[u8]]) -> [u8; 32] {
        hmac(&self.server_key, auth_message)
    }
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramKeys(..)")
    }
}

impl Drop for ScramKeys {
    fn drop(&mut self) {
        self.client_key.zeroize();
        self.server_key.zeroize();
    }
}

pub(super) fn decode_key(text: &str) -> Option<[u8; 32]> {
    BASE64.decode(text).ok()?.try_into().ok()
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes every key")
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = keyed(key);
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// `Hi` of RFC 5802: PBKDF2 with HMAC-SHA-256 and one block of output.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let key = keyed(password); // hashes its two padded blocks once, not in every round
    let round = |parts: &[&[u8]]| -> [u8; 32] {
        let mut mac = key.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    };
    let mut last = round(&[salt, &1_u32.to_be_bytes()]);
    let mut all = last;
    for _ in 1..iterations {
        last = round(&[&last]);
        all.iter_mut().zip(last).for_each(|(all, last)| *all ^= last);
    }
    all
}
