//! `GET /v1/live`: one WebSocket for everything that a client follows.
//!
//! A browser opens six HTTP/1.1 connections to a server, over all of its tabs, so a page cannot use
//! one connection per followed object. Here a message subscribes to a *topic*. A topic is a
//! translation: it names a route of the native interface, which is called in this process with the
//! token that opened the WebSocket. Rights, limits, forwarding to other nodes and revocation are
//! therefore those of that route; this module makes no access decisions.
//!
//! # Files
//! | file | contents |
//! |---|---|
//! | `topics.rs` | the table of topics: their names and routes: pure |
//! | `parameters.rs` | parameters of a subscription, as part of an address: pure |
//! | `events.rs` | parser of server-sent events: pure |
//! | `source.rs` | reads a route: as events, on announced changes, or by polling |
//! | `socket.rs` | subscriptions of one WebSocket, and the messages queued for it |
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc6455>

mod events;
mod parameters;
mod socket;
mod source;
mod topics;

use api::ErrorCode;
use api::operations::gateway as table;
use axum::Router;
use axum::extract::{Extension, FromRequestParts as _, Request, State, WebSocketUpgrade};
use axum::response::Response;
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use node::http::{
    ConnectionPeer, HostNames, HttpError, InProcessCaller, InProcessRoutes, OperationRoutes,
    ServedInProcess,
};

use self::socket::{LiveConversation, MESSAGE_BYTES_MAX};
pub(crate) use self::source::FollowedFeeds;

/// Subprotocol of the WebSocket. A browser offers its token beside it, as `bearer.<token>`.
const PROTOCOL: &str = "cove.live.v1";

/// The WebSocket endpoint, initially without routes.
#[derive(Clone, Debug)]
pub(crate) struct LiveEndpoint {
    native: InProcessRoutes,
    /// Host names of this server.
    hosts: HostNames,
    feeds: FollowedFeeds,
}

impl LiveEndpoint {
    /// Returns the endpoint, restricted to this server's host names.
    pub(crate) fn new(hosts: HostNames, feeds: FollowedFeeds) -> LiveEndpoint {
        LiveEndpoint { native: InProcessRoutes::default(), hosts, feeds }
    }

    /// Connects the native interface, all routes in their shell, until the returned value is
    /// dropped.
    pub(crate) fn serve_from(&self, routes: Router) -> ServedInProcess {
        self.native.serve_from(routes)
    }
}

/// Routes for [`node::http::HttpShell`] to wrap.
pub(crate) fn routes(endpoint: LiveEndpoint) -> Router {
    handlers().with_state(endpoint)
}

fn handlers() -> Router<LiveEndpoint> {
    OperationRoutes::of(table::LIVE).serve(&table::OPEN_LIVE, open).routes()
}

async fn open(
    State(endpoint): State<LiveEndpoint>,
    _who: TokenPrincipal,
    peer: Option<Extension<ConnectionPeer>>,
    drain: DrainHandle,
    request: Request,
) -> Result<Response, HttpError> {
    let (mut parts, _body) = request.into_parts();
    let peer = peer.map(|Extension(peer)| peer);
    let address = peer.map(|ConnectionPeer(address)| address);
    endpoint
        .hosts
        .check(&parts.headers, address)
        .map_err(|message| HttpError::new(ErrorCode::Forbidden, message))?;
    let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut parts, &()).await else {
        let message = "live topics need a WebSocket";
        return Err(HttpError::new(ErrorCode::UpgradeRequired, message));
    };
    let caller = InProcessCaller::of(endpoint.native, &parts.headers, peer);
    let upgrade = upgrade
        .protocols([PROTOCOL])
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX);
    let conversation = LiveConversation::new(caller, drain, endpoint.feeds);
    Ok(upgrade.on_upgrade(move |socket| Box::pin(conversation.serve(socket))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_handler() {
        drop(handlers());
    }
}
