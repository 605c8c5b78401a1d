//! Reasons why tokens cannot be read or changed.

use std::io;
use std::path::{Path, PathBuf};

use super::{NAME_BYTES_MAX, TENANT_BYTES_MAX, TOKENS_MAX, TOKENS_OF_TENANT_MAX};
use crate::data_dir;
use crate::issuers::IssuerError;
use crate::store::SqlStoreError;

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
    /// The store that keeps them failed.
    #[error("read or change the tokens in the store")]
    Store(#[from] SqlStoreError),
    /// The runtime that waits for the store cannot be started.
    #[error("start a runtime")]
    Runtime(#[source] io::Error),
    /// The kernel gave no random bytes.
    #[error("draw random bytes")]
    Random(#[source] io::Error),
    /// Identity providers are not configured as they have to be.
    #[error("auth.issuers: {0}")]
    Issuers(IssuerError),
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
    /// There has been a token before.
    #[error("the first token was created already")]
    NotFirst,
    /// No such token.
    #[error("no token has the id `{0}`")]
    NoSuchToken(String),
}

pub(super) fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> TokenError {
    let path = path.to_owned();
    move |source| TokenError::File { action, path, source }
}
