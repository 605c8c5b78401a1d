//! Input from a server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::PoolMode;
use wire::pg::exchange::{CopyState, ExchangeStep, ReplyAudience};
use wire::pg::frame::{HEADER_BYTES, PgHeader, TransactionStatus, backend, split_string};
use wire::pg::message::{self, ErrorFields, NoticeSeverity};
use wire::pg::notice::ServerNotice;
use wire::pg::sql::{PgSettingChange, SubscriptionChange, TextAnalysis};

use super::front::{say_locals, shares, stream};
use super::gone::{clean, end_copy};
use super::replay::{replay, stale};
use super::{
    FromServer, LinkOutputs, PgLinkContext, SERVER_MESSAGE_BYTES_MAX, ServerFailure, ServerNext,
    change,
};
use crate::link::ServerErrorCode;
use crate::pg::client::{PgClientSession, PgPartialMessage};
use crate::pg::dirt::ReleaseVerdict;
use crate::pg::probe::ProbeReader;
use crate::pg::server::{PgCleanup, PgRequestPurpose, PgServerSession};
use crate::pg::statements::NameUndo;

/// Processes input from a server. `client` is the holder of the connection, if there is one; it is
/// not accessed any more once the result is [`ServerNext::Released`].
pub fn from_server(
    shared: &mut PgLinkContext,
    server: &mut PgServerSession,
    client: Option<&mut PgClientSession>,
    input: &[u8],
    out: &mut LinkOutputs<'_>,
) -> FromServer {
    debug_assert_eq!(server.attached, client.as_ref().map(|client| client.id));
    let mut back = PgReplyHandler { shared, server, client, out, released: false };
    let mut consumed = 0;
    let next = loop {
        let rest = input.get(consumed..).unwrap_or_default();
        if back.server.body.left > 0 {
            consumed += stream(&mut back.server.body, rest, back.out.to_client);
            if back.server.body.left > 0 {
                break None;
            }
            continue;
        }
        match back.message(rest) {
            Ok(Some(0)) => break None,
            Ok(Some(bytes)) => consumed += bytes,
            Ok(None) => break Some(ServerNext::Failed),
            Err(broken) => break Some(ServerNext::Broken(broken)),
        }
    };
    let next = next.unwrap_or_else(|| back.verdict());
    FromServer { consumed, next }
}

/// The length of a value that is NULL.
const NULL_VALUE: [u8; 4] = [0xff; 4];

struct PgReplyHandler<'a, 'o> {
    shared: &'a mut PgLinkContext,
    server: &'a mut PgServerSession,
    client: Option<&'a mut PgClientSession>,
    out: &'a mut LinkOutputs<'o>,
    released: bool,
}

/// Command tag that is sent to a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ShownTag {
    /// The server's tag.
    Own,
    /// Another one, for the statement that the client sent.
    Other(&'static str),
    /// None: the client did not send the statement.
    None,
}

/// Returns whether a message has to be buffered whole, because it is parsed or must not be
/// forwarded in parts.
#[inline]
fn is_held(tag: u8) -> bool {
    matches!(
        tag,
        backend::READY_FOR_QUERY
            | backend::COMMAND_COMPLETE
            | backend::PARAMETER_STATUS
            | backend::NOTIFICATION
            | backend::ERROR
    )
}

