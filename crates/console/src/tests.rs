//! The files have the sizes that were agreed, and every answer its headers.

use axum::body::to_bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::assets::{AssetStore, LICENCES};
use crate::config::{ConsoleConfig, parse_base_path};
use crate::page;

/// Compressed bytes of scripts for the first view: the toolkit with the shell, and one screen.
const FIRST_SCRIPTS_MAX: usize = 60 << 10;
/// Compressed bytes of its styles.
const FIRST_STYLES_MAX: usize = 15 << 10;
/// Compressed bytes of everything.
const ALL_MAX: usize = 450 << 10;

fn compressed(name: &str) -> usize {
    let file = AssetStore::new(None).file(name).unwrap();
    file.unwrap_or_else(|| panic!("there is no {name}")).gzip.unwrap().len()
}

fn names() -> Vec<&'static str> {
    crate::assets::built().iter().map(|(name, _)| *name).collect()
}

#[test]
fn the_files_stay_within_the_budget() {
    let screens = names().into_iter().filter(|name| name.starts_with("screen-"));
    let largest = screens.map(compressed).max().unwrap();
    let scripts = compressed("app.js") + compressed("start.js") + largest;
    assert!(scripts <= FIRST_SCRIPTS_MAX, "{scripts} bytes of scripts for the first view");
    let styles = compressed("app.css");
    assert!(styles <= FIRST_STYLES_MAX, "{styles} bytes of styles for the first view");
    let all: usize = names().into_iter().map(compressed).sum();
    assert!(all <= ALL_MAX, "{all} bytes in all");
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    for name in names() {
        let file = AssetStore::new(None).file(name).unwrap().unwrap();
        let text = String::from_utf8_lossy(&file.content);
        for mark in ["src=\"http", "url(http", "import\"http", "@import url", "fetch(\"http"] {
            assert!(!text.contains(mark), "{name} has {mark}");
        }
    }
}

fn policy(response: &Response) -> String {
    let value = response.headers().get(header::CONTENT_SECURITY_POLICY).expect("a policy");
    value.to_str().unwrap().to_owned()
}

async fn text(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn every_page_has_a_nonce_of_its_own() {
    let store = AssetStore::new(None);
    let (one, other) = (page::shell(&store, "/x/console"), page::shell(&store, "/x/console"));
    assert_ne!(policy(&one), policy(&other));
    assert_eq!(one.headers()[header::CACHE_CONTROL], "no-cache");
    let policy = policy(&one);
    assert!(policy.contains("require-trusted-types-for 'script'") && !policy.contains("unsafe"));
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    let html = text(one).await;
    assert!(html.contains(&format!("nonce=\"{nonce}\"")), "{html}");
    assert!(html.contains(&format!("/x/console/assets/{}/app.js", store.version())), "{html}");
    assert!(!html.contains('@'), "a placeholder is left: {html}");
}

#[tokio::test]
async fn files_are_compressed_and_cached_for_good() {
    let store = AssetStore::new(None);
    let mut request = HeaderMap::new();
    let plain = page::asset(&store, "app.css", &request);
    assert_eq!(plain.headers()[header::CACHE_CONTROL], "public, max-age=31536000, immutable");
    assert_eq!(plain.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert!(plain.headers().get(header::CONTENT_ENCODING).is_none());
    let tag = plain.headers()[header::ETAG].clone();
    for (accepted, is_gzip) in [
        ("gzip, deflate, br", true),
        ("br;q=1, GZIP;q=0.5", true),
        ("gzip;q=0", false),
        ("br", false),
    ] {
        request.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
        let response = page::asset(&store, "app.css", &request);
        let found = response.headers().get(header::CONTENT_ENCODING).is_some();
        assert_eq!(found, is_gzip, "{accepted}");
        let sent = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        assert_eq!(sent.starts_with(&[0x1f, 0x8b]), is_gzip, "the magic of gzip (RFC 1952)");
    }
    request.insert(header::IF_NONE_MATCH, tag);
    let known = page::asset(&store, "app.css", &request);
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    assert!(text(known).await.is_empty());
    // Their address has no version.
    let licences = page::asset(&store, LICENCES, &HeaderMap::new());
    assert_eq!(licences.headers()[header::CACHE_CONTROL], "no-cache");
    assert!(text(licences).await.contains("preact"));
}

#[test]
fn only_built_files_are_served() {
    let store = AssetStore::new(None);
    for name in ["", ".sources", "files.inc", "../Cargo.toml", "app.js/"] {
        assert!(store.file(name).unwrap().is_none(), "{name}");
    }
    // From a directory as well, whatever else is in it.
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/dist");
    let store = AssetStore::new(Some(beside.into()));
    assert!(!store.is_immutable());
    assert!(store.file("app.js").unwrap().is_some());
    for name in [".sources", "../Cargo.toml", "..", "a/b", "none.js", "\0"] {
        assert!(store.file(name).unwrap().is_none(), "{name}");
    }
}

#[test]
fn the_base_path_is_a_plain_path() {
    for good in ["/console", "/cove/console", "/a-b/c.d/~x/console"] {
        assert_eq!(parse_base_path(good).unwrap(), good);
    }
    let bad = [
        "",
        "console",
        "/",
        "/console/",
        "//x/console",
        "/\"><script>/console",
        "/a b/console",
        "/x",
    ];
    for bad in bad {
        assert!(parse_base_path(bad).is_err(), "{bad}");
    }
    assert_eq!(ConsoleConfig::default().base_path, crate::PATH);
}
