//! Every page is rendered, every link between pages resolves, and text cannot inject markup.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::to_bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use pulldown_cmark::HeadingLevel;

use crate::files::{FILES, REFERENCE, SiteFile, static_files};
use crate::http::file_response;
use crate::markdown::{RenderedPage, render};
use crate::navigation;
use crate::sources::{self, EmbeddedFile, EmbeddedKind, LinkTarget, relative, resolve};

/// Largest compressed page, apart from benchmark results and the changelog.
const PAGE_BYTES_MAX: usize = 24 << 10;
/// Most compressed bytes of assets for a first page.
const ASSET_BYTES_MAX: usize = 8 << 10;
/// Largest compressed search index.
const INDEX_BYTES_MAX: usize = 400 << 10;

/// Files that pages link to and the site omits: directories, tests, files that are too long for a
/// page, and instructions of example agents.
const NOT_SHOWN: &[&str] = &[
    "compat/",
    "crates/",
    "examples/gateway/analyst/CLAUDE.md",
    "examples/integrations/claude-code/agent/CLAUDE.md",
    "sdk/",
];

fn pages() -> Vec<(EmbeddedFile, RenderedPage)> {
    let pages = sources::all().filter(|source| source.kind() == EmbeddedKind::Page);
    pages.map(|source| (source, render(source))).collect()
}

fn page(text: &'static str) -> RenderedPage {
    render(EmbeddedFile { path: "docs/executions.md", content: text.as_bytes() })
}

#[test]
fn every_page_has_a_title_and_an_address_of_its_own() {
    let mut addresses = BTreeSet::new();
    for source in sources::all() {
        assert!(addresses.insert(source.address()), "{}", source.path);
        assert!(FILES.contains_key(&source.address()), "{}", source.path);
    }
    for (source, rendered) in pages() {
        assert!(!rendered.title.is_empty(), "{}", source.path);
        let titles = rendered.headings.iter().filter(|it| it.level == HeadingLevel::H1).count();
        assert_eq!(titles, 1, "{}", source.path);
    }
    assert!(FILES["index.html"].content.starts_with(b"<!doctype html>"));
}

