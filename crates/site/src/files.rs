//! All files of the site by address, rendered by the first request and cached.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use node::hex;
use sha2::{Digest as _, Sha256};

use crate::markdown::{self, PageSection, RenderedPage};
use crate::navigation::{self, PageGroup};
use crate::page::{FramedPage, escape, frame};
use crate::reference;
use crate::search::{self, SearchedPage};
use crate::sources::{self, EmbeddedFile, EmbeddedKind};

/// Address of the reference of the HTTP interface.
pub(crate) const REFERENCE: &str = "api.html";

/// Files that are served unchanged.
const ASSETS: &[(&str, &str)] = &[
    ("site.css", include_str!("../assets/site.css")),
    ("reference.css", include_str!("../assets/reference.css")),
    ("theme.js", include_str!("../assets/theme.js")),
    ("site.js", include_str!("../assets/site.js")),
    ("search.js", include_str!("../assets/search.js")),
];

/// Scripts of the search page: the index and its reader.
const SEARCH_SCRIPTS: &[&str] = &["search-index.js", "search.js"];

/// Digits of an entity tag: 64 bits of the hash, which are compared only for the same address.
const TAG_DIGITS: usize = 16;

/// One file of the site.
#[derive(Debug)]
pub(crate) struct SiteFile {
    pub(crate) content: Bytes,
    gzip: OnceLock<Bytes>,
    tag: OnceLock<String>,
}

impl SiteFile {
    pub(crate) fn new(content: impl Into<Bytes>) -> SiteFile {
        SiteFile { content: content.into(), gzip: OnceLock::new(), tag: OnceLock::new() }
    }

    /// Returns the content compressed by gzip; compressed once.
    pub(crate) fn gzip(&self) -> &Bytes {
        self.gzip.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            let written = encoder.write_all(&self.content).and_then(|()| encoder.finish());
            written.expect("writing into memory does not fail").into()
        })
    }

    /// Returns the entity tag, quotes included (RFC 9110, section 8.8.3).
    pub(crate) fn tag(&self) -> &str {
        self.tag.get_or_init(|| {
            let digits = hex::encode(&Sha256::digest(&self.content));
            format!("\"{}\"", digits.chars().take(TAG_DIGITS).collect::<String>())
        })
    }
}

/// All served files, by address.
pub(crate) static FILES: LazyLock<BTreeMap<String, SiteFile>> = LazyLock::new(build);

/// Returns all files of the site for use from a directory, by address; the examples of the
/// reference use the default address of `cove serve`.
pub fn static_files() -> impl Iterator<Item = (&'static str, Bytes)> {
    let reference = reference::page(reference::ORIGIN_DEFAULT);
    let files = FILES.iter().map(|(address, file)| (address.as_str(), file.content.clone()));
    let more = [(REFERENCE, Bytes::from(reference)), ("openapi.json", reference::openapi().into())];
    files.chain(more)
}

/// Renders every page.
fn build() -> BTreeMap<String, SiteFile> {
    let index = sources::find(sources::INDEX).map(EmbeddedFile::text).unwrap_or_default();
    let groups = navigation::read(index);
    let mut files = BTreeMap::new();
    let mut searched = Vec::new();
    for source in sources::all() {
        let address = source.address();
        let content: Bytes = match source.kind() {
            EmbeddedKind::Image => Bytes::from_static(source.content),
            EmbeddedKind::Text => text_page(source, &address, &groups).into(),
            EmbeddedKind::Page => {
                let rendered = markdown::render(source);
                let html = framed(source, &address, &rendered, &groups).into();
                let RenderedPage { title, sections, .. } = rendered;
                searched.push(SearchedPage { address: address.clone(), title, sections });
                html
            }
        };
        files.insert(address, SiteFile::new(content));
    }
    let sections = reference::sections();
    let title = "HTTP interface".to_owned();
    searched.push(SearchedPage { address: REFERENCE.to_owned(), title, sections });
    files.insert("search-index.js".to_owned(), SiteFile::new(search::index(&searched)));
    files.insert("search.html".to_owned(), SiteFile::new(search_page(&groups)));
    for (address, content) in ASSETS {
        files.insert((*address).to_owned(), SiteFile::new(*content));
    }
    files
}

fn framed(
    source: EmbeddedFile,
    address: &str,
    rendered: &RenderedPage,
    groups: &[PageGroup],
) -> String {
    let page = FramedPage {
        address,
        title: &rendered.title,
        html: &rendered.html,
        headings: &rendered.headings,
        path: Some(source.path),
        scripts: &[],
    };
    frame(&page, groups)
}

/// Returns a page that shows another file in a block of code.
fn text_page(source: EmbeddedFile, address: &str, groups: &[PageGroup]) -> String {
    let title = source.path;
    let html = format!(
        "<h1><code>{}</code></h1><pre tabindex=\"0\"><code>{}</code></pre>",
        escape(title),
        escape(source.text())
    );
    let page = FramedPage { address, title, html: &html, headings: &[], path: None, scripts: &[] };
    frame(&page, groups)
}

fn search_page(groups: &[PageGroup]) -> String {
    let html = "<h1>Search</h1><p id=\"count\" role=\"status\"></p><ol id=\"results\"></ol>\
        <noscript><p>The search runs in the browser and needs JavaScript. All pages are listed \
        under Pages.</p></noscript>";
    let page = FramedPage {
        address: "search.html",
        title: "Search",
        html,
        headings: &[],
        path: None,
        scripts: SEARCH_SCRIPTS,
    };
    frame(&page, groups)
}

/// Returns a section of the reference, one for each operation.
pub(crate) fn section(anchor: &str, heading: String, text: String) -> PageSection {
    PageSection { anchor: anchor.to_owned(), heading, text }
}
