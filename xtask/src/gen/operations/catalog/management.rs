//! The operations that manage the catalog: clients, rights, policies, history, warehouses, jobs.

use super::{CatalogOperation, operation};

const WAREHOUSES: &str = "/management/v1/warehouses";
const WAREHOUSE: &str = "/management/v1/warehouses/{warehouse}";

/// Returns all of them, in the order of the page.
pub(super) fn all() -> Vec<CatalogOperation> {
    let mut all = clients();
    all.extend(roles_and_grants());
    all.extend(policies());
    all.extend(time());
    all.extend(reading());
    all.extend(warehouses());
    all.extend(maintenance());
    all
}

fn clients() -> Vec<CatalogOperation> {
    const CLIENTS: &str = "/management/v1/clients";
    const KEYS: &str = "/management/v1/clients/{client}/keys";
    const OPERATORS: &str = "operators";
    const ITSELF: &str = "operators, and the client itself";
    vec![
        operation("get", CLIENTS, "listCatalogClients", "List clients", OPERATORS).gives(
            200,
            "CatalogClientList",
            "The complete list.",
        ),
        operation("post", CLIENTS, "createCatalogClient", "Create a client", OPERATORS)
            .once()
            .takes("CatalogClientRequest")
            .gives(200, "CatalogClientSecret", "The client and its secret."),
        operation(
            "post",
            "/management/v1/clients/{client}/rotate",
            "rotateCatalogClient",
            "Replace the secret of a client",
            ITSELF,
        )
        .once()
        .takes("CatalogRotateRequest")
        .gives(200, "CatalogClientSecret", "The client and its secret."),
        operation(
            "delete",
            "/management/v1/clients/{client}",
            "deleteCatalogClient",
            "Remove a client, its tokens, keys and grants",
            OPERATORS,
        )
        .done(204, "Removed."),
        operation("get", KEYS, "listCatalogKeys", "List API keys of a client", ITSELF).gives(
            200,
            "CatalogKeyList",
            "The complete list.",
        ),
        operation("post", KEYS, "createCatalogKey", "Create an API key", ITSELF)
            .once()
            .takes("CatalogKeyRequest")
            .gives(200, "CatalogKeySecret", "The key and its secret."),
        operation(
            "post",
            "/management/v1/clients/{client}/keys/{key}/rotate",
            "rotateCatalogKey",
            "Replace the secret of an API key",
            ITSELF,
        )
        .once()
        .takes("CatalogRotateRequest")
        .gives(200, "CatalogKeySecret", "The key and its secret."),
        operation(
            "delete",
            "/management/v1/clients/{client}/keys/{key}",
            "deleteCatalogKey",
            "Remove an API key",
            ITSELF,
        )
        .done(204, "Removed."),
    ]
}

fn roles_and_grants() -> Vec<CatalogOperation> {
    const ROLES: &str = "/management/v1/roles";
    const OPERATORS: &str = "operators";
    const GRANT: &str = "`grant` where it is given, and the rights that are given";
    vec![
        operation("get", ROLES, "listCatalogRoles", "List roles", OPERATORS).gives(
            200,
            "CatalogRoleList",
            "The complete list.",
        ),
        operation("post", ROLES, "createCatalogRole", "Create a role", OPERATORS)
            .once()
            .takes("CatalogRoleRequest")
            .done(204, "It exists."),
        operation(
            "post",
            "/management/v1/roles/{role}/members",
            "changeCatalogRole",
            "Change the members of a role",
            OPERATORS,
        )
        .once()
        .takes("CatalogMembersRequest")
        .done(204, "Changed."),
        operation(
            "delete",
            "/management/v1/roles/{role}",
            "deleteCatalogRole",
            "Remove a role and its privileges",
            OPERATORS,
        )
        .done(204, "Removed."),
        operation(
            "get",
            manage!("grants"),
            "listCatalogGrants",
            "List granted privileges",
            "`grant` of the warehouse",
        )
        .asks("principal", "string", "Only privileges of this principal.")
        .gives(200, "CatalogGrantList", "The complete list."),
        operation("post", manage!("grants"), "grantCatalogRights", "Grant privileges", GRANT)
            .once()
            .takes("CatalogGrant")
            .done(204, "Granted."),
        operation(
            "post",
            manage!("grants/revoke"),
            "revokeCatalogRights",
            "Revoke privileges",
            GRANT,
        )
        .once()
        .takes("CatalogGrant")
        .done(204, "Revoked."),
        operation(
            "get",
            "/management/v1/audit",
            "listCatalogAudit",
            "List audit records of the catalog",
            OPERATORS,
        )
        .paged()
        .asks("principal", "string", "Only records of this principal.")
        .asks("operation", "string", "Only this operation, such as `drop-table`.")
        .asks("path", "string", "Only records about this path.")
        .asks("outcome", "string", "`done`, `refused` or `failed`.")
        .asks("since", "integer", "At this time or later, in milliseconds since 1970.")
        .asks("until", "integer", "Before this time, in milliseconds since 1970.")
        .gives(200, "CatalogAuditPage", "A page of records, newest first."),
    ]
}

