//! Access tokens, as OAuth 2 has them (RFC 6749, RFC 8693): a client shows its secret in the body
//! or by Basic, or a token that is still good for another one. Errors have OAuth's own shape.

use axum::extract::{FromRequest as _, Query, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node::http::Upload;
use serde::Serialize;

use super::{Ground, answer};
use crate::access::AccessToken;
use crate::error::Kind;

/// Longest form, in bytes.
const FORM_BYTES_MAX: u64 = 16 << 10;

/// What is given out, by its name.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Asks for a token in exchange for another.
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// What clients of the catalog may ask for; all of them mean the same here.
const SCOPE: &str = "catalog";

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const BASIC: HeaderValue = HeaderValue::from_static("Basic realm=\"catalog\"");

#[derive(Serialize)]
struct Given {
    access_token: String,
    token_type: &'static str,
    expires_in: u64,
    issued_token_type: &'static str,
    scope: &'static str,
}

#[derive(Serialize)]
struct Refused {
    error: &'static str,
    error_description: String,
}

/// Why there is no token, as OAuth names reasons.
struct Failure {
    status: StatusCode,
    error: &'static str,
    description: String,
}

type Done<T> = Result<T, Failure>;

fn invalid(description: &str) -> Failure {
    let status = StatusCode::BAD_REQUEST;
    Failure { status, error: "invalid_request", description: description.to_owned() }
}

/// Answers a request for a token.
pub(super) async fn reply(ground: &Ground, request: Request) -> Response {
    match give(ground, request).await {
        Ok(AccessToken { token, lifetime }) => {
            let given = Given {
                access_token: token,
                token_type: "bearer",
                expires_in: lifetime.as_secs(),
                issued_token_type: ACCESS_TOKEN,
                scope: SCOPE,
            };
            let text = serde_json::to_vec(&given).unwrap_or_default();
            answer::other(StatusCode::OK, &[(header::CACHE_CONTROL, NO_STORE)], text)
        }
        Err(Failure { status, error, description }) => {
            let refused = Refused { error, error_description: description };
            let text = serde_json::to_vec(&refused).unwrap_or_default();
            let mut headers = vec![(header::CACHE_CONTROL, NO_STORE)];
            if status == StatusCode::UNAUTHORIZED {
                headers.push((header::WWW_AUTHENTICATE, BASIC));
            }
            answer::other(status, &headers, text)
        }
    }
}

async fn give(ground: &Ground, request: Request) -> Done<AccessToken> {
    let headers = request.headers().clone();
    let form = form(request).await?;
    match field(&form, "grant_type")? {
        Some("client_credentials") => {
            let (id, secret) = credentials(&headers, &form)?;
            ground.access.token_for(&id, &secret).map_err(|error| failure(&error, "invalid_client"))
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
            ground.access.token_after(token).map_err(|error| failure(&error, "invalid_grant"))
        }
        Some(_) => Err(Failure {
            status: StatusCode::BAD_REQUEST,
            error: "unsupported_grant_type",
            description: format!("`grant_type` is `client_credentials` or `{TOKEN_EXCHANGE}`"),
        }),
        None => Err(invalid("`grant_type` is missing")),
    }
}

/// The form in the body: a query, as it would stand behind a path.
async fn form(request: Request) -> Done<Vec<(String, String)>> {
    let shell = |error: node::http::Error| Failure {
        status: error.status(),
        error: match error.status().is_server_error() {
            true => "server_error",
            false => "invalid_request",
        },
        description: error.to_string(),
    };
    let upload = Upload::from_request(request, &()).await.map_err(shell)?;
    let bytes = upload.all(FORM_BYTES_MAX).await.map_err(shell)?;
    let malformed = || invalid("the body is no form (application/x-www-form-urlencoded)");
    let text = std::str::from_utf8(&bytes).map_err(|_| malformed())?;
    // A URI would end there.
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
        Some(_) => Err(invalid(&format!("`{name}` is given twice"))),
    }
}

/// A client's id and secret, from one place.
fn credentials(headers: &HeaderMap, form: &[(String, String)]) -> Done<(String, String)> {
    let (id, secret) = (field(form, "client_id")?, field(form, "client_secret")?);
    let basic = basic(headers)?;
    match (basic, id, secret) {
        (Some((id, secret)), same, None) if same.is_none_or(|same| same == id) => Ok((id, secret)),
        (Some(_), ..) => Err(invalid("the client says who it is in two ways")),
        (None, Some(id), Some(secret)) => Ok((id.to_owned(), secret.to_owned())),
        (None, ..) => Err(Failure {
            status: StatusCode::UNAUTHORIZED,
            error: "invalid_client",
            description: "`client_id` and `client_secret` are missing".to_owned(),
        }),
    }
}

/// What `Authorization: Basic` says. A bearer's token beside the form is nothing to go by here.
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
            return Err(invalid("`Authorization` is given twice"));
        }
    }
    Ok(found)
}

fn failure(error: &crate::Error, refused: &'static str) -> Failure {
    let description = error.message.clone();
    match error.kind {
        Kind::NotAuthorized | Kind::AuthenticationTimeout => {
            let status = match refused {
                "invalid_client" => StatusCode::UNAUTHORIZED,
                _ => StatusCode::BAD_REQUEST,
            };
            Failure { status, error: refused, description }
        }
        kind => {
            let status = StatusCode::from_u16(kind.status());
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Failure { status, error: "server_error", description }
        }
    }
}
