//! The listeners of one sandbox, served until they are revoked.

mod reading;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use api::{
    AuditEvent, AuditOutcome, CatalogGrant, DatabaseGrant, ErrorCode, Grant, GrantAccess,
    TenantEngine,
};
use node::fair::FairScheduler;
use node::gateway::{GrantGate, GrantHolder, GrantOpening, GrantReader};
use node::http::HttpError;
use node::task;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

pub(crate) use self::reading::ReadingListener;
use crate::doors::{AuditSink, DatabaseDoor, GatewayEvent, LoginPlace, StreamDoor};
use crate::kinds::{self, GrantListener, OpenContext, ResolvedGrant};
use crate::reader::{DoorReader, READERS_MAX, ReaderDoor, ReaderRooms, WarehouseDoor};
use crate::shared::{GatewayShared, TenantShare};

/// Pause after a failure to accept a connection, such as a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Pause after a rejected connection, so that a flood of connections costs little.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);
/// Most connections to a database of one grant that have not logged in.
pub(crate) const LOGINS_MAX: usize = 32;
/// Response to a client with too many connections.
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: text/plain\r\n\
    x-cove-refused: connections\r\ncontent-length: 27\r\nconnection: close\r\n\r\n\
    cove: too many connections\n";

/// Kinds of grants.
pub(crate) struct ReadyGrants {
    pub(crate) shared: Arc<GatewayShared>,
    pub(crate) holder: GrantHolder,
    pub(crate) grants: Vec<(Grant, Box<dyn ResolvedGrant>)>,
    pub(crate) ports: Vec<u16>,
    pub(crate) environment: BTreeMap<String, String>,
}

impl fmt::Debug for ReadyGrants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl GrantOpening for ReadyGrants {
    fn ports(&self) -> &[u16] {
        &self.ports
    }

    fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    fn open(self: Box<Self>, listeners: Vec<TcpListener>) -> Box<dyn GrantGate> {
        let ReadyGrants { shared, holder, grants, .. } = *self;
        let tenant = shared.tenant(&holder.tenant);
        let gate = OpenSockets { shared, tenant, holder, state: Mutex::default() };
        gate.serve(grants, listeners);
        Box::new(gate)
    }
}

/// The sockets of one sandbox.
pub(crate) struct OpenSockets {
    shared: Arc<GatewayShared>,
    tenant: Arc<TenantShare>,
    holder: GrantHolder,
    state: Mutex<GateState>,
}

#[derive(Default)]
struct GateState {
    served: Vec<ServedGrant>,
    /// Listeners of revoked grants, whose ports new grants will use.
    spare: BTreeMap<u16, TcpListener>,
}

/// A grant in service.
struct ServedGrant {
    grant: Grant,
    door: GrantListener,
    /// Door of readers on the server's side, if `door` allows programs to write.
    reading: Option<GrantListener>,
    /// Listener for programs of readers, if `door` leads to a warehouse and allows writing.
    reading_inside: Option<Arc<ReadingListener>>,
    rooms: ReaderRooms,
    /// Dropped with the grant, which ends readers.
    held: watch::Sender<()>,
    slot: RevocableListener,
    witness: Arc<dyn AuditSink>,
    task: AbortHandle,
}

impl Drop for ServedGrant {
    fn drop(&mut self) {
        // Closed immediately, not when the task is dropped.
        drop(self.slot.0.lock().take());
        self.task.abort();
    }
}

/// A listener that can be removed from its accept loop.
#[derive(Clone)]
struct RevocableListener(Arc<Mutex<Option<TcpListener>>>);

impl RevocableListener {
    /// Returns the next connection; `None` once the listener was removed.
    async fn accept(&self) -> Option<io::Result<TcpStream>> {
        poll_fn(|context| match &*self.0.lock() {
            None => Poll::Ready(None),
            Some(listener) => {
                listener.poll_accept(context).map(|it| Some(it.map(|(stream, _)| stream)))
            }
        })
        .await
    }
}

impl fmt::Debug for OpenSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl GrantGate for OpenSockets {
    fn missing(&self, grants: &[Grant]) -> Vec<u16> {
        let state = self.state.lock();
        let is_there = |port: &u16| state.served.iter().any(|one| one.grant.port() == *port);
        grants.iter().map(Grant::port).filter(|port| !is_there(port)).collect()
    }

