//! Places of new work: the node that it came to, or one that has room.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::client::PeerError;
use super::forward::{
    PeerForwarder, WorkKind, broken, forwarded, is_misdirected, moved, pass_on, try_again,
};
use crate::cluster::placement;

/// Nodes that are asked to take new work, before this one does what it can.
const PLACES_ASKED_MAX: usize = 4;

impl PeerForwarder {
    /// Answers new work, or has it answered where there is room. A node that is full by now says
    /// so, and the next one is asked.
    pub(super) async fn place(
        &self,
        kind: WorkKind,
        key: &str,
        listener: &'static str,
        request: Request,
        next: Next,
    ) -> Response {
        let membership = self.membership();
        let own = &membership.identity().id;
        let offers = membership.offers(kind);
        let is_free_here = offers.iter().any(|it| it.id == *own && it.has_room());
        if kind.stays() && is_free_here {
            return next.run(request).await;
        }
        let takes_work = *membership.takes_work().borrow();
        let mut asked = placement::places(key, offers);
        asked.truncate(PLACES_ASKED_MAX);
        if asked.is_empty() || asked.first() == Some(own) {
            return match takes_work {
                true => next.run(request).await,
                false => full(),
            };
        }
        let (parts, body) = request.into_parts();
        let mut request = match forwarded(parts, listener, body).await {
            Ok(request) => request,
            Err(error) => return error.into_response(),
        };
        for id in asked {
            if id == *own {
                return request.run_here(next).await;
            }
            let Some(target) = self.address(&id) else { continue };
            // A long body was sent to the one before.
            let Some(body) = request.body.take() else { return moved() };
            membership.count_sent(&target.id);
            let sent = request.for_node(&target, body);
            match self.client().send(&target, sent).await {
                Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => {}
                Ok(answer) if is_misdirected(&answer) => {}
                Ok(answer) => return pass_on(answer, None),
                Err(error) => {
                    self.note_failure(&target, &error);
                    if matches!(error, PeerError::Http { .. }) {
                        return broken();
                    }
                }
            }
        }
        match takes_work {
            true => request.run_here(next).await,
            false => full(),
        }
    }
}

/// The answer to new work when this node takes none and no other one has room.
fn full() -> Response {
    try_again("this node drains, and no other one has room")
}
