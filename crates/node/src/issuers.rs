//! Identity providers: verification of signed tokens (RFC 7519) of the configured issuers, for the
//! configured audience.
//!
//! An issuer's keys are fetched when they are first needed, periodically, and when a token names an
//! unknown key, at a limited rate. The hash of a verified token is cached for a while: later
//! requests with it need no signature check.
//!
//! # References
//! - <https://openid.net/specs/openid-connect-discovery-1_0.html>

mod jwt;
mod keys;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Method;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use self::jwt::UnverifiedToken;
use self::keys::{IssuerKeys, SignatureAlgorithm};
use crate::auth::{TokenScope, TokenScopes};
use crate::client::{AddressGuard, AllowedNetwork, ClientRequest, HttpClient};
use crate::{clock, task};

pub use self::jwt::VerifiedClaims;

/// Result of this module.
type Result<T> = std::result::Result<T, IssuerError>;

/// Maximum number of issuers.
pub const ISSUERS_MAX: usize = 20;

/// Longest token of an issuer, in bytes.
pub const JWT_BYTES_MAX: usize = 8 << 10;

/// Longest set of keys, in bytes.
pub const JWKS_BYTES_MAX: u64 = 256 << 10;

/// Time after which keys are fetched again.
pub const JWKS_AGE: Duration = Duration::from_secs(3600);

/// Time for which keys remain in use if they cannot be fetched again.
pub const JWKS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Shortest time between two attempts to fetch an issuer's keys, even if tokens name unknown ones.
pub const FETCH_INTERVAL: Duration = Duration::from_secs(30);

/// Time for an issuer to answer.
const FETCH_MAX: Duration = Duration::from_secs(5);

/// Time for which a verified token is accepted without another check of its signature: a key that
/// its issuer withdrew is accepted for that long beyond [`JWKS_AGE`].
pub const VERIFIED_MAX: Duration = Duration::from_secs(300);

/// Default claim with the groups of a principal.
pub const GROUPS_CLAIM: &str = "groups";
/// Default claim with the scopes of a token (RFC 8693 §4.2).
pub const SCOPE_CLAIM: &str = "scope";
/// Maximum leeway for clock differences.
pub const LEEWAY_MAX: Duration = Duration::from_secs(300);

/// A configured issuer of tokens: one of `catalog.issuers`, whose tokens identify principals in
/// groups, or of `auth.issuers`, whose tokens have a tenant and scopes. Settings of the one kind
/// are rejected for the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IssuerConfig {
    /// Name in this configuration: a part of the ids of its principals.
    pub name: String,
    /// Value of `iss`.
    pub issuer: String,
    /// Audience that its tokens must have in `aud`.
    pub audience: String,
    /// URL of its keys.
    pub jwks_url: Option<String>,
    /// Alternatively, the file with its keys.
    pub jwks_file: Option<PathBuf>,
    /// Networks and hosts that `jwks_url` may point to, in addition to the public Internet.
    pub jwks_allowed: Vec<String>,
    /// The algorithms that its tokens may be signed with: `RS256`, `ES256`, `EdDSA`.
    pub algorithms: Vec<String>,
    /// Claim that identifies the principal.
    pub principal_claim: String,
    /// Tolerance for its clock, in seconds.
    pub leeway_seconds: u64,
    /// Claim with the groups of a principal; defaults to [`GROUPS_CLAIM`].
    pub groups_claim: Option<String>,
    /// Tenant of all tokens, for an issuer of tokens.
    pub tenant: Option<String>,
    /// Claim that names the tenant of a token.
    pub tenant_claim: Option<String>,
    /// Maximum scopes of a token; defaults to executions and sessions.
    pub scopes: Option<TokenScopes>,
    /// Claim with the scopes of a token, a list or a text of words; defaults to [`SCOPE_CLAIM`].
    /// Empty: all scopes.
    pub scope_claim: Option<String>,
}

