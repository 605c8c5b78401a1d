//! What there is: one table for the routes, for what clients are told, and for the test that asks
//! of each operation which right it needs.

use std::sync::LazyLock;

use axum::routing::MethodFilter;

use super::polaris::{self, PolarisOp};

/// Where the catalog is on a server.
pub const PREFIX: &str = "/catalog";

/// A method that some operation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

impl Method {
    /// As requests say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }

    pub(super) const fn filter(self) -> MethodFilter {
        match self {
            Method::Get => MethodFilter::GET,
            Method::Head => MethodFilter::HEAD,
            Method::Post => MethodFilter::POST,
            Method::Put => MethodFilter::PUT,
            Method::Patch => MethodFilter::PATCH,
            Method::Delete => MethodFilter::DELETE,
        }
    }
}

/// One thing that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table below says what each is")]
pub enum Op {
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
    ListWarehouses,
    CreateWarehouse,
    LoadWarehouse,
    UpdateWarehouse,
    DeleteWarehouse,
    Inspect,
    ListMaintenance,
    StartMaintenance,
    LoadMaintenance,
    CancelMaintenance,
    Polaris(PolarisOp),
}

impl Op {
    /// Whether clients are told of it: it is Iceberg's, and it is there.
    #[must_use]
    pub const fn is_told(self) -> bool {
        match self {
            // Every client takes these for granted.
            Op::Config | Op::Token | Op::RevokeToken => false,
            Op::PutFunction | Op::DropFunction => false,
            Op::ListClients
            | Op::CreateClient
            | Op::RotateClient
            | Op::DeleteClient
            | Op::ListKeys
            | Op::CreateKey
            | Op::RotateKey
            | Op::DeleteKey
            | Op::ListRoles
            | Op::CreateRole
            | Op::ChangeMembers
            | Op::DeleteRole
            | Op::Audit
            | Op::ListPolicies
            | Op::PutPolicy
            | Op::DeletePolicy
            | Op::ListGrants
            | Op::Grant
            | Op::Revoke
            | Op::ListWarehouses
            | Op::CreateWarehouse
            | Op::LoadWarehouse
            | Op::UpdateWarehouse
            | Op::DeleteWarehouse
            | Op::ListDropped
            | Op::Undrop
            | Op::PurgeDropped
            | Op::LoadProtection
            | Op::Protect
            | Op::LoadRetention
            | Op::SetRetention
            | Op::Changes
            | Op::Inspect
            | Op::ListMaintenance
            | Op::StartMaintenance
            | Op::LoadMaintenance
            | Op::CancelMaintenance
            | Op::Polaris(_) => false,
            _ => true,
        }
    }
}

impl Op {
    /// Whether guests may ask for it: what Iceberg's clients do, and no way to keys or signatures.
    #[must_use]
    pub const fn is_for_guests(self) -> bool {
        match self {
            Op::Config => true,
            // Files are reached without.
            Op::LoadCredentials | Op::Sign => false,
            // It would take a table out of the warehouse with its files.
            Op::UnregisterTable => false,
            other => other.is_told(),
        }
    }
}

/// An operation and how it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Which.
    pub op: Op,
    /// By which method.
    pub method: Method,
    /// Behind [`PREFIX`], as Iceberg's specification writes it.
    pub path: &'static str,
}

pub(super) const fn get(path: &'static str, op: Op) -> Operation {
    Operation { op, method: Method::Get, path }
}

const fn head(path: &'static str, op: Op) -> Operation {
    Operation { op, method: Method::Head, path }
}

pub(super) const fn post(path: &'static str, op: Op) -> Operation {
    Operation { op, method: Method::Post, path }
}

pub(super) const fn put(path: &'static str, op: Op) -> Operation {
    Operation { op, method: Method::Put, path }
}

const fn patch(path: &'static str, op: Op) -> Operation {
    Operation { op, method: Method::Patch, path }
}

