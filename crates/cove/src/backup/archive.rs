//! Writes an archive: gzip around tar, which other tools read as well.
//!
//! ```text
//! cove-backup.json         manifest
//! data/…                   files of the data directory, in the order of their names
//! cove-backup-report.json  skipped and shortened files
//! SHA256SUMS               the sum of each member above, as it stands in the archive
//! ```
//!
//! Files with holes are written without them, in GNU tar's format; the checksum of such a member
//! covers its data in the archive. Names are compared component by component, in the order in which
//! a directory is walked.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek as _, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use node::hex;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use sandbox::tar::{self, EXTENTS_MAX, MemberKind, SparseMap, TarMember};
use sha2::{Digest as _, Sha256};

use super::READ_BYTES;
use super::manifest::{
    BackupManifest, BackupReport, FILES_MAX, MANIFEST_NAME, REPORT_NAME, SUMS_NAME,
};

/// Bytes of a block of `st_blocks` (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;
/// Shortest hole that is left out of a file.
const HOLE_BYTES_MIN: u64 = 4096;

/// Part of a file that was archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArchivedContent {
    /// All of it.
    Whole,
    /// A part: the file became shorter while it was read, and zeros replace the missing bytes.
    Shortened,
}

/// Archive that is being written.
pub(super) struct BackupArchive<W: Write> {
    out: GzEncoder<W>,
    /// Checksums of the members, in a file, because there may be millions.
    sums: BufWriter<File>,
    sums_bytes: u64,
    files: u64,
    buf: Vec<u8>,
}

impl<W: Write> BackupArchive<W> {
    /// Starts an archive. `sums` is an empty file for the archive's own use.
    pub(super) fn begin(out: W, sums: File, manifest: &BackupManifest) -> Result<Self> {
        let mut writer = BackupArchive {
            out: GzEncoder::new(out, Compression::fast()),
            sums: BufWriter::new(sums),
            sums_bytes: 0,
            files: 0,
            buf: vec![0; READ_BYTES],
        };
        writer.document(MANIFEST_NAME, &serde_json::to_vec_pretty(manifest)?)?;
        // A reader can print the manifest while the rest is being written.
        writer.out.flush()?;
        Ok(writer)
    }

    fn document(&mut self, name: &str, content: &[u8]) -> Result<()> {
        let size = u64::try_from(content.len())?;
        self.out.write_all(&member(name, size).header())?;
        self.out.write_all(content)?;
        self.pad(size)?;
        self.sum(name, &Sha256::digest(content))
    }

    /// Adds a file, with its current size.
    pub(super) fn file(&mut self, name: &str, file: &mut File) -> Result<ArchivedContent> {
        ensure!(self.files < FILES_MAX, "the data directory has more than {FILES_MAX} files");
        self.files += 1;
        let metadata = file.metadata().context("look at it")?;
        let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or_default();
        let mut member = TarMember {
            mode: metadata.mode() & 0o777,
            mtime: (metadata.mtime(), nanos),
            ..member(name, metadata.len())
        };
        if metadata.blocks().saturating_mul(STAT_BLOCK_BYTES) < metadata.len() {
            let extents = data_extents(file, metadata.len()).context("look for its holes")?;
            member.size = extents.iter().map(|(_, len)| len).sum();
            member.sparse = Some(SparseMap { extents, real_size: metadata.len() });
        }
        self.out.write_all(&member.header())?;
        let mut digest = Sha256::new();
        let mut content = ArchivedContent::Whole;
        match &member.sparse {
            None => {
                file.rewind()?;
                content = self.copy(file, member.size, &mut digest)?;
            }
            Some(map) => {
                for (offset, len) in &map.extents {
                    file.seek(io::SeekFrom::Start(*offset))?;
                    if self.copy(file, *len, &mut digest)? == ArchivedContent::Shortened {
                        content = ArchivedContent::Shortened;
                    }
                }
            }
        }
        self.pad(member.size)?;
        self.sum(name, &digest.finalize())?;
        Ok(content)
    }

