//! Authentication of PostgreSQL: resolves a tenant's users to the proofs that clients must give and
//! the credentials that are used at the server.
//!
//! Secrets are prepared once and found again by a keyed hash of their text, so that a login costs
//! some hashes and not thousands, and a change of the tenant changes nothing here.

use std::convert::Infallible;
use std::sync::Arc;

use pooler_core::pg::dial::PgCredentials;
use pooler_core::pg::login::{
    PgAuthenticatedClient, PgDisclosedSecret, PgLoginRefusal, PgPasswordMethod, PgProof,
    PgStartupRequest, RouteAuth,
};
use wire::pg::secret::{PgSecret, PgSecretError, PgVerifier, PlainPassword};

use crate::keyring::{self, PasswordMethod, PreparedSecrets, ProcessSecret};
use crate::tenants::{ClientAuth, ServerSecret, TenantSnapshot, TenantUser};

/// Prepared secrets of all tenants.
#[derive(Debug)]
pub struct PgKeyring {
    process_secret: ProcessSecret,
    method: PgPasswordMethod,
    verifiers: PreparedSecrets<PgVerifier>,
    credentials: PreparedSecrets<PgCredentials>,
}

/// Proof that a client has to give.
#[derive(Debug)]
pub enum PgAuthRequirement {
    /// A known proof request, or the reason why the login is refused.
    Known(Result<RouteAuth, PgLoginRefusal>),
    /// The secret is the result of the tenant's `auth_query`; [`PgKeyring::found`] then makes the
    /// proof request.
    Query,
}

impl PgKeyring {
    /// Creates an empty keyring. `process_secret` should outlive the process: the salts that
    /// clients see are derived from it, and a salt that changes distinguishes existing users from
    /// others.
    #[must_use]
    pub fn new(process_secret: [u8; 32], method: PgPasswordMethod) -> PgKeyring {
        PgKeyring {
            process_secret: ProcessSecret::new(process_secret),
            method,
            verifiers: PreparedSecrets::default(),
            credentials: PreparedSecrets::default(),
        }
    }

    /// Returns the proof that this client must give to be `user`, as which it was routed.
    #[must_use]
    pub fn demand(&self, user: &TenantUser, requested: &PgStartupRequest) -> PgAuthRequirement {
        let certificate = requested.tls.as_ref().and_then(|tls| tls.client_name.as_deref());
        let proof = match keyring::ask(user, certificate, requested.reached, '"') {
            Ok(PasswordMethod::Query) => return PgAuthRequirement::Query,
            Ok(PasswordMethod::Nothing) => Ok(PgProof::Nothing),
            Ok(PasswordMethod::Secret(secret)) => Ok(self.password(user, secret)),
            Err(refusal) => Err(refusal),
        };
        PgAuthRequirement::Known(proof.map(RouteAuth::of))
    }

    /// Returns the proof that a client must give when its secret was looked up; `secret` is `None`
    /// if there is no such user. An unusable secret counts as none.
    #[must_use]
    pub fn found(&self, user: &TenantUser, secret: Option<&str>) -> RouteAuth {
        RouteAuth::of(self.password(user, secret))
    }

    fn password(&self, user: &TenantUser, secret: Option<&str>) -> PgProof {
        let verifier = secret.and_then(|text| match self.verifier(&user.name, text) {
            Ok(verifier) => Some(verifier),
            Err(error) => {
                let user = &*user.name;
                tracing::warn!(user, error = &error as &dyn std::error::Error, "use a secret");
                None
            }
        });
        let mock = || Arc::new(PgVerifier::mock(&user.name, *self.process_secret.expose()));
        PgProof::Password(verifier.unwrap_or_else(mock), self.method)
    }

    /// Returns the prepared form of a user's secret.
    ///
    /// # Errors
    /// If it is not a valid secret.
    pub fn verifier(&self, user: &str, secret: &str) -> Result<Arc<PgVerifier>, PgSecretError> {
        self.verifiers.get_or_make(self.process_secret.key(&[user, secret]), || {
            Ok(PgVerifier::new(user, PgSecret::parse(secret)?, *self.process_secret.expose()))
        })
    }

    /// Prepares the secrets of a tenant's users: milliseconds of hashing for each, which would
    /// otherwise delay the first client and all clients of its thread. For the control plane.
    pub fn prepare(&self, tenant: &TenantSnapshot) {
        for user in tenant.users.values() {
            if let ClientAuth::Secret(secret) = &user.auth
                && let Ok(verifier) = self.verifier(&user.name, secret.expose())
            {
                verifier.prepare();
            }
        }
    }

    /// Returns the credentials that are used at the server for this client.
    pub fn credentials(
        &self,
        tenant: &TenantSnapshot,
        user: &TenantUser,
        client: &PgAuthenticatedClient,
    ) -> Arc<PgCredentials> {
        match &user.server_secret {
            ServerSecret::None => Arc::new(PgCredentials::None),
            ServerSecret::Known(secret) => self.known(tenant, user, secret.expose()),
            ServerSecret::OfClient => {
                let secret = client.verifier.as_ref().and_then(|verifier| verifier.secret());
                match (secret, &client.shown) {
                    (_, PgDisclosedSecret::Password(password))
                    | (Some(PgSecret::Plain(password)), _) => {
                        self.known(tenant, user, password.reveal())
                    }
                    (Some(PgSecret::Md5(hash)), _) => Arc::new(PgCredentials::Md5(hash.clone())),
                    (_, PgDisclosedSecret::Keys(keys)) => {
                        Arc::new(PgCredentials::Scram(keys.clone()))
                    }
                    (Some(PgSecret::Scram(_)) | None, PgDisclosedSecret::Nothing) => {
                        Arc::new(PgCredentials::None)
                    }
                }
            }
        }
    }

    /// Returns the credentials that are used at the server without a client, as for connections
    /// that are opened ahead; `None` if only clients have them.
    pub fn own_credentials(
        &self,
        tenant: &TenantSnapshot,
        user: &TenantUser,
    ) -> Option<Arc<PgCredentials>> {
        match &user.server_secret {
            ServerSecret::None => Some(Arc::new(PgCredentials::None)),
            ServerSecret::Known(secret) => Some(self.known(tenant, user, secret.expose())),
            ServerSecret::OfClient => None,
        }
    }

    fn known(&self, tenant: &TenantSnapshot, user: &TenantUser, text: &str) -> Arc<PgCredentials> {
        let key = self.process_secret.key(&[&tenant.name, &user.server_user, text]);
        let made = || match PgSecret::parse(text) {
            Ok(PgSecret::Plain(password)) => PgCredentials::of_password(password),
            Ok(PgSecret::Md5(hash)) => PgCredentials::Md5(hash),
            // It proves nothing: only clients who know the password can authenticate.
            Ok(PgSecret::Scram(_)) => PgCredentials::None,
            // Not valid as a client's secret, but possibly the password that the server requires.
            Err(_) => PgCredentials::of_password(PlainPassword::new(text.to_owned())),
        };
        let Ok(known) = self.credentials.get_or_make(key, || Ok::<_, Infallible>(made()));
        known
    }
}

#[cfg(test)]
mod tests;
