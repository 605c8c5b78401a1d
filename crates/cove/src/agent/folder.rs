//! Reads the files of a local folder for deployment: all files except secrets, repositories and
//! paths that `.coveignore` excludes.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use api::AgentFile;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::usage_error::UsageError;

/// File with patterns of files that are not deployed.
pub(crate) const IGNORE: &str = ".coveignore";
/// Names that are left out unless a line of [`IGNORE`] includes them again: repositories, whose
/// history contains every earlier file of the folder, and files in which tools keep secrets.
const LEFT_OUT: [&str; 12] = [
    ".git",
    ".hg",
    ".svn",
    ".env",
    ".env.*",
    ".netrc",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".aws",
    ".gnupg",
    ".DS_Store",
];
/// Maximum number and total bytes of a folder's files: slightly above any server's limit, so that a
/// server with a lower limit rejects the request with its own message.
const FILES_MAX: usize = 20_000;
const BYTES_MAX: u64 = 256 << 20;
/// Maximum depth of nested directories.
const DEPTH_MAX: usize = 64;

/// Files of a folder.
#[derive(Debug, Default)]
pub(crate) struct AgentFolder {
    /// Files, sorted by path.
    pub(crate) files: Vec<AgentFile>,
    /// Total bytes of the files.
    pub(crate) bytes: u64,
    /// Paths that the built-in rules exclude, without a line of [`IGNORE`].
    pub(crate) left_out: Vec<String>,
}

/// Rules for the files of a folder.
struct FolderRules<'a> {
    root: &'a Path,
    /// Names at the top that are left out.
    without: &'a [&'a str],
    ignored: IgnorePatterns,
}

impl AgentFolder {
    /// Reads the folder, without the entries of its top directory that `without` names.
    pub(crate) fn read(directory: &Path, without: &[&str]) -> Result<AgentFolder> {
        let root = fs::canonicalize(directory)
            .with_context(|| format!("read `{}`", directory.display()))?;
        let ignored = match fs::read_to_string(root.join(IGNORE)) {
            Ok(text) => IgnorePatterns::new(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => IgnorePatterns::default(),
            Err(error) => {
                return Err(error).with_context(|| format!("read `{IGNORE}` of the folder"));
            }
        };
        let mut folder = AgentFolder::default();
        let rules = FolderRules { root: &root, without, ignored };
        folder.walk(&rules, &root, "", 0)?;
        folder.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(folder)
    }

    fn walk(
        &mut self,
        rules: &FolderRules<'_>,
        directory: &Path,
        prefix: &str,
        depth: usize,
    ) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(UsageError(format!("`{prefix}` is deeper than {DEPTH_MAX} levels")).into());
        }
        let failed = || format!("read `{}`", directory.display());
        for entry in fs::read_dir(directory).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                let path_text = entry.path().display().to_string();
                return Err(UsageError(format!("the name of `{path_text}` is not UTF-8")).into());
            };
            if prefix.is_empty() && rules.without.contains(&name) {
                continue;
            }
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().with_context(failed)?;
            match rules.ignored.has(&path, kind.is_dir()) {
                Some(true) => continue,
                None if LEFT_OUT.iter().any(|pattern| fits(pattern, name)) => {
                    self.left_out.push(path);
                    continue;
                }
                Some(false) | None => {}
            }
            if kind.is_dir() {
                let below = format!("{path}/");
                self.walk(rules, &entry.path(), &below, depth + 1)?;
            } else {
                self.add(rules.root, &entry.path(), path)?;
            }
        }
        Ok(())
    }

    /// Adds a file. A link is followed if its target is a file of this folder, so that no file from
    /// outside is uploaded unnoticed.
    fn add(&mut self, root: &Path, file: &Path, path: String) -> Result<()> {
        let real = fs::canonicalize(file).with_context(|| format!("follow `{path}`"))?;
        let found = fs::metadata(&real).with_context(|| format!("read `{path}`"))?;
        if !found.is_file() || !real.starts_with(root) {
            let message = format!(
                "`{path}` is neither a file nor a link to one in this folder; `{IGNORE}` can name it"
            );
            return Err(UsageError(message).into());
        }
        self.bytes = self.bytes.saturating_add(found.len());
        if self.files.len() >= FILES_MAX || self.bytes > BYTES_MAX {
            let message = format!(
                "the folder has more than {FILES_MAX} files or {} MiB; `{IGNORE}` can name what \
                 is not needed",
                BYTES_MAX >> 20
            );
            return Err(UsageError(message).into());
        }
        let mut content = Vec::new();
        let opened = fs::File::open(&real).with_context(|| format!("read `{path}`"))?;
        opened
            .take(BYTES_MAX)
            .read_to_end(&mut content)
            .with_context(|| format!("read `{path}`"))?;
        let executable = found.permissions().mode() & 0o111 != 0;
        let (content, base64) = match String::from_utf8(content) {
            Ok(text) => (text, false),
            Err(error) => (BASE64.encode(error.as_bytes()), true),
        };
        self.files.push(AgentFile { path, content, base64, executable });
        Ok(())
    }
}

/// Returns the default name of a folder's agent: the name of the directory.
pub(crate) fn name_of(directory: &Path) -> Result<String> {
    let real =
        fs::canonicalize(directory).with_context(|| format!("read `{}`", directory.display()))?;
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_plain) {
        let message = "the folder's name has other characters than letters, digits, `_` and `-`; \
                       give --name";
        return Err(UsageError(message.to_owned()).into());
    }
    Ok(name.to_owned())
}

/// Patterns of files that are not deployed.
#[derive(Debug, Default)]
struct IgnorePatterns(Vec<IgnorePattern>);