impl Default for IssuerConfig {
    fn default() -> IssuerConfig {
        IssuerConfig {
            name: String::new(),
            issuer: String::new(),
            audience: String::new(),
            jwks_url: None,
            jwks_file: None,
            jwks_allowed: Vec::new(),
            algorithms: SignatureAlgorithm::ALL.iter().map(|it| it.name().to_owned()).collect(),
            principal_claim: "sub".to_owned(),
            leeway_seconds: 30,
            groups_claim: None,
            tenant: None,
            tenant_claim: None,
            scopes: None,
            scope_claim: None,
        }
    }
}

impl IssuerConfig {
    /// Checks that no setting for issuers of principals is present.
    ///
    /// # Errors
    /// An error that names the field.
    pub(crate) fn check_for_tokens(&self) -> Result<()> {
        self.check_absent("catalog.issuers", &[("groups_claim", self.groups_claim.is_some())])
    }

    fn check_for_principals(&self) -> Result<()> {
        let of_tokens = [
            ("tenant", self.tenant.is_some()),
            ("tenant_claim", self.tenant_claim.is_some()),
            ("scopes", self.scopes.is_some()),
            ("scope_claim", self.scope_claim.is_some()),
        ];
        self.check_absent("auth.issuers", &of_tokens)
    }

    fn check_absent(&self, elsewhere: &str, fields: &[(&str, bool)]) -> Result<()> {
        match fields.iter().find(|(_, is_there)| *is_there) {
            None => Ok(()),
            Some((field, _)) => {
                let message = format!("`{}`: `{field}` is a setting of {elsewhere}", self.name);
                Err(wrong(&message))
            }
        }
    }

    /// Returns the maximum scopes of its tokens.
    #[must_use]
    pub fn token_scopes(&self) -> TokenScopes {
        let usual = || [TokenScope::Executions, TokenScope::Sessions].into_iter().collect();
        self.scopes.unwrap_or_else(usual)
    }

    /// Returns the name of the claim with the groups of a principal.
    fn groups_claim(&self) -> &str {
        self.groups_claim.as_deref().unwrap_or(GROUPS_CLAIM)
    }
}

/// Source of an issuer's keys.
#[derive(Debug)]
enum KeySource {
    Url(String, HttpClient),
    File(PathBuf),
}

/// An issuer that is ready for use.
#[derive(Debug)]
struct TrustedIssuer {
    config: IssuerConfig,
    algorithms: Vec<SignatureAlgorithm>,
    source: KeySource,
    keys: RwLock<Option<FetchedKeys>>,
    /// Time of the last fetch of the keys. Locked during a fetch, so that one fetch serves all.
    last_fetch: tokio::sync::Mutex<Option<Instant>>,
}

/// An issuer's keys at a time.
#[derive(Clone, Debug)]
struct FetchedKeys {
    keys: Arc<IssuerKeys>,
    at: Instant,
}

/// Error of the configuration, or of a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssuerError {
    /// The configuration is wrong.
    #[error("{0}")]
    Configuration(String),
    /// The token is forged, or for another audience or issuer.
    #[error("the token is not valid: {0}")]
    Refused(String),
    /// The token was valid, and has expired.
    #[error("the token has ended; ask its issuer for another one")]
    Ended,
    /// The keys of the issuer cannot be fetched, so the token cannot be verified.
    #[error("the keys of `{0}` are unavailable at present")]
    KeysUnavailable(String),
}

/// A verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedBearer {
    /// Name of its issuer in this configuration.
    pub issuer: String,
    /// Claims of the token.
    pub claims: VerifiedClaims,
    /// Time until which it may be cached, in milliseconds since 1970.
    pub known_until_ms: u64,
}

/// All issuers.
#[derive(Debug, Default)]
pub struct TrustedIssuers(Vec<TrustedIssuer>);

