//! The operations of the catalog: Iceberg's interface, and the catalog's management.
//!
//! Their schemas are in `catalog_schemas.json`, with our own descriptions: Iceberg's documents have
//! more members than clients of this interface need, and allow additions by later formats. A test
//! of the catalog compares this list with its table of routes.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use serde_json::{Map, Value, json};

use super::super::reference;

/// Paths of a warehouse's management.
macro_rules! manage {
    ($rest:literal) => {
        concat!("/management/v1/{prefix}/", $rest)
    };
}

mod management;

/// Schemas by name.
const SCHEMAS: &str = include_str!("../catalog_schemas.json");

/// Path of the catalog on a server.
const PREFIX: &str = "/catalog";

/// An operation of the catalog.
pub(in crate::r#gen) struct CatalogOperation {
    pub(in crate::r#gen) method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// Required right, or the required owner.
    right: &'static str,
    parameters: Vec<Value>,
    body: Option<(&'static str, &'static str)>,
    answers: Map<String, Value>,
    needs_token: bool,
}

/// Returns all schemas of the catalog.
///
/// # Errors
/// If the file is not a JSON object.
pub(in crate::r#gen) fn schemas() -> anyhow::Result<Map<String, Value>> {
    Ok(serde_json::from_str(SCHEMAS)?)
}

/// Returns the answers to failed requests, by name: of all operations, and of OAuth's operations.
pub(in crate::r#gen) fn failures() -> [(&'static str, Value); 2] {
    let failure = |schema, says| {
        let content = json!({ "application/json": { "schema": reference(schema) } });
        json!({ "description": says, "content": content })
    };
    let of_catalog = failure(
        "IcebergError",
        "It failed: 400, 401, 403, 404, 409, 410, 412, 422, 429, 500 or 503, as Iceberg's \
            interface says it.",
    );
    let of_oauth = failure("OauthError", "It failed: 400, 401, 429, 500 or 503.");
    [("CatalogError", of_catalog), ("OauthError", of_oauth)]
}

fn operation(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    right: &'static str,
) -> CatalogOperation {
    let parameters = path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| {
            json!({
                "name": name, "in": "path", "required": true,
                "description": described(name), "schema": { "type": "string" }
            })
        })
        .collect();
    let answers = Map::new();
    let body = None;
    CatalogOperation {
        method,
        path,
        id,
        summary,
        right,
        parameters,
        body,
        answers,
        needs_token: true,
    }
}

/// Returns the description of a path parameter.
fn described(name: &str) -> &'static str {
    match name {
        "prefix" => "The warehouse, by `prefix` of its settings, or by its name.",
        "namespace" => "Levels of the namespace, separated by U+001F (`%1F`).",
        "table" => "Name of the table.",
        "view" => "Name of the view.",
        "function" => "Name of the function.",
        "plan-id" => "`plan-id` of the plan.",
        "client" => "`client-id` of the client.",
        "key" => "`key-id` of the key.",
        "role" => "Name of the role.",
        "policy" => "Name of the policy.",
        "warehouse" => "Name of the warehouse.",
        "dropped" => "`id` or `uuid` of the dropped object.",
        "job" => "`id` of the job.",
        "aspect" => "`snapshots`, `history`, `refs`, `properties`, `schema` or `files`.",
        _ => "",
    }
}

impl CatalogOperation {
    fn asks(mut self, name: &str, kind: &str, description: &str) -> CatalogOperation {
        self.parameters.push(json!({
            "name": name, "in": "query", "required": false,
            "description": description, "schema": { "type": kind }
        }));
        self
    }

    fn header(mut self, name: &str, description: &str) -> CatalogOperation {
        self.parameters.push(json!({
            "name": name, "in": "header", "required": false,
            "description": description, "schema": { "type": "string" }
        }));
        self
    }

    /// Adds the parameters of paged lists.
    fn paged(self) -> CatalogOperation {
        self.asks(
            "pageToken",
            "string",
            "`next-page-token` of the previous page; empty for the first.",
        )
        .asks("pageSize", "integer", "Maximum number.")
    }

    /// Adds the parameter for the state at an earlier time.
    fn of_the_past(self) -> CatalogOperation {
        self.asks(
            "as-of",
            "string",
            "Number of a change, or a time (RFC 3339), whose state is returned.",
        )
    }

