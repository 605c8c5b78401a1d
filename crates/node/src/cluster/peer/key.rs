//! Key with which nodes authenticate to each other as members of one cluster.
//!
//! The key is derived from the key of secrets, which all nodes have. Both sides of a connection
//! show the same public key and prove that they have the private one, as a raw public key (RFC
//! 7250): there is no certificate that could expire, and no clock that has to be right. The holder
//! of the key may speak for any node; the holder of the key of secrets could do all that a node
//! does anyway.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc7250>
//! - <https://www.rfc-editor.org/rfc/rfc8410>

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::client::AlwaysResolvesClientRawPublicKeys;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring::sign::any_eddsa_type;
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};

use crate::tls;

/// Prefix of an Ed25519 private key in PKCS #8, which is followed by its 32 bytes (RFC 8410, 7).
const PKCS8_OF_ED25519: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("make the key of the cluster")]
pub struct ClusterKeyError(#[from] Error);

/// The key of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct ClusterKey {
    certified: Arc<CertifiedKey>,
    verifier: Arc<MemberVerifier>,
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

impl ClusterKey {
    /// Creates the key from 32 secret bytes that all nodes have.
    ///
    /// # Errors
    /// If the library rejects the key.
    pub fn new(secret: &[u8; 32]) -> Result<ClusterKey, ClusterKeyError> {
        let document = [&PKCS8_OF_ED25519[..], secret].concat();
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(document))?;
        let public = key.public_key().ok_or(Error::General("no public key".to_owned()))?;
        let algorithms = tls::provider().signature_verification_algorithms;
        let verifier = MemberVerifier { public: public.to_vec(), algorithms };
        let certified = CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key);
        Ok(ClusterKey { certified: Arc::new(certified), verifier: Arc::new(verifier) })
    }

    /// Returns the configuration of connections to other nodes with these protocols.
    pub(super) fn client(&self, protocols: &[&[u8]]) -> Result<ClientConfig, ClusterKeyError> {
        let mut config = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&self.verifier) as Arc<_>)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Arc::clone(&self.certified),
            )));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }

    /// Returns the configuration of connections from other nodes with these protocols.
    pub(super) fn server(&self, protocols: &[&[u8]]) -> Result<ServerConfig, ClusterKeyError> {
        let mut config = ServerConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::clone(&self.verifier) as Arc<_>)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(
                &self.certified,
            ))));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}

/// Accepts only peers that have the key of the cluster.
#[derive(Debug)]
struct MemberVerifier {
    /// The public key, as a `SubjectPublicKeyInfo`.
    public: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl MemberVerifier {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match shown.as_ref() == self.public {
            true => Ok(()),
            false => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// Raw public keys require TLS 1.3.
fn only_tls13() -> Error {
    Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered)
}

impl ServerCertVerifier for MemberVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for MemberVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::super::protocol::{HTTP_1, HTTP_2};
    use super::*;

    fn key(byte: u8) -> ClusterKey {
        ClusterKey::new(&[byte; 32]).unwrap()
    }

    /// Returns the bytes that the client reads after the handshake.
    async fn exchange(client: ClientConfig, server: ServerConfig) -> std::io::Result<Vec<u8>> {
        let (near, far) = duplex(64 << 10);
        let name = ServerName::try_from("node").unwrap();
        let serving = async {
            let mut stream = TlsAcceptor::from(Arc::new(server)).accept(far).await?;
            let protocol = stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec();
            stream.write_all(&protocol).await?;
            stream.shutdown().await
        };
        let asking = async {
            let mut stream = TlsConnector::from(Arc::new(client)).connect(name, near).await?;
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await?;
            Ok(read)
        };
        let (served, read) = tokio::join!(serving, asking);
        served.and(read)
    }

    #[tokio::test]
    async fn nodes_with_the_same_key_agree_on_a_protocol() {
        for (asked, expected) in [(HTTP_2, HTTP_2), (HTTP_1, HTTP_1)] {
            let server = key(7).server(&[HTTP_2, HTTP_1]).unwrap();
            let read = exchange(key(7).client(&[asked]).unwrap(), server).await.unwrap();
            assert_eq!(read, expected);
        }
    }

    #[tokio::test]
    async fn nobody_without_the_key_is_let_in_or_believed() {
        let (ours, theirs) = (key(7), key(8));
        let protocols = [HTTP_2];
        let server = || ours.server(&protocols).unwrap();
        let refused = exchange(theirs.client(&protocols).unwrap(), server()).await;
        assert!(refused.is_err());
        // A peer that shows the public key, and has another private one.
        let liar = ClusterKey {
            certified: Arc::new(CertifiedKey::new(
                ours.certified.cert.clone(),
                Arc::clone(&theirs.certified.key),
            )),
            verifier: Arc::clone(&ours.verifier),
        };
        assert!(exchange(liar.client(&protocols).unwrap(), server()).await.is_err());
        let client = || ours.client(&protocols).unwrap();
        assert!(exchange(client(), liar.server(&protocols).unwrap()).await.is_err());
        // A peer that shows no key.
        let silent = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&ours.verifier) as Arc<_>)
            .with_no_client_auth();
        assert!(exchange(silent, server()).await.is_err());
        assert_eq!(format!("{ours:?}"), "ClusterKey(..)");
    }
}
