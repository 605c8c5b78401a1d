//! Tokens of identity providers: their principal, tenant and scopes.
//!
//! [`crate::issuers`] verifies signature, issuer, audience and time. The configuration determines a
//! token's rights: a tenant, fixed or from a claim, and scopes, fixed or restricted by a claim.
//! Such a token is never an operator's.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::{
    CallerCredential, TokenError, TokenPrincipal, TokenRegistry, TokenScopes, hash, is_tenant,
};
use crate::hex;
use crate::issuers::{
    IssuerConfig, IssuerError, JWT_BYTES_MAX, SCOPE_CLAIM, TrustedIssuers, VerifiedBearer,
    VerifiedClaims,
};

/// Maximum number of issuers' tokens that are cached. Beyond it, those that expire first are
/// verified again when they are used again.
pub const ISSUED_TOKENS_MAX: usize = 10_000;

/// Prefix of the ids of such principals.
pub(super) const ID_PREFIX: &str = "iss_";

/// Digits of the hash in such an id.
const ID_DIGITS: usize = 32;

impl TokenRegistry {
    /// Accepts tokens of these identity providers from now on, and of no others. Requests and
    /// streams of tokens that are no longer accepted end as those of revoked tokens do. Cached
    /// tokens of an issuer with unchanged settings remain cached.
    ///
    /// # Errors
    /// If the configuration is invalid: a message that names the field.
    pub fn trust(&self, issuers: Vec<IssuerConfig>) -> Result<(), TokenError> {
        let issued = match issuers.is_empty() {
            true => None,
            false => Some(Arc::new(IssuedTokens::new(issuers).map_err(TokenError::Issuers)?)),
        };
        {
            let mut held = self.0.issued.write();
            if let (Some(before), Some(issued)) = (&*held, &issued) {
                issued.keep_known(before);
            }
            *held = issued;
        }
        self.0.changes.send_replace(());
        Ok(())
    }

    /// Returns the issuers in force, if there are any.
    pub(super) fn issued(&self) -> Option<Arc<IssuedTokens>> {
        self.0.issued.read().clone()
    }
}

/// Checks issuers as [`TokenRegistry::trust`] does.
///
/// # Errors
/// If one of them is invalid, or two are the same.
pub fn check_issuers(issuers: Vec<IssuerConfig>) -> Result<(), TokenError> {
    IssuedTokens::new(issuers).map(drop).map_err(TokenError::Issuers)
}

/// An accepted identity provider: one of `[[auth.issuers]]`, checked.
#[derive(Clone, Debug)]
struct TokenIssuer {
    config: IssuerConfig,
    scopes: TokenScopes,
    /// The claim that restricts the scopes of a token; none if tokens have all.
    scope_claim: Option<String>,
}

impl TokenIssuer {
    fn new(config: IssuerConfig) -> Result<TokenIssuer, IssuerError> {
        config.check_for_tokens()?;
        let name = &config.name;
        let wrong = |what: &str| Err(IssuerError::Configuration(format!("`{name}`: {what}")));
        match (&config.tenant, &config.tenant_claim) {
            (Some(tenant), None) if !is_tenant(tenant) => {
                return wrong("`tenant` has 1 to 64 letters, digits, `-`, `_` and `.`");
            }
            (None, Some(claim)) if claim.is_empty() => return wrong("`tenant_claim` is empty"),
            (Some(_), None) | (None, Some(_)) => {}
            _ => return wrong("it has either a `tenant` or a `tenant_claim`"),
        }
        let scope_claim = config.scope_claim.as_deref().unwrap_or(SCOPE_CLAIM);
        let scope_claim = (!scope_claim.is_empty()).then(|| scope_claim.to_owned());
        Ok(TokenIssuer { scopes: config.token_scopes(), config, scope_claim })
    }

    /// Returns the configuration that verifies its tokens. Scopes are read like groups.
    fn verifier(&self) -> IssuerConfig {
        let claim = self.scope_claim.as_deref().unwrap_or(SCOPE_CLAIM);
        IssuerConfig { groups_claim: Some(claim.to_owned()), ..self.config.clone() }
    }

