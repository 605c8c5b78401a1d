//! Orders for tenants that hold at all servers of a store: pauses, drains, and connections to be
//! closed. The store has what was ordered, and each server sees to it within two seconds, also one
//! that starts later.

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
    /// Work is taken again, after a pause or a drain.
    Resume,
    /// No new clients; the others leave after their transactions.
    Drain,
    /// Server connections are closed: idle ones now, the others when they come back.
    Reconnect,
    /// All connections are closed now.
    Kill,
}

/// All that was ordered for a tenant so far.
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
    /// Returns the admission that it sets; none of those that close connections.
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
    /// Sees to an order here, and has it seen to at all servers that share the store.
    ///
    /// # Errors
    /// `NotFound`; and when the store is away: then it holds here alone.
    pub async fn order(&self, name: &str, order: TenantOrder) -> Result<(), BouncerError> {
        // First here, whatever becomes of the rest.
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

    /// Sees to an order at this server alone.
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

    /// Sees to what other servers were ordered since `before`.
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
                // Of a tenant that only another server's file has.
                if self.obey(name, order).is_err() {
                    tracing::debug!(tenant = name, ?order, "an order is for an unknown tenant");
                }
            }
        }
    }
}
