//! Signatures of requests: AWS Signature Version 4 in headers, for S3 and compatible services.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>
//!
//! # References
//! - <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html>

use std::fmt::{self, Write as _};
use std::time::SystemTime;

use ring::hmac;
use sha2::{Digest as _, Sha256};

use crate::{clock, hex};

/// Name of the algorithm.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Credentials of the caller.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningCredentials {
    /// Id of the key.
    pub access_key_id: String,
    /// The secret key.
    pub secret_access_key: String,
    /// Token of temporary credentials.
    pub session_token: Option<String>,
}

impl fmt::Debug for SigningCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Parts of a request that are signed.
#[derive(Clone, Copy, Debug)]
pub struct SignedParts<'a> {
    /// Method, as it is sent.
    pub method: &'a str,
    /// Path, with escapes: see [`escaped_path`].
    pub path: &'a str,
    /// Names and values, escaped, in the order of the names.
    pub query: &'a str,
    /// Names in lower case and values, in the order of the names, `host` among them.
    pub headers: &'a [(&'a str, &'a str)],
    /// [`sha256`] of the body, or a placeholder for it.
    pub payload: &'a str,
    /// [`amz_date`] of the present time.
    pub time: &'a str,
    /// Region of the signature.
    pub region: &'a str,
    /// Service of the signature: `s3`, `sts`.
    pub service: &'a str,
}

/// Formats a time as `x-amz-date`: `20261121T030509Z`.
#[must_use]
pub fn amz_date(time: SystemTime) -> String {
    clock::rfc3339(time).replace(['-', ':'], "")
}

/// Returns the value of `authorization`.
#[must_use]
pub fn authorization(credentials: &SigningCredentials, request: &SignedParts<'_>) -> String {
    let date = request.time.get(..8).unwrap_or_default();
    let scope = format!("{date}/{}/{}/aws4_request", request.region, request.service);
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let headers: String =
        request.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = format!(
        "{}\n{}\n{}\n{headers}\n{names}\n{}",
        request.method, request.path, request.query, request.payload
    );
    let digest = sha256(canonical.as_bytes());
    let to_sign = format!("{ALGORITHM}\n{}\n{scope}\n{digest}", request.time);

    let first = format!("AWS4{}", credentials.secret_access_key);
    let parts = [date, request.region, request.service, "aws4_request"];
    let key = parts.iter().fold(first.into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let signature = hex::encode(&mac(&key, to_sign.as_bytes()));
    let id = &credentials.access_key_id;
    format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

/// Returns the SHA-256 in hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes))
}

/// Escapes a text for a query: all characters except unreserved ones.
#[must_use]
pub fn escaped(text: &str) -> String {
    escape(text, b"-_.~")
}

/// Escapes a text for a path: as for a query, except for the `/` between its parts.
#[must_use]
pub fn escaped_path(text: &str) -> String {
    escape(text, b"-_.~/")
}

fn escape(text: &str, kept: &[u8]) -> String {
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            result.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(result, "%{byte:02X}");
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    /// Examples of the specification, with its key and its time.
    #[test]
    fn signatures_are_those_of_the_specification() {
        let credentials = SigningCredentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        assert_eq!(sha256(b""), EMPTY);
        let put = sha256(b"Welcome to Amazon S3.");
        let (host, date) = (("host", "examplebucket.s3.amazonaws.com"), "20130524T000000Z");
        let amz_date = ("x-amz-date", date);
        let get_headers = [host, ("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY), amz_date];
        let put_headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            host,
            ("x-amz-content-sha256", &put),
            amz_date,
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let list_headers = [host, ("x-amz-content-sha256", EMPTY), amz_date];
        for (method, path, query, headers, payload, expected) in [
            (
                "GET",
                "/test.txt",
                "",
                &get_headers[..],
                EMPTY,
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "PUT",
                "/test%24file.text",
                "",
                &put_headers,
                &put,
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                "GET",
                "/",
                "lifecycle=",
                &list_headers,
                EMPTY,
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "GET",
                "/",
                "max-keys=2&prefix=J",
                &list_headers,
                EMPTY,
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let (region, service) = ("us-east-1", "s3");
            let request =
                SignedParts { method, path, query, headers, payload, time: date, region, service };
            let text = authorization(&credentials, &request);
            assert!(text.ends_with(&format!("Signature={expected}")), "{path}?{query}: {text}");
            let scope = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request";
            assert!(text.contains(scope), "{text}");
        }
        assert_eq!(format!("{credentials:?}"), "Credentials { .. }");
    }
}
