//! Background work: health checks, ends of drains, changes of other servers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use node::clock;
use node::drain::DrainHandle;
use node::store::COUNTER_AGE_MAX;
use node::task::Boxed;

use super::{Bouncer, by_name, limits};
use crate::error::BouncerError;
use crate::relay::orders::ThreadCommand;
use crate::store::TenantStore;
use crate::tenants::{TenantId, WorkAdmission};

/// Interval at which servers that share a store check for each other's changes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Bouncer {
    /// Runs the background work until the server drains. Clients of a draining tenant have
    /// `patience` to finish their transactions.
    pub fn work<'a>(&'a self, drain: &'a DrainHandle, patience: Duration) -> Boxed<'a, ()> {
        Box::pin(async move {
            tokio::select! {
                () = drain.begun() => {}
                () = self.0.checks.run(&self.0) => {}
                () = self.end_drains(patience) => {}
                () = self.follow_store() => {}
                () = limits::follow(self) => {}
            }
        })
    }

    /// Closes the remaining connections of tenants whose drain time is up. Never returns.
    async fn end_drains(&self, patience: Duration) {
        let Some(mut drains) = self.0.drained.lock().take() else {
            return std::future::pending().await;
        };
        let mut ends: HashMap<TenantId, Instant> = HashMap::new();
        loop {
            let next = ends.values().min().copied();
            let wait = async {
                match next {
                    Some(at) => {
                        tokio::time::sleep(at.saturating_duration_since(clock::now())).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                tenant = drains.recv() => {
                    let Some(tenant) = tenant else { return };
                    ends.entry(tenant).or_insert_with(|| clock::now() + patience);
                }
                () = wait => {}
            }
            let now = clock::now();
            let due: Vec<TenantId> =
                ends.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
            for id in due {
                ends.remove(&id);
                self.end_drain(id);
            }
        }
    }

    fn end_drain(&self, id: TenantId) {
        let routing = self.0.current.load();
        let Some(tenant) = routing.tenant(id) else { return };
        // The tenant may have been resumed meanwhile.
        if tenant.state.admission() == WorkAdmission::Draining {
            tracing::info!(tenant = &*tenant.name, "the time to drain is up");
            self.0.threads.order(&|| ThreadCommand::Kill(id));
        }
    }

    /// Applies changes of other servers. Never returns.
    async fn follow_store(&self) {
        let Some(store) = self.0.store.as_ref().filter(|store| store.is_shared()) else {
            return std::future::pending().await;
        };
        let mut is_failing = false;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let looked = self.take_over(store, COUNTER_AGE_MAX).await;
            if let (Err(error), false) = (&looked, is_failing) {
                let error = error as &dyn std::error::Error;
                tracing::warn!(error, "cannot look for changes of tenants");
            }
            is_failing = looked.is_err();
        }
    }

    /// Applies a change that another server has just made.
    ///
    /// # Errors
    /// If the store cannot be read, or its definitions conflict with those of this server's file.
    pub(super) async fn look_at_store(&self) -> Result<(), BouncerError> {
        match self.0.store.as_ref().filter(|store| store.is_shared()) {
            Some(store) => self.take_over(store, Duration::ZERO).await,
            None => Ok(()),
        }
    }

    async fn take_over(&self, store: &TenantStore, age_max: Duration) -> Result<(), BouncerError> {
        if store.version(age_max).await? == self.0.changing.lock().await.version {
            return Ok(());
        }
        let mut changing = self.0.changing.lock().await;
        let kept = store.load().await?;
        let before = std::mem::replace(&mut changing.of_api, by_name(kept.definitions));
        let orders = std::mem::replace(&mut changing.orders, kept.orders);
        match changing.next() {
            Ok(routing) => {
                self.hold(&mut changing, kept.version, routing);
                self.obey_others(&orders, &changing);
                Ok(())
            }
            Err(refusal) => {
                // They conflict with this server's own tenants. Logged once for each change.
                changing.of_api = before;
                changing.version = kept.version;
                self.obey_others(&orders, &changing);
                Err(refusal.into())
            }
        }
    }
}
