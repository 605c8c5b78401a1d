//! Identity of a caller, and console sign-in: `/v1/whoami` and `/v1/console`.

use std::sync::Arc;

use api::operations::server as table;
use api::{
    ConsoleCodeRequest, ConsoleCodeView, ConsoleLogin, ConsoleLoginAnswer, CredentialKind,
    EnabledServices, ErrorCode, WhoamiView,
};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use node::auth::{
    CallerCredential, ConsoleAccessError, TokenPrincipal, TokenRegistry, TokenScopes,
};
use node::http::{
    self, ConnectionPeer, HostNames, HttpError, JsonBody, OperationRoutes, RouteTable, get,
};
use node::readiness::CHECK_INTERVAL;

/// Path of the console, from the server's root.
const CONSOLE_PATH: &str = "/console/";

/// Identity of the server for its callers.
pub(crate) struct ServerIdentity {
    pub(crate) tokens: TokenRegistry,
    /// Id of this server.
    pub(crate) node: String,
    pub(crate) services: EnabledServices,
}

/// Returns the routes. Sign-in requires a host name of the server.
pub(crate) fn routes(identity: ServerIdentity, hosts: HostNames) -> Router {
    let identity = Arc::new(identity);
    let signing_in = signing_in().with_state(Arc::clone(&identity));
    callers().at("/", get(root)).with_state(identity).merge(hosts.guard(signing_in))
}

fn callers() -> Router<Arc<ServerIdentity>> {
    OperationRoutes::of(table::IDENTITY).serve(&table::WHOAMI, whoami).routes()
}

fn signing_in() -> Router<Arc<ServerIdentity>> {
    OperationRoutes::of(table::SIGN_IN)
        .serve(&table::CREATE_CONSOLE_CODE, make_code)
        // Without a token, because the caller receives one here.
        .serve(&table::SIGN_IN_AT_CONSOLE, login)
        .serve(&table::SIGN_OUT_AT_CONSOLE, logout)
        .routes()
}

/// `GET /`: redirects browsers to the console.
async fn root(
    State(identity): State<Arc<ServerIdentity>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    if !identity.tokens.has_console() || !wants_page(&headers) {
        return http::not_found(uri).await.into_response();
    }
    // Relative, for servers that a proxy serves below another path.
    let place = CONSOLE_PATH.trim_start_matches('/');
    (StatusCode::SEE_OTHER, [(header::LOCATION, place), (header::CACHE_CONTROL, "no-store")])
        .into_response()
}

/// Returns whether a browser requests a page (RFC 9110 §12.5.1).
fn wants_page(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = values.flat_map(|value| value.split(','));
    ranges.any(|range| {
        let kind = range.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/html")
    })
}

/// `GET /v1/whoami`.
async fn whoami(
    who: TokenPrincipal,
    State(identity): State<Arc<ServerIdentity>>,
) -> Json<WhoamiView> {
    let kind = match &who.credential {
        CallerCredential::Absent | CallerCredential::Token => CredentialKind::Token,
        CallerCredential::Issued => CredentialKind::Issued,
        CallerCredential::Console(_) => CredentialKind::Console,
    };
    Json(WhoamiView {
        name: who.name.to_string(),
        kind,
        tenant: who.tenant.to_string(),
        scopes: who.scopes.iter().map(|scope| scope.name().to_owned()).collect(),
        operator: who.operator,
        expires_ms: identity.tokens.expires_ms(&who),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: identity.node.clone(),
        services: identity.services,
    })
}

/// `POST /v1/console/codes`.
async fn make_code(
    who: TokenPrincipal,
    State(identity): State<Arc<ServerIdentity>>,
    body: Option<JsonBody<ConsoleCodeRequest>>,
) -> Result<Response, HttpError> {
    let JsonBody(request) = body.unwrap_or(JsonBody(ConsoleCodeRequest::default()));
    let scopes = request.scopes.map(|names| scopes(&names)).transpose()?;
    let code = identity.tokens.console_code(&who, scopes).await.map_err(refusal)?;
    let view = ConsoleCodeView {
        url_path: url_path(code.expose()),
        code: code.expose().to_owned(),
        expires_ms: code.expires_ms,
    };
    Ok(secret(StatusCode::CREATED, view))
}

/// Returns the path of the console with a code, from the server's root.
pub(crate) fn url_path(code: &str) -> String {
    format!("{CONSOLE_PATH}#c={code}")
}

fn scopes(names: &[String]) -> Result<TokenScopes, HttpError> {
    let parsed = names.iter().enumerate().map(|(index, name)| {
        name.parse().map_err(|error: node::auth::UnknownScope| {
            HttpError::invalid(error.to_string()).at(format!("scopes[{index}]"))
        })
    });
    parsed.collect()
}

/// `POST /v1/console/login`.
async fn login(
    State(identity): State<Arc<ServerIdentity>>,
    parts: Parts,
    JsonBody(ConsoleLogin { code }): JsonBody<ConsoleLogin>,
) -> Result<Response, HttpError> {
    let peer = parts.extensions.get::<ConnectionPeer>();
    let address = peer.map(|ConnectionPeer(address)| address.ip());
    let token = identity.tokens.redeem_code(&code, address).await.map_err(refusal)?;
    let expires_ms = token.expires_ms;
    let answer = ConsoleLoginAnswer { token: token.expose().to_owned(), expires_ms };
    Ok(secret(StatusCode::OK, answer))
}

/// `POST /v1/console/logout`.
async fn logout(
    who: TokenPrincipal,
    State(identity): State<Arc<ServerIdentity>>,
) -> Result<StatusCode, HttpError> {
    identity.tokens.sign_out(&who).await.map_err(refusal)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns a response that caches must not store.
fn secret(status: StatusCode, body: impl serde::Serialize) -> Response {
    (status, [(header::CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

fn refusal(error: ConsoleAccessError) -> HttpError {
    let message = error.to_string();
    match error {
        ConsoleAccessError::Disabled => HttpError::new(ErrorCode::NotFound, message),
        ConsoleAccessError::OfConsole | ConsoleAccessError::WrongCode => {
            HttpError::new(ErrorCode::Forbidden, message)
        }
        ConsoleAccessError::MoreScopes => {
            HttpError::new(ErrorCode::Forbidden, message).at("scopes")
        }
        ConsoleAccessError::NoScope => HttpError::invalid(message).at("scopes"),
        ConsoleAccessError::NotOfConsole => HttpError::invalid(message),
        ConsoleAccessError::TooManyCodes => HttpError::new(ErrorCode::TooManyRequests, message)
            .retry_after(node::auth::CODE_LIFETIME),
        ConsoleAccessError::TooManyGuesses(wait) => {
            HttpError::new(ErrorCode::TooManyRequests, message).retry_after(wait)
        }
        ConsoleAccessError::Token(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "failed to sign in");
            HttpError::internal()
        }
        ConsoleAccessError::Store(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to sign in");
            HttpError::new(ErrorCode::Overloaded, "the store cannot be reached")
                .retry_after(CHECK_INTERVAL)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_handler() {
        drop(callers());
        drop(signing_in());
    }
}
