//! Credentials of a sandbox: its tokens, their signatures, and its id.
//!
//! Tokens are not stored: each is a keyed hash of the sandbox's id and the id of the API token for
//! which it was issued. So every server with the same key can verify them, a request with a wrong
//! token is rejected without a lookup, and revoking an API token revokes the tokens issued for it.

use std::fmt;

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hmac::{Hmac, Mac as _};
use node::{auth, clock};
use sha2::{Digest as _, Sha256};

use crate::error::SessionError;

/// First letter of every id; ids of other faces do not begin with it.
const ID_PREFIX: char = 'i';
/// Number of time digits and of random digits of an id: ports of a sandbox are open to anyone who
/// knows its id. Both fit into a host name label, which has at most 63 characters.
const TIME_DIGITS: u32 = 10;
const RANDOM_DIGITS: usize = 16;
/// Digits of ids, in ascending order. Lower case only, because host names are case-insensitive.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Separates a token's keyed hash from the id of its API token.
const HOLDER_MARK: char = '.';
/// Prefix of a signature: its format version.
const SIGNATURE_PREFIX: &str = "v1_";

/// Key for issuing and verifying tokens.
#[derive(Clone)]
pub(super) struct TokenKeys(Hmac<Sha256>);

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl TokenKeys {
    /// Creates the key from key material that all servers of the store share.
    pub(super) fn new(key: &[u8; 32]) -> TokenKeys {
        // HMAC takes keys of any length; it has no other reason to refuse one.
        TokenKeys(Hmac::new_from_slice(key).expect("HMAC takes every key"))
    }

    /// Issues a token for files and processes of a sandbox, for the API token `holder`.
    pub(super) fn access(&self, id: &str, holder: &str) -> String {
        self.of(TokenPurpose::Access, id, holder)
    }

    /// Issues a token for the upload of an archive, for the API token `holder`.
    pub(super) fn upload(&self, archive: &str, holder: &str) -> String {
        self.of(TokenPurpose::Upload, archive, holder)
    }

    /// Issues a token for the non-public ports of a sandbox, for the API token `holder`.
    pub(super) fn traffic(&self, id: &str, holder: &str) -> String {
        self.of(TokenPurpose::Traffic, id, holder)
    }

    /// Returns the id of the API token for which a token was issued; none if the token is invalid
    /// here.
    pub(super) fn holder<'a>(
        &self,
        purpose: TokenPurpose,
        id: &str,
        given: &'a str,
    ) -> Option<&'a str> {
        let (_, holder) = given.split_once(HOLDER_MARK)?;
        same(given, &self.of(purpose, id, holder)).then_some(holder)
    }

    /// Returns a number for one life of a sandbox, in the form of Linux's `boot_id`.
    pub(super) fn boot(&self, id: &str, began_ms: u64) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("boot:{id}:{began_ms}").as_bytes());
        let mut digits = node::hex::encode(&mac.finalize().into_bytes());
        digits.truncate(32);
        // Group boundaries of a UUID (RFC 9562 §4), from the last one on.
        for at in [20, 16, 12, 8] {
            digits.insert(at, '-');
        }
        digits
    }

    fn of(&self, purpose: TokenPurpose, id: &str, holder: &str) -> String {
        let mut mac = self.0.clone();
        let purpose = match purpose {
            TokenPurpose::Access => "access",
            TokenPurpose::Traffic => "traffic",
            TokenPurpose::Upload => "upload",
        };
        // Neither ids nor purposes contain the separator.
        for part in [purpose, ":", id, ":", holder] {
            mac.update(part.as_bytes());
        }
        let hash = node::hex::encode(&mac.finalize().into_bytes());
        format!("{hash}{HOLDER_MARK}{holder}")
    }
}

/// Kind of access that a token gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenPurpose {
    /// Files and processes.
    Access,
    /// Ports.
    Traffic,
    /// An archive for a template.
    Upload,
}

/// Compares secrets without leaking through timing where they differ.
pub(super) fn same(given: &str, expected: &str) -> bool {
    // Hashes have equal length, and the position of a difference between them reveals nothing about
    // the inputs.
    Sha256::digest(given.as_bytes()) == Sha256::digest(expected.as_bytes())
}

/// Operation that a signed URL permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignedOperation {
    Read,
    Write,
}

impl SignedOperation {
    /// Returns the operation of a request to `/files`; none for other methods.
    pub(super) fn of(method: &Method) -> Option<SignedOperation> {
        match *method {
            Method::GET => Some(SignedOperation::Read),
            Method::POST => Some(SignedOperation::Write),
            _ => None,
        }
    }

    /// Returns its name in the signed text.
    pub(super) fn name(self) -> &'static str {
        match self {
            SignedOperation::Read => "read",
            SignedOperation::Write => "write",
        }
    }
}

/// Claims of a signed URL.
#[derive(Clone, Debug)]
pub(super) struct SignedClaims<'a> {
    pub(super) path: &'a str,
    pub(super) user: &'a str,
    /// Expiry in seconds since 1970.
    pub(super) expires_s: Option<u64>,
    pub(super) signature: &'a str,
}

