//! Data from certificates: their hash for channel binding, and their subject.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc5280>
//! - <https://www.rfc-editor.org/rfc/rfc5929#section-4.1>

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode as _, Encode as _, Tagged as _};
use x509_cert::{Certificate, Version};

/// `id-at-commonName`.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Returns the hash of a certificate for `tls-server-end-point` (RFC 5929): that of its signature,
/// or SHA-256 if that is weaker. `None` if the signature has no such hash, as with Ed25519, for
/// which nothing is defined.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let parsed = Certificate::from_der(certificate).ok()?;
    let hash = match parsed.signature_algorithm.oid.to_string().as_str() {
        // RSA with MD5, SHA-1, SHA-256; ECDSA with SHA-1, SHA-256.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => Sha256::digest(certificate).to_vec(),
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" => Sha224::digest(certificate).to_vec(),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Sha384::digest(certificate).to_vec(),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Sha512::digest(certificate).to_vec(),
        _ => return None,
    };
    Some(hash)
}

/// Returns the common name of a certificate's subject. `None` if there are several: a client could
/// otherwise choose among them.
pub(super) fn common_name(certificate: &[u8]) -> Option<String> {
    let parsed = Certificate::from_der(certificate).ok()?;
    let sets = parsed.tbs_certificate.subject.0.iter().flat_map(|set| set.0.iter());
    let mut names = sets.filter(|attribute| attribute.oid == COMMON_NAME);
    let (Some(only), None) = (names.next(), names.next()) else { return None };
    let value = &only.value;
    let text = match value.tag() {
        x509_cert::der::Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str(),
        x509_cert::der::Tag::PrintableString => {
            value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str()
        }
        x509_cert::der::Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok()?.as_str(),
        _ => return None,
    };
    // Other programs would read a name with a zero byte as a shorter one.
    (!text.is_empty() && !text.contains('\0')).then(|| text.to_owned())
}

/// Returns the public key of a version 1 certificate, as DER; `None` for other versions.
pub(super) fn key_of_first_version(certificate: &[u8]) -> Option<Vec<u8>> {
    let parsed = Certificate::from_der(certificate).ok()?.tbs_certificate;
    (parsed.version == Version::V1).then(|| parsed.subject_public_key_info.to_der().ok())?
}
