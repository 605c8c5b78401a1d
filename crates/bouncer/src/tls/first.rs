//! Certificates of version 1 of X.509, which `openssl x509 -req` creates without extensions, as in
//! PostgreSQL's own instructions. The TLS library accepts none of them.
//!
//! They are accepted here where only their key matters: as the bouncer's own certificate, and as
//! that of a server without verification. The possession of the key is checked all the same:
//! SCRAM's channel binding relies on it.

use std::sync::Arc;

use node::tls::CertificateVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::ResolvesServerCert;
use tokio_rustls::rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use tokio_rustls::rustls::{DigitallySignedStruct, Error, InconsistentKeys, SignatureScheme};

use super::certificate;

/// Returns a certificate of any version, after a check that the key belongs to it.
pub(super) fn shown(
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
) -> Result<Arc<dyn ResolvesServerCert>, Error> {
    let first = chain.first().and_then(|leaf| certificate::key_of_first_version(leaf));
    match (first, key.public_key()) {
        (None, _) => {
            let certified = CertifiedKey::new(chain, key);
            match certified.keys_match() {
                Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
                Err(error) => return Err(error),
            }
            Ok(Arc::new(SingleCertAndKey::from(certified)))
        }
        (Some(own), Some(public)) if *own != *public.as_ref() => {
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch))
        }
        (Some(_), _) => Ok(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)))),
    }
}

/// Verifies of a server only that it has the key of its certificate.
#[derive(Debug)]
pub(super) struct AnyVersion {
    pub(super) inner: CertificateVerifier,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyVersion {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let inner = &self.inner;
        inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(key) = certificate::key_of_first_version(certificate) else {
            return self.inner.verify_tls13_signature(message, certificate, signature);
        };
        let key = SubjectPublicKeyInfoDer::from(key);
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
