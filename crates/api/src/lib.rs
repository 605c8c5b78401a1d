//! The contract between Cove and its callers: request and response types, ids and error codes.
//!
//! `openapi.json` is generated from these types. This crate knows nothing of HTTP, async or
//! storage, and has no behaviour beyond converting between names and values, because everything
//! else rebuilds when it changes.
//!
//! Principal types: [`ExecutionRequest`] goes in, [`Execution`] with a [`Verdict`] comes out,
//! [`ErrorBody`] when there is nothing to run.
#![forbid(unsafe_code)]

mod error;
mod execution;
mod language;

pub use error::{ErrorBody, ErrorCode, ErrorDetail};
pub use execution::{
    Encoding, Execution, ExecutionId, ExecutionRequest, LimitHit, LimitSpec, Mode, Outcome,
    OutputFile, SourceFile, Stage, StageName, Truncated, Verdict,
};
pub use language::{Language, LanguageList};
