//! Credentials of tables, cached for half of their lifetime: every recipient can use them for at
//! least the other half.
//!
//! One caller queries the token service, and concurrent callers wait for its result. A failure is
//! cached for a moment as well, so that waiting callers do not query an unavailable service one by
//! one.

use std::collections::HashMap;
use std::sync::Arc;

use node::clock;
use parking_lot::Mutex;

use super::scope::{FilePermission, TableScope};
use super::sts::TemporaryCredentials;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::locks::KeyLocks;

/// Most cached credentials of a warehouse.
pub(super) const KEPT_MAX: usize = 4096;

/// Time for which a failure is cached, in milliseconds.
const REFUSED_MS: u64 = 2000;

/// Request for credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CredentialRequest {
    /// Scope.
    pub(super) scope: TableScope,
    /// Permission.
    pub(super) permission: FilePermission,
}

/// Recently vended credentials.
#[derive(Debug, Default)]
pub(super) struct VendedCache {
    entries: Mutex<HashMap<CredentialRequest, CachedCredentials>>,
    asking: Arc<KeyLocks<CredentialRequest>>,
}

#[derive(Clone, Debug)]
struct CachedCredentials {
    /// `None` if the service failed.
    found: Option<Arc<TemporaryCredentials>>,
    /// End of the time for which the result is cached.
    until_ms: u64,
}

impl VendedCache {
    /// Returns cached credentials, or those that `ask` fetches.
    ///
    /// # Errors
    /// Those of `ask`, and `ServiceUnavailable` shortly after.
    pub(super) async fn get(
        &self,
        wanted: &CredentialRequest,
        ask: impl AsyncFnOnce() -> Result<TemporaryCredentials>,
    ) -> Result<Arc<TemporaryCredentials>> {
        if let Some(found) = self.find(wanted) {
            return found;
        }
        let _lock = self.asking.lock(wanted.clone()).await;
        if let Some(found) = self.find(wanted) {
            return found;
        }
        let answer = ask().await.map(Arc::new);
        let now_ms = clock::wall_ms();
        let cached = match &answer {
            Ok(found) => {
                let left_ms = found.expires_ms.saturating_sub(now_ms);
                CachedCredentials { found: Some(Arc::clone(found)), until_ms: now_ms + left_ms / 2 }
            }
            Err(_) => CachedCredentials { found: None, until_ms: now_ms + REFUSED_MS },
        };
        self.keep(wanted, cached, now_ms);
        answer
    }

    fn find(&self, wanted: &CredentialRequest) -> Option<Result<Arc<TemporaryCredentials>>> {
        let now_ms = clock::wall_ms();
        let cached = self.entries.lock().get(wanted).filter(|it| now_ms < it.until_ms).cloned()?;
        Some(cached.found.ok_or_else(|| {
            let message = "the token service of the warehouse issues no credentials at present";
            CatalogError::new(ErrorReason::ServiceUnavailable, message)
        }))
    }

    fn keep(&self, wanted: &CredentialRequest, cached: CachedCredentials, now_ms: u64) {
        let mut kept = self.entries.lock();
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, it| now_ms < it.until_ms);
        }
        if kept.len() >= KEPT_MAX {
            // Any entry may be evicted: it can be fetched again.
            let one = kept.keys().next().cloned();
            one.map(|one| kept.remove(&one));
        }
        kept.insert(wanted.clone(), cached);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use node::objects::SigningCredentials;

    use super::super::scope::tests::scope;
    use super::*;

    fn wanted(place: &str, permission: FilePermission) -> CredentialRequest {
        CredentialRequest { scope: scope(&[place]), permission }
    }

    fn temporary(lives_ms: u64) -> TemporaryCredentials {
        let credentials = SigningCredentials {
            access_key_id: "id".to_owned(),
            secret_access_key: "key".to_owned(),
            session_token: None,
        };
        TemporaryCredentials { credentials, expires_ms: clock::wall_ms() + lives_ms }
    }

    #[tokio::test]
    async fn one_asks_and_all_get_it_until_half_of_its_time_is_over() {
        let (kept, requests) = (VendedCache::default(), AtomicU32::new(0));
        let get = async |place: &str, permission, lives_ms| {
            let ask = async || {
                requests.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                Ok(temporary(lives_ms))
            };
            kept.get(&wanted(place, permission), ask).await.unwrap()
        };
        let hour = 3_600_000;
        let first = get("s3://b/t", FilePermission::Read, hour);
        let second = get("s3://b/t", FilePermission::Read, hour);
        let (first, second) = tokio::join!(first, second);
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        // Other scopes and permissions have their own credentials.
        get("s3://b/t", FilePermission::Write, hour).await;
        get("s3://b/u", FilePermission::Read, hour).await;
        assert_eq!(requests.load(Ordering::SeqCst), 3);
        // Credentials without remaining lifetime are fetched every time.
        get("s3://b/v", FilePermission::Read, 0).await;
        get("s3://b/v", FilePermission::Read, 0).await;
        assert_eq!(requests.load(Ordering::SeqCst), 5);
        assert!(kept.asking.is_idle());
    }

    #[tokio::test]
    async fn a_refusal_is_not_asked_for_again_at_once() {
        let (kept, requests) = (VendedCache::default(), AtomicU32::new(0));
        for _ in 0..3 {
            let ask = async || {
                requests.fetch_add(1, Ordering::SeqCst);
                Err(CatalogError::new(ErrorReason::ServiceUnavailable, "no"))
            };
            let error = kept.get(&wanted("s3://b/t", FilePermission::Read), ask).await.unwrap_err();
            assert_eq!(error.kind, ErrorReason::ServiceUnavailable);
        }
        assert_eq!(requests.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let kept = VendedCache::default();
        for n in 0..KEPT_MAX + 10 {
            let wanted = wanted(&format!("s3://b/t{n}"), FilePermission::Read);
            kept.get(&wanted, async || Ok(temporary(3_600_000))).await.unwrap();
        }
        assert_eq!(kept.entries.lock().len(), KEPT_MAX);
    }
}
