//! The server as an OAuth protected resource: its metadata, and challenges.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9728>
//! - <https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization>

use axum::http::Uri;
use node::auth::{TokenScope, TokenScopes};
use serde_json::{Value, json};

/// Path of the metadata of the whole server. That of a resource is below it, followed by the
/// resource's path.
pub const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// The address is not usable by clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a URL of this server, such as `https://cove.example/mcp`: set `mcp.resource`, or \
     the `audience` of the first issuer"
)]
pub struct UnusableResource(String);

/// Metadata of the server for clients without a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedResource {
    document: Value,
    /// Address of the document.
    metadata: String,
    scopes: String,
}

impl ProtectedResource {
    /// Creates the resource at this address, for which these issuers issue tokens with these
    /// scopes.
    ///
    /// # Errors
    /// If the address is no HTTP URL.
    pub fn new(
        address: &str,
        issuers: &[&str],
        scopes: TokenScopes,
    ) -> Result<ProtectedResource, UnusableResource> {
        let unusable = || UnusableResource(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| unusable())?;
        let (Some(scheme @ ("https" | "http")), Some(authority)) =
            (uri.scheme_str(), uri.authority())
        else {
            return Err(unusable());
        };
        // It is quoted in a header.
        if address.contains(['"', '\\']) {
            return Err(unusable());
        }
        let path = uri.path().trim_end_matches('/');
        let names: Vec<&str> = scopes.iter().map(TokenScope::name).collect();
        let document = json!({
            "resource": address,
            "authorization_servers": issuers,
            "scopes_supported": names,
            "bearer_methods_supported": ["header"],
            "resource_name": "Cove",
        });
        let metadata = format!("{scheme}://{authority}{METADATA_PATH}{path}");
        Ok(ProtectedResource { document, metadata, scopes: names.join(" ") })
    }

    /// Returns the document.
    pub(crate) fn document(&self) -> &Value {
        &self.document
    }

    /// Returns the parameters of a challenge to callers without a valid token.
    #[must_use]
    pub fn challenge(&self) -> String {
        format!("resource_metadata=\"{}\", scope=\"{}\"", self.metadata, self.scopes)
    }

    /// Returns a challenge to callers whose token lacks a scope.
    pub(crate) fn scope_challenge(this: Option<&ProtectedResource>, scope: TokenScope) -> String {
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
        match this {
            Some(resource) => format!("{challenge}, resource_metadata=\"{}\"", resource.metadata),
            None => challenge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_says_where_tokens_for_it_are() {
        let scopes = [TokenScope::Executions, TokenScope::Sessions].into_iter().collect();
        let new = |address: &str| ProtectedResource::new(address, &["https://id.example"], scopes);
        let resource = new("https://cove.example/mcp").unwrap();
        assert_eq!(resource.document()["authorization_servers"], json!(["https://id.example"]));
        assert_eq!(
            resource.challenge(),
            "resource_metadata=\"https://cove.example/.well-known/oauth-protected-resource/mcp\", \
             scope=\"executions sessions\""
        );
        for wrong in ["", "cove", "/mcp", "ftp://cove.example/mcp", "https://a/\"b"] {
            assert!(new(wrong).is_err(), "{wrong}");
        }
    }
}
