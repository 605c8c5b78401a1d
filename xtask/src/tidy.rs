//! Checks of the conventions that a machine can check. Runs as a test of this crate and as
//! `cargo run -p xtask -- tidy`.
//!
//! Every rule is a function from text to findings with a test of its own; [`check`] walks the
//! checkout and applies them all. A finding is a line `path:line: problem`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::site_sources;

mod console;
mod doc_links;
mod generated;
mod manifest;
pub(crate) mod markdown;
mod module_layers;
mod names;
mod rust;
mod sandbox_connections;
mod threats;

/// Directories with generated files.
const SKIPPED: &[&str] = &[
    "target",
    ".git",
    "node_modules",
    "__pycache__",
    ".cache",
    ".test-deps",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
];
/// Largest file; larger files are generated or belong elsewhere.
const FILE_BYTES_MAX: usize = 300 << 10;
/// Marks of unfinished work and of paths that exist on one machine only. Written in two halves, so
/// that the rule does not match this file.
const UNWANTED: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "finish it, or open an issue"),
    (concat!("dbg", "!("), "a left-over of debugging"),
    (concat!("todo", "!("), "finish it"),
    (concat!("unimplemented", "!("), "finish it"),
    (concat!("/work", "/main"), "a path of one machine"),
    (concat!("/work", "/shared"), "a path of one machine"),
    (concat!("/tmp", "/research"), "a path of one machine"),
    (concat!("/root", "/.cargo"), "a path of one machine"),
    (concat!("/root", "/.pyenv"), "a path of one machine"),
    (concat!("/mnt", "/sandboxing"), "a path of one machine"),
    (concat!("sparse", "+http"), "the address of a registry"),
    (concat!("[source", ".crates-io]"), "the address of a registry"),
    (concat!("GO", "PROXY=http"), "the address of a registry"),
    (concat!("--index", "-url"), "the address of a registry"),
];
/// The permitted source of packages in a lock file.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A file of the checkout.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// The file's text; empty if the file is not text.
    pub(crate) text: String,
    size: usize,
}

impl SourceFile {
    /// Returns the size in bytes, also of files that are not text.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned(), size: text.len() }
    }
}

/// Collected findings.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<String>);

impl Findings {
    /// Adds a finding; `line` counts from 1, 0 means the whole file.
    pub(crate) fn add(&mut self, path: &str, line: usize, what: impl AsRef<str>) {
        self.0.push(format!("{path}:{line}: {}", what.as_ref()));
    }
}

/// Checks the checkout at `root`.
///
/// # Errors
/// If a rule is violated; one line per finding.
pub(crate) fn check(root: &Path) -> Result<String> {
    let files = collect_all(root)?;
    let mut findings = Findings::default();
    for file in &files {
        check_any(file, &mut findings);
        match file.path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("rs") => rust::check(file, &mut findings),
            Some("md") => markdown::check(file, &paths(&files), &mut findings),
            _ => {}
        }
    }
    if let Some(page) = files.iter().find(|file| file.path == threats::PAGE) {
        threats::check(page, &files, &mut findings);
    }
    console::check(&files, &mut findings);
    check_site(&files, &mut findings);
    generated::check(&files, &mut findings);
    sandbox_connections::check(&files, &mut findings);
    manifest::check(&files, &mut findings)?;
    rust::check_long_files(&files, &mut findings);
    doc_links::check(&files, &mut findings);
    module_layers::check(&files, &mut findings);
    names::check(&files, &mut findings);
    if findings.0.is_empty() {
        return Ok(format!("tidy: {} files\n", files.len()));
    }
    bail!("{} findings:\n{}", findings.0.len(), findings.0.join("\n"))
}

/// Checks that the documentation's site has every page.
fn check_site(files: &[SourceFile], findings: &mut Findings) {
    let written = files.iter().find(|file| file.path == site_sources::LIST);
    if written.is_none_or(|file| file.text != site_sources::list(files)) {
        findings.add(site_sources::LIST, 0, "is not current: run `cargo run -p xtask -- gen`");
    }
}

/// Reads all files of the checkout at `root`.
///
/// # Errors
/// If a file or directory cannot be read.
pub(crate) fn collect_all(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    collect(root, root, &mut files)?;
    Ok(files)
}

fn paths(files: &[SourceFile]) -> BTreeSet<&str> {
    files.iter().map(|file| file.path.as_str()).collect()
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        let path = entry.path();
        if kind.is_dir() {
            if !SKIPPED.iter().any(|name| entry.file_name() == *name) {
                collect(root, &path, files)?;
            }
        } else if kind.is_file() {
            let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
            let size = bytes.len();
            files.push(SourceFile {
                path: relative,
                text: String::from_utf8(bytes).unwrap_or_default(),
                size,
            });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(())
}

/// Checks the rules for every file.
fn check_any(file: &SourceFile, findings: &mut Findings) {
    let is_lock = file.path.ends_with("Cargo.lock");
    let is_made = is_lock
        || file.path == "crates/api/openapi.json"
        || file.path.starts_with("crates/console/dist/");
    if file.size > FILE_BYTES_MAX && !is_made {
        findings.add(&file.path, 0, format!("{} bytes, more than {FILE_BYTES_MAX}", file.size));
    }
    for (index, line) in file.text.lines().enumerate() {
        for (mark, why) in UNWANTED {
            // Examples in documentation may be incomplete.
            let is_example = mark.ends_with("!(") && line.trim_start().starts_with("//");
            if line.contains(mark) && !is_example {
                findings.add(&file.path, index + 1, format!("`{mark}`: {why}"));
            }
        }
        let source = line.strip_prefix("source = ").filter(|_| is_lock);
        if source.is_some_and(|source| source.trim_matches('"') != REGISTRY) {
            findings.add(&file.path, index + 1, "a package that is not from the public registry");
        }
    }
}

#[cfg(test)]
mod tests;
