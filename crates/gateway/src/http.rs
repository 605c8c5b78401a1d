//! The native HTTP face: `GET /v1/audit`.

use api::AuditRecordList;
use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use node::auth::TokenPrincipal;
use node::http::{self, RouteTable as _, get, query};
use serde::Deserialize;

use crate::audit::{AuditFilter, PAGE_DEFAULT, PAGE_MAX};
use crate::service::GatewayService;
use crate::store::{event_of, outcome_of};

/// Routes below this path, for [`node::http::HttpShell`] to wrap.
pub fn routes(service: GatewayService) -> Router {
    Router::new().at("/v1/audit", get(audit)).with_state(service)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AuditQuery {
    holder: Option<String>,
    tenant: Option<String>,
    event: Option<String>,
    outcome: Option<String>,
    after: Option<u64>,
    limit: Option<usize>,
}

async fn audit(
    State(service): State<GatewayService>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<AuditRecordList>, http::HttpError> {
    let wanted: AuditQuery = query(&uri)?;
    let event = known("event", wanted.event.as_deref(), event_of)?;
    let outcome = known("outcome", wanted.outcome.as_deref(), outcome_of)?;
    let limit = wanted.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(http::HttpError::invalid(format!("must be 1 to {PAGE_MAX}")).at("limit"));
    }
    let AuditQuery { holder, tenant, after, .. } = wanted;
    let after = after.unwrap_or(0);
    let filter = AuditFilter { holder, tenant, event, outcome, after, limit };
    Ok(axum::Json(service.audit(&who, filter).await?))
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
    fn what_is_asked_for_is_known() {
        assert!(known("event", Some("statement"), event_of).unwrap().is_some());
        assert!(known("event", None, event_of).unwrap().is_none());
        let error = known("outcome", Some("lost"), outcome_of).unwrap_err();
        assert_eq!(error.detail().field.as_deref(), Some("outcome"));
        let uri = "/v1/audit?holder=ses_1&after=5&limit=10".parse().unwrap();
        let wanted: AuditQuery = query(&uri).unwrap();
        assert_eq!((wanted.after, wanted.limit), (Some(5), Some(10)));
        assert!(query::<AuditQuery>(&"/v1/audit?wait=1".parse().unwrap()).is_err());
    }
}
