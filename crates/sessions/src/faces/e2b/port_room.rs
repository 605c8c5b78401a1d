//! Room for connections from outside to ports of sandboxes, which need no token.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Places for connections to ports. Cheap to clone.
///
/// A program that never answers keeps a place of the listener for as long as its client likes, and
/// nobody cuts a connection in the middle of a request. So such connections have fewer places than
/// the listener, and a tenant has at most as many as it leaves free for others.
#[derive(Clone, Debug)]
pub(super) struct PortRoom(Arc<Mutex<Places>>);

#[derive(Debug)]
struct Places {
    free: usize,
    /// Places in use, by tenant.
    held: HashMap<String, usize>,
}

/// The place of one connection, free again when this is dropped.
#[derive(Debug)]
pub(super) struct PortPlace {
    room: PortRoom,
    tenant: String,
}

impl PortRoom {
    pub(super) fn new(connections_max: usize) -> PortRoom {
        PortRoom(Arc::new(Mutex::new(Places { free: connections_max, held: HashMap::new() })))
    }

    /// Takes a place for a connection to a sandbox of this tenant; none when it has its share.
    pub(super) fn enter(&self, tenant: &str) -> Option<PortPlace> {
        let Places { free, held } = &mut *self.0.lock();
        let has = held.get(tenant).copied().unwrap_or(0);
        if has >= *free {
            return None;
        }
        *free -= 1;
        held.insert(tenant.to_owned(), has + 1);
        Some(PortPlace { room: self.clone(), tenant: tenant.to_owned() })
    }
}

impl Drop for PortPlace {
    fn drop(&mut self) {
        let Places { free, held } = &mut *self.room.0.lock();
        *free += 1;
        if let Some(has) = held.get_mut(&self.tenant) {
            *has -= 1;
            if *has == 0 {
                held.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_leaves_places_for_others_and_gives_back_what_it_had() {
        let room = PortRoom::new(8);
        let enter = |tenant, expected: usize| {
            let places: Vec<_> = std::iter::from_fn(|| room.enter(tenant)).collect();
            assert_eq!(places.len(), expected, "{tenant}");
            places
        };
        let first = enter("first", 4);
        let second = enter("second", 2);
        assert!(room.enter("first").is_none());
        drop(first);
        drop(enter("third", 3));
        drop(second);
        drop(enter("first", 4));
        let places = room.0.lock();
        assert_eq!((places.free, places.held.len()), (8, 0));
    }
}
