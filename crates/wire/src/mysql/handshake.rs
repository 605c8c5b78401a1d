//! The packets before the first command: a server's greeting, a client's response, and the exchange
//! up to the verdict.
//!
//! Payloads only, without the headers of their packets. Sources: MySQL, "Connection Phase Packets";
//! MariaDB, "Connecting", whose servers and clients announce capabilities of their own in bytes
//! that are reserved in MySQL, indicated by the absence of `LONG_PASSWORD`.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase.html>

use std::iter;

use super::auth::{AuthNonce, NONCE_BYTES};
use super::capabilities::{CapabilityFlags, StatusFlags};
use super::lenenc::{self, PacketReader};

/// Version of the handshake; there is no other since 1998.
const PROTOCOL: u8 = 10;

/// Bytes of a nonce with the final NUL.
const NONCE_LENGTH: u8 = 21;
const _: () = assert!(NONCE_LENGTH as usize == NONCE_BYTES + 1, "as it is said");

/// The only method before methods had names.
const PLUGIN_DEFAULT: &[u8] = b"mysql_native_password";

/// Bytes of a client's request for TLS, which is the beginning of its response.
pub const SSL_REQUEST_BYTES: usize = 32;

/// First byte of a packet that requests another method.
pub const SWITCH: u8 = 0xFE;

/// First byte of a packet with more data for the method.
pub const MORE: u8 = 0x01;

/// Error in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Truncated or contradictory.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// From a client or server before 2004.
    #[error("{0} of a version before MySQL 4.1")]
    TooOld(&'static str),
    /// Later protocol version.
    #[error("version {0} of the handshake")]
    Version(u8),
}

/// Greeting of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello<'a> {
    /// Version, as reported by the server.
    pub version: &'a [u8],
    /// Number for the connection.
    pub thread_id: u32,
    /// Nonce for proofs.
    pub nonce: AuthNonce,
    /// Capabilities.
    pub capabilities: CapabilityFlags,
    /// Default collation.
    pub collation: u8,
    /// Status.
    pub status: StatusFlags,
    /// The method that it announces.
    pub plugin: &'a [u8],
}

impl<'a> ServerHello<'a> {
    /// Appends the greeting.
    pub fn write(&self, out: &mut Vec<u8>) {
        let [a, b, c, d, e, f, g, h] = self.capabilities.0.to_le_bytes();
        let (first, second) = self.nonce.bytes().split_at(8);
        out.push(PROTOCOL);
        out.extend_from_slice(self.version);
        out.push(0);
        out.extend_from_slice(&self.thread_id.to_le_bytes());
        out.extend_from_slice(first);
        out.extend_from_slice(&[0, a, b, self.collation]);
        out.extend_from_slice(&self.status.0.to_le_bytes());
        out.extend_from_slice(&[c, d, NONCE_LENGTH]);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&[e, f, g, h]);
        out.extend_from_slice(second);
        out.push(0);
        out.extend_from_slice(self.plugin);
        out.push(0);
    }

    /// Parses a greeting.
    ///
    /// # Errors
    /// If it is invalid or unsupported.
    pub fn parse(payload: &'a [u8]) -> Result<ServerHello<'a>, HandshakeError> {
        const WHAT: &str = "greeting";
        let malformed = || HandshakeError::Malformed(WHAT);
        let mut reader = PacketReader::new(payload);
        match reader.u8().ok_or_else(malformed)? {
            PROTOCOL => {}
            9 => return Err(HandshakeError::TooOld(WHAT)),
            version => return Err(HandshakeError::Version(version)),
        }
        let version = reader.nul_bytes().ok_or_else(malformed)?;
        let thread_id = reader.u32().ok_or_else(malformed)?;
        let first = reader.bytes(8).ok_or_else(malformed)?;
        reader.u8().ok_or_else(malformed)?;
        let [a, b] = reader.array().ok_or_else(malformed)?;
        // Servers before 4.1 send no more than that.
        let collation = reader.u8().ok_or(HandshakeError::TooOld(WHAT))?;
        let status = StatusFlags(reader.u16().ok_or_else(malformed)?);
        let [c, d] = reader.array().ok_or_else(malformed)?;
        let nonce_bytes = usize::from(reader.u8().ok_or_else(malformed)?);
        reader.bytes(6).ok_or_else(malformed)?;
        let extended: [u8; 4] = reader.array().ok_or_else(malformed)?;
        let capabilities = of_both([a, b, c, d], extended);
        if !capabilities
            .contains(CapabilityFlags::PROTOCOL_41.union(CapabilityFlags::SECURE_CONNECTION))
        {
            return Err(HandshakeError::TooOld(WHAT));
        }
        let second = reader.bytes(nonce_bytes.saturating_sub(8).max(13)).ok_or_else(malformed)?;
        let nonce = AuthNonce::parse(&[first, second].concat()).ok_or_else(malformed)?;
        let plugin = match capabilities.contains(CapabilityFlags::PLUGIN_AUTH) {
            true => to_nul(reader.rest()),
            false => PLUGIN_DEFAULT,
        };
        Ok(ServerHello { version, thread_id, nonce, capabilities, collation, status, plugin })
    }
}

