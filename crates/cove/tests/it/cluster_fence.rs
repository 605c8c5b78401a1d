//! A node that has lost its lease has no further external effect for its sessions.

use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::{
    Cutter, Delivered, MariaDb, Postgres, Receiver, Scratch, Server, TAKEN, node_config,
    nodes_seen_by, until, wait_for_each_other,
};

use crate::cluster::create_of_at;
use crate::sessions_support::{Sessions, config, probe};
use crate::support::{COVE, SOON, beside_others};
use crate::takeover::SYNCED;

/// Sends numbers to an external server and into a table, for as long as it runs.
const PROGRAM: &str = "\
import itertools, sys, time, urllib.request
import psycopg2
database = None
for number in itertools.count(1):
    try:
        request = urllib.request.Request(sys.argv[1] + '/%d' % number, data=b'x')
        urllib.request.urlopen(request, timeout=10).read()
    except Exception:
        pass
    try:
        if database is None:
            database = psycopg2.connect('')
            database.autocommit = True
        database.cursor().execute('INSERT INTO numbers (n) VALUES (%s)', (number,))
    except Exception:
        database = None
    time.sleep(0.05)
";

/// Holds the lock of a row in an idle transaction, and of another by a running statement.
const MYSQL_HOLDER: &str = "\
import pymysql
idle, running = pymysql.connect(), pymysql.connect()
idle.cursor().execute('UPDATE t SET n = 1 WHERE id = 1')
cursor = running.cursor()
cursor.execute('UPDATE t SET n = 2 WHERE id = 2')
cursor.execute('SELECT SLEEP(600)')
";

/// Rejected requests while the test checks that nothing arrives.
const REFUSED_REQUESTS: usize = 30;

/// Two servers, of which the first reaches the store through a proxy.
pub(crate) struct FencedServers {
    pub(crate) one: Server,
    pub(crate) two: Server,
    pub(crate) way: Cutter,
    receiver: Receiver,
    backend: Postgres,
    _objects: Scratch,
    _database: std::sync::Arc<Postgres>,
}

fn start() -> FencedServers {
    start_with("")
}

/// Starts them with additional settings for both.
pub(crate) fn start_with(more: &str) -> FencedServers {
    start_with_tenants(more, "")
}

/// Starts them with additional tenants of the bouncer.
fn start_with_tenants(more: &str, tenants: &str) -> FencedServers {
    let (database, objects, backend) = (Postgres::shared(), Scratch::new(), Postgres::start());
    backend.sql(
        "CREATE ROLE clerk LOGIN PASSWORD 'pw'; CREATE TABLE numbers (n int, \
         name text DEFAULT current_setting('application_name')); GRANT ALL ON numbers TO clerk",
    );
    let tenant = format!(
        "[bouncer]\n[[bouncer.tenants]]\nname = \"shop\"\nserver = \"{}\"\n\
         database = \"postgres\"\nusers = [{{ name = \"clerk\", password = \"pw\" }}]\n{tenants}",
        backend.tcp()
    );
    let way = Cutter::start(database.tcp());
    let at = |store: &str| {
        let objects = format!("objects.url = \"{}\"\n{more}", objects.path().display());
        let settings = format!("{SYNCED}\n{tenant}");
        node_config(store, &objects, &config(&settings))
    };
    let store = database.database();
    let (target, cut) = (database.tcp().to_string(), way.address().to_string());
    assert!(store.contains(&target), "{store} is not at {target}");
    let mut one = Server::start_with(COVE, &[], Some(&at(&store.replace(&target, &cut))));
    let mut two = one.start_beside(&at(&store));
    two.expect_log("failed to pass a request on");
    Sessions::from(&one).deploy(&probe("probe"));
    wait_for_each_other(&[&one, &two]);
    // Messages while the store or a server is unavailable.
    for line in ["store", "failed", "told", "audit", "lease", "lost", "session"] {
        one.expect_log(line);
    }
    let receiver = Receiver::start(|_| TAKEN);
    FencedServers { one, two, way, receiver, backend, _objects: objects, _database: database }
}

impl FencedServers {
    pub(crate) fn grants(&self) -> Value {
        let rule = json!({"hosts": ["127.0.0.1"], "ports": [self.receiver.address().port()],
            "internal": ["127.0.0.0/8"], "session_headers": true});
        json!([{"kind": "http", "rules": [rule]},
            {"kind": "postgres", "tenant": "shop", "access": "read_write"}])
    }

