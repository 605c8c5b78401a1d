//! Requests to the routes of a listener from within this process, with a caller's own token.
//!
//! Interfaces that translate another protocol to the native API send their requests this way:
//! authorization, limits, forwarding to other nodes and revocation are those of the routes.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, header};
use axum::response::Response;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;

use super::access;
use super::connection::ConnectionPeer;

/// Routes in their shell, while they are served. Their user is often one of the routes itself, so
/// they must be removed explicitly in the end.
#[derive(Clone, Debug, Default)]
pub struct InProcessRoutes(Arc<RwLock<Option<Router>>>);

impl InProcessRoutes {
    /// Serves routes until the returned value is dropped.
    #[must_use]
    pub fn serve_from(&self, routes: Router) -> ServedInProcess {
        *self.0.write() = Some(routes);
        ServedInProcess(self.clone())
    }
}

/// Routes that are served in this process. Dropping it removes them.
#[derive(Debug)]
pub struct ServedInProcess(InProcessRoutes);

impl Drop for ServedInProcess {
    fn drop(&mut self) {
        *self.0.0.write() = None;
    }
}

/// A caller of routes in this process.
#[derive(Clone, Debug)]
pub struct InProcessCaller {
    routes: InProcessRoutes,
    /// Token of the caller, and the name by which it reached the server.
    headers: HeaderMap,
    peer: Option<ConnectionPeer>,
}

impl InProcessCaller {
    /// Takes the identity of the caller from its request, wherever its token is.
    #[must_use]
    pub fn of(
        routes: InProcessRoutes,
        headers: &HeaderMap,
        peer: Option<ConnectionPeer>,
    ) -> InProcessCaller {
        let mut kept = HeaderMap::new();
        let token = access::token(headers).map(|token| format!("Bearer {token}"));
        if let Some(value) = token.and_then(|text| HeaderValue::try_from(text).ok()) {
            kept.insert(header::AUTHORIZATION, value);
        }
        for value in headers.get_all(header::HOST) {
            kept.append(header::HOST, value.clone());
        }
        InProcessCaller { routes, headers: kept, peer }
    }

    /// Sends a request; none while no routes are served. Dropping the future drops its handler.
    pub async fn send(&self, mut request: Request<Body>) -> Option<Response> {
        let routes = self.routes.0.read().clone()?;
        request.headers_mut().extend(self.headers.clone());
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        match TowerToHyperService::new(routes).call(request).await {
            Ok(response) => Some(response),
            Err(never) => match never {},
        }
    }
}
