//! The documentation as a site: the Markdown files of the repository as pages, with navigation,
//! search and the reference of the HTTP interface.
//!
//! The same files are served at `/docs` and written to a directory by `cove docs`, where they work
//! without a server. The crate never loads anything from elsewhere, never reads a token, and never
//! lets HTML of a Markdown file through: it is shown as text.
//!
//! ```text
//! sources.inc ──► Sources ──► markdown ──► page ──┐
//! docs/README.md ──► Navigation ──────────────────┼──► SiteFiles ──► http, `cove docs`
//! openapi.json ──► reference ─────────────────────┘
//! ```
//!
//! - `sources`: the embedded files, the address of each, and where a link leads.
//! - `markdown`: one page: HTML, headings, sections for the search.
//! - `navigation`: groups and order of the pages, from the tables of `docs/README.md`.
//! - `page`: the frame around a page.
//! - `search`: the index that the script of the search page reads.
//! - `reference`: `openapi.json` as a page.
//! - `files`: all files of the site by address, rendered once.
//! - `http`: routes and headers.

mod files;
mod http;
mod markdown;
mod navigation;
mod page;
mod reference;
mod search;
mod sources;

pub use crate::files::static_files;
pub use crate::http::routes;

#[cfg(test)]
mod tests;
