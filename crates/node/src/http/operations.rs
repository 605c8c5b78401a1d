//! Routes and rights of operations, from the tables in [`api::operations`].
//!
//! A service only assigns handlers to operations: methods, paths and rights are the table's. The
//! shell checks scopes by path prefixes, so that they apply to unknown paths as well
//! ([`native_faces`]); rights that a path does not determine are checked before the handler
//! ([`OperationRoutes`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::TokenScope;
use api::operations::{ApiOperation, OperationMethod, OperationRight};
use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Extensions;
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, on};

use super::access::{CompatFace, FaceAccess};
use super::error::HttpError;
use super::routing::{Answering, SharedHandler, shared};
use crate::auth::TokenPrincipal;

/// Routes of a table of operations.
pub struct OperationRoutes<S> {
    table: &'static [ApiOperation],
    served: Vec<&'static str>,
    router: Router<S>,
}

impl<S> fmt::Debug for OperationRoutes<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationRoutes").field("served", &self.served).finish_non_exhaustive()
    }
}

impl<S: Clone + Send + Sync + 'static> OperationRoutes<S> {
    /// Creates routes without a handler yet.
    #[must_use]
    pub fn of(table: &'static [ApiOperation]) -> OperationRoutes<S> {
        OperationRoutes { table, served: Vec::new(), router: Router::new() }
    }

    /// Assigns `handler` to an operation, for callers who have the right to it.
    ///
    /// # Panics
    /// If the operation is not in the table, or has a handler already.
    #[must_use]
    pub fn serve<H, T>(mut self, operation: &ApiOperation, handler: H) -> OperationRoutes<S>
    where
        H: Handler<T, S, Future = Answering>,
    {
        self.served.push(operation.id);
        self.serve_at(operation.path, operation, handler)
    }

    /// Assigns `handler` to an operation at one of the operation's paths that would otherwise match
    /// another operation's handler.
    ///
    /// # Panics
    /// If the operation is not in the table, or has a handler at this path already.
    #[must_use]
    pub fn serve_at<H, T>(
        mut self,
        path: &str,
        operation: &ApiOperation,
        handler: H,
    ) -> OperationRoutes<S>
    where
        H: Handler<T, S, Future = Answering>,
    {
        let id = operation.id;
        assert!(self.table.iter().any(|it| it.id == id), "`{id}` is not in the table");
        let handler = guarded(operation.right, shared(handler));
        self.router = self.router.route(path, on(filter(operation.method), handler));
        self
    }

    /// Returns the routes.
    ///
    /// # Panics
    /// If an operation of the table has no handler.
    pub fn routes(self) -> Router<S> {
        let ids = self.table.iter().map(|it| it.id);
        let missing: Vec<&str> = ids.filter(|id| !self.served.contains(id)).collect();
        assert!(missing.is_empty(), "operations without a handler: {missing:?}");
        self.router
    }
}

/// Returns the filter of routes for a method.
#[must_use]
pub const fn filter(method: OperationMethod) -> MethodFilter {
    match method {
        OperationMethod::Get => MethodFilter::GET,
        OperationMethod::Head => MethodFilter::HEAD,
        OperationMethod::Post => MethodFilter::POST,
        OperationMethod::Put => MethodFilter::PUT,
        OperationMethod::Patch => MethodFilter::PATCH,
        OperationMethod::Delete => MethodFilter::DELETE,
    }
}

/// Checks the rights that the shell cannot check by the path alone.
fn guarded<S: 'static>(right: OperationRight, handler: SharedHandler<S>) -> SharedHandler<S> {
    match right {
        OperationRight::Open | OperationRight::AnyToken | OperationRight::OneOf([_]) => handler,
        OperationRight::OneOf(_) | OperationRight::Operator(_) => {
            SharedHandler(Arc::new(move |request: Request, state| {
                match check(right, request.extensions()) {
                    Ok(()) => (handler.0)(request, state),
                    Err(error) => Box::pin(std::future::ready(error.into_response())),
                }
            }))
        }
    }
}

/// Checks the right of the caller that the shell has identified.
fn check(right: OperationRight, request: &Extensions) -> Result<(), HttpError> {
    if !right.needs_token() {
        return Ok(());
    }
    let who = request.get::<TokenPrincipal>().ok_or_else(HttpError::unauthenticated)?;
    match right {
        OperationRight::Open | OperationRight::AnyToken => Ok(()),
        OperationRight::OneOf(scopes) => {
            match scopes.iter().any(|scope| who.scopes.has(*scope)) {
                true => Ok(()),
                // The last scope is named, as one of those that suffice.
                false => scopes.last().map_or(Ok(()), |scope| who.require(*scope)),
            }
        }
        OperationRight::Operator(_) if !who.operator => Err(HttpError::operators_only()),
        OperationRight::Operator(scopes) => scopes.iter().try_for_each(|scope| who.require(*scope)),
    }
}

