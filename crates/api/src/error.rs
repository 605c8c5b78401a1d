//! The one shape of every error a caller of the HTTP interface can see.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Body of every response with a status of 400 or above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error: what went wrong, whose fault it is and whether to try again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ErrorDetail {
    /// Stable identifier to match on.
    pub code: ErrorCode,
    /// Sentence for a person: lower case, no period. Not stable.
    pub message: String,
    /// Path of the offending field in the request, when there is one: `limits.cpu_ms`,
    /// `files[2].name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// True if the same request may succeed later without being changed.
    pub retry: bool,
}

/// Stable identifiers of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The request is not well-formed or a field has a value it cannot have (400).
    InvalidRequest,
    /// No such language is configured (400).
    UnknownLanguage,
    /// The language is configured, but its tools are not installed on this host (400).
    LanguageUnavailable,
    /// No token, or one that is not known (401).
    Unauthenticated,
    /// The token is known, but may not do this (403).
    Forbidden,
    /// No such resource, or none that this caller may know of (404).
    NotFound,
    /// The resource does not support this method (405).
    MethodNotAllowed,
    /// The resource is not in a state that allows this (409).
    Conflict,
    /// The resource was there and will not come back (410).
    Gone,
    /// The request body is larger than the server's limit (413).
    BodyTooLarge,
    /// The body is not JSON by its content type (415).
    UnsupportedMediaType,
    /// This caller has too much waiting already (429, with `Retry-After`).
    TooManyRequests,
    /// The queue is full or the host has no memory to spare (503, with `Retry-After`).
    Overloaded,
    /// The server is shutting down (503, with `Retry-After`).
    Draining,
    /// The other side does not support what is needed, such as an upgrade to a WebSocket (426).
    UpgradeRequired,
    /// The node of the cluster that had to answer went away; it may have done what was asked (502).
    NodeLost,
    /// The server failed; the details are in its log under the request's id (500).
    Internal,
}