    /// Starts the program in a session.
    pub(crate) fn begin(&self, sessions: &Sessions, session: &str) {
        let written = sessions.write(session, "program.py", PROGRAM.as_bytes());
        assert!(written.status < 300, "{}", written.text());
        let url = format!("http://{}", receiver_at(self.receiver.address()));
        // The default of clients excludes the proxy's address.
        let command = format!(
            "no_proxy= NO_PROXY= nohup setsid python3 program.py {url} >log 2>&1 </dev/null &"
        );
        sessions.out(session, &command);
    }

    /// Returns the number of rows with a connection name.
    pub(crate) fn rows(&self, name: &str) -> usize {
        let sql = format!("SELECT count(*) FROM numbers WHERE name = '{name}'");
        self.backend.sql(&sql).trim().parse().unwrap()
    }

    pub(crate) fn requests(&self, epoch: &str) -> usize {
        let is_of = |it: &&Delivered| it.header("cove-epoch") == epoch;
        self.receiver.delivered().iter().filter(is_of).count()
    }

    /// Returns the epoch of the last request, as soon as it is not the first one.
    pub(crate) fn latest_epoch(&self) -> String {
        until("a request of the next owner", SOON, || {
            let delivered = self.receiver.delivered();
            let last = delivered.last().map(|it| it.header("cove-epoch").to_owned());
            last.filter(|epoch| epoch != "1").ok_or_else(|| format!("{}", delivered.len()))
        })
    }

    /// Stops the first server's process, and waits until the session continues on the other.
    fn stop_the_first(&self, there: &Sessions, session: &str) {
        self.one.signal("STOP");
        until("the server to be lost", SOON * 2, || {
            let nodes = nodes_seen_by(&self.two);
            match nodes.iter().any(|node| node["state"] == "lost") {
                true => Ok(()),
                false => Err(format!("{nodes:?}")),
            }
        });
        until("the session to be taken over", SOON * 2, || {
            match there.act(session, "resume").status {
                200..300 => Ok(()),
                other => Err(other.to_string()),
            }
        });
    }

    /// Waits until more data has arrived from both.
    pub(crate) fn wait_for_more(&self, session: &str, epoch: &str) {
        let name = format!("cove:{session}:{epoch}");
        let (rows, requests) = (self.rows(&name), self.requests(epoch));
        until("rows and requests", SOON, || match (self.rows(&name), self.requests(epoch)) {
            (more, others) if more > rows + 2 && others > requests + 2 => Ok(()),
            found => Err(format!("{found:?}")),
        });
    }
}

fn sessions_log(sessions: &Sessions, session: &str) -> String {
    sessions.read(session, "log").text()
}

fn receiver_at(address: SocketAddr) -> String {
    format!("127.0.0.1:{}", address.port())
}

/// Waits until a server logs that its lease is over.
fn wait_for_end_of_lease(server: &Server) {
    until("the end of the lease", SOON * 2, || match server.log() {
        log if log.contains("the lease of this server is over") => Ok(()),
        log => Err(log),
    });
}

#[test]
fn nothing_of_a_session_leaves_a_server_without_its_lease() {
    let _guard = beside_others();
    let mut stage = start();
    let here = Sessions::from(&stage.one);
    let session = create_of_at(&here, &json!({"agent": "probe", "grants": stage.grants()}));
    stage.begin(&here, &session);
    stage.wait_for_more(&session, "1");
    assert!(stage.receiver.delivered().iter().all(|it| it.header("cove-session") == session));

    // No other node can take the session over.
    stage.two.signal("TERM");
    assert!(stage.two.wait(SOON).success());
    stage.way.silence(true);
    wait_for_end_of_lease(&stage.one);
    let name = format!("cove:{session}:1");
    let refused = || {
        assert_eq!(here.read(&session, "log").status, 503);
        (stage.rows(&name), stage.requests("1"))
    };
    // Data in transit arrives by then; further rows would arrive by the last request.
    for _ in 0..REFUSED_REQUESTS {
        refused();
    }
    let before = refused();
    for _ in 0..REFUSED_REQUESTS {
        assert_eq!(refused(), before);
    }

    stage.way.silence(false);
    stage.wait_for_more(&session, "1");
}

