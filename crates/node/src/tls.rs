//! TLS: trusted authorities, the cryptography provider, and the server's own certificates.

mod files;
mod server;
mod verify;

use std::sync::Arc;

use rustls_native_certs::load_native_certs;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

pub use self::files::{
    CertificateFileError, FileStamp, certificates, chain_expiry, private_key, stamps,
};
pub(crate) use self::server::HTTP_2;
pub use self::server::{ServerCertificate, ServerCertificateError};
pub use self::verify::{CertificateTrust, CertificateVerifier};

/// Reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    /// The machine trusts no authority, so no peer can be verified.
    #[error("find the certificate authorities of this machine{}", first_problem(.0))]
    NoRoots(Vec<rustls_native_certs::Error>),
    /// The library rejects the configuration.
    #[error("configure TLS")]
    Configure(#[from] tokio_rustls::rustls::Error),
}

fn first_problem(problems: &[rustls_native_certs::Error]) -> String {
    problems.first().map_or(String::new(), |problem| format!(": {problem}"))
}

/// Returns the authorities that the machine trusts.
///
/// # Errors
/// If it trusts none.
pub fn machine_roots() -> Result<RootCertStore, TlsSetupError> {
    let mut roots = RootCertStore::empty();
    let found = load_native_certs();
    // A malformed certificate is not trusted; the others still are.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() { Err(TlsSetupError::NoRoots(found.errors)) } else { Ok(roots) }
}

/// Returns the cryptography provider, named explicitly: any code could set a process-wide default.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns a configuration without its trusted authorities.
pub(crate) fn client_config() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, TlsSetupError> {
    Ok(ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?)
}
