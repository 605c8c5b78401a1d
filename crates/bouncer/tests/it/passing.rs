//! Clients that one relay passes to another: without nodes, over a socket pair.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::PoolMode;
use bouncer::relay::snapshot::ServerState;
use bouncer::relay::{ClientPasser, PassReply, PassedLogin, PassedNotice, Relay, TenantLimit};
use parking_lot::Mutex;
use testkit::{PgBatch, PgClient, Postgres};

use crate::support::{Pooler, tenant, until};

/// Path from a relay to the one that serves its clients.
#[derive(Debug)]
struct WayHome {
    home: Arc<Relay>,
    /// True if passing is enabled.
    is_open: AtomicBool,
    notices: Mutex<Vec<PassedNotice>>,
}

impl ClientPasser for WayHome {
    fn is_home(&self, limit: &TenantLimit) -> bool {
        assert_eq!(limit.name, "tenant/Postgres/t");
        false
    }

    fn pass(&self, login: PassedLogin, _limit: TenantLimit, reply: PassReply) {
        if !self.is_open.load(Ordering::Relaxed) {
            return drop(reply);
        }
        if let Ok(socket) = self.home.take_passed(login) {
            self.notices.lock().push(reply.taken("home", socket));
        }
    }

    fn see_off(&self, clients: Vec<(Arc<str>, u64)>) {
        assert!(clients.iter().all(|(node, _)| &**node == "home"));
        let ids: Vec<u64> = clients.into_iter().map(|(_, id)| id).collect();
        self.home.see_off_arrived(&ids.into());
    }

    fn end(&self, node: Arc<str>, client: u64) {
        assert_eq!(&*node, "home");
        self.home.end_arrived(&vec![client].into());
    }
}

/// A relay whose clients another one serves.
struct FrontAndHome {
    front: Pooler,
    home: Pooler,
    way: Arc<WayHome>,
}

impl FrontAndHome {
    fn start(server: &Postgres) -> FrontAndHome {
        let start = || Pooler::start(2, vec![tenant("t", server, PoolMode::Transaction)]);
        let (front, home) = (start(), start());
        let is_open = AtomicBool::new(true);
        let way = WayHome { home: Arc::clone(&home.relay), is_open, notices: Mutex::default() };
        let way = Arc::new(way);
        front.relay.pass_clients_to(Arc::<WayHome>::clone(&way));
        FrontAndHome { front, home, way }
    }

    /// Returns the number of clients of each relay.
    fn clients(&self) -> [usize; 2] {
        [&self.front, &self.home].map(|it| it.snapshots().iter().map(|it| it.clients.len()).sum())
    }

    fn passed(&self) -> u64 {
        let id = self.front.tenant("t").id;
        let counters = self.front.relay.counters().filter_map(|counters| counters.known(id));
        counters.map(|stats| stats.clients_passed.load()).sum()
    }

    /// Returns whether a server connection of the home is active.
    fn is_working(&self) -> bool {
        let snapshots = self.home.snapshots();
        let mut servers = snapshots.iter().flat_map(|it| &it.servers);
        servers.any(|it| it.state != ServerState::Idle)
    }

    fn is_over(&self) -> Option<()> {
        let has_clients = self.front.relay.has_clients() || self.home.relay.has_clients();
        (!has_clients && self.passed() == 0).then_some(())
    }
}

fn code(client: &mut PgClient) -> Option<String> {
    let (is_over, messages) = client.end();
    assert!(is_over, "the client is there yet");
    let error = messages.iter().find(|message| message.tag == b'E')?.error();
    Some(error.code().to_owned())
}

#[test]
fn a_client_is_served_by_the_relay_that_it_is_passed_to() {
    let server = Postgres::shared();
    let both = FrontAndHome::start(&server);
    let mut client = both.front.client_with("t", &[("application_name", "till")]);
    assert_eq!(client.value("SHOW application_name"), "till");
    assert_eq!((both.clients(), both.passed()), ([0, 1], 1));
    assert_eq!((both.front.servers(), both.home.servers()), (0, 1));
    let snapshots = both.home.snapshots();
    let shown = snapshots.iter().flat_map(|it| &it.clients).next().unwrap();
    assert_eq!(shown.application_name.as_deref(), Some("till"));
    assert!(shown.address.is_some() && !shown.tls, "{shown:?}");
    // Requests sent at once are answered at once, whatever their number.
    let many = (0..2000).fold(PgBatch::new(), |batch, it| batch.query(&format!("SELECT {it}")));
    client.send(&many.0).unwrap();
    for number in 0..2000 {
        assert_eq!(client.answer().unwrap().value(), number.to_string());
    }
    assert_eq!(client.value("SELECT length(repeat('x', 20000000))"), "20000000");
    assert_eq!(client.value("SELECT repeat('x', 20000000)").len(), 20_000_000);
    // A Unix socket has no address.
    let other = PgClient::login(&both.front.unix(), &[("user", "app"), ("database", "t")], "");
    let mut other = other.unwrap();
    let snapshots = both.home.snapshots();
    let addresses = snapshots.iter().flat_map(|it| &it.clients).map(|it| it.address);
    assert_eq!(addresses.filter(Option::is_none).count(), 1);
    other.finish();
    assert_eq!(code(&mut other), None);
    client.close();
    until("nobody to be there", || both.is_over());
}