    fn takes(mut self, schema: &'static str) -> CatalogOperation {
        self.body = Some(("application/json", schema));
        self
    }

    fn takes_form(mut self, schema: &'static str) -> CatalogOperation {
        self.body = Some(("application/x-www-form-urlencoded", schema));
        self.needs_token = false;
        self
    }

    /// Adds the header by which a repeated change is made once.
    fn once(self) -> CatalogOperation {
        self.header("Idempotency-Key", "A UUID; repeated requests with it are carried out once.")
    }

    fn gives(mut self, status: u16, schema: &str, says: &str) -> CatalogOperation {
        let content = json!({ "application/json": { "schema": reference(schema) } });
        let answer = json!({ "description": says, "content": content });
        self.answers.insert(status.to_string(), answer);
        self
    }

    fn done(mut self, status: u16, says: &str) -> CatalogOperation {
        self.answers.insert(status.to_string(), json!({ "description": says }));
        self
    }

    /// Returns the path on the server.
    pub(in crate::r#gen) fn path(&self) -> String {
        format!("{PREFIX}{}", self.path)
    }

    pub(in crate::r#gen) fn into_value(self) -> Value {
        let is_managing = self.path.starts_with("/management/");
        let mut answers = self.answers;
        let failure = if self.needs_token { "CatalogError" } else { "OauthError" };
        let failure = json!({ "$ref": format!("#/components/responses/{failure}") });
        answers.insert("default".into(), failure);
        let mut value = json!({
            "operationId": self.id,
            "tags": [if is_managing { "catalog management" } else { "catalog" }],
            "summary": self.summary,
            "description": format!("Right: {}.", self.right),
            "responses": answers,
            "security": if self.needs_token { json!([{ "token": [] }]) } else { json!([]) },
        });
        if !self.parameters.is_empty() {
            value["parameters"] = self.parameters.into();
        }
        if let Some((kind, schema)) = self.body {
            let content = json!({ kind: { "schema": reference(schema) } });
            value["requestBody"] = json!({ "required": true, "content": content });
        }
        value
    }
}

const NAMESPACES: &str = "/v1/{prefix}/namespaces";
const NAMESPACE: &str = "/v1/{prefix}/namespaces/{namespace}";
const TABLES: &str = "/v1/{prefix}/namespaces/{namespace}/tables";
const VIEWS: &str = "/v1/{prefix}/namespaces/{namespace}/views";
const VIEW: &str = "/v1/{prefix}/namespaces/{namespace}/views/{view}";

/// Paths of a table.
macro_rules! table {
    ($rest:literal) => {
        concat!("/v1/{prefix}/namespaces/{namespace}/tables/{table}", $rest)
    };
}

/// Returns all operations, in the order of the page.
pub(in crate::r#gen) fn all() -> Vec<CatalogOperation> {
    let mut all = beginnings();
    all.extend(namespaces());
    all.extend(tables());
    all.extend(commits());
    all.extend(views());
    all.extend(scans());
    all.extend(functions());
    all.extend(management::all());
    all
}

fn beginnings() -> Vec<CatalogOperation> {
    vec![
        operation(
            "get",
            "/v1/config",
            "getCatalogConfig",
            "Get the initial settings of a client",
            "any token",
        )
        .asks("warehouse", "string", "Name of the warehouse; the configured one if absent.")
        .gives(200, "CatalogSettings", "Settings, with the prefix of the warehouse."),
        operation(
            "post",
            "/v1/oauth/tokens",
            "getCatalogToken",
            "Issue an access token to a client",
            "whoever shows credentials",
        )
        .takes_form("OauthTokenRequest")
        .gives(200, "OauthToken", "The token."),
        operation(
            "post",
            "/v1/oauth/revoke",
            "revokeCatalogToken",
            "Revoke a token",
            "the client that the token was issued for",
        )
        .takes_form("OauthRevocationRequest")
        .done(200, "The token is revoked."),
    ]
}

