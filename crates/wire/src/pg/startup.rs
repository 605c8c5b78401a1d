//! The first packets of a client: requests for encryption, for cancelling, and the startup message.
//!
//! Source: PostgreSQL 18, "Message Formats"; `src/backend/tcop/backend_startup.c` for what a server
//! refuses. Lengths are checked before any content is used.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-START-UP>
//! - <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::fmt;

/// Maximum length of a first packet; PostgreSQL's `MAX_STARTUP_PACKET_LENGTH`.
pub const STARTUP_BYTES_MAX: usize = 10_000;

/// Maximum length of a `CancelRequest`'s key, by protocol version 3.2.
pub const CANCEL_KEY_BYTES_MAX: usize = 256;

/// Length of a `CancelRequest`'s key by protocol version 3.0, the minimum.
pub const CANCEL_KEY_BYTES_MIN: usize = 4;

/// The first byte of a TLS handshake record: a client with direct TLS.
pub const TLS_HANDSHAKE: u8 = 0x16;

/// Codes in place of a version, from `src/include/libpq/pqcomm.h`.
pub(crate) const CANCEL_REQUEST: u32 = 80_877_102;
pub(crate) const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// Length and code.
const HEAD_BYTES: usize = 8;

/// Why a first packet is invalid. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// Shorter than its header, or longer than the maximum.
    #[error("invalid length of startup packet: {0}")]
    Length(u32),
    /// The lengths inside do not match the packet's.
    #[error("invalid startup packet layout")]
    Layout,
    /// An unsupported major version.
    #[error("unsupported frontend protocol {0}: server supports 3.0 to 3.2")]
    Version(ProtocolVersion),
    /// A name or value that is not UTF-8.
    #[error("a startup parameter is not UTF-8")]
    NotUtf8,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtocolVersion {
    /// 3 for everything since PostgreSQL 7.4.
    pub major: u16,
    /// 0, or 2 since PostgreSQL 18.
    pub minor: u16,
}

impl ProtocolVersion {
    /// Version that all clients and servers support.
    pub const V3_0: ProtocolVersion = ProtocolVersion { major: 3, minor: 0 };
    /// Version with long cancel keys.
    pub const V3_2: ProtocolVersion = ProtocolVersion { major: 3, minor: 2 };

    /// Returns the version's code in the startup message.
    #[must_use]
    pub fn code(self) -> u32 {
        u32::from(self.major) << 16 | u32::from(self.minor)
    }

    /// Returns the version of a code.
    #[must_use]
    pub fn from_code(code: u32) -> ProtocolVersion {
        let [a, b, c, d] = code.to_be_bytes();
        ProtocolVersion { major: u16::from_be_bytes([a, b]), minor: u16::from_be_bytes([c, d]) }
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstPacket<'a> {
    /// Requests TLS; answered with one byte.
    Ssl,
    /// Requests GSSAPI encryption; answered with one byte.
    Gss,
    /// Requests the cancellation of another connection's statement. There is no reply.
    Cancel {
        /// The process id of that connection's `BackendKeyData`.
        pid: u32,
        /// Key: [`CANCEL_KEY_BYTES_MIN`] to [`CANCEL_KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
    },
    /// Starts a session.
    Startup(StartupMessage<'a>),
}

/// Parses a first packet at the beginning of `bytes`, and returns its length; `None` while it is
/// incomplete.
///
/// # Errors
/// If it is invalid, whatever bytes follow.
pub fn parse(bytes: &[u8]) -> Result<Option<(FirstPacket<'_>, usize)>, StartupError> {
    let Some(length) = number(bytes, 0) else { return Ok(None) };
    let total = usize::try_from(length).unwrap_or(usize::MAX);
    if !(HEAD_BYTES..=STARTUP_BYTES_MAX).contains(&total) {
        return Err(StartupError::Length(length));
    }
    let (Some(packet), Some(code)) = (bytes.get(..total), number(bytes, 4)) else {
        return Ok(None);
    };
    let body = packet.get(HEAD_BYTES..).unwrap_or(&[]);
    let first = match code {
        SSL_REQUEST | GSS_REQUEST if !body.is_empty() => return Err(StartupError::Length(length)),
        SSL_REQUEST => FirstPacket::Ssl,
        GSS_REQUEST => FirstPacket::Gss,
        CANCEL_REQUEST => cancel(body).ok_or(StartupError::Length(length))?,
        _ => FirstPacket::Startup(StartupMessage::parse(ProtocolVersion::from_code(code), body)?),
    };
    Ok(Some((first, total)))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let (number, _) = bytes.get(at..)?.split_first_chunk()?;
    Some(u32::from_be_bytes(*number))
}

fn cancel(body: &[u8]) -> Option<FirstPacket<'_>> {
    let (pid, key) = body.split_first_chunk()?;
    let fits = (CANCEL_KEY_BYTES_MIN..=CANCEL_KEY_BYTES_MAX).contains(&key.len());
    fits.then_some(FirstPacket::Cancel { pid: u32::from_be_bytes(*pid), key })
}

/// A startup message whose layout was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartupMessage<'a> {
    /// Version that the client requests. The major version is 3.
    pub version: ProtocolVersion,
    /// Names and values, each with its NUL byte.
    parameters: &'a str,
}

