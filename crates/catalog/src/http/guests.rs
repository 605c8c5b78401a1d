//! Iceberg's operations for guests, at separate paths: the listener identifies the caller, and
//! fewer operations are available.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::on;
use axum::{Extension, Router};
use bytes::Bytes;
use iceberg::json::RawJson;
use node::http;

use super::audit::AuditTrace;
use super::operations::{self, CatalogOperation, OperationEntry, operations};
use super::request::CatalogRequest;
use super::{BODY_BYTES_MAX, HttpContext, answer, dispatch, params};
use crate::access::AccessControl;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::guest::exchange::{SandboxExchange, request_name};
use crate::guest::session::SandboxSession;
use crate::service::Catalog;

/// Returns the routes below `/v1/`, without the operations that guests do not need. The guest's
/// session is an extension of each request.
pub(crate) fn routes(catalog: Catalog, access: AccessControl, separator: &str) -> Router {
    let context = Arc::new(HttpContext {
        keys: None,
        catalog,
        access,
        separator: separator.into(),
        endpoints: operations::endpoints(CatalogOperation::is_for_guests).into(),
    });
    let mut router = Router::new();
    for operation in operations().iter().filter(|it| it.op.is_for_guests()) {
        let handler = move |State(context): State<Arc<HttpContext>>,
                            Extension(session): Extension<Arc<SandboxSession>>,
                            request: Request| async move {
            // Boxed: the futures of operations differ much in size, and every connection holds one.
            Box::pin(answer_guest(&context, operation, &session, request)).await
        };
        router = router.route(operation.path, on(http::method_filter(operation.method), handler));
    }
    router.method_not_allowed_fallback(no_method).with_state(context)
}

async fn no_method(
    Extension(session): Extension<Arc<SandboxSession>>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let message = "this path does not support the method";
    refused(&session, &parts, &CatalogError::new(ErrorReason::UnsupportedOperation, message))
}

/// Returns the response for an unknown path.
pub(crate) fn no_route(session: &SandboxSession, parts: &Parts) -> Response {
    refused(
        session,
        parts,
        &CatalogError::new(ErrorReason::NotFound, "there is nothing at this path"),
    )
}

fn refused(session: &SandboxSession, parts: &Parts, error: &CatalogError) -> Response {
    let exchange = session.exchange(request_name(&parts.method, &parts.uri));
    exchange.note(&error.message);
    exchange.answered(&parts.method, answer::refusal(error))
}

async fn answer_guest(
    context: &HttpContext,
    operation: &OperationEntry,
    session: &SandboxSession,
    request: Request,
) -> Response {
    let trace = AuditTrace::of(&request);
    let method = request.method().clone();
    let exchange = session.exchange(request_name(&method, request.uri()));
    let response = match perform(context, operation.op, session, &exchange, request).await {
        Ok(response) => {
            // Rejections are reported to the guest's observer; there may be many of them.
            trace.write(context, operation, Some(session.who()), &response, None);
            response
        }
        Err(error) => {
            exchange.note(&format!("{}: {}", error.kind.name(), error.message));
            answer::refusal(&error)
        }
    };
    exchange.answered(&method, response)
}

async fn perform(
    context: &HttpContext,
    op: CatalogOperation,
    session: &SandboxSession,
    exchange: &SandboxExchange,
    request: Request,
) -> Result<Response> {
    session.check_lease()?;
    let (mut parts, body) = request.into_parts();
    let params = params(&mut parts).await?;
    if let Some((_, name)) = params.iter().find(|(name, _)| *name == "prefix") {
        session.require_named(name)?;
    }
    let held = match parts.method {
        Method::POST | Method::PUT | Method::PATCH => {
            Some(session.read(body, exchange, BODY_BYTES_MAX).await?)
        }
        _ => None,
    };
    let body = held.as_ref().map(|it| it.bytes.clone()).unwrap_or_default();
    let is_commit =
        matches!(op, CatalogOperation::CommitTable | CatalogOperation::CommitTransaction);
    if is_commit && !session.writes_files(&*session.warehouse()?) {
        check_no_data(&body)?;
    }
    let input = CatalogRequest::new(context, session.who().clone(), &parts, &params, body)?
        .of_guest(session);
    dispatch(op, &input).await
}

/// Rejects snapshots whose files a guest cannot have written: clients write `file:///…` to their
/// own machine, and such files exist nowhere else.
fn check_no_data(body: &Bytes) -> Result<()> {
    let body = RawJson::parse(body.clone())?;
    let list = |of: &RawJson, name: &str| -> Result<Vec<RawJson>> {
        let Some(found) = of.present(name) else { return Ok(Vec::new()) };
        Ok(found.items()?.collect())
    };
    let mut updates = list(&body, "updates")?;
    for change in list(&body, "table-changes")? {
        updates.extend(list(&change, "updates")?);
    }
    let adds = |it: &RawJson| {
        it.get("action").is_some_and(|it| it.as_str().as_deref() == Some("add-snapshot"))
    };
    if updates.iter().any(adds) {
        let message = "the warehouse is in a directory: its files are only read through a grant, \
            and no snapshot of others is added";
        return Err(CatalogError::new(ErrorReason::Forbidden, message));
    }
    Ok(())
}
