//! Orders for tenants that hold at all servers of a store: pauses, drains, and closing of
//! connections. The store contains the orders, and each server applies them within two seconds,
//! including one that starts later.

use std::collections::BTreeMap;

use super::{Bouncer, TenantWriter, whole};
use crate::error::BouncerError;
use crate::tenants::WorkAdmission;

/// Order of an operator for a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantOrder {
    /// Clients wait before their next transaction.
    Pause,
    /// Clients are refused.
    Refuse,
    /// Work resumes, after a pause or a drain.
    Resume,
    /// No new clients; the others leave after their transactions.
    Drain,
    /// Server connections are closed: idle ones now, the others when they are returned.
    Reconnect,
    /// All connections are closed now.
    Kill,
}

/// All orders for a tenant so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TenantOrders {
    pub(crate) admission: WorkAdmission,
    /// Number of orders to reconnect.
    pub(crate) reconnects: u64,
    /// Number of orders to close all connections.
    pub(crate) kills: u64,
}

impl Default for TenantOrders {
    fn default() -> TenantOrders {
        TenantOrders { admission: WorkAdmission::Open, reconnects: 0, kills: 0 }
    }
}

impl TenantOrder {
    /// Returns the admission that it sets; `None` for orders that close connections.
    pub(crate) fn admission(self) -> Option<WorkAdmission> {
        match self {
            TenantOrder::Pause => Some(WorkAdmission::Paused),
            TenantOrder::Refuse => Some(WorkAdmission::Refusing),
            TenantOrder::Resume => Some(WorkAdmission::Open),
            TenantOrder::Drain => Some(WorkAdmission::Draining),
            TenantOrder::Reconnect | TenantOrder::Kill => None,
        }
    }

    fn of_admission(admission: WorkAdmission) -> TenantOrder {
        match admission {
            WorkAdmission::Open => TenantOrder::Resume,
            WorkAdmission::Paused => TenantOrder::Pause,
            WorkAdmission::Refusing => TenantOrder::Refuse,
            WorkAdmission::Draining => TenantOrder::Drain,
        }
    }
}

impl Bouncer {
    /// Applies an order here, and at all servers that share the store.
    ///
    /// # Errors
    /// `NotFound`; or, if the store is unavailable, its error: then the order holds only here.
    pub async fn order(&self, name: &str, order: TenantOrder) -> Result<(), BouncerError> {
        // First here, independently of the rest.
        self.obey(name, order)?;
        if self.0.store.as_ref().is_none_or(|store| !store.is_shared()) {
            return Ok(());
        }
        let (bouncer, name) = (self.clone(), name.to_owned());
        whole(async move {
            let mut changing = bouncer.0.changing.lock().await;
            let kept = bouncer.store()?.order(&name, order).await?;
            changing.orders.insert(name, kept);
            drop(changing);
            bouncer.tell_others().await;
            Ok(())
        })
        .await
    }

    /// Applies an order at this server alone.
    pub(super) fn obey(&self, name: &str, order: TenantOrder) -> Result<(), BouncerError> {
        match order {
            TenantOrder::Pause => self.pause(name, false),
            TenantOrder::Refuse => self.pause(name, true),
            TenantOrder::Resume => self.resume(name),
            TenantOrder::Drain => self.drain(name),
            TenantOrder::Reconnect => self.reconnect(name),
            TenantOrder::Kill => self.kill(name),
        }
    }

    /// Applies the orders that other servers have received since `before`.
    pub(super) fn obey_others(
        &self,
        before: &BTreeMap<String, TenantOrders>,
        changing: &TenantWriter,
    ) {
        for (name, now) in &changing.orders {
            let before = before.get(name).copied().unwrap_or_default();
            let admission = TenantOrder::of_admission(now.admission);
            let orders = [
                (now.admission != before.admission, admission),
                (now.reconnects != before.reconnects, TenantOrder::Reconnect),
                (now.kills != before.kills, TenantOrder::Kill),
            ];
            for (_, order) in orders.into_iter().filter(|(is_new, _)| *is_new) {
                // The tenant may be defined only in another server's file.
                if self.obey(name, order).is_err() {
                    tracing::debug!(tenant = name, ?order, "an order is for an unknown tenant");
                }
            }
        }
    }
}
