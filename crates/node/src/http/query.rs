//! Query strings, and the last event id of an event source.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc3986#section-3.4>

use axum::extract::Query;
use axum::http::{HeaderMap, Uri};
use serde::de::DeserializeOwned;

use super::error::HttpError;
use api::json_message;

/// Reads a query strictly: an unknown or repeated field is an error, if the type denies unknown
/// fields.
///
/// # Errors
/// If the query does not fit the type.
pub fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, HttpError> {
    match Query::<T>::try_from_uri(uri) {
        Ok(Query(query)) => Ok(query),
        Err(rejection) => {
            let text = rejection.body_text();
            let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            Err(HttpError::invalid(format!(
                "the query is wrong: {}",
                json_message::plain_text(text)
            )))
        }
    }
}

/// Returns the number of the last event that a reconnecting event source has received (WHATWG HTML
/// §9.2.4).
///
/// # Errors
/// If it is not the number of an event.
pub fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, HttpError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(HttpError::invalid("must be the number of an event").at("last-event-id")),
    }
}
