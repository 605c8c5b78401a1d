//! Network of a test: machines are network namespaces, which a bridge in another namespace connects
//! with each other and with this machine. The namespaces end with the processes that hold them,
//! which end with the test.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{Cutter, until};

/// Networks of RFC 2544 (198.18.0.0/15), which are not routed: one with 256 addresses each.
const FIRST_NETWORK: [u8; 2] = [198, 18];
const NETWORKS: u16 = 512;
/// Number of this machine in its network; those of the other machines follow.
const GATEWAY: u8 = 1;
/// Time for a process to enter its namespace.
const START_MAX: Duration = Duration::from_secs(20);

/// Network with machines. Dropping it removes it.
#[derive(Debug)]
pub struct Network {
    prefix: [u8; 3],
    /// Name of this machine's link end.
    uplink: String,
    /// Reserves the addresses against other tests.
    _reserved: UnixListener,
    switch: Holder,
    machines: Vec<Holder>,
}

/// Process that only holds a network namespace.
#[derive(Debug)]
struct Holder(Child);

/// Location of a server: a machine of a network, or this one.
#[derive(Clone, Debug)]
pub struct NetworkPlace {
    /// Address of the machine.
    pub address: IpAddr,
    /// File of its network namespace; none for this machine.
    pub(crate) namespace: Option<PathBuf>,
}

impl NetworkPlace {
    /// Loopback of this machine.
    pub(crate) const LOOPBACK: NetworkPlace =
        NetworkPlace { address: IpAddr::V4(Ipv4Addr::LOCALHOST), namespace: None };

    /// Returns an address for a listener. A machine of a network uses the given port, and this
    /// machine any free port.
    #[must_use]
    pub fn listener(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, if self.namespace.is_some() { port } else { 0 })
    }

    /// Returns a command that runs a program on this machine.
    pub(crate) fn command(&self, program: &std::path::Path) -> Command {
        match &self.namespace {
            None => crate::command(program),
            Some(namespace) => {
                // `nsenter` executes the program in place, so that the command's process id is the
                // program's.
                let mut command = crate::command("nsenter");
                command.arg(format!("--net={}", namespace.display())).arg("--").arg(program);
                command
            }
        }
    }
}

impl Holder {
    fn start() -> Holder {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "unshare", "--net", "--", "sleep", "infinity"]);
        let child = command.stdin(Stdio::null()).spawn().expect("start a holder of a namespace");
        let holder = Holder(child);
        let own = fs::read_link("/proc/self/ns/net").expect("this network namespace");
        until("a network namespace", START_MAX, || match fs::read_link(holder.namespace()) {
            Ok(namespace) if namespace != own => Ok(()),
            other => Err(format!("{other:?}")),
        });
        holder
    }

    fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.id()).into()
    }

    /// Runs `ip` in the namespace.
    fn ip(&self, arguments: &str) {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace().display())).arg("ip");
        run(command.args(arguments.split(' ')));
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The link would disappear with its namespace, but later, and another test may need the
        // name. It may be missing already.
        drop(Command::new("ip").args(["link", "delete", &self.uplink]).output());
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// Reserves addresses that no other test uses. The socket's name is freed when its process ends.
fn reserve() -> (u16, UnixListener) {
    let free = (0..NETWORKS).find_map(|index| {
        let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("cove-test-{index}"));
        let reserved = UnixListener::bind_addr(&name.expect("a short name"));
        reserved.ok().map(|reserved| (index, reserved))
    });
    free.expect("a network that no other test has")
}

impl Network {
    /// Creates a network with `count` machines.
    ///
    /// # Panics
    /// If it cannot be created: that requires root and Debian's package `iproute2`.
    #[must_use]
    pub fn start(count: u8) -> Network {
        let (index, reserved) = reserve();
        let [high, low] = index.to_be_bytes();
        let prefix = [FIRST_NETWORK[0], FIRST_NETWORK[1] + high, low];
        let switch = Holder::start();
        switch.ip("link add name switch type bridge");
        switch.ip("link set switch up");
        // This machine's end needs a name that is unique on the host.
        let uplink = format!("cove-test-{index}");
        let peer = format!("type veth peer name uplink netns {}", switch.0.id());
        // The link of a killed test may be about to disappear.
        until("a link of its own", START_MAX, || {
            let mut command = Command::new("ip");
            command.args(["link", "add", "name", &uplink]).args(peer.split(' '));
            let output = command.output().map_err(|error| error.to_string())?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() { Ok(()) } else { Err(said) }
        });
        switch.ip("link set uplink master switch up");
        let machines = Vec::new();
        let network = Network { prefix, uplink, _reserved: reserved, switch, machines };
        let own = format!("{}/24", network.numbered(GATEWAY));
        run(Command::new("ip").args(["address", "add", &own, "dev", &network.uplink]));
        run(Command::new("ip").args(["link", "set", &network.uplink, "up"]));
        (0..count).fold(network, Network::with_machine)
    }

    fn with_machine(mut self, index: u8) -> Network {
        let machine = Holder::start();
        let peer = format!("type veth peer name eth0 netns {}", machine.0.id());
        self.switch.ip(&format!("link add name port{index} {peer}"));
        self.switch.ip(&format!("link set port{index} master switch up"));
        let address = self.numbered(GATEWAY + 1 + index);
        machine.ip("link set lo up");
        machine.ip(&format!("address add {address}/24 dev eth0"));
        machine.ip("link set eth0 up");
        self.machines.push(machine);
        self
    }

    fn numbered(&self, number: u8) -> Ipv4Addr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, number)
    }

    /// Returns a machine, by its index.
    #[must_use]
    pub fn place(&self, machine: usize) -> NetworkPlace {
        let number = u8::try_from(machine).expect("one of its machines");
        NetworkPlace {
            address: self.numbered(GATEWAY + 1 + number).into(),
            namespace: Some(self.machines[machine].namespace()),
        }
    }

    /// Lets machines reach a service on loopback of this machine, through a proxy that can make it
    /// slow or silent.
    #[must_use]
    pub fn expose(&self, service: SocketAddr) -> Cutter {
        Cutter::start_at(self.numbered(GATEWAY).into(), service)
    }

    /// Unplugs the cable of a machine, or plugs it in again. Packets are lost without an error.
    pub fn connect(&self, machine: usize, is_connected: bool) {
        let state = if is_connected { "up" } else { "down" };
        self.switch.ip(&format!("link set port{machine} {state}"));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_network_is_gone_when_the_next_one_is_made() {
        for _ in 0..2 {
            let network = Network::start(2);
            let service = TcpListener::bind("127.0.0.1:0").expect("a port");
            let way = network.expose(service.local_addr().expect("an address"));
            // A machine reaches the service, unless its cable is unplugged.
            let reaches = || {
                let (ip, port) = (way.address().ip(), way.address().port());
                let probe = format!("exec 3<>/dev/tcp/{ip}/{port}");
                let mut command = network.place(1).command("timeout".as_ref());
                command.args(["2", "bash", "-c", &probe]).stderr(Stdio::null());
                command.status().expect("run a probe").success()
            };
            assert!(reaches());
            network.connect(1, false);
            assert!(!reaches());
            network.connect(1, true);
            until("the machine to be reached again", START_MAX, || {
                if reaches() { Ok(()) } else { Err("it is not".to_owned()) }
            });
        }
    }
}