/// First reply of a client: a request for TLS, or the complete login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstReply<'a> {
    /// Perform the TLS handshake; the login follows.
    Ssl {
        /// Capabilities; not trustworthy, because they were not encrypted.
        capabilities: CapabilityFlags,
    },
    /// Login.
    Response(HandshakeResponse<'a>),
}

impl<'a> FirstReply<'a> {
    /// Parses the first packet of a client; on an encrypted connection there is no request for TLS.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parse(payload: &'a [u8], is_encrypted: bool) -> Result<FirstReply<'a>, HandshakeError> {
        let response = || HandshakeError::Malformed("handshake response");
        let mut reader = PacketReader::new(payload);
        let [a, b, c, d] = reader.array().ok_or_else(response)?;
        let old = of_both([a, b, 0, 0], [0; 4]);
        if !old.contains(CapabilityFlags::PROTOCOL_41) {
            return Err(HandshakeError::TooOld("handshake response"));
        }
        let packet_max = reader.u32().ok_or_else(response)?;
        let collation = reader.u8().ok_or_else(response)?;
        reader.bytes(19).ok_or_else(response)?;
        let capabilities = of_both([a, b, c, d], reader.array().ok_or_else(response)?);
        if capabilities.contains(CapabilityFlags::SSL) && !is_encrypted {
            let is_all = reader.is_empty();
            return is_all.then_some(FirstReply::Ssl { capabilities }).ok_or_else(response);
        }
        if !capabilities.contains(CapabilityFlags::SECURE_CONNECTION) {
            return Err(HandshakeError::TooOld("handshake response"));
        }
        let user = reader.nul_bytes().ok_or_else(response)?;
        let answer = match capabilities.contains(CapabilityFlags::PLUGIN_AUTH_LENENC_CLIENT_DATA) {
            true => reader.lenenc_bytes(),
            false => reader.u8().and_then(|len| reader.bytes(usize::from(len))),
        };
        let answer = answer.ok_or_else(response)?;
        let database =
            database(&mut reader, capabilities.contains(CapabilityFlags::CONNECT_WITH_DB));
        let plugin = plugin(&mut reader, capabilities);
        let attributes = attributes(&mut reader, capabilities).ok_or_else(response)?;
        Ok(FirstReply::Response(HandshakeResponse {
            capabilities,
            packet_max,
            collation,
            user,
            answer,
            database,
            plugin,
            attributes,
        }))
    }
}

/// A client's response to a greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeResponse<'a> {
    /// Capabilities. Only those that the server offered are valid.
    pub capabilities: CapabilityFlags,
    /// The maximum packet that the client accepts.
    pub packet_max: u32,
    /// The collation, and so the character set, of the client.
    pub collation: u8,
    /// User name.
    pub user: &'a [u8],
    /// Proof, by `plugin`.
    pub answer: &'a [u8],
    /// Initial schema.
    pub database: Option<&'a [u8]>,
    /// The method of its proof; `None` for clients that know only one.
    pub plugin: Option<&'a [u8]>,
    /// Connection attributes.
    pub attributes: ConnectionAttributes<'a>,
}

