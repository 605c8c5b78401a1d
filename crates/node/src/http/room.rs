//! Admission of connections at one listener: which are accepted, and which are evicted.
//!
//! A connection costs an attacker nothing. So a full listener does not refuse a new connection: it
//! evicts the connection that has been silent for longest, of the address with most connections;
//! connections that have shown a credential are evicted last. No connection is cut in the middle of
//! a request.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::server::ShellLimits;
use crate::current::CurrentSettings;

/// Room for the connections of one listener. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ConnectionRoom(Arc<ConnectionRoomShared>);

#[derive(Debug)]
struct ConnectionRoomShared {
    limits: CurrentSettings<ShellLimits>,
    /// Counts events, to order them.
    moments: AtomicU64,
    /// The open connections, by number.
    places: Mutex<HashMap<u64, OccupiedRoom>>,
    /// Requests that share connections with others, by address.
    multiplexed: Mutex<HashMap<IpAddr, usize>>,
}

#[derive(Debug)]
struct OccupiedRoom {
    address: IpAddr,
    presence: Arc<ConnectionUse>,
    /// None until its task exists.
    task: Option<AbortHandle>,
}

/// A connection's place, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    number: u64,
    address: Option<IpAddr>,
    presence: Arc<ConnectionUse>,
    room: Option<ConnectionRoom>,
}

/// Present use of a connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionUse {
    /// Number of requests that are being answered.
    requests: AtomicUsize,
    /// True if a part of an answer waits for the client.
    is_unsent: AtomicBool,
    /// True if bytes have arrived that belong to no request so far.
    is_begun: AtomicBool,
    /// True if a credential was shown.
    is_proven: AtomicBool,
    /// The event count at which it became silent.
    since: AtomicU64,
}

/// A request of a connection that is being answered.
#[derive(Debug)]
pub(super) struct AnsweringRequest {
    presence: Arc<ConnectionUse>,
    room: Option<ConnectionRoom>,
    _multiplexed: Option<MultiplexedRequest>,
}

/// A request that shares its connection with others, counted until this is dropped.
#[derive(Debug)]
struct MultiplexedRequest {
    room: ConnectionRoom,
    address: IpAddr,
}

impl Drop for MultiplexedRequest {
    fn drop(&mut self) {
        let mut counts = self.room.0.multiplexed.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

impl ConnectionRoom {
    pub(super) fn new(limits: CurrentSettings<ShellLimits>) -> ConnectionRoom {
        ConnectionRoom(Arc::new(ConnectionRoomShared {
            limits,
            moments: AtomicU64::new(0),
            places: Mutex::default(),
            multiplexed: Mutex::default(),
        }))
    }

    /// Takes a place for a connection from this address; none if all are in use and none can be
    /// evicted.
    pub(super) fn enter(&self, address: IpAddr) -> Option<ConnectionPlace> {
        let (address, limits) = (network(address), self.0.limits.now());
        let mut places = self.0.places.lock();
        let of_address = places.values().filter(|it| it.address == address).count();
        if of_address >= limits.connections_per_address_max {
            make_way(&mut places, Some(address))?;
        } else if places.len() >= limits.connections_max {
            make_way(&mut places, None)?;
        }
        let number = self.moment();
        let presence =
            Arc::new(ConnectionUse { since: AtomicU64::new(number), ..ConnectionUse::default() });
        let occupied = OccupiedRoom { address, presence: Arc::clone(&presence), task: None };
        places.insert(number, occupied);
        Some(ConnectionPlace { number, address: Some(address), presence, room: Some(self.clone()) })
    }

    /// Counts a request that shares its connection with others: as many as there may be
    /// connections. None if that number is reached.
    fn multiplex(&self, address: IpAddr) -> Option<MultiplexedRequest> {
        let limits = self.0.limits.now();
        let mut counts = self.0.multiplexed.lock();
        let of_address = counts.get(&address).copied().unwrap_or(0);
        let all: usize = counts.values().sum();
        if of_address >= limits.connections_per_address_max || all >= limits.connections_max {
            return None;
        }
        counts.insert(address, of_address + 1);
        Some(MultiplexedRequest { room: self.clone(), address })
    }

    /// Sets the task that serves a connection, so that it can be ended.
    pub(super) fn serves(&self, number: u64, task: AbortHandle) {
        if let Some(occupied) = self.0.places.lock().get_mut(&number) {
            occupied.task = Some(task);
        }
    }

    fn moment(&self) -> u64 {
        self.0.moments.fetch_add(1, Ordering::Relaxed)
    }
}

impl ConnectionPlace {
    /// Returns a place where the caller bounds the connections.
    pub(super) fn unbounded() -> ConnectionPlace {
        ConnectionPlace { number: 0, address: None, presence: Arc::default(), room: None }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn presence(&self) -> &Arc<ConnectionUse> {
        &self.presence
    }

    /// Records that a request is being answered.
    pub(super) fn begin(&self) -> Arc<AnsweringRequest> {
        self.begin_counted(None)
    }

    /// Records that a request is being answered that shares the connection with others; none if
    /// there are too many of them.
    pub(super) fn begin_multiplexed(&self) -> Option<Arc<AnsweringRequest>> {
        let counted = match (&self.room, self.address) {
            (Some(room), Some(address)) => Some(room.multiplex(address)?),
            _ => None,
        };
        Some(self.begin_counted(counted))
    }

    fn begin_counted(&self, multiplexed: Option<MultiplexedRequest>) -> Arc<AnsweringRequest> {
        self.presence.set_begun(false);
        self.presence.requests.fetch_add(1, Ordering::Relaxed);
        Arc::new(AnsweringRequest {
            presence: Arc::clone(&self.presence),
            room: self.room.clone(),
            _multiplexed: multiplexed,
        })
    }

    /// Returns whether no request is being answered.
    pub(super) fn is_idle(&self) -> bool {
        self.presence.requests.load(Ordering::Relaxed) == 0
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.0.places.lock().remove(&self.number);
        }
    }
}

impl AnsweringRequest {
    /// Records that the connection has shown a credential.
    pub(super) fn prove(&self) {
        self.presence.prove();
    }
}

impl Drop for AnsweringRequest {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            self.presence.since.store(room.moment(), Ordering::Relaxed);
        }
        self.presence.set_begun(false);
        self.presence.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionUse {
    pub(super) fn prove(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_unsent(&self, is_unsent: bool) {
        self.is_unsent.store(is_unsent, Ordering::Relaxed);
    }

    pub(super) fn set_begun(&self, is_begun: bool) {
        self.is_begun.store(is_begun, Ordering::Relaxed);
    }

    /// Returns whether a part of a head has arrived.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Relaxed)
    }

    fn is_silent(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0 && !self.is_unsent.load(Ordering::Relaxed)
    }
}

/// Ends one silent connection, of this address or of the one with most; none if there is none.
fn make_way(places: &mut HashMap<u64, OccupiedRoom>, address: Option<IpAddr>) -> Option<()> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for occupied in places.values() {
        *counts.entry(occupied.address).or_default() += 1;
    }
    let candidates = places.iter().filter(|(_, it)| {
        it.task.is_some() && it.presence.is_silent() && address.is_none_or(|own| own == it.address)
    });
    let (number, _) = candidates.min_by_key(|(_, it)| {
        let is_proven = it.presence.is_proven.load(Ordering::Relaxed);
        let count = counts.get(&it.address).copied().unwrap_or(0);
        (is_proven, std::cmp::Reverse(count), it.presence.since.load(Ordering::Relaxed))
    })?;
    let number = *number;
    let task = places.remove(&number)?.task?;
    task.abort();
    Some(())
}

/// Returns the part of an address that counts as one client: the first 64 bits of IPv6, because
/// every site has a network of at least that size (RFC 6177).
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// A connection of a test.
    struct Guest {
        seat: ConnectionPlace,
        task: tokio::task::JoinHandle<()>,
    }

