//! Services that follow a limit of one PostgreSQL, each at a node of its own.

use std::sync::Arc;

use parking_lot::Mutex;
use testkit::Postgres;

use super::*;
use crate::cluster::{NodeDescription, NodeIdentity, NodeMembership};
use crate::store::{SqlStore, StoreConfig, StoreUrl};
use crate::telemetry::Registry;

const LIMIT: u32 = 4;

/// Time within which a part has changed, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A service's use of the limit.
#[derive(Clone, Copy, Debug, Default)]
struct UseOfIt {
    bound: u32,
    used: u32,
    needed: u32,
    /// Number of times that it received its part.
    told: u32,
}

#[derive(Debug, Default)]
struct LimitedService {
    it: Mutex<UseOfIt>,
    demand: Notify,
}

impl LimitedService {
    /// Needs this much from now on, and uses as much of it as it may.
    fn need(&self, needed: u32) {
        let mut it = self.it.lock();
        it.needed = needed;
        it.used = it.used.min(needed).max(it.bound.min(needed));
        drop(it);
        self.demand.notify_one();
    }

    /// Waits until it uses this much.
    async fn wait_for(&self, used: u32) {
        let is_so = async {
            while self.it.lock().used != used {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(SOON, is_so).await;
        assert!(waited.is_ok(), "{used} are not used: {:?}", self.it.lock());
    }
}

impl SharedLimitUser for LimitedService {
    type Limit = ();

    const SUBJECT: &'static str = "something";

    const PREFIX: &'static str = "something/";

    fn uses(&self) -> SharedLimitUses<()> {
        let UseOfIt { bound, used, needed, .. } = *self.it.lock();
        let resource = "something/it".to_owned();
        let used = LimitUse { resource: resource.clone(), limit: LIMIT, bound, used, needed };
        SharedLimitUses::from([(resource, ((), used))])
    }

    fn take_parts(&self, parts: Vec<((), LimitGrant)>) {
        let mut it = self.it.lock();
        it.bound = parts.first().map_or(0, |(_, grant)| grant.part);
        // Current use continues, even if it is more.
        it.used = it.used.max(it.bound.min(it.needed));
        it.told += 1;
    }
}

struct LimitedNodes {
    server: Postgres,
    nodes: Vec<Arc<LimitedService>>,
    _tasks: tokio::task::JoinSet<()>,
}

impl LimitedNodes {
    async fn start(count: usize, scope: LimitScope) -> LimitedNodes {
        let server = tokio::task::spawn_blocking(Postgres::start).await.unwrap();
        let config = StoreConfig::new(StoreUrl::Postgres(server.database()));
        let store = SqlStore::open(config, &mut Registry::default()).await.unwrap();
        let (mut nodes, mut tasks) = (Vec::new(), tokio::task::JoinSet::new());
        for at in 0..count {
            let (id, incarnation) = (format!("n{at}"), "1".to_owned());
            let run = NodeIdentity { id, incarnation, home: String::new() };
            let (description, lease) = (NodeDescription::default(), Duration::from_secs(60));
            let member = NodeMembership::join(&store, run, &description, lease).await.unwrap();
            let shares = LimitShares::open(&store, &member, scope).await.unwrap().unwrap();
            let node = Arc::<LimitedService>::default();
            nodes.push(Arc::clone(&node));
            tasks.spawn(async move { follow_shared_limits(&shares, &*node, &node.demand).await });
        }
        LimitedNodes { server, nodes, _tasks: tasks }
    }
}

#[tokio::test]
async fn services_take_from_each_other_what_is_spare() {
    let limited = LimitedNodes::start(2, LimitScope::Strict).await;
    let [first, second] = [&limited.nodes[0], &limited.nodes[1]];
    first.need(LIMIT);
    first.wait_for(LIMIT).await;
    // Nothing that is in use is taken away.
    second.need(3);
    let is_asked = async {
        while second.it.lock().told < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, is_asked).await.unwrap();
    assert_eq!((first.it.lock().used, second.it.lock().used), (LIMIT, 0));
    first.need(1);
    second.wait_for(3).await;
    assert_eq!(first.it.lock().used, 1);
    second.need(0);
    first.need(LIMIT);
    first.wait_for(LIMIT).await;
}

#[tokio::test]
async fn a_service_without_the_store_has_what_its_scope_says() {
    for (scope, expected) in [(LimitScope::Soft, 2), (LimitScope::Strict, 1)] {
        let mut limited = LimitedNodes::start(2, scope).await;
        // The node that joined last knows the others.
        let [first, second] = [1, 0].map(|at| Arc::clone(&limited.nodes[at]));
        second.need(3);
        second.wait_for(3).await;
        first.need(1);
        first.wait_for(1).await;
        limited.server.stop();
        first.need(LIMIT);
        if scope == LimitScope::Soft {
            first.wait_for(expected).await;
        }
        // Nothing is taken away either.
        tokio::time::sleep(ASK_EVERY * 3).await;
        assert_eq!((first.it.lock().used, second.it.lock().used), (expected, 3), "{scope:?}");
        limited.server.start_again();
        second.need(0);
        first.wait_for(LIMIT).await;
    }
}
