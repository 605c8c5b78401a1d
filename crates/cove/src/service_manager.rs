//! Notifications to the service manager that started this process: ready and stopping.
//!
//! Protocol: `sd_notify(3)`, <https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>.
//! Datagrams of lines `NAME=value` to the socket that `NOTIFY_SOCKET` names; a path, or behind `@`
//! a name in the abstract namespace (unix(7)).

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use node::drain::DrainHandle;

use crate::config::Environment;

/// Variable with the socket's address.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
const READY: &str = "READY=1\nSTATUS=serving";
const STOPPING: &str = "STOPPING=1\nSTATUS=waiting for running programs";

/// Returns whether a service manager started this process and expects notifications.
pub(crate) fn is_waiting(environment: &Environment) -> bool {
    environment.get(SOCKET_VARIABLE).is_some()
}

/// Notifies the service manager when the server is ready, and when it stops. Does nothing without
/// one.
pub(crate) async fn follow(environment: &Environment, drain: &DrainHandle) {
    let Some(socket) = environment.get(SOCKET_VARIABLE) else { return };
    notify(socket, READY);
    drain.begun().await;
    notify(socket, STOPPING);
}

fn notify(socket: &str, state: &str) {
    if let Err(error) = send(socket, state) {
        // Without READY the service manager stops the server after its timeout, and the log then
        // has the reason.
        tracing::warn!(socket, %error, "failed to tell the service manager how the server is");
    }
}

fn send(socket: &str, state: &str) -> io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let datagram = UnixDatagram::unbound()?;
    // A service manager that does not read must not block the server.
    datagram.set_nonblocking(true)?;
    datagram.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn received(listener: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = listener.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    async fn check(socket: &str, listener: &UnixDatagram) {
        let variables = BTreeMap::from([(SOCKET_VARIABLE.to_owned(), socket.to_owned())]);
        let environment = Environment::made_up(variables);
        assert!(is_waiting(&environment));
        let drain = DrainHandle::new();
        let stop = async {
            assert_eq!(received(listener), READY);
            drain.begin();
        };
        tokio::join!(follow(&environment, &drain), stop);
        assert_eq!(received(listener), STOPPING);
    }

    #[tokio::test]
    async fn a_service_manager_hears_that_the_server_serves_and_stops() {
        let name = format!("cove-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        check(&format!("@{name}"), &listener).await;

        let scratch = testkit::Scratch::new();
        let path = scratch.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        check(path.to_str().unwrap(), &listener).await;
    }

    #[tokio::test]
    async fn without_one_nothing_is_said() {
        let environment = Environment::made_up(BTreeMap::new());
        assert!(!is_waiting(&environment));
        follow(&environment, &DrainHandle::new()).await;
    }
}
