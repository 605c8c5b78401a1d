//! The error of a command that cannot be carried out as it was typed.

/// A mistake of the caller, found before anything ran.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);