    fn retain(&self, grants: &[Grant]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let wanted: Vec<u16> = grants.iter().map(Grant::port).collect();
        let (kept, revoked): (Vec<_>, Vec<_>) =
            state.served.drain(..).partition(|one| grants.contains(&one.grant));
        state.served = kept;
        for one in revoked {
            let port = one.grant.port();
            if wanted.contains(&port)
                && let Some(listener) = one.slot.0.lock().take()
            {
                state.spare.insert(port, listener);
            }
            one.witness.saw(&GatewayEvent::new(AuditEvent::Revoked, AuditOutcome::Done));
        }
    }

    fn add(&self, opening: Box<dyn GrantOpening>, listeners: Vec<TcpListener>) {
        let opening: Box<dyn Any> = opening;
        match opening.downcast::<ReadyGrants>() {
            Ok(ready) => self.serve(ready.grants, listeners),
            Err(_) => tracing::error!(holder = %self.holder.id, "an opening of another gateway"),
        }
        // Listeners that were not reused are closed.
        self.state.lock().spare.clear();
    }

    fn rest(&self) {
        for one in &self.state.lock().served {
            for door in [Some(&one.door), one.reading.as_ref()].into_iter().flatten() {
                if let GrantListener::Database(door) = door {
                    door.rest();
                }
            }
        }
    }

    fn reader(&self, grant: &Grant) -> Result<Box<dyn GrantReader>, HttpError> {
        let mut state = self.state.lock();
        let Some(served) = state.served.iter_mut().find(|one| one.grant == *grant) else {
            let message = format!("`{}` is not served at present", grant.label());
            return Err(HttpError::new(ErrorCode::Conflict, message));
        };
        let door = self.reading_door(served)?;
        Ok(Box::new(DoorReader {
            label: grant.label(),
            door,
            rooms: served.rooms.clone(),
            revoked: served.held.subscribe(),
            audit: Arc::clone(&served.witness),
            fence: self.shared.fence.clone(),
        }))
    }
}

impl OpenSockets {
    /// Returns a read-only door: the grant's own if it is read-only, otherwise a second one whose
    /// clients count with those of the grant.
    fn reading_door(&self, served: &mut ServedGrant) -> Result<ReaderDoor, HttpError> {
        let engine = match &served.grant {
            Grant::Catalog(grant) => {
                let GrantListener::Stream(door) = &served.door else {
                    return Err(HttpError::internal());
                };
                // Readers on the server's side only describe tables. Programs of readers get a
                // separate door.
                let beside = match grant.access {
                    GrantAccess::ReadOnly => None,
                    GrantAccess::ReadWrite => {
                        let (rooms, witness) = (&served.rooms, &served.witness);
                        let made = || Arc::new(self.reading_inside(grant, rooms, witness));
                        Some(Arc::clone(served.reading_inside.get_or_insert_with(made)))
                    }
                };
                return Ok(ReaderDoor::Warehouse(WarehouseDoor {
                    warehouse: grant.warehouse.clone(),
                    door: Arc::downgrade(door),
                    port: served.grant.port(),
                    beside,
                }));
            }
            Grant::Postgres(_) => TenantEngine::Postgres,
            Grant::Mysql(_) => TenantEngine::Mysql,
            Grant::Http(_) | Grant::Model(_) => {
                let message = format!("`{}` has no data that can be read", served.grant.label());
                return Err(HttpError::invalid(message).at("name"));
            }
        };
        let door = match read_only(&served.grant) {
            None => &served.door,
            Some(grant) => match &mut served.reading {
                Some(door) => door,
                empty => {
                    let (shared, tenant) = (&self.shared, &self.tenant);
                    let witness = &served.witness;
                    empty.insert(open_door(shared, tenant, &self.holder, &grant, witness)?)
                }
            },
        };
        match door {
            GrantListener::Database(door) => Ok(ReaderDoor::Database(engine, Arc::downgrade(door))),
            GrantListener::Stream(_) => Err(HttpError::internal()),
        }
    }