    /// Returns the principal of a token with these claims.
    fn principal(&self, claims: &VerifiedClaims) -> Result<TokenPrincipal, IssuerError> {
        let refused = |why: &str| IssuerError::Refused(why.to_owned());
        let tenant = match (&self.config.tenant, &self.config.tenant_claim) {
            (Some(tenant), _) => tenant.as_str(),
            (None, Some(claim)) => {
                let named = claims.all.get(claim).and_then(Value::as_str);
                named.ok_or_else(|| refused("it names no tenant"))?
            }
            (None, None) => return Err(refused("no tenant is configured")),
        };
        if !is_tenant(tenant) {
            return Err(refused("it names a tenant that there cannot be"));
        }
        let scopes: TokenScopes = match self.scope_claim {
            None => self.scopes,
            Some(_) => {
                let named = claims.groups.iter().filter_map(|word| word.parse().ok());
                named.filter(|scope| self.scopes.has(*scope)).collect()
            }
        };
        // One id for all tokens with the same content, so that accounts are by identity.
        let parts = [&self.config.name, &claims.principal, tenant, &format!("{scopes:?}")];
        let id = hex::encode(&hash(&serde_json::json!(parts).to_string()));
        let id = format!("{ID_PREFIX}{}", &id[..ID_DIGITS]);
        Ok(TokenPrincipal {
            token_id: id.into(),
            name: format!("{}:{}", self.config.name, claims.principal).into(),
            operator: false,
            tenant: tenant.into(),
            scopes,
            credential: CallerCredential::Issued,
        })
    }
}

/// A token that was verified.
#[derive(Clone, Debug)]
struct IssuedToken {
    principal: TokenPrincipal,
    /// Time until which its signature is not checked again, in milliseconds since 1970.
    known_until_ms: u64,
    /// Time at which it expires.
    ends_ms: u64,
}

/// Issuers, and their cached tokens.
#[derive(Debug)]
pub(super) struct IssuedTokens {
    of_tokens: Vec<TokenIssuer>,
    issuers: TrustedIssuers,
    /// By hash.
    known: Mutex<HashMap<[u8; 32], Arc<IssuedToken>>>,
}

impl IssuedTokens {
    /// Prepares issuers.
    ///
    /// # Errors
    /// An error that names the invalid setting.
    pub(super) fn new(configs: Vec<IssuerConfig>) -> Result<IssuedTokens, IssuerError> {
        let of_tokens = configs.into_iter().map(TokenIssuer::new).collect::<Result<Vec<_>, _>>()?;
        let issuers = of_tokens.iter().map(TokenIssuer::verifier).collect();
        let issuers = TrustedIssuers::new(issuers)?;
        Ok(IssuedTokens { of_tokens, issuers, known: Mutex::default() })
    }

    /// Keeps the cached tokens of issuers whose settings are unchanged.
    fn keep_known(&self, before: &IssuedTokens) {
        let same = |token: &IssuedToken| {
            let issuer = before.issuer_of(&token.principal.name);
            issuer.is_some_and(|issuer| self.of_tokens.iter().any(|it| it.config == issuer.config))
        };
        let known = before.known.lock();
        let kept = known.iter().filter(|(_, token)| same(token));
        self.known.lock().extend(kept.map(|(hash, token)| (*hash, Arc::clone(token))));
    }

    /// Returns the issuer of a principal's name.
    fn issuer_of(&self, name: &str) -> Option<&TokenIssuer> {
        let is_of = |it: &&TokenIssuer| {
            name.strip_prefix(&*it.config.name).is_some_and(|rest| rest.starts_with(':'))
        };
        self.of_tokens.iter().find(is_of)
    }

    /// Returns whether a token looks like a token of an issuer.
    pub(super) fn may_be_of(&self, token: &str) -> bool {
        token.len() <= JWT_BYTES_MAX && self.issuers.may_be_of(token)
    }

    /// Returns the principal of a token that was verified recently.
    pub(super) fn verify(&self, token: &str, now_ms: u64) -> Option<TokenPrincipal> {
        let known = self.known.lock().get(&hash(token)).cloned()?;
        (now_ms < known.known_until_ms).then(|| known.principal.clone())
    }

    /// Returns the principal with an id, as long as one of its tokens is valid.
    pub(super) fn principal(&self, id: &str, now_ms: u64) -> Option<TokenPrincipal> {
        if !id.starts_with(ID_PREFIX) {
            return None;
        }
        let known = self.known.lock();
        let mut good = known.values().filter(|it| now_ms < it.ends_ms);
        good.find(|it| *it.principal.token_id == *id).map(|it| it.principal.clone())
    }

