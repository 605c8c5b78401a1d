//! Prefetched disks are restored without the object store, with the same content as from there.

use std::fs;
use std::path::{Path, PathBuf};

use node::objects::ObjectStore;

use super::{MIB, Place, image_of, store_alone};
use crate::error::SessionError;
use crate::metrics::RestoreMetrics;
use crate::workspace::image::{self, PieceSource, StoredDisk};
use crate::workspace::prefetched::PrefetchedPieces;
use crate::workspace::restores::{RestoreLimits, RestoreRank};

const DISK: &str = "d_01M8MR4C0PB6C5XASBCW7ES8FX";
const NAMES: [&str; 2] = ["m_01M8MR4AG15HDP9DWDPYW6QMTT", "m_01M8MR4C0PB6C5XASBCW7ES8FX"];
const BYTES_MAX: u64 = 10 * MIB;

/// A disk in an object store, and a node that prefetches it.
struct PrefetchFixture {
    place: Place,
    objects: ObjectStore,
    prefetched: PrefetchedPieces,
    metrics: RestoreMetrics,
}

impl PrefetchFixture {
    fn new(name: &str) -> PrefetchFixture {
        let place = Place::new(name);
        let objects = place.objects();
        let prefetched = PrefetchedPieces::open(place.0.join("prefetched")).unwrap();
        PrefetchFixture { place, objects, prefetched, metrics: RestoreMetrics::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.0.join(name)
    }

    /// Stores a disk whose pieces contain these bytes.
    async fn store(&self, name: &str, pieces: &[u8], before: Option<&str>) -> StoredDisk {
        let parts: Vec<_> = (0..).zip(pieces).map(|(i, byte)| (i * MIB, vec![*byte; 9])).collect();
        let path = self.path(name);
        image_of(&path, 4 * MIB, &parts);
        store_alone(&self.objects, DISK, name, &path, before).await.unwrap()
    }

    async fn fetch(&self, manifest: &str, directory: &str) -> Result<(), SessionError> {
        self.prefetched.fetch(&self.objects, manifest, directory, BYTES_MAX).await
    }

    async fn restore(&self, manifest: &str, path: &Path) -> Result<(), SessionError> {
        let disk = self.prefetched.take(manifest);
        let prefetched = disk.as_ref();
        let source = PieceSource { objects: &self.objects, prefetched, metrics: &self.metrics };
        image::restore(source, &RestoreLimits::new(), RestoreRank::Disk(1), manifest, path).await
    }

    /// Returns the keys of the disk's pieces in the object store.
    async fn pieces(&self) -> Vec<String> {
        self.objects.list(&format!("disks/{DISK}/pieces/"), None, 100).await.unwrap()
    }

    async fn delete_pieces(&self) {
        for key in self.pieces().await {
            self.objects.delete(&key).await.unwrap();
        }
    }

    /// Returns the directories of prefetched disks.
    fn here(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("prefetched")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn counts(&self) -> (u64, u64) {
        (self.metrics.prefetched.get(), self.metrics.fetched.get())
    }
}

#[tokio::test]
async fn a_disk_that_was_fetched_comes_back_without_the_object_store() {
    let fixture = PrefetchFixture::new("ahead");
    let first = fixture.store(NAMES[0], &[1, 2, 3], None).await.manifest;
    fixture.fetch(&first, "f_1").await.unwrap();
    // The newer manifest needs one piece more, and one less.
    let second = fixture.store(NAMES[1], &[1, 2, 4], Some(&first)).await.manifest;
    let known = fixture.prefetched.bytes();
    for key in fixture.pieces().await {
        let name = key.rsplit('/').next().unwrap();
        if fixture.path("prefetched/f_1").join(name).exists() {
            fixture.objects.delete(&key).await.unwrap();
        }
    }
    fixture.fetch(&second, "f_2").await.unwrap();
    assert_eq!(fixture.here(), ["f_2"]);
    assert!(fixture.prefetched.bytes().abs_diff(known) < 100, "three small pieces again");
    fixture.delete_pieces().await;
    let back = fixture.path("back");
    fixture.restore(&second, &back).await.unwrap();
    assert!(fs::read(&back).unwrap() == fs::read(fixture.path(NAMES[1])).unwrap());
    assert_eq!(fixture.counts(), (3, 0));
    // The disk belongs to this node now.
    assert_eq!((fixture.prefetched.bytes(), fixture.here()), (0, Vec::new()));
}

#[tokio::test]
async fn what_is_not_here_or_damaged_comes_from_the_object_store() {
    let fixture = PrefetchFixture::new("damaged");
    let first = fixture.store(NAMES[0], &[1, 2, 3], None).await.manifest;
    fixture.fetch(&first, "f_1").await.unwrap();
    let second = fixture.store(NAMES[1], &[1, 2, 4], Some(&first)).await.manifest;
    let mut names: Vec<String> = fs::read_dir(fixture.path("prefetched/f_1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    // Two of them are pieces of the second manifest: one of these gets other content, unless it is
    // the third, which is not read.
    let other = fs::read(fixture.path("prefetched/f_1").join(&names[1])).unwrap();
    fs::write(fixture.path("prefetched/f_1").join(&names[0]), other).unwrap();
    let back = fixture.path("back");
    fixture.restore(&second, &back).await.unwrap();
    assert!(fs::read(&back).unwrap() == fs::read(fixture.path(NAMES[1])).unwrap());
    let (prefetched, fetched) = fixture.counts();
    assert_eq!(prefetched + fetched, 3);
    assert!((1..=2).contains(&prefetched), "{prefetched}");
    assert!(fixture.here().is_empty());
}

#[tokio::test]
async fn what_cannot_be_fetched_leaves_nothing() {
    let fixture = PrefetchFixture::new("nothing");
    let manifest = fixture.store(NAMES[0], &[1, 2, 3], None).await.manifest;
    let pieces = fixture.pieces().await;
    fixture.objects.delete(&pieces[1]).await.unwrap();
    let error = fixture.fetch(&manifest, "f_1").await.unwrap_err();
    assert!(node::telemetry::error_chain(&error).contains("is missing"), "{error:?}");
    assert_eq!((fixture.prefetched.bytes(), fixture.here()), (0, Vec::new()));
    // More than the limit.
    let too_much = fixture.prefetched.fetch(&fixture.objects, &manifest, "f_2", 1).await;
    assert!(too_much.is_err());
    assert!(fixture.here().is_empty());
    // An image that is removed from the object store is removed here as well.
    let again = fixture.store(NAMES[1], &[1, 2], None).await.manifest;
    fixture.fetch(&again, "f_3").await.unwrap();
    assert_eq!(fixture.here(), ["f_3"]);
    fixture.objects.delete(&again).await.unwrap();
    fixture.fetch(&again, "f_4").await.unwrap();
    assert_eq!((fixture.prefetched.bytes(), fixture.here()), (0, Vec::new()));
}

const LAYER: &str = "l_01M8MR4C0PB6C5XASBCW7ES8FX";

#[tokio::test]
async fn a_layer_is_fetched_once_and_comes_back_without_the_object_store() {
    let fixture = PrefetchFixture::new("layer");
    let path = fixture.path("layer.img");
    image_of(&path, 4 * MIB, &[(0, vec![1; 9]), (MIB, vec![2; 9])]);
    image::store_layer(&fixture.objects, LAYER, &path).await.unwrap();
    let manifest = image::layer_manifest_key(LAYER);
    fixture.fetch(&manifest, "fl_1").await.unwrap();
    let bytes = fixture.prefetched.bytes();
    image::remove(&fixture.objects, image::LAYERS, LAYER).await;
    // Another session uses it: the object store is not contacted.
    fixture.fetch(&manifest, "fl_2").await.unwrap();
    assert_eq!((fixture.prefetched.bytes(), fixture.here()), (bytes, vec!["fl_1".to_owned()]));

    image::store_layer(&fixture.objects, LAYER, &path).await.unwrap();
    for key in fixture.objects.list(&format!("layers/{LAYER}/pieces/"), None, 100).await.unwrap() {
        fixture.objects.delete(&key).await.unwrap();
    }
    let back = fixture.path("back");
    fixture.restore(&manifest, &back).await.unwrap();
    assert!(fs::read(&back).unwrap() == fs::read(&path).unwrap());
    assert_eq!(fixture.counts(), (2, 0));
    assert_eq!((fixture.prefetched.bytes(), fixture.here()), (0, Vec::new()));
}

#[tokio::test]
async fn a_layer_that_is_too_large_is_asked_for_once() {
    let fixture = PrefetchFixture::new("large");
    let path = fixture.path("layer.img");
    image_of(&path, 4 * MIB, &[(0, vec![1; 9])]);
    image::store_layer(&fixture.objects, LAYER, &path).await.unwrap();
    let manifest = image::layer_manifest_key(LAYER);
    let fetch = |name| fixture.prefetched.fetch(&fixture.objects, &manifest, name, 1);
    assert!(fetch("fl_1").await.is_err());
    fetch("fl_2").await.unwrap();
    assert_eq!((fixture.prefetched.bytes(), fixture.here()), (0, Vec::new()));
    // The restore then uses the object store.
    let back = fixture.path("back");
    fixture.restore(&manifest, &back).await.unwrap();
    assert!(fs::read(&back).unwrap() == fs::read(&path).unwrap());
    assert_eq!(fixture.counts(), (0, 1));
}

#[tokio::test]
async fn disks_and_layers_share_the_room() {
    let fixture = PrefetchFixture::new("room");
    let path = fixture.path("layer.img");
    image_of(&path, 4 * MIB, &[(0, vec![1; 9]), (MIB, vec![2; 9])]);
    image::store_layer(&fixture.objects, LAYER, &path).await.unwrap();
    let layer = image::layer_manifest_key(LAYER);
    let disk = fixture.store(NAMES[0], &[1, 2], None).await.manifest;
    fixture.fetch(&layer, "fl_1").await.unwrap();
    let bytes_max = fixture.prefetched.bytes() * 3 / 2;
    let fetch = |key, name| fixture.prefetched.fetch(&fixture.objects, key, name, bytes_max);
    fetch(&disk, "f_1").await.unwrap();
    assert_eq!(fixture.here(), ["f_1"]);
    fetch(&layer, "fl_2").await.unwrap();
    assert_eq!(fixture.here(), ["fl_2"]);
}
