//! The server's side.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc5802#section-5>

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use subtle::ConstantTimeEq;

use super::keys::decode_key;
use super::{
    ChannelBinding, END_POINT, MECHANISM, MECHANISM_PLUS, NONCE_BYTES, ScramError, ScramSecret,
    attribute, is_nonce, text,
};

/// An exchange after its challenge was sent.
#[derive(Debug)]
pub struct ScramServer {
    /// The client's first message without its header, a comma, the server's first message, a comma.
    auth_message: String,
    /// Both nonces.
    nonce: String,
    /// Channel binding that the client must send, encoded.
    binding: String,
}

/// A client that has proved the password.
#[derive(Debug)]
pub struct AcceptedClient {
    /// The final message for the client: proves that the server knows the secret.
    pub message: String,
    /// Key for every server that has the same secret: [`ScramSecret::keys`].
    pub client_key: [u8; 32],
}

impl ScramServer {
    /// Parses the client's first message and returns the challenge.
    ///
    /// `channel` is the offered binding: [`MECHANISM_PLUS`] is offered only with one.
    ///
    /// # Errors
    /// If the message is malformed, or client and server disagree about channel binding.
    pub fn first(
        secret: &ScramSecret,
        channel: ChannelBinding<'_>,
        mechanism: &str,
        message: &[u8],
        nonce: [u8; NONCE_BYTES],
    ) -> Result<(ScramServer, String), ScramError> {
        let whole = text(message)?;
        let malformed = ScramError::Malformed("no header");
        let (flag, rest) = whole.split_once(',').ok_or(malformed)?;
        let (authorization, bare) = rest.split_once(',').ok_or(malformed)?;
        if !authorization.is_empty() {
            return Err(ScramError::Unsupported("an authorization identity"));
        }
        let bound: &[u8] = match (mechanism, flag, channel) {
            (MECHANISM, "n", _) => &[],
            // The client supports binding and received no offer. If one was made, an attacker has
            // removed it.
            (MECHANISM, "y", ChannelBinding::Unbound | ChannelBinding::NotOffered) => &[],
            (MECHANISM_PLUS, END_POINT, ChannelBinding::EndPoint(hash)) => hash,
            (MECHANISM | MECHANISM_PLUS, ..) => return Err(ScramError::ChannelBinding),
            _ => return Err(ScramError::Unsupported("the mechanism")),
        };
        let mut attributes = bare;
        if attributes.starts_with("m=") {
            return Err(ScramError::Unsupported("a mandatory extension"));
        }
        attribute(&mut attributes, "n")?;
        let theirs = attribute(&mut attributes, "r")?;
        if !is_nonce(theirs) {
            return Err(ScramError::Malformed("nonce"));
        }
        let nonce = format!("{theirs}{}", BASE64.encode(nonce));
        let salt = BASE64.encode(secret.salt());
        let challenge = format!("r={nonce},s={salt},i={}", secret.iterations());
        let binding = BASE64.encode([format!("{flag},,").as_bytes(), bound].concat());
        let auth_message = format!("{bare},{challenge},");
        Ok((ScramServer { auth_message, nonce, binding }, challenge))
    }

    /// Checks the client's final message. `secret` must be that of the challenge.
    ///
    /// # Errors
    /// If it is malformed, bound to another channel, of another exchange, or a wrong proof.
    pub fn last(self, secret: &ScramSecret, message: &[u8]) -> Result<AcceptedClient, ScramError> {
        let whole = text(message)?;
        let malformed = ScramError::Malformed("no proof");
        let (without_proof, proof) = whole.rsplit_once(",p=").ok_or(malformed)?;
        let mut attributes = without_proof;
        let binding = attribute(&mut attributes, "c")?;
        let nonce = attribute(&mut attributes, "r")?;
        if !bool::from(binding.as_bytes().ct_eq(self.binding.as_bytes())) {
            return Err(ScramError::ChannelBinding);
        }
        if !bool::from(nonce.as_bytes().ct_eq(self.nonce.as_bytes())) {
            return Err(ScramError::Nonce);
        }
        let proof = decode_key(proof).ok_or(ScramError::Malformed("proof"))?;
        let auth_message = [self.auth_message.as_bytes(), without_proof.as_bytes()];
        let client_key = secret.check(proof, &auth_message).ok_or(ScramError::Proof)?;
        let message = format!("v={}", BASE64.encode(secret.signature(&auth_message)));
        Ok(AcceptedClient { message, client_key })
    }
}
