//! Resolution of servers' names, outside of the relay threads: the system's resolver blocks.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::orders::{ThreadInbox, ThreadMessageKind};

/// Time that an answer is reused. The resolver does not report its time to live.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(15);

/// Maximum number of cached names; when it is reached, all are dropped.
const ANSWERS_MAX: usize = 1024;

/// Maximum number of requests that wait for the thread. Further ones fail, and are retried later.
const QUESTIONS_MAX: usize = 1024;

struct ResolveRequest {
    host: Arc<str>,
    port: u16,
    serial: u64,
    inbox: Arc<ThreadInbox>,
}

/// The thread that calls the system's resolver.
#[derive(Debug)]
pub(crate) struct ResolverThread {
    questions: SyncSender<ResolveRequest>,
}

/// Returns the address if `host` is a literal one.
pub(crate) fn literal(host: &str, port: u16) -> Option<SocketAddr> {
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    Some(SocketAddr::new(bare.parse::<IpAddr>().ok()?, port))
}

impl ResolverThread {
    /// Starts the thread. It ends when this is dropped and its last lookup returns, for which
    /// nothing waits: the system's resolver may take a minute.
    pub(crate) fn start() -> std::io::Result<ResolverThread> {
        let (questions, inbox) = sync_channel(QUESTIONS_MAX);
        let thread = std::thread::Builder::new().name("bouncer-dns".to_owned());
        drop(thread.spawn(move || run(&inbox))?);
        Ok(ResolverThread { questions })
    }

    /// Requests the addresses of `host`; `inbox` receives [`ThreadMessageKind::Resolved`]. Returns
    /// false if too many requests wait already.
    #[must_use]
    pub(crate) fn ask(&self, host: &str, port: u16, serial: u64, inbox: &Arc<ThreadInbox>) -> bool {
        let (host, inbox) = (host.into(), Arc::clone(inbox));
        match self.questions.try_send(ResolveRequest { host, port, serial, inbox }) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

fn run(questions: &Receiver<ResolveRequest>) {
    let mut answers: HashMap<Arc<str>, (Instant, Vec<IpAddr>)> = HashMap::new();
    while let Ok(question) = questions.recv() {
        let ResolveRequest { host, port, serial, inbox } = question;
        let now = node::clock::now();
        let known = answers.get(&host).filter(|(at, _)| now - *at < ANSWER_AGE_MAX);
        let result = match known {
            Some((_, addresses)) => Ok(addresses.clone()),
            None => look_up(&host).inspect(|addresses| {
                if answers.len() >= ANSWERS_MAX {
                    answers.clear();
                }
                answers.insert(Arc::clone(&host), (now, addresses.clone()));
            }),
        };
        let addresses = result.map(|addresses| {
            addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()
        });
        inbox.push(ThreadMessageKind::Resolved { serial, addresses });
    }
}

fn look_up(host: &str) -> Result<Vec<IpAddr>, String> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    let mut failure = "the name has no address".to_owned();
    for name in host.split(',') {
        // The port does not matter to the resolver, but the interface requires one.
        match (name, 0).to_socket_addrs() {
            Ok(found) => addresses.extend(found.map(|address| address.ip())),
            Err(error) => failure = error.to_string(),
        }
    }
    if addresses.is_empty() { Err(failure) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_need_no_resolver() {
        let check = |host: &str, expected: Option<&str>| {
            let expected = expected.map(|it| it.parse().expect("address"));
            assert_eq!(literal(host, 5432), expected, "{host}");
        };
        check("127.0.0.1", Some("127.0.0.1:5432"));
        check("::1", Some("[::1]:5432"));
        check("[::1]", Some("[::1]:5432"));
        check("localhost", None);
        check("db.example.com", None);
    }

    #[test]
    fn the_name_of_this_machine_has_an_address() {
        let several = look_up("127.0.0.9,nowhere.invalid,::1").expect("addresses");
        assert_eq!(several, ["127.0.0.9", "::1"].map(|it| it.parse::<IpAddr>().expect("address")));
        assert!(look_up("localhost").expect("addresses").iter().all(IpAddr::is_loopback));
    }
}
