//! API tokens: hashed at rest, verified in memory, listed by name.
//!
//! They are stored in a file of the data directory ([`file`]) or, if servers share a store, in a
//! table of it ([`table`]). A running server loads changes by itself: when it receives an unknown
//! token, and once per [`RELOAD_INTERVAL`].
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc6750>

mod console;
mod error;
mod file;
mod issued;
mod principal;
mod revocation;
mod scope;
mod secret;
mod table;

use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use self::console::ConsoleTokens;
use self::error::file_error;
use self::file::{FileVersion, TokenFile};
use self::issued::IssuedTokens;
use self::table::TokenTable;
use crate::data_dir::write_atomic;
use crate::issuers::IssuerError;
use crate::lookup::{SharedLookup, SharedLookupError};
use crate::store::SqlStore;
use crate::{clock, hex};

pub use self::console::{
    CODE_LIFETIME, CODES_OF_TOKEN_MAX, ConsoleAccessError, ConsoleCode, ConsoleToken, GUESSES_MAX,
    SIGN_IN_LIFETIME,
};
pub use self::error::TokenError;
pub use self::issued::{ISSUED_TOKENS_MAX, check_issuers};
pub use self::principal::{CallerCredential, ConsoleSignIn, TokenPrincipal};
pub use self::revocation::RevocationSignal;
pub use self::scope::TokenScopes;
pub use self::secret::{TokenSecret, as_e2b};
pub use api::{TokenScope, UnknownScope};

/// Time for which a running server may continue to accept a revoked token.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of tokens of a server.
pub const TOKENS_MAX: usize = 10_000;

/// Longest name of a token, in bytes.
pub const NAME_BYTES_MAX: usize = 100;

/// Maximum number of tokens that a tenant may create.
pub const TOKENS_OF_TENANT_MAX: usize = 100;

/// Longest name of a tenant, in bytes.
pub const TENANT_BYTES_MAX: usize = 64;

/// Shortest interval at which unknown tokens are looked up in a shared store: unauthenticated
/// clients can send any number of them.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Plain text of the first token, for the owner of the data directory.
const FIRST_TOKEN_FILE: &str = "token";

/// Name of the token that the first start creates.
const FIRST_TOKEN_NAME: &str = "first";

/// Stored form of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// Id, for revocation and logs.
    pub id: String,
    /// Name given by its owner.
    pub name: String,
    /// SHA-256 of its plain text, in lower case hexadecimal. A token has 256 random bits, so a slow
    /// hash would add no protection.
    pub sha256: String,
    /// Time of creation (RFC 3339).
    pub created: String,
    /// True if it has operator rights. Missing in files of versions without the distinction.
    #[serde(default = "yes")]
    pub operator: bool,
    /// Tenant that it belongs to; none for a tenant of its own. Omitted when empty, as are the
    /// scopes, so that older versions read the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Scopes.
    #[serde(default, skip_serializing_if = "TokenScopes::is_all")]
    pub scopes: TokenScopes,
    /// Time of expiry, in milliseconds since 1970; none for a token without an expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

impl TokenRecord {
    /// Returns the tenant that it belongs to.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(&self.id)
    }

    /// Returns whether it has expired.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|end_ms| end_ms <= now_ms)
    }
}

fn yes() -> bool {
    true
}

/// Definition of a new token.
#[derive(Clone, Debug)]
pub struct NewToken<'a> {
    /// Name.
    pub name: &'a str,
    /// True if it has operator rights.
    pub operator: bool,
    /// Tenant that it belongs to; none for a tenant of its own.
    pub tenant: Option<&'a str>,
    /// Scopes.
    pub scopes: TokenScopes,
    /// Time after which it expires; none for a token without an expiry.
    pub lifetime: Option<Duration>,
}

/// The tokens of one data directory, or of all servers on one store. Cheap to clone; clones share
/// their state.
#[derive(Clone, Debug)]
pub struct TokenRegistry(Arc<TokenRegistryShared>);

