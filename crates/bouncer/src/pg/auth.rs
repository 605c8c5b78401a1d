//! From tenants and their users to proofs and credentials: what a client has to show, and what is
//! shown to the server in its place.
//!
//! Secrets are prepared once and found again by a keyed hash of their text, so that a login costs
//! some hashes and not thousands, and a change of the tenant changes nothing here.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use wire::pg::secret::{Password, Secret, SecretError, Verifier};
use zeroize::Zeroizing;

use super::dial::Credentials;
use super::login::{
    Authenticated, Method, Proof, Reached, Refusal, ReplicationPolicy, Requested, RouteAuth, Shown,
};
use crate::tenants::{ClientAuth, ServerSecret, Tenant, TenantUser};

/// Prepared secrets that are kept; beyond, all are forgotten and prepared again when needed.
const PREPARED_MAX: usize = 65_536;

/// The longest `/etc/passwd` that is read.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

/// Secrets that were prepared, of all tenants. Shared by all threads; locked for logins only.
#[derive(Debug)]
pub struct Keyring {
    process_secret: Zeroizing<[u8; 32]>,
    method: Method,
    verifiers: Mutex<HashMap<[u8; 32], Arc<Verifier>>>,
    credentials: Mutex<HashMap<[u8; 32], Arc<Credentials>>>,
}

/// What a client has to show.
#[derive(Debug)]
pub enum Demand {
    /// This, or it is sent away.
    Known(Result<RouteAuth, Refusal>),
    /// What the tenant's `auth_query` finds; then [`Keyring::found`].
    Query,
}

impl Keyring {
    /// An empty one. `process_secret` should outlive the process: salts that clients see come from
    /// it, and one that changes tells users that exist from those that do not.
    #[must_use]
    pub fn new(process_secret: [u8; 32], method: Method) -> Keyring {
        Keyring {
            process_secret: Zeroizing::new(process_secret),
            method,
            verifiers: Mutex::default(),
            credentials: Mutex::default(),
        }
    }

    /// What this client has to show to be `user`, as which it was routed.
    #[must_use]
    pub fn demand(&self, user: &TenantUser, requested: &Requested) -> Demand {
        let proved = |is_proved: bool, how: &str| {
            if is_proved {
                Ok(Proof::Nothing)
            } else {
                let message = format!("{how} authentication failed for user \"{}\"", user.name);
                Err(Refusal::new("28000", message))
            }
        };
        let proof = match &user.auth {
            ClientAuth::Query => return Demand::Query,
            ClientAuth::Trust => Ok(Proof::Nothing),
            ClientAuth::Cert => {
                let shown = requested.tls.as_ref().and_then(|tls| tls.client_name.as_deref());
                proved(shown == Some(&*user.name), "certificate")
            }
            ClientAuth::Peer => match requested.reached {
                Reached::Unix { uid: Some(uid) } => proved(uid_of(&user.name) == Some(uid), "peer"),
                Reached::Unix { uid: None } | Reached::Tcp => proved(false, "peer"),
            },
            ClientAuth::Secret(secret) => Ok(self.password(user, Some(secret.expose()))),
            ClientAuth::Unknown => Ok(self.password(user, None)),
        };
        Demand::Known(proof.map(RouteAuth::of))
    }

    /// What a client has to show whose secret was looked up; none when there is no such user. A
    /// secret that nobody could have is as good as none.
    #[must_use]
    pub fn found(&self, user: &TenantUser, secret: Option<&str>) -> RouteAuth {
        RouteAuth::of(self.password(user, secret))
    }

    fn password(&self, user: &TenantUser, secret: Option<&str>) -> Proof {
        let verifier = secret.and_then(|text| match self.verifier(&user.name, text) {
            Ok(verifier) => Some(verifier),
            Err(error) => {
                let user = &*user.name;
                tracing::warn!(user, error = &error as &dyn std::error::Error, "use a secret");
                None
            }
        });
        let mock = || Arc::new(Verifier::mock(&user.name, *self.process_secret));
        Proof::Password(verifier.unwrap_or_else(mock), self.method)
    }

