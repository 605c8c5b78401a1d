//! The catalog by HTTP: parse, call, reply. Below `/catalog` are Iceberg's own paths, as its
//! specification has them, and `/catalog/management` for clients and grants.
//!
//! Every answer with a status of 400 or above has Iceberg's envelope, those of the shell too; only
//! the token operation answers as OAuth 2 has it.
//!
//! | file | what it is |
//! |---|---|
//! | `operations` | the table of what there is: routes, what clients are told of, what is missing |
//! | `request`, `answer` | what a request says; envelopes, lists, documents in pieces |
//! | `at_once` | what is answered from memory before it is routed |
//! | `tail` | what an answer with a table says for one principal |
//! | `namespaces`, `tables`, `views`, `plans`, `functions` | the operations |
//! | `delegation` | how a client gets at a table's files |
//! | `guests` | the same operations for those who come in by a socket of their own |
//! | `oauth`, `manage` | access tokens; clients and grants |
//! | `identities`, `warehouses` | API keys and roles; warehouses |
//! | `dropped`, `changes`, `moment` | what was dropped; what has changed; the past |
//! | `policies`, `audit` | what is shown of tables to whom; who did what |
//! | `polaris` | Polaris's management |
//! | `inspect`, `maintenance` | a table's metadata in rows; jobs that look after tables |

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
mod tables;
mod tail;
#[cfg(test)]
mod tests;
mod views;
mod warehouses;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts as _;
use axum::extract::{DefaultBodyLimit, FromRequest as _, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::on;
use bytes::Bytes;
use node::http::{self, CredentialBinding, Face, FastPath, Upload};

pub use self::answer::{from_shell, render as render_error};
use self::audit::{Given, Trace};
pub(crate) use self::guests::{no_route, routes as guest_routes};
pub use self::moment::time_ms;
pub use self::operations::{Op, Operation, PREFIX, operations};
pub use self::polaris::PolarisOp;
pub use self::request::BODY_BYTES_MAX;
use self::request::Input;
use crate::access::Access;
use crate::error::{Error, Kind, Result};
use crate::service::{Catalog, KEY_LIFETIME, Who};

/// Divides the levels of a namespace in a path where nothing else was said.
pub const SEPARATOR_DEFAULT: &str = "\u{1f}";

/// Routes whose bodies are bounded by [`BODY_BYTES_MAX`] alone: the shell has to know them.
pub const STREAMING: [&str; 4] = [
    "/catalog/v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "/catalog/v1/{prefix}/transactions/commit",
    "/catalog/polaris/api/catalog/v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "/catalog/polaris/api/catalog/v1/{prefix}/transactions/commit",
];

/// Where, behind [`PREFIX`], Iceberg's own paths are once more, for tools that expect them where
/// Polaris has them.
const POLARIS: &str = "/polaris/api/catalog";

/// What Iceberg's own paths begin with.
const ICEBERG: &str = "/v1/";

/// What requests share.
pub(crate) struct Ground {
    catalog: Catalog,
    access: Access,
    /// Divides the levels of a namespace in a path, beside the character that always does.
    separator: Box<str>,
    /// What clients are told the catalog does, as JSON.
    endpoints: Box<str>,
}

/// How the shell treats what is below [`PREFIX`]: this face finds out itself who makes a request.
#[must_use]
pub fn face() -> Face {
    Face { access: http::Access::Own, render: Some(render_error), scope: None }
}

/// Everything below [`PREFIX`], and what answers some of it from memory. `separator` divides the
/// levels of a namespace in a path, in addition to [`SEPARATOR_DEFAULT`].
pub fn routes(catalog: Catalog, access: Access, separator: &str) -> (Router, Arc<dyn FastPath>) {
    let ground = Arc::new(Ground {
        catalog,
        access,
        separator: separator.into(),
        endpoints: operations::endpoints(|_| true).into(),
    });
    let mut router = Router::new();
    for operation in operations() {
        let handler = move |State(ground): State<Arc<Ground>>, request: Request| async move {
            // Boxed: operations differ much in size, and every connection holds one.
            Box::pin(answer(&ground, operation, request)).await
        };
        let path = format!("{PREFIX}{}", operation.path);
        router = router.route(&path, on(operation.method.filter(), handler));
        if operation.path.starts_with(ICEBERG) {
            let path = format!("{PREFIX}{POLARIS}{}", operation.path);
            router = router.route(&path, on(operation.method.filter(), handler));
        }
    }
    // `Upload` has bounds of its own.
    let router = router.layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&ground));
    (router, ground)
}

