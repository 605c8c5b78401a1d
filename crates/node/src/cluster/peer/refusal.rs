//! Answers to clients whose requests no other node has answered.

use std::time::Duration;

use api::ErrorCode;
use axum::response::{IntoResponse as _, Response};

use crate::http::HttpError;

/// Time after which a caller may try again, where a node does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The answer when what a request is about has moved twice, or its body is gone.
pub(super) fn moved() -> Response {
    try_again("another node is taking this over, or was asked and had no room")
}

/// The answer when another node may have what the request is about in a moment.
pub(super) fn try_again(message: &str) -> Response {
    HttpError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER).into_response()
}

/// The answer when nobody knows whether the node has done what was asked.
pub(super) fn broken() -> Response {
    let message = "the node that has this went away while it answered; it may have done what was \
                   asked";
    HttpError::new(ErrorCode::NodeLost, message).into_response()
}
