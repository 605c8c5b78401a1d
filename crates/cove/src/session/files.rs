//! `cove session files`: copies and lists files of a session.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::{FileEntry, FileList};
use axum::http::Method;

use super::usage;
use crate::agent::print_line;
use crate::cli::{FilesCommand, SessionFilePath};
use crate::percent::escaped;
use crate::remote::{Remote, plain};
use crate::run::print_json;
use crate::values::human_bytes;

/// Maximum entries of one listing.
const ENTRIES_MAX: usize = 50_000;
/// Largest file that is sent, in bytes: it is held in memory.
const PUT_BYTES_MAX: u64 = 1 << 30;
/// Timeout of a file transfer.
const PUT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

pub(super) async fn run(command: &FilesCommand, server: &Remote, json: bool) -> Result<()> {
    match command {
        FilesCommand::Ls { place, depth } => list(place, *depth, server, json).await,
        FilesCommand::Get { place, local } => get(place, local.as_deref(), server).await,
        FilesCommand::Put { local, place } => put(local, place, server, json).await,
        FilesCommand::Rm { place, recursive } => {
            let query = if *recursive { "?recursive=true" } else { "" };
            let target = format!("{}{query}", address(place, None));
            server.open(server.request(Method::DELETE, &target)).await?;
            Ok(())
        }
    }
}

/// Returns the path of a file: each segment is escaped, so that no name can change the path.
fn address(place: &SessionFilePath, name: Option<&str>) -> String {
    let path = place.path.as_deref().unwrap_or_default();
    let path = match name {
        Some(name) => format!("{path}{name}"),
        None => path.to_owned(),
    };
    let parts: Vec<String> = path.split('/').map(part).collect();
    format!("/v1/sessions/{}/files/{}", place.id, parts.join("/"))
}

/// Escapes a segment. HTTP clients and proxies would resolve `.` and `..`.
fn part(part: &str) -> String {
    match part {
        "." | ".." => part.replace('.', "%2E"),
        _ => escaped(part),
    }
}

async fn list(place: &SessionFilePath, depth: u32, server: &Remote, json: bool) -> Result<()> {
    let path = place.path.as_deref().map(|path| format!("&path={}", escaped(path)));
    let query = format!("?limit={ENTRIES_MAX}&depth={depth}{}", path.unwrap_or_default());
    let target = format!("/v1/sessions/{}/files{query}", place.id);
    let list: FileList = server.call(Method::GET, &target).await?;
    if json {
        return list.entries.iter().try_for_each(print_line);
    }
    for entry in &list.entries {
        writeln!(io::stdout(), "{}", line(entry))?;
    }
    if list.truncated {
        crate::messages::complain(&format!("there are more than {ENTRIES_MAX} entries"));
    }
    Ok(())
}

fn line(entry: &FileEntry) -> String {
    let kind = match entry.kind.as_str() {
        "dir" => 'd',
        "symlink" => 'l',
        "file" => '-',
        _ => '?',
    };
    let target = entry.target.as_deref().map(|target| format!(" -> {}", plain(target)));
    format!(
        "{kind} {:04o}  {:>10}  {}{}",
        entry.mode,
        human_bytes(entry.size),
        plain(&entry.path),
        target.unwrap_or_default()
    )
}

async fn get(place: &SessionFilePath, local: Option<&Path>, server: &Remote) -> Result<()> {
    let name = place.path.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let to: PathBuf = match local {
        Some(path) if path == Path::new("-") => PathBuf::new(),
        Some(path) if path.is_dir() => path.join(file_name(name)?),
        Some(path) => path.to_owned(),
        None => PathBuf::from(file_name(name)?),
    };
    let mut request = server.request(Method::GET, &address(place, None));
    request.response_bytes_max = u64::MAX;
    let mut response = server.open(request).await?;
    let failed = || format!("write `{}`", to.display());
    let mut file = match to.as_os_str().is_empty() {
        true => None,
        false => Some(File::create(&to).with_context(failed)?),
    };
    while let Some(piece) = response.chunk().await.map_err(|error| server.explain(error))? {
        match &mut file {
            Some(file) => file.write_all(&piece).with_context(failed)?,
            None => io::stdout().write_all(&piece)?,
        }
    }
    match &mut file {
        Some(file) => file.flush().with_context(failed)?,
        None => io::stdout().flush()?,
    }
    Ok(())
}

/// Returns the local name of a file, which never leads to another directory.
fn file_name(name: &str) -> Result<&str> {
    match name {
        "" | "." | ".." => Err(usage("specify a local file name")),
        name => Ok(name),
    }
}

async fn put(local: &Path, place: &SessionFilePath, server: &Remote, json: bool) -> Result<()> {
    let is_stdin = local == Path::new("-");
    let mut bytes = Vec::new();
    if is_stdin {
        io::stdin().lock().take(PUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    } else {
        let file = File::open(local)?;
        file.take(PUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    }
    if u64::try_from(bytes.len()).is_ok_and(|len| len > PUT_BYTES_MAX) {
        let max = human_bytes(PUT_BYTES_MAX);
        return Err(usage(format!("it is larger than {max}; send it in an archive")));
    }
    let into_directory = place.path.as_deref().is_none_or(|path| path.ends_with('/'));
    let name = match (into_directory, is_stdin) {
        (false, _) => None,
        (true, true) => return Err(usage("standard input has no name: give one as ID:PATH")),
        (true, false) => local.file_name().and_then(|name| name.to_str()),
    };
    let mut request = server.request(Method::PUT, &address(place, name));
    request.body = bytes.into();
    request.timeout = PUT_TIMEOUT;
    let entry: FileEntry = server.ask(request).await?;
    if json {
        return Ok(print_json(&entry)?);
    }
    writeln!(io::stdout(), "{}  {}", plain(&entry.path), human_bytes(entry.size))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Request paths.

    use super::*;

    #[test]
    fn no_name_is_another_address() {
        let check = |path: &str, expected: &str| {
            let place = SessionFilePath { id: "ses_1".to_owned(), path: Some(path.to_owned()) };
            assert_eq!(address(&place, None), format!("/v1/sessions/ses_1/files/{expected}"));
        };
        check("a/b c?#%.txt", "a/b%20c%3F%23%25.txt");
        check("/etc/hosts", "/etc/hosts");
        check("~/x", "~/x");
        check("../x", "%2E%2E/x");
        let place = SessionFilePath { id: "s".to_owned(), path: Some("in/".to_owned()) };
        assert_eq!(address(&place, Some("a b")), "/v1/sessions/s/files/in/a%20b");
    }

    #[test]
    fn files_that_are_fetched_stay_here() {
        for bad in ["", ".", ".."] {
            assert!(file_name(bad).is_err(), "{bad:?}");
        }
        assert_eq!(file_name("a").unwrap(), "a");
    }
}
