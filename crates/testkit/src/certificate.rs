//! A certificate of a test.

use std::path::PathBuf;
use std::process::Command;

use crate::Scratch;

/// A certificate for `localhost` and 127.0.0.1 that nobody signed but itself, with its key.
#[derive(Debug)]
pub struct Certificate {
    /// The certificate, in PEM: what a client has to trust.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

impl Certificate {
    /// Makes one, by OpenSSL, in a directory that outlives it.
    #[must_use]
    pub fn new(scratch: &Scratch) -> Certificate {
        Certificate::named(scratch, "localhost")
    }

    /// The same for another name.
    #[must_use]
    pub fn named(scratch: &Scratch, name: &str) -> Certificate {
        let certificate = scratch.path().join("certificate.pem");
        let key = scratch.path().join("key.pem");
        let output = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", &format!("/CN={name}")])
            .args(["-addext", &format!("subjectAltName=DNS:{name},IP:127.0.0.1")])
            // An authority could not be a server's certificate at the same time.
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
