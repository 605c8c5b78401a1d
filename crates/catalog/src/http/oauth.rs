//! Access tokens, as in OAuth 2 (RFC 6749, RFC 8693, RFC 7009): a client authenticates by its
//! secret in the body or by Basic, or exchanges a valid token for another one, and can revoke
//! tokens. Errors have OAuth's own format.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc6749#section-4.4>
//! - <https://www.rfc-editor.org/rfc/rfc8693>
//! - <https://www.rfc-editor.org/rfc/rfc7009>

use std::net::IpAddr;

use axum::extract::{FromRequest as _, Query, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node::http::{ConnectionPeer, UploadBody};
use serde::Serialize;

use super::{HttpContext, answer, check_encoding};
use crate::access::{AccessToken, KEY_PREFIX, bearer};
use crate::error::ErrorReason;
use crate::service::CatalogPrincipal;

/// Longest form, in bytes.
const FORM_BYTES_MAX: u64 = 16 << 10;

/// Type of the tokens that are issued.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Grant type for the exchange of a token.
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// Scope of every token, whatever was requested.
const SCOPE: &str = "catalog";

/// Prefix of a scope that names a role, as clients of Polaris send it.
const ROLE_SCOPE: &str = "PRINCIPAL_ROLE:";

/// Placeholder for all roles of a principal.
const ALL_ROLES: &str = "ALL";

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Seconds after which another secret is accepted: [`crate::access::WRONG_SECRET_FORGIVEN`].
const SOON: HeaderValue = HeaderValue::from_static("1");
const BASIC: HeaderValue = HeaderValue::from_static("Basic realm=\"catalog\"");

#[derive(Serialize)]
struct TokenAnswer {
    access_token: String,
    token_type: &'static str,
    expires_in: u64,
    issued_token_type: &'static str,
    scope: String,
}

#[derive(Serialize)]
struct OauthErrorBody {
    error: &'static str,
    error_description: String,
}

/// Reason for a rejection, by OAuth's error codes.
struct OauthFailure {
    status: StatusCode,
    error: &'static str,
    description: String,
}

type Done<T> = Result<T, OauthFailure>;

fn invalid(description: &str) -> OauthFailure {
    let status = StatusCode::BAD_REQUEST;
    OauthFailure { status, error: "invalid_request", description: description.to_owned() }
}

/// Handles a request for a token.
pub(super) async fn reply(
    context: &HttpContext,
    request: Request,
    who: &mut Option<CatalogPrincipal>,
) -> Response {
    match issue_token(context, request, who).await {
        Ok(AccessToken { token, lifetime, role }) => {
            let answer = TokenAnswer {
                access_token: token,
                token_type: "bearer",
                expires_in: lifetime.as_secs(),
                issued_token_type: ACCESS_TOKEN,
                scope: role.map_or(SCOPE.to_owned(), |it| format!("{SCOPE} {ROLE_SCOPE}{it}")),
            };
            let text = serde_json::to_vec(&answer).unwrap_or_default();
            answer::other(StatusCode::OK, &[(header::CACHE_CONTROL, NO_STORE)], text)
        }
        Err(failure) => refusal(failure),
    }
}

/// Handles a request to revoke a token. An unknown token counts as revoked.
pub(super) async fn reply_to_revoke(
    context: &HttpContext,
    request: Request,
    who: &mut Option<CatalogPrincipal>,
) -> Response {
    match revoke(context, request, who).await {
        Ok(()) => answer::other(StatusCode::OK, &[(header::CACHE_CONTROL, NO_STORE)], Vec::new()),
        Err(failure) => refusal(failure),
    }
}

fn refusal(OauthFailure { status, error, description }: OauthFailure) -> Response {
    let refused = OauthErrorBody { error, error_description: description };
    let text = serde_json::to_vec(&refused).unwrap_or_default();
    let mut headers = vec![(header::CACHE_CONTROL, NO_STORE)];
    if status == StatusCode::UNAUTHORIZED {
        headers.push((header::WWW_AUTHENTICATE, BASIC));
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.push((header::RETRY_AFTER, SOON));
    }
    answer::other(status, &headers, text)
}

/// The caller is a client that presents its secret, or the holder of the token in the header.
async fn revoke(
    context: &HttpContext,
    request: Request,
    seen: &mut Option<CatalogPrincipal>,
) -> Done<()> {
    let (headers, address) = (request.headers().clone(), address(&request));
    let form = form(request).await?;
    let access = &context.access;
    let shows_token = bearer(&headers).is_some();
    let who = match shows_token && field(&form, "client_secret")?.is_none() {
        true => access.identify(&headers).await.map_err(|it| failure(&it, "invalid_client"))?,
        false => {
            let (id, secret) = credentials(&headers, &form)?;
            let known = access.tokens().client_by_secret(&id, &secret, address).await;
            known.map_err(|it| failure(&it, "invalid_client"))?.who
        }
    };
    let who = seen.insert(who);
    let token = field(&form, "token")?.ok_or_else(|| invalid("`token` is missing"))?;
    if token.starts_with(KEY_PREFIX) {
        let description = "API keys are removed below `/catalog/management/v1/clients`";
        return Err(OauthFailure { error: "unsupported_token_type", ..invalid(description) });
    }
    access
        .tokens()
        .revoke_token(who, token)
        .await
        .map_err(|error| failure(&error, "invalid_client"))
}

async fn issue_token(
    context: &HttpContext,
    request: Request,
    seen: &mut Option<CatalogPrincipal>,
) -> Done<AccessToken> {
    let (headers, address) = (request.headers().clone(), address(&request));
    let form = form(request).await?;
    let role = role(field(&form, "scope")?)?;
    match field(&form, "grant_type")? {
        Some("client_credentials") => {
            let (id, secret) = credentials(&headers, &form)?;
            let known = context.access.tokens().client_by_secret(&id, &secret, address).await;
            let client = known.map_err(|error| failure(&error, "invalid_client"))?;
            *seen = Some(client.who.clone());
            let issued = context.access.tokens().issue(&client, role).await;
            issued.map_err(|error| failure(&error, "invalid_client"))
        }
        Some(TOKEN_EXCHANGE) => {
            if field(&form, "actor_token")?.is_some() {
                return Err(invalid("`actor_token` is not supported"));
            }
            if field(&form, "subject_token_type")?.is_some_and(|it| it != ACCESS_TOKEN) {
                return Err(invalid("`subject_token_type` is not that of access tokens"));
            }
            let token = field(&form, "subject_token")?;
            let token = token.ok_or_else(|| invalid("`subject_token` is missing"))?;
            let known = context.access.tokens().holder(token).await;
            seen.clone_from(&known.ok());
            let issued = context.access.tokens().token_after(token, role).await;
            issued.map_err(|error| failure(&error, "invalid_grant"))
        }
        Some(_) => Err(OauthFailure {
            status: StatusCode::BAD_REQUEST,
            error: "unsupported_grant_type",
            description: format!("`grant_type` is `client_credentials` or `{TOKEN_EXCHANGE}`"),
        }),
        None => Err(invalid("`grant_type` is missing")),
    }
}

/// Returns the role in a scope. Other scopes are ignored, as they are for other catalogs; the
/// response states the granted scope.
fn role(scope: Option<&str>) -> Done<Option<&str>> {
    let scopes = scope.unwrap_or_default().split_ascii_whitespace();
    let mut roles = scopes.filter_map(|word| word.strip_prefix(ROLE_SCOPE));
    let first = roles.next();
    match roles.next() {
        None => Ok(first.filter(|role| *role != ALL_ROLES)),
        Some(_) => {
            let description = format!("`scope` names one role, or `{ROLE_SCOPE}{ALL_ROLES}`");
            Err(OauthFailure { error: "invalid_scope", ..invalid(&description) })
        }
    }
}

fn address(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<ConnectionPeer>().map(|peer| peer.0.ip())
}

/// Parses the form in the body: a query in the syntax of URLs.
async fn form(request: Request) -> Done<Vec<(String, String)>> {
    let shell = |error: node::http::HttpError| OauthFailure {
        status: error.status(),
        error: match error.status().is_server_error() {
            true => "server_error",
            false => "invalid_request",
        },
        description: error.to_string(),
    };
    check_encoding(request.headers()).map_err(|error| OauthFailure {
        status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ..invalid(&error.message)
    })?;
    let upload = UploadBody::from_request(request, &()).await.map_err(shell)?;
    let bytes = upload.all(FORM_BYTES_MAX).await.map_err(shell)?;
    let malformed = || invalid("the body is not a form (application/x-www-form-urlencoded)");
    let text = std::str::from_utf8(&bytes).map_err(|_| malformed())?;
    // A fragment would end the URI there.
    if text.contains('#') {
        return Err(malformed());
    }
    let uri = Uri::builder().path_and_query(format!("/?{}", text.trim())).build();
    let uri = uri.map_err(|_| malformed())?;
    let Query(form) = Query::try_from_uri(&uri).map_err(|_| malformed())?;
    Ok(form)
}

fn field<'a>(form: &'a [(String, String)], name: &str) -> Done<Option<&'a str>> {
    let mut found = form.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let first = found.next();
    match found.next() {
        None => Ok(first),
        Some(_) => Err(invalid(&format!("`{name}` is specified twice"))),
    }
}

