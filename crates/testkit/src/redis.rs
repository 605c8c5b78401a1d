//! Redis server of a test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::service::{Service, directory, find, free_port, unprivileged};
use crate::{Scratch, until};

/// Longest silence of the server that a test accepts.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a replica to catch up with its master on a busy machine.
const REPLICA_LIMIT: Duration = Duration::from_secs(60);
/// Milliseconds for which writes are paused unless resumed earlier: longer than any test.
const HELD_MS: u32 = 600_000;

/// Running server on a loopback port. It evicts nothing, as queues require, and appends every
/// command to a file, so that it can be killed and restarted.
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

    /// Starts a replica of this server, and waits until it has caught up.
    #[must_use]
    pub fn replica(&self) -> Redis {
        let replica = Redis::start();
        replica.follow(self);
        until("the replica to follow", REPLICA_LIMIT, || {
            let link = replica.info("replication", "master_link_status");
            if link == "up" { Ok(()) } else { Err(link) }
        });
        self.wait_for(&replica);
        replica
    }

    /// Makes it a replica of another server, whose data replaces its own.
    pub fn follow(&self, master: &Redis) {
        let answer = self.command(&format!("REPLICAOF 127.0.0.1 {}", master.port));
        assert!(answer.starts_with("+OK"), "{answer}");
    }

    /// Makes it a master with the data that it has received so far.
    pub fn promote(&self) {
        assert_eq!(self.command("REPLICAOF NO ONE"), "+OK");
    }

    /// Pauses writes of clients; they wait until [`Redis::let_writes`].
    pub fn hold_writes(&self) {
        assert_eq!(self.command(&format!("CLIENT PAUSE {HELD_MS} WRITE")), "+OK");
    }

    /// Resumes writes, including the waiting ones.
    pub fn let_writes(&self) {
        assert_eq!(self.command("CLIENT UNPAUSE"), "+OK");
    }

    /// Waits until a replica has caught up.
    pub fn wait_for(&self, replica: &Redis) {
        until("the replica to have everything", REPLICA_LIMIT, || {
            let offsets = [self, replica].map(|it| it.info("replication", "master_repl_offset"));
            if offsets[0] == offsets[1] { Ok(()) } else { Err(format!("{offsets:?}")) }
        });
    }

    /// Returns a field of a section of `INFO`; empty if it is missing.
    #[must_use]
    pub fn info(&self, section: &str, field: &str) -> String {
        let asked = self.ask_text(&format!("INFO {section}"));
        let text = asked.unwrap_or_else(|error| panic!("INFO {section}: {error}"));
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(name, _)| *name == field);
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    }

    /// Kills the server, and restarts it with its data.
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

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Returns the URL of its first database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Sends one command, words separated by spaces, and returns the first line of the response.
    #[must_use]
    pub fn command(&self, command: &str) -> String {
        self.ask(command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Sends a signal to the server, named without `SIG`.
    pub fn signal(&self, name: &str) {
        self.service.signal(name);
    }

    fn send(&self, command: &str) -> std::io::Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        Ok(BufReader::new(stream))
    }

    fn ask(&self, command: &str) -> std::io::Result<String> {
        let mut line = String::new();
        self.send(command)?.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Sends a command whose response is a text with its length.
    fn ask_text(&self, command: &str) -> std::io::Result<String> {
        let (mut answer, mut line) = (self.send(command)?, String::new());
        answer.read_line(&mut line)?;
        let length = line.trim_end().strip_prefix('$').and_then(|length| length.parse().ok());
        let mut text = vec![0; length.ok_or_else(|| std::io::Error::other(line))?];
        answer.read_exact(&mut text)?;
        String::from_utf8(text).map_err(std::io::Error::other)
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
        let replica = server.replica();
        server.hold_writes();
        server.let_writes();
        assert_eq!(server.command("INCR a"), ":3");
        server.wait_for(&replica);
        assert!(replica.command("INCR a").starts_with("-READONLY"));
        replica.promote();
        assert_eq!(replica.command("INCR a"), ":4");
        assert_eq!(server.command("INCR a"), ":4");
        let marker = format!("127.0.0.1:{}", server.port);
        assert!(!process::with_marker(&marker).is_empty(), "{marker}");
        drop(server);
        assert!(process::with_marker(&marker).is_empty());
    }
}
