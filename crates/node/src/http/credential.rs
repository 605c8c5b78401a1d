//! Ties requests, and answers that outlast their handlers, to the credentials they were made with.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc6750#section-2>
//! - <https://www.rfc-editor.org/rfc/rfc7617>

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use tokio::sync::Notify;

use crate::auth::RevocationSignal;

/// Binds a request to its credential: an extension of every request. When the credential is
/// revoked, the shell drops the handler, cuts the answer and closes the WebSocket.
///
/// The shell binds the requests that it authenticates. A face that [authenticates by
/// itself](super::FaceAccess::Own) binds its own.
#[derive(Clone, Debug, Default)]
pub struct CredentialBinding(Arc<BindingState>);

#[derive(Debug, Default)]
struct BindingState {
    revocation: OnceLock<RevocationSignal>,
    bound: Notify,
}

impl CredentialBinding {
    /// Returns the binding of a request; outside of the shell one without effect.
    #[must_use]
    pub fn of(extensions: &Extensions) -> CredentialBinding {
        extensions.get::<CredentialBinding>().cloned().unwrap_or_default()
    }

    /// Binds the request. Only the first credential counts.
    pub fn bind(&self, revocation: RevocationSignal) {
        if self.0.revocation.set(revocation).is_ok() {
            self.0.bound.notify_waiters();
        }
    }

    /// Returns whether the caller has authenticated.
    pub(super) fn is_bound(&self) -> bool {
        self.0.revocation.get().is_some()
    }

    /// Returns when the credential is revoked; never if none was needed.
    pub async fn revoked(&self) {
        // Created before the check, so that it misses no notification.
        let bound = self.0.bound.notified();
        if !self.is_bound() {
            bound.await;
        }
        if let Some(revocation) = self.0.revocation.get() {
            revocation.clone().revoked().await;
        }
    }
}

impl<S: Sync> FromRequestParts<S> for CredentialBinding {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(CredentialBinding::of(&parts.extensions))
    }
}