#[derive(Debug)]
struct TokenRegistryShared {
    directory: PathBuf,
    place: TokenBackend,
    /// Tokens that are valid now. Written by `take_over` only.
    loaded: RwLock<LoadedTokens>,
    /// Held while the file is read, so that a burst of unknown tokens reads it once.
    reloading: Mutex<()>,
    /// Lookups of unknown tokens in the store.
    unknown: SharedLookup,
    /// Tokens of identity providers, if configured.
    issued: RwLock<Option<Arc<IssuedTokens>>>,
    /// Sign-ins of the console, if enabled.
    console: OnceLock<ConsoleTokens>,
    /// Notified when other tokens were loaded, or a token has expired.
    changes: watch::Sender<()>,
}

/// Storage of the tokens.
#[derive(Debug)]
enum TokenBackend {
    File(TokenFile),
    Table(TokenTable),
}

/// Tokens, as stored.
#[derive(Debug, Default)]
struct StoredTokens {
    records: Vec<(TokenRecord, [u8; 32])>,
    /// None if there has never been a token.
    version: Option<TokensVersion>,
}

/// Version of the stored tokens, by which a change is detected without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokensVersion {
    File(FileVersion),
    Table(u64),
}

#[derive(Debug, Default)]
struct LoadedTokens {
    records: Vec<TokenRecord>,
    /// The time of a lookup depends on the hash alone, and no client can choose a hash.
    by_hash: HashMap<[u8; 32], KnownToken>,
    by_id: HashMap<Arc<str>, KnownToken>,
    version: Option<TokensVersion>,
}

/// A token in memory.
#[derive(Clone, Debug)]
struct KnownToken {
    principal: TokenPrincipal,
    expires_ms: Option<u64>,
}

impl KnownToken {
    fn is_valid(&self, now_ms: u64) -> bool {
        self.expires_ms.is_none_or(|end_ms| now_ms < end_ms)
    }
}

impl From<StoredTokens> for LoadedTokens {
    fn from(stored: StoredTokens) -> LoadedTokens {
        let StoredTokens { records, version } = stored;
        let mut loaded = LoadedTokens { version, ..LoadedTokens::default() };
        for (record, hash) in records {
            let principal = TokenPrincipal {
                token_id: record.id.as_str().into(),
                name: record.name.as_str().into(),
                operator: record.operator,
                tenant: record.tenant().into(),
                scopes: record.scopes,
                credential: CallerCredential::Token,
            };
            let known = KnownToken { principal, expires_ms: record.expires_ms };
            loaded.by_id.insert(Arc::clone(&known.principal.token_id), known.clone());
            loaded.by_hash.insert(hash, known);
            loaded.records.push(record);
        }
        loaded
    }
}

/// A change of the tokens, applied to those stored at that moment.
#[derive(Clone, Debug)]
enum TokenChange {
    /// Adds the first token, unless there has been one.
    AddFirst { record: TokenRecord },
    /// Adds a token, unless its tenant has `of_tenant_max`.
    Add { record: TokenRecord, of_tenant_max: usize },
    /// Removes a token, if it belongs to the tenant; none for any tenant.
    Revoke { id: String, tenant: Option<String> },
}

impl TokenChange {
    /// Applies the change, and returns the record that was added or removed.
    fn apply(&self, records: &mut Vec<TokenRecord>) -> Result<TokenRecord, TokenError> {
        match self {
            TokenChange::AddFirst { record } => {
                records.push(record.clone());
                Ok(record.clone())
            }
            TokenChange::Add { record, of_tenant_max } => {
                if records.len() >= TOKENS_MAX {
                    return Err(TokenError::TooMany);
                }
                let of_tenant = records.iter().filter(|other| other.tenant() == record.tenant());
                if of_tenant.count() >= *of_tenant_max {
                    return Err(TokenError::TooManyOfTenant);
                }
                records.push(record.clone());
                Ok(record.clone())
            }
            TokenChange::Revoke { id, tenant } => {
                let may = |it: &TokenRecord| tenant.as_ref().is_none_or(|own| it.tenant() == own);
                let place = records.iter().position(|record| record.id == *id && may(record));
                let place = place.ok_or_else(|| TokenError::NoSuchToken(id.clone()))?;
                Ok(records.remove(place))
            }
        }
    }
}

