//! TLS on both legs: certificates, and the verification of those of the peers.
//!
//! The relay drives the handshakes; this module has their configuration. Certificates are read
//! again when their files change ([`ClientSide::refresh`], [`ServerSide::refresh`]); existing
//! connections keep their configuration, and a file that cannot be read changes nothing.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc8446>
//! - <https://www.rfc-editor.org/rfc/rfc5929#section-4>

mod certificate;
mod first;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::TlsMode;
use node::tls::{
    CertificateFileError, CertificateTrust, CertificateVerifier, FileStamp, certificates,
    chain_expiry, machine_roots, private_key, provider, stamps,
};
use parking_lot::RwLock;
use pooler_core::pg::dial::{ServerAssurance, TlsRequest};
use pooler_core::pg::login::{TlsFacts, TlsPolicy};
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, Error as RustlsError, RootCertStore, ServerConfig,
    ServerConnection,
};

use crate::tenants::{BackendAddress, ServerTls};

/// Protocol name that clients with direct TLS must request, and others may (PostgreSQL 17).
const ALPN: &[u8] = b"postgresql";

/// Number of session tickets that are issued after each handshake. libpq uses none, JDBC one.
const TICKETS: usize = 1;

/// Maximum configurations for servers that are cached.
const SERVERS_MAX: usize = 1024;

