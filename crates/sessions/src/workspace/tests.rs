//! Images are stored and restored unchanged, and no content is stored twice.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use node::objects::ObjectStore;
use node::store::CommitDurability;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::image::{self, PieceSource, StoredDisk, UploadedPieces};
use super::restores::{RestoreLimits, RestoreRank};
use crate::error::SessionError;
use crate::metrics::RestoreMetrics;

mod parallel;
mod pieces;
mod prefetched;

const MIB: u64 = 1 << 20;

/// A temporary directory, removed on drop.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("cove-image-{}-{name}", std::process::id()));
        let _none = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn objects(&self) -> ObjectStore {
        ObjectStore::in_directory(&self.0.join("objects"), CommitDurability::Process).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn restore(
    objects: &ObjectStore,
    manifest: &str,
    path: &Path,
) -> Result<(), crate::error::SessionError> {
    restore_within(&RestoreLimits::new(), objects, RestoreRank::Layer, manifest, path).await
}

async fn restore_within(
    limits: &RestoreLimits,
    objects: &ObjectStore,
    rank: RestoreRank,
    manifest: &str,
    path: &Path,
) -> Result<(), crate::error::SessionError> {
    let metrics = RestoreMetrics::default();
    let source = PieceSource { objects, prefetched: None, metrics: &metrics };
    image::restore(source, limits, rank, manifest, path).await
}

/// Creates a file of `bytes` bytes with these parts at these offsets.
fn image_of(path: &Path, bytes: u64, parts: &[(u64, Vec<u8>)]) {
    let file = File::create(path).unwrap();
    file.set_len(bytes).unwrap();
    for (offset, part) in parts {
        let room = usize::try_from(bytes.saturating_sub(*offset)).unwrap();
        file.write_all_at(&part[..part.len().min(room)], *offset).unwrap();
    }
}

/// Returns the names and sizes of all files below a directory.
fn objects_in(directory: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => left.push(entry.path()),
                false => {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    found.push((name, entry.metadata().unwrap().len()));
                }
            }
        }
    }
    found.sort();
    found
}

/// Stores a disk without earlier interrupted uploads.
async fn store_alone(
    objects: &ObjectStore,
    disk: &str,
    name: &str,
    path: &Path,
    before: Option<&str>,
) -> Result<StoredDisk, SessionError> {
    image::store_disk(objects, disk, name, path, before, &UploadedPieces::default()).await
}

#[test]
fn an_image_comes_back_the_same() {
    let place = Place::new("round");
    let part = (0..6 * MIB, prop::collection::vec(any::<u8>(), 0..5000));
    let image = (1..6 * MIB, prop::collection::vec(part, 0..6));
    let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
    let runtime = runtime();
    let counted = std::cell::Cell::new(0);
    let result = runner.run(&image, |(bytes, parts)| {
        let count = counted.replace(counted.get() + 1);
        let (from, to) = (place.0.join(format!("a{count}")), place.0.join(format!("b{count}")));
        image_of(&from, bytes, &parts);
        let objects = place.objects();
        runtime.block_on(async {
            let stored = store_alone(&objects, &format!("d{count}"), "m", &from, None).await;
            restore(&objects, &stored.unwrap().manifest, &to).await.unwrap();
        });
        prop_assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        Ok(())
    });
    result.unwrap();
}

#[test]
fn what_an_upload_that_was_given_up_has_brought_is_used_or_removed() {
    let place = Place::new("given-up");
    let (objects, runtime) = (place.objects(), runtime());
    let path = place.0.join("image");
    image_of(&path, 3 * MIB, &[(0, vec![5; 4096]), (MIB, vec![7; 4096]), (2 * MIB, vec![9; 9])]);
    let pieces = || {
        let all = objects_in(&place.0.join("objects"));
        all.iter().filter(|(name, _)| name.len() >= 64).count()
    };
    let uploaded = UploadedPieces::default();
    let store = |disk: &str, name: &str| {
        let storing = image::store_disk(&objects, disk, name, &path, None, &uploaded);
        runtime.block_on(storing).unwrap()
    };
    // As if the row was never written.
    store("d", "m1");
    assert_eq!(pieces(), 3);
    File::options().write(true).open(&path).unwrap().write_all_at(b"new", MIB).unwrap();
    let second = store("d", "m2");
    assert_eq!((pieces(), second.replaced.len()), (4, 1), "{second:?}");
    runtime.block_on(image::remove_replaced(&objects, &second.replaced));
    assert_eq!(pieces(), 3);
    let back = place.0.join("back");
    runtime.block_on(restore(&objects, &second.manifest, &back)).unwrap();
    assert!(std::fs::read(&back).unwrap() == std::fs::read(&path).unwrap());
    // Uploaded pieces belong to one disk, and are remembered only until its row is written.
    assert_eq!((store("other", "m3").replaced, pieces()), (Vec::new(), 6));
    uploaded.clear();
    assert!(store("d", "m4").replaced.is_empty());
}

