//! API tokens: hashed at rest, verified in memory, named by who may use them.
//!
//! The file holds one JSON object per line and never a token itself. It is small, is only ever
//! replaced as a whole, and a running server takes over a changed file by itself: when it meets a
//! token it does not know, and once per [`RELOAD_INTERVAL`].
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc6750>

mod revocation;
mod scope;
mod secret;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::data_dir::{self, write_atomic};
use crate::{clock, hex, http};

pub use self::revocation::RevocationSignal;
pub use self::scope::{TokenScope, TokenScopes, UnknownScope};
pub use self::secret::{TokenSecret, as_e2b};

/// Time that a running server may go on honouring a token that was revoked.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Most tokens a server keeps.
pub const TOKENS_MAX: usize = 10_000;

/// Longest name of a token, in bytes.
pub const NAME_BYTES_MAX: usize = 100;

/// Most tokens of one tenant that he may make by himself.
pub const TOKENS_OF_TENANT_MAX: usize = 100;

/// Longest name of a tenant, in bytes.
pub const TENANT_BYTES_MAX: usize = 64;

/// Hashes and names of all tokens.
const TOKENS_FILE: &str = "tokens.jsonl";

/// Locked while `TOKENS_FILE` is changed.
const TOKENS_LOCK_FILE: &str = "tokens.lock";

/// Plain text of the first token, for the owner of the data directory.
const FIRST_TOKEN_FILE: &str = "token";

/// Name of the token that the first start makes.
const FIRST_TOKEN_NAME: &str = "first";

/// Caller of a request: the token that came with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenPrincipal {
    /// Id of the token; limits and accounts of executions go by it.
    pub token_id: Arc<str>,
    /// Name given by its owner.
    pub name: Arc<str>,
    /// True if it may do what concerns everybody: pause the queue, see all figures.
    pub operator: bool,
    /// Tenant that it belongs to, with all that sessions and agents make: several tokens may share
    /// one. The token's own id when nothing else was said.
    pub tenant: Arc<str>,
    /// Scopes.
    pub scopes: TokenScopes,
}

impl TokenPrincipal {
    /// Creates the caller without a token where that is allowed: a tenant of its own.
    #[must_use]
    pub fn without_token(id: &str, name: &str) -> TokenPrincipal {
        let id: Arc<str> = id.into();
        let tenant = Arc::clone(&id);
        let name = name.into();
        TokenPrincipal { token_id: id, name, operator: false, tenant, scopes: TokenScopes::ALL }
    }

    /// Refuses what the token is not for.
    ///
    /// # Errors
    /// When the scope is missing: 403, with its name.
    pub fn require(&self, scope: TokenScope) -> Result<(), http::HttpError> {
        if self.scopes.has(scope) { Ok(()) } else { Err(http::HttpError::missing_scope(scope)) }
    }
}

/// Stored form of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// Names it, for revoking and in logs.
    pub id: String,
    /// Name given by its owner.
    pub name: String,
    /// SHA-256 of its plain text, in lower case hexadecimal. A token has 256 random bits, so that a
    /// slow hash would protect nothing.
    pub sha256: String,
    /// When it was made (RFC 3339).
    pub created: String,
    /// True if it may do what concerns everybody. Left out by versions that knew no difference.
    #[serde(default = "yes")]
    pub operator: bool,
    /// Tenant that it belongs to; none for a tenant of its own. Left out where it says nothing, as
    /// are the scopes, so that older versions read the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Scopes.
    #[serde(default, skip_serializing_if = "TokenScopes::is_all")]
    pub scopes: TokenScopes,
}

impl TokenRecord {
    /// Returns who it belongs to.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(&self.id)
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
    /// True if it may do what concerns everybody.
    pub operator: bool,
    /// Tenant that it belongs to; none for a tenant of its own.
    pub tenant: Option<&'a str>,
    /// Scopes.
    pub scopes: TokenScopes,
}

/// Why the tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// A file operation failed.
    #[error("{action} `{}`", path.display())]
    File {
        /// Step that was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The file was edited into something else.
    #[error("read line {line} of `{}`", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Cause.
        source: serde_json::Error,
    },
    /// A line of the file does not hold a hash.
    #[error("line {line} of `{}`: `sha256` is not 64 hexadecimal digits", path.display())]
    NotAHash {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] data_dir::DataDirError),
    /// The kernel gave no random bytes.
    #[error("draw random bytes")]
    Random(#[source] io::Error),
    /// A name that would garble a listing.
    #[error("a token's name has 1 to {NAME_BYTES_MAX} bytes and no control characters")]
    BadName,
    /// A tenant that would garble a listing, or a path.
    #[error(
        "a tenant has 1 to {TENANT_BYTES_MAX} letters, digits, `-`, `_` and `.`, and begins with a \
         letter or digit"
    )]
    BadTenant,
    /// A token that may be used for nothing.
    #[error("a token needs at least one scope")]
    NoScope,
    /// The tenant has enough of them.
    #[error("the tenant has {TOKENS_OF_TENANT_MAX} tokens already; revoke some first")]
    TooManyOfTenant,
    /// There is no room for another one.
    #[error("there are {TOKENS_MAX} tokens already; revoke some first")]
    TooMany,
    /// No such token.
    #[error("there is no token with the id `{0}`")]
    NoSuchToken(String),
}