impl PgReplyHandler<'_, '_> {
    /// Processes one message; returns its number of bytes. Zero: the message is incomplete. `None`:
    /// the client could not be served, and got an error.
    fn message(&mut self, rest: &[u8]) -> Result<Option<usize>, ServerFailure> {
        let Some(header) = PgHeader::parse(rest)? else { return Ok(Some(0)) };
        let held = is_held(header.tag);
        let too_long = header.total > SERVER_MESSAGE_BYTES_MAX;
        if held && too_long && header.tag != backend::ERROR {
            return Err(ServerFailure::Malformed { tag: header.tag, bytes: header.total });
        }
        if held && !too_long && rest.len() < header.total {
            return Ok(Some(0));
        }
        if header.tag == backend::DATA_ROW && self.server.answer.is_some() && self.is_answer() {
            // A row of an answer to the pooler is parsed as well.
            if too_long {
                return Err(ServerFailure::Malformed { tag: header.tag, bytes: header.total });
            }
            if rest.len() < header.total {
                return Ok(Some(0));
            }
        }
        if header.tag == backend::FUNCTION_CALL_RESPONSE && self.is_about_connections() {
            // A message that is too long shows that there are some, whatever it contains.
            if !too_long && rest.len() < header.total {
                return Ok(Some(0));
            }
            let value = rest.get(HEADER_BYTES..HEADER_BYTES + 4).unwrap_or_default();
            self.connections(value != NULL_VALUE);
        }
        self.locals();
        let step = self.server.exchange.step(header.tag)?;
        if step != ExchangeStep::Unasked {
            self.first_reply();
        }
        if self.client.is_none() && self.server.exchange.copying() == CopyState::In {
            end_copy(self.server, self.out);
        }
        // A message that is too long to be buffered is identified by its tag alone.
        let message = rest.get(..header.total).unwrap_or(rest);
        match step {
            ExchangeStep::Unasked => self.unasked(header, message)?,
            ExchangeStep::Part if header.tag == backend::ERROR => {
                if !self.error(header, message)? {
                    return Ok(None);
                }
            }
            ExchangeStep::Part if header.tag == backend::COMMAND_COMPLETE => {
                match self.command(message) {
                    ShownTag::Own => self.pass(header, message),
                    ShownTag::Other(tag) => self.say_tag(tag),
                    ShownTag::None => {}
                }
            }
            ExchangeStep::Part if header.tag == backend::DATA_ROW && self.is_answer() => {
                self.answer_row(message)?;
            }
            ExchangeStep::Part => return Ok(Some(self.part(header, rest))),
            ExchangeStep::Last => {
                self.last(header, message);
            }
            ExchangeStep::Failed if self.is_sent_again(message) => {
                self.give(header, message, false)
            }
            ExchangeStep::Failed => {
                if !self.error(header, message)? {
                    return Ok(None);
                }
                self.failed();
            }
            ExchangeStep::Ready => return self.ready(header, message),
        }
        Ok(Some(message.len()))
    }

    /// Returns whether the next message belongs to the answer to a query of the pooler.
    fn is_answer(&self) -> bool {
        self.server
            .exchange
            .front()
            .is_some_and(|entry| matches!(entry.note, PgRequestPurpose::Probe))
    }

    /// Returns whether the next answer is about connections of dblink.
    fn is_about_connections(&self) -> bool {
        self.server
            .exchange
            .front()
            .is_some_and(|entry| matches!(entry.note, PgRequestPurpose::Connections))
    }

    fn connections(&mut self, found: bool) {
        let lessons = self.shared.lessons(self.server.pool);
        self.server.dirt.connections_found(lessons, found);
    }

    fn answer_row(&mut self, message: &[u8]) -> Result<(), ServerFailure> {
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        let Some(answer) = &mut self.server.answer else { return Ok(()) };
        answer
            .row(body, &self.server.user)
            .map_err(|error| ServerFailure::Probe { message: error.to_string().into() })
    }

    /// Handles the first reply to a request of the client: from now on its text may take effect.
    #[inline]
    fn first_reply(&mut self) {
        let Some(front) = self.server.exchange.front_mut() else { return };
        let facts = match &mut front.note {
            PgRequestPurpose::Text(facts) | PgRequestPurpose::Bind { facts, .. } => facts.take(),
            PgRequestPurpose::Rewritten(request) => request.facts.take(),
            PgRequestPurpose::Call(unseen) => {
                if std::mem::take(unseen) {
                    self.server.dirt.saw_function_call();
                }
                return;
            }
            _ => return,
        };
        let Some(facts) = facts else { return };
        let lessons = self.shared.lessons(self.server.pool);
        let own_search_path = self.server.own_search_path;
        match &facts.look {
            Some(look) => self.server.dirt.saw_text(lessons, look, own_search_path),
            None => {
                let (effects, fingerprint) = (facts.effects, facts.fingerprint);
                let look = TextAnalysis {
                    effects,
                    fingerprint,
                    verb: facts.verb,
                    ..TextAnalysis::default()
                };
                self.server.dirt.saw_text(lessons, &look, own_search_path);
            }
        }
    }

