//! Agents deployed from a folder on the server: `deployAgent(name, path)` of Ash's clients.
//!
//! Only folders below the operator's configured directory, because callers must not read anything
//! else on the machine.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use api::AgentFile;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::call::AshFailure;

/// Maximum number of files of a folder, and of their bytes; the deployment has limits of its own.
const FILES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 48 << 20;
/// Maximum depth of a folder.
const DEPTH_MAX: usize = 64;
/// Error for everything unreadable, so that callers learn nothing about other files.
const MISSING: &str = "Agent directory must contain CLAUDE.md";

/// Reads the folder at a path below `root`.
pub(super) async fn read(root: Option<&Path>, path: &str) -> Result<Vec<AgentFile>, AshFailure> {
    let Some(root) = root else {
        let how = "send `files`, or set `compat.ash.agents` to the directory that has agents";
        let message = format!("path: this server reads no directories for its callers; {how}");
        return Err(AshFailure::bad(message));
    };
    let path = below(root, path).ok_or_else(|| AshFailure::bad(MISSING))?;
    let read = node::task::blocking(move || walk(&path)).await;
    match read.map_err(AshFailure::internal)? {
        Ok(files) => Ok(files),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            let message = format!("path: more than {FILES_MAX} files or {BYTES_MAX} bytes");
            Err(AshFailure::bad(message))
        }
        Err(error) => {
            tracing::info!(error = &error as &dyn std::error::Error, "no agent could be read");
            Err(AshFailure::bad(MISSING))
        }
    }
}

/// Resolves a path below `root`, with or without that prefix; none if it leads elsewhere.
fn below(root: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let rest = if path.is_absolute() { path.strip_prefix(root).ok()? } else { path };
    let mut full = root.to_owned();
    for part in rest.components() {
        match part {
            Component::Normal(part) => full.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
        // Links could lead anywhere.
        if fs::symlink_metadata(&full).is_ok_and(|found| found.is_symlink()) {
            return None;
        }
    }
    Some(full)
}

/// Reads the files of a folder. Skips links and special files.
fn walk(folder: &Path) -> io::Result<Vec<AgentFile>> {
    let mut files = Vec::new();
    let mut bytes_left = BYTES_MAX;
    let mut todo = vec![(folder.to_owned(), 0)];
    while let Some((directory, depth)) = todo.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if depth >= DEPTH_MAX {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                todo.push((entry.path(), depth + 1));
            } else if kind.is_file() {
                if files.len() >= FILES_MAX {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                files.push(file(folder, &entry.path(), &mut bytes_left)?);
            }
        }
    }
    Ok(files)
}

fn file(folder: &Path, path: &Path, bytes_left: &mut u64) -> io::Result<AgentFile> {
    let name = path.strip_prefix(folder).ok().and_then(Path::to_str);
    let name = name.ok_or(io::ErrorKind::InvalidFilename)?;
    let mut open = fs::File::open(path)?;
    let mode = open.metadata()?.permissions().mode();
    let mut content = Vec::new();
    let count = (&mut open).take(*bytes_left + 1).read_to_end(&mut content)?;
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    *bytes_left = bytes_left.checked_sub(count).ok_or(io::ErrorKind::FileTooLarge)?;
    Ok(AgentFile {
        path: name.to_owned(),
        content: BASE64.encode(content),
        base64: true,
        executable: mode & 0o111 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed on drop.
    struct Temp(PathBuf);

    impl Drop for Temp {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// Creates a directory with an agent, and beside it a file that must stay hidden.
    fn root(name: &str) -> Temp {
        let name = format!("cove-ash-{name}-{}", std::process::id());
        let temp = Temp(std::env::temp_dir().join(name));
        let agent = temp.0.join("agents/brief");
        fs::create_dir_all(agent.join("sub")).unwrap();
        fs::write(agent.join("CLAUDE.md"), "# Brief").unwrap();
        fs::write(agent.join("sub/run.sh"), "#!/bin/sh").unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(agent.join("sub/run.sh"), mode).unwrap();
        fs::write(temp.0.join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", agent.join("link")).unwrap();
        std::os::unix::fs::symlink(&temp.0, temp.0.join("agents/out")).unwrap();
        temp
    }

    #[tokio::test]
    async fn folders_below_the_directory_are_read() {
        let temp = root("read");
        let agents = temp.0.join("agents");
        let absolute = agents.join("brief");
        for path in ["brief", "./brief/", absolute.to_str().unwrap()] {
            let mut files = read(Some(&agents), path).await.unwrap();
            files.sort_by(|a, b| a.path.cmp(&b.path));
            let seen: Vec<_> = files.iter().map(|file| (&*file.path, file.executable)).collect();
            assert_eq!(seen, [("CLAUDE.md", false), ("sub/run.sh", true)], "{path}");
        }
    }

    #[tokio::test]
    async fn nothing_else_is() {
        let temp = root("else");
        let agents = temp.0.join("agents");
        for path in ["..", "../agents/brief", "/etc", "out", "out/agents", "nowhere", "brief/link"]
        {
            assert_eq!(read(Some(&agents), path).await, Err(AshFailure::bad(MISSING)), "{path}");
        }
        assert!(read(None, "brief").await.is_err());
    }
}