/// Returns the parts of the native interface that need a scope, with the shell's check for each:
/// for each part below `/v1`, such as `/v1/queue`, the scope that its operations need. Operations
/// that need no token are parts of their own without a check.
///
/// # Panics
/// If operations of one part need different scopes: then unknown paths below it would need either.
#[must_use]
pub fn native_faces<'a>(
    operations: impl Iterator<Item = &'a ApiOperation>,
) -> Vec<(&'static str, CompatFace)> {
    let mut parts: BTreeMap<&'static str, Option<TokenScope>> = BTreeMap::new();
    let mut faces = Vec::new();
    for operation in operations.filter(|it| it.path.starts_with(PROTECTED)) {
        if !operation.right.needs_token() {
            assert!(
                !operation.path.contains('{'),
                "`{}` is open, and so is one path",
                operation.id
            );
            let access = FaceAccess::Own;
            faces.push((operation.path, CompatFace { access, ..CompatFace::NATIVE }));
            continue;
        }
        let (part, scope) = (part(operation.path), operation.right.only_scope());
        let known = *parts.entry(part).or_insert(scope);
        assert!(known == scope, "operations of `{part}` need different scopes");
    }
    let scoped = parts.into_iter().filter_map(|(part, scope)| Some((part, scope?)));
    faces.extend(scoped.map(|(part, scope)| (part, CompatFace::native_for(scope))));
    faces
}

/// Prefix of the paths of the native interface.
const PROTECTED: &str = "/v1/";

/// Returns the first two segments of a path.
fn part(path: &'static str) -> &'static str {
    let end = path.match_indices('/').nth(2).map_or(path.len(), |(at, _)| at);
    path.get(..end).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use api::operations;
    use axum::http::StatusCode;

    use super::*;
    use crate::auth::TokenScopes;

    #[test]
    fn every_operation_has_the_scope_of_its_part() {
        let faces = native_faces(operations::all());
        for operation in operations::all() {
            // The shell has a face of its own for it, with refusals as its clients expect them.
            if !operation.path.starts_with(PROTECTED) && operation.path != "/mcp" {
                assert!(!operation.right.needs_token(), "{}", operation.id);
            }
            if let OperationRight::OneOf(scopes) = operation.right {
                assert!(!scopes.is_empty(), "{}: no scope would do", operation.id);
            }
        }
        for operation in operations::all().filter(|it| it.path.starts_with(PROTECTED)) {
            let mut covering: Vec<_> = faces
                .iter()
                .filter(|(prefix, _)| operation.path.starts_with(prefix))
                .filter(|(prefix, _)| {
                    let rest = &operation.path[prefix.len()..];
                    rest.is_empty() || rest.starts_with('/')
                })
                .collect();
            covering.sort_by_key(|(prefix, _)| prefix.len());
            let face = covering.last().map(|(_, face)| face);
            let id = operation.id;
            assert_eq!(face.and_then(|it| it.scope), operation.right.only_scope(), "{id}");
            let is_open = face.is_some_and(|face| face.access == FaceAccess::Own);
            assert_eq!(is_open, !operation.right.needs_token(), "{id}");
        }
    }

    #[test]
    #[should_panic(expected = "need different scopes")]
    fn a_part_has_one_scope() {
        let mut other = operations::executions::GET_QUEUE;
        other.right = OperationRight::AnyToken;
        drop(native_faces([&operations::executions::DRAIN_QUEUE, &other].into_iter()));
    }

    #[test]
    #[should_panic(expected = r#"without a handler: ["getDoctor"]"#)]
    fn no_operation_of_a_table_is_without_a_handler() {
        let routes = OperationRoutes::<()>::of(operations::server::DOCTOR);
        drop(routes.serve(&operations::server::RUN_DOCTOR, || async { "ok" }).routes());
    }

    #[test]
    #[should_panic(expected = "Overlapping method route")]
    fn no_operation_has_two_handlers() {
        let routes = OperationRoutes::<()>::of(operations::server::DOCTOR);
        let routes = routes.serve(&operations::server::RUN_DOCTOR, || async { "one" });
        drop(routes.serve(&operations::server::RUN_DOCTOR, || async { "other" }));
    }

    #[test]
    #[should_panic(expected = "`getHistory` is not in the table")]
    fn no_operation_of_another_table_is_served() {
        let routes = OperationRoutes::<()>::of(operations::server::DOCTOR);
        drop(routes.serve(&operations::server::GET_HISTORY, || async { "ok" }));
    }

    #[test]
    fn what_a_path_cannot_say_is_asked_for_before_the_handler() {
        const SANDBOXES: OperationRight =
            OperationRight::OneOf(&[TokenScope::Executions, TokenScope::Sessions]);
        const NODES: OperationRight = OperationRight::Operator(&[]);
        const TOKENS: OperationRight = OperationRight::Operator(&[TokenScope::Tokens]);
        let (sessions, agents) = ([TokenScope::Sessions], [TokenScope::Agents]);
        let tokens = [TokenScope::Tokens];
        for (right, scopes, operator, allowed) in [
            (SANDBOXES, sessions, false, true),
            (SANDBOXES, agents, true, false),
            (NODES, agents, true, true),
            (NODES, agents, false, false),
            (TOKENS, tokens, true, true),
            (TOKENS, tokens, false, false),
            (TOKENS, agents, true, false),
        ] {
            let mut request = Extensions::new();
            assert_eq!(check(right, &request).unwrap_err().status(), StatusCode::UNAUTHORIZED);
            let scopes: TokenScopes = scopes.into_iter().collect();
            let who = TokenPrincipal::without_token("tok_1", "x");
            request.insert(TokenPrincipal { operator, scopes, ..who });
            let refused = check(right, &request).map_err(|error| error.status());
            let expected = if allowed { Ok(()) } else { Err(StatusCode::FORBIDDEN) };
            assert_eq!(refused, expected, "{right:?} {scopes} {operator}");
        }
    }
}
