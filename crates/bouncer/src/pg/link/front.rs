//! What comes from a client.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::PoolMode;
use wire::pg::exchange::{Audience, Copying, Request};
use wire::pg::frame::{
    HEADER_BYTES, Header, TransactionStatus, frontend, put_header, split_string,
};
use wire::pg::message::{self, ErrorFields};

use super::{
    ClientNext, FromClient, NAME_BYTES_MAX, Outputs, STATEMENT_BYTES_SCANNED_MAX, Shared, change,
};
use crate::pg::client::{Body, ClientSession};
use crate::pg::server::{Note, ServerSession};
use crate::pg::statements::{
    CLIENT_STATEMENTS_MAX, NameId, Presence, SERVER_NAME_PREFIX, Statement, Undo, write_close,
    write_parse,
};
use crate::pg::texts::Facts;

/// The name of a statement that no server has.
const NO_STATEMENT: &[u8] = b"cove: refused";

/// What became of one message.
enum Taken {
    /// So many bytes are dealt with; the message's rest streams.
    Bytes(usize),
    /// Nothing, before there are so many.
    More(usize),
    /// Nothing, before the server says something.
    Wait,
    NeedServer,
    Terminate,
    Refuse,
}

/// Deals with bytes of a client, as far as it can be. `server` is what [`super::attach`] gave it.
pub fn from_client(
    shared: &mut Shared,
    client: &mut ClientSession,
    mut server: Option<&mut ServerSession>,
    input: &[u8],
    out: &mut Outputs<'_>,
) -> FromClient {
    debug_assert_eq!(client.attached, server.is_some());
    let mut consumed = 0;
    let (next, want) = loop {
        let rest = input.get(consumed..).unwrap_or_default();
        if client.body.left > 0 {
            consumed += stream(&mut client.body, rest, out.to_server);
            if client.body.left > 0 {
                break (ClientNext::Read, 1);
            }
            continue;
        }
        let header = match Header::parse(rest) {
            Ok(Some(header)) => header,
            Ok(None) => break (ClientNext::Read, HEADER_BYTES),
            Err(error) => {
                refuse(out, "08P01", &error.to_string());
                break (ClientNext::Refuse, 0);
            }
        };
        let taken = match server.as_deref_mut() {
            None => alone(client, header, rest, out),
            Some(server) => Link { shared, client, server, out }.take(header, rest),
        };
        match taken {
            Taken::Bytes(bytes) => consumed += bytes,
            Taken::More(want) => break (ClientNext::Read, want),
            Taken::Wait => break (ClientNext::Wait, 0),
            Taken::NeedServer => break (ClientNext::NeedServer, 0),
            Taken::Terminate => break (ClientNext::Terminate, 0),
            Taken::Refuse => break (ClientNext::Refuse, 0),
        }
    };
    FromClient { consumed, want, next }
}

/// Takes the next part of a message whose head was seen.
pub(super) fn stream(body: &mut Body, rest: &[u8], to: &mut Vec<u8>) -> usize {
    let part = rest.get(..body.left).unwrap_or(rest);
    if body.pass {
        to.extend_from_slice(part);
    }
    body.left -= part.len();
    part.len()
}

/// Tells a client why it cannot stay.
fn refuse(out: &mut Outputs<'_>, code: &str, message: &str) -> Taken {
    message::backend::error(out.to_client, &ErrorFields::fatal(code, message));
    Taken::Refuse
}

/// Takes a message whose content matters to nobody.
fn pass_over(client: &mut ClientSession, header: Header) -> Taken {
    client.body = Body { left: header.body(), pass: false };
    Taken::Bytes(HEADER_BYTES)
}

/// A client without a server connection is between transactions: a few messages need no server.
fn alone(client: &mut ClientSession, header: Header, rest: &[u8], out: &mut Outputs<'_>) -> Taken {
    match header.tag {
        frontend::QUERY
        | frontend::PARSE
        | frontend::BIND
        | frontend::DESCRIBE
        | frontend::EXECUTE
        | frontend::CLOSE
        | frontend::FUNCTION_CALL => Taken::NeedServer,
        frontend::SYNC if header.total == HEADER_BYTES => {
            message::backend::ready_for_query(out.to_client, TransactionStatus::Idle);
            Taken::Bytes(header.total)
        }
        frontend::FLUSH if header.total == HEADER_BYTES => Taken::Bytes(header.total),
        // The rest of a copy that failed; a server reads over it too.
        frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => {
            pass_over(client, header)
        }
        frontend::TERMINATE => Taken::Terminate,
        _ => unknown(header, rest, out),
    }
}

