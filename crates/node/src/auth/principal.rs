//! Caller of a request, as handlers see it.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::{TokenScope, TokenScopes};
use crate::http;

/// Caller of a request: the token that came with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenPrincipal {
    /// Id of the token; limits and accounts of executions go by it.
    pub token_id: Arc<str>,
    /// Name given by its owner.
    pub name: Arc<str>,
    /// True if it may do what concerns everybody: pause the queue, see all figures.
    pub operator: bool,
    /// Tenant that it belongs to, with all that sessions and agents make: several tokens may share
    /// one. The token's own id when nothing else was said.
    pub tenant: Arc<str>,
    /// Scopes.
    pub scopes: TokenScopes,
}

impl TokenPrincipal {
    /// Creates the caller without a token where that is allowed: a tenant of its own.
    #[must_use]
    pub fn without_token(id: &str, name: &str) -> TokenPrincipal {
        let id: Arc<str> = id.into();
        let tenant = Arc::clone(&id);
        let name = name.into();
        TokenPrincipal { token_id: id, name, operator: false, tenant, scopes: TokenScopes::ALL }
    }

    /// Refuses what the token is not for.
    ///
    /// # Errors
    /// When the scope is missing: 403, with its name.
    pub fn require(&self, scope: TokenScope) -> Result<(), http::HttpError> {
        if self.scopes.has(scope) { Ok(()) } else { Err(http::HttpError::missing_scope(scope)) }
    }
}

/// Handlers below `/v1` take the principal the shell found out. One that is reached without the
/// check, by a mistake in the routes, refuses.
impl<S: Sync> FromRequestParts<S> for TokenPrincipal {
    type Rejection = http::HttpError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts
            .extensions
            .get::<TokenPrincipal>()
            .cloned()
            .ok_or_else(http::HttpError::unauthenticated)
    }
}