/// A client that does not read holds up only its own replies, and memory does not grow meanwhile.
#[test]
fn a_client_that_does_not_read_is_not_read_for() {
    let server = Postgres::shared();
    let both = FrontAndHome::start(&server);
    let mut slow = both.front.client("t");
    let sql = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)";
    slow.send(&PgBatch::new().query(sql).0).unwrap();
    let mut client = both.front.client("t");
    assert_eq!(client.value("SELECT 1"), "1");
    let sent = || {
        let id = both.home.tenant("t").id;
        let counters = both.home.relay.counters().filter_map(|counters| counters.known(id));
        counters.map(|stats| stats.sent_bytes.load()).sum::<u64>()
    };
    // All buffers on the path together; the whole is 200 MB.
    let mut before = None;
    until("the home to wait", || {
        let now = sent();
        (before.replace(now) == Some(now) && now > 100_000).then_some(())
    });
    assert!(sent() < 20_000_000, "{} bytes", sent());
    assert_eq!(slow.answer().unwrap().rows().len(), 200_000);
}

#[test]
fn a_client_that_no_home_takes_is_served_where_it_is() {
    let server = Postgres::shared();
    let both = FrontAndHome::start(&server);
    both.way.is_open.store(false, Ordering::Relaxed);
    let mut client = both.front.client("t");
    assert_eq!(client.value("SELECT 1"), "1");
    assert_eq!((both.clients(), both.passed()), ([1, 0], 0));
    both.way.is_open.store(true, Ordering::Relaxed);
    // A relay that stops takes no clients.
    both.home.relay.drain();
    let mut other = both.front.client("t");
    assert_eq!(other.value("SELECT 2"), "2");
    assert_eq!(both.clients(), [2, 0]);
}

#[test]
fn a_client_whose_home_is_lost_is_told_between_two_messages() {
    let server = Postgres::shared();
    let both = FrontAndHome::start(&server);
    let (mut idle, mut busy) = (both.front.client("t"), both.front.client("t"));
    assert_eq!(idle.value("SELECT 1"), "1");
    busy.send(&PgBatch::new().query("SELECT pg_sleep(60)").0).unwrap();
    until("the statement to run", || (both.home.servers() == 2).then_some(()));
    both.way.notices.lock().iter().for_each(PassedNotice::lost);
    for client in [&mut idle, &mut busy] {
        assert_eq!(code(client).as_deref(), Some("57P01"));
    }
    // Here the home still runs, and notices that they have left.
    until("nobody to be there", || both.is_over());
    until("the statement to be cancelled", || (!both.is_working()).then_some(()));
}

#[test]
fn the_end_of_either_side_ends_both() {
    let server = Postgres::shared();
    let both = FrontAndHome::start(&server);
    let mut client = both.front.client("t");
    client.send(&PgBatch::new().query("SELECT 7 FROM pg_sleep(0.1)").0).unwrap();
    client.finish();
    assert_eq!(client.answer().unwrap().value(), "7");
    assert_eq!(code(&mut client), None);
    until("nobody to be there", || both.is_over());

    // The statement of a client that has left is cancelled.
    let mut gone = both.front.client("t");
    gone.send(&PgBatch::new().query("SELECT pg_sleep(60)").0).unwrap();
    until("the statement to run", || both.is_working().then_some(()));
    drop(gone);
    until("the statement to be cancelled", || (!both.is_working()).then_some(()));
    until("nobody to be there", || both.is_over());

    // The home sends the reason.
    let mut client = both.front.client("t");
    assert_eq!(client.value("SELECT 1"), "1");
    both.home.relay.stop();
    assert_eq!(code(&mut client).as_deref(), Some("57P01"));
    until("nobody to be there", || both.is_over());
}

#[test]
fn a_relay_that_stops_has_its_clients_seen_off_at_their_home() {
    let server = Postgres::shared();
    let both = FrontAndHome::start(&server);
    let (mut idle, mut busy) = (both.front.client("t"), both.front.client("t"));
    let mut other = both.home.client("t");
    assert_eq!(busy.run("BEGIN").tags(), ["BEGIN"]);
    both.front.relay.drain();
    assert_eq!(code(&mut idle).as_deref(), Some("57P01"));
    assert_eq!(busy.value("SELECT 1"), "1");
    busy.send(&PgBatch::new().query("COMMIT").0).unwrap();
    assert_eq!(code(&mut busy).as_deref(), Some("57P01"));
    until("nobody to be passed", || (!both.front.relay.has_clients()).then_some(()));
    assert_eq!(other.value("SELECT 2"), "2");
}
