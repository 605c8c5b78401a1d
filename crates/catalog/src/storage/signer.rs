//! Requests to the object store that the server signs for clients.
//!
//! A request is parsed as it is, decoded exactly once and never normalised: anything that the store
//! might interpret differently is rejected. Every object that it names (path, copy source, list
//! prefix, objects to delete) must be in the table's locations; every parameter and header that has
//! a meaning for the store must be one that clients need for files. The signed request is built
//! anew from the parsed one.
//!
//! # References
//! - <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>

use std::collections::BTreeMap;

use node::clock;
use node::objects::sign::{self, SignedParts};
use node::objects::{BucketStyle, S3Location, SigningCredentials, decoded};
use serde::{Deserialize, Serialize};

use super::scope::{FilePermission, TableScope};
use super::xml::XmlElement;
use crate::error::{CatalogError, ErrorReason, Result};

/// Most headers in a request.
const HEADERS_MAX: usize = 64;

/// Longest URL or header value, in bytes.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Most objects in one delete request: the store accepts no more.
const DELETED_MAX: usize = 1000;

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Kinds of unsigned bodies. The other kinds need the key for every chunk.
const UNSIGNED_KINDS: [&str; 2] = [UNSIGNED, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"];

const CONTENT_SHA256: &str = "x-amz-content-sha256";
const COPY_SOURCE: &str = "x-amz-copy-source";

/// Store-specific headers that reading and writing files requires, and that name no other file,
/// grant no rights and change nothing but the object.
const HEADERS: [&str; 14] = [
    CONTENT_SHA256,
    COPY_SOURCE,
    "x-amz-checksum-mode",
    "x-amz-copy-source-range",
    "x-amz-decoded-content-length",
    "x-amz-metadata-directive",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
    "x-amz-storage-class",
    "x-amz-trailer",
    "x-amz-user-agent",
];

/// Prefixes of such headers.
const HEADER_PREFIXES: [&str; 3] = ["x-amz-checksum-", "x-amz-copy-source-if-", "x-amz-meta-"];

/// Headers that the server sets, ignoring the client's values.
const OWN_HEADERS: [&str; 3] = ["authorization", "x-amz-date", "x-amz-security-token"];

/// Parameters of a list request.
const LIST_PARAMETERS: [&str; 8] = [
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "list-type",
    "max-keys",
    "prefix",
    "start-after",
];

/// A request as a client is about to send it.
#[derive(Debug, Deserialize)]
pub struct SignRequest {
    region: String,
    uri: String,
    method: String,
    headers: BTreeMap<String, Vec<String>>,
    /// Body of a request that is described by it.
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    provider: Option<String>,
}

/// Signed request.
#[derive(Debug, Serialize)]
pub struct SignResult {
    uri: String,
    /// Headers to add.
    headers: BTreeMap<String, Vec<String>>,
}

/// A request that was checked and may be signed.
#[derive(Debug)]
pub(super) struct ExaminedRequest {
    scheme: &'static str,
    host: String,
    /// Path as signed and sent.
    path: String,
    query: String,
    payload: String,
    /// Signed headers, except those that the server sets; names in lower case.
    headers: BTreeMap<String, String>,
}

/// A parsed request that is not authorized yet.
#[derive(Debug)]
pub(super) struct SignTarget<'a> {
    method: &'a str,
    scheme: &'static str,
    host: String,
    /// Decoded.
    path: String,
    bucket: String,
    key: String,
    /// Decoded, in the order of names.
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Option<&'a str>,
}

/// Parses and authorizes a request.
///
/// # Errors
/// `Forbidden` if it needs more than `permission` in `scope`; `BadRequest` if it is invalid.
pub(super) fn examine(
    request: &SignRequest,
    place: &S3Location,
    scope: &TableScope,
    permission: FilePermission,
) -> Result<ExaminedRequest> {
    SignTarget::read(request, place)?.judge(scope, permission)
}

/// Signs a checked request. The result has only headers that the request lacks, because some
/// clients append them to the existing ones.
pub(super) fn signed(
    request: &SignRequest,
    examined: &ExaminedRequest,
    place: &S3Location,
    credentials: &SigningCredentials,
) -> SignResult {
    let (uri, headers) = authorized(&request.method, examined, place, credentials);
    let has = |name: &str| request.headers.keys().any(|it| it.eq_ignore_ascii_case(name));
    let added = headers.into_iter().filter(|(name, _)| name != "host" && !has(name));
    let headers = added.map(|(name, value)| (name, vec![value])).collect();
    SignResult { uri, headers }
}

