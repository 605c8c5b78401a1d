//! Authentication of MySQL: resolves a tenant's users to the proofs that clients must give and the
//! credentials that are used at the server.
//!
//! The counterpart of [`auth::pg`](crate::auth::pg) with other secrets: passwords, and the values
//! of `authentication_string` in MySQL and MariaDB.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_caching_sha2_authentication_exchanges.html>
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase_authentication_methods_native_password_authentication.html>

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pooler_core::mysql::dial::MysqlCredentials;
use pooler_core::mysql::login::{
    MysqlAuthenticatedClient, MysqlDisclosedSecret, MysqlLoginRequest, MysqlPasswordMethod,
    MysqlProof,
};
use pooler_core::mysql::own_key::OwnKey;
use pooler_core::pg::login::PgLoginRefusal;
use wire::mysql::auth::{MysqlSecret, MysqlSecretError, MysqlVerifier, SecretKind};

use crate::keyring::{self, PasswordMethod, PreparedSecrets, ProcessSecret};
use crate::tenants::{ClientAuth, ServerSecret, TenantId, TenantSnapshot, TenantUser};

/// Prepared secrets of all tenants.
#[derive(Debug)]
pub struct MysqlKeyring {
    process_secret: ProcessSecret,
    method: MysqlPasswordMethod,
    verifiers: PreparedSecrets<MysqlVerifier>,
    /// Forms of the secrets of each tenant's users.
    kinds: Mutex<HashMap<TenantId, Kinds>>,
    key: Arc<OwnKey>,
}

/// Whether there are secrets of each form, in the order of [`SecretKind::ALL`].
type Kinds = [bool; 3];

fn put_kind(kinds: &mut Kinds, kind: SecretKind) {
    for (is_there, one) in kinds.iter_mut().zip(SecretKind::ALL) {
        *is_there |= one == kind;
    }
}

/// Authentication that a client needs.
#[derive(Debug)]
pub enum MysqlAuthRequirement {
    /// A known proof request, or the reason why the login is refused.
    Known(Result<MysqlProof, PgLoginRefusal>),
    /// The secret is the result of the tenant's `auth_query`; [`MysqlKeyring::found`] then makes
    /// the proof request.
    Query,
}

impl MysqlKeyring {
    /// Creates an empty keyring. `process_secret` should outlive the process: the method that users
    /// who do not exist are asked for is derived from it.
    #[must_use]
    pub fn new(process_secret: [u8; 32], method: MysqlPasswordMethod) -> MysqlKeyring {
        MysqlKeyring {
            process_secret: ProcessSecret::new(process_secret),
            method,
            verifiers: PreparedSecrets::default(),
            kinds: Mutex::default(),
            key: Arc::default(),
        }
    }

    /// Returns the proof that this client must give to be `user` of `tenant`, as which it was
    /// routed.
    #[must_use]
    pub fn demand(
        &self,
        tenant: &TenantSnapshot,
        user: &TenantUser,
        requested: &MysqlLoginRequest,
    ) -> MysqlAuthRequirement {
        let certificate = requested.tls.as_ref().and_then(|tls| tls.client_name.as_deref());
        MysqlAuthRequirement::Known(
            match keyring::ask(user, certificate, requested.reached, '\'') {
                Ok(PasswordMethod::Query) => return MysqlAuthRequirement::Query,
                Ok(PasswordMethod::Nothing) => Ok(MysqlProof::Nothing),
                Ok(PasswordMethod::Secret(secret)) => Ok(self.password(tenant, user, secret)),
                Err(refusal) => Err(refusal),
            },
        )
    }

    /// Returns the proof that a client must give when its secret was looked up; `secret` is `None`
    /// if there is no such user. An unusable secret counts as none.
    #[must_use]
    pub fn found(
        &self,
        tenant: &TenantSnapshot,
        user: &TenantUser,
        secret: Option<&str>,
    ) -> MysqlProof {
        if let Some(Ok(secret)) = secret.map(MysqlSecret::parse) {
            put_kind(self.kinds.lock().entry(tenant.id).or_default(), secret.kind());
        }
        self.password(tenant, user, secret)
    }

    fn password(
        &self,
        tenant: &TenantSnapshot,
        user: &TenantUser,
        secret: Option<&str>,
    ) -> MysqlProof {
        let verifier = secret.and_then(|text| match self.verifier(&user.name, text) {
            Ok(verifier) => Some(verifier),
            Err(error) => {
                let user = &*user.name;
                tracing::warn!(user, error = &error as &dyn std::error::Error, "use a secret");
                None
            }
        });
        let verifier = verifier.unwrap_or_else(|| self.nobody(tenant, user));
        MysqlProof::Password { verifier, method: self.method, key: Arc::clone(&self.key) }
    }