    /// Returns whether the front request's reply is for a client that is attached.
    #[inline]
    fn is_heard(&self) -> bool {
        self.client.is_some()
            && self
                .server
                .exchange
                .front()
                .is_none_or(|entry| entry.audience == ReplyAudience::Client)
    }

    /// Forwards the available part of a message to the client, if it is for the client.
    #[inline]
    fn pass(&mut self, header: PgHeader, message: &[u8]) {
        let pass = self.is_heard();
        self.give(header, message, pass);
    }

    #[inline]
    fn give(&mut self, header: PgHeader, message: &[u8], pass: bool) {
        if pass {
            self.out.to_client.extend_from_slice(message);
        }
        self.server.body = PgPartialMessage { left: header.total - message.len(), pass };
    }

    /// Handles rows, mostly: all complete ones are forwarded at once.
    #[inline]
    fn part(&mut self, header: PgHeader, rest: &[u8]) -> usize {
        if header.total > rest.len() {
            self.pass(header, rest);
            return rest.len();
        }
        let mut bytes = header.total;
        if matches!(header.tag, backend::DATA_ROW | backend::COPY_DATA) {
            while let Some(next) = rest.get(bytes..)
                && next.first() == Some(&header.tag)
                && let Ok(Some(following)) = PgHeader::parse(next)
                && following.total <= next.len()
            {
                bytes += following.total;
            }
        }
        if self.is_heard() {
            self.out.to_client.extend_from_slice(rest.get(..bytes).unwrap_or_default());
        }
        bytes
    }

    /// Handles a message that belongs to no request.
    fn unasked(&mut self, header: PgHeader, message: &[u8]) -> Result<(), ServerFailure> {
        match header.tag {
            backend::PARAMETER_STATUS => self.parameter(header, message)?,
            backend::ERROR => {
                self.give(header, message, self.client.is_some());
                return Err(self.closing(message));
            }
            _ => self.pass(header, message),
        }
        Ok(())
    }

    fn parameter(&mut self, header: PgHeader, message: &[u8]) -> Result<(), ServerFailure> {
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        let malformed = ServerFailure::Malformed { tag: header.tag, bytes: header.total };
        let parts = split_string(body)
            .and_then(|(name, rest)| split_string(rest).map(|(value, _)| (name, value)));
        let Some((name, value)) = parts else { return Err(malformed) };
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        Arc::make_mut(&mut self.server.parameters).put(&name, &value);
        self.server.reported(&name, &value);
        // While settings change, the client receives the differences at the end.
        let pass = self.is_heard();
        self.give(header, message, pass);
        if pass && let Some(client) = &mut self.client {
            client.seen = self.server.parameters.clone();
        }
        Ok(())
    }

    /// Handles the server's announcement that it closes the connection.
    fn closing(&mut self, message: &[u8]) -> ServerFailure {
        let notice = ServerNotice::parse(message.get(HEADER_BYTES..).unwrap_or_default());
        self.server.closing = true;
        self.count_error(notice.code(), true);
        ServerFailure::Closing { code: notice.code().into(), message: notice.message().into() }
    }

    /// Handles the end of a reply other than `ReadyForQuery`.
    #[inline]
    fn last(&mut self, header: PgHeader, message: &[u8]) {
        let heard = self.is_heard();
        let shown = match header.tag {
            backend::COMMAND_COMPLETE => self.command(message),
            _ => ShownTag::Own,
        };
        if let ShownTag::Other(tag) = shown {
            self.say_tag(tag);
        }
        if let Some(entry) = self.server.exchange.pop() {
            self.server.replay.answered(entry.request);
            if let PgRequestPurpose::Prepare { id, .. } = entry.note {
                self.server.statements.arrived(id);
            }
        }
        self.give(header, message, heard && shown == ShownTag::Own);
        self.locals();
    }

    /// Sends another command tag instead of the server's.
    fn say_tag(&mut self, tag: &str) {
        if self.is_heard() {
            message::backend::command_complete(self.out.to_client, tag);
        }
    }

    /// Sends local replies whose turn it is.
    #[inline]
    fn locals(&mut self) {
        say_locals(self.server, self.client.is_some(), self.out.to_client);
    }

