//! Sign-in of the web console: single-use codes, and the tokens that they are exchanged for.
//!
//! The holder of a token requests a code and opens the console with it, in the fragment of the URL,
//! which no proxy and no log sees. The page redeems the code for a token of its own, which expires
//! after [`SIGN_IN_LIFETIME`], and ends when its owner signs out and when the token behind it ends.
//! It never has more rights than that token has at the moment.
//!
//! Codes are in the store, hashed, so that any server of a cluster accepts one and each works once.
//! A token of the console is not stored: it consists of claims and a keyed hash of them
//! (HMAC-SHA-256), which all servers of the store can verify. The store only has sign-ins that were
//! ended early, in a table that each server reads when its counter has changed.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::{Mutex, RwLock};
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::issued::ID_PREFIX as ISSUED_PREFIX;
use super::principal::{CallerCredential, ConsoleSignIn};
use super::{TokenError, TokenPrincipal, TokenRegistry, TokenScopes, hash, random_key};
use crate::sealed::Sealer;
use crate::store::{
    COUNTER_AGE_MAX, MigrationStep, SqlStore, SqlStoreError, SqlValue, StoreTransaction,
};
use crate::{clock, hex};

/// Time for which a code can be redeemed.
pub const CODE_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Time after which a sign-in expires.
pub const SIGN_IN_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// Maximum number of unredeemed codes of one token.
pub const CODES_OF_TOKEN_MAX: u64 = 20;

/// Maximum number of wrong codes from one address within [`GUESSES_INTERVAL`].
pub const GUESSES_MAX: u32 = 10;

/// Time for which wrong codes count against an address.
const GUESSES_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of addresses with counted wrong codes. At this number, new addresses are refused.
const GUESSING_ADDRESSES_MAX: usize = 10_000;

/// Prefix of a token of the console.
const PREFIX: &str = "cove_console_";

/// Longest such token: the longest names in its claims, with some margin.
const TOKEN_BYTES_MAX: usize = 2048;

/// Random bytes of a code, and of the id of a sign-in.
const CODE_BYTES: usize = 16;

/// Longest text that is looked up as a code.
const CODE_TEXT_BYTES_MAX: usize = 64;

/// Purpose of the key of tokens.
const KEY_PURPOSE: &str = "console sign-in";

/// Service that the tables belong to.
const SERVICE: &str = "console";

const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Same(
        "CREATE TABLE cove_console_codes (
            hash TEXT NOT NULL PRIMARY KEY,
            token_id TEXT NOT NULL,
            claims TEXT NOT NULL,
            expires_ms BIGINT NOT NULL
        );
        CREATE INDEX cove_console_codes_by_token ON cove_console_codes (token_id);
        CREATE TABLE cove_console_ended (
            id TEXT NOT NULL PRIMARY KEY,
            expires_ms BIGINT NOT NULL
        );
        CREATE TABLE cove_console_version (
            id BIGINT NOT NULL PRIMARY KEY,
            version BIGINT NOT NULL
        )",
    ),
    MigrationStep::Same("INSERT INTO cove_console_version (id, version) VALUES (1, 0)"),
];

/// Number of sign-ins that were ended early.
const VERSION: &str = "SELECT version FROM cove_console_version WHERE id = 1";

/// Reason why a sign-in is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleAccessError {
    /// The console is disabled here.
    #[error("the console is not enabled here; set `console.enabled`")]
    Disabled,
    /// A sign-in cannot create codes: a chain of sign-ins would never end.
    #[error("a console sign-in cannot create codes; use its token")]
    OfConsole,
    /// The token is not a sign-in.
    #[error("this is not a console token; revoke other tokens with `cove token revoke`")]
    NotOfConsole,
    /// More scopes were requested than the token has.
    #[error("the token does not have all of these scopes")]
    MoreScopes,
    /// No scope was requested.
    #[error("a sign-in needs at least one scope")]
    NoScope,
    /// The token has too many unused codes.
    #[error(
        "this token has {CODES_OF_TOKEN_MAX} codes that were not used; they end after 5 minutes"
    )]
    TooManyCodes,
    /// The code is unknown, used, expired, or its token has ended.
    #[error(
        "the code is wrong, was used, or is older than 5 minutes; `cove console` prints another"
    )]
    WrongCode,
    /// Too many wrong codes came from the address.
    #[error("too many wrong codes from this address")]
    TooManyGuesses(Duration),
    /// No random bytes are available.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The store cannot be used.
    #[error("read or change sign-ins in the store")]
    Store(#[from] SqlStoreError),
}

