//! The catalog over HTTP: parse, call, reply. `/catalog` has Iceberg's own paths, as its
//! specification defines them, and `/catalog/management` those for clients and grants.
//!
//! Every response with a status of 400 or above has Iceberg's error envelope, including those of
//! the shell; only the token operation responds as OAuth 2 specifies.
//!
//! | file | what it is |
//! |---|---|
//! | `operations` | the table of operations: routes, listed endpoints, unsupported ones |
//! | `request`, `answer` | parts of a request; envelopes, lists, documents in parts |
//! | `at_once` | requests that are served from memory before they are routed |
//! | `suffix` | the part of a table's response that depends on the principal |
//! | `namespaces`, `tables`, `views`, `plans`, `functions` | the operations |
//! | `delegation` | client access to a table's files |
//! | `guests` | the same operations for guests, identified by their listener |
//! | `oauth`, `manage` | access tokens; clients and grants |
//! | `identities`, `warehouses` | API keys and roles; warehouses |
//! | `dropped`, `changes`, `moment` | dropped objects; changes; past moments |
//! | `policies`, `audit` | read restrictions of tables; the audit log |
//! | `polaris` | Polaris's management |
//! | `inspect`, `maintenance` | a table's metadata in rows; maintenance jobs |
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

mod answer;
mod at_once;
mod audit;
mod changes;
mod delegation;
mod dropped;
mod functions;
mod guests;
mod identities;
mod inspect;
mod maintenance;
mod manage;
mod moment;
mod namespaces;
mod oauth;
mod operations;
mod plans;
mod polaris;
mod policies;
mod request;
mod search;
mod suffix;
mod tables;
#[cfg(test)]
mod tests;
mod views;
mod warehouses;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts as _;
use axum::extract::{DefaultBodyLimit, FromRequest as _, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::on;
use bytes::Bytes;
use node::fair;
use node::http::{self, CompatFace, CredentialBinding, FastPath, IdempotencyKeys, UploadBody};

pub use self::answer::render as render_error;
use self::audit::{AuditTrace, CredentialsMarker};
pub(crate) use self::guests::{no_route, routes as guest_routes};
pub use self::moment::time_ms;
pub use self::operations::{CatalogOperation, OperationEntry, PREFIX, operations};
pub use self::plans::{PlanReference, plan_in, plan_of};
pub use self::polaris::PolarisOp;
pub use self::request::BODY_BYTES_MAX;
use self::request::CatalogRequest;
use crate::access::AccessControl;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::{Catalog, CatalogPrincipal, IdempotencyKey, KEY_LIFETIME};
pub use crate::shell::from_shell;
pub(crate) use crate::shell::header_value;

/// Default separator of a namespace's levels in a path.
pub const SEPARATOR_DEFAULT: &str = "\u{1f}";

/// Routes whose bodies are limited by [`BODY_BYTES_MAX`] alone; the shell needs the list.
pub const STREAMING: [&str; 4] = [
    "/catalog/v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "/catalog/v1/{prefix}/transactions/commit",
    "/catalog/polaris/api/catalog/v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "/catalog/polaris/api/catalog/v1/{prefix}/transactions/commit",
];

/// Path behind [`PREFIX`] at which Iceberg's own paths are repeated, for tools that expect them
/// where Polaris has them.
const POLARIS: &str = "/polaris/api/catalog";

/// Prefix of Iceberg's own paths.
const ICEBERG: &str = "/v1/";

/// State shared by requests.
pub(crate) struct HttpContext {
    catalog: Catalog,
    access: AccessControl,
    /// Additional separator of a namespace's levels in a path, beside the default one.
    separator: Box<str>,
    /// Endpoints that `GET /v1/config` lists, as JSON.
    endpoints: Box<str>,
    /// Stored responses by idempotency key, if they are enabled.
    keys: Option<IdempotencyKeys>,
}

/// Returns how the shell treats paths below [`PREFIX`]: this interface authenticates requests
/// itself.
#[must_use]
pub fn face() -> CompatFace {
    CompatFace { access: http::FaceAccess::Own, render: Some(render_error), ..CompatFace::NATIVE }
}

/// Returns the routes below [`PREFIX`], and the handler that serves some of them from memory.
/// `separator` divides the levels of a namespace in a path, in addition to [`SEPARATOR_DEFAULT`].
/// `keys` store the responses of [`CatalogOperation::keeps_answers`].
pub fn routes(
    catalog: Catalog,
    access: AccessControl,
    separator: &str,
    keys: Option<IdempotencyKeys>,
) -> (Router, Arc<dyn FastPath>) {
    let context = Arc::new(HttpContext {
        catalog,
        access,
        separator: separator.into(),
        endpoints: operations::endpoints(|_| true).into(),
        keys,
    });
    let mut router = Router::new();
    for operation in operations() {
        let handler = move |State(context): State<Arc<HttpContext>>, request: Request| async move {
            // Boxed: the futures of operations differ much in size, and every connection holds one.
            Box::pin(answer(&context, operation, request)).await
        };
        let path = format!("{PREFIX}{}", operation.path);
        router = router.route(&path, on(http::method_filter(operation.method), handler));
        if operation.path.starts_with(ICEBERG) {
            let path = format!("{PREFIX}{POLARIS}{}", operation.path);
            router = router.route(&path, on(http::method_filter(operation.method), handler));
        }
    }
    // `Upload` has its own limits.
    let router = router.layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&context));
    (router, context)
}

