//! Routes and headers of the site.

use std::sync::Arc;

use api::operations::server as table;
use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use node::http::{OperationRoutes, RouteTable, accepts_gzip, get};
use node::task;
use parking_lot::Mutex;

use crate::files::{FILES, REFERENCE, SiteFile};
use crate::reference;

/// Policy of every page. All scripts and styles are files of this server, so no nonce is needed,
/// and no text becomes markup: a string that reaches `innerHTML` throws (Trusted Types).
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Policy of files other than pages.
const FILE_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// Returns the routes of the documentation: `/docs/`, and `/openapi.json`.
pub fn routes() -> Router {
    let operations = OperationRoutes::of(table::SITE)
        .serve(&table::DOCS, index)
        .serve(&table::OPENAPI, document);
    operations.routes().at("/docs", get(to_the_index)).at("/docs/{*address}", get(at_address))
}

/// `GET /openapi.json`.
async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], reference::openapi()).into_response()
}

/// `GET /docs`: redirects, because links of pages are relative to the directory.
async fn to_the_index() -> Response {
    // Relative, because a proxy may add a prefix (RFC 9110, section 10.2.2).
    let mut response = refusal(StatusCode::PERMANENT_REDIRECT, "the documentation is at /docs/");
    set(response.headers_mut(), header::LOCATION, "docs/");
    response
}

/// `GET /docs/`.
async fn index(headers: HeaderMap) -> Response {
    answer("index.html".to_owned(), headers).await
}

/// `GET /docs/{address}`.
async fn at_address(Path(address): Path<String>, headers: HeaderMap) -> Response {
    answer(address, headers).await
}

/// Returns a file; pages are found with or without `.html`.
async fn answer(address: String, request: HeaderMap) -> Response {
    // The first request renders all pages, which takes longer than a handler should.
    let response = task::blocking(move || {
        let page = format!("{address}.html");
        if page == REFERENCE || address == REFERENCE {
            let file = reference_file(reference::origin(&request));
            return file_response(REFERENCE, &file, &request);
        }
        let found = FILES.get_key_value(&address).or_else(|| FILES.get_key_value(&page));
        match found {
            Some((address, file)) => file_response(address, file, &request),
            None => refusal(StatusCode::NOT_FOUND, "the documentation has no such page"),
        }
    });
    response.await.unwrap_or_else(|error| {
        tracing::error!(%error, "failed to render the documentation");
        refusal(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made")
    })
}

/// Returns the reference with an origin in its examples. The last one is cached, because
/// compressing it takes long, and most readers of a server use the same name.
fn reference_file(origin: String) -> Arc<SiteFile> {
    static LAST: Mutex<Option<(String, Arc<SiteFile>)>> = Mutex::new(None);
    let mut last = LAST.lock();
    match &*last {
        Some((known, file)) if *known == origin => Arc::clone(file),
        _ => {
            let file = Arc::new(SiteFile::new(reference::page(&origin)));
            *last = Some((origin, Arc::clone(&file)));
            file
        }
    }
}

/// Returns a file with its headers, compressed if the browser accepts that.
pub(crate) fn file_response(address: &str, file: &SiteFile, request: &HeaderMap) -> Response {
    let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = known.is_some_and(|known| known.contains(file.tag()));
    let content_type = content_type(address);
    let is_gzip = !content_type.starts_with("image/") && accepts_gzip(request);
    let content = match (is_known, is_gzip) {
        (true, _) => Bytes::new(),
        (false, true) => file.gzip().clone(),
        (false, false) => file.content.clone(),
    };
    let mut response = Response::new(Body::from(content));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    set(headers, header::CONTENT_TYPE, content_type);
    let policy = if content_type.starts_with("text/html") { PAGE_POLICY } else { FILE_POLICY };
    set(headers, header::CONTENT_SECURITY_POLICY, policy);
    set(headers, header::VARY, "accept-encoding");
    if is_gzip && !is_known {
        set(headers, header::CONTENT_ENCODING, "gzip");
    }
    // Addresses do not depend on the content: browsers revalidate by entity tag.
    set(headers, header::CACHE_CONTROL, "no-cache");
    let tag = HeaderValue::try_from(file.tag()).expect("hexadecimal digits are fit for a header");
    headers.insert(header::ETAG, tag);
    common(headers);
    response
}

fn refusal(status: StatusCode, why: &'static str) -> Response {
    let mut response = Response::new(Body::from(why));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    set(headers, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    set(headers, header::CONTENT_SECURITY_POLICY, FILE_POLICY);
    common(headers);
    response
}

fn common(headers: &mut HeaderMap) {
    set(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(headers, header::REFERRER_POLICY, "no-referrer");
    set(headers, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}

fn content_type(address: &str) -> &'static str {
    match address.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        Some("webp") => "image/webp",
        _ => "text/plain; charset=utf-8",
    }
}
