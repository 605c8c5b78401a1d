//! Mark that the subject of a request moved to another node while this one handled it.
//!
//! A handler that detects the move answers 503, as it would to a client. The forwarding layer sees
//! the mark, and sends the request to the subject's current node.

use std::cell::Cell;
use std::error::Error;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::forward::PeerForwarder;
use super::protocol::misdirected;
use super::refusal::moved;
use super::request::{ForwardedRequest, forwarded};
use super::resume::{ResumedStream, StreamOrigin};
use super::routing::{RequestRoute, SendOutcome};
use super::subject::RequestSubject;

tokio::task_local! {
    static HAS_MOVED: Cell<bool>;
}

/// Error of a stream whose subject moved to another node, which has the next events.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("another node has this now")]
pub struct SubjectMoved;

impl SubjectMoved {
    /// Records that another node has the subject of the request that this task answers.
    pub fn note() {
        // Work that answers no request has no mark to set.
        let _is_told = HAS_MOVED.try_with(|has_moved| has_moved.set(true));
    }

    /// Returns whether an error has this cause.
    pub(super) fn caused(error: &(dyn Error + 'static)) -> bool {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if error.is::<SubjectMoved>() {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// Runs a handler, and returns whether it has recorded that the subject is elsewhere.
pub(super) async fn noting<T>(handler: impl Future<Output = T>) -> (T, bool) {
    let noted = async {
        let answer = handler.await;
        (answer, HAS_MOVED.with(Cell::get))
    };
    HAS_MOVED.scope(Cell::new(false), noted).await
}

impl PeerForwarder {
    /// Answers a request whose subject is this node's. If its subject moves to another node
    /// meanwhile, because this node drains, that node answers it.
    pub(super) async fn answer_here(
        &self,
        subject: RequestSubject,
        route: RequestRoute,
        listener: &'static str,
        request: Request,
        next: Next,
    ) -> Response {
        if !matches!(subject, RequestSubject::Session(_)) || !self.reaches_others() {
            return next.run(request).await;
        }
        if route.is_hop {
            let (answer, has_moved) = noting(next.run(request)).await;
            return if is_elsewhere(&answer, has_moved) { misdirected() } else { answer };
        }
        if route.only_looks {
            let (parts, body) = request.into_parts();
            let method = parts.method.clone();
            let request = ForwardedRequest::without_body(parts.clone(), listener);
            let (answer, has_moved) =
                noting(next.clone().run(Request::from_parts(parts, body))).await;
            if is_elsewhere(&answer, has_moved) {
                return self.answer_there(subject, route, request, next, answer).await;
            }
            let goes_on = answer.status() == StatusCode::OK
                && ResumedStream::is_possible(&subject, &method, answer.headers());
            return match goes_on {
                true => {
                    let stream = StreamOrigin { target: None, subject, next };
                    ResumedStream::answer(self.clone(), stream, request, answer)
                }
                false => answer,
            };
        }
        if *self.membership().takes_work().borrow() {
            return next.run(request).await;
        }
        let (parts, body) = request.into_parts();
        let kept = match forwarded(parts, listener, body).await {
            Ok(kept) => kept,
            Err(error) => return error.into_response(),
        };
        let Some((here, there)) = kept.twice() else { return moved() };
        let (answer, has_moved) = noting(here.run_here(next.clone())).await;
        if !is_elsewhere(&answer, has_moved) {
            return answer;
        }
        match there {
            Some(request) => self.answer_there(subject, route, request, next, answer).await,
            None => answer,
        }
    }

    /// Has a request answered by the node that received its subject while this one handled it.
    async fn answer_there(
        &self,
        subject: RequestSubject,
        mut route: RequestRoute,
        request: ForwardedRequest,
        next: Next,
        answer: Response,
    ) -> Response {
        // Counts as a node that does not have the subject.
        route.after_sending(SendOutcome::Misdirected);
        match self.target(&subject, route.asks_store()).await {
            Some(target) => self.forward(&subject, route, target, request, next).await,
            None => answer,
        }
    }
}

/// Returns whether this node's own answer says that another node has the subject.
fn is_elsewhere(answer: &Response, has_moved: bool) -> bool {
    has_moved && answer.status() == StatusCode::SERVICE_UNAVAILABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_handler_notes_is_seen_by_its_caller_alone() {
        SubjectMoved::note();
        assert!(!noting(async {}).await.1);
        assert!(noting(async { SubjectMoved::note() }).await.1);
        let inner = noting(async { noting(async { SubjectMoved::note() }).await.1 }).await;
        assert_eq!(inner, (true, false));
    }

    #[test]
    fn the_cause_is_found_behind_other_errors() {
        let error = axum::Error::new(axum::Error::new(SubjectMoved));
        assert!(SubjectMoved::caused(&error));
        assert!(!SubjectMoved::caused(&axum::Error::new(std::fmt::Error)));
    }
}
