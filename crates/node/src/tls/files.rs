//! Files with certificates and keys, and detection of their changes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// Maximum size of such a file in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reason why a file of certificates or a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileError {
    /// A file cannot be read.
    #[error("read {0}")]
    Read(PathBuf, #[source] io::Error),
    /// A file has no valid PEM content.
    #[error("find certificates in {0}")]
    Pem(PathBuf, #[source] pem::Error),
    /// A file of certificates contains none.
    #[error("{0} has no certificate")]
    Empty(PathBuf),
}

/// Stamp by which a change of a file is detected: its modification time, and its length.
pub type FileStamp = Option<(SystemTime, u64)>;

/// Returns the stamps of files, in their order.
#[must_use]
pub fn stamps(files: &[Option<&Path>]) -> Vec<FileStamp> {
    let stamp = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    files.iter().map(|path| path.and_then(stamp)).collect()
}

/// Reads a chain of certificates, PEM.
///
/// # Errors
/// If the file cannot be read or has none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| CertificateFileError::Pem(path.to_owned(), error))?;
    if all.is_empty() { Err(CertificateFileError::Empty(path.to_owned())) } else { Ok(all) }
}

/// Returns when the first certificate of a chain expires, in seconds since 1970: the earliest
/// `notAfter` of all (<https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5>). None if one cannot
/// be parsed.
#[must_use]
pub fn chain_expiry(chain: &[CertificateDer<'_>]) -> Option<u64> {
    let expiries = chain.iter().map(|certificate| {
        let parsed = Certificate::from_der(certificate).ok()?;
        Some(parsed.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
    });
    expiries.collect::<Option<Vec<u64>>>()?.into_iter().min()
}

/// Reads a private key, PEM.
///
/// # Errors
/// If the file cannot be read or has none.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateFileError> {
    let text = zeroize::Zeroizing::new(read(path)?);
    let pem = |error| CertificateFileError::Pem(path.to_owned(), error);
    PrivateKeyDer::from_pem_slice(&text).map_err(pem)
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateFileError> {
    let failed = |error| CertificateFileError::Read(path.to_owned(), error);
    if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(failed(io::Error::other("the file is too long")));
    }
    fs::read(path).map_err(failed)
}