/// Why TLS cannot be configured as requested.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is invalid.
    #[error(transparent)]
    File(#[from] CertificateFileError),
    /// A certificate without its key or the other way round, or none where one is required.
    #[error("a mode that requires TLS needs a certificate and a key")]
    NoCertificate,
    /// Clients' certificates cannot be checked without authorities.
    #[error("a mode that verifies client certificates needs `client_ca`")]
    NoAuthorities,
    /// The machine has no trusted authorities.
    #[error(transparent)]
    Machine(#[from] node::tls::TlsSetupError),
    /// The library rejects the configuration.
    #[error("configure TLS")]
    Configure(#[from] RustlsError),
    /// The library rejects the authorities.
    #[error("configure the authorities of clients")]
    Authorities(#[from] VerifierBuilderError),
    /// No certificate can contain the host's name.
    #[error("no certificate can have the name {0:?}")]
    Name(String),
}

/// Certificates and requirements for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// Encryption that is required of clients.
    pub mode: TlsMode,
    /// The bouncer's certificate with its chain, PEM.
    pub cert: Option<PathBuf>,
    /// Key, PEM.
    pub key: Option<PathBuf>,
    /// Authorities for clients' certificates, PEM.
    pub client_ca: Option<PathBuf>,
}

/// Current TLS configuration for clients. Shared by all threads.
#[derive(Debug)]
pub struct ClientSide {
    settings: RwLock<ClientTls>,
    current: RwLock<Arc<ListenerTls>>,
}

/// TLS configuration of new connections.
#[derive(Debug)]
pub struct ListenerTls {
    /// For [`ServerConnection::new`]; `None` without TLS.
    pub config: Option<Arc<ServerConfig>>,
    /// Encryption that is required of clients.
    pub policy: TlsPolicy,
    end_point: Option<Vec<u8>>,
    /// When the certificate expires, in seconds since 1970.
    expiry_s: Option<u64>,
    stamps: Vec<FileStamp>,
}

impl ClientSide {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file that the mode requires is missing, or a file is invalid.
    pub fn new(settings: ClientTls) -> Result<ClientSide, TlsError> {
        let current = RwLock::new(Arc::new(ListenerTls::read(&settings)?));
        Ok(ClientSide { settings: RwLock::new(settings), current })
    }

    /// Returns the configuration of new connections.
    pub fn load(&self) -> Arc<ListenerTls> {
        Arc::clone(&self.current.read())
    }

    /// Reads the files again if they were changed; returns whether they were.
    ///
    /// # Errors
    /// If a file is invalid; the former configuration remains in force.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let settings = self.settings.read().clone();
        if stamps(&settings.files()) == self.load().stamps {
            return Ok(false);
        }
        let read = ListenerTls::read(&settings)?;
        *self.current.write() = Arc::new(read);
        Ok(true)
    }
}

impl ClientSide {
    /// Applies other settings to future connections.
    ///
    /// # Errors
    /// If they are invalid; the former configuration remains in force.
    pub fn replace(&self, settings: ClientTls) -> Result<(), TlsError> {
        if *self.settings.read() == settings {
            return self.refresh().map(drop);
        }
        let read = ListenerTls::read(&settings)?;
        *self.settings.write() = settings;
        *self.current.write() = Arc::new(read);
        Ok(())
    }
}

impl ClientTls {
    fn files(&self) -> [Option<&Path>; 3] {
        [self.cert.as_deref(), self.key.as_deref(), self.client_ca.as_deref()]
    }
}

impl ListenerTls {
    fn read(settings: &ClientTls) -> Result<ListenerTls, TlsError> {
        // Before the files are read: a change in between is detected at the next check.
        let stamps = stamps(&settings.files());
        let policy = match settings.mode {
            TlsMode::Disable => TlsPolicy::Absent,
            TlsMode::Allow | TlsMode::Prefer => TlsPolicy::Offered,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => TlsPolicy::Required,
        };
        let absent = |stamps| ListenerTls {
            config: None,
            policy: TlsPolicy::Absent,
            end_point: None,
            expiry_s: None,
            stamps,
        };
        let (cert, key) = match (policy, &settings.cert, &settings.key) {
            (TlsPolicy::Absent, ..) | (TlsPolicy::Offered, None, None) => {
                return Ok(absent(stamps));
            }
            (TlsPolicy::Offered | TlsPolicy::Required, Some(cert), Some(key)) => (cert, key),
            (TlsPolicy::Offered | TlsPolicy::Required, ..) => return Err(TlsError::NoCertificate),
        };
        let chain = certificates(cert)?;
        let end_point = chain.first().and_then(|leaf| certificate::end_point(leaf));
        let expiry_s = chain_expiry(&chain);
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions()?;
        let builder = match (&settings.client_ca, settings.mode) {
            (None, TlsMode::VerifyCa | TlsMode::VerifyFull) => return Err(TlsError::NoAuthorities),
            (None, _) => builder.with_no_client_auth(),
            (Some(file), mode) => {
                let roots = Arc::new(roots(Some(file))?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let must = matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyFull);
                let verifier = if must { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build()?)
            }
        };
        let key = provider().key_provider.load_private_key(private_key(key)?)?;
        let mut config = builder.with_cert_resolver(first::shown(chain, key)?);
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.send_tls13_tickets = TICKETS;
        Ok(ListenerTls { config: Some(Arc::new(config)), policy, end_point, expiry_s, stamps })
    }

    /// Returns the expiry of the certificate for clients, in seconds since 1970; `None` without
    /// one.
    #[must_use]
    pub fn expiry_s(&self) -> Option<u64> {
        self.expiry_s
    }

    /// Returns the facts about a completed handshake that a login needs.
    #[must_use]
    pub fn facts(&self, connection: &ServerConnection) -> TlsFacts {
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        TlsFacts {
            server_name: connection.server_name().map(str::to_owned),
            is_postgresql: connection.alpn_protocol() == Some(ALPN),
            end_point: self.end_point.clone(),
            client_name: shown.and_then(|leaf| certificate::common_name(leaf)),
        }
    }
}

/// Current TLS configuration for servers. Shared by all threads.
#[derive(Debug, Default)]
pub struct ServerSide {
    known: RwLock<HashMap<ServerTls, LoadedCertificate>>,
}

#[derive(Debug)]
struct LoadedCertificate {
    config: Arc<ClientConfig>,
    stamps: Vec<FileStamp>,
}

impl ServerSide {
    /// Starts a handshake with a server that has agreed to one.
    ///
    /// # Errors
    /// If a file is invalid.
    pub fn connection(
        &self,
        tls: &ServerTls,
        address: &BackendAddress,
    ) -> Result<ClientConnection, TlsError> {
        let config = self.config(tls)?;
        let host = match address {
            BackendAddress::Tcp { host, .. } => host.as_str(),
            BackendAddress::Unix { .. } | BackendAddress::Socket { .. } => "localhost",
        };
        let bad_name = |_| TlsError::Name(host.to_owned());
        let name = ServerName::try_from(host.to_owned()).map_err(bad_name)?;
        Ok(ClientConnection::new(config, name)?)
    }

    /// Returns the configuration for servers with these settings.
    ///
    /// # Errors
    /// If a file is invalid.
    pub fn config(&self, tls: &ServerTls) -> Result<Arc<ClientConfig>, TlsError> {
        if let Some(known) = self.known.read().get(tls) {
            return Ok(Arc::clone(&known.config));
        }
        let made = LoadedCertificate::read(tls)?;
        let config = Arc::clone(&made.config);
        let mut known = self.known.write();
        if known.len() >= SERVERS_MAX {
            known.clear();
        }
        known.insert(tls.clone(), made);
        Ok(config)
    }

    /// Reads changed files again. A configuration whose files cannot be read remains in force, and
    /// its error is returned.
    pub fn refresh(&self) -> Vec<TlsError> {
        let changed: Vec<ServerTls> = {
            let known = self.known.read();
            let changed = known.iter().filter(|(tls, one)| stamps(&files(tls)) != one.stamps);
            changed.map(|(tls, _)| tls.clone()).collect()
        };
        let mut errors = Vec::new();
        for tls in changed {
            match LoadedCertificate::read(&tls) {
                Ok(made) => drop(self.known.write().insert(tls, made)),
                Err(error) => errors.push(error),
            }
        }
        errors
    }
}

fn files(tls: &ServerTls) -> [Option<&Path>; 3] {
    [tls.ca.as_deref(), tls.cert.as_deref(), tls.key.as_deref()]
}

impl LoadedCertificate {
    fn read(tls: &ServerTls) -> Result<LoadedCertificate, TlsError> {
        let stamps = stamps(&files(tls));
        let ca = tls.ca.as_deref();
        let trust = match (tls.mode, ca) {
            (TlsMode::VerifyFull, _) => CertificateTrust::Name(roots(ca)?),
            // As in libpq, configured authorities are always used for verification.
            (TlsMode::VerifyCa, _) | (TlsMode::Require, Some(_)) => {
                CertificateTrust::Chain(roots(ca)?)
            }
            (TlsMode::Require | TlsMode::Prefer | TlsMode::Allow | TlsMode::Disable, _) => {
                CertificateTrust::Anybody
            }
        };
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions()?.dangerous();
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            CertificateTrust::Anybody => {
                let (inner, provider) = (CertificateVerifier::new(trust), provider());
                Arc::new(first::AnyVersion { inner, provider })
            }
            CertificateTrust::Chain(_) | CertificateTrust::Name(_) => {
                Arc::new(CertificateVerifier::new(trust))
            }
        };
        let builder = builder.with_custom_certificate_verifier(verifier);
        let mut config = match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => {
                builder.with_client_auth_cert(certificates(cert)?, private_key(key)?)?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) | (None, Some(_)) => return Err(TlsError::NoCertificate),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(LoadedCertificate { config: Arc::new(config), stamps })
    }
}

