//! Values of the HTTP shell, as the catalog has them.

use axum::http::HeaderValue;
use node::http;

use crate::error::{CatalogError, ErrorReason, Result};

/// An error of the shell's parts that handlers call.
pub fn from_shell(error: &http::HttpError) -> CatalogError {
    let kind = match error.status().as_u16() {
        401 => ErrorReason::NotAuthorized,
        403 => ErrorReason::Forbidden,
        413 => ErrorReason::TooLarge,
        429 => ErrorReason::TooManyRequests,
        503 => ErrorReason::ServiceUnavailable,
        400..=499 => ErrorReason::BadRequest,
        _ => ErrorReason::Internal,
    };
    CatalogError::new(kind, error.to_string())
}

/// A header's value that is known to be one.
pub(crate) fn header_value(text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(CatalogError::internal)
}