async fn answer(ground: &Ground, operation: &Operation, request: Request) -> Response {
    let op = operation.op;
    let trace = Trace::of(&request);
    let mut who = None;
    let (response, refusal) = match op {
        Op::Token => (Box::pin(oauth::reply(ground, request, &mut who)).await, None),
        Op::RevokeToken => {
            (Box::pin(oauth::reply_to_revoke(ground, request, &mut who)).await, None)
        }
        // Before anything of the request is looked at, so that strangers learn nothing.
        _ => match ground.access.identify(request.headers()).await {
            Ok(known) => {
                let known = who.insert(known);
                // Followers of changes are told by themselves why they are told no more.
                if op != Op::Changes {
                    let revocation = ground.access.revocation(request.headers(), known);
                    CredentialBinding::of(request.extensions()).bind(revocation);
                }
                refusable(perform(ground, op, known.clone(), request).await)
            }
            Err(error) => refusable(Err(error)),
        },
    };
    trace.write(ground, operation, who.as_ref(), (&response, refusal));
    response
}

/// The answer to a request, and the type of the error that it is.
fn refusable(done: Result<Response>) -> (Response, Option<&'static str>) {
    match done {
        Ok(response) => (response, None),
        Err(error) => (answer::refusal(&error), Some(error.kind.name())),
    }
}

async fn perform(ground: &Ground, op: Op, who: Who, request: Request) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    let params = params(&mut parts).await?;
    let body = match parts.method.as_str() {
        "POST" | "PUT" | "PATCH" => {
            Box::pin(read_body(Request::from_parts(parts.clone(), body))).await?
        }
        _ => Bytes::new(),
    };
    let input = Input::new(ground, who, &parts, &params, body)?;
    obey(op, &input).await
}

/// The parts of a path that an operation names.
async fn params(parts: &mut Parts) -> Result<RawPathParams> {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    params.map_err(|_| Error::new(Kind::BadRequest, "the path is not UTF-8 once it is decoded"))
}

async fn obey(op: Op, input: &Input<'_>) -> Result<Response> {
    input.seek_warehouse().await?;
    let mut response = carry_out(op, input).await?;
    // That nothing has changed gives nothing.
    if input.has_given() && response.status().is_success() {
        response.extensions_mut().insert(Given);
    }
    Ok(response)
}

/// Does what is asked for again and again where it stands. A future is as large as what is largest
/// in it, and is moved before it is polled: the others have places of their own.
async fn carry_out(op: Op, input: &Input<'_>) -> Result<Response> {
    match op {
        Op::LoadTable => tables::load(input).await,
        Op::LoadView => views::load(input).await,
        Op::ListTables => tables::list(input).await,
        Op::LoadNamespace => namespaces::load(input).await,
        _ => Box::pin(carry_out_rarer(op, input)).await,
    }
}

