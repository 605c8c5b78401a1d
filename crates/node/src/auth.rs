//! API tokens: hashed at rest, verified in memory, named by who may use them.
//!
//! The file holds one JSON object per line and never a token itself. It is small, is only ever
//! replaced as a whole, and a running server takes over a changed file by itself: when it meets a
//! token it does not know, and once per [`RELOAD_INTERVAL`].

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::data_dir::{self, write_atomic};
use crate::{clock, http};

/// How long a running server may go on honouring a token that was revoked.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Most tokens a server keeps.
pub const TOKENS_MAX: usize = 10_000;

/// Longest name of a token, in bytes.
pub const NAME_BYTES_MAX: usize = 100;

/// What every token starts with, so that people and secret scanners recognise one.
const TOKEN_PREFIX: &str = "cove_";

/// Length of a token: the prefix and 32 random bytes in base64url.
const TOKEN_BYTES: usize = TOKEN_PREFIX.len() + 43;

/// Hashes and names of all tokens.
const TOKENS_FILE: &str = "tokens.jsonl";

/// Locked while `TOKENS_FILE` is changed.
const TOKENS_LOCK_FILE: &str = "tokens.lock";

/// Plain text of the first token, for the owner of the data directory.
const FIRST_TOKEN_FILE: &str = "token";

/// Name of the token that the first start makes.
const FIRST_TOKEN_NAME: &str = "first";

/// Who makes a request: the token that came with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// Id of the token; limits and accounts go by it.
    pub token_id: Arc<str>,
    /// What its owner calls it.
    pub name: Arc<str>,
    /// Whether it may do what concerns everybody: pause the queue, see all figures.
    pub operator: bool,
}

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// Names it, for revoking and in logs.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// SHA-256 of its plain text, in lower case hexadecimal. A token has 256 random bits, so that a
    /// slow hash would protect nothing.
    pub sha256: String,
    /// When it was made (RFC 3339).
    pub created: String,
    /// Whether it may do what concerns everybody. Left out by versions that knew no difference.
    #[serde(default = "yes")]
    pub operator: bool,
}

fn yes() -> bool {
    true
}

