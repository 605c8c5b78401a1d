//! The certificate of the HTTP listeners, which is read again when its files change.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc8446>
//! - <https://www.rfc-editor.org/rfc/rfc7301> (ALPN)

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::files::{
    CertificateFileError, FileStamp, certificates, chain_expiry, private_key, stamps,
};
use super::provider;

/// Interval between checks for changes of the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Name of HTTP/2 in ALPN.
pub(crate) const HTTP_2: &[u8] = b"h2";
/// Name of HTTP/1.1 in ALPN.
const HTTP_1: &[u8] = b"http/1.1";

/// Reason why there is no TLS at the listeners.
#[derive(Debug, thiserror::Error)]
pub enum ServerCertificateError {
    /// A file is invalid.
    #[error(transparent)]
    File(#[from] CertificateFileError),
    /// The key does not belong to the certificate, or the library does not support it.
    #[error("use the certificate {cert} with the key {key}")]
    Configure {
        /// File of the certificate.
        cert: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// Cause.
        source: tokio_rustls::rustls::Error,
    },
}

/// A certificate with its key, as last read from the files. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerCertificate(Arc<ServerCertificateShared>);

#[derive(Debug)]
struct ServerCertificateShared {
    current: RwLock<LoadedServerCertificate>,
}

#[derive(Debug)]
struct LoadedServerCertificate {
    cert: PathBuf,
    key: PathBuf,
    config: Arc<ServerConfig>,
    stamps: Vec<FileStamp>,
    /// See [`chain_expiry`].
    expiry_s: Option<u64>,
}

impl ServerCertificate {
    /// Reads a chain of certificates, the server's first, and its key: PEM files.
    ///
    /// # Errors
    /// If a file is invalid, or the key belongs to another certificate.
    pub fn open(cert: &Path, key: &Path) -> Result<ServerCertificate, ServerCertificateError> {
        let current = RwLock::new(load(cert, key)?);
        Ok(ServerCertificate(Arc::new(ServerCertificateShared { current })))
    }

    /// Returns the files of the certificate and of its key.
    #[must_use]
    pub fn files(&self) -> (PathBuf, PathBuf) {
        let current = self.0.current.read();
        (current.cert.clone(), current.key.clone())
    }

    /// Returns the acceptor for a new connection, with HTTP/2 or HTTP/1.1 as the client prefers.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.current.read().config))
    }

    /// Returns when the present certificate expires, in seconds since 1970, if that can be parsed.
    #[must_use]
    pub fn expiry_s(&self) -> Option<u64> {
        self.0.current.read().expiry_s
    }

    /// Reads the files again if they were changed, for new connections; returns whether they were.
    ///
    /// # Errors
    /// If a file is invalid; the former certificate remains in use.
    pub fn refresh(&self) -> Result<bool, ServerCertificateError> {
        let (cert, key) = {
            let current = self.0.current.read();
            if stamps(&[Some(&current.cert), Some(&current.key)]) == current.stamps {
                return Ok(false);
            }
            (current.cert.clone(), current.key.clone())
        };
        let loaded = load(&cert, &key)?;
        let mut current = self.0.current.write();
        // Other files may have been configured meanwhile, and were read then.
        if (&current.cert, &current.key) == (&cert, &key) {
            *current = loaded;
        }
        Ok(true)
    }

    /// Uses another certificate from now on: that of these files.
    ///
    /// # Errors
    /// As of [`ServerCertificate::open`]; the former certificate remains in use.
    pub fn replace(&self, cert: &Path, key: &Path) -> Result<(), ServerCertificateError> {
        let loaded = load(cert, key)?;
        *self.0.current.write() = loaded;
        Ok(())
    }

    /// Reads the files again whenever they change. Never ends.
    pub async fn keep_current(&self) {
        let mut was_failing = false;
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let certificate = self.clone();
            // A panic has changed nothing.
            let Some(looked) = crate::task::blocking(move || certificate.refresh()).await.ok()
            else {
                continue;
            };
            match &looked {
                Ok(true) => tracing::info!("the HTTP listeners have another certificate"),
                Ok(false) => {}
                // Logged once, not at every check.
                Err(error) if !was_failing => {
                    let error = error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "the certificate of the HTTP listeners cannot be read again; the old one \
                         holds"
                    );
                }
                Err(_) => {}
            }
            was_failing = looked.is_err();
        }
    }
}

fn load(cert: &Path, key: &Path) -> Result<LoadedServerCertificate, ServerCertificateError> {
    // Before the files are read: a change in between is detected at the next check.
    let stamps = stamps(&[Some(cert), Some(key)]);
    let (chain, private) = (certificates(cert)?, private_key(key)?);
    let configure = |source| ServerCertificateError::Configure {
        cert: cert.to_owned(),
        key: key.to_owned(),
        source,
    };
    let expiry_s = chain_expiry(&chain);
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(configure)?;
    let mut config =
        builder.with_no_client_auth().with_single_cert(chain, private).map_err(configure)?;
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    let (cert, key) = (cert.to_owned(), key.to_owned());
    Ok(LoadedServerCertificate { cert, key, config: Arc::new(config), stamps, expiry_s })
}