fn namespaces() -> Vec<CatalogOperation> {
    const LIST: &str = "`read` of what is listed";
    const IS: &str = "`read` of the namespace";
    const MANAGE: &str = "`manage` of the namespace";
    vec![
        operation("get", NAMESPACES, "listNamespaces", "List namespaces", LIST)
            .asks(
                "parent",
                "string",
                "Only those in this namespace; if absent, those of the first level.",
            )
            .paged()
            .of_the_past()
            .gives(200, "NamespaceList", "A page of the list."),
        operation(
            "post",
            NAMESPACES,
            "createNamespace",
            "Create a namespace",
            "`write` of the one it is in",
        )
        .once()
        .takes("CreateNamespaceRequest")
        .gives(200, "NamespaceDescription", "The namespace."),
        operation("get", NAMESPACE, "loadNamespace", "Get the properties of a namespace", IS)
            .gives(200, "NamespaceDescription", "The namespace."),
        operation("head", NAMESPACE, "namespaceExists", "Check whether a namespace exists", IS)
            .done(204, "It exists."),
        operation("delete", NAMESPACE, "dropNamespace", "Remove an empty namespace", MANAGE)
            .once()
            .done(204, "Removed."),
        operation(
            "post",
            "/v1/{prefix}/namespaces/{namespace}/properties",
            "updateNamespace",
            "Set and remove properties of a namespace",
            "`write` of the namespace",
        )
        .once()
        .takes("UpdateNamespaceRequest")
        .gives(200, "NamespaceUpdated", "The changed properties."),
    ]
}

fn tables() -> Vec<CatalogOperation> {
    const READ: &str = "`read` of the table";
    const WRITE: &str = "`write` of the namespace";
    const MANAGE: &str = "`manage` of the table";
    const DELEGATION: &str =
        "`vended-credentials` or `remote-signing`: how the client reaches files.";
    vec![
        operation("get", TABLES, "listTables", "List tables", "`read` of what is listed")
            .paged()
            .of_the_past()
            .gives(200, "TableIdentifierList", "A page of the list."),
        operation("post", TABLES, "createTable", "Create a table", WRITE)
            .header("X-Iceberg-Access-Delegation", DELEGATION)
            .once()
            .takes("CreateTableRequest")
            .gives(200, "LoadTableResult", "The table, or the staged table."),
        operation("get", table!(""), "loadTable", "Load a table", READ)
            .asks("snapshots", "string", "`all`, or `refs`: those that branches and tags name.")
            .asks("referenced-by", "string", "Views through which the table is read.")
            .of_the_past()
            .header("If-None-Match", "`ETag` of the client's copy.")
            .header("X-Iceberg-Access-Delegation", DELEGATION)
            .gives(200, "LoadTableResult", "The table.")
            .done(304, "The client's copy is current."),
        operation("head", table!(""), "tableExists", "Check whether a table exists", READ)
            .done(204, "It exists."),
        operation("delete", table!(""), "dropTable", "Remove a table", MANAGE)
            .asks("purgeRequested", "boolean", "Remove its files as well.")
            .once()
            .done(204, "Removed."),
        operation(
            "post",
            "/v1/{prefix}/namespaces/{namespace}/register",
            "registerTable",
            "Register a metadata file as a table",
            WRITE,
        )
        .once()
        .takes("RegisterRequest")
        .gives(200, "LoadTableResult", "The table."),
        operation(
            "post",
            table!("/unregister"),
            "unregisterTable",
            "Unregister a table; its files stay",
            MANAGE,
        )
        .once()
        .gives(200, "LoadTableResult", "The unregistered table."),
        operation(
            "post",
            "/v1/{prefix}/tables/rename",
            "renameTable",
            "Rename a table",
            "`manage` of the table, `write` where it goes",
        )
        .once()
        .takes("RenameRequest")
        .done(204, "Renamed."),
        operation(
            "get",
            table!("/credentials"),
            "loadCredentials",
            "Get credentials for a table's files",
            READ,
        )
        .gives(
            200,
            "LoadCredentialsResult",
            "Credentials limited to the client's privileges.",
        ),
        operation(
            "post",
            table!("/metrics"),
            "reportMetrics",
            "Report the metrics of a client",
            READ,
        )
        .takes("MetricsReport")
        .done(204, "The report is recorded."),
    ]
}