/// Returns the URL for a request, and all headers that are signed or carry the signature.
pub(super) fn authorized(
    method: &str,
    examined: &ExaminedRequest,
    place: &S3Location,
    credentials: &SigningCredentials,
) -> (String, BTreeMap<String, String>) {
    let ExaminedRequest { scheme, host, path, query, payload, headers } = examined;
    let time = sign::amz_date(clock::wall());
    let mut headers = headers.clone();
    headers.insert("x-amz-date".to_owned(), time.clone());
    if let Some(token) = &credentials.session_token {
        headers.insert("x-amz-security-token".to_owned(), token.clone());
    }
    let pairs: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let authorization = sign::authorization(
        credentials,
        &SignedParts {
            method,
            path,
            query,
            headers: &pairs,
            payload,
            time: &time,
            region: &place.region,
            service: "s3",
        },
    );
    headers.insert("authorization".to_owned(), authorization);
    let mark = if query.is_empty() { "" } else { "?" };
    (format!("{scheme}://{host}{path}{mark}{query}"), headers)
}

impl SignRequest {
    /// Creates a request of a caller that knows the warehouse.
    pub(super) fn new(
        method: &str,
        uri: String,
        region: &str,
        headers: BTreeMap<String, Vec<String>>,
        body: Option<String>,
    ) -> SignRequest {
        let (region, method) = (region.to_owned(), method.to_owned());
        SignRequest { region, uri, method, headers, body, provider: None }
    }
}

