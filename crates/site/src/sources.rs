//! The embedded files of the repository, their addresses, and the resolution of links.

use std::io::Read as _;
use std::sync::LazyLock;

use flate2::read::GzDecoder;

/// Path of the site's first page: its tables are the navigation.
pub(crate) const INDEX: &str = "docs/README.md";

/// The source of the HTTP interface's reference, which pages link to.
const OPENAPI: &str = "crates/api/openapi.json";

/// Prefix that is removed from the addresses of pages.
const DOCS: &str = "docs/";

/// Path and content of every embedded file, written by `cargo run -p xtask -- gen`: pages, their
/// images, and small files that pages link to. The build script compresses them by gzip.
static COMPRESSED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// The decompressed files; decompressed on first use.
static SOURCES: LazyLock<Vec<(&str, Vec<u8>)>> =
    LazyLock::new(|| COMPRESSED.iter().map(|(path, gzip)| (*path, decompress(gzip))).collect());

/// Decompresses an embedded file.
pub(crate) fn decompress(gzip: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    let read = GzDecoder::new(gzip).read_to_end(&mut content);
    read.expect("the build has written it");
    content
}

/// One embedded file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmbeddedFile {
    /// Path from the root of the repository, with `/`.
    pub(crate) path: &'static str,
    pub(crate) content: &'static [u8],
}

/// Form of a source on the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmbeddedKind {
    /// Markdown, rendered.
    Page,
    /// An image, unchanged.
    Image,
    /// Any other text, shown in a block of code.
    Text,
}

impl EmbeddedFile {
    pub(crate) fn kind(self) -> EmbeddedKind {
        match self.path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("md") => EmbeddedKind::Page,
            Some("png" | "svg" | "webp") => EmbeddedKind::Image,
            _ => EmbeddedKind::Text,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        std::str::from_utf8(self.content).unwrap_or_default()
    }

    /// Returns the file's address, relative to the root of the site.
    pub(crate) fn address(self) -> String {
        let path = self.path.strip_prefix(DOCS).unwrap_or(self.path);
        let stem = path.strip_suffix(".md");
        match (self.kind(), stem) {
            _ if self.path == INDEX => "index.html".to_owned(),
            // README.md, ARCHITECTURE.md …: lower case, as all addresses.
            (EmbeddedKind::Page, Some(stem)) => format!("{}.html", stem.to_lowercase()),
            (EmbeddedKind::Image, _) => path.to_owned(),
            _ => format!("{path}.html"),
        }
    }
}

/// Returns all embedded files.
pub(crate) fn all() -> impl Iterator<Item = EmbeddedFile> {
    SOURCES.iter().map(|(path, content)| EmbeddedFile { path, content })
}

/// Returns the embedded file at a path.
pub(crate) fn find(path: &str) -> Option<EmbeddedFile> {
    all().find(|source| source.path == path)
}

/// Target of a link of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    /// A file of the site: its path in the repository, and the anchor in it.
    Source { path: String, anchor: Option<String> },
    /// The reference of the HTTP interface.
    Reference,
    /// Another site.
    Elsewhere,
    /// A file of the repository that is not on the site: its path.
    Repository(String),
}

/// Resolves a link of the page at `from`.
pub(crate) fn resolve(from: &str, target: &str) -> LinkTarget {
    if target.contains("://") || target.starts_with("mailto:") {
        return LinkTarget::Elsewhere;
    }
    // Pages link to the reference by its address on a server.
    if target == "/docs/api" {
        return LinkTarget::Reference;
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (target, None),
    };
    let path = match path {
        "" => from.to_owned(),
        path => join(from, path),
    };
    if path == OPENAPI {
        return LinkTarget::Reference;
    }
    match find(&path) {
        Some(_) => LinkTarget::Source { path, anchor },
        None => LinkTarget::Repository(path),
    }
}

/// Resolves a relative link of a page to a path.
fn join(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Returns the relative link from one address to another, so that pages are independent of the
/// site's location.
pub(crate) fn relative(from: &str, to: &str) -> String {
    let (from, to): (Vec<&str>, Vec<&str>) = (from.split('/').collect(), to.split('/').collect());
    let directories = from.len().min(to.len()) - 1;
    let shared = (0..directories).take_while(|index| from[*index] == to[*index]).count();
    let up = "../".repeat(from.len() - 1 - shared);
    format!("{up}{}", to[shared..].join("/"))
}
