//! Reads an archive: checks all of it, and optionally unpacks it.
//!
//! An archive is untrusted. Each member must be a regular file below `data/` whose name starts with
//! a part of a data directory, in ascending order, so that no name occurs twice. A file is created
//! anew and never through a link, in a directory that was made for this. The archive is complete if
//! the checksums at its end match the members before them and nothing follows.

use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use flate2::bufread::GzDecoder;
use sandbox::tar::{self, BadArchive, HeaderReader, MemberKind, TarMember};
use sha2::{Digest as _, Sha256};

use super::READ_BYTES;
use super::archive::sum_line;
use super::manifest::{
    BackupManifest, BackupReport, DATA_PREFIX, DOCUMENT_BYTES_MAX, FILES_MAX, KEY_FILES,
    MANIFEST_NAME, OBJECTS, REPORT_NAME, SESSIONS, STORE_NAME, SUMS_NAME, WAREHOUSE,
};

/// Longest name of a member, in bytes.
const NAME_BYTES_MAX: usize = 4096;
/// Longest part of a name between two `/`.
const PART_BYTES_MAX: usize = 255;
/// Largest file, holes included.
const FILE_BYTES_MAX: u64 = 1 << 42;
/// Digits of a checksum in hexadecimal.
const SUM_DIGITS: usize = 64;
/// Longest line of the checksums.
const LINE_BYTES_MAX: u64 = NAME_BYTES_MAX as u64 + 128;
/// First parts of names below `data/`, but for [`KEY_FILES`].
const PARTS: [&str; 4] = [STORE_NAME, OBJECTS, SESSIONS, WAREHOUSE];

/// Content of a checked archive.
#[derive(Clone, Debug)]
pub(super) struct CheckedArchive {
    pub(super) manifest: BackupManifest,
    pub(super) report: BackupReport,
}

/// Receiver of the content of an archive. The default methods ignore it.
pub(super) trait ArchiveVisitor {
    /// Receives the manifest, before any file.
    fn manifest(&mut self, _manifest: &BackupManifest) -> Result<()> {
        Ok(())
    }

    /// Starts a file, whose name below `data/` has been checked.
    fn file(&mut self, _name: &str, _member: &TarMember) -> Result<()> {
        Ok(())
    }