/// A single-use code for a sign-in. It has no `Display`.
pub struct ConsoleCode {
    text: String,
    /// Time of expiry, in milliseconds since 1970.
    pub expires_ms: u64,
}

impl ConsoleCode {
    /// Returns the plain text, for the one answer that passes it to its owner.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Debug for ConsoleCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConsoleCode(..)")
    }
}

/// Token of a sign-in. It has no `Display`.
pub struct ConsoleToken {
    text: String,
    /// Time of expiry, in milliseconds since 1970.
    pub expires_ms: u64,
}

impl ConsoleToken {
    /// Returns the plain text, for the one answer that passes it to its owner.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Debug for ConsoleToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConsoleToken(..)")
    }
}

/// Claims of a code and of a sign-in: the token behind it, and the scopes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConsoleClaims {
    /// Id of the sign-in; empty in a code.
    id: String,
    /// Id of the token behind it.
    token_id: String,
    /// Name and tenant of that token.
    name: String,
    tenant: String,
    /// Scopes that it is limited to; none for all of the token's.
    scopes: Option<TokenScopes>,
    /// Time at which the sign-in expires; in a code, the expiry of the token behind it if that is
    /// known, for tokens of identity providers, which another server may never have seen.
    expires_ms: u64,
}

impl ConsoleClaims {
    fn is_issued(&self) -> bool {
        self.token_id.starts_with(ISSUED_PREFIX)
    }
}

/// Sign-ins of a server's console.
#[derive(Debug)]
pub(super) struct ConsoleTokens {
    key: hmac::Key,
    store: SqlStore,
    ended: RwLock<EndedSignIns>,
    /// Seconds since 1970, rounded up, at which sign-ins in use expire.
    ends_s: Mutex<BTreeSet<u64>>,
    guesses: CodeGuesses,
}

/// Sign-ins that were ended early, and have not expired yet.
#[derive(Debug, Default)]
struct EndedSignIns {
    expires_ms_by_id: HashMap<String, u64>,
    version: Option<u64>,
}

/// Returns whether a text looks like a token of the console.
pub(super) fn may_be_of(token: &str) -> bool {
    token.len() <= TOKEN_BYTES_MAX && token.starts_with(PREFIX)
}