    /// Returns the prepared form of a user's secret.
    ///
    /// # Errors
    /// If it is not a valid secret.
    pub fn verifier(
        &self,
        user: &str,
        secret: &str,
    ) -> Result<Arc<MysqlVerifier>, MysqlSecretError> {
        let key = self.process_secret.key(&[user, secret]);
        self.verifiers.get_or_make(key, || Ok(MysqlVerifier::new(MysqlSecret::parse(secret)?)))
    }

    /// Returns the verifier for a user who does not exist: of the same kind as that of an existing
    /// user, so that the method does not reveal which users exist.
    fn nobody(&self, tenant: &TenantSnapshot, user: &TenantUser) -> Arc<MysqlVerifier> {
        let kinds = self.kinds.lock().get(&tenant.id).copied().unwrap_or_default();
        let known = SecretKind::ALL.into_iter().zip(kinds).filter(|(_, is_there)| *is_there);
        let known: Vec<SecretKind> = known.map(|(kind, _)| kind).collect();
        let [first, ..] = self.process_secret.key(&["nobody", &tenant.name, &user.name]);
        let place = usize::from(first) % known.len().max(1);
        // Without any known user: as if the first one had the form that MariaDB stores.
        let kind = known.get(place).copied().unwrap_or(SecretKind::Native);
        Arc::new(MysqlVerifier::mock(&user.name, self.process_secret.expose(), kind))
    }

    /// Prepares data for a tenant's clients: the kinds of secrets, and, if passwords may have to be
    /// sent, a key whose generation takes some tenths of a second. For the control plane.
    pub fn prepare(&self, tenant: &TenantSnapshot) {
        let mut kinds = Kinds::default();
        for user in tenant.users.values() {
            if let ClientAuth::Secret(secret) = &user.auth
                && let Ok(secret) = MysqlSecret::parse(secret.expose())
            {
                put_kind(&mut kinds, secret.kind());
            }
        }
        let [_, _, has_sha2] = kinds;
        self.kinds.lock().insert(tenant.id, kinds);
        if has_sha2 || tenant.auth_query.is_some() {
            self.key.prepare();
        }
    }

    /// Returns the credentials that are used at the server for this client.
    pub fn credentials(
        &self,
        user: &TenantUser,
        client: &MysqlAuthenticatedClient,
    ) -> Arc<MysqlCredentials> {
        Arc::new(match &user.server_secret {
            ServerSecret::None => MysqlCredentials::None,
            ServerSecret::Known(secret) => known(secret.expose()),
            ServerSecret::OfClient => {
                let secret = client.verifier.as_ref().and_then(|verifier| verifier.secret());
                match (secret, &client.shown) {
                    (_, MysqlDisclosedSecret::Password(password))
                    | (Some(MysqlSecret::Plain(password)), _) => {
                        MysqlCredentials::Password(password.clone())
                    }
                    (_, MysqlDisclosedSecret::Native(key)) => MysqlCredentials::Native(key.clone()),
                    (_, MysqlDisclosedSecret::Sha2(key)) => MysqlCredentials::Sha2(key.clone()),
                    (_, MysqlDisclosedSecret::Nothing) => MysqlCredentials::None,
                }
            }
        })
    }

    /// Returns the credentials that are used at the server without a client, as for connections
    /// that are opened ahead; `None` if only clients have them.
    pub fn own_credentials(&self, user: &TenantUser) -> Option<Arc<MysqlCredentials>> {
        match &user.server_secret {
            ServerSecret::None => Some(Arc::new(MysqlCredentials::None)),
            ServerSecret::Known(secret) => Some(Arc::new(known(secret.expose()))),
            ServerSecret::OfClient => None,
        }
    }
}

/// Returns the credentials that are configured for a server. A stored secret is not one: only
/// clients who know the password can authenticate.
fn known(text: &str) -> MysqlCredentials {
    match MysqlSecret::parse(text) {
        Ok(MysqlSecret::Native(_) | MysqlSecret::Sha2(_)) => MysqlCredentials::None,
        Ok(MysqlSecret::Plain(_)) | Err(_) => {
            MysqlCredentials::Password(wire::pg::secret::PlainPassword::new(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests;