fn unknown(header: Header, _rest: &[u8], out: &mut Outputs<'_>) -> Taken {
    let message = format!(
        "a message of type {:#04x} and {} bytes cannot be understood",
        header.tag, header.total
    );
    refuse(out, "08P01", &message)
}

/// A client and its server connection.
struct Link<'a, 'o> {
    shared: &'a mut Shared,
    client: &'a mut ClientSession,
    server: &'a mut ServerSession,
    out: &'a mut Outputs<'o>,
}

impl Link<'_, '_> {
    fn take(&mut self, header: Header, rest: &[u8]) -> Taken {
        if header.tag == frontend::TERMINATE {
            return Taken::Terminate;
        }
        if (self.client.barrier && !self.is_barrier_over()) || self.server.exchange.is_full() {
            return Taken::Wait;
        }
        self.client.barrier = false;
        let copying = self.server.exchange.copying();
        match header.tag {
            frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => self.copy(header),
            frontend::SYNC if header.total == HEADER_BYTES => self.sync(),
            frontend::FLUSH if header.total == HEADER_BYTES => {
                if copying == Copying::None {
                    put_header(self.out.to_server, frontend::FLUSH, 0);
                }
                Taken::Bytes(header.total)
            }
            tag if copying == Copying::In || copying == Copying::Both => {
                let message = format!("a message of type {tag:#04x} during COPY from stdin");
                refuse(self.out, "08P01", &message)
            }
            // The server passes over everything until a Sync; so it need not be sent.
            _ if self.server.exchange.is_skipping() => pass_over(self.client, header),
            frontend::QUERY => self.query(header, rest),
            frontend::PARSE => self.parse(header, rest),
            frontend::BIND => self.bind(header, rest),
            frontend::DESCRIBE | frontend::CLOSE | frontend::EXECUTE => self.small(header, rest),
            frontend::FUNCTION_CALL => {
                self.prepare_idle();
                self.server.sent(Request::FunctionCall, Audience::Client, Note::Call(true));
                self.pass(header, rest)
            }
            _ => unknown(header, rest, self.out),
        }
    }

    /// Whether what was waited for is known: the server copies, does not, or passes over requests.
    fn is_barrier_over(&self) -> bool {
        let exchange = &self.server.exchange;
        exchange.is_empty() || exchange.is_skipping() || exchange.copying() != Copying::None
    }

    /// Between two transactions of a client that keeps its server connection.
    fn prepare_idle(&mut self) {
        let server = &mut *self.server;
        if server.exchange.is_empty() && !server.unsynced {
            change::trim_statements(self.shared, server, self.out);
            if server.exchange.status() == TransactionStatus::Idle {
                change::settings(self.shared, self.client, server, self.out);
            }
        }
    }

    /// Passes a message on as it is.
    fn pass(&mut self, header: Header, rest: &[u8]) -> Taken {
        let part = rest.get(..header.total).unwrap_or(rest);
        self.out.to_server.extend_from_slice(part);
        self.client.body = Body { left: header.total - part.len(), pass: true };
        Taken::Bytes(part.len())
    }

    fn copy(&mut self, header: Header) -> Taken {
        if !matches!(self.server.exchange.copying(), Copying::In | Copying::Both) {
            return pass_over(self.client, header);
        }
        put_header(self.out.to_server, header.tag, header.body());
        self.client.body = Body { left: header.body(), pass: true };
        if header.tag == frontend::COPY_DATA {
            self.server.exchange.copy_data();
        } else {
            self.server.exchange.copy_ended();
            // Another statement of the same text may copy as well.
            let front = self.server.exchange.front();
            self.client.barrier = front.is_some_and(|entry| entry.request == Request::Query);
        }
        Taken::Bytes(HEADER_BYTES)
    }

    fn sync(&mut self) -> Taken {
        if matches!(self.server.exchange.copying(), Copying::In | Copying::Both) {
            self.server.exchange.copy_sync();
        } else {
            self.server.sync(Audience::Client, self.out.to_server);
        }
        Taken::Bytes(HEADER_BYTES)
    }