    /// Handles the end of a command, which may affect all sessions. Returns the tag that the client
    /// receives.
    fn command(&mut self, message: &[u8]) -> ShownTag {
        let tag = message.get(HEADER_BYTES..message.len().saturating_sub(1)).unwrap_or_default();
        let listening = self.client.as_mut().and_then(|client| client.listening.as_deref_mut());
        let mut shown = ShownTag::Own;
        match self.server.exchange.front_mut().map(|front| &mut front.note) {
            Some(PgRequestPurpose::Text(_) | PgRequestPurpose::Run) => {
                if let Some(listening) = listening {
                    listening.saw_tag(tag);
                }
            }
            Some(PgRequestPurpose::Rewritten(request)) => {
                let number = request.done;
                request.done += 1;
                let rewrite = &request.rewrite;
                if let Some(change) = rewrite.tags.iter().find(|it| it.statement == number) {
                    shown = change.shown.map_or(ShownTag::None, ShownTag::Other);
                }
                let action = rewrite.actions.iter().find(|action| action.statement == number);
                match (listening, action) {
                    (Some(listening), Some(action)) => {
                        listening.done(&action.subscription);
                        if matches!(action.subscription, SubscriptionChange::Begin(_)) {
                            shown = ShownTag::Other("LISTEN");
                        }
                    }
                    (Some(listening), None) => listening.saw_tag(tag),
                    (None, _) => {}
                }
            }
            _ => return ShownTag::Own,
        }
        self.server.dirt.saw_tag(tag);
        match tag.first() {
            Some(b'D') if matches!(tag, b"DISCARD ALL" | b"DEALLOCATE ALL") => {
                self.server.statements.clear();
                if let Some(client) = &mut self.client {
                    client.statements.clear();
                }
            }
            Some(b'A' | b'C' | b'D')
                if [&b"ALTER "[..], b"CREATE ", b"DROP "]
                    .iter()
                    .any(|verb| tag.starts_with(verb)) =>
            {
                let _before = self.shared.schema.fetch_add(1, Ordering::Relaxed);
            }
            Some(b'D') if tag == b"DEALLOCATE" => self.deallocated(),
            _ => {}
        }
        shown
    }

    /// Handles SQL's `DEALLOCATE` of a statement that was prepared by the protocol.
    fn deallocated(&mut self) {
        let Some((name, id)) = self.server.deallocating.take() else { return };
        self.server.statements.gone(id);
        if let Some(client) = &mut self.client {
            let _undo = client.statements.put(name, None);
        }
    }

    /// Handles an error of the front request. False: the client cannot continue after it.
    fn error(&mut self, header: PgHeader, message: &[u8]) -> Result<bool, ServerFailure> {
        self.server.dirt.saw_error();
        if let Some(client) = &mut self.client
            && let Some(listening) = &mut client.listening
        {
            listening.saw_error();
        }
        let notice = ServerNotice::parse(message.get(HEADER_BYTES..).unwrap_or_default());
        let fatal = notice.severity() == NoticeSeverity::Fatal;
        self.count_error(notice.code(), fatal);
        let front = self.server.exchange.front_mut().map(|entry| &mut entry.note);
        match front {
            _ if fatal => {
                self.server.closing = true;
                self.give(header, message, self.client.is_some());
                return Ok(true);
            }
            Some(PgRequestPurpose::Refused(error)) => {
                let error = std::mem::take(error);
                if self.client.is_some() {
                    self.out.to_client.extend_from_slice(&error);
                }
                self.give(header, message, false);
            }
            Some(PgRequestPurpose::Settings) => {
                self.server.dirty = true;
                let said = notice.message();
                let sentence = format!("the settings of the session cannot be applied: {said}");
                let error = ErrorFields::fatal(notice.code(), &sentence);
                if self.client.is_some() {
                    message::backend::error(self.out.to_client, &error);
                    return Ok(false);
                }
                self.give(header, message, false);
            }
            Some(
                PgRequestPurpose::Reset | PgRequestPurpose::Rollback | PgRequestPurpose::Sequences,
            ) => {
                return Err(ServerFailure::Reset { message: notice.message().into() });
            }
            // A cancellation with a later target: the query is repeated.
            Some(PgRequestPurpose::Probe) if notice.code() == "57014" => {
                self.server.answer = None;
                self.server.dirt.unanswered();
                self.give(header, message, false);
            }
            Some(PgRequestPurpose::Probe) => {
                return Err(ServerFailure::Probe { message: notice.message().into() });
            }
            // The query is repeated. After any other error it stays unknown whether there are some.
            Some(PgRequestPurpose::Connections) => {
                match notice.code() {
                    "57014" => self.server.dirt.connections_unknown(),
                    _ => self.connections(true),
                }
                self.give(header, message, false);
            }
            // An error of an inserted request takes the place of the reply to the client's request.
            Some(PgRequestPurpose::Prepare { .. } | PgRequestPurpose::Restore) => {
                self.give(header, message, self.client.is_some())
            }
            _ => self.pass(header, message),
        }
        Ok(true)
    }

