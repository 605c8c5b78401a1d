//! Requests for files that the server forwards to the store: a client without any key sends them,
//! and they are checked like those that the server only signs.
//!
//! The forwarded request is built anew from the parsed one. Checksums of bodies in chunks are in
//! trailers and are dropped, together with the headers that announce them; checksums of parts and
//! of the object assembled from them must agree with each other, so they are dropped as well.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/aws/src/main/resources/s3-signer-open-api.yaml>

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use node::client::{ClientError, ClientRequest, ClientResponse, Outgoing};
use node::objects::{BucketStyle, S3Location, SigningCredentials};
use std::time::Duration;

use super::BucketStorage;
use super::scope::{FilePermission, TableScope};
use super::signer::{self, SignRequest, SignTarget};
use super::xml::XmlElement;
use crate::error::{CatalogError, ErrorReason, Result};

/// Longest time from the first byte of a request to the head of its response.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// Longest pause in a response.
const ANSWER_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Largest object of existing services, in bytes.
const ANSWER_BYTES_MAX: u64 = 5 << 40;

/// Most parts that an object is assembled from.
const PARTS_MAX: usize = 2000;

const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// Headers that have a meaning for files, beside store-specific ones.
const FORWARDED: [HeaderName; 8] = [
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
];

/// Headers that concern checksums, or the chunks of a body.
const ABOUT_PIECES: [&str; 4] =
    ["x-amz-decoded-content-length", "x-amz-sdk-checksum-algorithm", "x-amz-te", "x-amz-trailer"];

/// Header of Amazon's own clients, which know only one version.
const API_VERSION: &str = "x-amz-api-version";

const CHECKSUM_PREFIX: &str = "x-amz-checksum-";

/// A short XML response of the store.
#[derive(Debug)]
pub(crate) struct StoreReply {
    /// Name of its root element.
    pub(crate) root: String,
    element: XmlElement,
}

impl StoreReply {
    /// Parses the text; `None` if it is not XML of the kind that such services send.
    pub(crate) fn read(text: &str) -> Option<StoreReply> {
        let element = XmlElement::parse(text)?;
        Some(StoreReply { root: element.name.clone(), element })
    }

    /// Returns the text of one of its elements.
    pub(crate) fn text_of(&self, name: &str) -> Option<String> {
        self.element.text_of(name).map(str::to_owned)
    }
}

/// A request of a client without a key.
#[derive(Debug)]
pub(crate) struct RelayedRequest {
    method: Method,
    request: SignRequest,
    /// Headers that are sent unsigned.
    forwarded: HeaderMap,
    /// Replaces the received body, if the body says which objects the request concerns.
    body: Option<String>,
}

impl RelayedRequest {
    /// Creates a request from one whose path begins with the bucket. `body` is set if it says which
    /// objects the request concerns, and `is_cut` if it came in the store's chunk format.
    ///
    /// # Errors
    /// `BadRequest` if the request is invalid.
    fn new(
        place: &S3Location,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: Option<String>,
        is_cut: bool,
    ) -> Result<RelayedRequest> {
        let parameters = signer::parameters(uri.query().unwrap_or_default())?;
        let names = |name: &str| parameters.contains_key(name);
        let is_of_parts = names("uploads") || names("uploadId");
        let body = match (body, names("uploadId") && *method == Method::POST) {
            (Some(text), true) => Some(parts(&text)?),
            (body, _) => body,
        };
        let mut own: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut forwarded = HeaderMap::new();
        for (name, value) in headers {
            let text = name.as_str();
            if FORWARDED.contains(name) {
                forwarded.append(name, value.clone());
            }
            let is_stores = text.starts_with("x-amz-") && text != API_VERSION;
            if !is_stores && text != "content-md5" {
                continue;
            }
            let is_checksum = text.starts_with(CHECKSUM_PREFIX) && text != "x-amz-checksum-mode";
            let is_about_pieces = ABOUT_PIECES.contains(&text);
            // The hash is that of the chunked body, or of the body before it was rewritten.
            let is_hash = text == CONTENT_SHA256 && (is_cut || body.is_some());
            let is_old = (is_cut || is_of_parts) && text == "content-md5";
            if is_hash || is_old || ((is_cut || is_of_parts) && (is_checksum || is_about_pieces)) {
                continue;
            }
            let value = value.to_str().map_err(|_| {
                CatalogError::new(
                    ErrorReason::BadRequest,
                    format!("the header `{text}` is no text"),
                )
            })?;
            own.entry(text.to_owned()).or_default().push(value.to_owned());
        }
        without_cutting(&mut forwarded);
        let uri = address(place, uri)?;
        let request = SignRequest::new(method.as_str(), uri, &place.region, own, body.clone());
        Ok(RelayedRequest { method: method.clone(), request, forwarded, body })
    }

