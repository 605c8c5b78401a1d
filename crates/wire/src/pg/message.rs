//! Builders of messages: each appends one whole message to `out`.
//!
//! They never fail, and no part of a value can end a message early or begin another one: a string
//! ends at its first NUL byte, as it would for the reader, and the length is computed afterwards.
//! Callers are responsible for limits of lengths.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-message-formats.html>
//! - <https://www.postgresql.org/docs/current/protocol-error-fields.html>

/// Contents of an `ErrorResponse` or a `NoticeResponse` of the pooler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorFields<'a> {
    /// Severity of the error or notice.
    pub severity: NoticeSeverity,
    /// SQLSTATE: five letters and digits, such as `08000`.
    pub code: &'a str,
    /// Message.
    pub message: &'a str,
    /// Further details.
    pub detail: Option<&'a str>,
    /// Suggested remedy.
    pub hint: Option<&'a str>,
}

impl<'a> ErrorFields<'a> {
    /// Creates an error after which the connection is closed.
    #[must_use]
    pub fn fatal(code: &'a str, message: &'a str) -> ErrorFields<'a> {
        ErrorFields { severity: NoticeSeverity::Fatal, code, message, detail: None, hint: None }
    }

    /// Creates an error that ends a statement.
    #[must_use]
    pub fn error(code: &'a str, message: &'a str) -> ErrorFields<'a> {
        ErrorFields { severity: NoticeSeverity::Error, code, message, detail: None, hint: None }
    }

    /// Returns these fields with a hint.
    #[must_use]
    pub fn with_hint(self, hint: &'a str) -> ErrorFields<'a> {
        ErrorFields { hint: Some(hint), ..self }
    }
}

/// Severities that the pooler sends, in PostgreSQL's spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeSeverity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// For information.
    Notice,
    /// Suspicious condition.
    Warning,
}

impl NoticeSeverity {
    /// Returns the word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            NoticeSeverity::Error => "ERROR",
            NoticeSeverity::Fatal => "FATAL",
            NoticeSeverity::Notice => "NOTICE",
            NoticeSeverity::Warning => "WARNING",
        }
    }
}

/// Appends `text` up to its first NUL byte, and a NUL byte.
fn put_str(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.iter().copied().take_while(|byte| *byte != 0));
    out.push(0);
}