    /// Counts an error that the client receives unchanged.
    fn count_error(&mut self, code: &str, fatal: bool) {
        let is_passed = match self.server.exchange.front().map(|entry| &entry.note) {
            // The client receives an error of the pooler in place of its reply.
            Some(PgRequestPurpose::Refused(_)) => fatal,
            Some(PgRequestPurpose::Prepare { .. } | PgRequestPurpose::Restore) => true,
            _ => fatal || self.is_heard(),
        };
        if is_passed
            && self.client.is_some()
            && let Some(code) = ServerErrorCode::sql_state(code)
        {
            self.server.errors.add(code, 1);
        }
    }

    /// Returns whether the front request failed because its plan no longer fits the schema, and the
    /// batch is sent again.
    fn is_sent_again(&mut self, message: &[u8]) -> bool {
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        let Some(id) = stale(self.server, body) else { return false };
        let schema = self.shared.schema.load(Ordering::Relaxed);
        let client = self.client.as_deref();
        let sent = client
            .is_some_and(|client| replay(client, self.server, id, schema, self.out.to_server));
        if !sent {
            // The next client that uses it prepares it again.
            self.server.statements.doubted(id);
        }
        sent
    }

    /// Records that the server skips everything up to the next `Sync`.
    fn failed(&mut self) {
        let server = &mut *self.server;
        let statements = &mut server.statements;
        let mut undone = Vec::new();
        let mut first = None;
        let mut front_is_unnamed = false;
        let owed = server.exchange.fail(|mut entry| {
            first = match &entry.note {
                PgRequestPurpose::Prepare { id, .. } => {
                    statements.doubted(*id);
                    Some(*id)
                }
                PgRequestPurpose::Unnamed { .. } => {
                    statements.unnamed = None;
                    None
                }
                _ => None,
            };
            front_is_unnamed = entry.note.renames() == Some(None);
            undone.extend(
                entry
                    .note
                    .undo()
                    .map(|undo| NameUndo { name: undo.name, before: undo.before.take() }),
            );
        });
        // The front request is dropped last: if it was a `Parse`, the server has refused it.
        if let Some(id) = first {
            statements.gone(id);
        }
        // An unnamed one replaces the former statement, even if it fails.
        if let Some(undo) = undone.last_mut()
            && front_is_unnamed
        {
            undo.before = None;
        }
        for undo in undone {
            if let Some(undo) = server.rewind(undo)
                && let Some(client) = &mut self.client
            {
                client.statements.undo(undo);
            }
        }
        if owed {
            server.sync(ReplyAudience::Client, self.out.to_server);
        }
    }

