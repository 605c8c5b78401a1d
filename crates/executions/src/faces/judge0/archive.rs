//! `additional_files`: a zip archive becomes files, or is refused as a whole.
//!
//! The archive is hostile. The plan checks names like any others, links and devices are refused,
//! and the unpacked bytes are counted during unpacking, independent of the headers.

use std::io::{Cursor, Read as _, Write as _};

use api::{BytesEncoding, SourceFile};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::faces::{excerpt, from_base64};

/// Maximum number of entries of one archive, directories included.
const ENTRIES_MAX: usize = 1000;
/// Bytes at the end of an archive in which [`ZipArchive`] looks for the record that ends the
/// directory: a comment of any length may follow it.
const TAIL_BYTES: usize = (1 << 16) + 64;
/// Maximum number of such records, of which all but one are bytes of a comment or of a file.
const ENDS_MAX: usize = 64;
/// Length of such a record, and its signature.
const END_BYTES: usize = 22;
const END: &[u8] = b"PK\x05\x06";
/// File type bits of a Unix mode, and their value for a regular file.
const MODE_TYPE: u32 = 0o170_000;
const MODE_REGULAR: u32 = 0o100_000;
const MODE_EXECUTABLE: u32 = 0o111;
/// Permissions of files in an archive made here.
const PERMISSIONS: u32 = 0o644;

/// Returns the files in an archive of at most `bytes_max` bytes together.
pub(super) fn files(bytes: &[u8], bytes_max: u64) -> Result<Vec<SourceFile>, String> {
    let invalid = |error: zip::result::ZipError| format!("is not a zip archive: {error}");
    check_directory(bytes)?;
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(invalid)?;
    if archive.len() > ENTRIES_MAX {
        return Err(format!("has more than {ENTRIES_MAX} entries"));
    }
    let mut left = bytes_max;
    let mut files = Vec::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(invalid)?;
        let name = entry.name().map_err(invalid)?.into_owned();
        let short_name = excerpt(&name);
        if entry.is_dir() {
            continue;
        }
        let kind = entry.unix_mode().unwrap_or(MODE_REGULAR) & MODE_TYPE;
        if entry.is_symlink() || ![0, MODE_REGULAR].contains(&kind) {
            return Err(format!("{short_name:?} is not a regular file"));
        }
        crate::plan::check_path(&name)
            .map_err(|problem| format!("the name {short_name:?} {problem}"))?;
        let executable = entry.unix_mode().is_some_and(|mode| mode & MODE_EXECUTABLE != 0);
        let mut content = Vec::new();
        // One byte more shows whether the file is longer.
        let mut limited = (&mut entry).take(left.saturating_add(1));
        limited.read_to_end(&mut content).map_err(|error| format!("{short_name:?}: {error}"))?;
        let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
        left = left
            .checked_sub(length)
            .ok_or_else(|| format!("has more than {bytes_max} bytes in it"))?;
        let (content, encoding) = match String::from_utf8(content) {
            Ok(text) => (text, BytesEncoding::Utf8),
            Err(error) => (BASE64.encode(error.as_bytes()), BytesEncoding::Base64),
        };
        files.push(SourceFile { name, content, encoding, executable });
    }
    Ok(files)
}

/// Checks that the directory is small enough to be read: all of it is in memory before its entries
/// can be counted. Every record that could be read as the end of the directory must pass.
fn check_directory(bytes: &[u8]) -> Result<(), String> {
    let end_bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
    let ends = end_bytes.windows(END_BYTES).filter(|end| end.starts_with(END));
    for (index, end) in ends.enumerate() {
        if index == ENDS_MAX {
            return Err(format!("has more than {ENDS_MAX} directories"));
        }
        let entries = usize::from(u16::from_le_bytes([end[10], end[11]]));
        if entries > ENTRIES_MAX {
            return Err(format!("has more than {ENTRIES_MAX} entries"));
        }
        // Otherwise the record of a large archive, with another count, would be looked up.
        let unset = [u8::MAX; 4];
        if end[12..16] == unset || end[16..20] == unset {
            return Err("is a ZIP64 archive, for which it is too small".to_owned());
        }
    }
    Ok(())
}

/// Returns whether more than one record could be read as the end of the directory.
#[cfg(fuzzing)]
pub(super) fn has_two_ends(bytes: &[u8]) -> bool {
    bytes.windows(END.len()).filter(|it| *it == END).nth(1).is_some()
}