async fn answer(
    context: &Arc<HttpContext>,
    operation: &OperationEntry,
    request: Request,
) -> Response {
    let op = operation.op;
    let trace = AuditTrace::of(&request);
    let mut who = None;
    let (response, refusal) = match op {
        CatalogOperation::Token => (Box::pin(oauth::reply(context, request, &mut who)).await, None),
        CatalogOperation::RevokeToken => {
            (Box::pin(oauth::reply_to_revoke(context, request, &mut who)).await, None)
        }
        // Done before the request is examined, so that unauthenticated clients learn nothing.
        _ => match context.access.identify(request.headers()).await {
            Ok(known) => {
                let known = who.insert(known);
                fair::identify(&known.id);
                // The stream of changes reports the end of a credential itself.
                if op != CatalogOperation::Changes {
                    let revocation = context.access.revocation(request.headers(), known);
                    CredentialBinding::of(request.extensions()).bind(revocation);
                }
                refusable(perform(context, op, known.clone(), request).await)
            }
            Err(error) => refusable(Err(error)),
        },
    };
    trace.write(context, operation, who.as_ref(), &response, refusal);
    response
}

/// Returns the response to a request, and the type of its error, if any.
fn refusable(done: Result<Response>) -> (Response, Option<&'static str>) {
    match done {
        Ok(response) => (response, None),
        Err(error) => (answer::refusal(&error), Some(error.kind.name())),
    }
}

async fn perform(
    context: &Arc<HttpContext>,
    op: CatalogOperation,
    who: CatalogPrincipal,
    request: Request,
) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    let params = params(&mut parts).await?;
    let body = match parts.method.as_str() {
        "POST" | "PUT" | "PATCH" => {
            Box::pin(read_body(Request::from_parts(parts.clone(), body))).await?
        }
        _ => Bytes::new(),
    };
    if let Some(keys) = context.keys.as_ref().filter(|_| op.keeps_answers())
        && let Some(key) = request::key_of(&parts, &body)?
    {
        let (keys, context, owner) =
            (keys.clone(), Arc::clone(context), format!("catalog {}", who.id));
        let act = async move {
            let input = CatalogRequest::new(&context, who, &parts, &params, body)?;
            dispatch(op, &input).await
        };
        return Box::pin(perform_once(keys, &owner, key, op, act)).await;
    }
    let input = CatalogRequest::new(context, who, &parts, &params, body)?;
    dispatch(op, &input).await
}

/// Carries a request out once for its key, to the end, and repeats the same response.
async fn perform_once(
    keys: IdempotencyKeys,
    owner: &str,
    key: IdempotencyKey,
    op: CatalogOperation,
    act: impl Future<Output = Result<Response>> + Send + 'static,
) -> Result<Response> {
    let (owner, name) = (owner.to_owned(), key.key.to_string());
    let work = async move { keys.answer_once(&owner, &name, key.hash, act).await };
    let done = node::task::to_the_end(work).await.map_err(|error| {
        let message = "the request was aborted: its outcome is unknown";
        CatalogError::caused(ErrorReason::CommitStateUnknown, message, error)
    })?;
    let mut response = done.map_err(|refused| match refused.status().as_u16() {
        409 => CatalogError::new(
            ErrorReason::UnprocessableEntity,
            format!("the Idempotency-Key cannot be used: {refused}"),
        ),
        _ => from_shell(&refused),
    })??;
    // Also for the stored response of an earlier request.
    if op.gives_secret() {
        response.extensions_mut().insert(CredentialsMarker);
    }
    Ok(response)
}

