//! Admission of a client after authentication: it is counted, and its session begins. If a limit
//! holds over all nodes and this node's part of it is used up, the client waits for a moment until
//! the part has grown.

use pooler_core::link::LoggedInClient;
use pooler_core::pg::login::PgLoginRefusal;

use super::client_count::{ClientArrival, ClientEntry, CountedClient, WaitingClient};
use super::context::ThreadContext;
use crate::tenants::{PoolId, TenantRoute};

/// Maximum time that a client waits for this node's part of a limit to grow, in microseconds. Other
/// nodes check several times in that period whether another node needs their part.
pub(super) const PART_WAIT_US: u64 = 2_000_000;

/// A client that waits to be counted.
#[derive(Debug)]
pub(super) struct AwaitedEntry {
    pub(super) proved: LoggedInClient,
    pub(super) route: TenantRoute,
    pub(super) waiting: WaitingClient,
    /// Time at which the wait ends.
    pub(super) until_us: u64,
}

/// Pool of a client that is counted.
pub(super) struct EnteredPool {
    pub(super) pool_id: PoolId,
    /// Its entry in the count of clients.
    pub(super) head: CountedClient,
}

/// Result of an attempt to count an authenticated client.
pub(super) enum EntryAttempt {
    Counted(EnteredPool),
    Waits(WaitingClient),
}

impl EntryAttempt {
    /// Counts a client, if one more is allowed.
    pub(super) fn of(
        route: &TenantRoute,
        is_guest: bool,
        waiting: Option<WaitingClient>,
        context: &ThreadContext,
    ) -> Result<EntryAttempt, PgLoginRefusal> {
        let words = context.words();
        let pool_id = route
            .pool()
            .map_err(|error| PgLoginRefusal::new(error.sqlstate(), error.to_string()))?;
        let clients_max = context.common.live.clients_max();
        let arrival = ClientArrival { route, is_guest, clients_max };
        match context.common.population.enter(&arrival, waiting) {
            Ok(ClientEntry::Counted(head)) => {
                Ok(EntryAttempt::Counted(EnteredPool { pool_id, head }))
            }
            Ok(ClientEntry::Waits(waiting)) => Ok(EntryAttempt::Waits(waiting)),
            Err(full) => Err(PgLoginRefusal::new("53300", words.full(full))),
        }
    }
}
