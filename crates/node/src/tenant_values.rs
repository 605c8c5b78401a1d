//! Values of tenants: one for each, for as long as something of the tenant uses it.
//!
//! Where one tenant may have only so much of something at a time, it has permits or a counter of
//! its own. Who holds some of that keeps the value; of tenants that do nothing, nothing is kept.
//!
//! With one permit for each tenant in front of a first-come-first-served queue of all, tenants take
//! turns in that queue; with a few, a tenant has at most those ahead of others. That is for work
//! that waits at a semaphore. What has a queue to be looked into uses [`pool::RoundRobin`].

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Values of tenants that use something, by the tenant's name.
pub struct TenantValues<V>(Mutex<HashMap<Arc<str>, Weak<V>>>);

impl<V> Default for TenantValues<V> {
    fn default() -> TenantValues<V> {
        TenantValues(Mutex::default())
    }
}

impl<V> fmt::Debug for TenantValues<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantValues").finish_non_exhaustive()
    }
}

impl<V> TenantValues<V> {
    /// Returns the value of a tenant, which is made unless somebody has it.
    pub fn value_of(&self, tenant: &str, make: impl FnOnce() -> V) -> Arc<V> {
        let mut values = self.0.lock();
        if let Some(value) = values.get(tenant).and_then(Weak::upgrade) {
            return value;
        }
        values.retain(|_, value| value.strong_count() > 0);
        let value = Arc::new(make());
        values.insert(tenant.into(), Arc::downgrade(&value));
        value
    }

    /// Returns the value of a tenant; none where nobody has it.
    pub fn in_use(&self, tenant: &str) -> Option<Arc<V>> {
        self.0.lock().get(tenant).and_then(Weak::upgrade)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_while_somebody_has_it() {
        let values = TenantValues::default();
        let first = values.value_of("a", || 1);
        assert_eq!((*values.value_of("a", || 2), *values.value_of("b", || 3)), (1, 3));
        assert!(values.in_use("a").is_some() && values.in_use("b").is_none());
        drop(first);
        let another = values.value_of("a", || 4);
        assert_eq!(*another, 4);
        // Of tenants that do nothing, nothing is kept.
        assert_eq!(values.0.lock().len(), 1);
    }
}