pub(super) const fn delete(path: &'static str, op: Op) -> Operation {
    Operation { op, method: Method::Delete, path }
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

const OPERATIONS: [Operation; 75] = [
    get("/v1/config", Op::Config),
    post("/v1/oauth/tokens", Op::Token),
    post("/v1/oauth/revoke", Op::RevokeToken),
    get(NAMESPACES, Op::ListNamespaces),
    post(NAMESPACES, Op::CreateNamespace),
    get(NAMESPACE, Op::LoadNamespace),
    head(NAMESPACE, Op::NamespaceExists),
    delete(NAMESPACE, Op::DropNamespace),
    post("/v1/{prefix}/namespaces/{namespace}/properties", Op::UpdateNamespace),
    get(TABLES, Op::ListTables),
    post(TABLES, Op::CreateTable),
    get(table!(""), Op::LoadTable),
    head(table!(""), Op::TableExists),
    post(table!(""), Op::CommitTable),
    delete(table!(""), Op::DropTable),
    post("/v1/{prefix}/namespaces/{namespace}/register", Op::RegisterTable),
    post(table!("/unregister"), Op::UnregisterTable),
    post("/v1/{prefix}/tables/rename", Op::RenameTable),
    get(table!("/credentials"), Op::LoadCredentials),
    post(table!("/metrics"), Op::ReportMetrics),
    post("/v1/{prefix}/transactions/commit", Op::CommitTransaction),
    get(VIEWS, Op::ListViews),
    post(VIEWS, Op::CreateView),
    get(VIEW, Op::LoadView),
    head(VIEW, Op::ViewExists),
    post(VIEW, Op::ReplaceView),
    delete(VIEW, Op::DropView),
    post("/v1/{prefix}/views/rename", Op::RenameView),
    post("/v1/{prefix}/namespaces/{namespace}/register-view", Op::RegisterView),
    post(table!("/plan"), Op::PlanScan),
    get(table!("/plan/{plan-id}"), Op::FetchPlan),
    delete(table!("/plan/{plan-id}"), Op::CancelPlan),
    post(table!("/tasks"), Op::FetchTasks),
    post(table!("/sign"), Op::Sign),
    get("/v1/{prefix}/namespaces/{namespace}/functions", Op::ListFunctions),
    get("/v1/{prefix}/namespaces/{namespace}/functions/{function}", Op::LoadFunction),
    post("/management/v1/{prefix}/functions", Op::PutFunction),
    delete("/management/v1/{prefix}/functions/{namespace}/{function}", Op::DropFunction),
    get(CLIENTS, Op::ListClients),
    post(CLIENTS, Op::CreateClient),
    post("/management/v1/clients/{client}/rotate", Op::RotateClient),
    delete("/management/v1/clients/{client}", Op::DeleteClient),
    get(KEYS, Op::ListKeys),
    post(KEYS, Op::CreateKey),
    post("/management/v1/clients/{client}/keys/{key}/rotate", Op::RotateKey),
    delete("/management/v1/clients/{client}/keys/{key}", Op::DeleteKey),
    get(ROLES, Op::ListRoles),
    post(ROLES, Op::CreateRole),
    post("/management/v1/roles/{role}/members", Op::ChangeMembers),
    delete(ROLE, Op::DeleteRole),
    get("/management/v1/audit", Op::Audit),
    get("/management/v1/{prefix}/policies", Op::ListPolicies),
    put(POLICY, Op::PutPolicy),
    delete(POLICY, Op::DeletePolicy),
    get(GRANTS, Op::ListGrants),
    post(GRANTS, Op::Grant),
    post("/management/v1/{prefix}/grants/revoke", Op::Revoke),
    get("/management/v1/{prefix}/dropped", Op::ListDropped),
    post("/management/v1/{prefix}/undrop", Op::Undrop),
    delete("/management/v1/{prefix}/dropped/{dropped}", Op::PurgeDropped),
    get(PROTECTION, Op::LoadProtection),
    post(PROTECTION, Op::Protect),
    get(RETENTION, Op::LoadRetention),
    post(RETENTION, Op::SetRetention),
    get("/management/v1/{prefix}/changes", Op::Changes),
    get(WAREHOUSES, Op::ListWarehouses),
    post(WAREHOUSES, Op::CreateWarehouse),
    get(WAREHOUSE, Op::LoadWarehouse),
    patch(WAREHOUSE, Op::UpdateWarehouse),
    delete(WAREHOUSE, Op::DeleteWarehouse),
    get("/management/v1/{prefix}/tables/{namespace}/{table}/{aspect}", Op::Inspect),
    get(JOBS, Op::ListMaintenance),
    post(JOBS, Op::StartMaintenance),
    get(JOB, Op::LoadMaintenance),
    delete(JOB, Op::CancelMaintenance),
];

/// With those of Polaris.
static ALL: LazyLock<Vec<Operation>> =
    LazyLock::new(|| OPERATIONS.into_iter().chain(polaris::OPERATIONS).collect());

/// All of them.
#[must_use]
pub fn operations() -> &'static [Operation] {
    &ALL
}

/// What clients are told that the catalog does: a JSON list of methods and paths.
pub(super) fn endpoints(is_there: fn(Op) -> bool) -> String {
    let told = OPERATIONS.iter().filter(|it| it.op.is_told() && is_there(it.op));
    let told = told.map(|it| format!("\"{} {}\"", it.method.name(), it.path));
    format!("[{}]", told.collect::<Vec<_>>().join(","))
}
