//! Values of tenants: one for each, while a component uses it.
//!
//! To limit the concurrent use of a resource by each tenant, each tenant has permits or a counter
//! of its own. The holder of a permit keeps the value; inactive tenants have no value.
//!
//! With one permit for each tenant before a first-come-first-served queue of all, tenants take
//! turns in that queue; with a few, a tenant has at most that many entries ahead of others. That is
//! for work that waits at a semaphore. Queues that must be inspected use [`pool::RoundRobin`].

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Values of active tenants, by the tenant's name.
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
    /// Returns the value of a tenant, which is created unless it is in use.
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

    /// Returns the value of a tenant; none if it is not in use.
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
        // Inactive tenants have no value.
        assert_eq!(values.0.lock().len(), 1);
    }
}