    /// Copies `bytes` bytes of the file, and fills up with zeros if the file is shorter.
    fn copy(
        &mut self,
        from: &mut File,
        bytes: u64,
        digest: &mut Sha256,
    ) -> Result<ArchivedContent> {
        let mut left = bytes;
        let mut content = ArchivedContent::Whole;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES);
            let part = self.buf.get_mut(..wanted).unwrap_or_default();
            let mut read = match content {
                ArchivedContent::Whole => from.read(part).context("read it")?,
                ArchivedContent::Shortened => 0,
            };
            if read == 0 {
                content = ArchivedContent::Shortened;
                part.fill(0);
                read = wanted;
            }
            let part = part.get(..read).unwrap_or_default();
            digest.update(part);
            self.out.write_all(part)?;
            left -= u64::try_from(read)?;
        }
        Ok(content)
    }

    fn pad(&mut self, size: u64) -> Result<()> {
        Ok(self.out.write_all(&[0; tar::BLOCK_BYTES][..tar::padding(size)])?)
    }

    fn sum(&mut self, name: &str, sum: &[u8]) -> Result<()> {
        let line = sum_line(name, sum);
        self.sums_bytes += u64::try_from(line.len())?;
        self.sums.write_all(line.as_bytes()).context("write the sums")
    }

    /// Finishes the archive.
    pub(super) fn finish(mut self, report: BackupReport) -> Result<W> {
        let report = BackupReport { files: self.files, ..report };
        self.document(REPORT_NAME, &serde_json::to_vec_pretty(&report)?)?;
        let mut sums = self.sums.into_inner().context("write the sums")?;
        sums.rewind()?;
        self.out.write_all(&member(SUMS_NAME, self.sums_bytes).header())?;
        let copied = io::copy(&mut sums.take(self.sums_bytes), &mut self.out)?;
        ensure!(copied == self.sums_bytes, "the file of sums was cut off");
        self.out.write_all(&[0; tar::BLOCK_BYTES][..tar::padding(copied)])?;
        self.out.write_all(&tar::trailer())?;
        Ok(self.out.finish()?)
    }
}

/// Returns the checksum line of a member, as `sha256sum` writes it.
pub(super) fn sum_line(name: &str, sum: &[u8]) -> String {
    format!("{}  {name}\n", hex::encode(sum))
}

fn member(name: &str, size: u64) -> TarMember {
    TarMember {
        name: name.as_bytes().to_vec(),
        kind: MemberKind::File,
        mode: 0o600,
        size,
        mtime: (0, 0),
        link: Vec::new(),
        sparse: None,
    }
}

/// Returns offset and length of each data extent of a file. A hole counts as data if the file
/// system does not report it; if there are too many extents, the shortest holes count as data as
/// well.
fn data_extents(file: &File, bytes: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut extents: Vec<Range<u64>> = Vec::new();
    let (mut at, mut hole_min) = (0, HOLE_BYTES_MIN);
    while at < bytes {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(bytes);
        if end <= start {
            break;
        }
        add_extent(&mut extents, start..end, hole_min);
        // The archive ends a file that ends in a hole with an extent of zero bytes; one place is
        // reserved.
        while extents.len() >= EXTENTS_MAX - 1 {
            hole_min = hole_min.saturating_mul(2);
            let found = std::mem::take(&mut extents);
            found.into_iter().for_each(|extent| add_extent(&mut extents, extent, hole_min));
        }
        at = end;
    }
    if extents.last().is_none_or(|last| last.end < bytes) {
        extents.push(bytes..bytes);
    }
    Ok(extents.into_iter().map(|it| (it.start, it.end - it.start)).collect())
}

/// Adds a data extent, or extends the last one if the hole before it is shorter than `hole_min`.
fn add_extent(extents: &mut Vec<Range<u64>>, extent: Range<u64>, hole_min: u64) {
    match extents.last_mut() {
        Some(last) if extent.start - last.end < hole_min => last.end = extent.end,
        _ => extents.push(extent),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use testkit::Scratch;

    use super::*;

    #[test]
    fn a_file_has_a_bounded_number_of_extents_with_all_of_its_data() {
        let scratch = Scratch::new();
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(scratch.path().join("f"))
            .unwrap();
        let (step, count) = (64 << 10, 6000_u64);
        file.set_len(step * count + 12_345).unwrap();
        for index in 0..count {
            file.write_all_at(&[1], index * step).unwrap();
        }
        let bytes = file.metadata().unwrap().len();
        let extents = data_extents(&file, bytes).unwrap();
        assert!(extents.len() < EXTENTS_MAX, "{}", extents.len());
        let is_ascending = extents.is_sorted_by(|one, next| one.0 + one.1 <= next.0);
        assert!(is_ascending && extents.last() == Some(&(bytes, 0)));
        for index in 0..count {
            let at = index * step;
            assert!(extents.iter().any(|(offset, len)| (*offset..offset + len).contains(&at)));
        }
    }
}
