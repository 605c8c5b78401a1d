//! Rules for pages: one title, links with existing targets, a code map that names existing files.

use std::collections::BTreeSet;

use super::{Findings, SourceFile};

/// The page with the map.
const MAP: &str = "ARCHITECTURE.md";
/// Path of a server's API reference, which is not a file.
const REFERENCE: &str = "/docs/api";
/// Endings of names in the map that must be files.
const EXTENSIONS: &[&str] = &[".rs", ".toml", ".md", ".json", ".sh", ".py", ".c", ".yaml"];

pub(super) fn check(file: &SourceFile, paths: &BTreeSet<&str>, findings: &mut Findings) {
    let prose: Vec<(usize, &str)> = outside_of_code(&file.text).collect();
    let titles = prose.iter().filter(|(_, line)| line.starts_with("# ")).count();
    if titles != 1 {
        findings.add(&file.path, 0, format!("{titles} titles (`# `), expected one"));
    }
    for (number, line) in &prose {
        for target in links(line) {
            if !resolves(&file.path, target, paths) {
                findings.add(&file.path, *number, format!("`{target}` leads nowhere"));
            }
        }
    }
    if file.path == MAP {
        for (number, line) in prose {
            for name in line.split('`').skip(1).step_by(2).filter(|name| is_path(name)) {
                if !exists(name, paths) {
                    findings.add(&file.path, number, format!("`{name}` does not exist"));
                }
            }
        }
    }
}

/// Returns the paths that the links of a page lead to, whether or not they exist.
pub(crate) fn linked_paths(page: &SourceFile) -> BTreeSet<String> {
    let lines = outside_of_code(&page.text);
    lines
        .flat_map(|(_, line)| links(line))
        .filter_map(|link| linked_path(&page.path, link))
        .collect()
}

/// Returns the lines outside fenced blocks, with their numbers.
fn outside_of_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

/// Returns the targets of `[text](target)` that are files of the checkout.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains(':') && !target.starts_with('#'))
}

fn resolves(page: &str, target: &str, paths: &BTreeSet<&str>) -> bool {
    target == REFERENCE || linked_path(page, target).is_some_and(|path| is_there(&path, paths))
}

/// Returns the path of a page's link; none if it leads out of the checkout.
fn linked_path(page: &str, target: &str) -> Option<String> {
    let target = target.split(['#', '?']).next().unwrap_or("");
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => page.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Returns whether the path is a file, or a directory with a file.
fn is_there(path: &str, paths: &BTreeSet<&str>) -> bool {
    let path = path.trim_end_matches('/');
    let inside = format!("{path}/");
    path.is_empty() || paths.contains(path) || paths.iter().any(|one| one.starts_with(&inside))
}

/// Returns whether a name in backquotes refers to a file of the checkout.
fn is_path(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let rooted = ["crates/", "xtask/", "bench/", "docs/", "scripts/", "examples/", ".ci/"];
    let known = rooted.iter().any(|root| name.starts_with(root));
    plain && (known || EXTENSIONS.iter().any(|extension| name.ends_with(extension)))
}

/// Returns whether the file exists. Files of a crate may be named relative to the crate: `sys.rs`,
/// `http/json.rs`.
fn exists(name: &str, paths: &BTreeSet<&str>) -> bool {
    let tail = format!("/{name}");
    is_there(name, paths) || paths.iter().any(|path| path.ends_with(&tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let paths =
            BTreeSet::from(["README.md", "docs/a.md", "docs/b/c.md", "crates/pool/src/lib.rs"]);
        let mut findings = Findings::default();
        let file = SourceFile { path: path.to_owned(), text: text.to_owned(), size: text.len() };
        check(&file, &paths, &mut findings);
        findings.0
    }

    #[test]
    fn a_page_has_one_title() {
        assert!(findings("a.md", "# A\n\n```sh\n# a comment\n```\n## B\n").is_empty());
        assert_eq!(findings("a.md", "# A\n# B\n").len(), 1);
        assert_eq!(findings("a.md", "text\n").len(), 1);
    }

    #[test]
    fn links_lead_somewhere() {
        for good in [
            "docs/a.md",
            "docs/a.md#part",
            "docs",
            "https://example.com",
            "#here",
            "docs/b/../a.md",
        ] {
            assert!(findings("README.md", &format!("# A\n[x]({good})\n")).is_empty(), "{good}");
        }
        for bad in ["docs/z.md", "../README.md", "a.md"] {
            assert_eq!(findings("README.md", &format!("# A\n[x]({bad})\n")).len(), 1, "{bad}");
        }
        assert!(findings("docs/b/c.md", "# A\n[x](../a.md) [y](/README.md)\n").is_empty());
    }

    #[test]
    fn the_map_names_what_exists() {
        for good in
            ["crates/pool", "crates/pool/src/lib.rs", "lib.rs", "Pool<K, R>", "a/b", "cove run"]
        {
            assert!(findings(MAP, &format!("# A\n`{good}`\n")).is_empty(), "{good}");
        }
        for bad in ["crates/pond", "lob.rs", "docs/z.md"] {
            assert_eq!(findings(MAP, &format!("# A\n`{bad}`\n")).len(), 1, "{bad}");
        }
    }
}