/// The next owner ends statements that its stopped predecessor has running in the database.
#[test]
fn a_session_that_is_taken_over_ends_what_its_former_owner_has_running() {
    let _guard = beside_others();
    let stage = start();
    let (here, there) = (Sessions::from(&stage.one), Sessions::from(&stage.two));
    let session = create_of_at(&here, &json!({"agent": "probe", "grants": stage.grants()}));
    // A turn's files are in the object store when the next turn begins.
    for text in ["one", "two"] {
        here.ask(&session, text);
    }
    let command = "nohup setsid psql -c \"BEGIN; INSERT INTO numbers VALUES (0); \
        SELECT pg_sleep(600)\" >log 2>&1 </dev/null &";
    here.out(&session, command);
    let running = || {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' \
             AND application_name = 'cove:{session}:1'"
        );
        stage.backend.sql(&sql).trim().to_owned()
    };
    until("the statement to run", SOON, || match running().as_str() {
        "1" => Ok(()),
        other => Err(other.to_owned()),
    });
    stage.stop_the_first(&there, &session);
    stage.begin(&there, &session);
    let epoch = until("a request of the next owner", SOON, || {
        let delivered = stage.receiver.delivered();
        let last = delivered.last().map(|it| it.header("cove-epoch").to_owned());
        last.ok_or_else(|| sessions_log(&there, &session))
    });
    assert!(epoch.parse::<u64>().unwrap() > 1, "{epoch}");
    stage.wait_for_more(&session, &epoch);
    assert_eq!(running(), "0");
    let first = stage.backend.sql("SELECT count(*) FROM numbers WHERE n = 0");
    assert_eq!(first.trim(), "0", "its transaction was undone");
    stage.one.signal("CONT");
}

/// A running statement and an idle open transaction on `MariaDB`.
#[test]
fn a_session_that_is_taken_over_ends_what_its_former_owner_has_running_at_mariadb() {
    let _guard = beside_others();
    let maria = MariaDb::start();
    maria.sql(
        "CREATE DATABASE store; CREATE TABLE store.t (id INT PRIMARY KEY, n INT) ENGINE=InnoDB; \
         INSERT INTO store.t VALUES (1, 0), (2, 0)",
    );
    maria.user("clerk", "pw");
    let tenant = format!(
        "[[bouncer.tenants]]\nname = \"store\"\nengine = \"mysql\"\nserver = \"{}\"\n\
         users = [{{ name = \"clerk\", password = \"pw\" }}]\n",
        maria.tcp()
    );
    let stage = start_with_tenants("", &tenant);
    let (here, there) = (Sessions::from(&stage.one), Sessions::from(&stage.two));
    let grants = json!([{"kind": "mysql", "tenant": "store", "access": "read_write"}]);
    let session = create_of_at(&here, &json!({"agent": "probe", "grants": grants}));
    for text in ["one", "two"] {
        here.ask(&session, text);
    }
    let written = here.write(&session, "holder.py", MYSQL_HOLDER.as_bytes());
    assert!(written.status < 300, "{}", written.text());
    here.out(&session, "nohup setsid python3 holder.py >log 2>&1 </dev/null &");
    let running = || {
        let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                   WHERE info LIKE 'SELECT SLEEP%'";
        maria.sql(sql)
    };
    until("the statement to run", SOON, || match running().as_str() {
        "1" => Ok(()),
        other => Err(format!("{other}: {}", sessions_log(&here, &session))),
    });
    stage.stop_the_first(&there, &session);
    // The first connection waits until the predecessor's connections have ended.
    let program = "import pymysql; connection = pymysql.connect(autocommit=True); \
        cursor = connection.cursor(); cursor.execute('SET innodb_lock_wait_timeout = 1'); \
        print(cursor.execute('UPDATE t SET n = n + 10'))";
    let said = there.out(&session, &format!("python3 -c \"{program}\""));
    assert_eq!(said.trim(), "2");
    assert_eq!(running(), "0");
    assert_eq!(maria.sql("SELECT GROUP_CONCAT(n) FROM store.t"), "10,10", "it was undone");
    stage.one.signal("CONT");
}