    /// A user's secret, prepared.
    ///
    /// # Errors
    /// When it is none.
    pub fn verifier(&self, user: &str, secret: &str) -> Result<Arc<Verifier>, SecretError> {
        let key = self.key(&[user, secret]);
        if let Some(known) = self.verifiers.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(Verifier::new(user, Secret::parse(secret)?, *self.process_secret));
        Ok(remember(&mut self.verifiers.lock(), key, made))
    }

    /// Prepares the secrets of a tenant's users: milliseconds of hashing for each, which the first
    /// client would wait for otherwise, and everybody on its thread. For the control plane.
    pub fn prepare(&self, tenant: &Tenant) {
        for user in tenant.users.values() {
            if let ClientAuth::Secret(secret) = &user.auth
                && let Ok(verifier) = self.verifier(&user.name, secret.expose())
            {
                verifier.prepare();
            }
        }
    }

    /// What is shown to the server for this client.
    pub fn credentials(
        &self,
        tenant: &Tenant,
        user: &TenantUser,
        client: &Authenticated,
    ) -> Arc<Credentials> {
        match &user.server_secret {
            ServerSecret::None => Arc::new(Credentials::None),
            ServerSecret::Known(secret) => self.known(tenant, user, secret.expose()),
            ServerSecret::OfClient => {
                let secret = client.verifier.as_ref().and_then(|verifier| verifier.secret());
                match (secret, &client.shown) {
                    (_, Shown::Password(password)) | (Some(Secret::Plain(password)), _) => {
                        self.known(tenant, user, password.reveal())
                    }
                    (Some(Secret::Md5(hash)), _) => Arc::new(Credentials::Md5(hash.clone())),
                    (_, Shown::Keys(keys)) => Arc::new(Credentials::Scram(keys.clone())),
                    (Some(Secret::Scram(_)) | None, Shown::Nothing) => Arc::new(Credentials::None),
                }
            }
        }
    }

    /// What is shown to the server when no client is at hand, as for connections that are made
    /// ahead; none when only clients have it.
    pub fn own_credentials(&self, tenant: &Tenant, user: &TenantUser) -> Option<Arc<Credentials>> {
        match &user.server_secret {
            ServerSecret::None => Some(Arc::new(Credentials::None)),
            ServerSecret::Known(secret) => Some(self.known(tenant, user, secret.expose())),
            ServerSecret::OfClient => None,
        }
    }

    fn known(&self, tenant: &Tenant, user: &TenantUser, text: &str) -> Arc<Credentials> {
        let key = self.key(&[&tenant.name, &user.server_user, text]);
        if let Some(known) = self.credentials.lock().get(&key) {
            return Arc::clone(known);
        }
        let made = match Secret::parse(text) {
            Ok(Secret::Plain(password)) => Credentials::of_password(password),
            Ok(Secret::Md5(hash)) => Credentials::Md5(hash),
            // It proves nothing: only who knows the password can be a client.
            Ok(Secret::Scram(_)) => Credentials::None,
            // Clients may not have it, but it may be what the server wants.
            Err(_) => Credentials::of_password(Password::new(text.to_owned())),
        };
        remember(&mut self.credentials.lock(), key, Arc::new(made))
    }

    /// A keyed hash, so that no password can be guessed from the table.
    fn key(&self, parts: &[&str]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(*self.process_secret);
        for part in parts {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

impl RouteAuth {
    /// Of a client that does not replicate.
    #[must_use]
    pub fn of(proof: Proof) -> RouteAuth {
        RouteAuth { proof, replication: ReplicationPolicy::Refused }
    }
}

/// Puts `made` there, or gives what somebody else has put there meanwhile.
fn remember<V>(map: &mut HashMap<[u8; 32], Arc<V>>, key: [u8; 32], made: Arc<V>) -> Arc<V> {
    if map.len() >= PREPARED_MAX {
        map.clear();
    }
    Arc::clone(map.entry(key).or_insert(made))
}

/// The id of a user of the operating system. Only `/etc/passwd` is asked: a service of the network
/// could keep a thread waiting.
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
mod tests;