/// Returns a client's id and secret, which must come from one place.
fn credentials(headers: &HeaderMap, form: &[(String, String)]) -> Done<(String, String)> {
    let (id, secret) = (field(form, "client_id")?, field(form, "client_secret")?);
    let basic = basic(headers)?;
    match (basic, id, secret) {
        (Some((id, secret)), same, None) if same.is_none_or(|same| same == id) => Ok((id, secret)),
        (Some(_), ..) => Err(invalid("the client authenticates in two ways")),
        (None, Some(id), Some(secret)) => Ok((id.to_owned(), secret.to_owned())),
        (None, ..) => Err(OauthFailure {
            status: StatusCode::UNAUTHORIZED,
            error: "invalid_client",
            description: "`client_id` and `client_secret` are missing".to_owned(),
        }),
    }
}

/// Parses `Authorization: Basic`. A bearer token beside the form is ignored here.
fn basic(headers: &HeaderMap) -> Done<Option<(String, String)>> {
    let mut found = None;
    for value in headers.get_all(header::AUTHORIZATION) {
        let text = value.to_str().unwrap_or_default();
        let Some((scheme, coded)) = text.split_once(' ') else { continue };
        if !scheme.eq_ignore_ascii_case("basic") {
            continue;
        }
        let bytes = STANDARD.decode(coded.trim()).ok();
        let pair = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = pair.as_deref().and_then(|it| it.split_once(':'));
        let (id, secret) = pair.ok_or_else(|| invalid("`Authorization: Basic` is malformed"))?;
        if found.replace((id.to_owned(), secret.to_owned())).is_some() {
            return Err(invalid("`Authorization` is specified twice"));
        }
    }
    Ok(found)
}

fn failure(error: &crate::CatalogError, refused: &'static str) -> OauthFailure {
    let description = error.message.clone();
    match error.kind {
        ErrorReason::NotAuthorized | ErrorReason::AuthenticationTimeout => {
            let status = match refused {
                "invalid_client" => StatusCode::UNAUTHORIZED,
                _ => StatusCode::BAD_REQUEST,
            };
            OauthFailure { status, error: refused, description }
        }
        // Iceberg's specification has no code for this: the status says it.
        ErrorReason::TooManyRequests => {
            OauthFailure { status: StatusCode::TOO_MANY_REQUESTS, error: refused, description }
        }
        // The requested role, or the token of another principal.
        ErrorReason::Forbidden => {
            let error = if refused == "invalid_grant" { refused } else { "invalid_scope" };
            OauthFailure { status: StatusCode::BAD_REQUEST, error, description }
        }
        kind => {
            let status = StatusCode::from_u16(kind.status());
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            OauthFailure { status, error: "server_error", description }
        }
    }
}