/// Appends a big-endian count; one that does not fit is saturated, and is a bug.
fn put_count(out: &mut Vec<u8>, count: usize) {
    debug_assert!(i16::try_from(count).is_ok(), "more than a message can have: {count}");
    let count = i16::try_from(count).unwrap_or(i16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
}

/// Appends values with their number and lengths.
fn put_values(out: &mut Vec<u8>, values: &[Option<&str>]) {
    put_count(out, values.len());
    for value in values {
        let length = value.map_or(-1, |text| i32::try_from(text.len()).unwrap_or(i32::MAX));
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(value.unwrap_or_default().as_bytes());
    }
}

/// Appends a message with a tag.
fn tagged(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    untagged(out, body);
}

/// Appends a length, which includes itself, and a body.
fn untagged(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = out.len().saturating_sub(start);
    debug_assert!(i32::try_from(length).is_ok(), "a message of {length} bytes");
    let length = i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes();
    if let Some(place) = out.get_mut(start..start.saturating_add(4)) {
        place.copy_from_slice(&length);
    }
}

/// Messages of a server.
pub mod backend {
    use super::{ErrorFields, put_count, put_str, put_values, tagged};
    use crate::pg::frame::TransactionStatus;

    /// Appends `AuthenticationOk`: the client is authenticated.
    pub fn authentication_ok(out: &mut Vec<u8>) {
        authentication(out, 0, &[]);
    }

    /// Requests the cleartext password.
    pub fn authentication_cleartext(out: &mut Vec<u8>) {
        authentication(out, 3, &[]);
    }

    /// Requests an MD5 of the password with `salt`.
    pub fn authentication_md5(out: &mut Vec<u8>, salt: [u8; 4]) {
        authentication(out, 5, &salt);
    }

    /// Offers SASL mechanisms, best first.
    pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
        tagged(out, b'R', |out| {
            out.extend_from_slice(&10_i32.to_be_bytes());
            for mechanism in mechanisms {
                put_str(out, mechanism.as_bytes());
            }
            out.push(0);
        });
    }

    /// Appends a challenge of the SASL exchange.
    pub fn authentication_sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
        authentication(out, 11, data);
    }

    /// Appends the server's final message of the SASL exchange.
    pub fn authentication_sasl_final(out: &mut Vec<u8>, data: &[u8]) {
        authentication(out, 12, data);
    }

    fn authentication(out: &mut Vec<u8>, kind: i32, data: &[u8]) {
        tagged(out, b'R', |out| {
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(data);
        });
    }

    /// Appends the current value of a reported parameter.
    pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
        tagged(out, b'S', |out| {
            put_str(out, name.as_bytes());
            put_str(out, value.as_bytes());
        });
    }

    /// Appends the process id and key that cancel this connection's statements.
    pub fn backend_key_data(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
        tagged(out, b'K', |out| {
            out.extend_from_slice(&pid.to_be_bytes());
            out.extend_from_slice(key);
        });
    }

    /// Appends `ReadyForQuery`.
    pub fn ready_for_query(out: &mut Vec<u8>, status: TransactionStatus) {
        tagged(out, b'Z', |out| out.push(status.byte()));
    }

    /// Appends the end of a statement; `tag` is e.g. `SELECT 1`.
    pub fn command_complete(out: &mut Vec<u8>, tag: &str) {
        tagged(out, b'C', |out| put_str(out, tag.as_bytes()));
    }

    /// `ErrorResponse`.
    pub fn error(out: &mut Vec<u8>, fields: &ErrorFields<'_>) {
        tagged(out, b'E', |out| put_fields(out, fields));
    }

    /// `NoticeResponse`.
    pub fn notice(out: &mut Vec<u8>, fields: &ErrorFields<'_>) {
        tagged(out, b'N', |out| put_fields(out, fields));
    }

    fn put_fields(out: &mut Vec<u8>, fields: &ErrorFields<'_>) {
        let severity = fields.severity.as_str();
        let always = [(b'S', severity), (b'V', severity), (b'C', fields.code)];
        let optional = [(b'D', fields.detail), (b'H', fields.hint)];
        let optional = optional.into_iter().filter_map(|(kind, text)| Some((kind, text?)));
        for (kind, text) in always.into_iter().chain([(b'M', fields.message)]).chain(optional) {
            out.push(kind);
            put_str(out, text.as_bytes());
        }
        out.push(0);
    }

    /// `NotificationResponse` from the process `pid`.
    pub fn notification(out: &mut Vec<u8>, pid: u32, channel: &str, payload: &str) {
        tagged(out, b'A', |out| {
            out.extend_from_slice(&pid.to_be_bytes());
            put_str(out, channel.as_bytes());
            put_str(out, payload.as_bytes());
        });
    }

    /// `ParseComplete`.
    pub fn parse_complete(out: &mut Vec<u8>) {
        tagged(out, b'1', |_| ());
    }

    /// `BindComplete`.
    pub fn bind_complete(out: &mut Vec<u8>) {
        tagged(out, b'2', |_| ());
    }

    /// `CloseComplete`.
    pub fn close_complete(out: &mut Vec<u8>) {
        tagged(out, b'3', |_| ());
    }

    /// Appends `NoData`: the described object returns no rows.
    pub fn no_data(out: &mut Vec<u8>) {
        tagged(out, b'n', |_| ());
    }

    /// `EmptyQueryResponse`.
    pub fn empty_query(out: &mut Vec<u8>) {
        tagged(out, b'I', |_| ());
    }

    /// Appends columns in text format: names and type OIDs. Their number is at most `i16::MAX`.
    pub fn row_description(out: &mut Vec<u8>, columns: &[(&str, u32)]) {
        tagged(out, b'T', |out| {
            put_count(out, columns.len());
            for (name, oid) in columns {
                put_str(out, name.as_bytes());
                out.extend_from_slice(&[0; 6]); // no table
                out.extend_from_slice(&oid.to_be_bytes());
                out.extend_from_slice(&(-1_i16).to_be_bytes()); // variable size
                out.extend_from_slice(&(-1_i32).to_be_bytes()); // no modifier
                out.extend_from_slice(&[0; 2]); // text
            }
        });
    }

    /// Appends a row of texts; `None` is NULL. Their number is at most `i16::MAX`.
    pub fn data_row(out: &mut Vec<u8>, values: &[Option<&str>]) {
        tagged(out, b'D', |out| put_values(out, values));
    }

    /// Appends `NegotiateProtocolVersion`: the newest supported minor version of major version 3,
    /// and the unknown protocol options.
    pub fn negotiate_protocol_version(out: &mut Vec<u8>, minor: u16, unknown: &[&str]) {
        tagged(out, b'v', |out| {
            out.extend_from_slice(&(0x0003_0000 | u32::from(minor)).to_be_bytes());
            let count = u32::try_from(unknown.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&count.to_be_bytes());
            for name in unknown {
                put_str(out, name.as_bytes());
            }
        });
    }
}

