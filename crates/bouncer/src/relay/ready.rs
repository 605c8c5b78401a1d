//! Queue of sockets that epoll has reported, in which tenants take turns.
//!
//! A tenant under full load has an event for each of its connections in every batch. The occasional
//! request of another tenant would be queued behind all of them, once for the request and once for
//! the reply. So tenants take turns, one connection each, and the thread polls epoll again after
//! [`EVENTS_PER_TURN_MAX`] events, because new events may belong to a tenant whose turn is next. A
//! connection with more input than one turn allows is queued here, too.
//!
//! This is not [`pool::RoundRobin`]: every socket event passes through here, and tenants are
//! numbered, so a table indexed by their number avoids hashing.
//!
//! Each connection is queued once, with all of its events: a connection that receives bytes all the
//! time takes no turns from the others of its tenant.

use std::collections::VecDeque;

use super::conn::{EventSource, RelayConnection, SocketReadiness};
use crate::tenants::TenantId;

/// Events that are handled before epoll is polled again.
pub(super) const EVENTS_PER_TURN_MAX: usize = 8;

/// Connection of a client or to a server, as an event finds it.
#[derive(Debug)]
pub(super) struct RelayEventTarget<'a> {
    pub(super) conn: &'a mut RelayConnection,
    pub(super) tenant: Option<TenantId>,
    /// Serial, which distinguishes successive connections in a slot.
    pub(super) serial: u64,
}

/// Connections of a thread.
pub(super) trait RelayConnections {
    /// Returns the connection of an event, with its serial number and its tenant; a client that has
    /// not logged in has no tenant.
    fn connection(&mut self, source: EventSource) -> Option<RelayEventTarget<'_>>;
}

/// A connection with an event; its readiness is kept in the connection.
#[derive(Clone, Copy, Debug)]
struct ReadyConnection {
    source: EventSource,
    /// Serial number of the connection: its slot may be reused by then.
    serial: u64,
}

/// Connections by tenant, each once, in the order of their events; tenants take turns.
#[derive(Debug, Default)]
pub(super) struct ReadyQueue {
    /// Indexed by the number of the tenant; the first queue holds connections without a tenant.
    by_tenant: Vec<VecDeque<ReadyConnection>>,
    /// Tenants with queued connections, each once, in the order of their turns.
    turns: VecDeque<usize>,
}

impl ReadyQueue {
    /// Queues a client or a server connection behind the others of its tenant, unless it is queued
    /// already. Returns false if the event is of another kind, which has no tenant.
    pub(super) fn add(
        &mut self,
        source: EventSource,
        readiness: SocketReadiness,
        connections: &mut impl RelayConnections,
    ) -> bool {
        match source {
            EventSource::Client(_) | EventSource::Server(_) | EventSource::Passed(_) => {}
            EventSource::Inbox
            | EventSource::Listener(_)
            | EventSource::Cancel(_)
            | EventSource::Notifier(_) => return false,
        }
        // If there is no connection, an earlier event has closed it.
        if let Some(RelayEventTarget { conn, tenant, serial }) = connections.connection(source)
            && conn.defer(readiness)
        {
            self.push(tenant, ReadyConnection { source, serial });
        }
        true
    }

    /// Takes the next connection that still exists, and its readiness.
    pub(super) fn next(
        &mut self,
        connections: &mut impl RelayConnections,
    ) -> Option<(EventSource, SocketReadiness)> {
        while let Some(ReadyConnection { source, serial }) = self.pop() {
            if let Some(found) = connections.connection(source).filter(|it| it.serial == serial)
                && let Some(readiness) = found.conn.take_deferred()
            {
                return Some((source, readiness));
            }
        }
        None
    }

    /// Returns whether no connection waits.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn push(&mut self, tenant: Option<TenantId>, connection: ReadyConnection) {
        let index = tenant.map_or(0, |tenant| tenant.0 as usize + 1);
        if self.by_tenant.len() <= index {
            self.by_tenant.resize_with(index + 1, VecDeque::new);
        }
        let connections = &mut self.by_tenant[index];
        if connections.is_empty() {
            self.turns.push_back(index);
        }
        connections.push_back(connection);
    }

    /// Takes the first connection of the tenant whose turn it is.
    fn pop(&mut self) -> Option<ReadyConnection> {
        let index = self.turns.pop_front()?;
        let connections = &mut self.by_tenant[index];
        let connection = connections.pop_front();
        if !connections.is_empty() {
            self.turns.push_back(index);
        }
        connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(serial: u64) -> ReadyConnection {
        ReadyConnection { source: EventSource::Client(0), serial }
    }

    fn drain(queue: &mut ReadyQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop()).map(|event| event.serial).collect()
    }

    #[test]
    fn tenants_take_turns_and_keep_their_own_order() {
        let mut queue = ReadyQueue::default();
        for serial in 0..4 {
            queue.push(Some(TenantId(7)), event(serial));
        }
        queue.push(Some(TenantId(0)), event(10));
        queue.push(None, event(20));
        queue.push(None, event(21));
        assert_eq!(drain(&mut queue), [0, 10, 20, 1, 21, 2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_tenant_that_comes_late_waits_for_one_event_of_each_other() {
        let mut queue = ReadyQueue::default();
        for serial in 0..100 {
            queue.push(Some(TenantId(1)), event(serial));
            queue.push(Some(TenantId(2)), event(1000 + serial));
        }
        assert_eq!(queue.pop().map(|event| event.serial), Some(0));
        queue.push(Some(TenantId(3)), event(5));
        let next: Vec<u64> = drain(&mut queue).into_iter().take(3).collect();
        assert_eq!(next, [1000, 1, 5]);
    }
}
