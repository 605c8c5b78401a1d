//! Slow parts of a login: thousands of hashes, decryption, key generation. Not for threads that
//! serve other clients.

use std::sync::Arc;

use wire::mysql::auth::{AuthNonce, MysqlVerifier};
use zeroize::Zeroizing;

use super::{ExpectedProof, MysqlDisclosedSecret, PgLoginRefusal, accepts};
use crate::mysql::own_key::{KeyPair, OwnKey};

/// Work of a login on another thread.
#[derive(Debug)]
pub struct PasswordCheck {
    work: PasswordCheckWork,
    key: Arc<OwnKey>,
}

enum PasswordCheckWork {
    /// Generate a key to encrypt with.
    Key,
    /// Check a cleartext password.
    Password(Arc<MysqlVerifier>, Zeroizing<Vec<u8>>),
    /// Check a password that was encrypted with this key.
    Hidden(Arc<MysqlVerifier>, Arc<KeyPair>, AuthNonce, Vec<u8>),
}

/// Result of a password check.
#[derive(Debug)]
pub enum PasswordCheckResult {
    /// The key.
    Key(Arc<KeyPair>),
    /// The secret that the proof disclosed, if it was correct.
    Proof(Option<MysqlDisclosedSecret>),
    /// It was not checked.
    Refused(PgLoginRefusal),
}

impl PasswordCheck {
    pub(super) fn key(expected: &ExpectedProof) -> PasswordCheck {
        PasswordCheck { work: PasswordCheckWork::Key, key: Arc::clone(&expected.key) }
    }

    pub(super) fn password(expected: &ExpectedProof, given: &[u8]) -> PasswordCheck {
        PasswordCheck::of_password(Arc::clone(&expected.verifier), Arc::clone(&expected.key), given)
    }

    /// Creates the check of a password that ends with a NUL.
    pub fn of_password(
        verifier: Arc<MysqlVerifier>,
        key: Arc<OwnKey>,
        given: &[u8],
    ) -> PasswordCheck {
        PasswordCheck {
            work: PasswordCheckWork::Password(verifier, Zeroizing::new(given.to_vec())),
            key,
        }
    }

    pub(super) fn hidden(
        expected: &ExpectedProof,
        pair: Arc<KeyPair>,
        nonce: AuthNonce,
        given: &[u8],
    ) -> PasswordCheck {
        let work =
            PasswordCheckWork::Hidden(Arc::clone(&expected.verifier), pair, nonce, given.to_vec());
        PasswordCheck { work, key: Arc::clone(&expected.key) }
    }

    /// Runs the check. It takes some milliseconds, or some tenths of a second for a key.
    #[must_use]
    pub fn run(&self) -> PasswordCheckResult {
        match &self.work {
            PasswordCheckWork::Key => match self.key.renew() {
                Ok(pair) => PasswordCheckResult::Key(pair),
                Err(error) => {
                    let refusal = PgLoginRefusal::new("XX000", "there is no key to encrypt with");
                    PasswordCheckResult::Refused(PgLoginRefusal {
                        cause: Some(error.to_string()),
                        ..refusal
                    })
                }
            },
            PasswordCheckWork::Password(verifier, given) => {
                PasswordCheckResult::Proof(accepts(verifier, given))
            }
            PasswordCheckWork::Hidden(verifier, pair, nonce, given) => {
                let plain = pair.decrypt(given);
                let plain = plain.map(|plain| Zeroizing::new(nonce.over(&plain)));
                PasswordCheckResult::Proof(plain.and_then(|plain| accepts(verifier, &plain)))
            }
        }
    }

    /// Generates the next key if the used one is worn. To be called after [`PasswordCheck::run`],
    /// when no client waits.
    pub fn renew_key(&self) {
        if matches!(&self.work, PasswordCheckWork::Hidden(_, pair, ..) if pair.is_worn()) {
            self.key.prepare();
        }
    }
}

impl std::fmt::Debug for PasswordCheckWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PasswordCheckWork::Key => "Key",
            PasswordCheckWork::Password(..) => "Password(..)",
            PasswordCheckWork::Hidden(..) => "Hidden(..)",
        })
    }
}
