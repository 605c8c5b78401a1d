//! The audit log: writing it, and reading it for operators.

use api::operations::OperationMethod;
use axum::extract::Request;
use axum::http::Uri;
use axum::response::Response;
use node::http::{ConnectionPeer, RequestId};

use super::HttpContext;
use super::answer;
use super::operations::{CatalogOperation, OperationEntry};
use super::request::CatalogRequest;
use crate::access::{CatalogAuditFilter, RequestOrigin};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::CatalogPrincipal;

/// Marks a response that has credentials.
#[derive(Clone, Copy, Debug)]
pub(super) struct CredentialsMarker;

/// Parts of a request that are needed after its response. Nothing is copied for it.
pub(super) struct AuditTrace {
    request: Option<RequestId>,
    peer: Option<ConnectionPeer>,
    uri: Uri,
}

impl AuditTrace {
    pub(super) fn of(request: &Request) -> AuditTrace {
        let extensions = request.extensions();
        AuditTrace {
            request: extensions.get::<RequestId>().cloned(),
            peer: extensions.get::<ConnectionPeer>().copied(),
            uri: request.uri().clone(),
        }
    }

    /// Audits the request if it was a change, returned credentials, or was rejected.
    pub(super) fn write(
        self,
        context: &HttpContext,
        operation: &OperationEntry,
        who: Option<&CatalogPrincipal>,
        response: &Response,
        refusal: Option<&'static str>,
    ) {
        let status = response.status().as_u16();
        let has_credentials = response.extensions().get::<CredentialsMarker>().is_some();
        // 419: the token has expired.
        if !changes(operation) && !has_credentials && !matches!(status, 401 | 403 | 419) {
            return;
        }
        let origin = RequestOrigin {
            request: self.request.map(|it| it.0),
            address: self.peer.map(|it| it.0),
            path: self.uri.path().to_owned(),
        };
        context.access.audit_log().audit(who, name(operation.op), origin, status, refusal);
    }
}

/// Returns whether an operation makes a change, or returns credentials.
fn changes(operation: &OperationEntry) -> bool {
    match operation.op {
        CatalogOperation::ReportMetrics
        | CatalogOperation::PlanScan
        | CatalogOperation::CancelPlan
        | CatalogOperation::FetchTasks
        | CatalogOperation::PreviewPolicy
        | CatalogOperation::Sign => false,
        // The credentials give access to the table's files.
        CatalogOperation::LoadCredentials => true,
        _ => !matches!(operation.method, OperationMethod::Get | OperationMethod::Head),
    }
}

/// Returns the name of an operation: `drop-table`.
fn name(op: CatalogOperation) -> String {
    let (mut name, variant) = match op {
        CatalogOperation::Polaris(op) => ("polaris".to_owned(), format!("{op:?}")),
        _ => (String::new(), format!("{op:?}")),
    };
    for letter in variant.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let text =
        |name: &str| Ok::<_, CatalogError>(input.query(name)?.unwrap_or_default().to_owned());
    let number = |name: &str| match input.query(name)? {
        None | Some("") => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
            CatalogError::new(
                ErrorReason::BadRequest,
                format!("`{name}` is a number, of milliseconds since 1970"),
            )
        }),
    };
    let page = input.page()?;
    let before = page.token.as_deref().filter(|token| !token.is_empty()).map(str::parse::<i64>);
    let before = before.transpose().map_err(|_| {
        CatalogError::new(ErrorReason::BadRequest, "`pageToken` was not issued by this catalog")
    })?;
    let filter = CatalogAuditFilter {
        principal: text("principal")?,
        operation: text("operation")?,
        path: text("path")?,
        outcome: input.query("outcome")?.map(CatalogAuditFilter::outcome_of).transpose()?,
        since_ms: number("since")?,
        until_ms: number("until")?,
        before,
        size: page.size,
    };
    answer::of(&input.context.access.audit_log().audit_lines(&input.who, filter).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{PolarisOp, operations};

    #[test]
    fn what_changes_something_is_written_down() {
        for (op, expected) in [
            (CatalogOperation::CreateTable, true),
            (CatalogOperation::CommitTransaction, true),
            (CatalogOperation::Token, true),
            (CatalogOperation::PutPolicy, true),
            (CatalogOperation::PreviewPolicy, false),
            (CatalogOperation::LoadCredentials, true),
            (CatalogOperation::LoadTable, false),
            (CatalogOperation::TableExists, false),
            (CatalogOperation::PlanScan, false),
            (CatalogOperation::Audit, false),
            (CatalogOperation::Polaris(PolarisOp::CreateCatalog), true),
            (CatalogOperation::Polaris(PolarisOp::GetCatalog), false),
        ] {
            let operation = operations().iter().find(|it| it.op == op).unwrap();
            assert_eq!(changes(operation), expected, "{op:?}");
        }
        assert_eq!(name(CatalogOperation::CommitTransaction), "commit-transaction");
        assert_eq!(name(CatalogOperation::Polaris(PolarisOp::AddGrant)), "polaris-add-grant");
    }
}
