//! The common part of both protocols' keyrings: the choice of a user's password method, and secrets
//! that are prepared once and found again by a keyed hash of their text.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use parking_lot::Mutex;
use pooler_core::pg::login::{ClientTransport, PgLoginRefusal};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::tenants::{ClientAuth, TenantUser};

/// Maximum number of prepared secrets; when it is reached, all are dropped and prepared again when
/// needed.
const PREPARED_MAX: usize = 65_536;

/// The longest `/etc/passwd` that is read.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

/// Key of a keyring. It should outlive the process.
#[derive(Debug)]
pub(crate) struct ProcessSecret(Zeroizing<[u8; 32]>);

impl ProcessSecret {
    pub(crate) fn new(secret: [u8; 32]) -> ProcessSecret {
        ProcessSecret(Zeroizing::new(secret))
    }

    pub(crate) fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns a keyed hash, so that the table does not allow passwords to be guessed.
    pub(crate) fn key(&self, parts: &[&str]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(*self.0);
        for part in parts {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

/// Prepared secrets, by their keyed hashes. Shared by all threads; locked for logins only.
#[derive(Debug)]
pub(crate) struct PreparedSecrets<V>(Mutex<HashMap<[u8; 32], Arc<V>>>);

impl<V> Default for PreparedSecrets<V> {
    fn default() -> PreparedSecrets<V> {
        PreparedSecrets(Mutex::default())
    }
}

impl<V> PreparedSecrets<V> {
    /// Returns the stored value, or makes one without holding the lock. If two threads make one at
    /// a time, both get the one that was stored first.
    ///
    /// # Errors
    /// Errors of `make`.
    pub(crate) fn get_or_make<E>(
        &self,
        key: [u8; 32],
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        if let Some(known) = self.0.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(make()?);
        let mut map = self.0.lock();
        if map.len() >= PREPARED_MAX {
            map.clear();
        }
        Ok(Arc::clone(map.entry(key).or_insert(made)))
    }
}

/// Method by which a user is authenticated.
pub(crate) enum PasswordMethod<'a> {
    /// Nothing more: the connection identifies the user.
    Nothing,
    /// This secret of the user; if `None`, a secret that no client can have.
    Secret(Option<&'a str>),
    /// The result of the tenant's `auth_query`.
    Query,
}

/// Returns the method by which `user` is authenticated. `certificate` is the name in the client's
/// certificate, and `quote` is the character that the protocol's messages put around names.
///
/// # Errors
/// 28000 for a user whose connection must identify it and does not.
pub(crate) fn ask<'a>(
    user: &'a TenantUser,
    certificate: Option<&str>,
    reached: ClientTransport,
    quote: char,
) -> Result<PasswordMethod<'a>, PgLoginRefusal> {
    let proved = |is_proved: bool, how: &str| {
        if is_proved {
            return Ok(PasswordMethod::Nothing);
        }
        let message = format!("{how} authentication failed for user {quote}{}{quote}", user.name);
        Err(PgLoginRefusal::new("28000", message))
    };
    match &user.auth {
        ClientAuth::Query => Ok(PasswordMethod::Query),
        ClientAuth::Trust => Ok(PasswordMethod::Nothing),
        ClientAuth::Cert => proved(certificate == Some(&*user.name), "certificate"),
        ClientAuth::Peer => match reached {
            ClientTransport::Unix { uid: Some(uid) } => {
                proved(uid_of(&user.name) == Some(uid), "peer")
            }
            ClientTransport::Unix { uid: None } | ClientTransport::Tcp => proved(false, "peer"),
        },
        ClientAuth::Secret(secret) => Ok(PasswordMethod::Secret(Some(secret.expose()))),
        ClientAuth::Unknown => Ok(PasswordMethod::Secret(None)),
    }
}

/// Returns the id of a user of the operating system. Only `/etc/passwd` is read: a network service
/// could block the thread.
pub(crate) fn uid_of(user: &str) -> Option<u32> {
    let is_read = fs::metadata("/etc/passwd").is_ok_and(|it| it.len() <= PASSWD_BYTES_MAX);
    let text = is_read.then(|| fs::read_to_string("/etc/passwd").ok())??;
    uid_in(&text, user)
}

fn uid_in(passwd: &str, user: &str) -> Option<u32> {
    let mut fields = passwd.lines().map(|line| line.split(':'));
    fields.find_map(|mut line| (line.next() == Some(user)).then(|| line.nth(1))?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_the_operating_system_are_found_by_name() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbad\nworse:x\napp:x:1000:1000::/:/bin/sh\n";
        for (user, expected) in
            [("root", Some(0)), ("app", Some(1000)), ("bad", None), ("worse", None), ("x", None)]
        {
            assert_eq!(uid_in(passwd, user), expected, "{user}");
        }
        assert_eq!(uid_of("root"), Some(0));
    }
}