/// Messages of a client.
pub mod frontend {
    use super::{put_count, put_str, put_values, tagged, untagged};
    use crate::pg::startup::{CANCEL_REQUEST, ProtocolVersion, SSL_REQUEST};

    /// `StartupMessage` with its parameters in this order.
    pub fn startup(out: &mut Vec<u8>, version: ProtocolVersion, parameters: &[(&str, &str)]) {
        untagged(out, |out| {
            out.extend_from_slice(&version.code().to_be_bytes());
            for (name, value) in parameters {
                put_str(out, name.as_bytes());
                put_str(out, value.as_bytes());
            }
            out.push(0);
        });
    }

    /// Requests TLS; the answer is one byte, `S` or `N`.
    pub fn ssl_request(out: &mut Vec<u8>) {
        untagged(out, |out| out.extend_from_slice(&SSL_REQUEST.to_be_bytes()));
    }

    /// Requests, on a separate connection, the cancellation of another connection's statement.
    pub fn cancel_request(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
        untagged(out, |out| {
            out.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
            out.extend_from_slice(&pid.to_be_bytes());
            out.extend_from_slice(key);
        });
    }

    /// Appends a password, or another proof.
    pub fn password(out: &mut Vec<u8>, password: &[u8]) {
        tagged(out, b'p', |out| put_str(out, password));
    }

    /// The first message of a SASL exchange.
    pub fn sasl_initial_response(out: &mut Vec<u8>, mechanism: &str, data: &[u8]) {
        tagged(out, b'p', |out| {
            put_str(out, mechanism.as_bytes());
            let length = i32::try_from(data.len()).unwrap_or(i32::MAX);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(data);
        });
    }

    /// Any later message of a SASL exchange.
    pub fn sasl_response(out: &mut Vec<u8>, data: &[u8]) {
        tagged(out, b'p', |out| out.extend_from_slice(data));
    }

    /// A simple query.
    pub fn query(out: &mut Vec<u8>, text: &str) {
        tagged(out, b'Q', |out| put_str(out, text.as_bytes()));
    }

    /// Prepares `text` as `name`. There are at most `i16::MAX` types.
    pub fn parse(out: &mut Vec<u8>, name: &str, text: &str, types: &[u32]) {
        tagged(out, b'P', |out| {
            put_str(out, name.as_bytes());
            put_str(out, text.as_bytes());
            put_count(out, types.len());
            for oid in types {
                out.extend_from_slice(&oid.to_be_bytes());
            }
        });
    }

    /// Creates the unnamed portal of a prepared statement with values in text format, at most
    /// `i16::MAX`; its result is in text format as well.
    pub fn bind(out: &mut Vec<u8>, statement: &str, values: &[Option<&str>]) {
        tagged(out, b'B', |out| {
            put_str(out, b"");
            put_str(out, statement.as_bytes());
            put_count(out, 0);
            put_values(out, values);
            put_count(out, 0);
        });
    }

    /// Runs the unnamed portal until it has returned `rows_max` rows; 0 for all.
    pub fn execute(out: &mut Vec<u8>, rows_max: u32) {
        tagged(out, b'E', |out| {
            put_str(out, b"");
            out.extend_from_slice(&rows_max.to_be_bytes());
        });
    }

    /// Requests the parameters and columns of a prepared statement.
    pub fn describe_statement(out: &mut Vec<u8>, name: &str) {
        named(out, b'D', b'S', name);
    }

    /// Closes a prepared statement.
    pub fn close_statement(out: &mut Vec<u8>, name: &str) {
        named(out, b'C', b'S', name);
    }

    fn named(out: &mut Vec<u8>, tag: u8, kind: u8, name: &str) {
        tagged(out, tag, |out| {
            out.push(kind);
            put_str(out, name.as_bytes());
        });
    }

    /// Ends a batch of the extended protocol.
    pub fn sync(out: &mut Vec<u8>) {
        tagged(out, b'S', |_| ());
    }

    /// Requests pending output.
    pub fn flush(out: &mut Vec<u8>) {
        tagged(out, b'H', |_| ());
    }

    /// Ends the session.
    pub fn terminate(out: &mut Vec<u8>) {
        tagged(out, b'X', |_| ());
    }

    /// Aborts a `COPY FROM STDIN`.
    pub fn copy_fail(out: &mut Vec<u8>, reason: &str) {
        tagged(out, b'f', |out| put_str(out, reason.as_bytes()));
    }
}

#[cfg(test)]
mod tests;
