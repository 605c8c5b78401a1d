//! Errors of reading and changing tokens.

use std::io;
use std::path::{Path, PathBuf};

use super::{NAME_BYTES_MAX, TENANT_BYTES_MAX, TOKENS_MAX, TOKENS_OF_TENANT_MAX};
use crate::data_dir;
use crate::issuers::IssuerError;
use crate::store::SqlStoreError;

/// Reason why the tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// A file operation failed.
    #[error("{action} `{}`", path.display())]
    File {
        /// Failed operation.
        action: &'static str,
        /// Affected file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file was edited and cannot be parsed.
    #[error("read line {line} of `{}`", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Cause.
        source: serde_json::Error,
    },
    /// A line of the file does not contain a hash.
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
    /// The store with the tokens failed.
    #[error("read or change the tokens in the store")]
    Store(#[from] SqlStoreError),
    /// The runtime that waits for the store cannot be started.
    #[error("start a runtime")]
    Runtime(#[source] io::Error),
    /// The kernel returned no random bytes.
    #[error("draw random bytes")]
    Random(#[source] io::Error),
    /// The configuration of identity providers is invalid.
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
    /// A token without scopes.
    #[error("a token needs at least one scope")]
    NoScope,
    /// The tenant has the maximum number of tokens.
    #[error("the tenant has {TOKENS_OF_TENANT_MAX} tokens already; revoke some first")]
    TooManyOfTenant,
    /// There is the maximum number of tokens.
    #[error("there are {TOKENS_MAX} tokens already; revoke some first")]
    TooMany,
    /// There was a token before.
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