    /// Returns when the first of the cached tokens of the principal with this id expires.
    pub(super) fn ends_ms(&self, id: &str, now_ms: u64) -> Option<u64> {
        let known = self.known.lock();
        let good = known.values().filter(|it| now_ms < it.ends_ms && *it.principal.token_id == *id);
        good.map(|it| it.ends_ms).min()
    }

    /// Returns the maximum scopes of tokens with this principal's name; none if the name is of no
    /// configured issuer.
    pub(super) fn scopes_of(&self, name: &str) -> Option<TokenScopes> {
        self.issuer_of(name).map(|issuer| issuer.scopes)
    }

    /// Verifies an unknown token. A rejected token remains unknown.
    ///
    /// # Errors
    /// If the issuer's keys cannot be fetched.
    pub(super) async fn learn(&self, token: &str, now_ms: u64) -> Result<(), IssuerError> {
        if self.verify(token, now_ms).is_some() {
            return Ok(());
        }
        let verified = self.issuers.verify(token, now_ms).await;
        let learned = verified.and_then(|bearer| self.issued(bearer));
        match learned {
            Ok(issued) => {
                self.remember(hash(token), issued);
                Ok(())
            }
            Err(error @ IssuerError::KeysUnavailable(_)) => Err(error),
            Err(error) => {
                tracing::debug!(%error, "a token of an issuer was refused");
                Ok(())
            }
        }
    }

    fn issued(&self, bearer: VerifiedBearer) -> Result<IssuedToken, IssuerError> {
        let VerifiedBearer { issuer, claims, known_until_ms } = bearer;
        let issuer = self.of_tokens.iter().find(|it| it.config.name == issuer);
        let unknown = || IssuerError::Refused("its issuer is not configured".to_owned());
        let principal = issuer.ok_or_else(unknown)?.principal(&claims)?;
        Ok(IssuedToken { principal, known_until_ms, ends_ms: claims.ends_ms })
    }

    fn remember(&self, hash: [u8; 32], issued: IssuedToken) {
        let mut known = self.known.lock();
        if known.len() >= ISSUED_TOKENS_MAX && !known.contains_key(&hash) {
            let first = known.iter().min_by_key(|(_, it)| it.ends_ms).map(|(hash, _)| *hash);
            first.map(|hash| known.remove(&hash));
        }
        known.insert(hash, Arc::new(issued));
    }

