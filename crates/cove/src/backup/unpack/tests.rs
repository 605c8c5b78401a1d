//! Complete, damaged and hostile archives.

use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use sandbox::tar::SparseMap;
use testkit::Scratch;

use super::super::archive::{ArchivedContent, BackupArchive};
use super::super::manifest::tests::manifest;
use super::super::manifest::{BackupPart, SkippedFiles};
use super::*;

/// Creates a file that is open for reading and writing.
fn file(path: &Path, content: &[u8]) -> File {
    let options = OpenOptions::new().read(true).write(true).create_new(true).clone();
    let file = options.open(path).unwrap();
    file.write_all_at(content, 0).unwrap();
    file
}

/// Returns an archive with these files, as the server writes it.
fn archive(scratch: &Scratch, files: Vec<(&str, File)>) -> Vec<u8> {
    let sums = file(&scratch.path().join("sums"), b"");
    let mut writer = BackupArchive::begin(Vec::new(), sums, &manifest()).unwrap();
    for (name, mut file) in files {
        assert_eq!(writer.file(name, &mut file).unwrap(), ArchivedContent::Whole);
    }
    writer.finish(BackupReport::default()).unwrap()
}

fn read(bytes: &[u8], into: Option<&Path>) -> Result<CheckedArchive> {
    match into {
        Some(directory) => read_archive(bytes, &mut ArchiveUnpacker::new(directory)),
        None => read_archive(bytes, &mut CheckOnly),
    }
}

/// Three files: a short one, one with holes, and one of a warehouse.
fn usual(scratch: &Scratch) -> Vec<u8> {
    let store = file(&scratch.path().join("store"), &[7; 5000]);
    let image = file(&scratch.path().join("image"), b"begin");
    image.set_len(64 << 20).unwrap();
    image.write_all_at(b"middle", 33 << 20).unwrap();
    let table = file(&scratch.path().join("table"), b"{}");
    table.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
    table.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    let long = format!("data/warehouse/{}/metadata.json", "n".repeat(200));
    archive(
        scratch,
        vec![("data/cove.sqlite", store), ("data/sessions/disks/d_1.img", image), (&long, table)],
    )
}

#[test]
fn what_was_archived_is_unpacked_with_its_holes() {
    let scratch = Scratch::new();
    let bytes = usual(&scratch);
    assert!(bytes.len() < 20_000, "{}", bytes.len());
    let checked = read(&bytes, None).unwrap();
    assert_eq!((&checked.manifest, checked.report.files), (&manifest(), 3));
    let into = scratch.path().join("into");
    fs::create_dir(&into).unwrap();
    read(&bytes, Some(&into)).unwrap();
    assert_eq!(fs::read(into.join("cove.sqlite")).unwrap(), [7; 5000]);
    let image = into.join("sessions/disks/d_1.img");
    let content = fs::read(&image).unwrap();
    assert_eq!((content.len(), &content[..5]), (64 << 20, &b"begin"[..]));
    assert_eq!(&content[33 << 20..][..6], b"middle");
    let metadata = fs::metadata(&image).unwrap();
    assert!(metadata.blocks() * 512 < 1 << 20 && metadata.mode() & 0o777 == 0o600);
    let table = into.join("warehouse").join("n".repeat(200)).join("metadata.json");
    let metadata = fs::metadata(table).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.mtime()), (0o644, 1_000_000));
}