    /// Returns the listener for programs of readers of a grant that may write.
    fn reading_inside(
        &self,
        grant: &CatalogGrant,
        rooms: &ReaderRooms,
        witness: &Arc<dyn AuditSink>,
    ) -> ReadingListener {
        ReadingListener {
            shared: Arc::clone(&self.shared),
            tenant: Arc::clone(&self.tenant),
            holder: self.holder.clone(),
            grant: grant.clone(),
            witness: Arc::clone(witness),
            rooms: rooms.clone(),
            opened: Mutex::default(),
        }
    }

    /// Serves grants that are not served yet, and opens their missing listeners.
    fn serve(&self, grants: Vec<(Grant, Box<dyn ResolvedGrant>)>, listeners: Vec<TcpListener>) {
        let mut state = self.state.lock();
        let mut listeners = listeners.into_iter();
        for (grant, resolved) in grants {
            if state.served.iter().any(|one| one.grant == grant) {
                continue;
            }
            let listener = state.spare.remove(&grant.port()).or_else(|| listeners.next());
            let witness = self.shared.audit.witness(&self.holder, &grant.label());
            let served = match listener {
                None => Err("no listener is left for its port".to_owned()),
                Some(listener) => self.serve_one(&grant, resolved, listener, &witness),
            };
            match served {
                Ok(served) => {
                    witness.saw(&GatewayEvent::new(AuditEvent::Granted, AuditOutcome::Done));
                    state.served.push(served);
                }
                // It existed when it was resolved: the sandbox sees a closed port.
                Err(why) => {
                    let (holder, label) = (&self.holder.id, grant.label());
                    tracing::warn!(%holder, grant = label, why, "a grant cannot be served");
                    let failed = GatewayEvent::new(AuditEvent::Granted, AuditOutcome::Failed);
                    witness.saw(&GatewayEvent { error: Some(&why), ..failed });
                }
            }
        }
    }

    fn serve_one(
        &self,
        grant: &Grant,
        resolved: Box<dyn ResolvedGrant>,
        listener: TcpListener,
        witness: &Arc<dyn AuditSink>,
    ) -> Result<ServedGrant, String> {
        let door = resolved.open(OpenContext {
            shared: &self.shared,
            tenant: &self.tenant,
            holder: self.holder.clone(),
            port: grant.port(),
            audit: Arc::clone(witness),
        })?;
        let slot = RevocableListener(Arc::new(Mutex::new(Some(listener))));
        let rooms = ReaderRooms {
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            logins: Arc::new(Semaphore::new(LOGINS_MAX)),
            connections: [Arc::clone(&self.tenant.rooms), Arc::clone(&self.shared.rooms)],
        };
        let accepting = AcceptTask {
            rooms: rooms.connections.clone(),
            logins: Arc::clone(&rooms.logins),
            slot: slot.clone(),
            witness: Arc::clone(witness),
            turns: self.shared.turns.clone(),
            caller: Arc::clone(&self.holder.tenant),
        };
        let task = match &door {
            GrantListener::Database(door) => task::spawn(accepting.admit(Arc::clone(door))),
            GrantListener::Stream(door) => task::spawn(accepting.serve(Arc::clone(door))),
        };
        let (grant, task) = (grant.clone(), task.abort_handle());
        let (witness, held) = (Arc::clone(witness), watch::Sender::default());
        let (reading, reading_inside) = (None, None);
        Ok(ServedGrant { grant, door, reading, reading_inside, rooms, held, slot, witness, task })
    }
}

/// Task that accepts connections.
struct AcceptTask {
    /// Connection slots of the tenant, and of all tenants.
    rooms: [Arc<Semaphore>; 2],
    /// Slots of the grant's connections that have not logged in.
    logins: Arc<Semaphore>,
    slot: RevocableListener,
    witness: Arc<dyn AuditSink>,
    /// Scheduler of streams, and the tenant that they run for.
    turns: FairScheduler,
    caller: Arc<str>,
}

