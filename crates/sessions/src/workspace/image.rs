//! Images in the object store: a manifest, and pieces named by their content.
//!
//! A piece is [`PIECE_BYTES`] of the image, packed by [`piece`]; a piece without data is not
//! stored. Pieces are named by the SHA-256 of their content, which is verified on restore. The
//! manifest is written last, so a manifest never refers to missing pieces.
//!
//! Each manifest of a disk has its own key and is written once, and [`store_disk`] removes nothing:
//! the session's row, whose writes are fenced by its epoch, determines which manifest is current.
//! So a server that has unknowingly lost a session changes nothing that the next owner reads. The
//! server that has written the row removes the objects that only the previous manifest needed.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use node::objects::ObjectStore;
use parking_lot::Mutex;
use sandbox::{ImageExtents, ImageWriter};
use serde::{Deserialize, Serialize};

use super::piece::{self, PIECE_BYTES};
use super::prefetched::PrefetchedImage;
use super::restores::{PIECES_PER_IMAGE, RestoreLimits, RestoreRank};
use super::{blocking, unavailable};
use crate::error::SessionError;
use crate::metrics::RestoreMetrics;

/// Maximum number of pieces of an image: 1 TiB.
const PIECES_MAX: u64 = 1 << 20;
/// Pieces of one image uploaded concurrently.
const STORED_AT_ONCE: usize = 4;
/// Replaced objects removed concurrently.
const REMOVED_AT_ONCE: usize = 8;
/// Keys per listing.
const LIST_MAX: usize = 1000;
/// The only version of the format.
const VERSION: u32 = 1;

/// Contents of an image.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImageManifest {
    version: u32,
    /// Bytes of the image.
    bytes: u64,
    piece_bytes: u32,
    /// SHA-256 of each piece in order, in hexadecimal; none for pieces without data.
    pieces: Vec<Option<String>>,
}

impl ImageManifest {
    fn check(&self) -> Result<(), &'static str> {
        let expected = self.bytes.div_ceil(PIECE_BYTES.into());
        let is_name = |name: &String| {
            name.len() == 64
                && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        match self {
            _ if self.version != VERSION => Err("has another version"),
            _ if self.piece_bytes != PIECE_BYTES => Err("has pieces of another size"),
            _ if expected > PIECES_MAX || self.pieces.len() as u64 != expected => {
                Err("has a wrong number of pieces")
            }
            _ if !self.pieces.iter().flatten().all(is_name) => Err("has a malformed name"),
            _ => Ok(()),
        }
    }

    /// Returns the names of its pieces.
    pub(super) fn names(&self) -> HashSet<&str> {
        self.pieces.iter().flatten().map(String::as_str).collect()
    }
}

/// Returns the key of a layer's manifest; each layer has one.
pub(super) fn layer_manifest_key(id: &str) -> String {
    format!("{LAYERS}/{id}/manifest.json")
}

/// Folders of disks and of layers in the object store.
pub(super) const DISKS: &str = "disks";
pub(super) const LAYERS: &str = "layers";

/// Pieces of a session's disk that interrupted uploads have stored. The next upload reuses them or
/// has them removed; if the server ends before, they stay until the disk is removed.
#[derive(Debug, Default)]
pub(crate) struct UploadedPieces(Mutex<HashSet<String>>);

impl UploadedPieces {
    fn add(&self, key: String) {
        self.0.lock().insert(key);
    }

    /// Returns the names of the pieces below `prefix`.
    fn names(&self, prefix: &str) -> HashSet<String> {
        let begins = piece_key(prefix, "");
        let keys = self.0.lock();
        keys.iter().filter_map(|key| key.strip_prefix(&begins)).map(str::to_owned).collect()
    }