    fn query(&mut self, header: Header, rest: &[u8]) -> Taken {
        let facts = if header.total > STATEMENT_BYTES_SCANNED_MAX {
            Facts::UNKNOWN
        } else {
            let Some(body) = rest.get(HEADER_BYTES..header.total) else {
                return Taken::More(header.total);
            };
            let text = split_string(body).map_or(body, |(text, _)| text);
            self.shared.texts.facts(text)
        };
        self.prepare_idle();
        self.client.barrier = facts.is_barrier();
        self.runs(&facts);
        // A text of the simple protocol takes the place of the statement without a name.
        self.client.statements.unnamed = None;
        self.server.statements.unnamed = None;
        self.server.sent(Request::Query, Audience::Client, Note::Text(Some(facts)));
        self.pass(header, rest)
    }

    /// A text is going to run.
    fn runs(&mut self, facts: &Facts) {
        self.server.settings_in_doubt |= facts.changes_settings();
        self.server.own_search_path |= facts.changes_search_path();
    }

    fn parse(&mut self, header: Header, rest: &[u8]) -> Taken {
        if header.total > STATEMENT_BYTES_SCANNED_MAX {
            return self.parse_unseen(header, rest);
        }
        let Some(body) = rest.get(HEADER_BYTES..header.total) else {
            return Taken::More(header.total);
        };
        let parts = split_string(body)
            .and_then(|(name, rest)| split_string(rest).map(|(text, types)| (name, text, types)));
        let Some((name, text, types)) = parts else { return unknown(header, rest, self.out) };
        self.prepare_idle();
        // Under settings that are not known the statement is nobody else's.
        let in_doubt = self.server.settings_in_doubt;
        let plan_key =
            if in_doubt { self.shared.private_key() } else { self.client.wanted.plan_key() };
        let (statement, seen) = self.shared.texts.statement(text, types, plan_key);
        let seen = seen && !in_doubt;
        if name.is_empty() {
            let undo = self.client.statements.put_unnamed(Some(statement.clone()));
            if seen {
                self.parse_shared(&statement, undo);
            } else {
                self.server.statements.unnamed = Some(statement.id);
                let note = Note::Unnamed { undo: Some(undo) };
                self.server.sent(Request::Parse, Audience::Client, note);
                self.out.to_server.extend_from_slice(rest.get(..header.total).unwrap_or_default());
            }
            return Taken::Bytes(header.total);
        }
        let id = NameId::of(&self.shared.key, name);
        if self.client.statements.named(id).is_some() {
            let name = String::from_utf8_lossy(name);
            self.refuse_request("42P05", &format!("prepared statement \"{name}\" already exists"));
        } else if self.client.statements.len() >= CLIENT_STATEMENTS_MAX {
            let message = format!("a client may have {CLIENT_STATEMENTS_MAX} prepared statements");
            self.refuse_request("54000", &message);
        } else {
            let undo = self.client.statements.put(id, Some(statement.clone()));
            self.parse_shared(&statement, undo);
        }
        Taken::Bytes(header.total)
    }

    /// A text that is too long to be looked at can be prepared without a name: it is not kept.
    fn parse_unseen(&mut self, header: Header, rest: &[u8]) -> Taken {
        let Some(name) = rest.get(HEADER_BYTES) else { return Taken::More(HEADER_BYTES + 1) };
        if *name != 0 {
            let message = format!(
                "a prepared statement with a name may have {STATEMENT_BYTES_SCANNED_MAX} bytes"
            );
            return refuse(self.out, "54000", &message);
        }
        self.prepare_idle();
        let undo = self.client.statements.put_unnamed(None);
        self.server.statements.unnamed = None;
        self.server.batch_waits = true;
        self.server.sent(Request::Parse, Audience::Client, Note::Unnamed { undo: Some(undo) });
        self.pass(header, rest)
    }

    /// A `Parse` of a statement that is kept under a name of ours.
    fn parse_shared(&mut self, statement: &Arc<Statement>, undo: Undo) {
        let schema = self.shared.schema.load(Ordering::Relaxed);
        let statements = &mut self.server.statements;
        let is_current = statements.is_current(statement.id, schema);
        match statements.use_in(statement.id, self.server.batch) {
            Presence::There | Presence::UnderWay if is_current => {
                self.say(message::backend::parse_complete, Note::Prepared { undo });
            }
            Presence::Missing => self.send_parse(statement, Audience::Client, Some(undo)),
            Presence::There | Presence::UnderWay | Presence::InDoubt => {
                self.send_close(statement);
                self.send_parse(statement, Audience::Client, Some(undo));
            }
        }
    }

