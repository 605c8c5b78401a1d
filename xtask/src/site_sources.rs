//! The list of files that are embedded as the documentation's site.
//!
//! Pages are found by their paths; images and small files are added by the pages that link to them.
//! `xtask gen` writes the list and `tidy` compares it, so that no page is left out.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::tidy::{SourceFile, markdown};

/// Path of the list.
pub(crate) const LIST: &str = "crates/site/src/sources.inc";

/// Largest linked file that becomes a page; links to others name the file only.
const LINKED_BYTES_MAX: usize = 24 << 10;

/// Pages at the root of the repository.
const ROOT_PAGES: &[&str] =
    &["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];

/// Returns the expected content of the list's file.
pub(crate) fn list(files: &[SourceFile]) -> String {
    let pages: Vec<&SourceFile> = files.iter().filter(|file| is_page(&file.path)).collect();
    let mut paths: BTreeSet<&str> = pages.iter().map(|page| page.path.as_str()).collect();
    for page in pages {
        let targets = markdown::linked_paths(page);
        let linked = files.iter().filter(|file| targets.contains(&file.path));
        paths.extend(linked.filter(|file| is_shown(file)).map(|file| file.path.as_str()));
    }
    let mut list = String::from("&[\n");
    for path in paths {
        let _ = writeln!(list, "    (\"{path}\", include_bytes!(\"../../../{path}\")),");
    }
    list.push_str("]\n");
    list
}

fn is_page(path: &str) -> bool {
    let is_described = ["examples/", "packaging/helm/"].iter().any(|it| path.starts_with(it));
    let is_recipe = is_described && path.ends_with("/README.md");
    let is_result = path.starts_with("bench/") && path.matches('/').count() == 1;
    ROOT_PAGES.contains(&path)
        || path.ends_with(".md") && (path.starts_with("docs/") || is_recipe || is_result)
}

/// Returns whether a file that a page links to is on the site: an image, or a short text.
fn is_shown(file: &SourceFile) -> bool {
    let is_short_text = !file.text.is_empty() && file.size() <= LINKED_BYTES_MAX;
    let is_markdown = file.path.ends_with(".md");
    let is_image = file.path.ends_with(".png") || file.path.ends_with(".webp");
    is_image || is_short_text && !is_markdown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_bring_their_images_and_short_files() {
        let of = |path: &str, text: &str| SourceFile::new(path, text);
        let page = "# A\n[x](cove.toml) ![y](images/y.png) [z](long.txt) [u](../crates/u.md)\n";
        let files = [
            of("crates/u.md", "# U\n"),
            of("docs/a.md", page),
            of("docs/cove.toml", "a = 1\n"),
            of("docs/images/unused.txt", "x"),
            of("docs/images/y.png", ""),
            of("docs/long.txt", &"x".repeat(LINKED_BYTES_MAX + 1)),
            of("examples/b/README.md", "# B\n"),
            of("examples/b/agent.md", "# C\n"),
            of("packaging/helm/c/README.md", "# D\n"),
        ];
        let list = list(&files);
        let paths: Vec<&str> = list
            .lines()
            .filter_map(|line| line.strip_prefix("    (\"")?.split('"').next())
            .collect();
        let expected = [
            "docs/a.md",
            "docs/cove.toml",
            "docs/images/y.png",
            "examples/b/README.md",
            "packaging/helm/c/README.md",
        ];
        assert_eq!(paths, expected);
    }
}
