//! Operations of the gateway: offers of grants, the audit of their use, and live topics.

use super::{ApiOperation, OperationGroup, OperationRight, json, operations, socket};
use crate::TokenScope;

/// Grants, for whoever has sandboxes.
const GRANT: OperationGroup = OperationGroup::new(
    "gateway",
    OperationRight::OneOf(&[TokenScope::Executions, TokenScope::Sessions]),
);
/// Live topics, which have the rights of the routes that they read.
const TOPICS: OperationGroup = OperationGroup::new("live", OperationRight::AnyToken);

operations! {
    /// Operations of the gateway.
    GATEWAY:

    /// What sandboxes did with their grants
    LIST_AUDIT = GRANT.get("/v1/audit", "listAudit")
        .answers(&[json(200, "AuditRecordList")])
        .fails(&[400, 403])
        .command("audit");

    /// What was reached with grants, and how often
    SUMMARIZE_AUDIT = GRANT.get("/v1/audit/summary", "summarizeAudit")
        .answers(&[json(200, "AuditSummaryReport")])
        .fails(&[400, 403])
        .command("audit");

    /// Grants that the token may give to sandboxes
    LIST_GRANT_OFFERS = GRANT.get("/v1/gateway/offers", "listGrantOffers")
        .answers(&[json(200, "GrantOfferList")])
        .fails(&[403])
        .command("grants offers");

    /// Whether a sandbox would be given these grants
    CHECK_GRANTS = GRANT.post("/v1/gateway/offers/check", "checkGrants")
        .takes("GrantCheckRequest")
        .answers(&[json(200, "GrantCheckReport")])
        .fails(&[400, 403])
        .command("grants check");
}

operations! {
    /// The operation of live topics.
    LIVE:

    /// Follow many things on one WebSocket
    OPEN_LIVE = TOPICS.get("/v1/live", "openLive")
        .answers(&[socket("LiveClientMessage")])
        .fails(&[403, 426]);
}