    /// Returns the body that replaces the received one, if any.
    pub(crate) fn body(&self) -> Option<&str> {
        self.body.as_deref()
    }
}

impl BucketStorage {
    /// Parses a request whose path begins with a bucket. See [`RelayedRequest`].
    ///
    /// # Errors
    /// `BadRequest` if the request is invalid.
    pub(crate) fn relayed(
        &self,
        head: (&Method, &Uri, &HeaderMap),
        body: Option<String>,
        is_cut: bool,
    ) -> Result<RelayedRequest> {
        RelayedRequest::new(&self.location, head.0, head.1, head.2, body, is_cut)
    }

    /// Returns the bucket and the key that a request concerns.
    ///
    /// # Errors
    /// `BadRequest` if the request is invalid; `Forbidden` if it concerns no file.
    pub(crate) fn subject(&self, request: &RelayedRequest) -> Result<(String, String)> {
        let target = SignTarget::read(&request.request, &self.location)?;
        let (bucket, key) = target.subject()?;
        Ok((bucket.to_owned(), key))
    }

    /// Returns the region of the store, for clients that ask for it.
    pub(crate) fn region(&self) -> &str {
        &self.location.region
    }

    /// Forwards a request after checking that it needs no more than the permission. If the
    /// warehouse vends credentials, the request is signed with credentials for the same locations.
    ///
    /// # Errors
    /// Those of [`BucketStorage::sign`]; `ServiceUnavailable` if the store does not respond.
    pub(crate) async fn relay(
        &self,
        relayed: &RelayedRequest,
        scope: TableScope,
        permission: FilePermission,
        body: Outgoing,
    ) -> Result<ClientResponse> {
        let target = SignTarget::read(&relayed.request, &self.location)?;
        let examined = target.judge(&scope, permission)?;
        let vended;
        let credentials: &SigningCredentials = match self.settings.vended_credentials {
            false => &self.credentials,
            true => {
                vended = self.vend(scope, permission).await?;
                &vended.credentials
            }
        };
        let (method, place) = (relayed.method.as_str(), &self.location);
        let (url, headers) = signer::authorized(method, &examined, place, credentials);
        let mut sent = relayed.forwarded.clone();
        for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
            let name: HeaderName = name.parse().map_err(CatalogError::internal)?;
            sent.insert(name, HeaderValue::from_str(value).map_err(CatalogError::internal)?);
        }
        let request = ClientRequest {
            headers: sent,
            timeout: REQUEST_TIME_MAX,
            pause_max: ANSWER_PAUSE_MAX,
            response_bytes_max: ANSWER_BYTES_MAX,
            ..ClientRequest::new(relayed.method.clone(), url)
        };
        self.client.send_stream(request, body).await.map_err(failed)
    }
}

fn failed(error: ClientError) -> CatalogError {
    let message = "the object store does not respond";
    CatalogError::caused(ErrorReason::ServiceUnavailable, message, error)
}

/// Returns the URL at the store of a request that names its bucket in the path.
fn address(place: &S3Location, uri: &Uri) -> Result<String> {
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    let path = uri.path();
    match place.style {
        BucketStyle::Path => Ok(format!("{}{path}{query}", place.endpoint)),
        BucketStyle::Virtual => {
            let wrong =
                || CatalogError::new(ErrorReason::BadRequest, "the path is not that of an object");
            let rest = path.strip_prefix('/').ok_or_else(wrong)?;
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            let (scheme, host) = place.endpoint.split_once("://").ok_or_else(wrong)?;
            let is_name = |it: u8| it.is_ascii_alphanumeric() || b"-.".contains(&it);
            if bucket.is_empty() || !bucket.bytes().all(is_name) {
                return Err(wrong());
            }
            Ok(format!("{scheme}://{bucket}.{host}/{key}{query}"))
        }
    }
}

