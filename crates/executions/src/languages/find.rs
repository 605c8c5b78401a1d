//! Looks for tools on the host, by file existence only: the start of the server must not wait for a
//! tool.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::table::ToolEntry;

/// A tool that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundTool {
    /// Program, on the host.
    pub(super) host_program: PathBuf,
    /// Directory, on the host.
    pub(super) host_directory: PathBuf,
    /// Program, inside a sandbox.
    pub(super) program: String,
    /// Directory, inside a sandbox.
    pub(super) directory: String,
    /// Toolchain that sandboxes must show for it, if it is not below `/usr`.
    pub(super) toolchain: Option<sandbox::Toolchain>,
}

/// Directory of the host that every sandbox shows at the same path.
const SHOWN: &str = "/usr";

/// Returns every tool of the table that exists, by name.
pub(super) fn find_all(
    tools: &BTreeMap<String, ToolEntry>,
    home: Option<&Path>,
) -> BTreeMap<String, FoundTool> {
    let mut all: BTreeMap<String, FoundTool> = BTreeMap::new();
    for (name, tool) in tools {
        let Some(mut found) = find(name, tool, home) else { continue };
        // Tools of one directory share one view of it.
        if let Some(toolchain) = &found.toolchain
            && let Some(other) = all.values().find_map(|other| {
                other.toolchain.as_ref().filter(|other| other.source == toolchain.source)
            })
        {
            found = found.mounted_as(other.clone());
        }
        all.insert(name.clone(), found);
    }
    all
}

fn find(name: &str, tool: &ToolEntry, home: Option<&Path>) -> Option<FoundTool> {
    tool.directories
        .iter()
        .flat_map(|pattern| expand(pattern, home))
        .find_map(|directory| usable(name, tool, &directory, home))
}

/// Returns the tool in `directory`, with links resolved, if it is usable.
fn usable(
    name: &str,
    tool: &ToolEntry,
    directory: &Path,
    home: Option<&Path>,
) -> Option<FoundTool> {
    let program = fs::canonicalize(directory.join(&tool.executable)).ok()?;
    if !fs::metadata(&program).ok()?.is_file() {
        return None;
    }
    if tool.interpreter.is_none() && !executable(&program) {
        return None;
    }
    // `/usr/bin/javac` resolves to `/usr/lib/jvm/…/bin/javac`: the relevant directory is the final
    // one, with the rest of the tool in it. `/usr/bin/python3` resolves to `python3.11` beside it.
    let (host_directory, host_program) = match strip_end(&program, &tool.executable) {
        Some(directory) => (directory, program.clone()),
        None => {
            let directory = fs::canonicalize(directory).ok()?;
            (directory.clone(), directory.join(&tool.executable))
        }
    };
    if host_directory.starts_with(SHOWN) && program.starts_with(SHOWN) {
        return Some(FoundTool {
            program: host_program.to_str()?.to_owned(),
            directory: host_directory.to_str()?.to_owned(),
            host_program,
            host_directory,
            toolchain: None,
        });
    }
    // A directory outside of /usr is shown alone, so it must contain the complete tool. This
    // excludes a shim (a script that picks a version) and a link to a proxy elsewhere.
    let complete = program.starts_with(&host_directory);
    if !complete || !showable(&host_directory, home) {
        return None;
    }
    if tool.interpreter.is_none() && !elf(&program) {
        return None;
    }
    let toolchain = sandbox::Toolchain { source: host_directory.clone(), name: name.to_owned() };
    let found = FoundTool {
        host_program: program,
        host_directory,
        program: String::new(),
        directory: String::new(),
        toolchain: None,
    };
    Some(found.mounted_as(toolchain))
}

impl FoundTool {
    fn mounted_as(mut self, toolchain: sandbox::Toolchain) -> FoundTool {
        self.directory = format!("/opt/{}", toolchain.name);
        let below = self.host_program.strip_prefix(&toolchain.source).unwrap_or(Path::new(""));
        self.program = format!("{}/{}", self.directory, below.display());
        self.toolchain = Some(toolchain);
        self
    }
}

/// Returns whether a directory holds one tool, and not a collection of other things.
fn showable(directory: &Path, home: Option<&Path>) -> bool {
    let holds_home = home.is_some_and(|home| {
        fs::canonicalize(home).as_deref().unwrap_or(home).starts_with(directory)
    });
    // `/opt` or `/srv` itself would show everything that is installed there.
    let parts = directory.components().count();
    !holds_home && parts > 2
}

fn executable(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

fn elf(program: &Path) -> bool {
    let mut magic = [0; 4];
    fs::File::open(program).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

/// Returns `path` without `end`, if it ends with it.
fn strip_end(path: &Path, end: &Path) -> Option<PathBuf> {
    if !path.ends_with(end) {
        return None;
    }
    path.ancestors().nth(end.components().count()).map(Path::to_owned)
}

/// Returns the directories that match `pattern`, the highest version first.
fn expand(pattern: &str, home: Option<&Path>) -> Vec<PathBuf> {
    let (mut paths, rest) = match (pattern.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => (vec![home.to_owned()], rest),
        (Some(_), None) => return Vec::new(),
        (None, _) => (vec![PathBuf::from("/")], pattern.trim_start_matches('/')),
    };
    for part in rest.split('/').filter(|part| !part.is_empty()) {
        paths = match part.contains('*') {
            false => paths.into_iter().map(|path| path.join(part)).collect(),
            true => paths.iter().flat_map(|path| matching(path, part)).collect(),
        };
    }
    paths
}

fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| matches(pattern, name))
        .collect();
    names.sort_by(|a, b| by_version(b, a));
    names.into_iter().map(|name| directory.join(name)).collect()
}

/// Returns whether `name` matches `pattern`, where `*` matches any text; hidden names only match
/// hidden patterns.
fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// Compares names by the numbers in them: `3.9` < `3.13`.
fn by_version(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    while let (Some(first_a), Some(first_b)) = (a.chars().next(), b.chars().next()) {
        if first_a.is_ascii_digit() && first_b.is_ascii_digit() {
            let (number_a, rest_a) = leading_number(a);
            let (number_b, rest_b) = leading_number(b);
            match number_a.cmp(&number_b) {
                Ordering::Equal => (a, b) = (rest_a, rest_b),
                order => return order,
            }
        } else if first_a == first_b {
            (a, b) = (&a[first_a.len_utf8()..], &b[first_b.len_utf8()..]);
        } else {
            return first_a.cmp(&first_b);
        }
    }
    a.len().cmp(&b.len())
}

/// Splits off the number at the start, as its length and digits without leading zeros.
fn leading_number(text: &str) -> ((usize, &str), &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let digits = text[..end].trim_start_matches('0');
    ((digits.len(), digits), &text[end..])
}

#[cfg(test)]
mod tests;
