//! Access tokens: valid for an hour and stored by their hash, so that every server that shares the
//! store knows them, also after a restart. Tokens that a server has seen are cached in memory.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use node::clock;
use node::lookup::SharedLookupError;

use super::random::{self, Hash, hash};
use super::token_cache::BearerOwner;
use super::{AccessControl, TOKEN_PREFIX, clients, only_operators};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{CatalogPrincipal, TokenClaims};

/// Lifetime of an access token.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// Most valid tokens of one client. Issuing more removes the oldest ones.
pub const TOKENS_OF_CLIENT_MAX: usize = 4096;

/// Most concurrent token lookups in the store: unauthenticated clients may send any token.
pub(super) const LOOKUPS_MAX: usize = 8;

/// Longest token that is looked up, in bytes.
const TOKEN_BYTES_MAX: usize = 200;

/// Access token, as returned to a client.
#[derive(Clone, Debug)]
pub struct AccessToken {
    /// The token.
    pub token: String,
    /// Time for which it is valid.
    pub lifetime: Duration,
    /// The only role whose rights it may use.
    pub role: Option<String>,
}

fn unknown() -> CatalogError {
    CatalogError::new(ErrorReason::NotAuthorized, "the access token is unknown")
}

/// A client that showed a valid secret.
#[derive(Debug)]
pub(crate) struct AuthenticatedClient {
    /// Principal of the client.
    pub(crate) who: CatalogPrincipal,
    /// Hash of the presented secret. Tokens issued for it become invalid with that secret.
    secret: Hash,
}

/// A token in the store.
#[derive(Clone, Debug)]
pub(super) struct TokenRow {
    pub(super) client: String,
    /// Hash of the client's secret that the token was issued for; `None` for tokens of releases
    /// that did not record it, which expire within [`LIFETIME`] of the update.
    pub(super) secret: Option<Hash>,
    pub(super) role: Option<String>,
    pub(super) ends_ms: u64,
}

/// Access tokens of clients.
#[derive(Clone, Copy, Debug)]
pub struct AccessTokens<'a>(pub(super) &'a AccessControl);

