//! The client's side, for servers that may be hostile.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc5802#section-5>

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use subtle::ConstantTimeEq;

use super::keys::decode_key;
use super::{
    ChannelBinding, END_POINT, ITERATIONS_MAX, MECHANISM, MECHANISM_PLUS, NONCE_BYTES,
    SALT_BYTES_MAX, ScramError, ScramKeys, attribute, is_nonce, text,
};

/// A new exchange.
#[derive(Debug)]
pub struct ScramClient {
    mechanism: &'static str,
    /// GS2 header, which states the channel binding: `n,,`, `y,,` or `p=…,,`.
    header: String,
    /// The first message without the header.
    bare: String,
    nonce: String,
    /// Channel binding data.
    bound: Vec<u8>,
}

impl ScramClient {
    /// Starts an exchange over this channel.
    #[must_use]
    pub fn new(channel: ChannelBinding<'_>, nonce: [u8; NONCE_BYTES]) -> ScramClient {
        let (mechanism, flag, bound): (_, _, &[u8]) = match channel {
            ChannelBinding::Unbound => (MECHANISM, "n", &[]),
            ChannelBinding::NotOffered => (MECHANISM, "y", &[]),
            ChannelBinding::EndPoint(hash) => (MECHANISM_PLUS, END_POINT, hash),
        };
        let nonce = BASE64.encode(nonce);
        // PostgreSQL uses the name of the startup message.
        let bare = format!("n=,r={nonce}");
        ScramClient { mechanism, header: format!("{flag},,"), bare, nonce, bound: bound.to_vec() }
    }

    /// Returns the mechanism to request.
    #[must_use]
    pub fn mechanism(&self) -> &'static str {
        self.mechanism
    }

    /// Returns the first message.
    #[must_use]
    pub fn first(&self) -> String {
        format!("{}{}", self.header, self.bare)
    }

    /// Parses the server's challenge.
    ///
    /// # Errors
    /// If it is malformed, of another exchange, or requests too many iterations.
    pub fn challenge(self, message: &[u8]) -> Result<ServerChallenge, ScramError> {
        let whole = text(message)?;
        if whole.starts_with("m=") {
            return Err(ScramError::Unsupported("a mandatory extension"));
        }
        let mut attributes = whole;
        let nonce = attribute(&mut attributes, "r")?;
        let salt = attribute(&mut attributes, "s")?;
        let iterations = attribute(&mut attributes, "i")?;
        // A nonce that adds nothing to the client's is a reused one.
        let added = nonce.strip_prefix(&self.nonce).filter(|added| is_nonce(added));
        added.ok_or(ScramError::Nonce)?;
        let salt = BASE64.decode(salt).map_err(|_| ScramError::Malformed("salt"))?;
        if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
            return Err(ScramError::Malformed("salt"));
        }
        let iterations: u64 =
            iterations.parse().map_err(|_| ScramError::Malformed("iterations"))?;
        let bounded = u32::try_from(iterations).ok().filter(|it| *it <= ITERATIONS_MAX);
        let iterations = match bounded.ok_or(ScramError::Iterations(iterations))? {
            0 => return Err(ScramError::Malformed("iterations")),
            iterations => iterations,
        };
        let binding = BASE64.encode([self.header.as_bytes(), &self.bound].concat());
        let last = format!("c={binding},r={nonce}");
        let auth_message = format!("{},{whole},{last}", self.bare);
        Ok(ServerChallenge { salt, iterations, last, auth_message })
    }
}

/// A server's challenge, with the parameters of the keys.
#[derive(Debug)]
pub struct ServerChallenge {
    /// Salt that the password is hashed with.
    pub salt: Vec<u8>,
    /// Number of iterations, at most [`ITERATIONS_MAX`].
    pub iterations: u32,
    /// The final message without its proof.
    last: String,
    auth_message: String,
}

impl ServerChallenge {
    /// Returns the final message, and the expected answer of the server. The keys must
    /// [`fit`](ScramKeys::fit).
    #[must_use]
    pub fn answer(self, keys: &ScramKeys) -> (String, ExpectedSignature) {
        debug_assert!(keys.fit(&self.salt, self.iterations), "keys of another salt");
        let auth_message = [self.auth_message.as_bytes()];
        let proof = BASE64.encode(keys.proof(&auth_message));
        (format!("{},p={proof}", self.last), ExpectedSignature(keys.signature(&auth_message)))
    }
}

/// Signature that a server sends if it knows the secret.
pub struct ExpectedSignature([u8; 32]);

impl ExpectedSignature {
    /// Checks the server's final message.
    ///
    /// # Errors
    /// If the server refuses, or does not know the secret.
    pub fn check(self, message: &[u8]) -> Result<(), ScramError> {
        let whole = text(message)?;
        if whole.starts_with("e=") {
            return Err(ScramError::Refused);
        }
        let mut attributes = whole;
        let signature = decode_key(attribute(&mut attributes, "v")?);
        let signature = signature.ok_or(ScramError::Malformed("signature"))?;
        bool::from(signature.ct_eq(&self.0)).then_some(()).ok_or(ScramError::Signature)
    }
}

impl fmt::Debug for ExpectedSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expected(..)")
    }
}
