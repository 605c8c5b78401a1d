//! The server itself: nodes, checks, settings, backup, history, callers, health and documentation.

use super::{
    ApiOperation, KeyedRequests, OperationGroup, OperationRight, bytes, json, nothing, operations,
};
use crate::TokenScope;

/// Servers on one store.
const NODE: OperationGroup = OperationGroup::new("nodes", OperationRight::Operator(&[]));
/// A server, for its operators.
const SYSTEM: OperationGroup = OperationGroup::new("system", OperationRight::Operator(&[]));
/// The server for its callers.
const SERVER: OperationGroup = OperationGroup::new("server", OperationRight::AnyToken);
/// Operations that need no token.
const OPEN: OperationGroup = OperationGroup::new("server", OperationRight::Open);

operations! {
    /// Operations of nodes.
    NODES:

    /// List nodes
    LIST_NODES = NODE.get("/v1/nodes", "listNodes")
        .answers(&[json(200, "NodeList")])
        .fails(&[403])
        .command("node list");

    /// Get a node
    GET_NODE = NODE.get("/v1/nodes/{id}", "getNode")
        .answers(&[json(200, "Node")])
        .fails(&[403, 404])
        .command("node show");

    /// Drain a node
    DRAIN_NODE = NODE.post("/v1/nodes/{id}/drain", "drainNode")
        .answers(&[json(200, "Node")])
        .fails(&[403, 404])
        .command("node drain");

    /// Undrain a node
    UNDRAIN_NODE = NODE.post("/v1/nodes/{id}/undrain", "undrainNode")
        .answers(&[json(200, "Node")])
        .fails(&[403, 404])
        .command("node undrain");
}

operations! {
    /// Operations of a server's checks.
    DOCTOR:

    /// Get the latest report
    GET_DOCTOR = SYSTEM.get("/v1/doctor", "getDoctor")
        .answers(&[json(200, "Doctor")])
        .fails(&[403])
        .command("doctor");

    /// Run the health check again
    RUN_DOCTOR = SYSTEM.post("/v1/doctor", "runDoctor")
        .answers(&[json(200, "Doctor")])
        .fails(&[403])
        .command("doctor");
}

operations! {
    /// Operations of the configuration and the tokens.
    SETTINGS:

    /// Get the effective configuration
    GET_CONFIG = SYSTEM.get("/v1/config", "getConfig")
        .answers(&[json(200, "Config")])
        .fails(&[403])
        .command("config show");

    /// Reload the configuration
    RELOAD_CONFIG = SYSTEM.post("/v1/reload", "reloadConfig")
        .answers(&[json(200, "ConfigReloaded")])
        .fails(&[400, 403])
        .command("reload");

    /// List API tokens
    LIST_TOKENS = SYSTEM.get("/v1/tokens", "listTokens")
        .needs(OperationRight::Operator(&[TokenScope::Tokens]))
        .answers(&[json(200, "TokenList")])
        .fails(&[403]);
}

operations! {
    /// The operation of backups. It needs an API token, too: an archive has the keys of the server
    /// and its first token, which outlast a sign-in.
    BACKUP:

    /// Download a backup
    GET_BACKUP = SYSTEM.get("/v1/backup", "getBackup")
        .needs(OperationRight::Operator(&TokenScope::ALL))
        .answers(&[bytes(200, "application/gzip")])
        .fails(&[403, 409])
        .command("backup");
}

operations! {
    /// The operation of the history.
    HISTORY:

    /// Get the history of measurements
    GET_HISTORY = SERVER.get("/v1/history", "getHistory")
        .answers(&[json(200, "HistoryReport")])
        .fails(&[400, 403, 404])
        .command("history");
}

operations! {
    /// The operation of the identity of a caller.
    IDENTITY:

    /// Get the caller's principal
    WHOAMI = SERVER.get("/v1/whoami", "whoami").answers(&[json(200, "Whoami")]);
}

operations! {
    /// Operations of signing in at the console.
    SIGN_IN:

    /// Create a sign-in code
    CREATE_CONSOLE_CODE = SERVER.post("/v1/console/codes", "createConsoleCode")
        .takes("CreateConsoleCode")
        .answers(&[json(201, "ConsoleCode")])
        .fails(&[400, 403, 404, 429])
        .keys(KeyedRequests::Ignored)
        .command("console");

    /// Redeem a code
    SIGN_IN_AT_CONSOLE = OPEN.post("/v1/console/login", "signInAtConsole")
        .takes("ConsoleLogin")
        .answers(&[json(200, "ConsoleSession")])
        .fails(&[400, 403, 404, 429])
        .keys(KeyedRequests::Ignored);

    /// End a sign-in
    SIGN_OUT_AT_CONSOLE = SERVER.post("/v1/console/logout", "signOutAtConsole")
        .answers(&[nothing(204)])
        .fails(&[400])
        .keys(KeyedRequests::Ignored);
}

operations! {
    /// Operations of a server's health.
    HEALTH:

    /// Check whether the process is alive
    LIVE = OPEN.get("/health/live", "live").answers(&[bytes(200, "text/plain")]);

    /// Check whether the server accepts work
    READY = OPEN.get("/health/ready", "ready")
        .answers(&[bytes(200, "text/plain")])
        .fails(&[503]);

    /// Get metrics for Prometheus
    METRICS = OPEN.get("/metrics", "metrics")
        .answers(&[bytes(200, "application/openmetrics-text")]);
}

operations! {
    /// Operations of the documentation.
    SITE:

    /// Get the documentation
    DOCS = OPEN.get("/docs/", "docs").answers(&[bytes(200, "text/html")]);

    /// Get this document
    OPENAPI = OPEN.get("/openapi.json", "openapi").answers(&[bytes(200, "application/json")]);
}