impl SignedClaims<'_> {
    /// Returns whether the signature was made with this token.
    pub(super) fn is_of(&self, operation: SignedOperation, token: &str) -> bool {
        let operation = operation.name();
        let mut text = format!("{}:{operation}:{}:{token}", self.path, self.user);
        if let Some(expires_s) = self.expires_s {
            text.push_str(&format!(":{expires_s}"));
        }
        let hash = STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes()));
        let expected = format!("{SIGNATURE_PREFIX}{hash}");
        same(self.signature, &expected)
    }

    /// Returns whether the signature has expired.
    pub(super) fn is_stale(&self, now_ms: u64) -> bool {
        self.expires_s.is_some_and(|at| at <= now_ms / 1000)
    }
}

/// Creates a sandbox id; later ids sort after earlier ones.
///
/// # Errors
/// If the kernel provides no random bytes.
pub(super) fn new_id() -> Result<String, SessionError> {
    let random = auth::random_key().map_err(SessionError::internal)?;
    let now_ms = clock::wall_ms();
    let digit =
        |value: u8| char::from(DIGITS.get(usize::from(value & 31)).copied().unwrap_or(b'0'));
    let mut id = String::from(ID_PREFIX);
    for place in (0..TIME_DIGITS).rev() {
        let [low, ..] = (now_ms >> (5 * place)).to_le_bytes();
        id.push(digit(low));
    }
    id.extend(random.iter().take(RANDOM_DIGITS).map(|byte| digit(*byte)));
    Ok(id)
}

/// Returns whether a text has the form of this face's sandbox ids.
pub(super) fn is_id(text: &str) -> bool {
    let length = 1 + usize::try_from(TIME_DIGITS).unwrap_or(0) + RANDOM_DIGITS;
    text.len() == length
        && text
            .strip_prefix(ID_PREFIX)
            .is_some_and(|rest| rest.bytes().all(|b| DIGITS.contains(&b)))
}

#[cfg(test)]
mod tests {
    //! A token is valid only for its purpose.

    use super::*;

    #[test]
    fn ids_are_names_of_hosts_and_grow() {
        let mut last = String::new();
        for _ in 0..100 {
            let id = new_id().unwrap();
            assert!(is_id(&id), "{id}");
            assert!(id[..11] >= last[..last.len().min(11)], "{last} {id}");
            last = id;
        }
        for wrong in ["", "i", "ses_01JD5N3V9Q4ZK6T8R2W7XY", "j00000000000000000000000000"] {
            assert!(!is_id(wrong), "{wrong}");
        }
        assert!(!is_id(&last.to_uppercase()));
        assert!(!is_id(&format!("{last}0")));
    }

    #[test]
    fn every_sandbox_and_purpose_has_its_own_token() {
        let keys = TokenKeys::new(&[1; 32]);
        let all = [
            keys.access("a", "tok_1"),
            keys.access("a", "tok_2"),
            keys.access("b", "tok_1"),
            keys.traffic("a", "tok_1"),
            TokenKeys::new(&[2; 32]).access("a", "tok_1"),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(keys.access("a", "tok_1"), all[0]);
        let holder = |given: &str| keys.holder(TokenPurpose::Access, "a", given).map(str::to_owned);
        assert_eq!(holder(&all[0]).as_deref(), Some("tok_1"));
        assert_eq!(holder(&all[1]).as_deref(), Some("tok_2"));
        let hash = all[0].split('.').next().unwrap();
        for wrong in [&all[2], &all[3], &all[4], hash, &format!("{hash}.tok_2"), ""] {
            assert_eq!(holder(wrong), None, "{wrong}");
        }
        let boot = keys.boot("a", 1);
        let lengths: Vec<usize> = boot.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{boot}");
        assert_ne!(boot, keys.boot("a", 2));
    }

    #[test]
    fn a_signature_is_for_one_path_one_operation_and_one_time() {
        // Created by the Python client 2.63.0.
        let signature = "v1_dDNoBxe3rZ1nrOBZr/EsqnxVvmZ1lm1vvfrnyeDBxEA";
        let token = "token";
        let claim = |path, user, expires_s| SignedClaims { path, user, expires_s, signature };
        let made = {
            let text = "/a b:read::token:5";
            format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())))
        };
        let good = SignedClaims { signature: &made, ..claim("/a b", "", Some(5)) };
        assert!(good.is_of(SignedOperation::Read, token));
        assert!(!good.is_of(SignedOperation::Write, token));
        assert!(!good.is_of(SignedOperation::Read, "other"));
        for wrong in [
            SignedClaims { path: "/a", ..good.clone() },
            SignedClaims { user: "root", ..good.clone() },
            SignedClaims { expires_s: Some(6), ..good.clone() },
            SignedClaims { expires_s: None, ..good.clone() },
            claim("/a b", "", Some(5)),
        ] {
            assert!(!wrong.is_of(SignedOperation::Read, token), "{wrong:?}");
        }
        assert!(!good.is_stale(4999));
        assert!(good.is_stale(5000));
        assert!(!SignedClaims { expires_s: None, ..good }.is_stale(u64::MAX));
    }

    #[test]
    fn secrets_are_compared_as_a_whole() {
        for (given, expected, equal) in
            [("a", "a", true), ("a", "b", false), ("", "a", false), ("a", "aa", false)]
        {
            assert_eq!(same(given, expected), equal, "{given} {expected}");
        }
    }
}
