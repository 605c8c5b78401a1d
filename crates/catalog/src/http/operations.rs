//! The operations of the catalog: one table for the routes, for the listed endpoints, and for the
//! test of each operation's required right.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>
//! - <https://github.com/apache/polaris/blob/main/spec/polaris-management-service.yml>

use std::sync::LazyLock;

use api::operations::OperationMethod;

use super::polaris::{self, PolarisOp};

/// Path of the catalog on a server.
pub const PREFIX: &str = "/catalog";

/// An operation of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table below says what each is")]
pub enum CatalogOperation {
    Config,
    Token,
    RevokeToken,
    ListNamespaces,
    CreateNamespace,
    LoadNamespace,
    NamespaceExists,
    DropNamespace,
    UpdateNamespace,
    ListTables,
    CreateTable,
    LoadTable,
    TableExists,
    CommitTable,
    DropTable,
    RegisterTable,
    UnregisterTable,
    RenameTable,
    LoadCredentials,
    ReportMetrics,
    CommitTransaction,
    ListViews,
    CreateView,
    LoadView,
    ViewExists,
    ReplaceView,
    DropView,
    RenameView,
    RegisterView,
    PlanScan,
    FetchPlan,
    CancelPlan,
    FetchTasks,
    Sign,
    ListFunctions,
    LoadFunction,
    PutFunction,
    DropFunction,
    ListClients,
    CreateClient,
    RotateClient,
    DeleteClient,
    ListKeys,
    CreateKey,
    RotateKey,
    DeleteKey,
    ListRoles,
    CreateRole,
    ChangeMembers,
    DeleteRole,
    Audit,
    ListPolicies,
    PutPolicy,
    PreviewPolicy,
    DeletePolicy,
    ListGrants,
    Grant,
    Revoke,
    ListDropped,
    Undrop,
    PurgeDropped,
    LoadProtection,
    Protect,
    LoadRetention,
    SetRetention,
    Changes,
    Search,
    ListWarehouses,
    CreateWarehouse,
    LoadWarehouse,
    UpdateWarehouse,
    DeleteWarehouse,
    Inspect,
    TableStats,
    ListMaintenance,
    StartMaintenance,
    LoadMaintenance,
    CancelMaintenance,
    Polaris(PolarisOp),
}

impl CatalogOperation {
    /// Returns whether `GET /v1/config` lists it: it is Iceberg's, and it is implemented.
    #[must_use]
    pub const fn is_advertised(self) -> bool {
        match self {
            // Clients assume that these exist.
            CatalogOperation::Config | CatalogOperation::Token | CatalogOperation::RevokeToken => {
                false
            }
            CatalogOperation::PutFunction | CatalogOperation::DropFunction => false,
            CatalogOperation::ListClients
            | CatalogOperation::CreateClient
            | CatalogOperation::RotateClient
            | CatalogOperation::DeleteClient
            | CatalogOperation::ListKeys
            | CatalogOperation::CreateKey
            | CatalogOperation::RotateKey
            | CatalogOperation::DeleteKey
            | CatalogOperation::ListRoles
            | CatalogOperation::CreateRole
            | CatalogOperation::ChangeMembers
            | CatalogOperation::DeleteRole
            | CatalogOperation::Audit
            | CatalogOperation::ListPolicies
            | CatalogOperation::PutPolicy
            | CatalogOperation::PreviewPolicy
            | CatalogOperation::DeletePolicy
            | CatalogOperation::ListGrants
            | CatalogOperation::Grant
            | CatalogOperation::Revoke
            | CatalogOperation::ListWarehouses
            | CatalogOperation::CreateWarehouse
            | CatalogOperation::LoadWarehouse
            | CatalogOperation::UpdateWarehouse
            | CatalogOperation::DeleteWarehouse
            | CatalogOperation::ListDropped
            | CatalogOperation::Undrop
            | CatalogOperation::PurgeDropped
            | CatalogOperation::LoadProtection
            | CatalogOperation::Protect
            | CatalogOperation::LoadRetention
            | CatalogOperation::SetRetention
            | CatalogOperation::Changes
            | CatalogOperation::Search
            | CatalogOperation::Inspect
            | CatalogOperation::TableStats
            | CatalogOperation::ListMaintenance
            | CatalogOperation::StartMaintenance
            | CatalogOperation::LoadMaintenance
            | CatalogOperation::CancelMaintenance
            | CatalogOperation::Polaris(_) => false,
            _ => true,
        }
    }
}

impl CatalogOperation {
    /// Returns whether the response to a request with a key is stored and repeated. Changes of the
    /// log are recorded there, and a repeated request returns the present state; these operations
    /// are in no log, and their secrets are shown once.
    #[must_use]
    pub const fn keeps_answers(self) -> bool {
        match self {
            CatalogOperation::ChangeMembers
            | CatalogOperation::CreateRole
            | CatalogOperation::CreateWarehouse
            | CatalogOperation::Grant
            | CatalogOperation::Revoke
            | CatalogOperation::SetRetention => true,
            CatalogOperation::Polaris(op) => op.is_post(),
            other => other.gives_secret(),
        }
    }