impl TrustedIssuers {
    /// As [`TrustedIssuers::new`], for issuers of principals.
    ///
    /// # Errors
    /// As of [`TrustedIssuers::new`], and if one has settings for issuers of tokens.
    pub fn of_principals(all: Vec<IssuerConfig>) -> Result<TrustedIssuers> {
        all.iter().try_for_each(IssuerConfig::check_for_principals)?;
        TrustedIssuers::new(all)
    }

    /// Prepares the issuers. Their keys are fetched when they are needed.
    ///
    /// # Errors
    /// An error that names the invalid setting.
    pub fn new(all: Vec<IssuerConfig>) -> Result<TrustedIssuers> {
        if all.len() > ISSUERS_MAX {
            return Err(wrong(&format!("there are more than {ISSUERS_MAX}")));
        }
        let mut ready: Vec<TrustedIssuer> = Vec::new();
        for config in all {
            let same = |it: &TrustedIssuer| {
                it.config.name == config.name || it.config.issuer == config.issuer
            };
            if ready.iter().any(same) {
                return Err(wrong(&format!("`{}` occurs twice", config.name)));
            }
            ready.push(TrustedIssuer::new(config)?);
        }
        Ok(TrustedIssuers(ready))
    }

    /// Verifies a signed token.
    ///
    /// # Errors
    /// If it is invalid or expired, or its issuer's keys cannot be fetched.
    pub async fn verify(&self, text: &str, now_ms: u64) -> Result<VerifiedBearer> {
        if text.len() > JWT_BYTES_MAX {
            return Err(refused("it is too long"));
        }
        let token = UnverifiedToken::parse(text)?;
        let issuer = self.0.iter().find(|it| it.config.issuer == token.issuer);
        let issuer = issuer.ok_or_else(|| refused("its issuer is not trusted here"))?;
        if !issuer.algorithms.contains(&token.algorithm) {
            return Err(refused("its algorithm is not one that its issuer may use"));
        }
        let keys = issuer.keys(&token, clock::now()).await?;
        keys.verify(&token)?;
        let claims = token.claims(&issuer.config, now_ms)?;
        let verified_ms = u64::try_from(VERIFIED_MAX.as_millis()).unwrap_or(u64::MAX);
        let known_until_ms = claims.ends_ms.min(now_ms.saturating_add(verified_ms));
        Ok(VerifiedBearer { issuer: issuer.config.name.clone(), claims, known_until_ms })
    }

    /// Returns whether a bearer token looks like a token of an issuer.
    #[must_use]
    pub fn may_be_of(&self, token: &str) -> bool {
        !self.0.is_empty() && token.bytes().filter(|byte| *byte == b'.').count() == 2
    }
}

fn wrong(message: &str) -> IssuerError {
    IssuerError::Configuration(message.to_owned())
}

/// Returns the error for a rejected token. Its details are for the server's log: a forger learns
/// nothing from it, and an honest client sees its own token.
fn refused(why: &str) -> IssuerError {
    IssuerError::Refused(why.to_owned())
}