fn policies() -> Vec<CatalogOperation> {
    const GRANT: &str = "`grant` of the table";
    vec![
        operation(
            "get",
            manage!("policies"),
            "listCatalogPolicies",
            "List policies",
            "`grant` of the warehouse",
        )
        .gives(200, "CatalogPolicyList", "The complete list."),
        operation(
            "put",
            manage!("policies/{policy}"),
            "putCatalogPolicy",
            "Create or replace a policy",
            GRANT,
        )
        .takes("CatalogPolicyRequest")
        .gives(200, "CatalogPolicy", "The policy."),
        operation(
            "post",
            manage!("policies/{policy}/preview"),
            "previewCatalogPolicy",
            "Preview the effect of a policy on a principal",
            "`grant` of the warehouse",
        )
        .takes("CatalogPolicyPreviewRequest")
        .gives(
            200,
            "CatalogPolicyPreview",
            "What the principal reads now, and under the policy.",
        ),
        operation(
            "delete",
            manage!("policies/{policy}"),
            "deleteCatalogPolicy",
            "Remove a policy",
            GRANT,
        )
        .done(204, "Removed."),
    ]
}

fn time() -> Vec<CatalogOperation> {
    const MANAGE: &str = "`manage` of what is named";
    vec![
        operation(
            "get",
            manage!("dropped"),
            "listDropped",
            "List dropped tables and views",
            "`read` of the warehouse",
        )
        .asks("namespace", "string", "Only objects that were in this namespace.")
        .paged()
        .gives(200, "CatalogDroppedList", "A page of the list."),
        operation(
            "post",
            manage!("undrop"),
            "undrop",
            "Restore a dropped table or view",
            "`manage` of the namespace it was in, `write` where it goes",
        )
        .once()
        .takes("CatalogUndropRequest")
        .gives(200, "CatalogUndropped", "The restored object."),
        operation(
            "delete",
            manage!("dropped/{dropped}"),
            "purgeDropped",
            "Purge a dropped table or view, with its files",
            "`manage` of the namespace it was in",
        )
        .done(204, "Removed permanently."),
        operation(
            "get",
            manage!("protection"),
            "getProtection",
            "Get the protection of an object",
            "`read` of what is named",
        )
        .asks("namespace", "string", "Levels of the namespace, separated by U+001F. Required.")
        .asks("name", "string", "Table or view of the namespace.")
        .gives(200, "CatalogProtection", "Whether the object is protected."),
        operation(
            "post",
            manage!("protection"),
            "setProtection",
            "Protect an object, or remove its protection",
            MANAGE,
        )
        .once()
        .takes("CatalogProtectRequest")
        .gives(200, "CatalogProtection", "Whether the object is protected."),
        operation(
            "get",
            manage!("retention"),
            "getRetention",
            "Get the retention of dropped tables and views",
            "`read` of the warehouse",
        )
        .gives(200, "CatalogRetention", "The retention."),
        operation(
            "post",
            manage!("retention"),
            "setRetention",
            "Set the retention of dropped tables and views",
            "`manage` of the warehouse",
        )
        .once()
        .takes("CatalogRetentionRequest")
        .gives(200, "CatalogRetention", "The retention."),
    ]
}