impl TokenRegistry {
    /// Enables sign-ins at the console.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn open_console(&self, store: &SqlStore, sealer: &Sealer) -> Result<(), TokenError> {
        store.migrate(SERVICE, MIGRATIONS).await?;
        let console = ConsoleTokens {
            key: hmac::Key::new(hmac::HMAC_SHA256, &sealer.derived_key(KEY_PURPOSE)),
            store: store.clone(),
            ended: RwLock::default(),
            ends_s: Mutex::default(),
            guesses: CodeGuesses::default(),
        };
        console.read_ended().await?;
        // Set once, before any request is served.
        let _again = self.0.console.set(console);
        Ok(())
    }

    /// Returns whether the console is enabled.
    #[must_use]
    pub fn has_console(&self) -> bool {
        self.0.console.get().is_some()
    }

    /// Creates a code for the owner of a token: its holder can sign in once, within
    /// [`CODE_LIFETIME`], with the scopes of the token or fewer.
    ///
    /// # Errors
    /// If the console is disabled, the caller does not use a token or requests more scopes than it
    /// has, and if the store cannot be used.
    pub async fn console_code(
        &self,
        who: &TokenPrincipal,
        scopes: Option<TokenScopes>,
    ) -> Result<ConsoleCode, ConsoleAccessError> {
        let console = self.0.console.get().ok_or(ConsoleAccessError::Disabled)?;
        match &who.credential {
            CallerCredential::Console(_) | CallerCredential::Absent => {
                return Err(ConsoleAccessError::OfConsole);
            }
            CallerCredential::Token | CallerCredential::Issued => {}
        }
        if scopes == Some(TokenScopes::NONE) {
            return Err(ConsoleAccessError::NoScope);
        }
        if scopes.is_some_and(|scopes| !scopes.is_within(who.scopes)) {
            return Err(ConsoleAccessError::MoreScopes);
        }
        let now_ms = self.now_ms();
        let ends_ms = self.expires_ms(who).unwrap_or(u64::MAX);
        let claims = ConsoleClaims {
            id: String::new(),
            token_id: who.token_id.to_string(),
            name: who.name.to_string(),
            tenant: who.tenant.to_string(),
            // Another server does not know the scopes of an identity provider's token.
            scopes: scopes.or_else(|| {
                let is_issued = who.credential == CallerCredential::Issued;
                is_issued.then_some(who.scopes)
            }),
            expires_ms: ends_ms,
        };
        let expires_ms = end_of(now_ms, CODE_LIFETIME).min(ends_ms);
        let text = random_text()?;
        let row = CodeRow { hash: hex::encode(&hash(&text)), claims, expires_ms };
        console.keep(row, now_ms).await?;
        Ok(ConsoleCode { text, expires_ms })
    }

    /// Redeems a code that came from `address`.
    ///
    /// # Errors
    /// If the code is wrong, used or expired, if too many wrong ones came from the address, and if
    /// the store cannot be used.
    pub async fn redeem_code(
        &self,
        code: &str,
        address: Option<IpAddr>,
    ) -> Result<ConsoleToken, ConsoleAccessError> {
        let console = self.0.console.get().ok_or(ConsoleAccessError::Disabled)?;
        let now = clock::now();
        console.guesses.begin(address, now).map_err(ConsoleAccessError::TooManyGuesses)?;
        let now_ms = self.now_ms();
        let claims = match code.len() <= CODE_TEXT_BYTES_MAX {
            true => console.take(hex::encode(&hash(code)), now_ms).await?,
            false => None,
        };
        let mut claims = claims.ok_or(ConsoleAccessError::WrongCode)?;
        // It was no guess.
        console.guesses.forgive(address);
        claims.id = random_text()?;
        claims.expires_ms = claims.expires_ms.min(end_of(now_ms, SIGN_IN_LIFETIME));
        if !claims.is_issued() && self.principal(&claims.token_id).is_none() {
            // Another server may have just created it, and the code is used already.
            self.refresh().await?;
        }
        if let Some(who) = self.principal(&claims.token_id)
            && let Some(ends_ms) = self.expires_ms(&who)
        {
            claims.expires_ms = claims.expires_ms.min(ends_ms);
        }
        self.current(console, &claims, now_ms).ok_or(ConsoleAccessError::WrongCode)?;
        let expires_ms = claims.expires_ms;
        let text = console.sign(&claims).ok_or(ConsoleAccessError::WrongCode)?;
        Ok(ConsoleToken { text, expires_ms })
    }

    /// Ends a sign-in, on all servers of the store.
    ///
    /// # Errors
    /// If the caller did not sign in at the console, and if the store cannot be used.
    pub async fn sign_out(&self, who: &TokenPrincipal) -> Result<(), ConsoleAccessError> {
        let CallerCredential::Console(sign_in) = &who.credential else {
            return Err(ConsoleAccessError::NotOfConsole);
        };
        let console = self.0.console.get().ok_or(ConsoleAccessError::Disabled)?;
        console.end(sign_in.clone(), self.now_ms()).await?;
        console.read_ended().await?;
        self.0.changes.send_replace(());
        Ok(())
    }

    /// Returns when a caller's credential expires, in milliseconds since 1970; none if it is valid
    /// until it is revoked.
    #[must_use]
    pub fn expires_ms(&self, who: &TokenPrincipal) -> Option<u64> {
        match &who.credential {
            CallerCredential::Absent => None,
            CallerCredential::Console(sign_in) => Some(sign_in.expires_ms),
            CallerCredential::Issued => self.issued()?.ends_ms(&who.token_id, clock::wall_ms()),
            CallerCredential::Token => self.0.loaded.read().by_id.get(&who.token_id)?.expires_ms,
        }
    }

    /// Returns the principal of a console token. Does not access the store.
    pub(super) fn verify_console(&self, token: &str) -> Option<TokenPrincipal> {
        let console = self.0.console.get()?;
        let claims = console.open(token)?;
        self.current(console, &claims, self.now_ms())
    }

    /// Returns whether a console token is valid except for the token behind it, which this server
    /// does not know: another server may have just created it.
    pub(super) fn is_console_without_token(&self, token: &str) -> bool {
        let claims = self.0.console.get().and_then(|console| console.open(token));
        claims.is_some_and(|claims| {
            !claims.is_issued() && !self.0.loaded.read().by_id.contains_key(&*claims.token_id)
        })
    }

    /// Returns the principal of a sign-in, with the present scopes of the token behind it.
    fn current(
        &self,
        console: &ConsoleTokens,
        claims: &ConsoleClaims,
        now_ms: u64,
    ) -> Option<TokenPrincipal> {
        if claims.expires_ms <= now_ms || console.has_ended(&claims.id) {
            return None;
        }
        let behind = self.behind(claims)?;
        let scopes = claims.scopes.unwrap_or(behind.scopes).intersection(behind.scopes);
        let sign_in = ConsoleSignIn { id: (&*claims.id).into(), expires_ms: claims.expires_ms };
        Some(TokenPrincipal { scopes, credential: CallerCredential::Console(sign_in), ..behind })
    }

    /// Returns the present principal behind a sign-in: of the token, or of the issuer that signed
    /// one.
    fn behind(&self, claims: &ConsoleClaims) -> Option<TokenPrincipal> {
        let behind = if claims.is_issued() {
            let scopes = self.issued()?.scopes_of(&claims.name)?;
            TokenPrincipal {
                token_id: (&*claims.token_id).into(),
                name: (&*claims.name).into(),
                operator: false,
                tenant: (&*claims.tenant).into(),
                scopes,
                credential: CallerCredential::Issued,
            }
        } else {
            self.principal(&claims.token_id)?
        };
        (*behind.tenant == *claims.tenant).then_some(behind)
    }

    /// Returns whether a sign-in still has the rights that it had.
    pub(super) fn has_sign_in(&self, who: &TokenPrincipal, sign_in: &ConsoleSignIn) -> bool {
        let Some(console) = self.0.console.get() else { return false };
        let claims = ConsoleClaims {
            id: sign_in.id.to_string(),
            token_id: who.token_id.to_string(),
            name: who.name.to_string(),
            tenant: who.tenant.to_string(),
            scopes: Some(who.scopes),
            expires_ms: sign_in.expires_ms,
        };
        self.current(console, &claims, self.now_ms()).is_some_and(|found| found == *who)
    }

    /// Records when a sign-in expires, for work that continues until then.
    pub(super) fn note_sign_in(&self, who: &TokenPrincipal) {
        if let CallerCredential::Console(sign_in) = &who.credential
            && let Some(console) = self.0.console.get()
        {
            console.ends_s.lock().insert(sign_in.expires_ms.div_ceil(1000));
        }
    }

    /// Loads sign-ins ended on other servers, and returns whether any may have ended since the last
    /// call.
    pub(super) async fn refresh_console(&self, now_ms: u64) -> bool {
        let Some(console) = self.0.console.get() else { return false };
        let has_ended = console.pass(now_ms / 1000);
        // If no other server writes to the store, only this one ends sign-ins.
        let is_changed = match self.is_shared() {
            true => console.refresh_ended().await,
            false => Ok(false),
        };
        // The registry, which reads the store at the same moment, logs a failure.
        has_ended || is_changed.unwrap_or(false)
    }
}

