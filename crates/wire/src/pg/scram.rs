//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS, both sides.
//!
//! Sources: RFC 5802, RFC 7677, RFC 5929 (`tls-server-end-point`), and PostgreSQL's deviations: the
//! user name of the exchange is ignored, because the startup message has one; a password that
//! SASLprep rejects is used unchanged. The caller supplies the nonces.
//!
//! A server recovers the client's key from its proof ([`AcceptedClient::client_key`]). With it a
//! pooler can log in to a server that holds the same secret, without ever knowing the password.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc5802>
//! - <https://www.rfc-editor.org/rfc/rfc7677>
//! - <https://www.postgresql.org/docs/current/sasl-authentication.html>

mod client;
mod keys;
mod server;
#[cfg(test)]
mod tests;

pub use client::{ExpectedSignature, ScramClient, ServerChallenge};
pub use keys::{ITERATIONS_DEFAULT, ITERATIONS_MAX, ScramKeys, ScramSecret};
pub use server::{AcceptedClient, ScramServer};

/// Without channel binding.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// With channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// Random bytes of a nonce, as in PostgreSQL; 24 characters on the wire.
pub const NONCE_BYTES: usize = 18;

/// Maximum length of a message; real ones have less than 300 bytes.
pub const SCRAM_BYTES_MAX: usize = 4096;

/// Maximum length of a server's salt.
const SALT_BYTES_MAX: usize = 1024;

/// The channel binding that all implementations support: the hash of the server's certificate.
const END_POINT: &str = "p=tls-server-end-point";

/// Why an exchange fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// The message is malformed.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// Unsupported feature of the protocol.
    #[error("unsupported in SCRAM: {0}")]
    Unsupported(&'static str),
    /// The peers disagree about channel binding: an attacker may be on the path.
    #[error("SCRAM channel binding check failed")]
    ChannelBinding,
    /// The nonce does not match the one that was sent.
    #[error("SCRAM nonce does not match")]
    Nonce,
    /// The client does not know the password.
    #[error("SCRAM proof does not match")]
    Proof,
    /// The server does not know the password: it is an impostor.
    #[error("SCRAM server signature does not match")]
    Signature,
    /// The server requests more iterations than allowed.
    #[error("server demands {0} iterations of SCRAM, more than {ITERATIONS_MAX}")]
    Iterations(u64),
    /// The server refuses.
    #[error("server refuses the SCRAM exchange")]
    Refused,
}

/// Channel binding that the TLS connection allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelBinding<'a> {
    /// No channel to bind to: no TLS, or no certificate available.
    Unbound,
    /// For a client that supports binding, with a server that does not offer it. Not used by
    /// servers.
    NotOffered,
    /// The hash of the server's certificate by `tls-server-end-point`.
    EndPoint(&'a [u8]),
}

/// Returns the text of a message.
fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > SCRAM_BYTES_MAX {
        return Err(ScramError::Malformed("too long"));
    }
    std::str::from_utf8(message).map_err(|_| ScramError::Malformed("not UTF-8"))
}

/// Parses the attribute `name` at the beginning of `rest`, up to a comma or the end.
fn attribute<'a>(rest: &mut &'a str, name: &str) -> Result<&'a str, ScramError> {
    let (first, after) = rest.split_once(',').unwrap_or((rest, ""));
    let value = first.strip_prefix(name).and_then(|value| value.strip_prefix('='));
    let value = value.ok_or(ScramError::Malformed("an attribute is missing"))?;
    *rest = after;
    Ok(value)
}

/// Returns whether a text is a valid nonce: visible characters only, and no comma.
fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}