/// Returns the TLS request with which a connection to a server begins, for
/// [`pooler_core::pg::dial`].
#[must_use]
pub fn request(tls: &ServerTls, address: &BackendAddress) -> TlsRequest {
    match (address, tls.mode) {
        (BackendAddress::Unix { .. } | BackendAddress::Socket { .. }, _)
        | (_, TlsMode::Disable) => TlsRequest::Never,
        // libpq tries without TLS first; there is no reason to do so where both are allowed.
        (_, TlsMode::Allow | TlsMode::Prefer) => TlsRequest::IfOffered,
        (_, TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull) => TlsRequest::Must,
    }
}

/// Returns the assurance about the server before it has proved anything.
#[must_use]
pub fn assurance(tls: &ServerTls, is_unix: bool) -> ServerAssurance {
    match (is_unix, tls.is_verified(), tls.trust_server_key) {
        (true, ..) => ServerAssurance::Private,
        (false, true, _) => ServerAssurance::Verified,
        (false, false, true) => ServerAssurance::Trusted,
        (false, false, false) => ServerAssurance::Unknown,
    }
}

/// Returns the channel binding of SCRAM for a completed handshake with a server.
#[must_use]
pub fn end_point(connection: &ClientConnection) -> Option<Vec<u8>> {
    certificate::end_point(connection.peer_certificates()?.first()?)
}

/// Returns the authorities of a file, or those that the machine trusts.
fn roots(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let Some(path) = file else { return Ok(machine_roots()?) };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests;
