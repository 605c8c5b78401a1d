//! Clients of the catalog's own: a secret each, hashed at rest, which may be changed while the old
//! one is good for some time.

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

/// Longest time that an old secret is good beside a new one.
pub const GRACE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Longest name of a client, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Prefix of secrets, so that they are found where they should not be.
const SECRET_PREFIX: &str = "cvs_";

/// Prefix of a client's id among those of principals.
pub(super) const PRINCIPAL_PREFIX: &str = "client:";

/// A client as the store has it.
pub(super) struct StoredClient {
    /// Names it; there is no colon in it.
    pub(super) id: Box<str>,
    /// Name for people.
    pub(super) name: Box<str>,
    /// True if it may do everything.
    pub(super) operator: bool,
    /// Hash of its secret.
    pub(super) secret: Hash,
    /// Hash of the former secret, and the end of its validity (milliseconds since 1970).
    pub(super) previous: Option<(Hash, u64)>,
    /// When it was made.
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
    /// Name for people.
    pub name: String,
    /// True if it may do everything.
    pub operator: bool,
    /// When it was made (RFC 3339).
    pub created: String,
    /// Time of creation in milliseconds since 1970.
    #[serde(skip)]
    pub created_ms: u64,
}

/// A client with a secret that is told once.
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

    /// Returns who it is where something is asked for.
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

/// The client that a principal is.
pub(super) fn of(who: &CatalogPrincipal) -> Option<&str> {
    who.id.strip_prefix(PRINCIPAL_PREFIX)
}

/// Refuses others than operators and the client itself. A token that may use one role only, and an
/// API key, which lasts long and lies about, give no way to other secrets.
pub(super) fn require_own(who: &CatalogPrincipal, id: &str) -> Result<()> {
    match of(who) == Some(id) && who.claims.is_none() {
        true => Ok(()),
        false => only_operators(who),
    }
}

/// Returns whether this is what something may be called.
pub(super) fn check_name(name: &str) -> Result<()> {
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("`name` has 1 to {NAME_BYTES_MAX} bytes and no control characters");
    Err(CatalogError::new(ErrorReason::BadRequest, message))
}

/// Until when an old secret is good beside a new one (milliseconds since 1970).
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

/// Clients of the catalog's own.
#[derive(Clone, Copy, Debug)]
pub struct ClientRegistry<'a>(pub(super) &'a AccessControl);

impl ClientRegistry<'_> {
    /// Makes a client. Its secret exists in the answer and nowhere else.
    ///
    /// # Errors
    /// `Forbidden` for whoever is no operator; `BadRequest` when the name is none, or there are
    /// too many.
    pub async fn create_client(
        self,
        who: &CatalogPrincipal,
        name: &str,
        operator: bool,
    ) -> Result<NewSecret> {
        self.make_client(who, name, operator, None).await
    }

    /// Makes a client that is known by its name, which no other has, and has properties.
    ///
    /// # Errors
    /// Those of [`ClientRegistry::create_client`]; `AlreadyExists`; `BadRequest` when there are too
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

    /// Gives a client another secret; the old one is good for `grace` more.
    ///
    /// # Errors
    /// `Forbidden` for others than operators and the client itself; `NotFound`; `BadRequest` when
    /// the grace is too long.
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

    /// Removes a client, its tokens and keys, and what was granted to it.
    ///
    /// # Errors
    /// `Forbidden` for whoever is no operator; `NotFound`.
    pub async fn delete_client(self, who: &CatalogPrincipal, id: &str) -> Result<()> {
        only_operators(who)?;
        let principal = format!("{PRINCIPAL_PREFIX}{id}");
        if !self.0.0.store.delete_client(id, &principal).await? {
            return Err(no_such(id));
        }
        self.0.changed().await
    }

    /// The client of this name.
    ///
    /// # Errors
    /// `Forbidden` for others than operators and the client itself; `NotFound`; `AlreadyExists`
    /// when several have the name, which then names none of them.
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

    /// All clients, by their ids, which sort by when they were made.
    ///
    /// # Errors
    /// `Forbidden` for whoever is no operator.
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
