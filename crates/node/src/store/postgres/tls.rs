//! The address of a PostgreSQL server: options, and TLS mode.

use std::fmt;
use std::sync::Arc;

use ::postgres::Config;
use ::postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::error::SqlStoreError;
use crate::tls::{self, CertificateTrust, CertificateVerifier};

/// Parameters of a connection.
pub(super) struct PostgresTls {
    /// Host and database, for messages: never the user or a password.
    pub(super) name: String,
    /// Other options.
    pub(super) options: Config,
    /// None if TLS is disabled.
    pub(super) tls: Option<MakeRustlsConnect>,
}

/// Parses an address. In addition to the driver's options it supports `sslmode` with libpq's
/// meanings (`disable`; `prefer` and `require`, which encrypt without verification; `verify-full`)
/// and `sslrootcert`, a file of authorities that replaces the machine's.
pub(super) fn parse(url: &str) -> Result<PostgresTls, SqlStoreError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut roots, mut rest) = ("prefer", None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = value,
            Some(("sslrootcert", value)) => roots = Some(value),
            _ => rest.push(pair),
        }
    }
    let plain = format!("{base}?{}", rest.join("&"));
    // The driver's message may quote the address, and with it a password.
    let mut options: Config = plain.trim_end_matches('?').parse().map_err(|_| {
        SqlStoreError::Url("it is not a valid address of a PostgreSQL server".into())
    })?;
    if options.get_hosts().is_empty() && options.get_hostaddrs().is_empty() {
        return Err(SqlStoreError::Url("the address of the PostgreSQL server has no host".into()));
    }
    if options.get_application_name().is_none() {
        options.application_name("cove");
    }
    let (ssl_mode, config) = match mode {
        "disable" => (SslMode::Disable, None),
        "prefer" => (SslMode::Prefer, Some(unverified()?)),
        "require" if roots.is_none() => (SslMode::Require, Some(unverified()?)),
        // With a file of authorities libpq verifies the signature; this module verifies the name as
        // well.
        "require" | "verify-full" => (SslMode::Require, Some(verified(roots)?)),
        _ => {
            let modes = "`disable`, `prefer`, `require` and `verify-full`";
            return Err(SqlStoreError::Url(format!("`sslmode` must be one of {modes}")));
        }
    };
    options.ssl_mode(ssl_mode);
    let name = name(&options);
    Ok(PostgresTls { name, options, tls: config.map(MakeRustlsConnect::new) })
}

fn name(options: &Config) -> String {
    let host = options.get_hosts().first().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let host = host.or_else(|| options.get_hostaddrs().first().map(ToString::to_string));
    let database = options.get_dbname().or(options.get_user()).unwrap_or_default();
    format!("postgres://{}/{database}", host.unwrap_or_default())
}

fn verified(file: Option<&str>) -> Result<ClientConfig, SqlStoreError> {
    let roots = match file {
        None => tls::machine_roots().map_err(unusable)?,
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(file).map_err(unusable)? {
                roots.add(certificate.map_err(unusable)?).map_err(unusable)?;
            }
            roots
        }
    };
    let config = tls::client_config().map_err(unusable)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn unverified() -> Result<ClientConfig, SqlStoreError> {
    // As libpq does below `verify-ca`.
    let verifier = Arc::new(CertificateVerifier::new(CertificateTrust::Anybody));
    let config = tls::client_config().map_err(unusable)?.dangerous();
    Ok(config.with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn unusable(error: impl fmt::Display) -> SqlStoreError {
    SqlStoreError::Url(format!("TLS cannot be used: {error}"))
}