    /// Clears the set, because the manifest in the session's row refers to the pieces, or they are
    /// being removed.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// An image of a disk in the object store.
#[derive(Debug)]
pub(crate) struct StoredDisk {
    /// Key of its manifest.
    pub(crate) manifest: String,
    /// Keys of the previous manifest and of the objects that only it needed.
    pub(crate) replaced: Vec<String>,
}

/// Returns the key of a disk's manifest.
pub(super) fn disk_manifest_key(disk: &str, name: &str) -> String {
    format!("{DISKS}/{disk}/{name}.json")
}

/// Returns the key of a piece in an image with this prefix.
pub(super) fn piece_key(prefix: &str, name: &str) -> String {
    format!("{prefix}/pieces/{name}")
}

/// Uploads a disk without writers under a manifest `name`. Pieces of `before`, the manifest in the
/// session's row, are reused if it belongs to the same disk, and so are pieces in `uploaded`, to
/// which new pieces are added. Dropping the future abandons the upload without a manifest.
pub(super) async fn store_disk(
    objects: &ObjectStore,
    disk: &str,
    name: &str,
    path: &Path,
    before: Option<&str>,
    uploaded: &UploadedPieces,
) -> Result<StoredDisk, SessionError> {
    let prefix = format!("{DISKS}/{disk}");
    let before = before.filter(|key| disk_of(key) == Some(disk));
    let known = match before {
        Some(key) => read_manifest(objects, key).await?,
        None => None,
    };
    let mut names = uploaded.names(&prefix);
    names.extend(known.iter().flat_map(|it| it.names()).map(str::to_owned));
    let known = Arc::new(names);
    let pieces = store_pieces(objects, &prefix, path, &known, uploaded).await?;
    let manifest = disk_manifest_key(disk, name);
    put_manifest(objects, &manifest, &pieces).await?;
    let names = pieces.names();
    let replaced = known.iter().filter(|name| !names.contains(name.as_str()));
    let replaced = replaced.map(|name| piece_key(&prefix, name));
    let replaced = replaced.chain(before.map(str::to_owned)).collect();
    Ok(StoredDisk { manifest, replaced })
}

/// Uploads a layer. Repeating the upload has no further effect.
pub(super) async fn store_layer(
    objects: &ObjectStore,
    id: &str,
    path: &Path,
) -> Result<(), SessionError> {
    let prefix = format!("{LAYERS}/{id}");
    let uploaded = UploadedPieces::default();
    let manifest = store_pieces(objects, &prefix, path, &Arc::default(), &uploaded).await?;
    put_manifest(objects, &layer_manifest_key(id), &manifest).await
}

async fn put_manifest(
    objects: &ObjectStore,
    key: &str,
    manifest: &ImageManifest,
) -> Result<(), SessionError> {
    let text = serde_json::to_vec(manifest).map_err(SessionError::internal)?;
    // An existing object is fine: names are used once, so a broken connection has written it.
    objects.put_if_absent(key, Bytes::from(text)).await.map_err(unavailable)?;
    Ok(())
}

/// Returns the disk of a manifest; none if the key is not a disk's manifest.
pub(crate) fn disk_of(manifest: &str) -> Option<&str> {
    manifest.strip_prefix(DISKS)?.strip_prefix('/')?.split('/').next()
}

/// Returns the folder of a manifest, which is also the prefix of the keys of its pieces.
pub(super) fn prefix_of(manifest: &str) -> &str {
    manifest.rsplit_once('/').map_or(manifest, |(prefix, _)| prefix)
}

/// Uploads the pieces that are not `known`, and adds them to `uploaded`.
async fn store_pieces(
    objects: &ObjectStore,
    prefix: &str,
    path: &Path,
    known: &Arc<HashSet<String>>,
    uploaded: &UploadedPieces,
) -> Result<ImageManifest, SessionError> {
    let (image, with_data) = {
        let path = path.to_owned();
        let opened = move || {
            let image = ImageExtents::open(&path, PIECE_BYTES).map_err(SessionError::internal)?;
            let with_data = image.chunks().map_err(SessionError::internal)?;
            Ok((Arc::new(image), with_data))
        };
        blocking(opened).await?
    };
    let bytes = image.bytes();
    let stored: Vec<(u64, Option<String>)> = stream::iter(with_data)
        .map(|index| {
            let (image, known) = (Arc::clone(&image), Arc::clone(known));
            async move {
                let read = blocking(move || read_piece(&image, index, &known)).await?;
                let Some((name, content)) = read else { return Ok((index, None)) };
                if let Some(content) = content {
                    let key = piece_key(prefix, &name);
                    objects.put(&key, content).await.map_err(unavailable)?;
                    uploaded.add(key);
                }
                Ok::<_, SessionError>((index, Some(name)))
            }
        })
        .buffer_unordered(STORED_AT_ONCE)
        .try_collect()
        .await?;
    let count =
        usize::try_from(bytes.div_ceil(PIECE_BYTES.into())).map_err(SessionError::internal)?;
    let mut pieces = vec![None; count];
    for (index, name) in stored {
        if let Some(place) = usize::try_from(index).ok().and_then(|index| pieces.get_mut(index)) {
            *place = name;
        }
    }
    Ok(ImageManifest { version: VERSION, bytes, piece_bytes: PIECE_BYTES, pieces })
}

/// Returns a piece's name and, if it is not known, its packed content; none if the piece is all
/// zeros.
fn read_piece(
    image: &ImageExtents,
    index: u64,
    known: &HashSet<String>,
) -> Result<Option<(String, Option<Bytes>)>, SessionError> {
    let mut content = Vec::new();
    image.read(index, &mut content).map_err(SessionError::internal)?;
    if sandbox::is_zero(&content) {
        return Ok(None);
    }
    let name = piece::name_of(&content);
    if known.contains(&name) {
        return Ok(Some((name, None)));
    }
    let packed = piece::pack(&name, &content).map_err(SessionError::internal)?;
    Ok(Some((name, Some(Bytes::from(packed)))))
}

/// Reads a manifest; none if it does not exist.
pub(super) async fn read_manifest(
    objects: &ObjectStore,
    key: &str,
) -> Result<Option<ImageManifest>, SessionError> {
    let Some(text) = objects.get(key).await.map_err(unavailable)? else { return Ok(None) };
    let manifest: ImageManifest = serde_json::from_slice(&text).map_err(SessionError::internal)?;
    let wrong = |what| SessionError::internal(format!("the manifest `{key}` {what}"));
    manifest.check().map_err(wrong)?;
    Ok(Some(manifest))
}

/// Source of pieces for a restored image.
#[derive(Clone, Copy)]
pub(super) struct PieceSource<'a> {
    pub(super) objects: &'a ObjectStore,
    /// Pieces that were fetched ahead to this machine.
    pub(super) prefetched: Option<&'a PrefetchedImage>,
    pub(super) metrics: &'a RestoreMetrics,
}

