//! The first packets of a client: requests for encryption, for cancelling, and the startup message.
//!
//! Source: PostgreSQL 18, "Message Formats"; `src/backend/tcop/backend_startup.c` for what a server
//! refuses. Nothing here is believed before its length was checked.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-START-UP>
//! - <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::fmt;

/// The longest first packet that is read; PostgreSQL's `MAX_STARTUP_PACKET_LENGTH`.
pub const STARTUP_BYTES_MAX: usize = 10_000;

/// The longest key of a `CancelRequest`, by protocol version 3.2.
pub const CANCEL_KEY_BYTES_MAX: usize = 256;

/// The key of a `CancelRequest` by protocol version 3.0; none is shorter.
pub const CANCEL_KEY_BYTES_MIN: usize = 4;

/// The first byte of a TLS record with a handshake: a client that begins with TLS at once.
pub const TLS_HANDSHAKE: u8 = 0x16;

/// Codes in the place of a version, from `src/include/libpq/pqcomm.h`.
pub(crate) const CANCEL_REQUEST: u32 = 80_877_102;
pub(crate) const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// Length and code.
const HEAD_BYTES: usize = 8;

/// Why a first packet is none. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// Shorter than its head, or longer than what is read.
    #[error("invalid length of startup packet: {0}")]
    Length(u32),
    /// The lengths inside do not fit the packet's.
    #[error("invalid startup packet layout")]
    Layout,
    /// A major version that nobody speaks any more, or not yet.
    #[error("unsupported frontend protocol {0}: server supports 3.0 to 3.2")]
    Version(ProtocolVersion),
    /// A name or value that is no UTF-8.
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
    /// Version that all clients and servers speak.
    pub const V3_0: ProtocolVersion = ProtocolVersion { major: 3, minor: 0 };
    /// With long keys for cancelling.
    pub const V3_2: ProtocolVersion = ProtocolVersion { major: 3, minor: 2 };

    /// Returns the version's code in the startup message.
    #[must_use]
    pub fn code(self) -> u32 {
        u32::from(self.major) << 16 | u32::from(self.minor)
    }

    /// The version of a code.
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
    /// Asks for TLS; answered with one byte.
    Ssl,
    /// Asks for GSSAPI encryption; answered with one byte.
    Gss,
    /// Asks to cancel what another connection runs. There is no answer.
    Cancel {
        /// The process id of that connection's `BackendKeyData`.
        pid: u32,
        /// Key: [`CANCEL_KEY_BYTES_MIN`] to [`CANCEL_KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
    },
    /// Begins a session.
    Startup(StartupMessage<'a>),
}

/// Reads a first packet from the beginning of `bytes`, and says how long it is; none while it is
/// not all there.
///
/// # Errors
/// When it can not become one, however many bytes follow.
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
    /// Version that the client speaks. The major version is 3.
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
        // Names at even places, which end the list when empty; values may be empty.
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

    /// Names and values in the order they came. A name may come twice; the last one holds.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut parts = self.parameters.split_terminator('\0');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// The value of a parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters().filter(|(one, _)| *one == name).last().map(|(_, value)| value)
    }
}

/// Why the startup parameter `options` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Option that sets no parameter. The rest of a server's command line is not for clients.
    #[error("unsupported startup option {0:?}: only -c name=value and --name=value are")]
    Unsupported(String),
    /// A parameter without a value.
    #[error("startup option {0:?} requires a value")]
    NoValue(String),
}

/// Reads the startup parameter `options`: `-c name=value`, `-cname=value` and `--name=value`,
/// parted by white space, in which a backslash takes what follows as it is. As in the server's own
/// reading, dashes in names are underscores.
///
/// # Errors
/// When it has anything else.
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

/// Words parted by white space, without their backslashes (`pg_split_opts`).
fn split_options(text: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // What the server's `isspace` takes for white space.
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
