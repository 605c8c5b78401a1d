//! Authentication of MySQL and MariaDB: hashes of a password and a nonce.
//!
//! Both methods have the same weakness, on which the pooler relies: a party that has the hash
//! stored by the server and observes one proof can compute the key that proves the password to that
//! server from then on. So a client's [`NativeKey`] or [`Sha2Key`] is derived from its proof and
//! used to log in to a server as the client, without storing a password.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase_authentication_methods.html>
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_caching_sha2_authentication_exchanges.html>

use std::fmt;

use sha1::Sha1;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

pub use crypt::Sha2Crypt;
pub use secret::{FastAuthResult, MysqlSecret, MysqlSecretError, MysqlVerifier, SecretKind};

mod crypt;
mod secret;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 20;

/// Message of `caching_sha2_password`: the proof was right.
pub const FAST_RIGHT: u8 = 3;

/// Message of `caching_sha2_password`: the password itself is required.
pub const FULL: u8 = 4;

/// Message of `caching_sha2_password`: request for the server's public key.
pub const PUBLIC_KEY: u8 = 2;

/// Random bytes for a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthNonce([u8; NONCE_BYTES]);

impl AuthNonce {
    /// Creates a nonce of random bytes. Clients treat it as text: it contains neither NUL, which
    /// would end it, nor `$` or bytes beyond ASCII, like the nonces of servers.
    #[must_use]
    pub fn new(random: [u8; NONCE_BYTES]) -> AuthNonce {
        AuthNonce(random.map(|byte| match byte & 0x7F {
            0 => b'a',
            b'$' => b'b',
            byte => byte,
        }))
    }

    /// Parses a server's nonce: its bytes, with or without a final NUL.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<AuthNonce> {
        let bytes = match bytes {
            [bytes @ .., 0] if bytes.len() == NONCE_BYTES => bytes,
            bytes => bytes,
        };
        bytes.try_into().ok().map(AuthNonce)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; NONCE_BYTES] {
        &self.0
    }

    /// XORs `bytes` with the repeated nonce: passwords are obfuscated like that before they are
    /// encrypted with a server's public key, and recovered in the same way.
    #[must_use]
    pub fn over(&self, bytes: &[u8]) -> Vec<u8> {
        bytes.iter().zip(self.0.iter().cycle()).map(|(one, other)| one ^ other).collect()
    }
}

/// A method by its name in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthPlugin {
    /// `mysql_native_password`: SHA-1. All clients support it.
    Native,
    /// `caching_sha2_password`: SHA-256, or the password itself over a protected connection.
    CachingSha2,
    /// `mysql_clear_password`: the password itself.
    Clear,
}

impl AuthPlugin {
    /// Returns the method of a name; `None` for unsupported ones.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<AuthPlugin> {
        let all = [AuthPlugin::Native, AuthPlugin::CachingSha2, AuthPlugin::Clear];
        all.into_iter().find(|plugin| plugin.name().as_bytes() == name)
    }

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AuthPlugin::Native => "mysql_native_password",
            AuthPlugin::CachingSha2 => "caching_sha2_password",
            AuthPlugin::Clear => "mysql_clear_password",
        }
    }
}

/// The SHA-1 of a password, which is sufficient to log in with `mysql_native_password`.
#[derive(Clone, PartialEq, Eq)]
pub struct NativeKey([u8; 20]);

impl NativeKey {
    /// Derives the key of a password.
    #[must_use]
    pub fn of(password: &str) -> NativeKey {
        NativeKey(Sha1::digest(password).into())
    }

    /// Restores a key from [`NativeKey::expose`]; `None` for other lengths.
    #[must_use]
    pub fn import(bytes: &[u8]) -> Option<NativeKey> {
        bytes.try_into().ok().map(NativeKey)
    }

    /// Returns the key, for another node of the same cluster that logs in with it.
    #[must_use]
    pub fn expose(&self) -> &[u8; 20] {
        &self.0
    }

    /// Returns the hash that a server stores.
    #[must_use]
    pub fn hash(&self) -> NativeHash {
        NativeHash(Sha1::digest(self.0).into())
    }

    /// Returns the proof for a nonce.
    #[must_use]
    pub fn answer(&self, nonce: &AuthNonce) -> [u8; 20] {
        xor(self.0, self.hash().mask(nonce))
    }
}