/// A stored code.
#[derive(Clone, Debug)]
struct CodeRow {
    hash: String,
    claims: ConsoleClaims,
    expires_ms: u64,
}

impl ConsoleTokens {
    /// Encodes and signs claims as a token.
    fn sign(&self, claims: &ConsoleClaims) -> Option<String> {
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims).ok()?);
        let tag = hmac::sign(&self.key, claims.as_bytes());
        let token = format!("{PREFIX}{claims}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()));
        (token.len() <= TOKEN_BYTES_MAX).then_some(token)
    }

    /// Verifies a token that a server of this store has signed. The time of the comparison does not
    /// reveal where a wrong token differs (`ring::hmac::verify`).
    fn open(&self, token: &str) -> Option<ConsoleClaims> {
        let (claims, tag) = token.strip_prefix(PREFIX)?.split_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.key, claims.as_bytes(), &tag).ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// Stores a code, and removes expired ones.
    async fn keep(&self, row: CodeRow, now_ms: u64) -> Result<(), ConsoleAccessError> {
        let claims = serde_json::to_string(&row.claims).map_err(|_| SqlStoreError::Spoiled)?;
        let kept = self.store.transact("console.code", move |it| {
            let token_id = row.claims.token_id.as_str();
            let now = milliseconds(now_ms);
            it.execute("DELETE FROM cove_console_codes WHERE expires_ms <= $1", &[now.into()])?;
            let sql = "SELECT COUNT(*) FROM cove_console_codes WHERE token_id = $1";
            let count = it.query_one(sql, &[token_id.into()])?.map_or(Ok(0), |row| row.get(0))?;
            if u64::try_from(count).unwrap_or(0) >= CODES_OF_TOKEN_MAX {
                return Ok(false);
            }
            let sql = "INSERT INTO cove_console_codes (hash, token_id, claims, expires_ms) \
                VALUES ($1, $2, $3, $4)";
            let parameters: [SqlValue; 4] = [
                row.hash.as_str().into(),
                token_id.into(),
                claims.as_str().into(),
                milliseconds(row.expires_ms).into(),
            ];
            it.execute(sql, &parameters)?;
            Ok(true)
        });
        if kept.await? { Ok(()) } else { Err(ConsoleAccessError::TooManyCodes) }
    }

    /// Removes a code, and returns its claims. Of several concurrent servers one gets it.
    async fn take(
        &self,
        hash: String,
        now_ms: u64,
    ) -> Result<Option<ConsoleClaims>, SqlStoreError> {
        let taken = self.store.transact("console.login", move |it| {
            let sql = "SELECT claims, expires_ms FROM cove_console_codes WHERE hash = $1";
            let Some(row) = it.query_one(sql, &[hash.as_str().into()])? else { return Ok(None) };
            let (claims, expires_ms) = (row.get::<String>(0)?, row.get::<u64>(1)?);
            let sql = "DELETE FROM cove_console_codes WHERE hash = $1";
            let count = it.execute(sql, &[hash.as_str().into()])?;
            Ok((count == 1 && now_ms < expires_ms).then_some(claims))
        });
        let claims = taken.await?;
        claims
            .map(|text| serde_json::from_str(&text).map_err(|_| SqlStoreError::Spoiled))
            .transpose()
    }

    async fn end(&self, sign_in: ConsoleSignIn, now_ms: u64) -> Result<(), SqlStoreError> {
        let ended = self.store.transact_idempotent("console.logout", move |it| {
            let now = milliseconds(now_ms);
            it.execute("DELETE FROM cove_console_ended WHERE expires_ms <= $1", &[now.into()])?;
            let sql = "INSERT INTO cove_console_ended (id, expires_ms) VALUES ($1, $2) \
                ON CONFLICT DO NOTHING";
            let end = milliseconds(sign_in.expires_ms);
            it.execute(sql, &[(&*sign_in.id).into(), end.into()])?;
            let sql = "UPDATE cove_console_version SET version = version + 1 WHERE id = 1";
            it.execute(sql, &[]).map(drop)
        });
        ended.await
    }

    /// Reads the sign-ins ended on any server, if they have changed; returns whether they had.
    async fn refresh_ended(&self) -> Result<bool, SqlStoreError> {
        let version = self.store.counter(VERSION, COUNTER_AGE_MAX).await?;
        if version == self.ended.read().version {
            return Ok(false);
        }
        self.read_ended().await?;
        Ok(true)
    }

    async fn read_ended(&self) -> Result<(), SqlStoreError> {
        let read = self.store.read("console.ended", |it: &mut dyn StoreTransaction| {
            let version = it.query_one(VERSION, &[])?.ok_or(SqlStoreError::Spoiled)?.get(0)?;
            let rows = it.query("SELECT id, expires_ms FROM cove_console_ended", &[])?;
            let ended: Result<HashMap<String, u64>, SqlStoreError> =
                rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect();
            Ok(EndedSignIns { expires_ms_by_id: ended?, version: Some(version) })
        });
        let read = read.await?;
        let mut ended = self.ended.write();
        // If two reads overlap, the later state wins.
        if ended.version <= read.version {
            *ended = read;
        }
        Ok(())
    }

    fn has_ended(&self, id: &str) -> bool {
        self.ended.read().expires_ms_by_id.contains_key(id)
    }

    /// Returns whether a sign-in has expired up to this second; each is reported once.
    fn pass(&self, now_s: u64) -> bool {
        let mut ends = self.ends_s.lock();
        let later = ends.split_off(&now_s.saturating_add(1));
        let has_ended = !ends.is_empty();
        *ends = later;
        has_ended
    }
}

