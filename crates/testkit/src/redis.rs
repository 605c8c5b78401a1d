//! A Redis server of a test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::service::{Service, directory, find, free_port};

/// Longest silence of the server that a test accepts.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A running server on a port of loopback. It evicts nothing, as queues need it, and appends every
/// command to a file, so that it can be killed and started again.
#[derive(Debug)]
pub struct Redis {
    service: Service,
    port: u16,
}

impl Redis {
    /// Starts an empty server.
    #[must_use]
    pub fn start() -> Redis {
        let scratch = directory();
        let port = free_port();
        let path = scratch.path().display().to_string();
        let mut arguments: Vec<String> = vec!["--port".to_owned(), port.to_string()];
        for setting in [
            ["--bind", "127.0.0.1"],
            ["--dir", &path],
            ["--appendonly", "yes"],
            ["--appendfsync", "no"],
            ["--save", ""],
            ["--maxmemory-policy", "noeviction"],
            ["--daemonize", "no"],
        ] {
            arguments.extend(setting.map(str::to_owned));
        }
        let arguments = arguments.into_iter().map(Into::into).collect();
        let service = Service::start(scratch, &find("redis-server", &[]), arguments, "KILL");
        let server = Redis { service, port };
        server.wait_ready();
        server
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