    /// Returns whether the response has a secret that is shown once.
    #[must_use]
    pub const fn gives_secret(self) -> bool {
        match self {
            CatalogOperation::CreateClient
            | CatalogOperation::CreateKey
            | CatalogOperation::RotateClient
            | CatalogOperation::RotateKey => true,
            CatalogOperation::Polaris(op) => op.gives_secret(),
            _ => false,
        }
    }

    /// Returns whether guests may use it: the operations of Iceberg's clients, except those for
    /// keys and signatures.
    #[must_use]
    pub const fn is_for_guests(self) -> bool {
        match self {
            CatalogOperation::Config => true,
            // Guests access files without them.
            CatalogOperation::LoadCredentials | CatalogOperation::Sign => false,
            // It would remove a table with its files from the warehouse.
            CatalogOperation::UnregisterTable => false,
            other => other.is_advertised(),
        }
    }
}

/// An operation with its route.
#[derive(Clone, Copy, Debug)]
pub struct OperationEntry {
    /// Operation.
    pub op: CatalogOperation,
    /// HTTP method.
    pub method: OperationMethod,
    /// Path below [`PREFIX`], in the notation of Iceberg's specification.
    pub path: &'static str,
}

pub(super) const fn get(path: &'static str, op: CatalogOperation) -> OperationEntry {
    OperationEntry { op, method: OperationMethod::Get, path }
}

const fn head(path: &'static str, op: CatalogOperation) -> OperationEntry {
    OperationEntry { op, method: OperationMethod::Head, path }
}

pub(super) const fn post(path: &'static str, op: CatalogOperation) -> OperationEntry {
    OperationEntry { op, method: OperationMethod::Post, path }
}

pub(super) const fn put(path: &'static str, op: CatalogOperation) -> OperationEntry {
    OperationEntry { op, method: OperationMethod::Put, path }
}

const fn patch(path: &'static str, op: CatalogOperation) -> OperationEntry {
    OperationEntry { op, method: OperationMethod::Patch, path }
}

pub(super) const fn delete(path: &'static str, op: CatalogOperation) -> OperationEntry {
    OperationEntry { op, method: OperationMethod::Delete, path }
}

/// A table's path.
macro_rules! table {
    ($rest:literal) => {
        concat!("/v1/{prefix}/namespaces/{namespace}/tables/{table}", $rest)
    };
}

const NAMESPACES: &str = "/v1/{prefix}/namespaces";
const NAMESPACE: &str = "/v1/{prefix}/namespaces/{namespace}";
const TABLES: &str = "/v1/{prefix}/namespaces/{namespace}/tables";
const VIEWS: &str = "/v1/{prefix}/namespaces/{namespace}/views";
const VIEW: &str = "/v1/{prefix}/namespaces/{namespace}/views/{view}";
const CLIENTS: &str = "/management/v1/clients";
const KEYS: &str = "/management/v1/clients/{client}/keys";
const ROLES: &str = "/management/v1/roles";
const ROLE: &str = "/management/v1/roles/{role}";
const POLICY: &str = "/management/v1/{prefix}/policies/{policy}";
const WAREHOUSES: &str = "/management/v1/warehouses";
const WAREHOUSE: &str = "/management/v1/warehouses/{warehouse}";
const GRANTS: &str = "/management/v1/{prefix}/grants";

const PROTECTION: &str = "/management/v1/{prefix}/protection";
const JOBS: &str = "/management/v1/{prefix}/maintenance";
const JOB: &str = "/management/v1/{prefix}/maintenance/{job}";
const RETENTION: &str = "/management/v1/{prefix}/retention";