impl AccessTokens<'_> {
    /// Issues an access token to a client that presents its secret, for all of its rights or those
    /// of one of its roles.
    ///
    /// # Errors
    /// `NotAuthorized` if the client does not exist or the secret is wrong; `Forbidden` if it does
    /// not have the role.
    pub async fn token_for(
        self,
        id: &str,
        secret: &str,
        role: Option<&str>,
    ) -> Result<AccessToken> {
        let client = self.client_by_secret(id, secret, None).await?;
        self.issue(&client, role).await
    }

    /// Returns the client with a secret, which was presented from `address`.
    ///
    /// # Errors
    /// `NotAuthorized`; `TooManyRequests` after too many wrong secrets from that address.
    pub(crate) async fn client_by_secret(
        self,
        id: &str,
        secret: &str,
        address: Option<IpAddr>,
    ) -> Result<AuthenticatedClient> {
        let secret = hash(secret);
        let find = || {
            let client = self.0.0.loaded.read().clients.get(id).cloned();
            let client = client.filter(|it| it.accepts(&secret, clock::wall_ms()));
            client.map(|it| AuthenticatedClient { who: it.who(), secret })
        };
        let known = || Some(id).filter(|id| self.0.0.loaded.read().clients.contains_key(*id));
        self.0.0.wrong_secrets.check_allowed(known(), address)?;
        let mut found = find();
        if found.is_none() {
            self.catch_up().await?;
            found = find();
        }
        self.0.0.wrong_secrets.limited(known(), address, || {
            found.ok_or_else(|| {
                CatalogError::new(ErrorReason::NotAuthorized, "unknown client, or wrong secret")
            })
        })
    }

    /// Loads recent changes of other servers, for a principal that is unknown here. Unauthenticated
    /// clients can trigger this at will, so all waiting callers share one read.
    pub(super) async fn catch_up(self) -> Result<()> {
        self.0.0.unknown.run(self.0.reload()).await.map_err(|error| match error {
            SharedLookupError::Failed(error) => error,
            SharedLookupError::OfAnother => CatalogError::new(
                ErrorReason::ServiceUnavailable,
                "the store cannot be reached at present",
            ),
        })
    }

    /// Issues another access token to the holder of this one. It may have fewer rights, never more.
    ///
    /// # Errors
    /// `NotAuthorized` if it is unknown, `AuthenticationTimeout` if it has expired; `Forbidden` if
    /// its holder does not have the role.
    pub async fn token_after(self, token: &str, role: Option<&str>) -> Result<AccessToken> {
        let BearerOwner { who, secret, .. } = self.bearer_of(token).await?;
        let own = who.claims.as_ref().and_then(|it| it.role.as_deref());
        let role = match (own, role) {
            (None, wanted) => wanted,
            (Some(own), None) => Some(own),
            (Some(own), Some(wanted)) if own == wanted => Some(own),
            (Some(_), Some(_)) => {
                let message = "the exchanged token is for another role";
                return Err(CatalogError::new(ErrorReason::Forbidden, message));
            }
        };
        self.issue_for(&who, secret, role).await
    }

    /// Issues an access token to an authenticated client.
    ///
    /// # Errors
    /// `Forbidden` if it does not have the role.
    pub(crate) async fn issue(
        self,
        client: &AuthenticatedClient,
        role: Option<&str>,
    ) -> Result<AccessToken> {
        self.issue_for(&client.who, Some(client.secret), role).await
    }

    async fn issue_for(
        self,
        who: &CatalogPrincipal,
        secret: Option<Hash>,
        role: Option<&str>,
    ) -> Result<AccessToken> {
        let client = clients::of(who).ok_or_else(|| {
            CatalogError::new(
                ErrorReason::NotAuthorized,
                "access tokens are issued to clients only",
            )
        })?;
        if let Some(role) = role {
            self.0.roles().require_role(who, role)?;
        }
        let token = random::text(TOKEN_PREFIX, &self.0.0.generator.secret()?);
        let lifetime_ms = u64::try_from(LIFETIME.as_millis()).map_err(CatalogError::internal)?;
        let now_ms = clock::wall_ms();
        let row = TokenRow {
            client: client.to_owned(),
            secret,
            role: role.map(str::to_owned),
            ends_ms: now_ms.saturating_add(lifetime_ms),
        };
        let (hash, epoch) = (hash(&token), self.0.0.token_cache.epoch());
        self.0.0.store.insert_token(hash, row.clone(), now_ms).await?;
        if let Some(bearer) = self.bearer(&row) {
            self.0.0.token_cache.put(hash, bearer, epoch, now_ms);
        }
        Ok(AccessToken { token, lifetime: LIFETIME, role: row.role })
    }

    /// Returns the holder of an access token.
    ///
    /// # Errors
    /// `NotAuthorized` if it is unknown, `AuthenticationTimeout` if it has expired.
    pub(crate) async fn holder(self, token: &str) -> Result<CatalogPrincipal> {
        self.bearer_of(token).await.map(|bearer| bearer.who)
    }

    async fn bearer_of(self, token: &str) -> Result<BearerOwner> {
        if let Some(found) = self.cached_bearer(token, hash) {
            return found;
        }
        let bearer = Box::pin(self.look_up(hash(token))).await?.ok_or_else(unknown)?;
        match self.admitted(bearer.clone()) {
            // It may be for a secret that is newer than the loaded state.
            Err(error) if error.kind == ErrorReason::NotAuthorized => {
                Box::pin(self.catch_up()).await?;
                self.admitted(bearer)
            }
            admitted => admitted,
        }
    }

    /// Returns the holder of a token that was looked up before; `None` for another one.
    pub(super) fn known_holder(
        self,
        token: &str,
        hash: impl FnOnce(&str) -> Hash,
    ) -> Option<Result<CatalogPrincipal>> {
        let found = self.cached_bearer(token, hash)?;
        Some(found.map(|bearer| bearer.who))
    }

    fn cached_bearer(
        self,
        token: &str,
        hash: impl FnOnce(&str) -> Hash,
    ) -> Option<Result<BearerOwner>> {
        if token.len() > TOKEN_BYTES_MAX {
            return Some(Err(unknown()));
        }
        self.0.0.token_cache.find(&hash(token)).map(|bearer| self.admitted(bearer))
    }

    /// Checks that a token is valid at this moment: it has not expired, its client exists, and that
    /// client's secret, for which it was issued, was not replaced.
    fn admitted(self, bearer: BearerOwner) -> Result<BearerOwner> {
        let now_ms = clock::wall_ms();
        if bearer.ends_ms <= now_ms {
            let message = "the access token has ended; ask for another one";
            return Err(CatalogError::new(ErrorReason::AuthenticationTimeout, message));
        }
        // It may have been issued while its client was being removed.
        let is_valid = clients::of(&bearer.who).is_some_and(|id| {
            let loaded = self.0.0.loaded.read();
            let client = loaded.clients.get(id);
            client.is_some_and(|it| bearer.secret.is_none_or(|hash| it.accepts(&hash, now_ms)))
        });
        if is_valid { Ok(bearer) } else { Err(unknown()) }
    }

    /// Looks up a token that this server has not seen yet.
    async fn look_up(self, hash: [u8; 32]) -> Result<Option<BearerOwner>> {
        let _one = self.0.0.lookups.acquire().await.map_err(CatalogError::internal)?;
        let epoch = self.0.0.token_cache.epoch();
        let Some(row) = self.0.0.store.token(hash).await? else { return Ok(None) };
        let mut bearer = self.bearer(&row);
        if bearer.is_none() {
            // Another server has created the client a moment ago.
            self.0.reload().await?;
            bearer = self.bearer(&row);
        }
        if let Some(bearer) = &bearer {
            self.0.0.token_cache.put(hash, bearer.clone(), epoch, clock::wall_ms());
        }
        Ok(bearer)
    }

    fn bearer(self, row: &TokenRow) -> Option<BearerOwner> {
        let who = self.0.0.loaded.read().clients.get(&*row.client)?.who();
        let who = match &row.role {
            None => who,
            // A token limited to a role only yields tokens with that limit.
            Some(role) => {
                let claims =
                    TokenClaims { role: Some(role.as_str().into()), ..TokenClaims::default() };
                CatalogPrincipal { operator: false, claims: Some(Arc::new(claims)), ..who }
            }
        };
        Some(BearerOwner { who, secret: row.secret, ends_ms: row.ends_ms })
    }

    /// Revokes an access token. Other servers honour it for up to [`super::RELOAD_INTERVAL`]. An
    /// unknown token is ignored.
    ///
    /// # Errors
    /// `Forbidden` if it belongs to another principal and the caller is no operator.
    pub async fn revoke_token(self, who: &CatalogPrincipal, token: &str) -> Result<()> {
        if token.len() > TOKEN_BYTES_MAX {
            return Ok(());
        }
        let hash = hash(token);
        let Some(row) = self.0.0.store.token(hash).await? else { return Ok(()) };
        if clients::of(who) != Some(row.client.as_str()) {
            only_operators(who)?;
        }
        self.0.0.store.revoke_token(hash).await?;
        self.0.0.token_cache.forget(&hash);
        Ok(())
    }
}