/// The plain text of a token. It has no `Display`, so that no log line shows it by accident.
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that hands it to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why the tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("{action} `{}`", path.display())]
    File {
        /// What was tried.
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
        /// What is wrong with it.
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
    Write(#[from] data_dir::Error),
    /// The kernel gave no random bytes.
    #[error("draw random bytes")]
    Random(#[source] io::Error),
    /// A name that would garble a listing.
    #[error("a token's name has 1 to {NAME_BYTES_MAX} bytes and no control characters")]
    BadName,
    /// There is no room for another one.
    #[error("there are {TOKENS_MAX} tokens already; revoke some first")]
    TooMany,
    /// Nothing to revoke.
    #[error("there is no token with the id `{0}`")]
    NoSuchToken(String),
}

/// The tokens of one data directory. Cheap to clone; clones share their state.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// What is honoured now. Written by `reload` only.
    loaded: RwLock<Loaded>,
    /// Held while the file is read, so that a burst of unknown tokens reads it once.
    reloading: Mutex<()>,
}

#[derive(Debug, Default)]
struct Loaded {
    records: Vec<TokenRecord>,
    /// Looking up a hash takes a time that depends on the hash alone, and nobody can choose one.
    by_hash: HashMap<[u8; 32], Principal>,
    version: Option<FileVersion>,
}

/// What tells one content of the file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Tokens {
    /// Reads the tokens of a data directory; none when there is no file yet.
    ///
    /// # Errors
    /// When the file cannot be read or understood.
    pub fn open(directory: &Path) -> Result<Tokens, Error> {
        let loaded = load(&directory.join(TOKENS_FILE))?;
        Ok(Tokens(Arc::new(Shared {
            directory: directory.to_owned(),
            loaded: RwLock::new(loaded),
            reloading: Mutex::new(()),
        })))
    }

    /// Makes the first token when the directory has never had one, and leaves its plain text in the
    /// file `token` there.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn ensure_first(&self) -> Result<(), Error> {
        if self.0.loaded.read().version.is_some() {
            return Ok(());
        }
        let secret = new_secret()?;
        let text = format!("{}\n", secret.expose());
        // The plain text goes first: a crash in between leaves a token that does not work yet and
        // is replaced at the next start, rather than one that works and that nobody has.
        write_atomic(&self.first_token_path(), text.as_bytes())?;
        self.add(FIRST_TOKEN_NAME, true, &secret)?;
        Ok(())
    }

    /// Where the first token's plain text is, for its owner.
    pub fn first_token_path(&self) -> PathBuf {
        self.0.directory.join(FIRST_TOKEN_FILE)
    }

    /// Who the token belongs to. Touches no disk for a token that is known.
    pub fn verify(&self, token: &str) -> Option<Principal> {
        if token.len() != TOKEN_BYTES || !token.starts_with(TOKEN_PREFIX) {
            return None;
        }
        let hash = hash(token);
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

    /// Takes over the file when it has changed; says whether it had.
    ///
    /// # Errors
    /// When the file cannot be read or understood. What was loaded before stays in force.
    pub fn reload(&self) -> Result<bool, Error> {
        let _one_at_a_time = self.0.reloading.lock();
        let path = self.0.directory.join(TOKENS_FILE);
        if file_version(&path)? == self.0.loaded.read().version {
            return Ok(false);
        }
        let loaded = load(&path)?;
        *self.0.loaded.write() = loaded;
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

    /// Makes a token. Its plain text exists in the answer and nowhere else.
    ///
    /// # Errors
    /// When the name is unusable, there are too many, or the file cannot be written.
    pub fn create(&self, name: &str, operator: bool) -> Result<(TokenRecord, Secret), Error> {
        let secret = new_secret()?;
        let record = self.add(name, operator, &secret)?;
        Ok((record, secret))
    }

    /// Takes a token back.
    ///
    /// # Errors
    /// When there is none with this id, or the file cannot be written.
    pub fn revoke(&self, id: &str) -> Result<TokenRecord, Error> {
        let mut revoked = None;
        self.change(|records| {
            let place = records.iter().position(|record| record.id == id);
            let place = place.ok_or_else(|| Error::NoSuchToken(id.to_owned()))?;
            revoked = Some(records.remove(place));
            Ok(())
        })?;
        let revoked = revoked.ok_or_else(|| Error::NoSuchToken(id.to_owned()))?;
        self.remove_first_token_file(&revoked)?;
        Ok(revoked)
    }

    fn add(&self, name: &str, operator: bool, secret: &Secret) -> Result<TokenRecord, Error> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(Error::BadName);
        }
        let record = TokenRecord {
            id: new_id()?,
            name: name.to_owned(),
            sha256: hex(&hash(secret.expose())),
            created: clock::rfc3339(clock::wall()),
            operator,
        };
        self.change(|records| {
            if records.len() >= TOKENS_MAX {
                return Err(Error::TooMany);
            }
            records.push(record.clone());
            Ok(())
        })?;
        Ok(record)
    }

    /// Changes the file, one process at a time, starting from what it holds now.
    fn change(
        &self,
        edit: impl FnOnce(&mut Vec<TokenRecord>) -> Result<(), Error>,
    ) -> Result<(), Error> {
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
    fn remove_first_token_file(&self, revoked: &TokenRecord) -> Result<(), Error> {
        let path = self.first_token_path();
        match fs::read_to_string(&path) {
            Ok(text) if hex(&hash(text.trim())) == revoked.sha256 => {
                fs::remove_file(&path).map_err(file_error("remove", &path))
            }
            _ => Ok(()),
        }
    }
}

fn load(path: &Path) -> Result<Loaded, Error> {
    // The version is taken first: a change between the two is seen as one next time.
    let version = file_version(path)?;
    if version.is_none() {
        return Ok(Loaded::default());
    }
    let text = fs::read_to_string(path).map_err(file_error("read", path))?;
    let mut loaded = Loaded { version, ..Loaded::default() };
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line_number = index + 1;
        let record: TokenRecord = serde_json::from_str(line).map_err(|source| {
            Error::Malformed { path: path.to_owned(), line: line_number, source }
        })?;
        let hash = unhex(&record.sha256)
            .ok_or_else(|| Error::NotAHash { path: path.to_owned(), line: line_number })?;
        let principal = Principal {
            token_id: record.id.as_str().into(),
            name: record.name.as_str().into(),
            operator: record.operator,
        };
        loaded.by_hash.insert(hash, principal);
        loaded.records.push(record);
    }
    Ok(loaded)
}

fn file_version(path: &Path) -> Result<Option<FileVersion>, Error> {
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

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}

/// 32 random bytes, for a key.
///
/// # Errors
/// When the kernel gives none.
pub fn random_key() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Random(error.into()))?;
    Ok(bytes)
}

fn new_secret() -> Result<Secret, Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Random(error.into()))?;
    Ok(Secret(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
}

fn new_id() -> Result<String, Error> {
    let mut bytes = [0; 10];
    getrandom::fill(&mut bytes).map_err(|error| Error::Random(error.into()))?;
    let digits = bytes.iter().map(|byte| char::from(clock::BASE32[usize::from(byte & 31)]));
    Ok(format!("tok_{}", digits.collect::<String>()))
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
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
impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = http::Error;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Principal>().cloned().ok_or_else(http::Error::unauthenticated)
    }
}

#[cfg(test)]
mod tests;