impl<'a> StartupMessage<'a> {
    fn parse(version: ProtocolVersion, body: &'a [u8]) -> Result<StartupMessage<'a>, StartupError> {
        if version.major != 3 {
            return Err(StartupError::Version(version));
        }
        let Some((0, parameters)) = body.split_last() else { return Err(StartupError::Layout) };
        let startup = StartupMessage { version, parameters: "" };
        if parameters.is_empty() {
            return Ok(startup);
        }
        let Some((0, inner)) = parameters.split_last() else { return Err(StartupError::Layout) };
        // Names are at even positions, and an empty one ends the list; values may be empty.
        let mut count = 0_usize;
        for (place, part) in inner.split(|byte| *byte == 0).enumerate() {
            if place.is_multiple_of(2) && part.is_empty() {
                return Err(StartupError::Layout);
            }
            count = place.saturating_add(1);
        }
        if !count.is_multiple_of(2) {
            return Err(StartupError::Layout);
        }
        let parameters = std::str::from_utf8(parameters).map_err(|_| StartupError::NotUtf8)?;
        Ok(StartupMessage { parameters, ..startup })
    }

    /// Returns names and values in their order. A name may occur twice; the last one is valid.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut parts = self.parameters.split_terminator('\0');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// Returns the value of a parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters().filter(|(one, _)| *one == name).last().map(|(_, value)| value)
    }
}

/// Why the startup parameter `options` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Option that sets no parameter. Clients may not use the rest of a server's command line.
    #[error("unsupported startup option {0:?}: only -c name=value and --name=value are")]
    Unsupported(String),
    /// A parameter without a value.
    #[error("startup option {0:?} requires a value")]
    NoValue(String),
}

/// Parses the startup parameter `options`: `-c name=value`, `-cname=value` and `--name=value`,
/// separated by whitespace, which a backslash escapes. As in the server, dashes in names are
/// underscores.
///
/// # Errors
/// If it contains anything else.
pub fn options(text: &str) -> Result<Vec<(String, String)>, OptionsError> {
    let mut found = Vec::new();
    let mut arguments = split_options(text).into_iter();
    while let Some(word) = arguments.next() {
        let setting = if let Some(setting) = word.strip_prefix("--").filter(|it| !it.is_empty()) {
            setting.to_owned()
        } else {
            match word.strip_prefix("-c") {
                Some("") => arguments.next().ok_or_else(|| OptionsError::NoValue(word.clone()))?,
                Some(setting) => setting.to_owned(),
                None => return Err(OptionsError::Unsupported(word)),
            }
        };
        match setting.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                found.push((name.replace('-', "_"), value.to_owned()));
            }
            _ => return Err(OptionsError::NoValue(setting)),
        }
    }
    Ok(found)
}

/// Splits at whitespace, and removes backslashes (`pg_split_opts`).
fn split_options(text: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // Whitespace of the server's `isspace`.
            ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c' => arguments.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(letters.next()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    arguments.extend(word);
    arguments
}

#[cfg(test)]
mod tests;