/// Restores an image after waiting for its turn.
pub(super) async fn restore(
    source: PieceSource<'_>,
    limits: &RestoreLimits,
    rank: RestoreRank,
    key: &str,
    path: &Path,
) -> Result<(), SessionError> {
    let _turn = limits.image(rank).await;
    let manifest = read_manifest(source.objects, key).await?;
    let missing = || SessionError::internal(format!("there is no manifest `{key}`"));
    let manifest = manifest.ok_or_else(missing)?;
    let prefix = prefix_of(key);
    let image = {
        let (path, bytes) = (path.to_owned(), manifest.bytes);
        let create = move || ImageWriter::create(&path, bytes, PIECE_BYTES);
        Arc::new(blocking(move || create().map_err(SessionError::internal)).await?)
    };
    // Owned, because the compiler cannot prove that a stream over references is `Send`.
    let pieces: Vec<(u64, String)> =
        (0..).zip(manifest.pieces).filter_map(|(i, name)| Some((i, name?))).collect();
    stream::iter(pieces)
        .map(|(index, name)| {
            let (image, key) = (Arc::clone(&image), piece_key(prefix, &name));
            async move {
                let _piece = limits.piece().await;
                if place_prefetched(source, limits, &image, index, &name).await {
                    return Ok(());
                }
                let stored = source.objects.get(&key).await.map_err(unavailable)?;
                source.metrics.fetched.inc();
                let lost = || SessionError::internal(format!("the object `{key}` is missing"));
                let stored = stored.ok_or_else(lost)?;
                let _processor = limits.unpack().await;
                blocking(move || piece::place(&image, index, &name, &stored)).await
            }
        })
        .buffer_unordered(PIECES_PER_IMAGE)
        .try_collect::<()>()
        .await?;
    blocking(move || {
        let image = Arc::into_inner(image);
        let image =
            image.ok_or_else(|| SessionError::internal("an image is still being written"))?;
        image.finish().map_err(SessionError::internal)
    })
    .await
}

/// Writes a prefetched piece. Returns false if it is missing or damaged; the caller then fetches it
/// from the object store.
async fn place_prefetched(
    source: PieceSource<'_>,
    limits: &RestoreLimits,
    image: &Arc<ImageWriter>,
    index: u64,
    name: &str,
) -> bool {
    let Some(disk) = source.prefetched else { return false };
    let Some(piece) = disk.piece(name).await else { return false };
    let _processor = limits.unpack().await;
    let (image, name) = (Arc::clone(image), name.to_owned());
    let placed = blocking(move || piece::place(&image, index, &name, &piece)).await;
    if placed.is_ok() {
        source.metrics.prefetched.inc();
    }
    placed.is_ok()
}

/// Removes an image from the object store. Failures are only logged, because nothing refers to the
/// image.
pub(super) async fn remove(objects: &ObjectStore, kind: &str, id: &str) {
    let removed = async {
        let prefix = format!("{kind}/{id}/");
        let pieces = format!("{prefix}pieces/");
        loop {
            let mut keys = objects.list(&prefix, None, LIST_MAX).await?;
            if keys.is_empty() {
                return Ok::<_, node::objects::ObjectsError>(());
            }
            // Manifests first, so that a failed removal leaves no manifest with missing pieces.
            keys.sort_by_key(|key| key.starts_with(&pieces));
            for key in keys {
                objects.delete(&key).await?;
            }
        }
    };
    if let Err(error) = removed.await {
        let error = &error as &dyn std::error::Error;
        tracing::error!(error, kind, id, "failed to remove an image from the object store");
    }
}

/// Removes objects that no manifest needs any more. Failures are only logged.
pub(super) async fn remove_replaced(objects: &ObjectStore, keys: &[String]) {
    let removals = stream::iter(keys.iter().map(Ok));
    let removed = removals.try_for_each_concurrent(REMOVED_AT_ONCE, |key| async move {
        objects.delete(key).await.map_err(|error| (key, error))
    });
    if let Err((key, error)) = removed.await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, key, "failed to remove what a newer image has replaced");
    }
}