fn commits() -> Vec<CatalogOperation> {
    vec![
        operation(
            "post",
            table!(""),
            "commitTable",
            "Change a table, or create a staged one",
            "`write` of the table",
        )
        .once()
        .takes("CommitTableRequest")
        .gives(200, "CommitTableResult", "The changed table."),
        operation(
            "post",
            "/v1/{prefix}/transactions/commit",
            "commitTransaction",
            "Change several tables in one transaction",
            "`write` of each table",
        )
        .once()
        .takes("CommitTransactionRequest")
        .done(204, "All changes are committed."),
    ]
}

fn views() -> Vec<CatalogOperation> {
    const READ: &str = "`read` of the view";
    const WRITE: &str = "`write` of the namespace";
    vec![
        operation("get", VIEWS, "listViews", "List views", "`read` of what is listed")
            .paged()
            .of_the_past()
            .gives(200, "TableIdentifierList", "A page of the list."),
        operation("post", VIEWS, "createView", "Create a view", WRITE)
            .once()
            .takes("CreateViewRequest")
            .gives(200, "LoadViewResult", "The view."),
        operation("get", VIEW, "loadView", "Load a view", READ).of_the_past().gives(
            200,
            "LoadViewResult",
            "The view.",
        ),
        operation("head", VIEW, "viewExists", "Check whether a view exists", READ)
            .done(204, "It exists."),
        operation("post", VIEW, "replaceView", "Change a view", "`write` of the view")
            .once()
            .takes("CommitViewRequest")
            .gives(200, "LoadViewResult", "The changed view."),
        operation("delete", VIEW, "dropView", "Remove a view", "`manage` of the view")
            .once()
            .done(204, "Removed."),
        operation(
            "post",
            "/v1/{prefix}/views/rename",
            "renameView",
            "Rename a view",
            "`manage` of the view, `write` where it goes",
        )
        .once()
        .takes("RenameRequest")
        .done(204, "Renamed."),
        operation(
            "post",
            "/v1/{prefix}/namespaces/{namespace}/register-view",
            "registerView",
            "Register a metadata file as a view",
            WRITE,
        )
        .once()
        .takes("RegisterRequest")
        .gives(200, "LoadViewResult", "The view."),
    ]
}

fn scans() -> Vec<CatalogOperation> {
    const READ: &str = "`read` of the table";
    vec![
        operation("post", table!("/plan"), "planTableScan", "Plan a scan", READ)
            .takes("PlanScanRequest")
            .gives(200, "PlanScanResult", "The plan."),
        operation("get", table!("/plan/{plan-id}"), "fetchPlan", "Get a submitted plan", READ)
            .gives(200, "PlanScanResult", "The plan."),
        operation("delete", table!("/plan/{plan-id}"), "cancelPlan", "Cancel a plan", READ)
            .done(204, "Removed."),
        operation(
            "post",
            table!("/tasks"),
            "fetchScanTasks",
            "Fetch the files of a part of a plan",
            READ,
        )
        .takes("FetchTasksRequest")
        .gives(200, "ScanTasks", "The files."),
        operation(
            "post",
            table!("/sign"),
            "signRequest",
            "Sign a request for a table's files",
            "`read` of the table; `write` for one that changes something",
        )
        .takes("SignRequest")
        .gives(200, "SignResult", "The signed request."),
    ]
}

fn functions() -> Vec<CatalogOperation> {
    const PATH: &str = "/v1/{prefix}/namespaces/{namespace}/functions";
    const READ: &str = "`read` of the namespace";
    vec![
        operation("get", PATH, "listFunctions", "List functions", READ).paged().gives(
            200,
            "FunctionList",
            "A page of the list.",
        ),
        operation(
            "get",
            "/v1/{prefix}/namespaces/{namespace}/functions/{function}",
            "loadFunction",
            "Load a function",
            READ,
        )
        .gives(200, "LoadFunctionResult", "The function."),
        operation(
            "post",
            manage!("functions"),
            "putFunction",
            "Create or replace a function",
            "`write` of the namespace; `manage` to replace one",
        )
        .takes("CatalogFunctionRequest")
        .gives(200, "LoadFunctionResult", "The function."),
        operation(
            "delete",
            manage!("functions/{namespace}/{function}"),
            "dropFunction",
            "Remove a function",
            "`manage` of the namespace",
        )
        .done(204, "Removed."),
    ]
}