    /// Receives the next bytes of the file, at their offset.
    fn content(&mut self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Ends the file.
    fn end_file(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Reads a whole archive.
///
/// # Errors
/// If it is no archive, damaged, cut off or of a newer format, or if the visitor fails.
pub(super) fn read_archive(
    from: impl BufRead,
    visitor: &mut dyn ArchiveVisitor,
) -> Result<CheckedArchive> {
    let mut reader =
        ArchiveReader { headers: HeaderReader { source: GzDecoder::new(from) }, lines: Vec::new() };
    let checked = reader.read(visitor)?;
    let mut from = reader.headers.source.into_inner();
    ensure!(from.fill_buf()?.is_empty(), "something follows the end of the archive");
    Ok(checked)
}

struct ArchiveReader<R> {
    headers: HeaderReader<GzDecoder<R>>,
    /// Digests of the expected checksum lines, in order: there may be millions.
    lines: Vec<[u8; 32]>,
}

impl<R: BufRead> ArchiveReader<R> {
    fn read(&mut self, visitor: &mut dyn ArchiveVisitor) -> Result<CheckedArchive> {
        let first = self.next("its beginning")?;
        ensure!(
            first.name == MANIFEST_NAME.as_bytes(),
            "not a backup of Cove: it does not begin with `{MANIFEST_NAME}`"
        );
        let manifest = BackupManifest::parse(&self.document(&first)?)?;
        visitor.manifest(&manifest)?;
        let mut before = None;
        let mut files = 0;
        let report = loop {
            let member = self.next(before.as_deref().unwrap_or(MANIFEST_NAME))?;
            if member.name == REPORT_NAME.as_bytes() {
                break serde_json::from_slice::<BackupReport>(&self.document(&member)?)
                    .with_context(|| format!("`{REPORT_NAME}` is malformed"))?;
            }
            let name = checked_name(&member)?;
            let is_later = |before: &String| compare_names(before, &name) == Ordering::Less;
            ensure!(before.as_ref().is_none_or(is_later), "`{name}` is not in its place");
            files += 1;
            ensure!(files <= FILES_MAX, "it has more than {FILES_MAX} files");
            self.file(&name, &member, visitor).with_context(|| format!("`{name}`"))?;
            before = Some(name);
        };
        ensure!(report.files == files, "it has {files} files and says {}", report.files);
        let last = self.next(REPORT_NAME)?;
        ensure!(last.name == SUMS_NAME.as_bytes(), "`{SUMS_NAME}` is missing");
        self.check_sums(&last)?;
        ensure!(
            self.headers.next().map_err(explained)?.is_none(),
            "something follows `{SUMS_NAME}`"
        );
        // The second end block and gzip's checksum, which is verified at the end of the stream.
        let rest = io::copy(&mut (&mut self.headers.source).take(1 << 20), &mut io::sink());
        let rest = rest.map_err(damaged)?;
        ensure!(rest <= u64::try_from(tar::BLOCK_BYTES)?, "something follows `{SUMS_NAME}`");
        Ok(CheckedArchive { manifest, report })
    }

    /// Returns the next member, which is required.
    fn next(&mut self, before: &str) -> Result<TarMember> {
        let next = self.headers.next().map_err(explained);
        let next = next.with_context(|| format!("after `{before}`"))?;
        next.ok_or_else(|| anyhow!("the archive is cut off after `{before}`"))
    }

    fn document(&mut self, member: &TarMember) -> Result<Vec<u8>> {
        let name = String::from_utf8_lossy(&member.name).into_owned();
        ensure!(
            member.kind == MemberKind::File
                && member.sparse.is_none()
                && member.size <= DOCUMENT_BYTES_MAX,
            "`{name}` is not a file of at most {DOCUMENT_BYTES_MAX} bytes"
        );
        let mut content = vec![0; usize::try_from(member.size)?];
        self.headers.source.read_exact(&mut content).map_err(damaged)?;
        self.padding(member.size)?;
        self.expect_sum(&name, &Sha256::digest(&content));
        Ok(content)
    }

    fn file(
        &mut self,
        name: &str,
        member: &TarMember,
        visitor: &mut dyn ArchiveVisitor,
    ) -> Result<()> {
        visitor.file(name.strip_prefix(DATA_PREFIX).unwrap_or(name), member)?;
        let whole = [(0, member.size)];
        let extents = member.sparse.as_ref().map_or(&whole[..], |sparse| &sparse.extents);
        let mut digest = Sha256::new();
        let mut buf = vec![0; READ_BYTES];
        for (offset, len) in extents {
            let mut done = 0;
            while done < *len {
                let wanted = usize::try_from(len - done).unwrap_or(READ_BYTES).min(READ_BYTES);
                let part = buf.get_mut(..wanted).unwrap_or_default();
                self.headers.source.read_exact(part).map_err(damaged)?;
                digest.update(&*part);
                visitor.content(offset + done, part)?;
                done += u64::try_from(wanted)?;
            }
        }
        self.padding(member.size)?;
        self.expect_sum(name, &digest.finalize());
        visitor.end_file()
    }

    fn expect_sum(&mut self, name: &str, sum: &[u8]) {
        self.lines.push(Sha256::digest(sum_line(name, sum)).into());
    }

    fn padding(&mut self, size: u64) -> Result<()> {
        let mut padding = [0; tar::BLOCK_BYTES];
        let padding = padding.get_mut(..tar::padding(size)).unwrap_or_default();
        self.headers.source.read_exact(padding).map_err(damaged)
    }

    /// Compares the expected checksums with the archive's, line by line.
    fn check_sums(&mut self, member: &TarMember) -> Result<()> {
        ensure!(
            member.kind == MemberKind::File && member.sparse.is_none(),
            "`{SUMS_NAME}` is not a regular file"
        );
        let mut source = BufReader::new((&mut self.headers.source).take(member.size));
        for expected in &self.lines {
            let mut line = Vec::new();
            let read = (&mut source).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            read.map_err(damaged)?;
            ensure!(!line.is_empty(), "`{SUMS_NAME}` has fewer files than the archive");
            if Sha256::digest(&line)[..] != expected[..] {
                let name = line.get(SUM_DIGITS + 2..).unwrap_or_default();
                bail!(
                    "`{}` differs from the backed up file",
                    String::from_utf8_lossy(name).trim_end()
                );
            }
        }
        ensure!(
            source.fill_buf().map_err(damaged)?.is_empty(),
            "`{SUMS_NAME}` has more files than the archive"
        );
        self.padding(member.size)
    }
}

/// Compares names in the order in which a directory is walked: `a/b` precedes `a-b`.
pub(super) fn compare_names(one: &str, other: &str) -> Ordering {
    one.split('/').cmp(other.split('/'))
}

/// Returns whether a name of a file can be restored.
pub(super) fn is_plain_part(part: &str) -> bool {
    !part.is_empty()
        && part != "."
        && part != ".."
        && part.len() <= PART_BYTES_MAX
        && !part.bytes().any(|byte| byte.is_ascii_control() || byte == b'/')
}

/// Returns the name of a file, if a data directory may have such a file.
fn checked_name(member: &TarMember) -> Result<String> {
    let lossy_name = String::from_utf8_lossy(&member.name).chars().take(200).collect::<String>();
    let name = String::from_utf8(member.name.clone()).ok();
    let name = name.filter(|name| name.len() <= NAME_BYTES_MAX).filter(|name| {
        let Some(below) = name.strip_prefix(DATA_PREFIX) else { return false };
        let mut parts = below.split('/');
        let is_known =
            parts.next().is_some_and(|first| PARTS.contains(&first) || KEY_FILES.contains(&first));
        is_known && parts.all(is_plain_part)
    });
    let name =
        name.with_context(|| format!("`{lossy_name}` is not a file name of a data directory"))?;
    ensure!(member.kind == MemberKind::File, "`{lossy_name}` is not a regular file");
    let bytes = member.sparse.as_ref().map_or(member.size, |sparse| sparse.real_size);
    ensure!(bytes <= FILE_BYTES_MAX, "`{lossy_name}` has more than {FILE_BYTES_MAX} bytes");
    Ok(name)
}

fn explained(error: BadArchive) -> anyhow::Error {
    match error {
        BadArchive::Io(error) => damaged(error),
        BadArchive::Invalid(why) => anyhow!("{why}"),
    }
}

fn damaged(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => anyhow!("the archive is cut off"),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            anyhow::Error::from(error).context("the archive is damaged, or no backup of Cove")
        }
        _ => anyhow::Error::from(error).context("read the archive"),
    }
}

/// Checks an archive without unpacking it.
#[derive(Debug, Default)]
pub(super) struct CheckOnly;

impl ArchiveVisitor for CheckOnly {}

/// Unpacks an archive into a new directory.
#[derive(Debug)]
pub(super) struct ArchiveUnpacker {
    directory: PathBuf,
    open: Option<OpenedFile>,
}

#[derive(Debug)]
struct OpenedFile {
    file: File,
    /// Position of the next byte without seeking.
    at: u64,
    real_size: u64,
    /// Modification time, where it is restored.
    modified: Option<SystemTime>,
}

impl ArchiveUnpacker {
    pub(super) fn new(directory: &Path) -> ArchiveUnpacker {
        ArchiveUnpacker { directory: directory.to_owned(), open: None }
    }
}

impl ArchiveVisitor for ArchiveUnpacker {
    fn manifest(&mut self, manifest: &BackupManifest) -> Result<()> {
        let stat = rustix::fs::statvfs(&self.directory)?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        ensure!(
            manifest.bytes <= free,
            "there are {free} bytes free at `{}`, and the backup needs {}",
            self.directory.display(),
            manifest.bytes
        );
        Ok(())
    }