#[derive(Debug)]
struct IgnorePattern {
    /// Parts between slashes, each with `*` for anything.
    parts: Vec<String>,
    /// True if the pattern begins at the top; otherwise it is a name anywhere.
    is_anchored: bool,
    /// True if the pattern matches directories only.
    is_directory: bool,
    /// True if the pattern includes paths that an earlier one excludes.
    is_exception: bool,
}

impl IgnorePatterns {
    /// Reads patterns, one on a line; empty lines and those with `#` in front are skipped.
    fn new(text: &str) -> IgnorePatterns {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pattern = |line: &str| {
            let is_exception = line.starts_with('!');
            let line = line.trim_start_matches('!');
            let is_directory = line.ends_with('/');
            let inner = line.trim_end_matches('/');
            let is_anchored = inner.contains('/');
            let parts = inner.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
            IgnorePattern { parts: parts.collect(), is_anchored, is_directory, is_exception }
        };
        IgnorePatterns(lines.map(pattern).filter(|pattern| !pattern.parts.is_empty()).collect())
    }

    /// Returns whether the path is excluded, according to the last pattern that matches it; `None`
    /// if no pattern matches.
    fn has(&self, path: &str, is_directory: bool) -> Option<bool> {
        let last = self.0.iter().rfind(|pattern| {
            if pattern.is_directory && !is_directory {
                return false;
            }
            let parts: Vec<&str> = path.split('/').collect();
            match pattern.is_anchored {
                true => {
                    parts.len() == pattern.parts.len()
                        && parts.iter().zip(&pattern.parts).all(|(part, it)| fits(it, part))
                }
                false => {
                    let name = parts.last().copied().unwrap_or_default();
                    pattern.parts.first().is_some_and(|it| fits(it, name))
                }
            }
        });
        last.map(|pattern| !pattern.is_exception)
    }
}

/// Returns whether a name matches a pattern, in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = pattern.contains('*').then(|| pieces.next_back().unwrap_or_default()) else {
        return rest.is_empty();
    };
    // Taking the earliest match of each piece leaves the longest rest for the following pieces.
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = rest.get(at + piece.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    //! Which files are deployed and which are not.

    use std::os::unix::fs::symlink;

    use testkit::Scratch;

    use super::*;

    fn make(scratch: &Scratch, path: &str, content: &[u8]) {
        let path = scratch.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn files_go_along_but_for_secrets_repositories_and_what_is_named() {
        let scratch = Scratch::new();
        for path in [
            ".git/HEAD",
            ".env",
            "src/.env.local",
            ".mcp.json",
            "src/a.py",
            "src/a.pyc",
            "build/x",
            "src/build/y",
            "b.lock",
        ] {
            make(&scratch, path, b"x");
        }
        make(&scratch, "bin/tool", b"\xff\x00");
        let tool = scratch.path().join("bin/tool");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        symlink("src/a.py", scratch.path().join("link.py")).unwrap();
        let paths = |folder: &AgentFolder| -> Vec<String> {
            folder.files.iter().map(|file| file.path.clone()).collect()
        };
        let folder = AgentFolder::read(scratch.path(), &[]).unwrap();
        let all = [
            ".mcp.json",
            "b.lock",
            "bin/tool",
            "build/x",
            "link.py",
            "src/a.py",
            "src/a.pyc",
            "src/build/y",
        ];
        assert_eq!(paths(&folder), all);
        let mut left_out = folder.left_out.clone();
        left_out.sort();
        assert_eq!(left_out, [".env", ".git", "src/.env.local"]);
        let tool = &folder.files[2];
        assert!(tool.base64 && tool.executable, "{tool:?}");
        assert!(!folder.files[0].base64 && !folder.files[0].executable);
        make(&scratch, IGNORE, b"# not these\n*.pyc\n/build/\n\n!.env\n.git\n");
        let folder = AgentFolder::read(scratch.path(), &[IGNORE]).unwrap();
        let left =
            [".env", ".mcp.json", "b.lock", "bin/tool", "link.py", "src/a.py", "src/build/y"];
        assert_eq!(paths(&folder), left);
        assert_eq!(folder.left_out, ["src/.env.local"], "what was named is not told");
    }

    #[test]
    fn nothing_of_elsewhere_goes_along() {
        let scratch = Scratch::new();
        symlink("/etc/hostname", scratch.path().join("leak")).unwrap();
        let error = AgentFolder::read(scratch.path(), &[]).unwrap_err();
        assert!(format!("{error:#}").contains("`leak`"), "{error:#}");
        make(&scratch, IGNORE, b"leak\n");
        assert!(AgentFolder::read(scratch.path(), &[IGNORE]).unwrap().files.is_empty());
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*.o", "x.o", true),
            ("*.o", ".o", true),
            ("*.o", "x.os", false),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "ac", false),
            ("a*a", "a", false),
            ("*a*", "bab", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_begin_at_the_top_or_are_names_anywhere() {
        let patterns = IgnorePatterns::new("node_modules/\n/dist\nsrc/*.tmp\n");
        let exceptions = IgnorePatterns::new("*.tmp\n!keep.tmp\n");
        assert_eq!(exceptions.has("a/keep.tmp", false), Some(false));
        assert_eq!(exceptions.has("a/b.tmp", false), Some(true));
        for (path, is_directory, expected) in [
            ("node_modules", true, true),
            ("web/node_modules", true, true),
            ("node_modules", false, false),
            ("src/a.tmp", false, true),
            ("x/src/a.tmp", false, false),
            ("src/x/a.tmp", false, false),
            ("dist", false, true),
            ("web/dist", false, false),
        ] {
            assert_eq!(patterns.has(path, is_directory), expected.then_some(true), "{path}");
        }
    }
}
