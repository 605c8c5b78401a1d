//! Answers to clients whose requests no other node has answered.

use std::time::Duration;

use api::ErrorCode;
use axum::response::{IntoResponse as _, Response};

use crate::http::HttpError;

/// Time after which a caller may retry, if a node does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Returns the answer for a request whose subject has moved twice, or whose body was sent already.
pub(super) fn moved() -> Response {
    try_again("another node is taking this over, or was asked and had no room")
}

/// Returns the answer for a request that another node may be able to answer soon.
pub(super) fn try_again(message: &str) -> Response {
    HttpError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER).into_response()
}

/// Returns the answer for a request that the lost node may have performed.
pub(super) fn broken() -> Response {
    let message = "the node that has this went away while it answered; it may have done what was \
                   asked";
    HttpError::new(ErrorCode::NodeLost, message).into_response()
}
