//! The plain text of a token, in both of its spellings.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Prefix of every token, so that people and secret scanners recognise one.
const PREFIX: &str = "cove_";

/// Length of a token: the prefix and 32 random bytes in base64url.
const BYTES: usize = PREFIX.len() + 43;

/// Prefix that E2B's clients require; it is followed by lower-case hexadecimal digits.
const E2B_PREFIX: &str = "e2b_";

/// Length of the other spelling, of the same 32 bytes.
const E2B_BYTES: usize = E2B_PREFIX.len() + 64;

/// The plain text of a token. It has no `Display`, so that no log line shows it by accident.
pub struct TokenSecret([u8; 32]);

impl TokenSecret {
    pub(super) fn new(random: [u8; 32]) -> TokenSecret {
        TokenSecret(random)
    }

    /// Returns the plain text, for the one place that passes it to its owner.
    #[must_use]
    pub fn expose(&self) -> String {
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }

    /// Returns the token in the form of E2B's clients, which reject any other form.
    #[must_use]
    pub fn expose_as_e2b(&self) -> String {
        format!("{E2B_PREFIX}{}", crate::hex::encode(&self.0))
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Returns the form of a token that is hashed, for either spelling; none for a text that is no
/// token.
pub(super) fn canonical(token: &str) -> Option<Cow<'_, str>> {
    if token.len() == BYTES && token.starts_with(PREFIX) {
        return Some(Cow::Borrowed(token));
    }
    let digits = token.strip_prefix(E2B_PREFIX).filter(|_| token.len() == E2B_BYTES)?;
    // Only one spelling of the digits is valid, as in E2B's clients.
    if digits.bytes().any(|digit| digit.is_ascii_uppercase()) {
        return None;
    }
    Some(Cow::Owned(TokenSecret(crate::hex::decode_32(digits)?).expose()))
}

/// Converts a token to E2B's spelling, in which a caller can be shown its token.
#[must_use]
pub fn as_e2b(token: &str) -> Option<String> {
    let token = canonical(token)?;
    let random = URL_SAFE_NO_PAD.decode(token.strip_prefix(PREFIX)?).ok()?;
    Some(TokenSecret(random.try_into().ok()?).expose_as_e2b())
}