const OPERATIONS: [OperationEntry; 78] = [
    get("/v1/config", CatalogOperation::Config),
    post("/v1/oauth/tokens", CatalogOperation::Token),
    post("/v1/oauth/revoke", CatalogOperation::RevokeToken),
    get(NAMESPACES, CatalogOperation::ListNamespaces),
    post(NAMESPACES, CatalogOperation::CreateNamespace),
    get(NAMESPACE, CatalogOperation::LoadNamespace),
    head(NAMESPACE, CatalogOperation::NamespaceExists),
    delete(NAMESPACE, CatalogOperation::DropNamespace),
    post("/v1/{prefix}/namespaces/{namespace}/properties", CatalogOperation::UpdateNamespace),
    get(TABLES, CatalogOperation::ListTables),
    post(TABLES, CatalogOperation::CreateTable),
    get(table!(""), CatalogOperation::LoadTable),
    head(table!(""), CatalogOperation::TableExists),
    post(table!(""), CatalogOperation::CommitTable),
    delete(table!(""), CatalogOperation::DropTable),
    post("/v1/{prefix}/namespaces/{namespace}/register", CatalogOperation::RegisterTable),
    post(table!("/unregister"), CatalogOperation::UnregisterTable),
    post("/v1/{prefix}/tables/rename", CatalogOperation::RenameTable),
    get(table!("/credentials"), CatalogOperation::LoadCredentials),
    post(table!("/metrics"), CatalogOperation::ReportMetrics),
    post("/v1/{prefix}/transactions/commit", CatalogOperation::CommitTransaction),
    get(VIEWS, CatalogOperation::ListViews),
    post(VIEWS, CatalogOperation::CreateView),
    get(VIEW, CatalogOperation::LoadView),
    head(VIEW, CatalogOperation::ViewExists),
    post(VIEW, CatalogOperation::ReplaceView),
    delete(VIEW, CatalogOperation::DropView),
    post("/v1/{prefix}/views/rename", CatalogOperation::RenameView),
    post("/v1/{prefix}/namespaces/{namespace}/register-view", CatalogOperation::RegisterView),
    post(table!("/plan"), CatalogOperation::PlanScan),
    get(table!("/plan/{plan-id}"), CatalogOperation::FetchPlan),
    delete(table!("/plan/{plan-id}"), CatalogOperation::CancelPlan),
    post(table!("/tasks"), CatalogOperation::FetchTasks),
    post(table!("/sign"), CatalogOperation::Sign),
    get("/v1/{prefix}/namespaces/{namespace}/functions", CatalogOperation::ListFunctions),
    get("/v1/{prefix}/namespaces/{namespace}/functions/{function}", CatalogOperation::LoadFunction),
    post("/management/v1/{prefix}/functions", CatalogOperation::PutFunction),
    delete(
        "/management/v1/{prefix}/functions/{namespace}/{function}",
        CatalogOperation::DropFunction,
    ),
    get(CLIENTS, CatalogOperation::ListClients),
    post(CLIENTS, CatalogOperation::CreateClient),
    post("/management/v1/clients/{client}/rotate", CatalogOperation::RotateClient),
    delete("/management/v1/clients/{client}", CatalogOperation::DeleteClient),
    get(KEYS, CatalogOperation::ListKeys),
    post(KEYS, CatalogOperation::CreateKey),
    post("/management/v1/clients/{client}/keys/{key}/rotate", CatalogOperation::RotateKey),
    delete("/management/v1/clients/{client}/keys/{key}", CatalogOperation::DeleteKey),
    get(ROLES, CatalogOperation::ListRoles),
    post(ROLES, CatalogOperation::CreateRole),
    post("/management/v1/roles/{role}/members", CatalogOperation::ChangeMembers),
    delete(ROLE, CatalogOperation::DeleteRole),
    get("/management/v1/audit", CatalogOperation::Audit),
    get("/management/v1/{prefix}/policies", CatalogOperation::ListPolicies),
    put(POLICY, CatalogOperation::PutPolicy),
    post("/management/v1/{prefix}/policies/{policy}/preview", CatalogOperation::PreviewPolicy),
    delete(POLICY, CatalogOperation::DeletePolicy),
    get(GRANTS, CatalogOperation::ListGrants),
    post(GRANTS, CatalogOperation::Grant),
    post("/management/v1/{prefix}/grants/revoke", CatalogOperation::Revoke),
    get("/management/v1/{prefix}/dropped", CatalogOperation::ListDropped),
    post("/management/v1/{prefix}/undrop", CatalogOperation::Undrop),
    delete("/management/v1/{prefix}/dropped/{dropped}", CatalogOperation::PurgeDropped),
    get(PROTECTION, CatalogOperation::LoadProtection),
    post(PROTECTION, CatalogOperation::Protect),
    get(RETENTION, CatalogOperation::LoadRetention),
    post(RETENTION, CatalogOperation::SetRetention),
    get("/management/v1/{prefix}/changes", CatalogOperation::Changes),
    get("/management/v1/{prefix}/search", CatalogOperation::Search),
    get(WAREHOUSES, CatalogOperation::ListWarehouses),
    post(WAREHOUSES, CatalogOperation::CreateWarehouse),
    get(WAREHOUSE, CatalogOperation::LoadWarehouse),
    patch(WAREHOUSE, CatalogOperation::UpdateWarehouse),
    delete(WAREHOUSE, CatalogOperation::DeleteWarehouse),
    get("/management/v1/{prefix}/tables/{namespace}/{table}/{aspect}", CatalogOperation::Inspect),
    get("/management/v1/{prefix}/tables/{namespace}/{table}/stats", CatalogOperation::TableStats),
    get(JOBS, CatalogOperation::ListMaintenance),
    post(JOBS, CatalogOperation::StartMaintenance),
    get(JOB, CatalogOperation::LoadMaintenance),
    delete(JOB, CatalogOperation::CancelMaintenance),
];

/// Including the operations of Polaris.
static ALL: LazyLock<Vec<OperationEntry>> =
    LazyLock::new(|| OPERATIONS.into_iter().chain(polaris::OPERATIONS).collect());

/// Returns all operations.
#[must_use]
pub fn operations() -> &'static [OperationEntry] {
    &ALL
}

/// Returns the endpoints of `GET /v1/config`: a JSON list of methods and paths.
pub(super) fn endpoints(is_there: fn(CatalogOperation) -> bool) -> String {
    let advertised = OPERATIONS.iter().filter(|it| it.op.is_advertised() && is_there(it.op));
    let advertised = advertised.map(|it| format!("\"{} {}\"", it.method.name(), it.path));
    format!("[{}]", advertised.collect::<Vec<_>>().join(","))
}
