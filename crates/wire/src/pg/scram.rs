//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS, both sides.
//!
//! Sources: RFC 5802, RFC 7677, RFC 5929 (`tls-server-end-point`), and PostgreSQL's deviations: the
//! user name of the exchange is ignored, because the startup message has one; a password that
//! SASLprep refuses is used as it is. Nonces come from the caller, who has the randomness.
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

/// The longest message that is read; real ones have less than 300 bytes.
pub const SCRAM_BYTES_MAX: usize = 4096;

/// The longest salt that is taken from a server.
const SALT_BYTES_MAX: usize = 1024;

/// The name of the binding that everybody has: the hash of the server's certificate.
const END_POINT: &str = "p=tls-server-end-point";

/// Why an exchange fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// The message is not of the form that the exchange has.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// Feature of the protocol that is not supported here.
    #[error("unsupported in SCRAM: {0}")]
    Unsupported(&'static str),
    /// The other side was told, or believes, something else about channel binding: somebody may be
    /// in between.
    #[error("SCRAM channel binding check failed")]
    ChannelBinding,
    /// The nonce is not the one that was sent.
    #[error("SCRAM nonce does not match")]
    Nonce,
    /// The client does not know the password.
    #[error("SCRAM proof does not match")]
    Proof,
    /// The server does not know the password: it is not who it says.
    #[error("SCRAM server signature does not match")]
    Signature,
    /// The server asks for more hashing than we are willing to do.
    #[error("server demands {0} iterations of SCRAM, more than {ITERATIONS_MAX}")]
    Iterations(u64),
    /// The server refuses.
    #[error("server refuses the SCRAM exchange")]
    Refused,
}

/// Channel binding that TLS below the exchange allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelBinding<'a> {
    /// No channel to bind to: no TLS, or no certificate at hand.
    Unbound,
    /// A client that could bind, talking to a server that does not offer it. Of no use to a server.
    NotOffered,
    /// The hash of the server's certificate by `tls-server-end-point`.
    EndPoint(&'a [u8]),
}

/// The text of a message.
fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > SCRAM_BYTES_MAX {
        return Err(ScramError::Malformed("too long"));
    }
    std::str::from_utf8(message).map_err(|_| ScramError::Malformed("not UTF-8"))
}

/// Takes the attribute `name` from the beginning of `rest`, up to a comma or the end.
fn attribute<'a>(rest: &mut &'a str, name: &str) -> Result<&'a str, ScramError> {
    let (first, after) = rest.split_once(',').unwrap_or((rest, ""));
    let value = first.strip_prefix(name).and_then(|value| value.strip_prefix('='));
    let value = value.ok_or(ScramError::Malformed("an attribute is missing"))?;
    *rest = after;
    Ok(value)
}

/// A nonce has visible letters only, and no comma.
fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}
