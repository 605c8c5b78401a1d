//! What is written down of requests, and for operators what was.

use axum::extract::Request;
use axum::http::Uri;
use axum::response::Response;
use node::http::{Peer, RequestId};

use super::Ground;
use super::answer;
use super::operations::{Method, Op, Operation};
use super::request::Input;
use crate::access::{AuditFilter, Origin};
use crate::error::{Error, Kind, Result};
use crate::service::Who;

/// Marks an answer that has credentials.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given;

/// What of a request has to be known when it was answered. Nothing is copied for it.
pub(super) struct Trace {
    request: Option<RequestId>,
    peer: Option<Peer>,
    uri: Uri,
}

impl Trace {
    pub(super) fn of(request: &Request) -> Trace {
        let extensions = request.extensions();
        Trace {
            request: extensions.get::<RequestId>().cloned(),
            peer: extensions.get::<Peer>().copied(),
            uri: request.uri().clone(),
        }
    }

    /// Has the request written down if it was one to change something, gave credentials away, or
    /// was refused.
    pub(super) fn write(
        self,
        ground: &Ground,
        operation: &Operation,
        who: Option<&Who>,
        (response, refusal): (&Response, Option<&'static str>),
    ) {
        let status = response.status().as_u16();
        let has_given = response.extensions().get::<Given>().is_some();
        // 419: the token has ended.
        if !changes(operation) && !has_given && !matches!(status, 401 | 403 | 419) {
            return;
        }
        let origin = Origin {
            request: self.request.map(|it| it.0),
            address: self.peer.map(|it| it.0),
            path: self.uri.path().to_owned(),
        };
        ground.access.audit(who, name(operation.op), origin, (status, refusal));
    }
}

/// Whether an operation is one to change something, or gives something away.
fn changes(operation: &Operation) -> bool {
    match operation.op {
        Op::ReportMetrics | Op::PlanScan | Op::CancelPlan | Op::FetchTasks | Op::Sign => false,
        // Whoever gets them can read or write the table's files.
        Op::LoadCredentials => true,
        _ => !matches!(operation.method, Method::Get | Method::Head),
    }
}

/// What an operation is called: `drop-table`.
fn name(op: Op) -> String {
    let (mut name, said) = match op {
        Op::Polaris(op) => ("polaris".to_owned(), format!("{op:?}")),
        _ => (String::new(), format!("{op:?}")),
    };
    for letter in said.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

pub(super) async fn list(input: &Input<'_>) -> Result<Response> {
    let text = |name: &str| Ok::<_, Error>(input.query(name)?.unwrap_or_default().to_owned());
    let number = |name: &str| match input.query(name)? {
        None | Some("") => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
            Error::new(
                Kind::BadRequest,
                format!("`{name}` is a number, of milliseconds since 1970"),
            )
        }),
    };
    let page = input.page()?;
    let before = page.token.as_deref().filter(|token| !token.is_empty()).map(str::parse::<i64>);
    let before = before
        .transpose()
        .map_err(|_| Error::new(Kind::BadRequest, "`pageToken` is none of this catalog's"))?;
    let filter = AuditFilter {
        principal: text("principal")?,
        operation: text("operation")?,
        path: text("path")?,
        outcome: input.query("outcome")?.map(AuditFilter::outcome_of).transpose()?,
        since_ms: number("since")?,
        until_ms: number("until")?,
        before,
        size: page.size,
    };
    answer::of(&input.ground.access.audit_lines(&input.who, filter).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{PolarisOp, operations};

    #[test]
    fn what_changes_something_is_written_down() {
        for (op, expected) in [
            (Op::CreateTable, true),
            (Op::CommitTransaction, true),
            (Op::Token, true),
            (Op::PutPolicy, true),
            (Op::LoadCredentials, true),
            (Op::LoadTable, false),
            (Op::TableExists, false),
            (Op::PlanScan, false),
            (Op::Audit, false),
            (Op::Polaris(PolarisOp::CreateCatalog), true),
            (Op::Polaris(PolarisOp::GetCatalog), false),
        ] {
            let operation = operations().iter().find(|it| it.op == op).unwrap();
            assert_eq!(changes(operation), expected, "{op:?}");
        }
        assert_eq!(name(Op::CommitTransaction), "commit-transaction");
        assert_eq!(name(Op::Polaris(PolarisOp::AddGrant)), "polaris-add-grant");
    }
}