/// Returns the parameters of a path.
async fn params(parts: &mut Parts) -> Result<RawPathParams> {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    params.map_err(|_| {
        CatalogError::new(ErrorReason::BadRequest, "the path is not UTF-8 once it is decoded")
    })
}

async fn dispatch(op: CatalogOperation, input: &CatalogRequest<'_>) -> Result<Response> {
    input.seek_warehouse().await?;
    let mut response = carry_out(op, input).await?;
    // A response of "not modified" contains no credentials.
    if input.has_credentials() && response.status().is_success() {
        response.extensions_mut().insert(CredentialsMarker);
    }
    Ok(response)
}

/// Runs the frequent operations inline. A future is as large as its largest part, and is moved
/// before it is polled: the others are boxed.
async fn carry_out(op: CatalogOperation, input: &CatalogRequest<'_>) -> Result<Response> {
    match op {
        CatalogOperation::LoadTable => tables::load(input).await,
        CatalogOperation::LoadView => views::load(input).await,
        CatalogOperation::ListTables => tables::list(input).await,
        CatalogOperation::LoadNamespace => namespaces::load(input).await,
        _ => Box::pin(carry_out_rarer(op, input)).await,
    }
}

async fn carry_out_rarer(op: CatalogOperation, input: &CatalogRequest<'_>) -> Result<Response> {
    match op {
        CatalogOperation::LoadTable
        | CatalogOperation::LoadView
        | CatalogOperation::ListTables
        | CatalogOperation::LoadNamespace => Err(CatalogError::internal("it is done elsewhere")),
        CatalogOperation::Config => config(input),
        CatalogOperation::Token | CatalogOperation::RevokeToken => {
            Err(CatalogError::internal("this endpoint issues no tokens"))
        }
        CatalogOperation::ListNamespaces => namespaces::list(input).await,
        CatalogOperation::CreateNamespace => namespaces::create(input).await,
        CatalogOperation::NamespaceExists => namespaces::exists(input).await,
        CatalogOperation::DropNamespace => namespaces::drop(input).await,
        CatalogOperation::UpdateNamespace => namespaces::update(input).await,
        CatalogOperation::CreateTable => tables::create(input).await,
        CatalogOperation::TableExists => tables::exists(input).await,
        CatalogOperation::CommitTable => tables::commit(input).await,
        CatalogOperation::DropTable => tables::drop(input).await,
        CatalogOperation::RegisterTable => tables::register(input).await,
        CatalogOperation::UnregisterTable => tables::unregister(input).await,
        CatalogOperation::RenameTable => tables::rename(input).await,
        CatalogOperation::LoadCredentials => delegation::credentials(input).await,
        CatalogOperation::Sign => delegation::sign(input).await,
        CatalogOperation::ReportMetrics => tables::report(input).await,
        CatalogOperation::CommitTransaction => tables::commit_all(input).await,
        CatalogOperation::ListViews => views::list(input).await,
        CatalogOperation::CreateView => views::create(input).await,
        CatalogOperation::ViewExists => views::exists(input).await,
        CatalogOperation::ReplaceView => views::replace(input).await,
        CatalogOperation::DropView => views::drop(input).await,
        CatalogOperation::RenameView => views::rename(input).await,
        CatalogOperation::RegisterView => views::register(input).await,
        CatalogOperation::PlanScan => plans::plan(input).await,
        CatalogOperation::FetchPlan => plans::fetch(input).await,
        CatalogOperation::CancelPlan => plans::cancel(input).await,
        CatalogOperation::FetchTasks => plans::tasks(input).await,
        CatalogOperation::ListFunctions => functions::list(input).await,
        CatalogOperation::LoadFunction => functions::load(input).await,
        CatalogOperation::PutFunction => functions::put(input).await,
        CatalogOperation::DropFunction => functions::drop(input).await,
        CatalogOperation::ListClients => manage::list_clients(input),
        CatalogOperation::CreateClient => manage::create_client(input).await,
        CatalogOperation::RotateClient => manage::rotate_client(input).await,
        CatalogOperation::DeleteClient => manage::delete_client(input).await,
        CatalogOperation::ListKeys => identities::list_keys(input),
        CatalogOperation::CreateKey => identities::create_key(input).await,
        CatalogOperation::RotateKey => identities::rotate_key(input).await,
        CatalogOperation::DeleteKey => identities::delete_key(input).await,
        CatalogOperation::ListRoles => identities::list_roles(input),
        CatalogOperation::CreateRole => identities::create_role(input).await,
        CatalogOperation::ChangeMembers => identities::change_members(input).await,
        CatalogOperation::DeleteRole => identities::delete_role(input).await,
        CatalogOperation::ListPolicies => policies::list(input),
        CatalogOperation::PutPolicy => policies::put(input).await,
        CatalogOperation::PreviewPolicy => policies::preview(input).await,
        CatalogOperation::DeletePolicy => policies::delete(input).await,
        CatalogOperation::Audit => audit::list(input).await,
        CatalogOperation::ListGrants => manage::list_grants(input).await,
        CatalogOperation::Grant => manage::grant(input).await,
        CatalogOperation::Revoke => manage::revoke(input).await,
        CatalogOperation::ListDropped => dropped::list(input).await,
        CatalogOperation::Undrop => dropped::undrop(input).await,
        CatalogOperation::PurgeDropped => dropped::purge(input).await,
        CatalogOperation::LoadProtection => dropped::protection(input).await,
        CatalogOperation::Protect => dropped::protect(input).await,
        CatalogOperation::LoadRetention => dropped::retention(input).await,
        CatalogOperation::SetRetention => dropped::set_retention(input).await,
        CatalogOperation::Changes => changes::changes(input).await,
        CatalogOperation::Search => search::search(input).await,
        CatalogOperation::ListWarehouses => warehouses::list(input).await,
        CatalogOperation::CreateWarehouse => warehouses::create(input).await,
        CatalogOperation::LoadWarehouse => warehouses::load(input).await,
        CatalogOperation::UpdateWarehouse => warehouses::update(input).await,
        CatalogOperation::DeleteWarehouse => warehouses::delete(input).await,
        CatalogOperation::Inspect => inspect::inspect(input).await,
        CatalogOperation::TableStats => inspect::stats(input).await,
        CatalogOperation::ListMaintenance => maintenance::list(input).await,
        CatalogOperation::StartMaintenance => maintenance::start(input).await,
        CatalogOperation::LoadMaintenance => maintenance::load(input).await,
        CatalogOperation::CancelMaintenance => maintenance::cancel(input).await,
        CatalogOperation::Polaris(op) => polaris::carry_out(op, input).await,
    }
}

