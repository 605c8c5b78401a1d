//! A session's sandbox reaches exactly the reported grants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use api::{CreateSession, Grant};
use node::auth::TokenPrincipal;
use node::gateway::{GrantGate, GrantGateway, GrantHolder, GrantOpening};
use node::http;
use parking_lot::Mutex;
use sandbox::Engine;
use sessions::service::SessionUpdate;
use tokio::net::TcpListener;

use crate::support::{Home, SOON, Server, TENANT, config, tests};

tests![what_cannot_be_had_changes_nothing, changes_hold_in_the_order_of_the_row];

/// Grants in force in the only sandbox.
type Held = Arc<Mutex<BTreeMap<u16, (Grant, TcpListener)>>>;

/// A gateway that accepts every grant, and holds its listener.
#[derive(Debug, Default)]
struct Sockets {
    held: Held,
    /// Stop that a test requests: at the resolution of a port, after a number of earlier ones.
    stops: Mutex<Option<Stop>>,
}

#[derive(Debug)]
struct Stop {
    port: u16,
    after: usize,
    reached: SyncSender<()>,
    go_on: Receiver<()>,
}

impl GrantGateway for Sockets {
    fn authorize(&self, _who: &TokenPrincipal, _grants: &[Grant]) -> Result<(), http::HttpError> {
        Ok(())
    }

    fn resolve(
        &self,
        _holder: &GrantHolder,
        grants: &[Grant],
    ) -> Result<Box<dyn GrantOpening>, http::HttpError> {
        let ports: Vec<u16> = grants.iter().map(Grant::port).collect();
        let stop = self.stops.lock().take_if(|stop| {
            let is_it = ports.contains(&stop.port);
            let is_due = is_it && stop.after == 0;
            stop.after -= usize::from(is_it && !is_due);
            is_due
        });
        if let Some(stop) = stop {
            stop.reached.send(()).unwrap();
            tokio::task::block_in_place(|| stop.go_on.recv_timeout(SOON)).unwrap();
        }
        let (grants, held) = (grants.to_vec(), Arc::clone(&self.held));
        Ok(Box::new(Ready { grants, held, ports, environment: BTreeMap::new() }))
    }
}

#[derive(Debug)]
struct Ready {
    grants: Vec<Grant>,
    held: Held,
    ports: Vec<u16>,
    environment: BTreeMap<String, String>,
}

impl GrantOpening for Ready {
    fn ports(&self) -> &[u16] {
        &self.ports
    }

    fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    fn open(self: Box<Self>, listeners: Vec<TcpListener>) -> Box<dyn GrantGate> {
        let gate = Served(Arc::clone(&self.held));
        gate.add(self, listeners);
        Box::new(gate)
    }
}

#[derive(Debug)]
struct Served(Held);

impl GrantGate for Served {
    fn missing(&self, grants: &[Grant]) -> Vec<u16> {
        let held = self.0.lock();
        grants.iter().map(Grant::port).filter(|port| !held.contains_key(port)).collect()
    }

    fn retain(&self, grants: &[Grant]) {
        self.0.lock().retain(|_, (grant, _)| grants.contains(grant));
    }

    fn add(&self, opening: Box<dyn GrantOpening>, listeners: Vec<TcpListener>) {
        let opening: Box<dyn std::any::Any> = opening;
        let mut held = self.0.lock();
        let new = opening.downcast::<Ready>().unwrap().grants;
        let new = new.into_iter().filter(|grant| !held.contains_key(&grant.port()));
        for (grant, listener) in new.collect::<Vec<_>>().into_iter().zip(listeners) {
            assert_eq!(listener.local_addr().unwrap().port(), grant.port());
            held.insert(grant.port(), (grant, listener));
        }
    }

    fn rest(&self) {}
}

fn grants(ports: &[u16]) -> Vec<Grant> {
    let one = |port| format!(r#"{{"kind": "postgres", "tenant": "t{port}", "port": {port}}}"#);
    ports.iter().map(|port| serde_json::from_str(&one(port)).unwrap()).collect()
}

fn update(ports: &[u16]) -> SessionUpdate {
    SessionUpdate { grants: Some(grants(ports)), ..SessionUpdate::default() }
}

async fn start(engine: Engine, ports: &[u16]) -> (Arc<Sockets>, Arc<Server>, String, Home) {
    let gateway = Arc::new(Sockets::default());
    let mut home = Home::new(engine, config());
    home.gateway = Some(Arc::clone(&gateway) as _);
    let server = home.start().await;
    let session = CreateSession { grants: Some(grants(ports)), ..CreateSession::default() };
    let id = server.create(TENANT, session).await.unwrap().id;
    server.out(&id, "true").await;
    (gateway, Arc::new(server), id, home)
}

/// Returns the ports in force in the sandbox, which must equal the reported ones.
async fn ports(gateway: &Sockets, server: &Server, id: &str) -> Vec<u16> {
    let ports: Vec<u16> = gateway.held.lock().keys().copied().collect();
    let said = server.queries().unwrap().get(TENANT, id).await.unwrap().grants;
    assert_eq!(said.iter().map(Grant::port).collect::<Vec<_>>(), ports);
    ports
}

/// A program inside takes a port and keeps it.
const TAKE_PORT: &str = r#"python3 - <<'END'
import os, socket, time
it = socket.create_server(("127.0.0.1", 5004))
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(600)
END"#;

async fn what_cannot_be_had_changes_nothing(engine: Engine) {
    let (gateway, server, id, _home) = start(engine, &[5001, 5002]).await;
    server.out(&id, TAKE_PORT).await;
    let error = server.update(TENANT, &id, update(&[5002, 5003, 5004])).await.unwrap_err();
    assert!(error.to_string().contains("5004"), "{error}");
    assert_eq!(ports(&gateway, &server, &id).await, [5001, 5002]);
    server.update(TENANT, &id, update(&[5002, 5003])).await.unwrap();
    assert_eq!(ports(&gateway, &server, &id).await, [5002, 5003]);
    server.update(TENANT, &id, update(&[])).await.unwrap();
    assert_eq!(ports(&gateway, &server, &id).await, [0_u16; 0]);
    Arc::into_inner(server).unwrap().stop().await;
}

async fn changes_hold_in_the_order_of_the_row(engine: Engine) {
    let (gateway, server, id, _home) = start(engine, &[5000]).await;
    let (reached, is_reached) = sync_channel(1);
    let (go_on, may_go_on) = sync_channel(1);
    // The first resolution precedes any change.
    let stop = Stop { port: 5001, after: 1, reached, go_on: may_go_on };
    *gateway.stops.lock() = Some(stop);
    let change = |port| {
        let (server, id) = (Arc::clone(&server), id.clone());
        tokio::spawn(async move { server.update(TENANT, &id, update(&[port])).await })
    };
    let first = change(5001);
    tokio::task::block_in_place(|| is_reached.recv_timeout(SOON)).unwrap();
    // While it waits, other changes and program starts may arrive, and none overtakes it.
    let second = change(5002);
    let program = {
        let (server, id) = (Arc::clone(&server), id.clone());
        tokio::spawn(async move { server.out(&id, "true").await })
    };
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    go_on.send(()).unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    program.await.unwrap();
    // Either change may be the last one, but the last one is in force.
    let last = ports(&gateway, &server, &id).await;
    assert!(last == [5001] || last == [5002], "{last:?}");
    Arc::into_inner(server).unwrap().stop().await;
}