    /// Handles `ReadyForQuery`.
    fn ready(&mut self, header: PgHeader, message: &[u8]) -> Result<Option<usize>, ServerFailure> {
        let status = match message {
            [_, _, _, _, _, byte] => TransactionStatus::from_byte(*byte),
            _ => None,
        };
        let malformed = ServerFailure::Malformed { tag: header.tag, bytes: header.total };
        let Some(status) = status else { return Err(malformed) };
        let heard = self.is_heard();
        let entry = self.server.exchange.ready(status);
        if heard && let Some(client) = &mut self.client {
            self.out.to_client.extend_from_slice(message);
            client.status = status;
            if let Some(listening) = &mut client.listening {
                listening.ready(status);
            }
            self.server.queries += 1;
            self.server.transactions += u64::from(status == TransactionStatus::Idle);
        }
        match entry.map(|entry| entry.note) {
            Some(PgRequestPurpose::Settings) => {
                if let Some(client) = &mut self.client {
                    change::tell_parameters(client, self.server, self.out);
                }
            }
            Some(PgRequestPurpose::Reset) => {
                self.server.dirty = false;
                self.server.foreign_sequences = false;
                self.server.dirt.discarded();
                self.server.statements.clear();
                self.server.applied = self.server.startup.clone();
            }
            Some(PgRequestPurpose::Probe) => self.answered(),
            Some(PgRequestPurpose::Sequences | PgRequestPurpose::Connections) => {}
            Some(PgRequestPurpose::Rollback) => {
                self.server.dirt.saw_tag(b"ROLLBACK");
                self.server.dirt.ready(status);
            }
            _ => {
                self.server.dirt.ready(status);
                let changes = self.server.dirt.take_changes();
                self.names(&changes);
                change::apply(self.client.as_deref_mut(), self.server, changes);
            }
        }
        if status == TransactionStatus::Idle && self.server.exchange.is_empty() {
            self.server.may_begin = false;
        }
        self.locals();
        if self.is_refused_transaction() {
            let error = ErrorFields::fatal(
                "0A000",
                "transactions of several statements are not allowed in statement mode",
            );
            message::backend::error(self.out.to_client, &error);
            return Ok(None);
        }
        self.release();
        Ok(Some(message.len()))
    }

    /// Handles the complete answer to a query of the pooler.
    fn answered(&mut self) {
        let server = &mut *self.server;
        let Some(answer) = server.answer.take() else { return };
        let applied = server.applied.clone();
        let known = |name: &str| applied.value(&name.to_ascii_lowercase()).map(str::to_owned);
        let lessons = self.shared.lessons(server.pool);
        let answer = answer.finish();
        let function = answer.connections_function;
        let found = server.dirt.answered(lessons, answer, &known);
        self.names(&found.changes);
        let server = &mut *self.server;
        change::adopt(self.client.as_deref_mut(), server, found);
        match function {
            Some(_) if !server.exchange.is_empty() || server.unsynced => {
                server.dirt.connections_unknown();
            }
            Some(function) => {
                server.call(function, PgRequestPurpose::Connections, self.out.to_server)
            }
            None => {}
        }
    }

    /// Adds settings that clients set to those that are queried when code may have set them.
    fn names(&mut self, changes: &[PgSettingChange]) {
        for change in changes {
            if let PgSettingChange::Value { name, .. } = change
                && name.contains('.')
            {
                self.shared.lessons(self.server.pool).saw_setting(name);
            }
        }
    }

    fn is_refused_transaction(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.mode == PoolMode::Statement)
            && self.server.exchange.status() != TransactionStatus::Idle
            && self.server.exchange.is_empty()
    }

    /// Detaches the connection from a client that does not need it any more.
    fn release(&mut self) {
        let server = &mut *self.server;
        if !server.exchange.is_empty()
            || server.exchange.status() != TransactionStatus::Idle
            || server.unsynced
            || server.closing
        {
            return;
        }
        let Some(client) = &mut self.client else { return };
        if !shares(client.mode) || (client.body.left > 0 && client.body.pass) {
            return;
        }
        match server.dirt.verdict() {
            ReleaseVerdict::Probe(mut questions) => {
                let known = server.applied.iter().map(|(name, _)| name);
                for name in known.filter(|name| name.contains('.')) {
                    questions.ask_for_hidden(name);
                }
                for name in self.shared.lessons(server.pool).names() {
                    questions.ask_for_hidden(name);
                }
                server.query(
                    &[questions.sql().as_bytes()],
                    PgRequestPurpose::Probe,
                    self.out.to_server,
                );
                server.dirt.asked(questions);
                server.answer = Some(Box::new(ProbeReader::new()));
            }
            ReleaseVerdict::Pinned(_) => {}
            ReleaseVerdict::Clean if server.dirty => {}
            ReleaseVerdict::Clean => {
                client.attached = false;
                client.barrier = false;
                server.attached = None;
                self.client = None;
                self.released = true;
            }
        }
    }

    /// Returns the decision after all input was processed.
    fn verdict(&mut self) -> ServerNext {
        if self.released {
            return ServerNext::Released;
        }
        let server = &mut *self.server;
        if self.client.is_none() && server.cleanup != PgCleanup::None && server.exchange.is_empty()
        {
            return clean(server, self.out).unwrap_or(ServerNext::Read);
        }
        ServerNext::Read
    }
}