async fn read_body(request: Request) -> Result<Bytes> {
    check_encoding(request.headers())?;
    let upload =
        UploadBody::from_request(request, &()).await.map_err(|error| from_shell(&error))?;
    upload.all(BODY_BYTES_MAX).await.map_err(|error| from_shell(&error))
}

/// Rejects an encoded body (RFC 9110 §8.4): limits of bodies apply to the received bytes.
fn check_encoding(headers: &HeaderMap) -> Result<()> {
    let values = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut codings = values.flat_map(|it| it.to_str().unwrap_or("?").split(','));
    match codings.find(|it| !it.trim().eq_ignore_ascii_case("identity")) {
        None => Ok(()),
        Some(coding) => {
            let message = format!(
                "the content encoding `{:.40}` is not supported: send the body without encoding",
                coding.trim()
            );
            Err(CatalogError::new(ErrorReason::UnsupportedEncoding, message))
        }
    }
}

/// Returns the configuration that a client loads first. The warehouse becomes part of its paths.
fn config(input: &CatalogRequest<'_>) -> Result<Response> {
    let catalog = &input.context.catalog;
    let named = input.query("warehouse")?.filter(|name| !name.is_empty());
    let warehouse = match (named, input.session) {
        (Some(name), Some(session)) => {
            session.require_named(name)?;
            session.warehouse()?
        }
        (None, Some(session)) => session.warehouse()?,
        (Some(name), None) => catalog.warehouses().get(name)?,
        (None, None) => catalog.default_warehouse()?,
    };
    let mut overrides = serde_json::Map::new();
    for (name, value) in input.session.iter().flat_map(|it| it.file_settings(&warehouse)) {
        overrides.insert(name.to_owned(), value.into());
    }
    overrides.insert("prefix".to_owned(), request::encoded(warehouse.name()).into());
    let separator = &input.context.separator;
    if **separator != *SEPARATOR_DEFAULT {
        let separator = request::encoded(separator);
        overrides.insert("namespace-separator".to_owned(), separator.into());
    }
    let overrides = serde_json::Value::from(overrides);
    let lifetime = format!("PT{}S", KEY_LIFETIME.as_secs());
    let endpoints = &input.context.endpoints;
    let capabilities =
        format!(r#""endpoints":{endpoints},"idempotency-key-lifetime":"{lifetime}""#);
    let text = format!(r#"{{"defaults":{{}},"overrides":{overrides},{capabilities}}}"#);
    Ok(answer::of_json(text.into()))
}
