//! Operations of the gateway: offers of grants, the audit of their use, and live topics.

use super::{ApiOperation, OperationGroup, OperationRight, json, operations, socket};
use crate::TokenScope;

/// Grants, for tokens with a scope for sandboxes.
const GRANT: OperationGroup = OperationGroup::new(
    "gateway",
    OperationRight::OneOf(&[TokenScope::Executions, TokenScope::Sessions]),
);
/// Live topics, which have the rights of the routes that they read.
const TOPICS: OperationGroup = OperationGroup::new("live", OperationRight::AnyToken);

operations! {
    /// Operations of the gateway.
    GATEWAY:

    /// List audit records of grants
    LIST_AUDIT = GRANT.get("/v1/audit", "listAudit")
        .answers(&[json(200, "AuditRecordList")])
        .fails(&[400, 403])
        .command("audit");

    /// Count audit records of grants
    SUMMARIZE_AUDIT = GRANT.get("/v1/audit/summary", "summarizeAudit")
        .answers(&[json(200, "AuditSummaryReport")])
        .fails(&[400, 403])
        .command("audit");

    /// List the grants that the token may create
    LIST_GRANT_OFFERS = GRANT.get("/v1/gateway/offers", "listGrantOffers")
        .answers(&[json(200, "GrantOfferList")])
        .fails(&[403])
        .command("grants offers");

    /// Check whether grants would be accepted
    CHECK_GRANTS = GRANT.post("/v1/gateway/offers/check", "checkGrants")
        .takes("GrantCheckRequest")
        .answers(&[json(200, "GrantCheckReport")])
        .fails(&[400, 403])
        .command("grants check");
}

operations! {
    /// The operation of live topics.
    LIVE:

    /// Follow executions, sessions and terminals on one WebSocket
    OPEN_LIVE = TOPICS.get("/v1/live", "openLive")
        .answers(&[socket("LiveClientMessage")])
        .fails(&[403, 426]);
}
