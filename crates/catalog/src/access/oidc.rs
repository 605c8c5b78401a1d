//! Principals of identity providers: holders of signed tokens from configured issuers.
//!
//! [`node::issuers`] verifies a token; here it becomes a principal. A verified token is cached by
//! its hash for a while: a repeated request needs no signature check.

use std::sync::Arc;

use node::issuers::{IssuerError, TrustedIssuers, VerifiedBearer};

use super::principal_ids::{PRINCIPALS, check_principal};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{CatalogPrincipal, TokenClaims};

/// Converts an issuer's error to a catalog error.
pub(super) fn catalog_error(error: IssuerError) -> CatalogError {
    let kind = match error {
        IssuerError::Configuration(message) => {
            let message = format!("catalog.issuers: {message}");
            return CatalogError::new(ErrorReason::BadRequest, message);
        }
        IssuerError::Refused(_) => ErrorReason::NotAuthorized,
        IssuerError::Ended => ErrorReason::AuthenticationTimeout,
        IssuerError::KeysUnavailable(_) => ErrorReason::ServiceUnavailable,
    };
    CatalogError::new(kind, error.to_string())
}

/// Returns the principal of a signed token, and the time until which it may be cached (milliseconds
/// since 1970).
///
/// # Errors
/// `NotAuthorized` if it is invalid; `AuthenticationTimeout` if it has expired;
/// `ServiceUnavailable` if the issuer's keys are unavailable.
pub(super) async fn verify(
    issuers: &TrustedIssuers,
    text: &str,
    now_ms: u64,
) -> Result<(CatalogPrincipal, u64)> {
    let bearer = issuers.verify(text, now_ms).await.map_err(catalog_error)?;
    Ok((principal(&bearer)?, bearer.known_until_ms))
}

/// Creates the principal from a token's claims.
fn principal(bearer: &VerifiedBearer) -> Result<CatalogPrincipal> {
    let VerifiedBearer { issuer, claims, .. } = bearer;
    let id = format!("oidc:{issuer}:{}", word(&claims.principal));
    let groups: Vec<String> =
        claims.groups.iter().map(|it| format!("group:{issuer}:{}", word(it))).collect();
    for principal in std::iter::once(&id).chain(&groups) {
        let known = check_principal(principal, PRINCIPALS);
        let why = "the name of its principal or of a group is too long";
        known.map_err(|_| catalog_error(IssuerError::Refused(why.to_owned())))?;
    }
    let mut who = CatalogPrincipal::new(&id, &claims.principal);
    if !groups.is_empty() {
        let groups = groups.into_iter().map(Into::into).collect();
        who.claims = Some(Arc::new(TokenClaims { groups, ..TokenClaims::default() }));
    }
    Ok(who)
}

/// Escapes a name for the id of a principal: special characters become `%` and two digits.
fn word(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_graphic() && byte != b'%' {
            true => word.push(char::from(byte)),
            false => {
                word.push('%');
                word.push_str(&node::hex::encode(&[byte]));
            }
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use node::issuers::VerifiedClaims;

    use super::*;

    fn bearer(principal: &str) -> VerifiedBearer {
        let claims = VerifiedClaims {
            principal: principal.to_owned(),
            groups: vec!["data".to_owned(), "Big Data".to_owned()],
            ends_ms: 2,
            all: serde_json::Map::new(),
        };
        VerifiedBearer { issuer: "example".to_owned(), claims, known_until_ms: 1 }
    }

    #[test]
    fn a_verified_token_is_a_principal_with_groups_and_no_operator() {
        let who = principal(&bearer("ada")).unwrap();
        assert_eq!((&*who.id, &*who.name), ("oidc:example:ada", "ada"));
        assert!(!who.operator);
        let groups = &who.claims.unwrap().groups;
        assert_eq!(groups[..], ["group:example:data".into(), "group:example:Big%20Data".into()]);
        let refused = principal(&bearer(&"x".repeat(400))).unwrap_err();
        assert_eq!(refused.kind, ErrorReason::NotAuthorized);
    }
}
