//! Balancer in front of several servers: Debian's HAProxy, which sends each request, or each
//! connection, to the next server in turn.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{Scratch, until};

/// Debian's path, which is not in the search path of unprivileged users.
const HAPROXY: &str = "/usr/sbin/haproxy";
/// Configuration file, in the balancer's directory.
const CONFIG: &str = "haproxy.cfg";
/// Time limit for its start.
const START_MAX: Duration = Duration::from_secs(20);

/// Unit of balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancedUnit {
    /// Each HTTP request.
    Request,
    /// Each connection.
    Connection,
}

/// Running balancer, which is stopped on drop.
#[derive(Debug)]
pub struct Balancer {
    process: Child,
    addresses: Vec<SocketAddr>,
    scratch: Scratch,
}

impl Balancer {
    /// Starts a balancer with a port for each group of servers.
    ///
    /// # Panics
    /// If HAProxy is not installed or does not start.
    #[must_use]
    pub fn start(groups: &[(BalancedUnit, Vec<SocketAddr>)]) -> Balancer {
        assert!(Path::new(HAPROXY).is_file(), "no {HAPROXY}; scripts/test-deps.sh installs it");
        let scratch = Scratch::new();
        let mut config = "global\n  maxconn 2000\ndefaults\n  timeout connect 5s\n  \
            timeout client 10m\n  timeout server 10m\n  timeout tunnel 10m\n  \
            timeout check 2s\n  option redispatch\n  \
            default-server check inter 500ms fall 2 rise 1\n  balance roundrobin\n"
            .to_owned();
        let mut addresses = Vec::new();
        for (index, (unit, servers)) in groups.iter().enumerate() {
            let mode = match unit {
                BalancedUnit::Request => "http",
                BalancedUnit::Connection => "tcp",
            };
            let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
            let address = free.expect("find a free port");
            writeln!(config, "listen group{index}\n  mode {mode}\n  bind {address}")
                .expect("write text");
            for (number, server) in servers.iter().enumerate() {
                writeln!(config, "  server node{number} {server}").expect("write text");
            }
            addresses.push(address);
        }
        scratch.file(CONFIG, &config);
        let balancer = Balancer { process: spawn(&scratch), addresses, scratch };
        balancer.wait_ready();
        balancer
    }

    /// Kills the balancer with all connections, and restarts it.
    pub fn restart(&mut self) {
        self.stop();
        self.process = spawn(&self.scratch);
        self.wait_ready();
    }

    fn wait_ready(&self) {
        for address in &self.addresses {
            until("HAProxy to listen", START_MAX, || {
                TcpStream::connect(address).map(drop).map_err(|error| error.to_string())
            });
        }
    }

    fn stop(&mut self) {
        // It may have ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }

    /// Returns the address of a group, by its index.
    #[must_use]
    pub fn address(&self, group: usize) -> SocketAddr {
        self.addresses[group]
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(scratch: &Scratch) -> Child {
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", HAPROXY, "-db", "-q", "-f"])
        .arg(scratch.path().join(CONFIG))
        .stdin(Stdio::null())
        .spawn()
        .expect("start HAProxy")
}
