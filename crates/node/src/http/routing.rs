//! Routes whose handlers are compiled once.
//!
//! Axum instantiates a service, with all of its wrappers, for the type of every handler. With some
//! three hundred handlers that is a tenth of the code of a cold build. Here a handler is put behind
//! a pointer first, so that there is one such service for each state: only the handler itself and
//! its extractors remain generic. A call costs no more than before: axum has a pointer as well,
//! further out.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::MethodRouter;

/// Future of a handler's call, for handlers that are functions or closures.
pub(super) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler without its type.
pub(super) struct SharedHandler<S>(pub(super) Arc<dyn Fn(Request, S) -> Answering + Send + Sync>);

impl<S> Clone for SharedHandler<S> {
    fn clone(&self) -> Self {
        SharedHandler(Arc::clone(&self.0))
    }
}

/// Marks [`SharedHandler`] among handlers.
pub(super) struct ErasedHandler;

impl<S: 'static> Handler<ErasedHandler, S> for SharedHandler<S> {
    type Future = Answering;

    fn call(self, request: Request, state: S) -> Answering {
        (self.0)(request, state)
    }
}

pub(super) fn shared<H, T, S>(handler: H) -> SharedHandler<S>
where
    H: Handler<T, S, Future = Answering>,
{
    SharedHandler(Arc::new(move |request, state| handler.clone().call(request, state)))
}

/// Handlers of a path, by method.
pub struct PathMethods<S>(MethodRouter<S>);

impl<S> fmt::Debug for PathMethods<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Methods").field(&self.0).finish()
    }
}

impl<S> From<PathMethods<S>> for MethodRouter<S> {
    fn from(methods: PathMethods<S>) -> MethodRouter<S> {
        methods.0
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            pub fn $name<H, T, S>(handler: H) -> PathMethods<S>
            where
                H: Handler<T, S, Future = Answering>,
                S: Clone + Send + Sync + 'static,
            {
                PathMethods(axum::routing::$name(shared(handler)))
            }
        )*

        impl<S: Clone + Send + Sync + 'static> PathMethods<S> {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name<H, T>(self, handler: H) -> PathMethods<S>
                where
                    H: Handler<T, S, Future = Answering>,
                {
                    PathMethods(self.0.$name(shared(handler)))
                }
            )*
        }
    };
}

methods! {
    /// Has `handler` answer `GET`, and `HEAD`.
    get
    /// Has `handler` answer `POST`.
    post
    /// Has `handler` answer `PUT`.
    put
    /// Has `handler` answer `PATCH`.
    patch
    /// Has `handler` answer `DELETE`.
    delete
}

/// A router that takes [`PathMethods`].
pub trait RouteTable<S>: Sized {
    /// Routes a path to the handlers of `methods`. Panics if [`Router::route`] does: if the path
    /// exists already, or is invalid.
    #[must_use]
    fn at(self, path: &str, methods: PathMethods<S>) -> Self;
}

impl<S: Clone + Send + Sync + 'static> RouteTable<S> for Router<S> {
    fn at(self, path: &str, methods: PathMethods<S>) -> Self {
        self.route(path, methods.0)
    }
}