/// Counts of wrong codes by address, to limit guessing.
#[derive(Debug, Default)]
struct CodeGuesses(Mutex<HashMap<IpAddr, AddressGuesses>>);

#[derive(Clone, Copy, Debug)]
struct AddressGuesses {
    count: u32,
    since: Instant,
}

impl CodeGuesses {
    /// Counts an attempt, or returns the time until the next one is allowed.
    fn begin(&self, address: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let Some(address) = address.map(network_of) else { return Ok(()) };
        let mut all = self.0.lock();
        let is_held = |it: &AddressGuesses| now.duration_since(it.since) < GUESSES_INTERVAL;
        if !all.contains_key(&address) && all.len() >= GUESSING_ADDRESSES_MAX {
            all.retain(|_, it| is_held(it));
            if all.len() >= GUESSING_ADDRESSES_MAX {
                return Err(GUESSES_INTERVAL);
            }
        }
        let guesses = all.entry(address).or_insert(AddressGuesses { count: 0, since: now });
        if !is_held(guesses) {
            *guesses = AddressGuesses { count: 0, since: now };
        }
        if guesses.count >= GUESSES_MAX {
            return Err(GUESSES_INTERVAL.saturating_sub(now.duration_since(guesses.since)));
        }
        guesses.count += 1;
        Ok(())
    }

    /// Withdraws an attempt that was right.
    fn forgive(&self, address: Option<IpAddr>) {
        let Some(address) = address.map(network_of) else { return };
        let mut all = self.0.lock();
        if let Some(guesses) = all.get_mut(&address) {
            guesses.count = guesses.count.saturating_sub(1);
            if guesses.count == 0 {
                all.remove(&address);
            }
        }
    }
}

/// Returns the part of an address that counts as one: for IPv6 the network, whose addresses usually
/// belong to one owner (RFC 6177 §2).
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

fn random_text() -> Result<String, TokenError> {
    let random = random_key()?;
    Ok(URL_SAFE_NO_PAD.encode(random.iter().take(CODE_BYTES).copied().collect::<Vec<u8>>()))
}

fn end_of(now_ms: u64, lifetime: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX))
}

fn milliseconds(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
