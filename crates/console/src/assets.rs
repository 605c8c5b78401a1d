//! The files of the console: built in, or read from a directory while somebody works on them.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
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

/// Name and content of every built file; the list is written by the build.
static BUILT: &[(&str, &[u8])] = include!("../dist/files.inc");

/// Files by name.
#[derive(Debug)]
pub(crate) struct AssetStore {
    directory: Option<PathBuf>,
    version: OnceLock<String>,
    compressed: Vec<OnceLock<Bytes>>,
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
        let compressed = BUILT.iter().map(|_| OnceLock::new()).collect();
        AssetStore { directory, version: OnceLock::new(), compressed }
    }

    /// Returns the part of addresses that changes with the content of any file.
    pub(crate) fn version(&self) -> &str {
        if self.directory.is_some() {
            return VERSION_OF_DIRECTORY;
        }
        self.version.get_or_init(|| {
            let mut hash = Sha256::new();
            for (name, content) in BUILT {
                hash.update(name.as_bytes());
                hash.update([0]);
                hash.update(content);
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
        let content = BUILT[index].1;
        let gzip = self.compressed[index].get_or_init(|| compress(content));
        Ok(Some(AssetFile { content: Bytes::from_static(content), gzip: Some(gzip.clone()) }))
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

/// Compresses a built-in file; done once for each.
pub(crate) fn compress(content: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    written.expect("writing into memory does not fail").into()
}

/// Name and content of every built file.
#[cfg(test)]
pub(crate) fn built() -> &'static [(&'static str, &'static [u8])] {
    BUILT
}