    fn enter(room: &ConnectionRoom, address: &str) -> Option<Guest> {
        let seat = room.enter(address.parse().unwrap())?;
        let task = tokio::spawn(pending());
        room.serves(seat.number(), task.abort_handle());
        Some(Guest { seat, task })
    }

    async fn is_cut(guest: Guest) -> bool {
        let still_there = {
            let room = guest.seat.room.as_ref().unwrap();
            room.0.places.lock().contains_key(&guest.seat.number)
        };
        if !still_there {
            assert!(guest.task.await.unwrap_err().is_cancelled());
        }
        !still_there
    }

    fn room(connections_max: usize, connections_per_address_max: usize) -> ConnectionRoom {
        let limits =
            ShellLimits { connections_max, connections_per_address_max, ..ShellLimits::default() };
        ConnectionRoom::new(limits.into())
    }

    #[tokio::test]
    async fn the_oldest_silent_connection_of_the_busiest_address_makes_way() {
        let room = room(4, 4);
        let honest = enter(&room, "10.0.0.1").unwrap();
        let first = enter(&room, "10.0.0.2").unwrap();
        let second = enter(&room, "10.0.0.2").unwrap();
        let third = enter(&room, "10.0.0.2").unwrap();
        let newcomer = enter(&room, "10.0.0.3").unwrap();
        assert!(is_cut(first).await);
        let late = enter(&room, "10.0.0.2").unwrap();
        assert!(is_cut(second).await);
        for there in [honest, third, newcomer, late] {
            assert!(!is_cut(there).await);
        }
    }

    #[tokio::test]
    async fn who_has_shown_a_credential_makes_way_last_and_nobody_in_a_request() {
        let room = room(3, 3);
        let proven = enter(&room, "10.0.0.1").unwrap();
        proven.seat.presence().prove();
        let stranger = enter(&room, "10.0.0.2").unwrap();
        let busy = enter(&room, "10.0.0.2").unwrap();
        let request = busy.seat.begin();
        let unsent = enter(&room, "10.0.0.3").unwrap();
        assert!(is_cut(stranger).await);
        unsent.seat.presence().set_unsent(true);
        let last = enter(&room, "10.0.0.4").unwrap();
        assert!(is_cut(proven).await);
        last.seat.presence().set_unsent(true);
        assert!(enter(&room, "10.0.0.4").is_none());
        drop(request);
        assert!(enter(&room, "10.0.0.4").is_some());
        assert!(is_cut(busy).await);
    }

    #[tokio::test]
    async fn an_address_has_a_bound_of_its_own() {
        let room = room(10, 2);
        let first = enter(&room, "2001:db8::1").unwrap();
        let second = enter(&room, "2001:db8::2").unwrap();
        let other = enter(&room, "2001:db8:0:1::1").unwrap();
        let request = second.seat.begin();
        let third = enter(&room, "2001:db8::3").unwrap();
        assert!(is_cut(first).await);
        let also = third.seat.begin();
        assert!(enter(&room, "2001:db8::4").is_none());
        assert!(!is_cut(other).await);
        drop((request, also));
        let mapped = enter(&room, "::ffff:10.0.0.1").unwrap();
        assert_eq!(
            network("10.0.0.1".parse().unwrap()),
            network("::ffff:10.0.0.1".parse().unwrap())
        );
        drop(mapped);
        drop((second, third));
        assert_eq!(room.0.places.lock().len(), 0);
    }
}