#[test]
fn a_file_that_becomes_shorter_is_filled_with_zeros_and_named() {
    struct TruncatingWriter(File);
    impl io::Write for TruncatingWriter {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            // Each write after the first header finds the file truncated.
            self.0.set_len(1000)?;
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let scratch = Scratch::new();
    let mut shrinking = file(&scratch.path().join("f"), &[1; 4 << 20]);
    let sums = file(&scratch.path().join("sums"), b"");
    let cut = TruncatingWriter(shrinking.try_clone().unwrap());
    let mut writer = BackupArchive::begin(cut, sums, &manifest()).unwrap();
    shrinking.set_len(4 << 20).unwrap();
    shrinking.write_all_at(&incompressible(4 << 20), 0).unwrap();
    let content = writer.file("data/warehouse/f", &mut shrinking).unwrap();
    assert_eq!(content, ArchivedContent::Shortened);
}

/// Returns bytes that deflate does not compress.
fn incompressible(count: usize) -> Vec<u8> {
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    std::iter::repeat(()).scan(1, |state, ()| next(state)).take(count).collect()
}

#[test]
fn an_archive_that_is_cut_or_changed_anywhere_is_refused() {
    let scratch = Scratch::new();
    let bytes = usual(&scratch);
    for length in (0..bytes.len()).step_by(7).chain(bytes.len() - 20..bytes.len()) {
        assert!(read(&bytes[..length], None).is_err(), "cut at {length}");
    }
    let content = |bytes: &[u8]| {
        let mut content = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut content).map(|_| content).ok()
    };
    let original = content(&bytes);
    for at in (10..bytes.len()).step_by(5) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        // Some bits of deflate are padding.
        let is_same = content(&changed) == original;
        assert_eq!(read(&changed, None).is_ok(), is_same, "changed at {at}");
    }
    let longer = [&bytes[..], b"x"].concat();
    let error = format!("{:#}", read(&longer, None).unwrap_err());
    assert!(error.contains("something follows the end"), "{error}");
}

/// Returns a member of a foreign archive.
fn member(name: &[u8], kind: MemberKind, content: &[u8]) -> Vec<u8> {
    let size = content.len() as u64;
    let link = if kind == MemberKind::File { Vec::new() } else { b"/etc/passwd".to_vec() };
    let size = if kind == MemberKind::File { size } else { 0 };
    let name = name.to_vec();
    let member = TarMember { name, kind, mode: 0o4777, size, mtime: (0, 0), link, sparse: None };
    let mut bytes = member.header();
    if kind == MemberKind::File {
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(tar::BLOCK_BYTES), 0);
    }
    bytes
}

fn zipped(members: &[Vec<u8>]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&members.concat()).unwrap();
    encoder.write_all(&tar::trailer()).unwrap();
    encoder.finish().unwrap()
}

fn manifest_member(manifest: &BackupManifest) -> Vec<u8> {
    let text = serde_json::to_vec(manifest).unwrap();
    member(MANIFEST_NAME.as_bytes(), MemberKind::File, &text)
}

/// Reads an archive of these members after a manifest, and checks that it is rejected and that
/// nothing is written outside the directory.
fn check_refused(members: &[Vec<u8>], expected: &str) {
    let scratch = Scratch::new();
    let into = scratch.path().join("a/into");
    fs::create_dir_all(&into).unwrap();
    let bytes = zipped(&[&[manifest_member(&manifest())], members].concat());
    for into in [None, Some(&*into)] {
        let error = format!("{:#}", read(&bytes, into).unwrap_err());
        assert!(error.contains(expected), "{error}, not {expected}");
    }
    let names = |path: &Path| -> Vec<_> {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names(scratch.path()), ["a"]);
    assert_eq!(names(&scratch.path().join("a")), ["into"]);
}

