//! The catalog's own clients: each has a secret, stored as a hash; after a change of the secret the
//! old one stays valid for a grace period.

use std::fmt;
use std::time::Duration;

use node::clock;
use serde::Serialize;
use subtle::ConstantTimeEq as _;

use super::random::{self, Hash, hash};
use super::{AccessControl, entities, only_operators};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::CatalogPrincipal;
use crate::store::Properties;

/// Most clients.
pub const CLIENTS_MAX: usize = 10_000;

/// Longest grace period of an old secret.
pub const GRACE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Longest name of a client, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Prefix of secrets, by which leaked ones are found.
const SECRET_PREFIX: &str = "cvs_";

/// Prefix of a client's principal id.
pub(super) const PRINCIPAL_PREFIX: &str = "client:";

/// A stored client.
pub(super) struct StoredClient {
    /// Id, which contains no colon.
    pub(super) id: Box<str>,
    /// Display name.
    pub(super) name: Box<str>,
    /// True if it has all rights.
    pub(super) operator: bool,
    /// Hash of its secret.
    pub(super) secret: Hash,
    /// Hash of the former secret, and the end of its validity (milliseconds since 1970).
    pub(super) previous: Option<(Hash, u64)>,
    /// Time of creation.
    pub(super) created_ms: u64,
}

impl fmt::Debug for StoredClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Client without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClientRecord {
    /// Value for `client_id`.
    pub client_id: String,
    /// Id of the principal in grants.
    pub principal: String,
    /// Display name.
    pub name: String,
    /// True if the client is an operator, which may do everything.
    pub operator: bool,
    /// Time of creation (RFC 3339).
    pub created: String,
    /// Time of creation in milliseconds since 1970.
    #[serde(skip)]
    pub created_ms: u64,
}

/// Client with its secret, which is returned only once.
#[derive(Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct NewSecret {
    /// Client of the secret.
    #[serde(flatten)]
    pub client: ClientRecord,
    /// Value for `client_secret`.
    pub client_secret: String,
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSecret").field("client", &self.client).finish_non_exhaustive()
    }
}

impl StoredClient {
    /// Returns true while the secret with this hash is valid: the present one, and the one before
    /// it until its grace period ends.
    pub(super) fn accepts(&self, secret: &Hash, now_ms: u64) -> bool {
        let is_now = self.secret.ct_eq(secret);
        let was = self.previous.filter(|(_, until)| now_ms < *until);
        bool::from(is_now) || was.is_some_and(|(old, _)| bool::from(old.ct_eq(secret)))
    }

    /// Returns the principal of the client.
    pub(super) fn who(&self) -> CatalogPrincipal {
        CatalogPrincipal {
            operator: self.operator,
            ..CatalogPrincipal::new(&self.principal(), &self.name)
        }
    }

    fn principal(&self) -> String {
        format!("{PRINCIPAL_PREFIX}{}", self.id)
    }

    fn record(&self) -> ClientRecord {
        ClientRecord {
            client_id: self.id.to_string(),
            principal: self.principal(),
            name: self.name.to_string(),
            operator: self.operator,
            created: clock::rfc3339_of_ms(self.created_ms),
            created_ms: self.created_ms,
        }
    }
}

/// Returns the id of the client that a principal is.
pub(super) fn of(who: &CatalogPrincipal) -> Option<&str> {
    who.id.strip_prefix(PRINCIPAL_PREFIX)
}

/// Rejects principals other than operators and the client itself. A token limited to one role, or
/// an API key, which lasts long and is often stored in files, must not give access to other
/// secrets.
pub(super) fn require_own(who: &CatalogPrincipal, id: &str) -> Result<()> {
    match of(who) == Some(id) && who.claims.is_none() {
        true => Ok(()),
        false => only_operators(who),
    }
}

/// Checks a name.
pub(super) fn check_name(name: &str) -> Result<()> {
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("`name` has 1 to {NAME_BYTES_MAX} bytes and no control characters");
    Err(CatalogError::new(ErrorReason::BadRequest, message))
}

/// Returns the end of an old secret's grace period (milliseconds since 1970).
pub(super) fn grace_ends(grace: Duration, now_ms: u64) -> Result<u64> {
    if grace > GRACE_MAX {
        let message = format!("`grace-seconds` is at most {}", GRACE_MAX.as_secs());
        return Err(CatalogError::new(ErrorReason::BadRequest, message));
    }
    let grace_ms = u64::try_from(grace.as_millis()).map_err(CatalogError::internal)?;
    Ok(now_ms.saturating_add(grace_ms))
}

pub(super) fn no_such(id: &str) -> CatalogError {
    let excerpt: String = id.chars().take(100).collect();
    CatalogError::new(ErrorReason::NotFound, format!("Client does not exist: {excerpt}"))
}

/// The catalog's own clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientRegistry<'a>(pub(super) &'a AccessControl);

