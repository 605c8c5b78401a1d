//! An issuer's keys (RFC 7517), and signatures by them (RFC 7518).
//!
//! The type of a key determines how a signature by it is verified; the token's algorithm has to
//! match. So an attacker can neither have a public key used as a secret one, nor a signature
//! skipped.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc7517>

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde_json::{Map, Value};

use super::jwt::{UniqueObject, UnverifiedToken};
use super::{IssuerError, JWKS_BYTES_MAX, refused};

/// Maximum number of keys of an issuer.
const KEYS_MAX: usize = 100;

/// Signature algorithm of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureAlgorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl SignatureAlgorithm {
    pub(super) const ALL: [SignatureAlgorithm; 3] =
        [SignatureAlgorithm::Rs256, SignatureAlgorithm::Es256, SignatureAlgorithm::EdDsa];

    pub(super) const fn name(self) -> &'static str {
        match self {
            SignatureAlgorithm::Rs256 => "RS256",
            SignatureAlgorithm::Es256 => "ES256",
            SignatureAlgorithm::EdDsa => "EdDSA",
        }
    }

    pub(super) fn of(name: &str) -> Option<SignatureAlgorithm> {
        SignatureAlgorithm::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// An invalid set of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the keys of an issuer: {0}")]
pub(super) struct NoKeys(&'static str);

#[derive(Debug)]
struct IssuerKey {
    id: Option<String>,
    public: PublicKeyMaterial,
}

#[derive(Debug)]
enum PublicKeyMaterial {
    /// Modulus and exponent.
    Rsa(Vec<u8>, Vec<u8>),
    /// A point of P-256, uncompressed.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKeyMaterial {
    fn algorithm(&self) -> SignatureAlgorithm {
        match self {
            PublicKeyMaterial::Rsa(..) => SignatureAlgorithm::Rs256,
            PublicKeyMaterial::P256(_) => SignatureAlgorithm::Es256,
            PublicKeyMaterial::Ed25519(_) => SignatureAlgorithm::EdDsa,
        }
    }

    fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            PublicKeyMaterial::Rsa(n, e) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
            }
            PublicKeyMaterial::P256(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(signed, signature)
            }
            PublicKeyMaterial::Ed25519(point) => {
                UnparsedPublicKey::new(&ED25519, point).verify(signed, signature)
            }
        };
        verified.is_ok()
    }
}

/// An issuer's keys.
#[derive(Debug)]
pub(super) struct IssuerKeys(Vec<IssuerKey>);

/// Reads a file of keys, up to the maximum size.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more byte shows that it is too long, which makes the JSON invalid.
    File::open(path)?.take(JWKS_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl IssuerKeys {
    /// Parses a set of keys. Keys for other purposes or algorithms are left out.
    ///
    /// # Errors
    /// If it is malformed, has too many keys, or two with the same id.
    pub(super) fn parse(
        bytes: &[u8],
        algorithms: &[SignatureAlgorithm],
    ) -> Result<IssuerKeys, NoKeys> {
        let set: UniqueObject =
            serde_json::from_slice(bytes).map_err(|_| NoKeys("they are not a JSON object"))?;
        let list = set.0.get("keys").ok_or(NoKeys("there is no `keys`"))?;
        let list = list.as_array().ok_or(NoKeys("`keys` is no list"))?;
        let mut keys: Vec<IssuerKey> = Vec::new();
        for (index, item) in list.iter().enumerate() {
            if index >= KEYS_MAX {
                return Err(NoKeys("there are too many"));
            }
            let members = item.as_object().ok_or(NoKeys("one of them is not an object"))?;
            let Some(key) = key(members).filter(|it| algorithms.contains(&it.public.algorithm()))
            else {
                continue;
            };
            if key.id.is_some() && keys.iter().any(|it| it.id == key.id) {
                return Err(NoKeys("two have the same `kid`"));
            }
            keys.push(key);
        }
        Ok(IssuerKeys(keys))
    }

    /// Returns whether the set has the key of a token's signature.
    pub(super) fn has(&self, token: &UnverifiedToken<'_>) -> bool {
        self.key(token).is_some()
    }

    /// Returns the key of a token's signature. For a token that names none, the only key of its
    /// algorithm is used.
    fn key(&self, token: &UnverifiedToken<'_>) -> Option<&IssuerKey> {
        let mut all = self.0.iter().filter(|it| it.public.algorithm() == token.algorithm);
        match &token.key {
            Some(id) => all.find(|it| it.id.as_ref() == Some(id)),
            None => {
                let one = all.next();
                one.filter(|_| all.next().is_none())
            }
        }
    }

    /// Verifies a token's signature.
    ///
    /// # Errors
    /// [`IssuerError::Refused`] if there is no such key, or the signature is wrong.
    pub(super) fn verify(&self, token: &UnverifiedToken<'_>) -> Result<(), IssuerError> {
        let key = self.key(token).ok_or_else(|| refused("its key is not one of its issuer's"))?;
        match key.public.verify(token.signed.as_bytes(), &token.signature) {
            true => Ok(()),
            false => Err(refused("its signature is wrong")),
        }
    }
}

/// Returns a key that can verify signatures; none for any other key.
fn key(members: &Map<String, Value>) -> Option<IssuerKey> {
    let member = |name: &str| members.get(name).map(|it| it.as_str().unwrap_or_default());
    let bytes = |name: &str| member(name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    if member("use").is_some_and(|it| it != "sig") {
        return None;
    }
    if let Some(operations) = members.get("key_ops") {
        operations.as_array()?.iter().find(|it| it.as_str() == Some("verify"))?;
    }
    let public = match (member("kty")?, member("crv")) {
        ("RSA", _) => PublicKeyMaterial::Rsa(bytes("n")?, bytes("e")?),
        ("EC", Some("P-256")) => {
            let (x, y) = (bytes("x")?, bytes("y")?);
            if x.len() != 32 || y.len() != 32 {
                return None;
            }
            PublicKeyMaterial::P256([&[4], &x[..], &y].concat())
        }
        ("OKP", Some("Ed25519")) => {
            PublicKeyMaterial::Ed25519(bytes("x").filter(|it| it.len() == 32)?)
        }
        _ => return None,
    };
    if member("alg").is_some_and(|it| it != public.algorithm().name()) {
        return None;
    }
    Some(IssuerKey { id: member("kid").map(str::to_owned), public })
}
