//! The plain text of a token, in both of its spellings.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Prefix of every token, so that people and secret scanners recognise one.
const PREFIX: &str = "cove_";

/// Length of a token: the prefix and 32 random bytes in base64url.
const BYTES: usize = PREFIX.len() + 43;

/// Prefix that E2B's clients insist on, with lower-case hexadecimal digits behind it: this, and
/// hexadecimal digits in lower case.
const E2B_PREFIX: &str = "e2b_";

/// Length of the other spelling, of the same 32 bytes.
const E2B_BYTES: usize = E2B_PREFIX.len() + 64;

/// The plain text of a token. It has no `Display`, so that no log line shows it by accident.
pub struct TokenSecret([u8; 32]);

impl TokenSecret {
    pub(super) fn new(random: [u8; 32]) -> TokenSecret {
        TokenSecret(random)
    }

    /// The text itself, for the one place that hands it to its owner.
    #[must_use]
    pub fn expose(&self) -> String {
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }

    /// Returns the token in the form of E2B's clients: they refuse what does not look like theirs.
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

/// Returns what a token is hashed as, whichever way it is spelled; none for what cannot be one.
pub(super) fn canonical(token: &str) -> Option<Cow<'_, str>> {
    if token.len() == BYTES && token.starts_with(PREFIX) {
        return Some(Cow::Borrowed(token));
    }
    let digits = token.strip_prefix(E2B_PREFIX).filter(|_| token.len() == E2B_BYTES)?;
    // One spelling each, as their clients have it.
    if digits.bytes().any(|digit| digit.is_ascii_uppercase()) {
        return None;
    }
    Some(Cow::Owned(TokenSecret(crate::hex::decode_32(digits)?).expose()))
}

/// Converts a token from one spelling to the other: a caller who has one spelling can be shown the
/// other.
#[must_use]
pub fn as_e2b(token: &str) -> Option<String> {
    let token = canonical(token)?;
    let random = URL_SAFE_NO_PAD.decode(token.strip_prefix(PREFIX)?).ok()?;
    Some(TokenSecret(random.try_into().ok()?).expose_as_e2b())
}
