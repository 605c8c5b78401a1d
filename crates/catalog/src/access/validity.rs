//! Revocation of the credential of a request.

use axum::http::{HeaderMap, HeaderName, header};
use node::auth::RevocationSignal;
use std::sync::Arc;

use super::{AccessControl, hash};
use crate::principal::CatalogPrincipal;

/// Headers that may contain a credential.
const CREDENTIALS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-auth-token"),
];

impl AccessControl {
    /// Returns a signal for when the credential in these headers is revoked, expires, or belongs to
    /// another principal. A credential that has to be looked up in the store counts as valid until
    /// then.
    #[must_use]
    pub fn revocation(&self, headers: &HeaderMap, who: &CatalogPrincipal) -> RevocationSignal {
        let mut credentials = HeaderMap::new();
        for name in &CREDENTIALS {
            for value in headers.get_all(name) {
                credentials.append(name, value.clone());
            }
        }
        let (access, who) = (Arc::downgrade(&self.0), who.clone());
        RevocationSignal::new(self.0.changes.subscribe(), move || {
            let Some(access) = access.upgrade() else { return true };
            match AccessControl(access).recognise(&credentials, hash) {
                None => true,
                Some(found) => found.is_ok_and(|found| found == who),
            }
        })
    }
}