/// Hash that a server stores for `mysql_native_password`: the SHA-1 of a [`NativeKey`].
#[derive(Clone, PartialEq, Eq)]
pub struct NativeHash([u8; 20]);

impl NativeHash {
    /// Parses `*` and 40 hexadecimal digits; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<NativeHash> {
        let digits: &[u8; 40] = text.strip_prefix('*')?.as_bytes().try_into().ok()?;
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                let value = char::from(*digit).to_digit(16)?;
                *byte = (*byte << 4) | u8::try_from(value).ok()?;
            }
        }
        Some(NativeHash(bytes))
    }

    /// Returns the key that a proof for `nonce` discloses; `None` if the proof is wrong.
    #[must_use]
    pub fn accepts(&self, nonce: &AuthNonce, answer: &[u8]) -> Option<NativeKey> {
        let answer: [u8; 20] = answer.try_into().ok()?;
        let key = NativeKey(xor(answer, self.mask(nonce)));
        bool::from(key.hash().0.ct_eq(&self.0)).then_some(key)
    }

    /// Returns whether this is the password.
    #[must_use]
    pub fn is_of(&self, password: &str) -> bool {
        NativeKey::of(password).hash().0.ct_eq(&self.0).into()
    }

    /// Returns the mask of the key in a proof.
    fn mask(&self, nonce: &AuthNonce) -> [u8; 20] {
        Sha1::new().chain_update(nonce.0).chain_update(self.0).finalize().into()
    }
}

/// The SHA-256 of a password, which is sufficient to log in with `caching_sha2_password` to a
/// server that has the password in its cache.
#[derive(Clone, PartialEq, Eq)]
pub struct Sha2Key([u8; 32]);

impl Sha2Key {
    /// Derives the key of a password.
    #[must_use]
    pub fn of(password: &str) -> Sha2Key {
        Sha2Key(Sha256::digest(password).into())
    }

    /// Restores a key from [`Sha2Key::expose`]; `None` for other lengths.
    #[must_use]
    pub fn import(bytes: &[u8]) -> Option<Sha2Key> {
        bytes.try_into().ok().map(Sha2Key)
    }

    /// Returns the key, for another node of the same cluster that logs in with it.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the hash that a server keeps in memory.
    #[must_use]
    pub fn hash(&self) -> Sha2Hash {
        Sha2Hash(Sha256::digest(self.0).into())
    }

    /// Returns the proof for a nonce.
    #[must_use]
    pub fn answer(&self, nonce: &AuthNonce) -> [u8; 32] {
        xor(self.0, self.hash().mask(nonce))
    }
}

/// Hash that a server keeps in memory for a cached password: the SHA-256 of a [`Sha2Key`].
#[derive(Clone, PartialEq, Eq)]
pub struct Sha2Hash([u8; 32]);

impl Sha2Hash {
    /// Returns the key that a proof for `nonce` discloses; `None` if the proof is wrong.
    #[must_use]
    pub fn accepts(&self, nonce: &AuthNonce, answer: &[u8]) -> Option<Sha2Key> {
        let answer: [u8; 32] = answer.try_into().ok()?;
        let key = Sha2Key(xor(answer, self.mask(nonce)));
        bool::from(key.hash().0.ct_eq(&self.0)).then_some(key)
    }

    /// Returns whether this is the password.
    #[must_use]
    pub fn is_of(&self, password: &str) -> bool {
        Sha2Key::of(password).hash().0.ct_eq(&self.0).into()
    }

    /// Returns the mask of the key in a proof. The order is the reverse of that in
    /// [`NativeHash::mask`].
    fn mask(&self, nonce: &AuthNonce) -> [u8; 32] {
        Sha256::new().chain_update(self.0).chain_update(nonce.0).finalize().into()
    }
}

fn xor<const N: usize>(mut left: [u8; N], right: [u8; N]) -> [u8; N] {
    for (one, other) in left.iter_mut().zip(right) {
        *one ^= other;
    }
    left
}

macro_rules! secret_bytes {
    ($($name:ident),*) => {$(
        impl Drop for $name {
            fn drop(&mut self) {
                self.0.zeroize();
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    )*};
}
secret_bytes!(NativeKey, NativeHash, Sha2Key, Sha2Hash);

#[cfg(test)]
mod tests;
