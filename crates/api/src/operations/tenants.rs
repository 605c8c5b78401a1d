//! Tenants of the bouncer.

use super::{ApiOperation, OperationGroup, OperationRight, json, nothing, operations};
use crate::TokenScope;

/// Tenants. They affect all users of the server, and a definition makes the server connect to an
/// address: the scope alone is not enough.
const TENANT: OperationGroup =
    OperationGroup::new("tenants", OperationRight::Operator(&[TokenScope::Tenants]));

operations! {
    /// Operations of tenants.
    TENANTS:

    /// Create a tenant
    CREATE_TENANT = TENANT.post("/v1/tenants", "createTenant")
        .takes("TenantSpec")
        .answers(&[json(201, "Tenant")])
        .fails(&[400, 403, 409, 413, 415])
        .command("tenant add");

    /// List tenants
    LIST_TENANTS = TENANT.get("/v1/tenants", "listTenants")
        .answers(&[json(200, "TenantList")])
        .fails(&[403])
        .command("tenant list");

    /// Get figures of all tenants
    ALL_TENANT_STATS = TENANT.get("/v1/tenants/stats", "allTenantStats")
        .answers(&[json(200, "TenantStatsList")])
        .fails(&[403])
        .command("tenant list");

    /// Get a tenant
    GET_TENANT = TENANT.get("/v1/tenants/{name}", "getTenant")
        .answers(&[json(200, "Tenant")])
        .fails(&[403, 404])
        .command("tenant show");

    /// Change a tenant
    REPLACE_TENANT = TENANT.put("/v1/tenants/{name}", "replaceTenant")
        .takes("TenantSpec")
        .answers(&[json(200, "Tenant")])
        .fails(&[400, 403, 404, 409, 413, 415])
        .command("tenant add");

    /// Remove a tenant
    DELETE_TENANT = TENANT.delete("/v1/tenants/{name}", "deleteTenant")
        .answers(&[nothing(204)])
        .fails(&[403, 404, 409])
        .command("tenant remove");

    /// Get figures of a tenant
    TENANT_STATS = TENANT.get("/v1/tenants/{name}/stats", "tenantStats")
        .answers(&[json(200, "TenantStats")])
        .fails(&[403, 404])
        .command("tenant show");

    /// Get the health of a tenant
    TENANT_HEALTH = TENANT.get("/v1/tenants/{name}/health", "tenantHealth")
        .answers(&[json(200, "TenantHealthReport")])
        .fails(&[403, 404])
        .command("tenant show");

    /// List the clients of a tenant
    TENANT_CLIENTS = TENANT.get("/v1/tenants/{name}/clients", "tenantClients")
        .answers(&[json(200, "BouncerClientList")])
        .fails(&[403, 404])
        .command("tenant show");

    /// Close a client
    KILL_TENANT_CLIENT = TENANT.delete("/v1/tenants/{name}/clients/{pid}", "killTenantClient")
        .answers(&[nothing(204)])
        .fails(&[400, 403, 404]);

    /// List the server connections of a tenant
    TENANT_SERVERS = TENANT.get("/v1/tenants/{name}/servers", "tenantServers")
        .answers(&[json(200, "BouncerServerList")])
        .fails(&[403, 404])
        .command("tenant show");

    /// List clients with a pinned server connection
    TENANT_PINS = TENANT.get("/v1/tenants/{name}/pins", "tenantPins")
        .answers(&[json(200, "BouncerClientList")])
        .fails(&[403, 404]);

    /// Pause a tenant
    PAUSE_TENANT = TENANT.post("/v1/tenants/{name}/pause", "pauseTenant")
        .answers(&[json(200, "Tenant")])
        .fails(&[403, 404])
        .command("tenant pause");

    /// Resume a tenant
    RESUME_TENANT = TENANT.post("/v1/tenants/{name}/resume", "resumeTenant")
        .answers(&[json(200, "Tenant")])
        .fails(&[403, 404])
        .command("tenant resume");

    /// Drain a tenant
    DRAIN_TENANT = TENANT.post("/v1/tenants/{name}/drain", "drainTenant")
        .answers(&[json(202, "Tenant")])
        .fails(&[403, 404])
        .command("tenant drain");

    /// Reopen the server connections of a tenant
    RECONNECT_TENANT = TENANT.post("/v1/tenants/{name}/reconnect", "reconnectTenant")
        .answers(&[nothing(204)])
        .fails(&[403, 404])
        .command("tenant reconnect");

    /// Close all connections of a tenant
    KILL_TENANT = TENANT.post("/v1/tenants/{name}/kill", "killTenant")
        .answers(&[nothing(204)])
        .fails(&[403, 404]);

    /// Reload the configuration
    RELOAD_BOUNCER = TENANT.post("/v1/bouncer/reload", "reloadBouncer")
        .answers(&[json(200, "BouncerReloaded")])
        .fails(&[400, 403])
        .command("bouncer reload");
}
