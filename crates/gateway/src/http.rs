//! The native HTTP API: `GET /v1/audit` and its summary, and the offers of grants.

use api::operations::gateway as table;
use api::{
    AuditRecordList, AuditSummaryKey, AuditSummaryReport, GrantCheckReport, GrantCheckRequest,
    GrantOfferList,
};
use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use node::auth::TokenPrincipal;
use node::http::{self, JsonBody, OperationRoutes, query};
use serde::Deserialize;

use crate::audit::{AuditFilter, PAGE_DEFAULT, PAGE_MAX};
use crate::service::GatewayService;
use crate::store::{event_of, outcome_of};

/// Longest search text, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// Returns the routes of the gateway, for [`node::http::HttpShell`] to wrap.
pub fn routes(service: GatewayService) -> Router {
    handlers().with_state(service)
}

fn handlers() -> Router<GatewayService> {
    OperationRoutes::of(table::GATEWAY)
        .serve(&table::LIST_AUDIT, audit)
        .serve(&table::SUMMARIZE_AUDIT, summary)
        .serve(&table::LIST_GRANT_OFFERS, offers)
        .serve(&table::CHECK_GRANTS, check)
        .routes()
}

/// Order of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AuditOrder {
    #[default]
    Asc,
    Desc,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AuditQuery {
    holder: Option<String>,
    tenant: Option<String>,
    grant: Option<String>,
    event: Option<String>,
    outcome: Option<String>,
    text: Option<String>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    after: Option<u64>,
    before: Option<u64>,
    order: AuditOrder,
    limit: Option<usize>,
    /// Group of a summary; not allowed for records.
    by: Option<AuditSummaryKey>,
}

impl AuditQuery {
    fn filter(self) -> Result<AuditFilter, http::HttpError> {
        let event = known("event", self.event.as_deref(), event_of)?;
        let outcome = known("outcome", self.outcome.as_deref(), outcome_of)?;
        let limit = self.limit.unwrap_or(PAGE_DEFAULT);
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(http::HttpError::invalid(format!("must be 1 to {PAGE_MAX}")).at("limit"));
        }
        let texts = [("holder", &self.holder), ("tenant", &self.tenant), ("grant", &self.grant)];
        for (field, text) in texts.into_iter().chain([("text", &self.text)]) {
            let text = text.as_deref().unwrap_or_default();
            // PostgreSQL allows no NUL in a text.
            if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
                let message = format!("must have at most {TEXT_BYTES_MAX} bytes, none of them NUL");
                return Err(http::HttpError::invalid(message).at(field));
            }
        }
        Ok(AuditFilter {
            holder: self.holder,
            tenant: self.tenant,
            grant: self.grant,
            event,
            outcome,
            text: self.text.filter(|text| !text.is_empty()),
            from_ms: self.from_ms,
            to_ms: self.to_ms,
            after: self.after.unwrap_or(0),
            before: self.before,
            is_newest_first: self.order == AuditOrder::Desc,
            limit,
        })
    }
}

async fn audit(
    State(service): State<GatewayService>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<AuditRecordList>, http::HttpError> {
    let wanted: AuditQuery = query(&uri)?;
    if wanted.by.is_some() {
        return Err(http::HttpError::invalid("is for `/v1/audit/summary`").at("by"));
    }
    Ok(axum::Json(service.audit(&who, wanted.filter()?).await?))
}

async fn summary(
    State(service): State<GatewayService>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<AuditSummaryReport>, http::HttpError> {
    let wanted: AuditQuery = query(&uri)?;
    if wanted.order != AuditOrder::default() {
        return Err(http::HttpError::invalid("is for `/v1/audit`").at("order"));
    }
    let by = wanted.by.unwrap_or_default();
    Ok(axum::Json(service.audit_summary(&who, by, wanted.filter()?).await?))
}

async fn offers(
    State(service): State<GatewayService>,
    who: TokenPrincipal,
) -> Result<axum::Json<GrantOfferList>, http::HttpError> {
    Ok(axum::Json(service.offers(&who)?))
}

async fn check(
    State(service): State<GatewayService>,
    who: TokenPrincipal,
    JsonBody(request): JsonBody<GrantCheckRequest>,
) -> Result<axum::Json<GrantCheckReport>, http::HttpError> {
    Ok(axum::Json(service.check(&who, &request.grants)?))
}

fn known<T>(
    field: &str,
    name: Option<&str>,
    of_name: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, http::HttpError> {
    let Some(name) = name else { return Ok(None) };
    match of_name(name) {
        Some(value) => Ok(Some(value)),
        None => Err(http::HttpError::invalid("there is nothing of this name").at(field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_handler() {
        drop(handlers());
    }

    #[test]
    fn what_is_asked_for_is_known() {
        assert!(known("event", Some("statement"), event_of).unwrap().is_some());
        assert!(known("event", None, event_of).unwrap().is_none());
        let error = known("outcome", Some("lost"), outcome_of).unwrap_err();
        assert_eq!(error.detail().field.as_deref(), Some("outcome"));
        let uri = "/v1/audit?holder=ses_1&after=5&limit=10".parse().unwrap();
        let wanted: AuditQuery = query(&uri).unwrap();
        assert_eq!((wanted.after, wanted.limit), (Some(5), Some(10)));
        for bad in ["/v1/audit?wait=1", "/v1/audit?order=up", "/v1/audit?by=tenant"] {
            assert!(query::<AuditQuery>(&bad.parse().unwrap()).is_err(), "{bad}");
        }
        let long = format!("/v1/audit?text={}", "x".repeat(TEXT_BYTES_MAX + 1));
        for (uri, field) in [
            (long.as_str(), "text"),
            ("/v1/audit?grant=%00", "grant"),
            ("/v1/audit?limit=0", "limit"),
        ] {
            let wanted: AuditQuery = query(&uri.parse().unwrap()).unwrap();
            let error = wanted.filter().unwrap_err();
            assert_eq!(error.detail().field.as_deref(), Some(field), "{uri}");
        }
        let uri = "/v1/audit?order=desc&before=9&from_ms=1&to_ms=2&text=DROP".parse().unwrap();
        let filter = query::<AuditQuery>(&uri).unwrap().filter().unwrap();
        assert!(filter.is_newest_first && filter.before == Some(9) && filter.to_ms == Some(2));
    }
}