#[test]
fn a_second_snapshot_stores_what_has_changed() {
    let place = Place::new("twice");
    let (objects, runtime) = (place.objects(), runtime());
    let path = place.0.join("image");
    let noise: Vec<u8> = (0..8 * MIB).map(|i| u8::try_from(i * i % 251).unwrap()).collect();
    image_of(&path, 8 * MIB, &[(0, noise)]);
    let store = |name: &str, before: Option<&str>| {
        runtime.block_on(store_alone(&objects, "d", name, &path, before)).unwrap()
    };
    let first = store("m1", None).manifest;
    let before = objects_in(&place.0.join("objects"));
    File::options().write(true).open(&path).unwrap().write_all_at(b"new", 3 * MIB).unwrap();
    let second = store("m2", Some(&first));
    let after = objects_in(&place.0.join("objects"));
    let new = after.iter().filter(|object| !before.contains(object)).count();
    assert_eq!((new, after.len()), (2, before.len() + 2), "a piece and a manifest");
    runtime.block_on(image::remove_replaced(&objects, &second.replaced));
    assert_eq!(objects_in(&place.0.join("objects")).len(), before.len());
    let back = place.0.join("back");
    runtime.block_on(restore(&objects, &second.manifest, &back)).unwrap();
    assert!(std::fs::read(&back).unwrap() == std::fs::read(&path).unwrap());
    // The manifest of another disk has no effect on this one's pieces.
    let third = store("m3", Some("disks/other/m.json"));
    assert!(third.replaced.is_empty(), "{third:?}");
    runtime.block_on(image::remove(&objects, "disks", "d"));
    assert_eq!(objects_in(&place.0.join("objects")), []);
}

/// The server has the disk, and does not know that another one continues from its last manifest.
#[test]
fn a_server_that_lost_its_session_changes_nothing_that_the_next_one_reads() {
    let place = Place::new("lost");
    let (objects, runtime) = (place.objects(), runtime());
    let path = place.0.join("image");
    image_of(&path, 3 * MIB, &[(0, vec![5; 4096]), (MIB, vec![7; 4096])]);
    let content = std::fs::read(&path).unwrap();
    let store = |name: &str, before: Option<&str>| {
        runtime.block_on(store_alone(&objects, "d", name, &path, before)).unwrap()
    };
    let manifest = store("m1", None).manifest;
    let image = File::options().write(true).open(&path).unwrap();
    for (round, name) in ["m2", "m3"].into_iter().enumerate() {
        // Overwrites everything stored before, whose pieces the new image does not need.
        image.write_all_at(&vec![u8::try_from(round).unwrap() + 100; 4096], 0).unwrap();
        image.write_all_at(&vec![u8::try_from(round).unwrap() + 200; 4096], MIB).unwrap();
        assert_ne!(store(name, Some(&manifest)).manifest, manifest);
        let back = place.0.join(name);
        runtime.block_on(restore(&objects, &manifest, &back)).unwrap();
        assert!(std::fs::read(&back).unwrap() == content);
    }
}

#[test]
fn what_was_changed_in_the_store_is_refused() {
    let place = Place::new("changed");
    let (objects, runtime) = (place.objects(), runtime());
    let path = place.0.join("image");
    image_of(&path, 3 * MIB, &[(MIB, vec![7; 4096]), (2 * MIB, vec![8; 4096])]);
    runtime.block_on(image::store_layer(&objects, "l", &path)).unwrap();
    let key = image::layer_manifest_key("l");
    let check = |change: &dyn Fn(), words: &str| {
        change();
        let to = place.0.join("back");
        let error = runtime.block_on(restore(&objects, &key, &to)).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(cause.contains(words), "{cause}");
        assert!(!to.exists());
        runtime.block_on(image::remove(&objects, "layers", "l"));
        runtime.block_on(image::store_layer(&objects, "l", &path)).unwrap();
    };
    let pieces = |n: usize| -> String {
        let manifest = runtime.block_on(objects.get(&key)).unwrap().unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let names: Vec<_> = manifest["pieces"].as_array().unwrap().iter().collect();
        format!("layers/l/pieces/{}", names[n].as_str().unwrap())
    };
    let put = |key: &str, text: Vec<u8>| {
        runtime.block_on(objects.put(key, text.into())).unwrap();
    };
    let swap = || {
        let other = runtime.block_on(objects.get(&pieces(2))).unwrap().unwrap();
        put(&pieces(1), other.to_vec());
    };
    check(&swap, "is not what was stored");
    check(&|| put(&pieces(1), b"no zlib".to_vec()), "");
    check(&|| runtime.block_on(objects.delete(&pieces(1))).unwrap(), "is missing");
    check(&|| put(&key, b"{}".to_vec()), "missing field");
    let more = || {
        let text = runtime.block_on(objects.get(&key)).unwrap().unwrap();
        let mut manifest: serde_json::Value = serde_json::from_slice(&text).unwrap();
        manifest["bytes"] = (1_u64 << 60).into();
        put(&key, serde_json::to_vec(&manifest).unwrap());
    };
    check(&more, "a wrong number of pieces");
}

#[test]
fn a_full_disk_is_reported_as_such() {
    let check = |kind: std::io::ErrorKind, is_full: bool| {
        let source = std::io::Error::from(kind);
        let nested = sandbox::DiskError::Io {
            step: "copy the template to",
            path: PathBuf::from("/x"),
            source,
        };
        for error in
            [SessionError::internal(nested), SessionError::internal(std::io::Error::from(kind))]
        {
            let error = super::or_disk_full(error);
            assert_eq!(matches!(error, SessionError::DiskFull(_)), is_full, "{error:?}");
            assert_eq!(matches!(error, SessionError::Internal(_)), !is_full, "{error:?}");
        }
    };
    check(std::io::ErrorKind::StorageFull, true);
    check(std::io::ErrorKind::PermissionDenied, false);
    let ended = super::or_disk_full(SessionError::Ended);
    assert!(matches!(ended, SessionError::Ended));
}
