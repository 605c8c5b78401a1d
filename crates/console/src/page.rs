//! The shell and the headers of every answer.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use node::http::accepts_gzip;

use crate::assets::{AssetStore, SHELL};

/// Bytes of a nonce: 128 bits, as <https://www.w3.org/TR/CSP3/#security-nonces> asks.
const NONCE_BYTES: usize = 16;

/// Policy of the page; `@NONCE@` is replaced. Scripts come from this server alone and no text
/// becomes markup: a string that reaches `innerHTML` throws (Trusted Types). The nonce is for the
/// style elements that the terminal and the editor make.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; \
    style-src 'self' 'nonce-@NONCE@'; img-src 'self' blob: data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Policy of files, which are no pages.
const FILE_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// Returns the shell, which is the same for every address of the console.
pub(crate) fn shell(store: &AssetStore, base: &str) -> Response {
    let mut bytes = [0; NONCE_BYTES];
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::error!(%error, "failed to make a nonce for the console");
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made");
    }
    let nonce = BASE64.encode(bytes);
    let template = match store.file(SHELL) {
        Ok(Some(file)) => file.content,
        Ok(None) => return refusal(StatusCode::NOT_FOUND, "no such file in this build"),
        Err(error) => return unreadable(&error),
    };
    let html = String::from_utf8_lossy(&template)
        .replace("@NONCE@", &nonce)
        .replace("@BASE@", base)
        .replace("@VERSION@", store.version());
    let mut response = Response::new(Body::from(html));
    let policy = PAGE_POLICY.replace("@NONCE@", &nonce);
    let headers = response.headers_mut();
    let policy = HeaderValue::try_from(policy).expect("base64 is fit for a header");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    set(headers, header::CONTENT_TYPE, "text/html; charset=utf-8");
    set(headers, header::CACHE_CONTROL, "no-cache");
    common(headers);
    response
}

/// Returns a file, compressed where the browser takes that.
pub(crate) fn asset(store: &AssetStore, name: &str, request: &HeaderMap) -> Response {
    let file = match store.file(name) {
        Ok(Some(file)) => file,
        Ok(None) => return refusal(StatusCode::NOT_FOUND, "no such file in this build"),
        Err(error) => return unreadable(&error),
    };
    let tag = format!("\"{}-{name}\"", store.version());
    let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = store.is_immutable() && known.is_some_and(|known| known.contains(&tag));
    let gzip = file.gzip.filter(|_| accepts_gzip(request));
    let is_gzip = gzip.is_some();
    let mut response = match is_known {
        true => Response::new(Body::empty()),
        false => Response::new(Body::from(gzip.unwrap_or(file.content))),
    };
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    set(headers, header::CONTENT_TYPE, content_type(name));
    set(headers, header::CONTENT_SECURITY_POLICY, FILE_POLICY);
    set(headers, header::VARY, "accept-encoding");
    if is_gzip && !is_known {
        set(headers, header::CONTENT_ENCODING, "gzip");
    }
    if store.is_immutable() {
        // The licences have an address without a version.
        let cached = match name == crate::assets::LICENCES {
            true => "no-cache",
            false => "public, max-age=31536000, immutable",
        };
        set(headers, header::CACHE_CONTROL, cached);
        let tag = HeaderValue::try_from(tag).expect("names of files are fit for a header");
        headers.insert(header::ETAG, tag);
    } else {
        set(headers, header::CACHE_CONTROL, "no-store");
    }
    common(headers);
    response
}

/// Returns an answer without a page.
pub(crate) fn refusal(status: StatusCode, why: &'static str) -> Response {
    let mut response = Response::new(Body::from(why));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    set(headers, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    set(headers, header::CONTENT_SECURITY_POLICY, FILE_POLICY);
    set(headers, header::CACHE_CONTROL, "no-store");
    common(headers);
    response
}

fn unreadable(error: &std::io::Error) -> Response {
    tracing::error!(%error, "failed to read a file of the console");
    refusal(StatusCode::INTERNAL_SERVER_ERROR, "the file could not be read")
}

/// Headers that every answer has: no guessing of types, no address of the page to others, and no
/// window of another site that can reach into this one.
fn common(headers: &mut HeaderMap) {
    set(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(headers, header::REFERRER_POLICY, "no-referrer");
    set(headers, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}
