//! What takes long of a login: thousands of hashes, decryption, a key. Not for threads that others
//! wait for.

use std::sync::Arc;

use wire::mysql::auth::{Nonce, Verifier};
use zeroize::Zeroizing;

use super::{Expected, Refusal, Shown, accepts};
use crate::mysql::auth::{KeyPair, OwnKey};

/// Work that a login waits for.
#[derive(Debug)]
pub struct Check {
    work: Work,
    key: Arc<OwnKey>,
}

enum Work {
    /// A key to encrypt with.
    Key,
    /// A password as it is.
    Password(Arc<Verifier>, Zeroizing<Vec<u8>>),
    /// A password that was encrypted with this key.
    Hidden(Arc<Verifier>, Arc<KeyPair>, Nonce, Vec<u8>),
}

/// What came of it.
#[derive(Debug)]
pub enum Checked {
    /// The key.
    Key(Arc<KeyPair>),
    /// What the proof gave away, if it was right.
    Proof(Option<Shown>),
    /// It was not looked at.
    Refused(Refusal),
}

impl Check {
    pub(super) fn key(expected: &Expected) -> Check {
        Check { work: Work::Key, key: Arc::clone(&expected.key) }
    }

    pub(super) fn password(expected: &Expected, given: &[u8]) -> Check {
        Check::of_password(Arc::clone(&expected.verifier), Arc::clone(&expected.key), given)
    }

    /// Of a password with a NUL behind it.
    pub(crate) fn of_password(verifier: Arc<Verifier>, key: Arc<OwnKey>, given: &[u8]) -> Check {
        Check { work: Work::Password(verifier, Zeroizing::new(given.to_vec())), key }
    }

    pub(super) fn hidden(
        expected: &Expected,
        pair: Arc<KeyPair>,
        nonce: Nonce,
        given: &[u8],
    ) -> Check {
        let work = Work::Hidden(Arc::clone(&expected.verifier), pair, nonce, given.to_vec());
        Check { work, key: Arc::clone(&expected.key) }
    }

    /// Does it. Some milliseconds; some tenths of a second for a key.
    #[must_use]
    pub fn run(&self) -> Checked {
        match &self.work {
            Work::Key => match self.key.renew() {
                Ok(pair) => Checked::Key(pair),
                Err(error) => {
                    let refusal = Refusal::new("XX000", "there is no key to encrypt with");
                    Checked::Refused(Refusal { cause: Some(error.to_string()), ..refusal })
                }
            },
            Work::Password(verifier, given) => Checked::Proof(accepts(verifier, given)),
            Work::Hidden(verifier, pair, nonce, given) => {
                let plain = pair.decrypt(given);
                let plain = plain.map(|plain| Zeroizing::new(nonce.over(&plain)));
                Checked::Proof(plain.and_then(|plain| accepts(verifier, &plain)))
            }
        }
    }

    /// Makes the next key if the one that was used is worn. For after [`Check::run`], when nobody
    /// waits.
    pub fn renew_key(&self) {
        if matches!(&self.work, Work::Hidden(_, pair, ..) if pair.is_worn()) {
            self.key.prepare();
        }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Work::Key => "Key",
            Work::Password(..) => "Password(..)",
            Work::Hidden(..) => "Hidden(..)",
        })
    }
}