    /// Removes expired tokens, and returns whether there were any.
    pub(super) fn forget_ended(&self, now_ms: u64) -> bool {
        let mut known = self.known.lock();
        let before = known.len();
        known.retain(|_, it| now_ms < it.ends_ms);
        known.len() < before
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use serde_json::{Map, json};

    use crate::auth::TokenScope;

    use super::*;

    fn config() -> IssuerConfig {
        IssuerConfig {
            name: "id".to_owned(),
            issuer: "https://id.example".to_owned(),
            audience: "https://cove.example/mcp".to_owned(),
            jwks_file: Some("/keys".into()),
            tenant_claim: Some("org".to_owned()),
            ..IssuerConfig::default()
        }
    }

    fn claims(org: &Value, scopes: &[&str]) -> VerifiedClaims {
        VerifiedClaims {
            principal: "ada".to_owned(),
            groups: scopes.iter().map(|&scope| scope.to_owned()).collect(),
            ends_ms: 10,
            all: Map::from_iter([("org".to_owned(), org.clone())]),
        }
    }

    #[test]
    fn a_token_is_for_the_tenant_and_the_scopes_that_are_configured() {
        let shop = json!("shop");
        let fixed = IssuerConfig {
            tenant: Some("team".to_owned()),
            tenant_claim: None,
            scope_claim: Some(String::new()),
            ..config()
        };
        for (config, claims, expected) in [
            (config(), claims(&shop, &["executions", "openid"]), Some(("shop", "executions"))),
            // No token gets scopes beyond the configured ones; a token without scopes is valid.
            (config(), claims(&shop, &["tenants", "tokens"]), Some(("shop", ""))),
            (config(), claims(&shop, &[]), Some(("shop", ""))),
            (fixed, claims(&shop, &[]), Some(("team", "executions sessions"))),
            (config(), claims(&json!(7), &["executions"]), None),
            (config(), claims(&Value::Null, &["executions"]), None),
            (config(), claims(&json!("a/b"), &["executions"]), None),
            (config(), claims(&json!(""), &["executions"]), None),
        ] {
            let found = TokenIssuer::new(config).unwrap().principal(&claims).ok();
            assert!(!found.as_ref().is_some_and(|it| it.operator));
            let found = found.map(|it| {
                let scopes: Vec<&str> = it.scopes.iter().map(TokenScope::name).collect();
                (it.tenant.to_string(), scopes.join(" "))
            });
            let expected = expected.map(|(tenant, scopes)| (tenant.to_owned(), scopes.to_owned()));
            assert_eq!(found, expected, "{claims:?}");
        }
    }

    #[test]
    fn a_wrong_configuration_says_what_is_wrong() {
        for (wrong, expected) in [
            (IssuerConfig { tenant_claim: None, ..config() }, "`tenant`"),
            (IssuerConfig { tenant: Some("a".to_owned()), ..config() }, "`tenant`"),
            (IssuerConfig { tenant_claim: Some(String::new()), ..config() }, "`tenant_claim`"),
            (IssuerConfig { audience: String::new(), ..config() }, "`audience`"),
            (IssuerConfig { groups_claim: Some("g".to_owned()), ..config() }, "`groups_claim`"),
        ] {
            let refused = IssuedTokens::new(vec![wrong]).map(drop).unwrap_err();
            assert!(refused.to_string().contains(expected), "{refused} {expected}");
        }
        assert!(IssuedTokens::new(vec![config()]).is_ok());
    }

    #[test]
    fn what_is_known_is_bounded_and_ends() {
        let issued = IssuedTokens::new(vec![config()]).unwrap();
        let issuer = TokenIssuer::new(config()).unwrap();
        let principal = issuer.principal(&claims(&json!("shop"), &["executions"])).unwrap();
        let id = principal.token_id.clone();
        for number in 0..=ISSUED_TOKENS_MAX {
            let ends_ms = 100 + number as u64;
            let principal = principal.clone();
            let token = IssuedToken { principal, known_until_ms: ends_ms, ends_ms };
            issued.remember(hash(&number.to_string()), token);
        }
        assert_eq!(issued.known.lock().len(), ISSUED_TOKENS_MAX);
        assert_eq!(issued.verify("0", 1), None, "the one that ends first made room");
        assert!(issued.verify("1", 1).is_some() && issued.principal(&id, 1).is_some());
        assert!(issued.forget_ended(100_000) && !issued.forget_ended(100_000));
        assert_eq!(issued.principal(&id, 1), None);
    }

    #[tokio::test]
    async fn what_a_token_has_opened_ends_with_its_issuer_and_not_with_another_one() {
        let temp = crate::testing::TempDir::new();
        let tokens = TokenRegistry::open(temp.path()).unwrap();
        let other = IssuerConfig {
            name: "other".to_owned(),
            issuer: "https://other.example".to_owned(),
            ..config()
        };
        tokens.trust(vec![config(), other.clone()]).unwrap();
        let learned = |config: IssuerConfig, text: &str| {
            let issuer = TokenIssuer::new(config).unwrap();
            let principal = issuer.principal(&claims(&json!("shop"), &["executions"])).unwrap();
            let token = IssuedToken {
                principal: principal.clone(),
                known_until_ms: u64::MAX,
                ends_ms: u64::MAX,
            };
            tokens.issued().unwrap().remember(hash(text), token);
            principal
        };
        let (goes, stays) = (learned(config(), "a.b.c"), learned(other.clone(), "d.e.f"));
        let revoked = tokens.revocation(&goes).revoked();
        let mut kept = Box::pin(tokens.revocation(&stays).revoked());
        // The same name with other settings: its tokens may have other rights now.
        let changed = IssuerConfig { audience: "https://else.example".to_owned(), ..config() };
        tokens.trust(vec![changed, other]).unwrap();
        revoked.await;
        assert_eq!((tokens.verify("a.b.c"), tokens.verify("d.e.f")), (None, Some(stays)));
        let waits = std::future::poll_fn(|context| Poll::Ready(kept.as_mut().poll(context)));
        assert!(waits.await.is_pending());
        tokens.trust(Vec::new()).unwrap();
        kept.await;
        assert_eq!(tokens.verify("d.e.f"), None);
    }
}