    fn send_parse(&mut self, statement: &Statement, audience: Audience, undo: Option<Undo>) {
        write_parse(self.out.to_server, statement.server_name(), statement);
        let schema = self.shared.schema.load(Ordering::Relaxed);
        self.server.statements.coming(statement.id, self.server.batch, schema);
        let note = Note::Prepare { id: statement.id, undo };
        self.server.sent(Request::Parse, audience, note);
    }

    fn send_close(&mut self, statement: &Statement) {
        write_close(self.out.to_server, statement.id);
        self.server.sent(Request::Close, Audience::Nobody, Note::Plain);
    }

    /// Answers a request here, when its turn comes.
    fn say(&mut self, reply: fn(&mut Vec<u8>), note: Note) {
        self.server.unsynced = true;
        if self.server.exchange.is_empty() {
            reply(self.out.to_client);
        } else {
            self.server.sent(Request::Local, Audience::Client, note);
        }
    }

    /// Makes a request of the extended protocol fail with an error of ours, as if the server had
    /// refused it: the transaction fails, and what follows is passed over.
    fn refuse_request(&mut self, code: &str, message: &str) {
        let mut error = Vec::new();
        message::backend::error(&mut error, &ErrorFields::error(code, message));
        put_header(self.out.to_server, frontend::DESCRIBE, NO_STATEMENT.len() + 2);
        self.out.to_server.push(b'S');
        self.out.to_server.extend_from_slice(NO_STATEMENT);
        self.out.to_server.push(0);
        let note = Note::Refused(error.into_boxed_slice());
        self.server.sent(Request::DescribeStatement, Audience::Client, note);
    }

    /// The statement that a name means, prepared at the server; none if the name means nothing here
    /// and the server is to say so.
    fn statement(&mut self, name: &[u8]) -> Option<(Arc<Statement>, bool)> {
        let statement = if name.is_empty() {
            self.client.statements.unnamed.clone()?
        } else {
            let id = NameId::of(&self.shared.key, name);
            self.client.statements.named(id).cloned()?
        };
        let statements = &mut self.server.statements;
        let without_name = name.is_empty() && statements.unnamed == Some(statement.id);
        match statements.use_in(statement.id, self.server.batch) {
            Presence::There | Presence::UnderWay => {}
            Presence::Missing | Presence::InDoubt if without_name => {
                return Some((statement, false));
            }
            Presence::Missing => self.send_parse(&statement, Audience::Nobody, None),
            Presence::InDoubt => {
                self.send_close(&statement);
                self.send_parse(&statement, Audience::Nobody, None);
            }
        }
        Some((statement, true))
    }

    /// Appends the name under which the server has what the client calls so.
    fn put_statement_name(&mut self, found: Option<&(Arc<Statement>, bool)>, name: &[u8]) {
        match found {
            Some((statement, true)) => {
                self.out.to_server.extend_from_slice(statement.server_name());
            }
            Some((_, false)) => {}
            // Names of ours are not for clients to guess.
            None if name.starts_with(SERVER_NAME_PREFIX) => {
                self.out.to_server.push(b'?');
                self.out.to_server.extend_from_slice(name.get(1..).unwrap_or_default());
            }
            None => self.out.to_server.extend_from_slice(name),
        }
        self.out.to_server.push(0);
    }