impl HandshakeResponse<'_> {
    /// Appends the response. The proof must have fewer than 251 bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_head(out, self.capabilities, self.packet_max, self.collation);
        out.extend_from_slice(self.user);
        out.push(0);
        // The length has one byte in both forms, because the proof is short.
        lenenc::put_bytes(out, self.answer);
        if self.capabilities.contains(CapabilityFlags::CONNECT_WITH_DB) {
            out.extend_from_slice(self.database.unwrap_or_default());
            out.push(0);
        }
        if self.capabilities.contains(CapabilityFlags::PLUGIN_AUTH) {
            out.extend_from_slice(self.plugin.unwrap_or(PLUGIN_DEFAULT));
            out.push(0);
        }
        if self.capabilities.contains(CapabilityFlags::CONNECT_ATTRS) {
            lenenc::put_bytes(out, self.attributes.0);
        }
    }
}

/// Appends a request for TLS.
pub fn put_ssl_request(
    out: &mut Vec<u8>,
    capabilities: CapabilityFlags,
    packet_max: u32,
    collation: u8,
) {
    put_head(out, capabilities.union(CapabilityFlags::SSL), packet_max, collation);
}

/// Connection attributes of a client, pairs of names and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionAttributes<'a>(&'a [u8]);

impl<'a> ConnectionAttributes<'a> {
    /// Creates them from bytes written by [`ConnectionAttributes::put`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> ConnectionAttributes<'a> {
        ConnectionAttributes(bytes)
    }

    /// Appends a pair.
    pub fn put(out: &mut Vec<u8>, name: &str, value: &str) {
        lenenc::put_bytes(out, name.as_bytes());
        lenenc::put_bytes(out, value.as_bytes());
    }

    /// Returns the pairs, up to the first malformed one.
    pub fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut reader = PacketReader::new(self.0);
        iter::from_fn(move || Some((reader.lenenc_bytes()?, reader.lenenc_bytes()?)))
    }
}

/// `COM_CHANGE_USER`: a client's request to change its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeUser<'a> {
    /// User name.
    pub user: &'a [u8],
    /// A proof for the nonce of the greeting, or empty.
    pub answer: &'a [u8],
    /// New schema.
    pub database: Option<&'a [u8]>,
    /// New collation.
    pub collation: Option<u16>,
    /// The method of the proof.
    pub plugin: Option<&'a [u8]>,
    /// Connection attributes.
    pub attributes: ConnectionAttributes<'a>,
}

impl<'a> ChangeUser<'a> {
    /// Parses the request of a client with these capabilities, including the command's byte.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parse(
        payload: &'a [u8],
        capabilities: CapabilityFlags,
    ) -> Result<ChangeUser<'a>, HandshakeError> {
        let malformed = || HandshakeError::Malformed("COM_CHANGE_USER");
        let mut reader = PacketReader::new(payload);
        reader.u8().ok_or_else(malformed)?;
        let user = reader.nul_bytes().ok_or_else(malformed)?;
        let answer = reader.u8().and_then(|len| reader.bytes(usize::from(len)));
        let answer = answer.ok_or_else(malformed)?;
        let database = database(&mut reader, true);
        // Old clients send no more.
        let collation = reader.u16();
        let plugin = plugin(&mut reader, capabilities);
        let attributes = attributes(&mut reader, capabilities).ok_or_else(malformed)?;
        Ok(ChangeUser { user, answer, database, collation, plugin, attributes })
    }
}

/// Intermediate reply of a server to a proof, before its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthChallenge<'a> {
    /// Request for another method, with another nonce.
    Switch {
        /// The method.
        plugin: &'a [u8],
        /// Data: the nonce, usually with a final NUL.
        data: &'a [u8],
    },
    /// Request for the method before 4.1, which is insecure.
    OldPassword,
    /// Data for the current method.
    More(&'a [u8]),
}