/// The tokens of one data directory. Cheap to clone; clones share their state.
#[derive(Clone, Debug)]
pub struct TokenRegistry(Arc<TokenRegistryShared>);

#[derive(Debug)]
struct TokenRegistryShared {
    directory: PathBuf,
    /// Tokens that are valid now. Written by `reload` only.
    loaded: RwLock<LoadedTokens>,
    /// Held while the file is read, so that a burst of unknown tokens reads it once.
    reloading: Mutex<()>,
    /// Told when something else was loaded.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct LoadedTokens {
    records: Vec<TokenRecord>,
    /// Looking up a hash takes a time that depends on the hash alone, and nobody can choose one.
    by_hash: HashMap<[u8; 32], TokenPrincipal>,
    by_id: HashMap<Arc<str>, TokenPrincipal>,
    version: Option<FileVersion>,
}

/// Version of the file, by which a change is noticed without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl TokenRegistry {
    /// Reads the tokens of a data directory; none when there is no file yet.
    ///
    /// # Errors
    /// When the file cannot be read or understood.
    pub fn open(directory: &Path) -> Result<TokenRegistry, TokenError> {
        let loaded = load(&directory.join(TOKENS_FILE))?;
        Ok(TokenRegistry(Arc::new(TokenRegistryShared {
            directory: directory.to_owned(),
            loaded: RwLock::new(loaded),
            reloading: Mutex::new(()),
            changes: watch::Sender::new(()),
        })))
    }

    /// Makes the first token when the directory has never had one, and leaves its plain text in the
    /// file `token` there.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn ensure_first(&self) -> Result<(), TokenError> {
        if self.0.loaded.read().version.is_some() {
            return Ok(());
        }
        let secret = new_secret()?;
        let text = format!("{}\n", secret.expose());
        // The plain text goes first: a crash in between leaves a token that does not work yet and
        // is replaced at the next start, rather than one that works and that nobody has.
        write_atomic(&self.first_token_path(), text.as_bytes())?;
        let first = NewToken {
            name: FIRST_TOKEN_NAME,
            operator: true,
            tenant: None,
            scopes: TokenScopes::ALL,
        };
        self.add(&first, usize::MAX, &secret)?;
        Ok(())
    }

    /// Returns where the first token's plain text is, for its owner.
    pub fn first_token_path(&self) -> PathBuf {
        self.0.directory.join(FIRST_TOKEN_FILE)
    }

    /// Returns who the token belongs to, in either spelling. Touches no disk for a token that is
    /// known.
    pub fn verify(&self, token: &str) -> Option<TokenPrincipal> {
        let hash = hash(&secret::canonical(token)?);
        let known = self.0.loaded.read().by_hash.get(&hash).cloned();
        if known.is_some() {
            return known;
        }
        match self.reload() {
            Ok(true) => self.0.loaded.read().by_hash.get(&hash).cloned(),
            Ok(false) => None,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "failed to read tokens");
                None
            }
        }
    }

    /// Returns who has the token with this id; none when there is no such token any more.
    #[must_use]
    pub fn principal(&self, token_id: &str) -> Option<TokenPrincipal> {
        self.0.loaded.read().by_id.get(token_id).cloned()
    }

    /// Everybody who has a token of this tenant.
    #[must_use]
    pub fn principals_of(&self, tenant: &str) -> Vec<TokenPrincipal> {
        let loaded = self.0.loaded.read();
        loaded.by_id.values().filter(|principal| *principal.tenant == *tenant).cloned().collect()
    }

    /// Tells when the token behind a principal is revoked, or is for something else.
    #[must_use]
    pub fn revocation(&self, principal: &TokenPrincipal) -> RevocationSignal {
        let (tokens, expected) = (Arc::downgrade(&self.0), principal.clone());
        RevocationSignal::new(self.0.changes.subscribe(), move || {
            let Some(tokens) = tokens.upgrade() else { return true };
            let loaded = tokens.loaded.read();
            loaded.by_id.get(&expected.token_id).is_some_and(|found| *found == expected)
        })
    }

    /// Takes over the file when it has changed; says whether it had.
    ///
    /// # Errors
    /// When the file cannot be read or understood. What was loaded before stays in force.
    pub fn reload(&self) -> Result<bool, TokenError> {
        let _one_at_a_time = self.0.reloading.lock();
        let path = self.0.directory.join(TOKENS_FILE);
        if file_version(&path)? == self.0.loaded.read().version {
            return Ok(false);
        }
        let loaded = load(&path)?;
        *self.0.loaded.write() = loaded;
        self.0.changes.send_replace(());
        Ok(true)
    }

    /// Reloads once per [`RELOAD_INTERVAL`], so that a revocation is honoured promptly. Never ends.
    pub async fn keep_current(self) {
        let mut ticks = tokio::time::interval(RELOAD_INTERVAL);
        let mut failed = false;
        loop {
            ticks.tick().await;
            let result = self.reload();
            // Said once, not once per second.
            if let Err(error) = &result
                && !failed
            {
                tracing::error!(error = error as &dyn std::error::Error, "failed to read tokens");
            }
            failed = result.is_err();
        }
    }

    /// Every token, oldest first.
    pub fn list(&self) -> Vec<TokenRecord> {
        self.0.loaded.read().records.clone()
    }

    /// Tells whether there is a token of any other tenant than this one.
    pub fn has_tenants_beside(&self, tenant: &str) -> bool {
        self.0.loaded.read().records.iter().any(|record| record.tenant() != tenant)
    }

    /// Tells whether tokens belong to more than one tenant.
    pub fn has_several_tenants(&self) -> bool {
        let loaded = self.0.loaded.read();
        let mut tenants = loaded.records.iter().map(TokenRecord::tenant);
        let first = tenants.next();
        tenants.any(|tenant| Some(tenant) != first)
    }

    /// Makes a token that may be used for everything. Its plain text exists in the answer and
    /// nowhere else.
    ///
    /// # Errors
    /// When the name is unusable, there are too many, or the file cannot be written.
    pub fn create(
        &self,
        name: &str,
        operator: bool,
    ) -> Result<(TokenRecord, TokenSecret), TokenError> {
        self.create_as(&NewToken { name, operator, tenant: None, scopes: TokenScopes::ALL })
    }

    /// Makes a token. Writes files, so not on a thread that must not wait; the same holds for all
    /// that makes or revokes.
    ///
    /// # Errors
    /// When something of it is unusable, there are too many, or the file cannot be written.
    pub fn create_as(&self, new: &NewToken<'_>) -> Result<(TokenRecord, TokenSecret), TokenError> {
        let secret = new_secret()?;
        let record = self.add(new, usize::MAX, &secret)?;
        Ok((record, secret))
    }

    /// Makes one more token of a tenant, who asked for it: no operator's, and not without end.
    /// That he has these scopes himself is for the caller to see to ([`TokenScopes::is_within`]).
    ///
    /// # Errors
    /// As of [`TokenRegistry::create_as`], and when the tenant has [`TOKENS_OF_TENANT_MAX`].
    pub fn create_for(
        &self,
        tenant: &str,
        name: &str,
        scopes: TokenScopes,
    ) -> Result<(TokenRecord, TokenSecret), TokenError> {
        let secret = new_secret()?;
        let new = NewToken { name, operator: false, tenant: Some(tenant), scopes };
        let record = self.add(&new, TOKENS_OF_TENANT_MAX, &secret)?;
        Ok((record, secret))
    }

    /// The tokens of a tenant, oldest first.
    pub fn list_of(&self, tenant: &str) -> Vec<TokenRecord> {
        let loaded = self.0.loaded.read();
        loaded.records.iter().filter(|record| record.tenant() == tenant).cloned().collect()
    }

    /// Takes a token of a tenant back. What belongs to others is not there for him.
    ///
    /// # Errors
    /// When he has none with this id, or the file cannot be written.
    pub fn revoke_of(&self, tenant: &str, id: &str) -> Result<TokenRecord, TokenError> {
        self.revoke_where(id, |record| record.tenant() == tenant)
    }

    /// Takes a token back.
    ///
    /// # Errors
    /// When there is none with this id, or the file cannot be written.
    pub fn revoke(&self, id: &str) -> Result<TokenRecord, TokenError> {
        self.revoke_where(id, |_| true)
    }

    fn revoke_where(
        &self,
        id: &str,
        may: impl Fn(&TokenRecord) -> bool,
    ) -> Result<TokenRecord, TokenError> {
        let mut revoked = None;
        self.change(|records| {
            let place = records.iter().position(|record| record.id == id && may(record));
            let place = place.ok_or_else(|| TokenError::NoSuchToken(id.to_owned()))?;
            revoked = Some(records.remove(place));
            Ok(())
        })?;
        let revoked = revoked.ok_or_else(|| TokenError::NoSuchToken(id.to_owned()))?;
        self.remove_first_token_file(&revoked)?;
        Ok(revoked)
    }

    fn add(
        &self,
        new: &NewToken<'_>,
        of_tenant_max: usize,
        secret: &TokenSecret,
    ) -> Result<TokenRecord, TokenError> {
        let NewToken { name, operator, tenant, scopes } = *new;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(TokenError::BadName);
        }
        if !tenant.is_none_or(is_tenant) {
            return Err(TokenError::BadTenant);
        }
        if scopes == TokenScopes::NONE {
            return Err(TokenError::NoScope);
        }
        let record = TokenRecord {
            id: new_id()?,
            name: name.to_owned(),
            sha256: hex::encode(&hash(&secret.expose())),
            created: clock::rfc3339(clock::wall()),
            operator,
            tenant: tenant.map(str::to_owned),
            scopes,
        };
        self.change(|records| {
            if records.len() >= TOKENS_MAX {
                return Err(TokenError::TooMany);
            }
            let of_tenant = records.iter().filter(|other| other.tenant() == record.tenant());
            if of_tenant.count() >= of_tenant_max {
                return Err(TokenError::TooManyOfTenant);
            }
            records.push(record.clone());
            Ok(())
        })?;
        Ok(record)
    }

    /// Changes the file, one process at a time, starting from what it holds now.
    fn change(
        &self,
        edit: impl FnOnce(&mut Vec<TokenRecord>) -> Result<(), TokenError>,
    ) -> Result<(), TokenError> {
        let lock_path = self.0.directory.join(TOKENS_LOCK_FILE);
        let lock = data_dir::open_private(&lock_path, false)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(file_error("lock", &lock_path))?;
        let path = self.0.directory.join(TOKENS_FILE);
        let mut records = load(&path)?.records;
        edit(&mut records)?;
        let mut text = String::new();
        for record in &records {
            let line = serde_json::to_string(record).map_err(io::Error::from);
            text.push_str(&line.map_err(file_error("write", &path))?);
            text.push('\n');
        }
        write_atomic(&path, text.as_bytes())?;
        drop(lock);
        self.reload()?;
        Ok(())
    }

    /// A file with a token that does not work any more would only mislead.
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

