//! Access tokens: an hour long, by their hash, in memory only. A server that starts again has none,
//! and clients ask for others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::clock;
use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};

use super::random::{self, Generator};
use super::{Access, TOKEN_PREFIX, clients};
use crate::error::{Error, Kind, Result};
use crate::service::Who;

/// How long an access token is good.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// Most tokens that are good at a time.
pub const TOKENS_MAX: usize = 65_536;

/// Parts with a lock of their own; a token is in the one that the first byte of its hash says.
const SHARDS: usize = 16;

/// Most tokens of a part.
const SHARD_MAX: usize = TOKENS_MAX / SHARDS;

/// Tokens of a part that are not worth looking through for those that have ended.
const SWEEP_MIN: usize = 64;

/// What a client gets.
#[derive(Clone, Debug)]
pub struct AccessToken {
    /// The token.
    pub token: String,
    /// How long it is good.
    pub lifetime: Duration,
}

/// What is known of a token.
#[derive(Debug)]
pub(super) enum Found {
    /// Whose it is.
    Live(Who),
    /// It was good once.
    Ended,
    /// There is none, or none any more.
    Unknown,
}

/// The tokens that were given out.
pub(super) struct Issued {
    generator: Generator,
    shards: [RwLock<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    tokens: HashMap<[u8; 32], Token>,
    /// How many there may be until it is looked through.
    sweep_at: usize,
}

struct Token {
    who: Who,
    client: Arc<str>,
    ends: Instant,
}

impl Issued {
    pub(super) fn new() -> Result<Issued> {
        Ok(Issued { generator: Generator::new()?, shards: Default::default() })
    }

    /// 256 bits for a secret of another kind.
    pub(super) fn secret(&self) -> Result<[u8; 32]> {
        self.generator.secret()
    }

    /// Gives a token out.
    ///
    /// # Errors
    /// `ServiceUnavailable` when there are too many of others.
    pub(super) fn issue(&self, client: &Arc<str>, who: Who, now: Instant) -> Result<AccessToken> {
        let token = random::text(TOKEN_PREFIX, &self.generator.secret()?);
        let hash = hash(&token);
        let mut shard = self.shard(&hash).write();
        shard.make_room(client, now)?;
        let client = Arc::clone(client);
        shard.tokens.insert(hash, Token { who, client, ends: now + LIFETIME });
        Ok(AccessToken { token, lifetime: LIFETIME })
    }

    /// Whose token it is.
    pub(super) fn find(&self, token: &str, now: Instant) -> Found {
        let hash = hash(token);
        let shard = self.shard(&hash).read();
        match shard.tokens.get(&hash) {
            Some(token) if token.ends > now => Found::Live(token.who.clone()),
            Some(_) => Found::Ended,
            None => Found::Unknown,
        }
    }

    /// Forgets tokens of clients that there are not any more.
    pub(super) fn keep_of(&self, is_there: impl Fn(&str) -> bool) {
        for shard in &self.shards {
            shard.write().tokens.retain(|_, token| is_there(&token.client));
        }
    }

    fn shard(&self, hash: &[u8; 32]) -> &RwLock<Shard> {
        &self.shards[usize::from(hash[0]) % SHARDS]
    }
}

impl Shard {
    fn make_room(&mut self, client: &Arc<str>, now: Instant) -> Result<()> {
        if self.tokens.len() >= self.sweep_at.min(SHARD_MAX) {
            self.tokens.retain(|_, token| token.ends > now);
            self.sweep_at = (2 * self.tokens.len()).max(SWEEP_MIN);
        }
        if self.tokens.len() < SHARD_MAX {
            return Ok(());
        }
        // Who asks for token after token loses his own.
        let own = self.tokens.iter().filter(|(_, token)| token.client == *client);
        let oldest = own.min_by_key(|(_, token)| token.ends).map(|(hash, _)| *hash);
        let oldest = oldest.ok_or_else(|| {
            Error::new(Kind::ServiceUnavailable, "too many access tokens are good at present")
        })?;
        self.tokens.remove(&oldest);
        Ok(())
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl Access {
    /// An access token for a client that shows its secret.
    ///
    /// # Errors
    /// `NotAuthorized` when there is no such client, or the secret is another.
    pub fn token_for(&self, id: &str, secret: &str) -> Result<AccessToken> {
        let client = self.0.loaded.read().clients.get(id).cloned();
        let client = client.filter(|it| it.knows(secret, clock::wall_ms()));
        let client = client.ok_or_else(|| {
            Error::new(Kind::NotAuthorized, "the client is not known, or its secret is another")
        })?;
        self.0.issued.issue(&client.id.as_ref().into(), client.who(), clock::now())
    }

    /// Another access token for whom this one is.
    ///
    /// # Errors
    /// `NotAuthorized` when it is not known, `AuthenticationTimeout` when it has ended.
    pub fn token_after(&self, token: &str) -> Result<AccessToken> {
        let who = self.holder(token)?;
        let client = clients::of(&who).unwrap_or_default().into();
        self.0.issued.issue(&client, who, clock::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Who {
        Who { id: format!("client:{name}").into(), name: name.into(), operator: false }
    }

    #[test]
    fn a_token_is_good_for_its_time_and_its_client() {
        let issued = Issued::new().unwrap();
        let now = clock::now();
        let (one, other) = (Arc::from("a"), Arc::from("b"));
        let first = issued.issue(&one, who("a"), now).unwrap().token;
        let second = issued.issue(&other, who("b"), now).unwrap().token;
        assert!(matches!(issued.find(&first, now), Found::Live(it) if it == who("a")));
        assert!(matches!(issued.find(&first, now + LIFETIME), Found::Ended));
        for wrong in ["", "cat_", &first[..first.len() - 1], &first.to_uppercase()] {
            assert!(matches!(issued.find(wrong, now), Found::Unknown), "{wrong}");
        }
        issued.keep_of(|client| client == "b");
        assert!(matches!(issued.find(&first, now), Found::Unknown));
        assert!(matches!(issued.find(&second, now), Found::Live(_)));
    }

    #[test]
    fn who_asks_for_too_many_loses_his_own() {
        let now = clock::now();
        let mut shard = Shard::default();
        let put = |shard: &mut Shard, client: &str, number: usize, now| {
            let client = Arc::from(client);
            shard.make_room(&client, now)?;
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.to_be_bytes());
            shard.tokens.insert(hash, Token { who: who("x"), client, ends: now + LIFETIME });
            Ok::<(), Error>(())
        };
        put(&mut shard, "quiet", usize::MAX, now).unwrap();
        for number in 0..SHARD_MAX + 10 {
            put(&mut shard, "loud", number, now).unwrap();
        }
        assert_eq!(shard.tokens.len(), SHARD_MAX);
        assert!(shard.tokens.values().any(|token| &*token.client == "quiet"));
        let refused = put(&mut shard, "new", usize::MAX - 1, now).unwrap_err();
        assert_eq!(refused.kind, Kind::ServiceUnavailable);
        // What has ended makes room for everybody.
        put(&mut shard, "new", usize::MAX - 1, now + LIFETIME).unwrap();
        assert_eq!(shard.tokens.len(), 1);
    }
}
