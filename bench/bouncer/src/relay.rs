//! The relay between the two pipes: the link of `bouncer`, driven as its relay threads drive it,
//! but for one client and one server connection. One read is one turn, which writes to each side at
//! most once.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use pooler_core::link::{
    ClientLink, ClientNext, DepartureAction as Gone, LinkOutputs as Outputs,
    ProtocolLinks as Links, ServerLink, ServerNext,
};
use pooler_core::pg::statements::HashKey;

use crate::pipe::End;

const SCRATCH_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// Every transaction is followed by `DISCARD ALL`, as if its client had left.
    Always,
    /// Only transactions that change the session are followed by a reset; this work does not.
    DirtyOnly,
    /// Bytes are passed through unread: the cost of the pipes and tasks alone.
    Unseen,
}

impl Reset {
    pub const ALL: [Reset; 3] = [Reset::Always, Reset::DirtyOnly, Reset::Unseen];

    pub fn name(self) -> &'static str {
        match self {
            Reset::Always => "reset_always",
            Reset::DirtyOnly => "dirty_only",
            Reset::Unseen => "unseen",
        }
    }
}

/// A client and a server connection, logged in.
pub type Sessions = (ClientLink, ServerLink);

pub async fn run(client: End, server: End, reset: Reset, sessions: fn(Reset) -> Sessions) {
    if reset == Reset::Unseen {
        carry(&client, &server).await;
    } else {
        Relay::new(reset, sessions(reset)).run(&client, &server).await;
    }
}

async fn carry(client: &End, server: &End) {
    let mut scratch = vec![0; SCRATCH_BYTES];
    loop {
        let (n, side) = poll_fn(|context| either(client, server, &mut scratch, context)).await;
        match side {
            Side::Client => server.write_all(&scratch[..n]).await,
            Side::Server => client.write_all(&scratch[..n]).await,
        }
    }
}

enum Side {
    Client,
    Server,
}

/// Reads available bytes of either side; the server's first.
fn either(
    client: &End,
    server: &End,
    into: &mut [u8],
    context: &Context<'_>,
) -> Poll<(usize, Side)> {
    if let Poll::Ready(n) = server.poll_read(into, context) {
        return Poll::Ready((n, Side::Server));
    }
    client.poll_read(into, context).map(|n| (n, Side::Client))
}

struct Relay {
    reset: Reset,
    links: Links,
    client: ClientLink,
    server: ServerLink,
    /// Whether the client holds the server connection.
    attached: bool,
    /// Bytes of the client that must wait, and whether they wait for the server connection.
    client_rest: Vec<u8>,
    wants_server: bool,
    server_rest: Vec<u8>,
    to_client: Vec<u8>,
    to_server: Vec<u8>,
}

impl Relay {
    fn new(reset: Reset, (client, server): Sessions) -> Relay {
        let links = Links::new(&HashKey::new(), &[Arc::default(), Arc::default()]);
        Relay {
            reset,
            links,
            client,
            server,
            attached: false,
            client_rest: Vec::new(),
            wants_server: false,
            server_rest: Vec::new(),
            to_client: Vec::new(),
            to_server: Vec::new(),
        }
    }

    async fn run(&mut self, client: &End, server: &End) {
        let mut scratch = vec![0; SCRATCH_BYTES];
        loop {
            let (n, side) = poll_fn(|context| either(client, server, &mut scratch, context)).await;
            match side {
                Side::Client => self.client_said(&scratch[..n]),
                Side::Server => self.server_said(&scratch[..n]),
            }
            if !self.to_client.is_empty() {
                client.write_all(&self.to_client).await;
                self.to_client.clear();
            }
            if !self.to_server.is_empty() {
                server.write_all(&self.to_server).await;
                self.to_server.clear();
            }
        }
    }

    fn client_said(&mut self, bytes: &[u8]) {
        // Copied only if bytes had to wait.
        if self.client_rest.is_empty() {
            let consumed = self.from_client(bytes);
            self.client_rest.extend_from_slice(&bytes[consumed..]);
        } else {
            self.client_rest.extend_from_slice(bytes);
            self.client_again();
        }
    }

    fn client_again(&mut self) {
        let rest = std::mem::take(&mut self.client_rest);
        let consumed = self.from_client(&rest);
        self.client_rest = rest;
        self.client_rest.drain(..consumed);
    }

    fn from_client(&mut self, bytes: &[u8]) -> usize {
        let mut consumed = 0;
        self.wants_server = false;
        while consumed < bytes.len() {
            let mut out =
                Outputs { to_client: &mut self.to_client, to_server: &mut self.to_server };
            let server = self.attached.then_some(&mut self.server);
            let client = &mut self.client;
            let taken = self.links.from_client(client, server, &bytes[consumed..], &mut out);
            consumed += taken.consumed;
            match taken.next {
                ClientNext::NeedServer if self.server.is_idle() => {
                    self.links.attach(&mut self.client, &mut self.server, &mut out);
                    self.attached = true;
                }
                ClientNext::NeedServer => {
                    self.wants_server = true;
                    break;
                }
                ClientNext::Released => self.attached = false,
                ClientNext::Read | ClientNext::Wait => break,
                next => panic!("the client's queries are plain: {next:?}"),
            }
        }
        consumed
    }

    fn server_said(&mut self, bytes: &[u8]) {
        if self.server_rest.is_empty() {
            let consumed = self.from_server(bytes);
            self.server_rest.extend_from_slice(&bytes[consumed..]);
        } else {
            self.server_rest.extend_from_slice(bytes);
            let rest = std::mem::take(&mut self.server_rest);
            let consumed = self.from_server(&rest);
            self.server_rest = rest;
            self.server_rest.drain(..consumed);
        }
        if self.wants_server && self.server.is_idle() {
            self.client_again();
        }
    }

    fn from_server(&mut self, bytes: &[u8]) -> usize {
        let mut consumed = 0;
        while consumed < bytes.len() {
            let mut out =
                Outputs { to_client: &mut self.to_client, to_server: &mut self.to_server };
            let client = self.attached.then_some(&mut self.client);
            let server = &mut self.server;
            let taken = self.links.from_server(server, client, &bytes[consumed..], &mut out);
            consumed += taken.consumed;
            match taken.next {
                ServerNext::Released => self.attached = false,
                ServerNext::Idle => {}
                ServerNext::Read => {
                    self.reset_after_transaction();
                    break;
                }
                next => panic!("the server's answers are plain: {next:?}"),
            }
        }
        consumed
    }

    fn reset_after_transaction(&mut self) {
        let over =
            self.attached && !self.server.has_client_entries() && !self.client.is_in_transaction();
        if self.reset == Reset::Always && over {
            let mut out =
                Outputs { to_client: &mut self.to_client, to_server: &mut self.to_server };
            let gone = self.links.client_gone(&self.client, &mut self.server, &mut out);
            assert_eq!(gone, Gone::Draining, "the reset is under way");
            self.client.server_lost();
            self.attached = false;
        }
    }
}