impl<'a> AuthChallenge<'a> {
    /// Parses a challenge; `None` for any other packet.
    #[must_use]
    pub fn parse(payload: &'a [u8]) -> Option<AuthChallenge<'a>> {
        match *payload {
            [SWITCH] => Some(AuthChallenge::OldPassword),
            [SWITCH, ref rest @ ..] => {
                let mut reader = PacketReader::new(rest);
                let plugin = reader.nul_bytes()?;
                Some(AuthChallenge::Switch { plugin, data: reader.rest() })
            }
            [MORE, ref data @ ..] => Some(AuthChallenge::More(data)),
            _ => None,
        }
    }
}

/// Appends a request for another method.
pub fn put_switch(out: &mut Vec<u8>, plugin: &str, nonce: &AuthNonce) {
    out.push(SWITCH);
    out.extend_from_slice(plugin.as_bytes());
    out.push(0);
    out.extend_from_slice(nonce.bytes());
    out.push(0);
}

/// Appends data for the current method.
pub fn put_more(out: &mut Vec<u8>, data: &[u8]) {
    out.push(MORE);
    out.extend_from_slice(data);
}

/// Returns whether this is a version of MariaDB.
#[must_use]
pub fn is_mariadb(version: &[u8]) -> bool {
    version.windows(7).any(|part| part.eq_ignore_ascii_case(b"mariadb"))
}

/// Returns a version without MariaDB's prefix, which exists because the replication of old MySQL
/// cannot parse numbers of two digits.
#[must_use]
pub fn without_prefix(version: &[u8]) -> &[u8] {
    match version.strip_prefix(b"5.5.5-") {
        Some(own) if is_mariadb(own) => own,
        _ => version,
    }
}

/// Appends the beginning of a client's response.
fn put_head(out: &mut Vec<u8>, capabilities: CapabilityFlags, packet_max: u32, collation: u8) {
    let [a, b, c, d, e, f, g, h] = capabilities.0.to_le_bytes();
    out.extend_from_slice(&[a, b, c, d]);
    out.extend_from_slice(&packet_max.to_le_bytes());
    out.push(collation);
    out.extend_from_slice(&[0; 19]);
    out.extend_from_slice(&[e, f, g, h]);
}

/// Returns the capabilities of both halves. The second one is MariaDB's, and is only valid if the
/// bit is absent that every MySQL sets.
fn of_both([a, b, c, d]: [u8; 4], [e, f, g, h]: [u8; 4]) -> CapabilityFlags {
    let all = CapabilityFlags(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    match all.contains(CapabilityFlags::LONG_PASSWORD) {
        true => CapabilityFlags(u64::from_le_bytes([a, b, c, d, 0, 0, 0, 0])),
        false => all,
    }
}

/// Returns the bytes up to a NUL or the end: some clients and servers omit the last NUL.
fn to_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn rest_to_nul<'a>(reader: &mut PacketReader<'a>) -> &'a [u8] {
    reader.nul_bytes().unwrap_or_else(|| reader.rest())
}

fn database<'a>(reader: &mut PacketReader<'a>, is_there: bool) -> Option<&'a [u8]> {
    let name = is_there.then(|| rest_to_nul(reader))?;
    (!name.is_empty()).then_some(name)
}

fn plugin<'a>(reader: &mut PacketReader<'a>, capabilities: CapabilityFlags) -> Option<&'a [u8]> {
    let name = capabilities.contains(CapabilityFlags::PLUGIN_AUTH).then(|| rest_to_nul(reader))?;
    (!name.is_empty()).then_some(name)
}

/// Returns `None` if there are fewer bytes than announced.
fn attributes<'a>(
    reader: &mut PacketReader<'a>,
    capabilities: CapabilityFlags,
) -> Option<ConnectionAttributes<'a>> {
    if !capabilities.contains(CapabilityFlags::CONNECT_ATTRS) || reader.is_empty() {
        return Some(ConnectionAttributes::default());
    }
    reader.lenenc_bytes().map(ConnectionAttributes)
}

#[cfg(test)]
mod tests;