impl TokenRegistry {
    /// Reads the tokens of a data directory; none if there is no file yet.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub fn open(directory: &Path) -> Result<TokenRegistry, TokenError> {
        let file = TokenFile::of(directory);
        let stored = file.read()?;
        Ok(TokenRegistry::with(directory, TokenBackend::File(file), stored))
    }

    /// Reads the tokens that servers on this store share.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn open_shared(
        directory: &Path,
        store: &SqlStore,
    ) -> Result<TokenRegistry, TokenError> {
        let table = TokenTable::open(store).await?;
        let stored = table.read().await?;
        Ok(TokenRegistry::with(directory, TokenBackend::Table(table), stored))
    }

    fn with(directory: &Path, place: TokenBackend, stored: StoredTokens) -> TokenRegistry {
        TokenRegistry(Arc::new(TokenRegistryShared {
            directory: directory.to_owned(),
            place,
            loaded: RwLock::new(stored.into()),
            reloading: Mutex::new(()),
            unknown: SharedLookup::new(LOOK_INTERVAL),
            issued: RwLock::default(),
            console: OnceLock::new(),
            changes: watch::Sender::new(()),
        }))
    }

    /// Moves the tokens of the data directory's file into the store; tokens that are in the store
    /// already, or were revoked there, are left unchanged. Returns the number of tokens in the
    /// file. The file is renamed, so that it is moved once. Zero if tokens are stored in the file.
    ///
    /// # Errors
    /// If the file cannot be read, or the store not be changed.
    pub async fn take_over_file(&self) -> Result<usize, TokenError> {
        let TokenBackend::Table(table) = &self.0.place else { return Ok(0) };
        let file = TokenFile::of(&self.0.directory);
        let stored = file.read()?;
        if stored.version.is_none() {
            file.set_aside()?;
            return Ok(0);
        }
        let records: Vec<_> = stored.records.into_iter().map(|(record, _)| record).collect();
        let count = records.len();
        table.insert_missing(records).await?;
        file.set_aside()?;
        self.refresh().await?;
        Ok(count)
    }

    /// Creates the first token if there has never been one, and writes its plain text to the file
    /// `token` of the data directory. Writes files and may wait for the store, so call it on a
    /// thread that may block; the same holds for all functions that create or revoke tokens.
    ///
    /// # Errors
    /// If a file cannot be written, or the store not be changed.
    pub fn ensure_first(&self) -> Result<(), TokenError> {
        if self.0.loaded.read().version.is_some() {
            return Ok(());
        }
        let secret = new_secret()?;
        let text = format!("{}\n", secret.expose());
        // The plain text is written first: a crash in between leaves a token that does not work yet
        // and is replaced at the next start, rather than a working token whose text is lost.
        write_atomic(&self.first_token_path(), text.as_bytes())?;
        let first = NewToken {
            name: FIRST_TOKEN_NAME,
            operator: true,
            tenant: None,
            scopes: TokenScopes::ALL,
            lifetime: None,
        };
        let record = self.record(&first, &secret)?;
        match self.change(TokenChange::AddFirst { record }) {
            // Another server on the store was faster.
            Err(TokenError::NotFirst) => {
                let path = self.first_token_path();
                fs::remove_file(&path).map_err(file_error("remove", &path))
            }
            added => added.map(drop),
        }
    }

    /// Returns the path of the first token's plain text, for its owner.
    pub fn first_token_path(&self) -> PathBuf {
        first_token_path(&self.0.directory)
    }

    /// Returns whether tokens are in a shared store, not in the data directory.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.0.place, TokenBackend::Table(_))
    }

    /// Returns whether the file is missing because its tokens were moved to a shared store, which
    /// this registry does not read.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        match &self.0.place {
            TokenBackend::File(file) => self.0.loaded.read().version.is_none() && file.is_aside(),
            TokenBackend::Table(_) => false,
        }
    }

    /// Returns the principal of a token, in either spelling. Accesses no disk and no store for a
    /// known token; an unknown one of a shared store is found after [`TokenRegistry::learn`].
    pub fn verify(&self, token: &str) -> Option<TokenPrincipal> {
        if let Some(issued) = self.issued().filter(|issued| issued.may_be_of(token)) {
            return issued.verify(token, clock::wall_ms());
        }
        if console::may_be_of(token) {
            return self.verify_console(token);
        }
        let hash = hash(&secret::canonical(token)?);
        let known = self.known(&hash);
        if known.is_some() || self.is_shared() {
            return known;
        }
        match self.reload() {
            Ok(true) => self.known(&hash),
            Ok(false) => None,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "failed to read tokens");
                None
            }
        }
    }

    fn known(&self, hash: &[u8; 32]) -> Option<TokenPrincipal> {
        let loaded = self.0.loaded.read();
        let known = loaded.by_hash.get(hash)?;
        known.is_valid(self.now_ms()).then(|| known.principal.clone())
    }

    /// Verifies an unknown token of an identity provider, or looks up an unknown token in a shared
    /// store: another server may have just created it. One query serves all waiting callers, and
    /// queries are [`LOOK_INTERVAL`] apart.
    ///
    /// # Errors
    /// If the token cannot be verified because its issuer's keys are unavailable.
    pub async fn learn(&self, token: &str) -> Result<(), IssuerError> {
        if let Some(issued) = self.issued().filter(|issued| issued.may_be_of(token)) {
            return Box::pin(issued.learn(token, clock::wall_ms())).await;
        }
        if !self.is_shared() {
            return Ok(());
        }
        let is_known = match secret::canonical(token).map(|text| hash(&text)) {
            Some(hash) => self.0.loaded.read().by_hash.contains_key(&hash),
            None => !(console::may_be_of(token) && self.is_console_without_token(token)),
        };
        if is_known {
            return Ok(());
        }
        let looked = self.0.unknown.run(async { self.refresh().await.map(drop) }).await;
        if let Err(SharedLookupError::Failed(error)) = looked {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "failed to look for an unknown token");
        }
        Ok(())
    }

    /// Returns the time by which tokens expire: the store's if servers share one.
    fn now_ms(&self) -> u64 {
        match &self.0.place {
            TokenBackend::File(_) => clock::wall_ms(),
            TokenBackend::Table(table) => table.now_ms(),
        }
    }

    /// Returns the principal of the token with this id; none if there is no such token any more.
    #[must_use]
    pub fn principal(&self, token_id: &str) -> Option<TokenPrincipal> {
        let issued = self.issued();
        if let Some(found) = issued.and_then(|it| it.principal(token_id, clock::wall_ms())) {
            return Some(found);
        }
        let loaded = self.0.loaded.read();
        let known = loaded.by_id.get(token_id)?;
        known.is_valid(self.now_ms()).then(|| known.principal.clone())
    }

    /// Returns the principals of all tokens of this tenant.
    #[must_use]
    pub fn principals_of(&self, tenant: &str) -> Vec<TokenPrincipal> {
        let (loaded, now_ms) = (self.0.loaded.read(), self.now_ms());
        let known = loaded.by_id.values().filter(|known| known.is_valid(now_ms));
        let of_tenant = known.filter(|known| *known.principal.tenant == *tenant);
        of_tenant.map(|known| known.principal.clone()).collect()
    }

    /// Returns a signal that fires when the token of a principal is revoked, expires, or gets other
    /// rights.
    #[must_use]
    pub fn revocation(&self, principal: &TokenPrincipal) -> RevocationSignal {
        self.note_sign_in(principal);
        let (tokens, expected) = (Arc::downgrade(&self.0), principal.clone());
        RevocationSignal::new(self.0.changes.subscribe(), move || {
            let Some(tokens) = tokens.upgrade().map(TokenRegistry) else { return true };
            match &expected.credential {
                CallerCredential::Console(sign_in) => tokens.has_sign_in(&expected, sign_in),
                _ => tokens.principal(&expected.token_id).is_some_and(|found| found == expected),
            }
        })
    }

    /// Loads the file if it has changed; returns whether it had. False if tokens are in a shared
    /// store.
    ///
    /// # Errors
    /// If the file cannot be read or parsed. The loaded tokens remain in force.
    pub fn reload(&self) -> Result<bool, TokenError> {
        let TokenBackend::File(file) = &self.0.place else { return Ok(false) };
        let _one_at_a_time = self.0.reloading.lock();
        if file.version()?.map(TokensVersion::File) == self.0.loaded.read().version {
            return Ok(false);
        }
        let stored = file.read()?;
        self.take_over(stored);
        Ok(true)
    }

    /// Loads changes of the file or of the store.
    async fn refresh(&self) -> Result<bool, TokenError> {
        let TokenBackend::Table(table) = &self.0.place else { return self.reload() };
        let known = self.0.loaded.read().version;
        if table.version().await?.map(TokensVersion::Table) == known {
            return Ok(false);
        }
        let stored = table.read().await?;
        self.take_over(stored);
        Ok(true)
    }

    fn take_over(&self, stored: StoredTokens) {
        {
            let mut loaded = self.0.loaded.write();
            // If two reads overlap, the later state wins.
            if let (Some(TokensVersion::Table(new)), Some(TokensVersion::Table(old))) =
                (stored.version, loaded.version)
                && new < old
            {
                return;
            }
            *loaded = stored.into();
        }
        self.0.changes.send_replace(());
    }

    /// Reloads once per [`RELOAD_INTERVAL`], so that the revocation or expiry of a token takes
    /// effect promptly. Never ends. While a shared store cannot be reached nothing changes: no
    /// token can be revoked there either.
    pub async fn keep_current(self) {
        let mut ticks = tokio::time::interval(RELOAD_INTERVAL);
        let mut failed = false;
        let mut seen_ms = self.now_ms();
        loop {
            ticks.tick().await;
            let result = self.refresh().await;
            // Logged once, not once per second.
            if let Err(error) = &result
                && !failed
            {
                tracing::error!(error = error as &dyn std::error::Error, "failed to read tokens");
            }
            failed = result.is_err();
            let now_ms = self.now_ms();
            let ends =
                |record: &TokenRecord| !record.is_expired(seen_ms) && record.is_expired(now_ms);
            let issued = self.issued();
            let has_issued = issued.is_some_and(|it| it.forget_ended(clock::wall_ms()));
            let has_console = self.refresh_console(now_ms).await;
            if has_issued || has_console || self.0.loaded.read().records.iter().any(ends) {
                self.0.changes.send_replace(());
            }
            seen_ms = now_ms;
        }
    }

    /// Returns all tokens, oldest first.
    pub fn list(&self) -> Vec<TokenRecord> {
        self.0.loaded.read().records.clone()
    }

    /// Returns whether any other tenant has a token.
    pub fn has_tenants_beside(&self, tenant: &str) -> bool {
        self.0.loaded.read().records.iter().any(|record| record.tenant() != tenant)
    }

    /// Returns whether tokens belong to more than one tenant.
    pub fn has_several_tenants(&self) -> bool {
        let loaded = self.0.loaded.read();
        let mut tenants = loaded.records.iter().map(TokenRecord::tenant);
        let first = tenants.next();
        tenants.any(|tenant| Some(tenant) != first)
    }

    /// Creates a token with all scopes. Its plain text is only in the result.
    ///
    /// # Errors
    /// If the name is invalid, there are too many tokens, or the file cannot be written.
    pub fn create(
        &self,
        name: &str,
        operator: bool,
    ) -> Result<(TokenRecord, TokenSecret), TokenError> {
        let scopes = TokenScopes::ALL;
        self.create_as(&NewToken { name, operator, tenant: None, scopes, lifetime: None })
    }

    /// Creates a token.
    ///
    /// # Errors
    /// If a field is invalid, there are too many tokens, or the file cannot be written.
    pub fn create_as(&self, new: &NewToken<'_>) -> Result<(TokenRecord, TokenSecret), TokenError> {
        let secret = new_secret()?;
        let record = self.add(new, usize::MAX, &secret)?;
        Ok((record, secret))
    }

    /// Creates a token at its tenant's request, without operator rights; their number is limited.
    /// The caller must check that the tenant has these scopes itself ([`TokenScopes::is_within`]).
    ///
    /// # Errors
    /// As of [`TokenRegistry::create_as`], and if the tenant has [`TOKENS_OF_TENANT_MAX`].
    pub fn create_for(
        &self,
        tenant: &str,
        name: &str,
        scopes: TokenScopes,
    ) -> Result<(TokenRecord, TokenSecret), TokenError> {
        let secret = new_secret()?;
        let new = NewToken { name, operator: false, tenant: Some(tenant), scopes, lifetime: None };
        let record = self.add(&new, TOKENS_OF_TENANT_MAX, &secret)?;
        Ok((record, secret))
    }

    /// Returns the tokens of a tenant, oldest first.
    pub fn list_of(&self, tenant: &str) -> Vec<TokenRecord> {
        let loaded = self.0.loaded.read();
        loaded.records.iter().filter(|record| record.tenant() == tenant).cloned().collect()
    }

    /// Revokes a token of a tenant. Tokens of other tenants are not found.
    ///
    /// # Errors
    /// If the tenant has no token with this id, or the file cannot be written.
    pub fn revoke_of(&self, tenant: &str, id: &str) -> Result<TokenRecord, TokenError> {
        self.revoke_where(id, Some(tenant))
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// If there is no token with this id, or the file cannot be written.
    pub fn revoke(&self, id: &str) -> Result<TokenRecord, TokenError> {
        self.revoke_where(id, None)
    }

    fn revoke_where(&self, id: &str, tenant: Option<&str>) -> Result<TokenRecord, TokenError> {
        let tenant = tenant.map(str::to_owned);
        let revoked = self.change(TokenChange::Revoke { id: id.to_owned(), tenant })?;
        self.remove_first_token_file(&revoked)?;
        Ok(revoked)
    }

    fn add(
        &self,
        new: &NewToken<'_>,
        of_tenant_max: usize,
        secret: &TokenSecret,
    ) -> Result<TokenRecord, TokenError> {
        let record = self.record(new, secret)?;
        self.change(TokenChange::Add { record, of_tenant_max })
    }

    /// Checks a definition, and creates its record.
    fn record(&self, new: &NewToken<'_>, secret: &TokenSecret) -> Result<TokenRecord, TokenError> {
        let NewToken { name, operator, tenant, scopes, lifetime } = *new;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(TokenError::BadName);
        }
        if !tenant.is_none_or(is_tenant) {
            return Err(TokenError::BadTenant);
        }
        if scopes == TokenScopes::NONE {
            return Err(TokenError::NoScope);
        }
        Ok(TokenRecord {
            id: new_id()?,
            name: name.to_owned(),
            sha256: hex::encode(&hash(&secret.expose())),
            created: clock::rfc3339(clock::wall()),
            operator,
            tenant: tenant.map(str::to_owned),
            scopes,
            expires_ms: lifetime.map(|lifetime| {
                let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
                self.now_ms().saturating_add(lifetime_ms)
            }),
        })
    }

    /// Applies a change to the stored tokens, one process at a time.
    fn change(&self, change: TokenChange) -> Result<TokenRecord, TokenError> {
        match &self.0.place {
            TokenBackend::File(file) => {
                let record = file.change(&change)?;
                self.reload()?;
                Ok(record)
            }
            TokenBackend::Table(table) => wait(async {
                let record = table.change(change).await?;
                self.refresh().await?;
                Ok(record)
            }),
        }
    }

    /// Removes the file of the first token after its revocation: a token that does not work would
    /// only mislead.
    fn remove_first_token_file(&self, revoked: &TokenRecord) -> Result<(), TokenError> {
        let path = self.first_token_path();
        match fs::read_to_string(&path) {
            Ok(text) if hex::encode(&hash(text.trim())) == revoked.sha256 => {
                fs::remove_file(&path).map_err(file_error("remove", &path))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the path of the first token's plain text in a data directory, for its owner.
#[must_use]
pub fn first_token_path(directory: &Path) -> PathBuf {
    directory.join(FIRST_TOKEN_FILE)
}

/// Waits for the store, on a thread that may block.
fn wait<T>(answer: impl Future<Output = Result<T, TokenError>>) -> Result<T, TokenError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.map_err(TokenError::Runtime)?.block_on(answer)
}

/// Returns 32 random bytes, for a key.
///
/// # Errors
/// If the kernel returns none.
pub fn random_key() -> Result<[u8; 32], TokenError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.into()))?;
    Ok(bytes)
}

fn new_secret() -> Result<TokenSecret, TokenError> {
    random_key().map(TokenSecret::new)
}

/// Returns whether a tenant's name is valid: it is used in paths and keys.
fn is_tenant(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= TENANT_BYTES_MAX
        && text.bytes().all(is_good)
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

fn new_id() -> Result<String, TokenError> {
    let mut bytes = [0; 10];
    getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.into()))?;
    let digits = bytes.iter().map(|byte| char::from(clock::BASE32[usize::from(byte & 31)]));
    Ok(format!("tok_{}", digits.collect::<String>()))
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Returns the token of an `Authorization: Bearer` header.
pub(crate) fn bearer(headers: &axum::http::HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(axum::http::header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    // Two of them would let a proxy check one and the server use the other.
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests;