/// Removes `aws-chunked` from a body's content encodings.
fn without_cutting(headers: &mut HeaderMap) {
    let values = headers.get_all(header::CONTENT_ENCODING).iter();
    let encodings = values.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(','));
    let kept = encodings.map(str::trim).filter(|it| !it.is_empty() && *it != "aws-chunked");
    let kept = kept.collect::<Vec<_>>().join(",");
    headers.remove(header::CONTENT_ENCODING);
    if let Ok(value) = HeaderValue::from_str(&kept)
        && !kept.is_empty()
    {
        headers.insert(header::CONTENT_ENCODING, value);
    }
}

/// Rewrites the list of parts that an object is assembled from: their numbers and tags.
fn parts(text: &str) -> Result<String> {
    let wrong =
        |why: &str| CatalogError::new(ErrorReason::BadRequest, format!("the list of parts {why}"));
    let list = XmlElement::parse(text).filter(|it| it.name == "CompleteMultipartUpload");
    let list = list.ok_or_else(|| wrong("is none"))?;
    if list.elements.is_empty() || list.elements.len() > PARTS_MAX {
        return Err(wrong("has from 1 to 2000 parts"));
    }
    let mut written = "<CompleteMultipartUpload>".to_owned();
    for part in &list.elements {
        let number = part.text_of("PartNumber").and_then(|it| it.trim().parse::<u32>().ok());
        let tag = part.text_of("ETag").map(|it| it.trim().trim_matches('"'));
        let is_tag = |tag: &&str| {
            let is_good = |it: u8| it.is_ascii_alphanumeric() || b"-_+/=.".contains(&it);
            tag.len() <= 200 && tag.bytes().all(is_good)
        };
        let (Some(number), Some(tag)) = (number, tag.filter(is_tag)) else {
            return Err(wrong("has something else than numbers and tags"));
        };
        let part = format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{tag}\"</ETag></Part>");
        written.push_str(&part);
    }
    written.push_str("</CompleteMultipartUpload>");
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::super::scope::tests::scope;
    use super::*;

    fn ask(
        place: &str,
        (method, target): (&str, &str),
        headers: &[(&'static str, &'static str)],
        body: Option<&str>,
    ) -> Result<(SignRequest, HeaderMap)> {
        let place: S3Location = place.parse().unwrap();
        let map = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let is_cut = headers.iter().any(|(_, value)| value.starts_with("STREAMING"));
        let (method, uri) = (method.parse().unwrap(), target.parse().unwrap());
        let relayed =
            RelayedRequest::new(&place, &method, &uri, &map, body.map(str::to_owned), is_cut)?;
        let target = SignTarget::read(&relayed.request, &place)?;
        target.subject()?;
        let judged = target.judge(&scope(&["s3://bkt/w/t"]), FilePermission::Write)?;
        let credentials = SigningCredentials {
            access_key_id: "ID".to_owned(),
            secret_access_key: "S".to_owned(),
            session_token: None,
        };
        let (uri, signed) = signer::authorized(method.as_str(), &judged, &place, &credentials);
        let signed = signed.into_iter().map(|(name, value)| (name, vec![value])).collect();
        let head = (method.as_str(), uri);
        Ok((SignRequest::new(head.0, head.1, "", signed, relayed.body), relayed.forwarded))
    }

    const STORE: &str = "bkt/w?endpoint=http://store:9000&region=eu-1";

    #[test]
    fn what_is_sent_is_written_anew_without_what_the_client_said_of_itself() {
        let headers = [
            ("authorization", "AWS4-HMAC-SHA256 Credential=granted"),
            ("x-amz-date", "x"),
            ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"),
            ("x-amz-decoded-content-length", "5"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("x-amz-sdk-checksum-algorithm", "CRC32"),
            ("content-encoding", "aws-chunked,gzip"),
            ("content-type", "a/b"),
            ("cookie", "c"),
            ("x-amz-api-version", "2006-03-01"),
            ("host", "127.0.0.1:8181"),
        ];
        let (request, forwarded) = ask(STORE, ("PUT", "/bkt/w/t/x%20y"), &headers, None).unwrap();
        let debug_text = format!("{request:?}");
        assert!(debug_text.contains("http://store:9000/bkt/w/t/x%20y"), "{debug_text}");
        assert!(
            debug_text.contains("UNSIGNED-PAYLOAD") && debug_text.contains("Credential=ID/"),
            "{debug_text}"
        );
        for gone in ["granted", "STREAMING", "trailer", "decoded", "algorithm", "8181", "version"] {
            assert!(!debug_text.contains(gone), "{gone} in {debug_text}");
        }
        assert_eq!(forwarded.len(), 2);
        assert_eq!(forwarded["content-encoding"], "gzip");
        let own = "bkt/w?endpoint=http://store:9000&region=eu-1&style=virtual";
        let (request, _) = ask(own, ("GET", "/bkt/w/t/x"), &[], None).unwrap();
        assert!(format!("{request:?}").contains("http://bkt.store:9000/w/t/x"));
    }

    #[test]
    fn parts_are_put_together_without_checksums() {
        let body = "<CompleteMultipartUpload xmlns=\"x\"><Part><ETag>&quot;a-1&quot;</ETag>\
            <ChecksumCRC32>x</ChecksumCRC32><PartNumber>1</PartNumber></Part>\
            </CompleteMultipartUpload>";
        let head = ("POST", "/bkt/w/t/x?uploadId=u");
        let headers = [("x-amz-content-sha256", "00"), ("x-amz-checksum-type", "COMPOSITE")];
        for head in [head, ("POST", "/bkt/w/t/x?%75pload%49d=u"), ("POST", "/bkt/w/t/x?&uploadId")]
        {
            let (request, _) = ask(STORE, head, &headers, Some(body)).unwrap();
            let debug_text = format!("{request:?}");
            let written = "<PartNumber>1</PartNumber><ETag>\\\"a-1\\\"</ETag>";
            assert!(debug_text.contains(written), "{head:?} {debug_text}");
            assert!(
                !debug_text.contains("Checksum") && !debug_text.contains("COMPOSITE"),
                "{debug_text}"
            );
        }
        for body in ["", "<x/>", "<CompleteMultipartUpload/>"] {
            assert!(ask(STORE, head, &[], Some(body)).is_err(), "{body}");
        }
        let body = body.replace("a-1", "a&lt;b");
        assert!(ask(STORE, head, &[], Some(&body)).is_err());
    }

    #[test]
    fn what_is_not_the_tables_is_refused_however_it_is_said() {
        let (list, delete) = ("/bkt?list-type=2&prefix=", "/bkt?delete");
        for (method, target, header) in [
            ("GET", "/bkt/w/u/x", None),
            ("GET", "/bkt/w/t/../u/x", None),
            ("GET", "/bkt/w/t/%2e%2e/u/x", None),
            ("GET", "/bkt/w/t/..%2fu/x", None),
            ("GET", "/bkt/w/t//x", None),
            ("GET", "/bkt/w/t2/x", None),
            ("GET", "/other/w/t/x", None),
            ("GET", "/", None),
            ("GET", "/bkt", None),
            ("GET", "/bkt?location", None),
            ("GET", list, None),
            ("GET", "/bkt?list-type=2&prefix=w", None),
            ("GET", "/bkt?list-type=2&prefix=w/t", None),
            ("GET", "/bkt?prefix=w/t/", None),
            ("GET", "/bkt/w/t/x?versionId=1", None),
            ("GET", "/bkt/w/t/x?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=x", None),
            ("PUT", "/bkt/w/t/x?acl", None),
            ("PUT", "/bkt/w/t/x?tagging", None),
            ("POST", delete, None),
            ("PUT", "/bkt/w/t/x", Some(("x-amz-copy-source", "/bkt/w/u/x"))),
            ("PUT", "/bkt/w/t/x", Some(("x-amz-copy-source", "bkt/w/t/../u/x"))),
            ("PUT", "/bkt/w/t/x", Some(("x-amz-acl", "public-read"))),
            ("PUT", "/bkt/w/t/x", Some(("x-amz-grant-read", "id=1"))),
            ("PUT", "/bkt/w/t/x", Some(("x-amz-website-redirect-location", "/y"))),
        ] {
            let refused = ask(STORE, (method, target), header.as_slice(), None);
            assert_eq!(
                refused.unwrap_err().kind,
                ErrorReason::Forbidden,
                "{method} {target} {header:?}"
            );
        }
        let body =
            "<Delete><Object><Key>w/t/x</Key></Object><Object><Key>w/u/x</Key></Object></Delete>";
        assert_eq!(
            ask(STORE, ("POST", delete), &[], Some(body)).unwrap_err().kind,
            ErrorReason::Forbidden
        );
        ask(STORE, ("POST", delete), &[], Some(&body.replace("w/u", "w/t"))).unwrap();
        ask(STORE, ("GET", "/bkt?list-type=2&prefix=w/t/"), &[], None).unwrap();
        let source = [("x-amz-copy-source", "/bkt/w/t/y")];
        ask(STORE, ("PUT", "/bkt/w/t/x"), &source, None).unwrap();
    }
}