impl ClientRegistry<'_> {
    /// Creates a client. Its secret is returned only here.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator; `BadRequest` if the name is invalid, or there are
    /// too many.
    pub async fn create_client(
        self,
        who: &CatalogPrincipal,
        name: &str,
        operator: bool,
    ) -> Result<NewSecret> {
        self.make_client(who, name, operator, None).await
    }

    /// Creates a client with a unique name and with properties.
    ///
    /// # Errors
    /// Those of [`ClientRegistry::create_client`]; `AlreadyExists`; `BadRequest` if there are too
    /// many properties.
    pub async fn create_named_client(
        self,
        who: &CatalogPrincipal,
        name: &str,
        properties: Properties,
    ) -> Result<NewSecret> {
        self.make_client(who, name, false, Some(properties)).await
    }

    async fn make_client(
        self,
        who: &CatalogPrincipal,
        name: &str,
        operator: bool,
        properties: Option<Properties>,
    ) -> Result<NewSecret> {
        only_operators(who)?;
        check_name(name)?;
        properties.as_ref().map_or(Ok(()), entities::check_properties)?;
        let text = random::text(SECRET_PREFIX, &self.0.0.generator.secret()?);
        let client = StoredClient {
            id: self.0.0.ids.next("cl_").into(),
            name: name.into(),
            operator,
            secret: hash(&text),
            previous: None,
            created_ms: clock::wall_ms(),
        };
        let made = NewSecret { client: client.record(), client_secret: text };
        self.0.0.store.insert_client(client, properties).await?;
        self.0.changed().await?;
        Ok(made)
    }

    /// Replaces a client's secret; the old one stays valid for `grace`.
    ///
    /// # Errors
    /// `Forbidden` unless the caller is an operator or the client itself; `NotFound`; `BadRequest`
    /// if the grace period is too long.
    pub async fn rotate_client(
        self,
        who: &CatalogPrincipal,
        id: &str,
        grace: Duration,
    ) -> Result<NewSecret> {
        require_own(who, id)?;
        let until_ms = grace_ends(grace, clock::wall_ms())?;
        let text = random::text(SECRET_PREFIX, &self.0.0.generator.secret()?);
        if !self.0.0.store.rotate_client(id, hash(&text), until_ms).await? {
            return Err(no_such(id));
        }
        self.0.changed().await?;
        let client = self.0.0.loaded.read().clients.get(id).map(|it| it.record());
        Ok(NewSecret { client: client.ok_or_else(|| no_such(id))?, client_secret: text })
    }

    /// Removes a client, its tokens and keys, and the grants to it.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator; `NotFound`.
    pub async fn delete_client(self, who: &CatalogPrincipal, id: &str) -> Result<()> {
        only_operators(who)?;
        let principal = format!("{PRINCIPAL_PREFIX}{id}");
        if !self.0.0.store.delete_client(id, &principal).await? {
            return Err(no_such(id));
        }
        self.0.changed().await
    }

    /// Returns the client of this name.
    ///
    /// # Errors
    /// `Forbidden` unless the caller is an operator or the client itself; `NotFound`;
    /// `AlreadyExists` if the name is ambiguous.
    pub fn client_named(self, who: &CatalogPrincipal, name: &str) -> Result<ClientRecord> {
        let loaded = self.0.0.loaded.read();
        let mut found = loaded.clients.values().filter(|it| *it.name == *name);
        let (first, second) = (found.next(), found.next());
        match first {
            Some(client) if second.is_none() => require_own(who, &client.id)?,
            _ => only_operators(who)?,
        }
        if second.is_some() {
            let message = format!("several clients are called `{name}`: they have ids alone");
            return Err(CatalogError::new(ErrorReason::AlreadyExists, message));
        }
        first.map(|it| it.record()).ok_or_else(|| no_such(name))
    }

    /// Returns all clients by their ids, which sort by creation time.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator.
    pub fn list(self, who: &CatalogPrincipal) -> Result<Vec<ClientRecord>> {
        only_operators(who)?;
        let loaded = self.0.0.loaded.read();
        let mut all: Vec<ClientRecord> = loaded.clients.values().map(|it| it.record()).collect();
        all.sort_by(|one, other| one.client_id.cmp(&other.client_id));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_secret_is_good_until_its_grace_ends() {
        let client = StoredClient {
            id: "cl_1".into(),
            name: "spark".into(),
            operator: false,
            secret: hash("new"),
            previous: Some((hash("old"), 1000)),
            created_ms: 0,
        };
        for (secret, now_ms, expected) in [
            ("new", 0, true),
            ("new", 5000, true),
            ("old", 999, true),
            ("old", 1000, false),
            ("", 0, false),
            ("New", 0, false),
        ] {
            assert_eq!(client.accepts(&hash(secret), now_ms), expected, "{secret} {now_ms}");
        }
        let who = client.who();
        assert_eq!((&*who.id, of(&who)), ("client:cl_1", Some("cl_1")));
        let debug_text = format!("{client:?}");
        assert!(!debug_text.contains("secret"), "{debug_text}");
    }
}