impl<'a> SignTarget<'a> {
    /// Parses a request.
    ///
    /// # Errors
    /// `BadRequest` if it is invalid, `Forbidden` if it has a header that is not allowed.
    pub(super) fn read(request: &'a SignRequest, place: &S3Location) -> Result<SignTarget<'a>> {
        if request.provider.as_deref().is_some_and(|it| it != "s3") {
            return malformed("provider", "is `s3`");
        }
        if request.region != place.region {
            return malformed("region", "is not the warehouse's");
        }
        let headers = read_headers(&request.headers)?;
        let (scheme, host, path, query) = read_uri(&request.uri, place)?;
        let (bucket, key) = locate(&host, &path, place)?;
        if headers.get("host").is_some_and(|it| !it.eq_ignore_ascii_case(&host)) {
            return malformed("headers", "has a `host` that differs from the URL's");
        }
        let (method, body) = (&*request.method, request.body.as_deref());
        Ok(SignTarget { method, scheme, host, path, bucket, key, query, headers, body })
    }

    /// Returns the bucket and the key that the request concerns: an object, the prefix of keys to
    /// list, or the first of the objects to delete.
    ///
    /// # Errors
    /// `Forbidden` if it concerns no key.
    pub(super) fn subject(&self) -> Result<(&str, String)> {
        let listed = || {
            let list = self.body.and_then(XmlElement::parse)?;
            Some(list.find("Object")?.text_of("Key")?.to_owned())
        };
        let key = match (self.key.is_empty(), self.query.get("prefix")) {
            (false, _) => Some(self.key.clone()),
            (true, Some(prefix)) => Some(prefix.clone()),
            (true, None) => listed(),
        };
        match key {
            Some(key) => Ok((&self.bucket, key)),
            None => forbidden("the request is about no file of a table"),
        }
    }

    /// Returns the request to sign.
    ///
    /// # Errors
    /// `Forbidden` if it needs more than `permission` in `scope`; `BadRequest` if it is invalid.
    pub(super) fn judge(
        &self,
        scope: &TableScope,
        permission: FilePermission,
    ) -> Result<ExaminedRequest> {
        let needed = self.permission(scope)?;
        if needed == FilePermission::Write && permission == FilePermission::Read {
            return forbidden("the principal may not write to the table");
        }
        let payload = self.payload()?;
        let pairs = self.query.iter();
        let pairs =
            pairs.map(|(name, value)| format!("{}={}", sign::escaped(name), sign::escaped(value)));
        let mut pairs: Vec<String> = pairs.collect();
        pairs.sort();
        let query = pairs.join("&");
        let is_signed = |name: &str| name.starts_with("x-amz-") || name == "content-md5";
        let mut headers = self.headers.clone();
        headers.retain(|name, _| is_signed(name));
        headers.insert(CONTENT_SHA256.to_owned(), payload.clone());
        let (scheme, host) = (self.scheme, self.host.clone());
        headers.insert("host".to_owned(), host.clone());
        let path = sign::escaped_path(&self.path);
        Ok(ExaminedRequest { scheme, host, path, query, payload, headers })
    }

    /// Returns the permission that the request needs; rejects kinds that clients do not need.
    fn permission(&self, scope: &TableScope) -> Result<FilePermission> {
        let (bucket, query) = (&*self.bucket, &self.query);
        let names: Vec<&str> = query.keys().map(|it| &**it).filter(|it| *it != "x-id").collect();
        let in_scope = match (self.key.is_empty(), query.get("prefix")) {
            (false, _) => scope.covers(bucket, &self.key),
            (true, Some(prefix)) => scope.covers(bucket, prefix),
            // Keys in the body are checked below, and the location of a bucket is no secret.
            (true, None) => scope.prefixes().any(|(own, _)| own == bucket),
        };
        if !in_scope {
            return forbidden("the request names an object outside the table");
        }
        let permission = match (self.method, self.key.is_empty(), &names[..]) {
            ("GET" | "HEAD", false, []) | ("GET", true, ["location"]) => FilePermission::Read,
            ("GET", true, names) if self.is_list(names) => FilePermission::Read,
            ("PUT", false, [] | ["partNumber", "uploadId"])
            | ("POST", false, ["uploads"] | ["uploadId"])
            | ("DELETE", false, [] | ["uploadId"]) => FilePermission::Write,
            ("POST", true, ["delete"]) => {
                self.check_deleted(scope)?;
                FilePermission::Write
            }
            _ => return forbidden("the signer signs no requests of this kind"),
        };
        let is_put = self.method == "PUT" && !self.key.is_empty();
        match self.headers.get(COPY_SOURCE) {
            Some(source) if is_put => check_source(source, scope)?,
            None => {}
            Some(_) => return forbidden("the signer signs no requests of this kind"),
        }
        Ok(permission)
    }

    fn is_list(&self, names: &[&str]) -> bool {
        names.iter().all(|name| LIST_PARAMETERS.contains(name))
            && self.query.get("list-type").is_some_and(|it| it == "2")
            && self.query.contains_key("prefix")
    }

    /// Rejects a request that deletes objects outside the table.
    fn check_deleted(&self, scope: &TableScope) -> Result<()> {
        let Some(body) = self.body else {
            return malformed("body", "is required for a request that deletes several objects");
        };
        let list = XmlElement::parse(body).filter(|it| it.name == "Delete");
        let Some(list) = list else {
            return malformed("body", "is not a list of objects to delete");
        };
        let mut count = 0;
        for element in &list.elements {
            if element.name == "Quiet" && element.elements.is_empty() {
                continue;
            }
            // Versions and conditions are for administrators of a bucket.
            let is_object = element.name == "Object" && element.elements.len() == 1;
            let Some(key) = element.text_of("Key").filter(|_| is_object) else {
                return malformed("body", "has elements other than keys of objects to delete");
            };
            if !scope.covers(&self.bucket, key) {
                return forbidden("the request names an object outside the table");
            }
            count += 1;
        }
        if count == 0 || count > DELETED_MAX {
            return malformed("body", "has from 1 to 1000 keys");
        }
        Ok(())
    }

    /// Returns the payload hash for the signature. If the body names the objects, the hash is that
    /// of the body that was checked.
    fn payload(&self) -> Result<String> {
        let hash_header = self.headers.get(CONTENT_SHA256);
        if self.query.contains_key("delete") {
            let hash = sign::sha256(self.body.unwrap_or_default().as_bytes());
            if hash_header.is_some_and(|it| *it != hash) {
                return malformed("headers", "has another hash than the body's");
            }
            return Ok(hash);
        }
        let Some(hash_header) = hash_header else { return Ok(UNSIGNED.to_owned()) };
        let is_hash =
            hash_header.len() == 64 && hash_header.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hash || UNSIGNED_KINDS.contains(&&**hash_header) {
            return Ok(hash_header.clone());
        }
        malformed("headers", "has a body with chunk signatures")
    }
}

/// Rejects a copy from outside the table.
fn check_source(source: &str, scope: &TableScope) -> Result<()> {
    let source = source.strip_prefix('/').unwrap_or(source);
    // A version may belong to another object of the same name; a `+` is ambiguous.
    let text = decoded(source).filter(|_| !source.contains(['?', '+']));
    let found = text.as_deref().and_then(|text| text.split_once('/'));
    match found {
        Some((bucket, key)) if scope.covers(bucket, key) => Ok(()),
        _ => forbidden("the request copies an object from outside the table"),
    }
}

/// Returns headers by their lower-case names, without those that the server sets itself.
fn read_headers(all: &BTreeMap<String, Vec<String>>) -> Result<BTreeMap<String, String>> {
    if all.len() > HEADERS_MAX {
        return malformed("headers", "has more than 64");
    }
    let mut headers = BTreeMap::new();
    for (name, values) in all {
        let name = name.to_ascii_lowercase();
        let value = values.join(",");
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_value = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if name.is_empty() || !name.bytes().all(is_name) || value.len() > TEXT_BYTES_MAX {
            return malformed("headers", "has one that can be none");
        }
        if OWN_HEADERS.contains(&&*name) {
            continue;
        }
        let begins = |prefix: &&str| name.starts_with(prefix);
        if name.starts_with("x-amz-") {
            if !HEADERS.contains(&&*name) && !HEADER_PREFIXES.iter().any(begins) {
                return forbidden(&format!("the signer signs no `{name}`"));
            }
            // Loads changes, as seen by a version counter that is at most `age_max` old.
            if !value.bytes().all(is_value) || value.contains("  ") {
                return malformed("headers", "has a value that can be none");
            }
        }
        if headers.insert(name, value.trim().to_owned()).is_some() {
            return malformed("headers", "has one twice");
        }
    }
    Ok(headers)
}

type ReadUri = (&'static str, String, String, BTreeMap<String, String>);

/// Parses the scheme, host, path and query of a URL, decoded once.
fn read_uri(uri: &str, place: &S3Location) -> Result<ReadUri> {
    let wrong = || CatalogError::new(ErrorReason::BadRequest, "`uri` is not the URL of an object");
    let is_good = |byte: u8| byte.is_ascii_graphic() && !b"#\\\"<>^`{|}+".contains(&byte);
    if uri.len() > TEXT_BYTES_MAX || !uri.bytes().all(is_good) {
        return Err(wrong());
    }
    let (scheme, rest) = uri.split_once("://").ok_or_else(wrong)?;
    let (own_scheme, _) = place.endpoint.split_once("://").ok_or_else(wrong)?;
    let scheme = match (scheme, own_scheme) {
        ("http", "http") => "http",
        ("https", "https") => "https",
        _ => return malformed("uri", "is not of the warehouse's endpoint"),
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    if authority.contains(['@', '%']) {
        return Err(wrong());
    }
    let host = super::host(&format!("{scheme}://{authority}"));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = decoded(if path.is_empty() { "/" } else { path }).ok_or_else(wrong)?;
    Ok((scheme, host, path, parameters(query)?))
}

/// Parses the parameters of a query, decoded once. All callers use this function, so that they
/// agree on the meaning of a request.
///
/// # Errors
/// `BadRequest` if the query is malformed or repeats a parameter.
pub(crate) fn parameters(query: &str) -> Result<BTreeMap<String, String>> {
    let wrong = || CatalogError::new(ErrorReason::BadRequest, "`uri` is not the URL of an object");
    let mut pairs = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name).ok_or_else(wrong)?;
        if pairs.insert(name, decoded(value).ok_or_else(wrong)?).is_some() {
            return malformed("uri", "has a parameter twice");
        }
    }
    Ok(pairs)
}

/// Returns the bucket and the key of a URL in path style or virtual-host style.
fn locate(host: &str, path: &str, place: &S3Location) -> Result<(String, String)> {
    let own = super::host(&place.endpoint);
    let is_amazon = place.endpoint == super::amazon_endpoint(&place.region);
    let mut hosts = vec![own];
    if is_amazon && place.region == "us-east-1" {
        hosts.push("s3.amazonaws.com".to_owned());
    }
    let rest = path.strip_prefix('/');
    let Some(rest) = rest else { return malformed("uri", "is not the URL of an object") };
    for own in &hosts {
        if host == own {
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            return Ok((bucket.to_owned(), key.to_owned()));
        }
        // A bucket name before an IP address is not a host name.
        let bucket = host.strip_suffix(&**own).and_then(|it| it.strip_suffix('.'));
        let is_virtual = is_amazon || place.style == BucketStyle::Virtual;
        if let Some(bucket) = bucket.filter(|it| is_virtual && !it.is_empty()) {
            return Ok((bucket.to_owned(), rest.to_owned()));
        }
    }
    malformed("uri", "is not of the warehouse's endpoint")
}

fn malformed<T>(field: &str, why: &str) -> Result<T> {
    Err(CatalogError::new(ErrorReason::BadRequest, format!("`{field}` {why}")))
}

fn forbidden<T>(why: &str) -> Result<T> {
    Err(CatalogError::new(ErrorReason::Forbidden, why))
}

#[cfg(test)]
mod tests;