/// Returns the operations on changes, names, and the metadata of a table.
fn reading() -> Vec<CatalogOperation> {
    vec![
        operation(
            "get",
            manage!("changes"),
            "listCatalogChanges",
            "List changes of the catalog; with `Accept: text/event-stream`, follow them",
            "any token; what it may read is shown",
        )
        .asks("after", "string", "Number of the last change already seen, or `latest`.")
        .asks("namespace", "string", "Only those of this namespace and its contents.")
        .asks("table", "string", "Only those of this table of the namespace.")
        .asks("limit", "integer", "Maximum number: 1 to 1000, 100 if absent.")
        .gives(200, "CatalogChangePage", "A page of the list."),
        operation(
            "get",
            manage!("search"),
            "searchCatalog",
            "Search namespaces, tables, views and columns by name",
            "`read` of something; what it may list is found",
        )
        .asks("q", "string", "Text to search for, in either case: 1 to 256 bytes.")
        .asks("limit", "integer", "Maximum number: 1 to 500, 50 if absent.")
        .gives(200, "CatalogFoundNames", "The matches, and whether there may be more."),
        operation(
            "get",
            manage!("tables/{namespace}/{table}/{aspect}"),
            "inspectTable",
            "List metadata of a table in rows; with `format=csv` as CSV",
            "`read` of the table",
        )
        .asks("format", "string", "`json` or `csv`.")
        .asks("snapshot-id", "integer", "With `files`: those of this snapshot.")
        .paged()
        .of_the_past()
        .gives(200, "CatalogRowsPage", "A page of the list."),
        operation(
            "get",
            manage!("tables/{namespace}/{table}/stats"),
            "getTableHealth",
            "Get the health of a table: sizes of files, deletes, partitions, manifests, \
             recommendations",
            "`read` of the table",
        )
        .asks("snapshot-id", "integer", "At this snapshot; at the current one when absent.")
        .asks("ref", "string", "At the snapshot of this branch or tag.")
        .of_the_past()
        .gives(200, "CatalogTableHealth", "The health at that snapshot."),
    ]
}

fn warehouses() -> Vec<CatalogOperation> {
    const OPERATORS: &str = "operators";
    const MANAGE: &str = "`manage` of the warehouse";
    vec![
        operation(
            "get",
            WAREHOUSES,
            "listWarehouses",
            "List warehouses",
            "any token; those that it may `manage` are listed",
        )
        .gives(200, "CatalogWarehouseList", "Tokens that the caller may manage."),
        operation("post", WAREHOUSES, "createWarehouse", "Create a warehouse", OPERATORS)
            .once()
            .takes("CatalogWarehouseRequest")
            .gives(200, "CatalogWarehouse", "The warehouse."),
        operation("get", WAREHOUSE, "getWarehouse", "Get a warehouse and its usage", MANAGE).gives(
            200,
            "CatalogWarehouse",
            "The warehouse.",
        ),
        operation("patch", WAREHOUSE, "updateWarehouse", "Change a warehouse", OPERATORS)
            .takes("CatalogWarehouseUpdate")
            .gives(200, "CatalogWarehouse", "The changed warehouse."),
        operation(
            "delete",
            WAREHOUSE,
            "deleteWarehouse",
            "Remove an empty warehouse; its files stay",
            OPERATORS,
        )
        .asks("force", "boolean", "Also if it is protected.")
        .done(204, "Removed."),
    ]
}

fn maintenance() -> Vec<CatalogOperation> {
    const MANAGE: &str = "`manage` of all that is named";
    vec![
        operation(
            "get",
            manage!("maintenance"),
            "listCatalogJobs",
            "List jobs of maintenance",
            "`manage` of the warehouse",
        )
        .gives(200, "CatalogJobList", "Newest first."),
        operation(
            "post",
            manage!("maintenance"),
            "startCatalogJob",
            "Start a job of maintenance",
            MANAGE,
        )
        .once()
        .takes("CatalogJobRequest")
        .gives(202, "CatalogJobStarted", "The job has started."),
        operation(
            "get",
            manage!("maintenance/{job}"),
            "getCatalogJob",
            "Get the progress of a job",
            MANAGE,
        )
        .asks("items", "boolean", "List the removed objects instead of only counting them.")
        .gives(200, "CatalogJob", "The job."),
        operation("delete", manage!("maintenance/{job}"), "cancelCatalogJob", "Stop a job", MANAGE)
            .done(204, "The job will stop."),
    ]
}