fn load(path: &Path) -> Result<LoadedTokens, TokenError> {
    // The version is taken first: a change between the two is seen as one next time.
    let version = file_version(path)?;
    if version.is_none() {
        return Ok(LoadedTokens::default());
    }
    let text = fs::read_to_string(path).map_err(file_error("read", path))?;
    let mut loaded = LoadedTokens { version, ..LoadedTokens::default() };
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line_number = index + 1;
        let record: TokenRecord = serde_json::from_str(line).map_err(|source| {
            TokenError::Malformed { path: path.to_owned(), line: line_number, source }
        })?;
        let hash = hex::decode_32(&record.sha256)
            .ok_or_else(|| TokenError::NotAHash { path: path.to_owned(), line: line_number })?;
        let principal = TokenPrincipal {
            token_id: record.id.as_str().into(),
            name: record.name.as_str().into(),
            operator: record.operator,
            tenant: record.tenant().into(),
            scopes: record.scopes,
        };
        loaded.by_id.insert(Arc::clone(&principal.token_id), principal.clone());
        loaded.by_hash.insert(hash, principal);
        loaded.records.push(record);
    }
    Ok(loaded)
}

fn file_version(path: &Path) -> Result<Option<FileVersion>, TokenError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(FileVersion {
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error("read", path)(error)),
    }
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TokenError {
    let path = path.to_owned();
    move |source| TokenError::File { action, path, source }
}

/// 32 random bytes, for a key.
///
/// # Errors
/// When the kernel gives none.
pub fn random_key() -> Result<[u8; 32], TokenError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.into()))?;
    Ok(bytes)
}

fn new_secret() -> Result<TokenSecret, TokenError> {
    random_key().map(TokenSecret::new)
}

/// Returns whether a tenant can be called so: it stands in paths and keys.
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

/// The token of an `Authorization: Bearer` header.
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

/// Handlers below `/v1` take the principal the shell found out. One that is reached without the
/// check, by a mistake in the routes, refuses.
impl<S: Sync> FromRequestParts<S> for TokenPrincipal {
    type Rejection = http::HttpError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts
            .extensions
            .get::<TokenPrincipal>()
            .cloned()
            .ok_or_else(http::HttpError::unauthenticated)
    }
}

#[cfg(test)]
mod tests;
