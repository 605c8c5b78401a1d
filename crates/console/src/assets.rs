//! The files of the console: built in, or read from a directory while somebody works on them.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::read::GzDecoder;
use node::hex;
use sha2::{Digest as _, Sha256};

/// Licences of what is bundled.
pub(crate) const LICENCES: &str = "LICENSES.txt";

/// The shell, in which placeholders stand for nonce, path and version.
pub(crate) const SHELL: &str = "index.html";

/// Version in addresses while files are read from a directory.
const VERSION_OF_DIRECTORY: &str = "dev";

/// Largest file that is read from a directory.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Digits of the version: 64 bits of the hash, which is compared with nothing but itself.
const VERSION_DIGITS: usize = 16;

/// Name and content of every built file. The build script reads the list, `dist/files.inc`, and
/// compresses the content by gzip.
static BUILT: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Files by name.
#[derive(Debug)]
pub(crate) struct AssetStore {
    directory: Option<PathBuf>,
    version: OnceLock<String>,
    decompressed: Vec<OnceLock<Bytes>>,
}

/// A file, ready to be sent.
#[derive(Debug)]
pub(crate) struct AssetFile {
    pub(crate) content: Bytes,
    /// The same, by gzip; none where it is read anew at each request.
    pub(crate) gzip: Option<Bytes>,
}

impl AssetStore {
    /// Returns the built-in files, or those of `directory`.
    pub(crate) fn new(directory: Option<PathBuf>) -> AssetStore {
        let decompressed = BUILT.iter().map(|_| OnceLock::new()).collect();
        AssetStore { directory, version: OnceLock::new(), decompressed }
    }

    /// Returns the part of addresses that changes with the content of any file.
    pub(crate) fn version(&self) -> &str {
        if self.directory.is_some() {
            return VERSION_OF_DIRECTORY;
        }
        self.version.get_or_init(|| {
            let mut hash = Sha256::new();
            for (name, gzip) in BUILT {
                hash.update(name.as_bytes());
                hash.update([0]);
                hash.update(gzip);
            }
            hex::encode(&hash.finalize()).chars().take(VERSION_DIGITS).collect()
        })
    }

    /// Whether files may be cached for good: their addresses change with them.
    pub(crate) fn is_immutable(&self) -> bool {
        self.directory.is_none()
    }

    /// Returns a file; none where there is none of that name.
    ///
    /// # Errors
    /// When a file of the directory cannot be read.
    pub(crate) fn file(&self, name: &str) -> io::Result<Option<AssetFile>> {
        if let Some(directory) = &self.directory {
            return read(directory, name);
        }
        let Some(index) = BUILT.iter().position(|(known, _)| *known == name) else {
            return Ok(None);
        };
        let gzip = BUILT[index].1;
        let content = self.decompressed[index].get_or_init(|| decompress(gzip));
        Ok(Some(AssetFile { content: content.clone(), gzip: Some(Bytes::from_static(gzip)) }))
    }
}

/// Reads a file of a directory; none for names that the build does not give.
fn read(directory: &Path, name: &str) -> io::Result<Option<AssetFile>> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.starts_with('.') || !name.bytes().all(plain) {
        return Ok(None);
    }
    let path = directory.join(name);
    match fs::metadata(&path) {
        Ok(about) if about.len() > FILE_BYTES_MAX => {
            Err(io::Error::other("the file is larger than 8 MiB"))
        }
        Ok(_) => Ok(Some(AssetFile { content: fs::read(path)?.into(), gzip: None })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns what a built-in file was before the build compressed it.
fn decompress(gzip: &[u8]) -> Bytes {
    let mut content = Vec::new();
    let read = GzDecoder::new(gzip).read_to_end(&mut content);
    read.expect("the build has written it");
    content.into()
}

/// Name and content of every built file, the content by gzip.
#[cfg(test)]
pub(crate) fn built() -> &'static [(&'static str, &'static [u8])] {
    BUILT
}
