//! Addresses of object stores in the configuration.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use axum::http::Uri;

use super::check_prefix;
use crate::client;

/// Default region: the one that services without regions use.
const REGION_DEFAULT: &str = "us-east-1";

/// Address of an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectsUrl {
    /// In a directory: an absolute path.
    Directory(PathBuf),
    /// In a bucket: `s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&style=path|virtual&ca=FILE]`.
    S3(S3Location),
}

/// A location in a service with S3's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Location {
    /// The bucket, which must exist.
    pub bucket: String,
    /// Prefix of all keys: empty, or with a `/` at its end.
    pub prefix: String,
    /// `http://…` or `https://…`, without a path.
    pub endpoint: String,
    /// Region for the signature.
    pub region: String,
    /// Position of the bucket in URLs.
    pub style: BucketStyle,
    /// Certificate authorities to trust in place of the machine's, in PEM.
    pub ca: Option<PathBuf>,
}

/// Position of the bucket in URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketStyle {
    /// `https://endpoint/bucket/key`: for most self-hosted services.
    Path,
    /// `https://bucket.endpoint/key`: for Amazon S3.
    Virtual,
}

/// Error of an invalid address of an object store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{what}` of an object store: {why}")]
pub struct BadUrl {
    /// Part of the address.
    what: &'static str,
    /// Problem.
    why: &'static str,
}

fn bad<T>(what: &'static str, why: &'static str) -> Result<T, BadUrl> {
    Err(BadUrl { what, why })
}

impl FromStr for ObjectsUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<ObjectsUrl, BadUrl> {
        match text.strip_prefix("s3://") {
            Some(rest) => rest.parse().map(ObjectsUrl::S3),
            None if text.starts_with('/') => Ok(ObjectsUrl::Directory(PathBuf::from(text))),
            None => bad("url", "it is neither an absolute path nor `s3://…`"),
        }
    }
}

impl FromStr for S3Location {
    type Err = BadUrl;

    /// Parses the text after `s3://`.
    fn from_str(text: &str) -> Result<S3Location, BadUrl> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if !is_bucket(bucket) {
            return bad("bucket", "it has 3 to 63 of `a` to `z`, digits, `-` and `.`");
        }
        let prefix = prefix.trim_end_matches('/');
        if check_prefix(prefix).is_err() || prefix.len() > PREFIX_BYTES_MAX {
            return bad("prefix", "keys cannot begin with it");
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let (mut endpoint, mut region, mut style, mut ca) = (None, None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return bad("query", "it is not made of `name=value` and `&`");
            };
            let Some(value) = decoded(value) else {
                return bad("query", "a `%` is not followed by two hexadecimal digits");
            };
            let previous = match name {
                "endpoint" => endpoint.replace(value),
                "region" => region.replace(value),
                "style" => style.replace(value),
                "ca" => ca.replace(value),
                _ => return bad("query", "there are `endpoint`, `region`, `style` and `ca`"),
            };
            if previous.is_some() {
                return bad("query", "a name occurs twice");
            }
        }
        let region = region.unwrap_or_else(|| REGION_DEFAULT.to_owned());
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if region.is_empty() || region.len() > 64 || !region.bytes().all(is_good) {
            return bad("region", "it has letters, digits and `-`");
        }
        let style = match (style.as_deref(), &endpoint) {
            (Some("path"), _) | (None, Some(_)) => BucketStyle::Path,
            // No wildcard certificate covers two labels.
            (None, None) if bucket.contains('.') => BucketStyle::Path,
            (Some("virtual"), _) | (None, None) => BucketStyle::Virtual,
            (Some(_), _) => return bad("style", "there are `path` and `virtual`"),
        };
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        check_endpoint(&endpoint)?;
        let with_bucket = endpoint.replacen("://", &format!("://{bucket}."), 1);
        if style == BucketStyle::Virtual && client::check_url(&with_bucket).is_err() {
            return bad("style", "the bucket and the endpoint together are not a host name");
        }
        let ca = ca.map(PathBuf::from);
        Ok(S3Location { bucket: bucket.to_owned(), prefix, endpoint, region, style, ca })
    }
}

/// Longest prefix in a bucket: services accept keys of 1024 bytes.
const PREFIX_BYTES_MAX: usize = 256;

/// Checks Amazon's rules for new buckets, as far as they keep URLs unambiguous.
fn is_bucket(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (first, last) = (text.bytes().next(), text.bytes().last());
    (3..=63).contains(&text.len())
        && text.bytes().all(|byte| is_good(byte) || b"-.".contains(&byte))
        && first.is_some_and(is_good)
        && last.is_some_and(is_good)
        && !text.contains("..")
}

fn check_endpoint(endpoint: &str) -> Result<(), BadUrl> {
    if client::check_url(endpoint).is_err() {
        return bad("endpoint", "it is not `http://HOST[:PORT]` or `https://HOST[:PORT]`");
    }
    let uri = endpoint.parse::<Uri>();
    if !uri.is_ok_and(|uri| uri.path() == "/" && uri.query().is_none()) {
        return bad("endpoint", "it has a path");
    }
    Ok(())
}

/// Decodes `%XX`, once; none if it is not followed by two digits, or the result is not UTF-8.
#[must_use]
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let number = digit(rest.next()?)? * 16 + digit(rest.next()?)?;
        bytes.push(u8::try_from(number).ok()?);
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Display for S3Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{} at {}", self.bucket, self.prefix, self.endpoint)
    }
}
