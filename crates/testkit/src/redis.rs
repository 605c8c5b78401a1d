//! A Redis server of a test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::Scratch;
use crate::service::{Service, directory, find, free_port, unprivileged};

/// Longest silence of the server that a test accepts.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A running server on a port of loopback. It evicts nothing, as queues need it, and appends every
/// command to a file, so that it can be killed and started again.
#[derive(Debug)]
pub struct Redis {
    service: Service,
    port: u16,
}

fn command(scratch: &Scratch, port: u16) -> Command {
    let mut command = unprivileged(&find("redis-server", &[]), "KILL");
    command.args(["--port", &port.to_string(), "--dir"]).arg(scratch.path());
    for setting in [
        ["--bind", "127.0.0.1"],
        ["--appendonly", "yes"],
        ["--appendfsync", "no"],
        ["--save", ""],
        ["--maxmemory-policy", "noeviction"],
        ["--daemonize", "no"],
    ] {
        command.args(setting);
    }
    command
}

impl Redis {
    /// Starts an empty server.
    #[must_use]
    pub fn start() -> Redis {
        let (scratch, port) = (directory(), free_port());
        let command = command(&scratch, port);
        let service = Service::start_command(scratch, command, "KILL");
        let server = Redis { service, port };
        server.wait_ready();
        server
    }

    /// Kills the server, and starts it again with what it had.
    pub fn restart(&mut self) {
        let command = command(self.service.scratch(), self.port);
        self.service.start_again(command);
        self.wait_ready();
    }

    fn wait_ready(&self) {
        self.service.wait_ready("Redis", || match self.ask("PING") {
            Ok(answer) if answer == "+PONG" => Ok(()),
            Ok(answer) => Err(answer),
            Err(error) => Err(error.to_string()),
        });
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The address of its first database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Sends one command, words divided by spaces, and gives the first line of the answer.
    #[must_use]
    pub fn command(&self, command: &str) -> String {
        self.ask(command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Sends it a signal, named without `SIG`.
    pub fn signal(&self, name: &str) {
        self.service.signal(name);
    }

    fn ask(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn a_server_answers_and_leaves_nothing_behind() {
        let server = Redis::start();
        assert_eq!(server.command("SET a 1"), "+OK");
        assert_eq!(server.command("INCR a"), ":2");
        let marker = format!("127.0.0.1:{}", server.port);
        assert!(!process::with_marker(&marker).is_empty(), "{marker}");
        drop(server);
        assert!(process::with_marker(&marker).is_empty());
    }
}