impl AcceptTask {
    /// Passes connections to a database, which counts them itself once they have logged in.
    ///
    /// If the slots for logins are full, accepting waits until one is released, which affects only
    /// the sandbox itself: further connections stay in the kernel's queue.
    async fn admit(self, door: Arc<dyn DatabaseDoor>) {
        let mut is_first = true;
        while let Some(accepted) = self.slot.accept().await {
            if std::mem::take(&mut is_first) {
                door.end_former().await;
            }
            match accepted.and_then(TcpStream::into_std) {
                Ok(stream) => match self.login_place().await {
                    Some(place) => door.admit(stream, place),
                    None => return,
                },
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Waits for a login slot; `None` if there will be none any more.
    async fn login_place(&self) -> Option<LoginPlace> {
        let [of_tenant, of_all] = self.rooms.clone();
        let own = Arc::clone(&self.logins).acquire_owned().await.ok()?;
        let of_tenant = of_tenant.acquire_owned().await.ok()?;
        let of_all = of_all.acquire_owned().await.ok()?;
        Some(LoginPlace { _permits: [own, of_tenant, of_all] })
    }

    /// Serves connections. They end with this future.
    async fn serve(self, door: Arc<dyn StreamDoor>) {
        let most = match door.connections_max() {
            0 => usize::MAX,
            most => most,
        };
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                Some(_) = connections.join_next() => continue,
                accepted = self.slot.accept() => accepted,
            };
            match accepted {
                None => return,
                Some(Err(error)) => pause(&error).await,
                Some(Ok(stream)) => match self.room(connections.len() < most) {
                    Some(room) => {
                        let serving = Arc::clone(&door).serve(stream);
                        // Scheduled with the HTTP requests of the same tenant: a sandbox with many
                        // connections takes nothing from other tenants.
                        connections.spawn(self.turns.run(Arc::clone(&self.caller), async move {
                            serving.await;
                            drop(room);
                        }));
                    }
                    None => self.refuse(stream).await,
                },
            }
        }
    }

    /// Reserves a connection of the tenant, and of all tenants.
    fn room(&self, has_own: bool) -> Option<[OwnedSemaphorePermit; 2]> {
        let [of_tenant, of_all] = self.rooms.clone();
        match has_own {
            true => Some([of_tenant.try_acquire_owned().ok()?, of_all.try_acquire_owned().ok()?]),
            false => None,
        }
    }

    async fn refuse(&self, mut stream: TcpStream) {
        let why = Some("connections: the limit is reached");
        let refused = GatewayEvent::new(AuditEvent::Connect, AuditOutcome::Refused);
        self.witness.saw(&GatewayEvent { error: why, ..refused });
        // Writes only as much as fits into the socket buffer: a stalled client is not waited for.
        if stream.writable().await.is_ok() {
            stream.try_write(TOO_MANY).ok();
            stream.shutdown().await.ok();
        }
        sleep(REFUSED_PAUSE).await;
    }
}

/// Opens a second door for a grant, with the same audit.
fn open_door(
    shared: &Arc<GatewayShared>,
    tenant: &Arc<TenantShare>,
    holder: &GrantHolder,
    grant: &Grant,
    witness: &Arc<dyn AuditSink>,
) -> Result<GrantListener, HttpError> {
    let resolved = kinds::kind_of(grant).resolve(shared);
    let resolved = resolved.map_err(|error| HttpError::invalid(error.to_string()))?;
    let (holder, port, audit) = (holder.clone(), grant.port(), Arc::clone(witness));
    let opened = resolved.open(OpenContext { shared, tenant, holder, port, audit });
    opened.map_err(|why| HttpError::new(ErrorCode::Conflict, why))
}

/// Returns the read-only variant of a database grant that may write; `None` for other grants.
fn read_only(grant: &Grant) -> Option<Grant> {
    let reading = |grant: &DatabaseGrant| match grant.access {
        GrantAccess::ReadOnly => None,
        GrantAccess::ReadWrite => {
            Some(DatabaseGrant { access: GrantAccess::ReadOnly, ..grant.clone() })
        }
    };
    match grant {
        Grant::Postgres(grant) => reading(grant).map(Grant::Postgres),
        Grant::Mysql(grant) => reading(grant).map(Grant::Mysql),
        Grant::Catalog(_) | Grant::Http(_) | Grant::Model(_) => None,
    }
}

async fn pause(error: &io::Error) {
    tracing::debug!(%error, "accept a connection of a sandbox");
    sleep(ACCEPT_PAUSE).await;
}