/// Returns an archive of these files.
pub(super) fn packed(files: &[SourceFile]) -> Option<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for file in files {
        let executable = if file.executable { MODE_EXECUTABLE } else { 0 };
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .unix_permissions(PERMISSIONS | executable);
        writer.start_file(&*file.name, options).ok()?;
        match file.encoding {
            BytesEncoding::Utf8 => writer.write_all(file.content.as_bytes()).ok()?,
            BytesEncoding::Base64 => writer.write_all(&from_base64(&file.content)?).ok()?,
        }
    }
    writer.finish().ok().map(Cursor::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 10_000;

    fn zipped(build: impl FnOnce(&mut ZipWriter<Cursor<Vec<u8>>>)) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        build(&mut writer);
        writer.finish().unwrap().into_inner()
    }

    fn file(writer: &mut ZipWriter<Cursor<Vec<u8>>>, name: &str, mode: u32, content: &[u8]) {
        let options = SimpleFileOptions::default().unix_permissions(mode);
        writer.start_file(name, options).unwrap();
        writer.write_all(content).unwrap();
    }

    #[test]
    fn files_come_out_with_their_modes_and_bytes() {
        let bytes = zipped(|writer| {
            writer.add_directory("d", SimpleFileOptions::default()).unwrap();
            file(writer, "d/a.txt", 0o644, "text é".as_bytes());
            file(writer, "run", 0o755, b"\xff\0");
        });
        let files = files(&bytes, MAX).unwrap();
        let seen: Vec<_> = files
            .iter()
            .map(|it| (it.name.as_str(), it.content.as_str(), it.encoding, it.executable))
            .collect();
        let expected = [
            ("d/a.txt", "text é", BytesEncoding::Utf8, false),
            ("run", "/wA=", BytesEncoding::Base64, true),
        ];
        assert_eq!(seen, expected);
        let again = super::files(&packed(&files).unwrap(), MAX).unwrap();
        assert_eq!(again, files, "packed anew");
    }

    /// The record that ends a directory, without anything before it.
    fn end(entries: u16, size: u32, offset: u32) -> Vec<u8> {
        let mut end = [END, &[0; 4]].concat();
        end.extend([entries.to_le_bytes(), entries.to_le_bytes()].concat());
        end.extend([size.to_le_bytes(), offset.to_le_bytes()].concat());
        end.extend([0; 2]);
        end
    }

    #[test]
    fn a_directory_is_not_read_before_its_size_is_known() {
        // None of these has a directory at all, which a reader would reject.
        let before = vec![0; 5000];
        let behind = |end: Vec<u8>| [before.clone(), end].concat();
        for (bytes, says) in [
            (behind(end(1001, 46_046, 0)), "has more than 1000 entries"),
            (behind(end(u16::MAX, 46, 0)), "has more than 1000 entries"),
            (behind(end(1, u32::MAX, 0)), "is a ZIP64 archive"),
            (behind(end(1, 46, u32::MAX)), "is a ZIP64 archive"),
            // A decoy record before or after the real one.
            (behind([end(1001, 46_046, 0), end(1, 46, 0)].concat()), "has more than 1000 entries"),
            (behind([end(1, 46, 0), end(1001, 46_046, 0)].concat()), "has more than 1000 entries"),
            (behind([end(1001, 46_046, 0), vec![0; 65_535]].concat()), "has more than 1000"),
            (behind(end(1, 46, 0).repeat(65)), "has more than 64 directories"),
            (behind(end(1000, 46_000, 0)), "is not a zip archive"),
        ] {
            let error = files(&bytes, MAX).unwrap_err();
            assert!(error.starts_with(says), "{error} should begin with {says}");
        }
    }

    #[test]
    fn hostile_archives_are_refused_as_a_whole() {
        let one = |name: &'static str| zipped(|writer| file(writer, name, 0o644, b"x"));
        let link = zipped(|writer| {
            writer.add_symlink("l", "/etc/shadow", SimpleFileOptions::default()).unwrap();
        });
        let bomb = zipped(|writer| file(writer, "big", 0o644, &vec![0; 1 << 20]));
        let two_halves = zipped(|writer| {
            file(writer, "a", 0o644, &[0; 6000]);
            file(writer, "b", 0o644, &[0; 6000]);
        });
        let many = zipped(|writer| {
            for index in 0..=ENTRIES_MAX {
                file(writer, &index.to_string(), 0o644, b"");
            }
        });
        let mut cut = one("x");
        cut.truncate(cut.len() / 2);
        for (bytes, says) in [
            (one("../../x"), "the name \"../../x\""),
            (one("a/../../x"), "the name"),
            (one("/etc/x"), "the name"),
            (one("a\\..\\x\0y"), "the name"),
            (link, "\"l\" is not a regular file"),
            (bomb, "has more than 10000 bytes in it"),
            (two_halves, "has more than 10000 bytes in it"),
            (many, "has more than 1000 entries"),
            (cut, "is not a zip archive"),
            (b"nonsense".to_vec(), "is not a zip archive"),
            (Vec::new(), "is not a zip archive"),
        ] {
            let error = files(&bytes, MAX).unwrap_err();
            assert!(error.starts_with(says), "{error} should begin with {says}");
        }
    }
}
