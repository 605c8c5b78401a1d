//! Certificate for tests.

use std::path::PathBuf;
use std::process::Command;

use crate::Scratch;

/// Self-signed certificate for `localhost` and 127.0.0.1, with its key.
#[derive(Debug)]
pub struct Certificate {
    /// File of the certificate in PEM, which clients must trust.
    pub certificate: PathBuf,
    /// File of the key in PEM.
    pub key: PathBuf,
}

impl Certificate {
    /// Creates a certificate with OpenSSL, in a directory that outlives it.
    #[must_use]
    pub fn new(scratch: &Scratch) -> Certificate {
        Certificate::named(scratch, "localhost")
    }

    /// Creates a certificate for another name.
    #[must_use]
    pub fn named(scratch: &Scratch, name: &str) -> Certificate {
        let certificate = scratch.path().join("certificate.pem");
        let key = scratch.path().join("key.pem");
        let output = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", &format!("/CN={name}")])
            .args(["-addext", &format!("subjectAltName=DNS:{name},IP:127.0.0.1")])
            // An authority's certificate could not be used as the server's.
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-out")
            .arg(&certificate)
            .arg("-keyout")
            .arg(&key)
            .output()
            .expect("start openssl; scripts/test-deps.sh installs it");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl: {errors}");
        Certificate { certificate, key }
    }
}
