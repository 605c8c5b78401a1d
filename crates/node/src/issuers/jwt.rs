//! A parsed signed token: untrusted input until its signature was verified.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc7519>
//! - <https://www.rfc-editor.org/rfc/rfc7515>

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::keys::SignatureAlgorithm;
use super::{IssuerConfig, IssuerError, refused};

/// Result of this module.
type Result<T> = std::result::Result<T, IssuerError>;

/// Maximum number of groups of a token.
pub(super) const GROUPS_MAX: usize = 200;

/// Longest name of a key, in bytes.
const KEY_BYTES_MAX: usize = 200;

/// Accepted types of tokens: others are for other purposes.
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];

/// A token that was not verified.
#[derive(Debug)]
pub(super) struct UnverifiedToken<'a> {
    pub(super) algorithm: SignatureAlgorithm,
    /// Id of the key that it names.
    pub(super) key: Option<String>,
    /// Issuer that the token claims.
    pub(super) issuer: String,
    /// Signed part.
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
    claims: Map<String, Value>,
}

/// Claims of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedClaims {
    /// Name of the principal.
    pub principal: String,
    /// Groups of the principal.
    pub groups: Vec<String>,
    /// Time until which it is valid (milliseconds since 1970), leeway included.
    pub ends_ms: u64,
    /// All claims, unchanged.
    pub all: Map<String, Value>,
}

/// A JSON object without duplicate names, at any depth: parsers differ in which of two they use.
pub(super) struct UniqueObject(pub(super) Map<String, Value>);

/// A JSON value without duplicate names.
struct UniqueValue(Value);

impl<'de> Deserialize<'de> for UniqueObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<UniqueObject, D::Error> {
        match UniqueValue::deserialize(from)?.0 {
            Value::Object(members) => Ok(UniqueObject(members)),
            _ => Err(D::Error::custom("it is no object")),
        }
    }
}

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<UniqueValue, D::Error> {
        from.deserialize_any(UniqueVisitor).map(UniqueValue)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON in which no name comes twice")
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(UniqueValue(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, UniqueValue(value))) = entries.next_entry::<String, _>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a name comes twice"));
            }
        }
        Ok(members.into())
    }
}

/// Decodes an object of a token.
fn object(part: &str) -> Result<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| refused("it is no base64url"))?;
    let object = serde_json::from_slice::<UniqueObject>(&bytes);
    let unusable = "a part of it is not a JSON object, or has a duplicate name";
    object.map(|UniqueObject(members)| members).map_err(|_| refused(unusable))
}

impl<'a> UnverifiedToken<'a> {
    /// Parses a token.
    ///
    /// # Errors
    /// [`IssuerError::Refused`] if it is malformed, or not of a supported kind.
    pub(super) fn parse(text: &'a str) -> Result<UnverifiedToken<'a>> {
        let (signed, signature) =
            text.rsplit_once('.').ok_or_else(|| refused("it is not a JWT"))?;
        let (header, claims) = signed.split_once('.').ok_or_else(|| refused("it is not a JWT"))?;
        let signature =
            URL_SAFE_NO_PAD.decode(signature).map_err(|_| refused("it is no base64url"))?;
        let header = object(header)?;
        let header_text = |name: &str| header.get(name).map(|it| it.as_str().unwrap_or_default());
        // Critical extensions are unsupported, and so are those that change how the rest is read.
        if header.contains_key("crit") || header.contains_key("b64") {
            return Err(refused("it has unknown extensions"));
        }
        if header_text("typ")
            .is_some_and(|it| !TYPES.iter().any(|known| known.eq_ignore_ascii_case(it)))
        {
            return Err(refused("its `typ` is for another purpose"));
        }
        let algorithm = header_text("alg").and_then(SignatureAlgorithm::of);
        let algorithm = algorithm.ok_or_else(|| refused("its `alg` is not accepted here"))?;
        let key = header_text("kid").map(str::to_owned);
        if key.as_ref().is_some_and(|it| it.is_empty() || it.len() > KEY_BYTES_MAX) {
            return Err(refused("its `kid` is malformed"));
        }
        let claims = object(claims)?;
        let issuer = claims.get("iss").and_then(Value::as_str);
        let issuer = issuer.ok_or_else(|| refused("it has no `iss`"))?.to_owned();
        Ok(UnverifiedToken { algorithm, key, issuer, signed, signature, claims })
    }

    /// Returns its claims, once its signature was verified.
    ///
    /// # Errors
    /// [`IssuerError::Refused`] if it is for another audience, not valid yet, or lacks a principal;
    /// [`IssuerError::Ended`] if it has expired.
    pub(super) fn claims(&self, issuer: &IssuerConfig, now_ms: u64) -> Result<VerifiedClaims> {
        let is_audience = |it: &Value| it.as_str() == Some(&issuer.audience);
        let is_for_us = match self.claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(is_audience),
            Some(one) => is_audience(one),
            None => false,
        };
        if !is_for_us {
            return Err(refused("its `aud` is another"));
        }
        let leeway_ms = issuer.leeway_seconds.saturating_mul(1000);
        let ends_ms = self.time("exp")?.ok_or_else(|| refused("it has no `exp`"))?;
        let ends_ms = ends_ms.saturating_add(leeway_ms);
        if ends_ms <= now_ms {
            return Err(IssuerError::Ended);
        }
        for name in ["nbf", "iat"] {
            if self.time(name)?.is_some_and(|begins| begins > now_ms.saturating_add(leeway_ms)) {
                return Err(refused(&format!("its `{name}` is in the future")));
            }
        }
        let principal = self.claims.get(&issuer.principal_claim).and_then(Value::as_str);
        let principal = principal.filter(|it| !it.is_empty());
        let missing = || refused(&format!("it has no `{}`", issuer.principal_claim));
        let principal = principal.ok_or_else(missing)?.to_owned();
        let groups = self.groups(issuer.groups_claim())?;
        Ok(VerifiedClaims { principal, groups, ends_ms, all: self.claims.clone() })
    }

    /// Returns a time in milliseconds since 1970, from seconds with an optional fraction.
    fn time(&self, name: &str) -> Result<Option<u64>> {
        let Some(value) = self.claims.get(name) else { return Ok(None) };
        let whole = match value.as_u64() {
            Some(seconds) => Some(seconds),
            // The integer part: a token that expires within a second has expired.
            None if value.is_f64() => {
                let text = value.to_string();
                text.split_once('.').and_then(|(whole, _)| whole.parse().ok())
            }
            None => None,
        };
        let whole = whole.ok_or_else(|| refused(&format!("its `{name}` is not a time")))?;
        Ok(Some(whole.saturating_mul(1000)))
    }

    fn groups(&self, name: &str) -> Result<Vec<String>> {
        let groups: Vec<String> = match self.claims.get(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(listed)) => listed.split_whitespace().map(str::to_owned).collect(),
            Some(Value::Array(all)) => {
                let all = all.iter().map(|it| it.as_str().map(str::to_owned));
                let all = all.collect::<Option<Vec<_>>>();
                all.ok_or_else(|| refused(&format!("its `{name}` is not a list of strings")))?
            }
            Some(_) => return Err(refused(&format!("its `{name}` is not a list of strings"))),
        };
        if groups.len() > GROUPS_MAX || groups.iter().any(String::is_empty) {
            return Err(refused(&format!("its `{name}` has more than {GROUPS_MAX}, or none")));
        }
        Ok(groups)
    }
}