#[test]
fn hostile_members_are_refused() {
    let no_name = "is not a file name of a data directory";
    let long = format!("data/warehouse/{}", "x/".repeat(3000));
    let names: &[&[u8]] = &[
        b"/etc/passwd",
        b"../x",
        b"data/../x",
        b"data/objects/../../../x",
        b"data/objects/./x",
        b"data/objects//x",
        b"data//objects/x",
        b"data/",
        b"data/unknown",
        b"data/lock",
        b"data/server.id/../../x",
        b"data/objects/a\nb",
        b"data/objects/\xff",
        b"datax/objects/a",
        b"cove.sqlite",
        b"SHA256SUMS",
        long.as_bytes(),
    ];
    for name in names {
        check_refused(&[member(name, MemberKind::File, b"x")], no_name);
    }
    let kinds =
        [MemberKind::Symlink, MemberKind::HardLink, MemberKind::Dir, MemberKind::Fifo].into_iter();
    for kind in kinds {
        check_refused(&[member(b"data/objects/x", kind, b"")], "is not a regular file");
    }
    let mut device = member(b"data/objects/x", MemberKind::File, b"");
    device[156] = b'3';
    let sum: u32 = device[..512].iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = device[148..156].iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{:06o}\0 ", sum - own + 8 * 32);
    device[148..156].copy_from_slice(sum.as_bytes());
    check_refused(&[device], "is a device");
    // A link cannot lead a later member outside the directory, and a file cannot act as a
    // directory.
    let through = [
        member(b"data/objects/a", MemberKind::Symlink, b""),
        member(b"data/objects/a/passwd", MemberKind::File, b"x"),
    ];
    check_refused(&through, "is not a regular file");
    let twice = member(b"data/objects/a", MemberKind::File, b"x");
    check_refused(&[twice.clone(), twice.clone()], "`data/objects/a` is not in its place");
    let before = member(b"data/cove.sqlite", MemberKind::File, b"x");
    check_refused(&[twice, before], "`data/cove.sqlite` is not in its place");
    let huge = TarMember {
        sparse: Some(SparseMap { extents: vec![(1 << 43, 0)], real_size: 1 << 43 }),
        ..TarMember {
            name: b"data/objects/x".to_vec(),
            kind: MemberKind::File,
            mode: 0,
            size: 0,
            mtime: (0, 0),
            link: Vec::new(),
            sparse: None,
        }
    };
    check_refused(&[huge.header()], "has more than");
    check_refused(&[], "the archive is cut off after `cove-backup.json`");
}

#[test]
fn what_is_missing_at_either_end_is_named() {
    let check = |members: &[Vec<u8>], expected: &str| {
        let error = format!("{:#}", read(&zipped(members), None).unwrap_err());
        assert!(error.contains(expected), "{error}, not {expected}");
    };
    let file = member(b"data/objects/a", MemberKind::File, b"x");
    let report = |files| {
        let report =
            BackupReport { files, shortened: SkippedFiles::default(), ..Default::default() };
        let text = serde_json::to_vec(&report).unwrap();
        member(REPORT_NAME.as_bytes(), MemberKind::File, &text)
    };
    let sums = |text: &str| member(SUMS_NAME.as_bytes(), MemberKind::File, text.as_bytes());
    check(std::slice::from_ref(&file), "does not begin with `cove-backup.json`");
    let newer = BackupManifest { format: 2, ..manifest() };
    check(&[manifest_member(&newer)], "this version of cove reads up to 1");
    let first = manifest_member(&manifest());
    check(&[first.clone(), file.clone(), report(2)], "it has 1 files and says 2");
    check(&[first.clone(), report(0)], "cut off after `cove-backup-report.json`");
    check(&[first.clone(), report(0), file], "`SHA256SUMS` is missing");
    check(&[first.clone(), report(0), sums("")], "has fewer files than the archive");
    let wrong = format!("{}  cove-backup.json\n", "0".repeat(64));
    check(&[first, report(0), sums(&wrong)], "`cove-backup.json` differs from the backed up file");
    check(&[], "the archive is cut off");
}

#[test]
fn a_backup_that_has_no_room_is_refused_before_it_is_unpacked() {
    let part = BackupPart { name: "objects".to_owned(), files: 1, bytes: 1 << 60 };
    let large = BackupManifest { parts: vec![part], bytes: 1 << 60, ..manifest() };
    let scratch = Scratch::new();
    let error = read(&zipped(&[manifest_member(&large)]), Some(scratch.path())).unwrap_err();
    assert!(format!("{error:#}").contains("bytes free at"), "{error:#}");
}

#[test]
fn names_are_ordered_as_a_directory_is_walked() {
    let names = ["data/a", "data/a/b", "data/a/c", "data/a-b", "data/a.b", "data/b"];
    assert!(names.is_sorted_by(|one, next| compare_names(one, next) == Ordering::Less));
}