#[expect(clippy::too_many_lines, reason = "a line for each operation that there is")]
async fn carry_out_rarer(op: Op, input: &Input<'_>) -> Result<Response> {
    match op {
        Op::LoadTable | Op::LoadView | Op::ListTables | Op::LoadNamespace => {
            Err(Error::internal("it is done elsewhere"))
        }
        Op::Config => config(input),
        Op::Token | Op::RevokeToken => Err(Error::internal("tokens are not asked for here")),
        Op::ListNamespaces => namespaces::list(input).await,
        Op::CreateNamespace => namespaces::create(input).await,
        Op::NamespaceExists => namespaces::exists(input).await,
        Op::DropNamespace => namespaces::drop(input).await,
        Op::UpdateNamespace => namespaces::update(input).await,
        Op::CreateTable => tables::create(input).await,
        Op::TableExists => tables::exists(input).await,
        Op::CommitTable => tables::commit(input).await,
        Op::DropTable => tables::drop(input).await,
        Op::RegisterTable => tables::register(input).await,
        Op::UnregisterTable => tables::unregister(input).await,
        Op::RenameTable => tables::rename(input).await,
        Op::LoadCredentials => delegation::credentials(input).await,
        Op::Sign => delegation::sign(input).await,
        Op::ReportMetrics => tables::report(input).await,
        Op::CommitTransaction => tables::commit_all(input).await,
        Op::ListViews => views::list(input).await,
        Op::CreateView => views::create(input).await,
        Op::ViewExists => views::exists(input).await,
        Op::ReplaceView => views::replace(input).await,
        Op::DropView => views::drop(input).await,
        Op::RenameView => views::rename(input).await,
        Op::RegisterView => views::register(input).await,
        Op::PlanScan => plans::plan(input).await,
        Op::FetchPlan => plans::fetch(input).await,
        Op::CancelPlan => plans::cancel(input).await,
        Op::FetchTasks => plans::tasks(input).await,
        Op::ListFunctions => functions::list(input).await,
        Op::LoadFunction => functions::load(input).await,
        Op::PutFunction => functions::put(input).await,
        Op::DropFunction => functions::drop(input).await,
        Op::ListClients => manage::list_clients(input),
        Op::CreateClient => manage::create_client(input).await,
        Op::RotateClient => manage::rotate_client(input).await,
        Op::DeleteClient => manage::delete_client(input).await,
        Op::ListKeys => identities::list_keys(input),
        Op::CreateKey => identities::create_key(input).await,
        Op::RotateKey => identities::rotate_key(input).await,
        Op::DeleteKey => identities::delete_key(input).await,
        Op::ListRoles => identities::list_roles(input),
        Op::CreateRole => identities::create_role(input).await,
        Op::ChangeMembers => identities::change_members(input).await,
        Op::DeleteRole => identities::delete_role(input).await,
        Op::ListPolicies => policies::list(input),
        Op::PutPolicy => policies::put(input).await,
        Op::DeletePolicy => policies::delete(input).await,
        Op::Audit => audit::list(input).await,
        Op::ListGrants => manage::list_grants(input).await,
        Op::Grant => manage::grant(input).await,
        Op::Revoke => manage::revoke(input).await,
        Op::ListDropped => dropped::list(input).await,
        Op::Undrop => dropped::undrop(input).await,
        Op::PurgeDropped => dropped::purge(input).await,
        Op::LoadProtection => dropped::protection(input).await,
        Op::Protect => dropped::protect(input).await,
        Op::LoadRetention => dropped::retention(input).await,
        Op::SetRetention => dropped::set_retention(input).await,
        Op::Changes => changes::changes(input).await,
        Op::ListWarehouses => warehouses::list(input).await,
        Op::CreateWarehouse => warehouses::create(input).await,
        Op::LoadWarehouse => warehouses::load(input).await,
        Op::UpdateWarehouse => warehouses::update(input).await,
        Op::DeleteWarehouse => warehouses::delete(input).await,
        Op::Inspect => inspect::inspect(input).await,
        Op::ListMaintenance => maintenance::list(input).await,
        Op::StartMaintenance => maintenance::start(input).await,
        Op::LoadMaintenance => maintenance::load(input).await,
        Op::CancelMaintenance => maintenance::cancel(input).await,
        Op::Polaris(op) => polaris::carry_out(op, input).await,
    }
}

async fn read_body(request: Request) -> Result<Bytes> {
    check_encoding(request.headers())?;
    let upload = Upload::from_request(request, &()).await.map_err(|error| from_shell(&error))?;
    upload.all(BODY_BYTES_MAX).await.map_err(|error| from_shell(&error))
}

/// Refuses a body that is not there as it is (RFC 9110 §8.4): bodies have limits as they come.
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
            Err(Error::new(Kind::UnsupportedEncoding, message))
        }
    }
}

/// What a client has to know before anything else. The warehouse becomes part of its paths.
fn config(input: &Input<'_>) -> Result<Response> {
    let catalog = &input.ground.catalog;
    let named = input.query("warehouse")?.filter(|name| !name.is_empty());
    let warehouse = match (named, input.visit) {
        (Some(name), Some(visit)) => {
            visit.require_named(name)?;
            visit.warehouse()?
        }
        (None, Some(visit)) => visit.warehouse()?,
        (Some(name), None) => catalog.warehouse(name)?,
        (None, None) => catalog.default_warehouse()?,
    };
    let mut overrides = serde_json::Map::new();
    for (name, value) in input.visit.iter().flat_map(|it| it.file_settings(&warehouse)) {
        overrides.insert(name.to_owned(), value.into());
    }
    overrides.insert("prefix".to_owned(), request::encoded(warehouse.name()).into());
    let separator = &input.ground.separator;
    if **separator != *SEPARATOR_DEFAULT {
        let separator = request::encoded(separator);
        overrides.insert("namespace-separator".to_owned(), separator.into());
    }
    let overrides = serde_json::Value::from(overrides);
    let lifetime = format!("PT{}S", KEY_LIFETIME.as_secs());
    let endpoints = &input.ground.endpoints;
    let told = format!(r#""endpoints":{endpoints},"idempotency-key-lifetime":"{lifetime}""#);
    let text = format!(r#"{{"defaults":{{}},"overrides":{overrides},{told}}}"#);
    Ok(answer::of_json(text.into()))
}

/// A header's value that is known to be one.
pub(crate) fn header_value(text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(Error::internal)
}
