//! Options of the command line: `name=value`, in any order.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The server's protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Postgres,
    Mysql,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) protocol: Protocol,
    pub(crate) address: String,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) password: String,
    /// `?` in it is replaced by the connection's number, which must be the answer.
    pub(crate) statement: String,
    /// The first of these numbers.
    pub(crate) value: usize,
    pub(crate) connections: usize,
    /// Additional connections that send one statement, close and reconnect.
    pub(crate) churners: usize,
    /// Maximum number of answers of each connection.
    pub(crate) trips: u64,
    /// Maximum time of each connection.
    pub(crate) seconds: Duration,
    /// Mean time between an answer and the next statement.
    pub(crate) think: Duration,
    /// Common start time of the statements.
    pub(crate) at: Option<SystemTime>,
}

impl Options {
    pub(crate) fn parse(words: &[String]) -> Result<Options, String> {
        let mut options = Options {
            protocol: Protocol::Postgres,
            address: String::new(),
            user: String::new(),
            database: String::new(),
            password: String::new(),
            statement: "SELECT ?".to_owned(),
            value: 1,
            connections: 1,
            churners: 0,
            trips: u64::MAX,
            seconds: Duration::MAX,
            think: Duration::ZERO,
            at: None,
        };
        for word in words {
            let (name, value) = word.split_once('=').ok_or(format!("{word}: not name=value"))?;
            options.set(name, value).ok_or(format!("{word}: cannot be"))?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let text = value.to_owned();
        match name {
            "protocol" => {
                self.protocol = match value {
                    "postgres" => Protocol::Postgres,
                    "mysql" => Protocol::Mysql,
                    _ => return None,
                }
            }
            "address" => self.address = text,
            "user" => self.user = text,
            "database" => self.database = text,
            "password" => self.password = text,
            "statement" => self.statement = text,
            "value" => self.value = value.parse().ok()?,
            "connections" => self.connections = value.parse().ok()?,
            "churners" => self.churners = value.parse().ok()?,
            "trips" => self.trips = value.parse().ok()?,
            "seconds" => self.seconds = Duration::try_from_secs_f64(value.parse().ok()?).ok()?,
            "think_ms" => self.think = Duration::from_millis(value.parse().ok()?),
            "at_ms" => self.at = Some(UNIX_EPOCH + Duration::from_millis(value.parse().ok()?)),
            _ => return None,
        }
        Some(())
    }

    /// Returns the time until the common start.
    pub(crate) fn milliseconds_left(&self) -> u64 {
        let left = self.at.and_then(|at| at.duration_since(SystemTime::now()).ok());
        left.map_or(0, |left| u64::try_from(left.as_millis()).unwrap_or(0))
    }

    pub(crate) fn goes_on(&self, asked: u64, elapsed: Duration) -> bool {
        asked < self.trips && elapsed < self.seconds
    }
}