    fn file(&mut self, name: &str, member: &TarMember) -> Result<()> {
        let path = self.directory.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).context("make its directory")?;
        }
        let keeps_mode = name.split('/').next() == Some(WAREHOUSE);
        let mode = if keeps_mode { member.mode & 0o777 | 0o600 } else { 0o600 };
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = created.context("create it")?;
        if mode != 0o600 {
            file.set_permissions(fs::Permissions::from_mode(mode)).context("set its mode")?;
        }
        let real_size = member.sparse.as_ref().map_or(member.size, |sparse| sparse.real_size);
        let seconds = u64::try_from(member.mtime.0).ok().filter(|_| keeps_mode);
        let modified = seconds.and_then(|seconds| {
            SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, member.mtime.1))
        });
        self.open = Some(OpenedFile { file, at: 0, real_size, modified });
        Ok(())
    }

    fn content(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let open = self.open.as_mut().context("no file was begun")?;
        if open.at != offset {
            open.file.seek(SeekFrom::Start(offset))?;
        }
        open.file.write_all(bytes).context("write it")?;
        open.at = offset + u64::try_from(bytes.len())?;
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        let open = self.open.take().context("no file was begun")?;
        if open.at != open.real_size {
            open.file.set_len(open.real_size).context("set its size")?;
        }
        if let Some(modified) = open.modified {
            open.file.set_modified(modified).context("set its time")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
