//! Authentication of MySQL: resolves a tenant's users to the proofs that clients must give and the
//! credentials that are used at the server.
//!
//! Like [`auth::pg`](crate::auth::pg), with other secrets: passwords, and what MySQL and
//! MariaDB have in `authentication_string`.
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

/// Secrets that were prepared, of all tenants.
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
    /// This, or it is sent away.
    Known(Result<MysqlProof, PgLoginRefusal>),
    /// The secret that the tenant's `auth_query` finds; then [`MysqlKeyring::found`].
    Query,
}

impl MysqlKeyring {
    /// An empty one. `process_secret` should outlive the process: which method users are asked by
    /// who do not exist comes from it.
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

    /// Returns what this client has to show to be `user` of `tenant`, as which it was routed.
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

    /// Returns what a client has to show whose secret was looked up; none when there is no such
    /// user. A secret that nobody could have is as good as none.
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

    /// A user's secret, prepared.
    ///
    /// # Errors
    /// When it is none.
    pub fn verifier(
        &self,
        user: &str,
        secret: &str,
    ) -> Result<Arc<MysqlVerifier>, MysqlSecretError> {
        let key = self.process_secret.key(&[user, secret]);
        self.verifiers.get_or_make(key, || Ok(MysqlVerifier::new(MysqlSecret::parse(secret)?)))
    }

    /// Returns what a user who does not exist is asked for: the same as one of those who do, so
    /// that the method does not tell.
    fn nobody(&self, tenant: &TenantSnapshot, user: &TenantUser) -> Arc<MysqlVerifier> {
        let kinds = self.kinds.lock().get(&tenant.id).copied().unwrap_or_default();
        let known = SecretKind::ALL.into_iter().zip(kinds).filter(|(_, is_there)| *is_there);
        let known: Vec<SecretKind> = known.map(|(kind, _)| kind).collect();
        let [first, ..] = self.process_secret.key(&["nobody", &tenant.name, &user.name]);
        let place = usize::from(first) % known.len().max(1);
        // Where there is nobody yet, as if the first one had what MariaDB stores.
        let kind = known.get(place).copied().unwrap_or(SecretKind::Native);
        Arc::new(MysqlVerifier::mock(&user.name, self.process_secret.expose(), kind))
    }

    /// Prepares what a tenant's clients may need: which secrets there are, and a key that takes
    /// some tenths of a second if a password may have to be sent. For the control plane.
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

    /// Returns what is shown to the server for this client.
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

    /// Returns what is shown to the server when no client is at hand, as for connections that are
    /// made ahead; none when only clients have it.
    pub fn own_credentials(&self, user: &TenantUser) -> Option<Arc<MysqlCredentials>> {
        match &user.server_secret {
            ServerSecret::None => Some(Arc::new(MysqlCredentials::None)),
            ServerSecret::Known(secret) => Some(Arc::new(known(secret.expose()))),
            ServerSecret::OfClient => None,
        }
    }
}

/// Returns what is configured for a server. A stored secret proves nothing: only who knows the
/// password can be a client.
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