impl TrustedIssuer {
    fn new(config: IssuerConfig) -> Result<TrustedIssuer> {
        let name = &config.name;
        let wrong = |message: &str| wrong(&format!("`{name}`: {message}"));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > 50 || !name.bytes().all(is_name) {
            return Err(wrong("`name` has 1 to 50 letters, digits, `-`, `_` and `.`"));
        }
        for (field, value) in [
            ("issuer", &config.issuer),
            ("audience", &config.audience),
            ("principal_claim", &config.principal_claim),
        ]
        .map(|(field, value)| (field, value.as_str()))
        .into_iter()
        .chain([("groups_claim", config.groups_claim())])
        {
            if value.is_empty() {
                return Err(wrong(&format!("`{field}` is empty")));
            }
        }
        if config.leeway_seconds > LEEWAY_MAX.as_secs() {
            return Err(wrong(&format!("`leeway_seconds` is at most {}", LEEWAY_MAX.as_secs())));
        }
        let algorithms = config.algorithms.iter().map(|text| {
            let message = format!("`algorithms`: `{text}` is not `RS256`, `ES256` or `EdDSA`");
            SignatureAlgorithm::of(text).ok_or_else(|| wrong(&message))
        });
        let algorithms = algorithms.collect::<Result<Vec<_>>>()?;
        if algorithms.is_empty() {
            return Err(wrong("`algorithms` is empty"));
        }
        let source = match (&config.jwks_url, &config.jwks_file) {
            (Some(url), None) => {
                let allowed = config.jwks_allowed.iter().map(|it| it.parse::<AllowedNetwork>());
                let allowed = allowed.collect::<std::result::Result<Vec<_>, _>>();
                let allowed = allowed.map_err(|it| wrong(&format!("`jwks_allowed`: {it}")))?;
                let is_near = ["http://127.0.0.1:", "http://localhost:", "http://[::1]:"]
                    .iter()
                    .any(|it| url.starts_with(it));
                // An attacker who can change the keys in transit could forge any token.
                if !url.starts_with("https://") && !is_near {
                    return Err(wrong("`jwks_url` begins with `https://`"));
                }
                let client = HttpClient::new(AddressGuard::Public(allowed));
                client.check(url).map_err(|it| wrong(&format!("`jwks_url`: {it}")))?;
                KeySource::Url(url.clone(), client)
            }
            (None, Some(path)) => KeySource::File(path.clone()),
            _ => return Err(wrong("it has either a `jwks_url` or a `jwks_file`")),
        };
        let (keys, last_fetch) = (RwLock::default(), tokio::sync::Mutex::default());
        Ok(TrustedIssuer { config, algorithms, source, keys, last_fetch })
    }

    /// Returns the keys to verify a token with: the cached ones if they contain the key that it
    /// names.
    async fn keys(&self, token: &UnverifiedToken<'_>, now: Instant) -> Result<Arc<IssuerKeys>> {
        let here = self.keys.read().clone();
        if let Some(here) = &here
            && now.saturating_duration_since(here.at) < JWKS_AGE
            && here.keys.has(token)
        {
            return Ok(Arc::clone(&here.keys));
        }
        self.fetch(now).await;
        let found = self.keys.read().clone();
        // Another caller may have fetched them after `now`.
        let found = found.filter(|it| now.saturating_duration_since(it.at) < JWKS_AGE_MAX);
        let unavailable = || IssuerError::KeysUnavailable(self.config.name.clone());
        found.map(|it| it.keys).ok_or_else(unavailable)
    }

    /// Fetches the keys, unless another caller has just done so. If the issuer does not answer, the
    /// previous keys remain.
    async fn fetch(&self, now: Instant) {
        let mut last_fetch = self.last_fetch.lock().await;
        if last_fetch.is_some_and(|at| at + FETCH_INTERVAL > now) {
            return;
        }
        *last_fetch = Some(now);
        match self.read().await {
            Ok(keys) => *self.keys.write() = Some(FetchedKeys { keys: Arc::new(keys), at: now }),
            Err(error) => {
                let issuer = &*self.config.name;
                tracing::warn!(error, issuer, "failed to fetch the keys of an issuer");
            }
        }
    }

    async fn read(
        &self,
    ) -> std::result::Result<IssuerKeys, Box<dyn std::error::Error + Send + Sync>> {
        let bytes = match &self.source {
            KeySource::Url(url, client) => {
                let mut request = ClientRequest::new(Method::GET, url);
                request.timeout = FETCH_MAX;
                request.response_bytes_max = JWKS_BYTES_MAX;
                let response = client.send(request).await?;
                if response.status.as_u16() != 200 {
                    return Err(format!("the issuer answers {}", response.status).into());
                }
                response.bytes().await?
            }
            KeySource::File(path) => {
                let path = path.clone();
                task::blocking(move || keys::read(&path)).await??
            }
        };
        Ok(IssuerKeys::parse(&bytes, &self.algorithms)?)
    }
}
