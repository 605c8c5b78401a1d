//! Error of a command with invalid arguments.

/// Mistake of the caller, found before anything ran.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);