#[test]
fn every_link_and_anchor_leads_somewhere() {
    let pages = pages();
    let anchors: BTreeMap<&str, BTreeSet<String>> = pages
        .iter()
        .map(|(source, page)| {
            (source.path, page.headings.iter().map(|it| it.anchor.clone()).collect())
        })
        .collect();
    let mut broken = Vec::new();
    for (source, rendered) in &pages {
        for link in &rendered.links {
            let leads = match link {
                LinkTarget::Source { path, anchor: Some(anchor) } => {
                    anchors.get(path.as_str()).is_some_and(|known| known.contains(anchor))
                }
                LinkTarget::Repository(path) => NOT_SHOWN.iter().any(|it| path.starts_with(it)),
                LinkTarget::Source { .. } | LinkTarget::Reference | LinkTarget::Elsewhere => true,
            };
            if !leads {
                broken.push(format!("{}: {link:?}", source.path));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The same for the static files, as a browser reads them from a directory.
#[test]
fn every_address_in_the_files_is_one_of_them() {
    let files: BTreeMap<&str, String> = static_files()
        .map(|(address, content)| (address, String::from_utf8_lossy(&content).into_owned()))
        .collect();
    let mut count = 0;
    for (address, html) in files.iter().filter(|(address, _)| address.ends_with(".html")) {
        let attributes =
            ["href=\"", "src=\"", "action=\""].iter().flat_map(|it| html.split(it).skip(1));
        for target in attributes.filter_map(|rest| rest.split('"').next()) {
            if target.contains(':') {
                assert!(!target.starts_with("http://localhost"), "{address}: {target}");
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let mut parts: Vec<&str> = address.split('/').collect();
            parts.pop();
            for part in path.split('/').filter(|part| !part.is_empty()) {
                match part {
                    ".." => assert!(parts.pop().is_some(), "{address}: {target}"),
                    part => parts.push(part),
                }
            }
            let there = if path.is_empty() { (*address).to_owned() } else { parts.join("/") };
            let found = files.get(there.as_str());
            let found = found.unwrap_or_else(|| panic!("{address}: {target} is not there"));
            let id = format!("id=\"{anchor}\"");
            assert!(anchor.is_empty() || found.contains(&id), "{address}: {target} has no anchor");
            count += 1;
        }
    }
    assert!(count > 5000, "{count} addresses were looked at");
}

#[test]
fn every_page_of_docs_is_in_the_navigation_once() {
    let groups = navigation::read(sources::find(sources::INDEX).unwrap().text());
    let mut listed = BTreeSet::new();
    for entry in groups.iter().flat_map(|group| &group.entries) {
        assert!(listed.insert(entry.address.clone()), "{} is there twice", entry.address);
    }
    for source in sources::all().filter(|source| source.kind() == EmbeddedKind::Page) {
        if source.path.starts_with("docs/") && source.path != sources::INDEX {
            assert!(listed.contains(&source.address()), "{} is not in docs/README.md", source.path);
        }
    }
    assert!(listed.contains("architecture.html") && listed.contains(REFERENCE));
}

#[test]
fn markup_in_markdown_is_text() {
    let rendered =
        page("# A\n\n<script>alert(1)</script>\n\nx <b onclick=y>z</b> `<i>` [a](javascript:x)\n");
    let html = &rendered.html;
    assert!(!html.contains("<script") && !html.contains("<b ") && !html.contains("<i>"), "{html}");
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{html}");
    assert!(!html.contains("<a "), "an address without a host is a path: {html}");
    let named = page("# A\n\n```python a.py\nx\n```\n").html;
    assert!(named.contains("<p class=\"file\">a.py</p><pre"), "{named}");
    let fenced = page("# A\n\n```\"><script>\n</code><script>\n```\n").html;
    assert!(!fenced.contains("<script"), "{fenced}");
    for (source, rendered) in pages() {
        assert!(!rendered.html.contains("<script"), "{}", source.path);
    }
}

#[test]
fn anchors_are_those_of_github() {
    let rendered =
        page("# A\n## `cove run` and *more*\n## Is it so? Yes\n## is it so, yes\n## Ä_b-c\n");
    let anchors: Vec<&str> = rendered.headings.iter().map(|it| it.anchor.as_str()).collect();
    assert_eq!(anchors, ["a", "cove-run-and-more", "is-it-so-yes", "is-it-so-yes-1", "ä_b-c"]);
    assert!(rendered.html.contains("<h2 id=\"cove-run-and-more\">"), "{}", rendered.html);
}

#[test]
fn links_are_those_of_the_site() {
    let source = |path: &str, anchor: Option<&str>| LinkTarget::Source {
        path: path.to_owned(),
        anchor: anchor.map(str::to_owned),
    };
    let from = "docs/internals/queue.md";
    assert_eq!(
        resolve(from, "../executions.md#verdicts"),
        source("docs/executions.md", Some("verdicts"))
    );
    assert_eq!(resolve(from, "../../README.md"), source("README.md", None));
    assert_eq!(resolve(from, "#x"), source(from, Some("x")));
    assert_eq!(resolve(from, "/docs/api"), LinkTarget::Reference);
    assert_eq!(resolve(from, "../../crates/api/openapi.json"), LinkTarget::Reference);
    assert_eq!(resolve(from, "https://example.com/a.md"), LinkTarget::Elsewhere);
    let elsewhere = "crates/pool/src/lib.rs";
    assert_eq!(
        resolve("docs/a.md", "../crates/pool/src/lib.rs"),
        LinkTarget::Repository(elsewhere.to_owned())
    );
    assert_eq!(relative("a/b/c.html", "a/d.html"), "../d.html");
    assert_eq!(relative("index.html", "a/d.html"), "a/d.html");
    assert_eq!(relative("a/b.html", "a/c.html"), "c.html");
    assert_eq!(relative("a/b.html", "c.html"), "../c.html");
    let rendered =
        page("# A\n[b](../crates/pool/src/lib.rs) [c](live.md) [d](https://e.example)\n").html;
    assert!(
        rendered.contains("<span title=\"crates/pool/src/lib.rs in the sources of Cove\">b</span>"),
        "{rendered}"
    );
    assert!(rendered.contains("<a href=\"live.html\">c</a>"), "{rendered}");
    assert!(rendered.contains("href=\"https://e.example\">d</a>"), "{rendered}");
}

#[test]
fn the_search_finds_text_below_its_heading() {
    let rendered = page("# T\nfirst `code`\n## H\nin a\nline\n\n| a | b |\n|---|---|\n| c | d |\n");
    let found: Vec<(&str, &str, &str)> = rendered
        .sections
        .iter()
        .map(|it| (it.anchor.as_str(), it.heading.as_str(), it.text.trim()))
        .collect();
    assert_eq!(found, [("", "", "first code"), ("h", "H", "in a line a b c d")]);
    let index = String::from_utf8(FILES["search-index.js"].content.to_vec()).unwrap();
    assert!(index.starts_with("self.coveSearch = {"), "it is a script");
    for part in ["executions.html", "POST /v1/executions", "\"createExecution\""] {
        assert!(index.contains(part), "{part}");
    }
}

#[test]
fn pages_are_light() {
    let large = ["bench/", "changelog", "internals/threats"];
    for (address, file) in FILES.iter().filter(|(address, _)| address.ends_with(".html")) {
        let bytes = file.gzip().len();
        let is_large = large.iter().any(|it| address.starts_with(it));
        assert!(is_large || bytes <= PAGE_BYTES_MAX, "{address} has {bytes} bytes");
    }
    let assets = ["site.css", "site.js", "theme.js"].map(|name| FILES[name].gzip().len());
    assert!(assets.iter().sum::<usize>() <= ASSET_BYTES_MAX, "{assets:?}");
    let index = FILES["search-index.js"].gzip().len();
    assert!(index <= INDEX_BYTES_MAX, "{index}");
}

#[tokio::test]
async fn answers_have_a_policy_a_tag_and_are_compressed() {
    let mut request = HeaderMap::new();
    let file = SiteFile::new("<p>page</p>");
    let plain = file_response("a.html", &file, &request);
    let policy = plain.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
    for part in ["default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    assert_eq!(plain.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert!(plain.headers().get(header::CONTENT_ENCODING).is_none());
    let tag = plain.headers()[header::ETAG].clone();
    request.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let packed = file_response("a.html", &file, &request);
    assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
    let body = to_bytes(packed.into_body(), 1 << 10).await.unwrap();
    assert_eq!(body.first(), Some(&0x1f), "the magic of gzip (RFC 1952)");
    let image = file_response("a.png", &file, &request);
    assert!(image.headers().get(header::CONTENT_ENCODING).is_none());
    let plot = file_response("a.svg", &file, &request);
    assert_eq!(plot.headers()[header::CONTENT_TYPE], "image/svg+xml");
    request.insert(header::IF_NONE_MATCH, tag);
    let known = file_response("a.html", &file, &request);
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    assert!(to_bytes(known.into_body(), 1 << 10).await.unwrap().is_empty());
}