    fn bind(&mut self, header: Header, rest: &[u8]) -> Taken {
        let part = rest.get(..header.total).unwrap_or(rest);
        let body = part.get(HEADER_BYTES..).unwrap_or_default();
        let names = split_string(body)
            .and_then(|(portal, rest)| split_string(rest).map(|(name, rest)| (portal, name, rest)));
        let Some((portal, name, values)) = names else {
            let most = header.total.min(HEADER_BYTES + 2 * NAME_BYTES_MAX);
            if part.len() < most {
                return Taken::More(most.min(rest.len() + 1));
            }
            return unknown(header, rest, self.out);
        };
        self.prepare_idle();
        let found = self.statement(name);
        let server_name_bytes = match &found {
            Some((statement, true)) => statement.server_name().len(),
            Some((_, false)) => 0,
            None => name.len(),
        };
        let body_bytes = header.body() - name.len() + server_name_bytes;
        put_header(self.out.to_server, frontend::BIND, body_bytes);
        self.out.to_server.extend_from_slice(portal);
        self.out.to_server.push(0);
        self.put_statement_name(found.as_ref(), name);
        self.out.to_server.extend_from_slice(values);
        self.client.body = Body { left: header.total - part.len(), pass: true };
        let note = match &found {
            Some((statement, _)) => {
                self.server.batch_waits |= statement.facts.is_barrier();
                self.runs(&statement.facts);
                Note::Bind { id: Some(statement.id), facts: Some(statement.facts.clone()) }
            }
            None => {
                self.server.batch_waits = true;
                self.runs(&Facts::EXECUTION);
                Note::Bind { id: None, facts: Some(Facts::EXECUTION) }
            }
        };
        self.server.sent(Request::Bind, Audience::Client, note);
        Taken::Bytes(part.len())
    }

    /// `Describe`, `Close` and `Execute` are names and little more.
    fn small(&mut self, header: Header, rest: &[u8]) -> Taken {
        if header.total > NAME_BYTES_MAX {
            return unknown(header, rest, self.out);
        }
        let Some(body) = rest.get(HEADER_BYTES..header.total) else {
            return Taken::More(header.total);
        };
        self.prepare_idle();
        match (header.tag, body.split_first()) {
            (frontend::EXECUTE, _) => self.execute(header, rest),
            (frontend::DESCRIBE, Some((b'S', [name @ .., 0]))) => {
                let found = self.statement(name);
                let bytes = match &found {
                    Some((statement, true)) => statement.server_name().len(),
                    Some((_, false)) => 0,
                    None => name.len(),
                };
                put_header(self.out.to_server, frontend::DESCRIBE, bytes + 2);
                self.out.to_server.push(b'S');
                self.put_statement_name(found.as_ref(), name);
                let note = found.map_or(Note::Plain, |(found, _)| Note::Describe { id: found.id });
                self.server.sent(Request::DescribeStatement, Audience::Client, note);
                Taken::Bytes(header.total)
            }
            (frontend::DESCRIBE, Some((b'P', _))) => {
                self.server.sent(Request::DescribePortal, Audience::Client, Note::Plain);
                self.pass(header, rest)
            }
            (frontend::CLOSE, Some((b'S', [name @ .., 0]))) => {
                self.close_statement(name, header, rest)
            }
            (frontend::CLOSE, Some((b'P', _))) => {
                self.server.sent(Request::Close, Audience::Client, Note::Plain);
                self.pass(header, rest)
            }
            _ => unknown(header, rest, self.out),
        }
    }

    fn execute(&mut self, header: Header, rest: &[u8]) -> Taken {
        self.server.sent(Request::Execute, Audience::Client, Note::Run);
        let taken = self.pass(header, rest);
        if self.server.batch_waits {
            // What follows may be data or a request; until it is known which, nothing is sent. The
            // server says nothing of a plain result before it is asked to.
            put_header(self.out.to_server, frontend::FLUSH, 0);
            self.client.barrier = true;
        }
        taken
    }

    /// Others may use the statement, so that it stays; the client's name goes.
    fn close_statement(&mut self, name: &[u8], header: Header, rest: &[u8]) -> Taken {
        let undo = if name.is_empty() {
            self.server.statements.unnamed = None;
            self.client.statements.put_unnamed(None)
        } else {
            let id = NameId::of(&self.shared.key, name);
            if self.client.statements.named(id).is_none() && !name.starts_with(SERVER_NAME_PREFIX) {
                // It may be one of SQL's `PREPARE`, of which the server alone knows.
                self.server.sent(Request::Close, Audience::Client, Note::Plain);
                return self.pass(header, rest);
            }
            self.client.statements.put(id, None)
        };
        self.say(message::backend::close_complete, Note::Closed { undo: Some(undo) });
        Taken::Bytes(header.total)
    }
}

/// Whether a client in this mode gives its server connection back after a transaction.
pub(super) fn shares(mode: PoolMode) -> bool {
    match mode {
        PoolMode::Session => false,
        PoolMode::Transaction | PoolMode::Statement => true,
    }
}
