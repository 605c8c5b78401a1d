//! Caller of a request, as handlers see it.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::{TokenScope, TokenScopes};
use crate::http;

/// Credential of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallerCredential {
    /// None, where none is required.
    Absent,
    /// An API token.
    Token,
    /// A token of an identity provider.
    Issued,
    /// A sign-in of the console, on behalf of one of the others.
    Console(ConsoleSignIn),
}

impl CallerCredential {
    /// Returns its name in the interface.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            CallerCredential::Absent => "absent",
            CallerCredential::Token => "token",
            CallerCredential::Issued => "issued",
            CallerCredential::Console(_) => "console",
        }
    }
}

/// A sign-in of the console.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConsoleSignIn {
    /// Id, by which its owner ends it.
    pub id: Arc<str>,
    /// Time of expiry, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// Caller of a request, identified by its token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenPrincipal {
    /// Id of the token; limits and accounts of executions are by this id.
    pub token_id: Arc<str>,
    /// Name given by its owner.
    pub name: Arc<str>,
    /// True if it has operator rights: pause the queue, see all figures.
    pub operator: bool,
    /// Tenant that owns its sessions and agents: several tokens may share one. By default the
    /// token's own id.
    pub tenant: Arc<str>,
    /// Scopes.
    pub scopes: TokenScopes,
    /// Credential of the request: the token, or a sign-in of the console based on it.
    pub credential: CallerCredential,
}

impl TokenPrincipal {
    /// Returns the caller without a token, where none is required: a tenant of its own.
    #[must_use]
    pub fn without_token(id: &str, name: &str) -> TokenPrincipal {
        let id: Arc<str> = id.into();
        let tenant = Arc::clone(&id);
        let name = name.into();
        let (operator, scopes) = (false, TokenScopes::ALL);
        let credential = CallerCredential::Absent;
        TokenPrincipal { token_id: id, name, operator, tenant, scopes, credential }
    }

    /// Checks that the token has a scope.
    ///
    /// # Errors
    /// If the scope is missing: 403, with its name.
    pub fn require(&self, scope: TokenScope) -> Result<(), http::HttpError> {
        if self.scopes.has(scope) { Ok(()) } else { Err(http::HttpError::missing_scope(scope)) }
    }
}

/// Handlers below `/v1` extract the principal that the shell has identified. A handler that is
/// reached without the check, by a mistake in the routes, refuses the request.
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
