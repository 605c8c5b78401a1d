//! Headers of forwarded messages: hop-by-hop ones are removed, added ones replace others.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1>

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderMap,
    HeaderName, HeaderValue, IF_RANGE, RANGE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use node::gateway::GrantHolder;

use super::echo::SecretScanner;

/// Header with the reason why there is no response from outside.
pub const REFUSED: HeaderName = HeaderName::from_static("x-cove-refused");

/// Id of the session whose sandbox has sent a request.
pub(super) const SESSION: HeaderName = HeaderName::from_static("cove-session");

/// Epoch of the session's owner, which grows with each takeover.
pub(super) const EPOCH: HeaderName = HeaderName::from_static("cove-epoch");

/// Headers that belong to one connection (RFC 9110 §7.6.1), and client headers for proxies.
const OF_ONE_CONNECTION: [HeaderName; 11] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-authentication-info"),
];

/// Headers by which servers, frameworks and their proxies assume another host, or another client,
/// than the connection's (RFC 7239, its predecessors, and those of content delivery networks and
/// clouds). Rules always compare the host.
const HOST_OVERRIDES: &[&str] = &[
    "cf-connecting-ip",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-envoy-original-host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-client-ip",
    "x-host",
    "x-http-host-override",
    "x-original-forwarded-for",
    "x-original-host",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-scheme",
    "true-client-ip",
];

/// Headers that override the method: Google's and Microsoft's interfaces, Rails, Express, Symfony.
const METHOD_OVERRIDES: &[&str] = &[
    "x-forwarded-method",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-method",
];

/// Headers that override the path: IIS' URL Rewrite, Azure, Zend, Symfony, Envoy, Traefik; and
/// WebDAV's second path (RFC 4918 §10.3).
const PATH_OVERRIDES: &[&str] = &[
    "destination",
    "x-envoy-original-path",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-uri",
    "x-ms-original-url",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-replaced-path",
    "x-request-uri",
    "x-rewrite-url",
    "x-waws-unencoded-url",
];

/// Query fields that override the method, in lower case.
const METHOD_FIELDS: &[&str] =
    &["_method", "$httpmethod", "x-http-method", "x-http-method-override", "x-method-override"];

/// Parts of a request that the rules compared before they let it pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InspectedParts {
    /// True if the sent path has to be the compared one.
    pub(super) path: bool,
    /// True if no part of the request may override the method.
    pub(super) method: bool,
}

/// Name of a header as the variable of a CGI-like gateway: `x_key` and `x-key` are one.
fn normalized(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

/// Removes headers that state another host, method or path than the rules have compared, and the
/// headers by which the proxy identifies the session.
fn strip_overrides(headers: &mut HeaderMap, inspected: InspectedParts) {
    let is_override = |name: &HeaderName| {
        let name = normalized(name);
        let listed = |list: &[&str]| list.contains(&&*name);
        listed(HOST_OVERRIDES)
            || listed(&[SESSION.as_str(), EPOCH.as_str()])
            || (inspected.method && listed(METHOD_OVERRIDES))
            || (inspected.path && listed(PATH_OVERRIDES))
    };
    let overrides: Vec<HeaderName> =
        headers.keys().filter(|name| is_override(name)).cloned().collect();
    for name in overrides {
        headers.remove(name);
    }
}

/// Returns the first field of a query by which frameworks override the request's method.
pub(super) fn method_field(query: &str) -> Option<&'static str> {
    query.split(['&', ';']).find_map(|pair| {
        let name = pair.split('=').next().unwrap_or_default().replace('+', " ");
        let name = percent_encoding::percent_decode_str(&name).decode_utf8_lossy().to_lowercase();
        // PHP treats `_method[]` and ` _method` as the same field.
        let name = name.trim_start();
        let name = name.split('[').next().unwrap_or_default();
        METHOD_FIELDS.iter().copied().find(|field| *field == name)
    })
}

/// Returns whether a rule may set a header of this name.
#[must_use]
pub(super) fn may_be_set(name: &HeaderName) -> bool {
    let own = [HOST, CONTENT_LENGTH, REFUSED, SESSION, EPOCH];
    !own.contains(name) && !OF_ONE_CONNECTION.contains(name)
}

/// Removes hop-by-hop headers.
fn strip(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed.iter().chain(&OF_ONE_CONNECTION) {
        headers.remove(name);
    }
}

/// A header that is added to requests.
#[derive(Clone, Debug)]
pub(super) struct AddedHeader {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
}

/// Session whose sandbox sends requests, in the form of headers.
#[derive(Clone, Debug)]
pub(super) struct SessionHeaders {
    id: HeaderValue,
    epoch: HeaderValue,
}

impl SessionHeaders {
    /// Returns the headers of a holder; `None` if it is no session.
    pub(super) fn of(holder: &GrantHolder) -> Option<SessionHeaders> {
        let epoch = HeaderValue::from(holder.epoch?);
        Some(SessionHeaders { id: HeaderValue::from_str(&holder.id).ok()?, epoch })
    }

    /// Adds the headers to a request, from which the program's own were removed.
    pub(super) fn add(&self, headers: &mut HeaderMap) {
        headers.insert(SESSION, self.id.clone());
        headers.insert(EPOCH, self.epoch.clone());
    }
}

/// Converts the headers of a request for the outgoing connection. The length of its body is set
/// from the body itself.
pub(super) fn of_request(
    headers: &mut HeaderMap,
    added: &[AddedHeader],
    inspected: InspectedParts,
    has_secret: bool,
) {
    strip(headers);
    strip_overrides(headers, inspected);
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    for one in added {
        let name = normalized(&one.name);
        let alike: Vec<HeaderName> =
            headers.keys().filter(|it| normalized(it) == name).cloned().collect();
        for name in alike {
            headers.remove(name);
        }
        headers.insert(one.name.clone(), one.value.clone());
    }
    if has_secret {
        // Compressed bodies cannot be searched for the secret, nor partial responses of which none
        // contains it whole.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.remove(RANGE);
        headers.remove(IF_RANGE);
    }
}

/// Returns the reason to reject a response to a request with a secret because its body cannot be
/// searched.
pub(super) fn reason_not_searchable(
    status: StatusCode,
    headers: &HeaderMap,
) -> Option<&'static str> {
    let has_only = |name: HeaderName, plain: &str| {
        let tokens = headers.get_all(name);
        tokens.iter().all(|value| value.as_bytes().eq_ignore_ascii_case(plain.as_bytes()))
    };
    if !has_only(CONTENT_ENCODING, "identity") || !has_only(TRANSFER_ENCODING, "chunked") {
        return Some("the answer is compressed, so it cannot be searched for the secret");
    }
    let is_part = status == StatusCode::PARTIAL_CONTENT;
    is_part.then_some("the answer is a part that was not requested")
}

/// Converts the headers of a response for the sandbox: drops those that contain a part of a secret.
/// False if a part spans several headers, so that no single one can be dropped.
#[must_use]
pub(super) fn of_answer(headers: &mut HeaderMap, scanner: Option<&SecretScanner>) -> bool {
    // Of two lengths, that of the chunks applies.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip(headers);
    headers.remove(REFUSED);
    let Some(scanner) = scanner else { return true };
    let bad: Vec<HeaderName> = headers
        .iter()
        .filter(|(name, value)| {
            scanner.finds(value.as_bytes()) || scanner.finds(name.as_str().as_bytes())
        })
        .map(|(name, _)| name.clone())
        .collect();
    for name in bad {
        headers.remove(name);
    }
    let values: Vec<u8> = headers.values().flat_map(HeaderValue::as_bytes).copied().collect();
    let names: String = headers.keys().map(HeaderName::as_str).collect();
    !scanner.finds(&values) && !scanner.finds(names.as_bytes())
}

/// Returns whether a response has ambiguous lengths. hyper does not check this for a response
/// without a body.
pub(super) fn differs_in_length(headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let first = lengths.next();
    lengths.any(|length| Some(length) != first)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_is_added_replaces_and_what_is_of_one_connection_stays() {
        let mut given = headers(&[
            ("host", "evil"),
            ("connection", "close, X-Mine"),
            ("connection", "authorization"),
            ("x-mine", "1"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Basic x"),
            ("x-key", "own"),
            ("x-key", "own too"),
            ("x_key", "own as well"),
            ("te", "trailers"),
            ("accept", "*/*"),
            ("range", "bytes=0-9"),
            ("if-range", "\"a\""),
        ]);
        let mut without = headers(&[("range", "bytes=0-9")]);
        of_request(&mut without, &[], InspectedParts::default(), false);
        assert_eq!(without, headers(&[("range", "bytes=0-9")]));
        let name = HeaderName::from_static("x-key");
        let added = [AddedHeader { name, value: HeaderValue::from_static("secret") }];
        of_request(&mut given, &added, InspectedParts::default(), true);
        let expected =
            headers(&[("accept", "*/*"), ("x-key", "secret"), ("accept-encoding", "identity")]);
        assert_eq!(given, expected);
        assert!(
            !may_be_set(&HOST) && !may_be_set(&TRANSFER_ENCODING) && may_be_set(&ACCEPT_ENCODING)
        );
    }

    #[test]
    fn an_answer_loses_what_holds_a_secret() {
        let mut given = headers(&[
            ("x-echo", "Bearer planted-canary"),
            ("x-part", "is planted-canary!"),
            ("x-planted-canary", "1"),
            ("x-cove-refused", "forged"),
            ("transfer-encoding", "chunked"),
            ("content-length", "7"),
            ("location", "/elsewhere"),
        ]);
        let scanner = SecretScanner::new(["Bearer planted-canary"]).unwrap();
        assert!(of_answer(&mut given, Some(&scanner)));
        assert_eq!(given, headers(&[("location", "/elsewhere")]));
        let mut split = headers(&[("x-a", "planted-"), ("x-b", "canary")]);
        assert!(!of_answer(&mut split, Some(&scanner)));
        let mut plain = headers(&[("x-a", "planted-")]);
        assert!(of_answer(&mut plain, Some(&scanner)) && of_answer(&mut split, None));
    }

    #[test]
    fn headers_that_override_what_rules_compared_stay_behind() {
        let sent = [
            "x-http-method-override",
            "x_http_method",
            "x-original-url",
            "x-rewrite-url",
            "destination",
            "x-forwarded-host",
            "forwarded",
            "accept",
        ];
        for (inspected, kept) in [
            ((false, false), &sent[..5]),
            ((false, true), &sent[2..5]),
            ((true, false), &sent[..2]),
            ((true, true), &[]),
        ] {
            let (path, method) = inspected;
            let mut given = headers(&sent.map(|name| (name, "/admin")));
            of_request(&mut given, &[], InspectedParts { path, method }, false);
            let names: BTreeSet<&str> = given.keys().map(HeaderName::as_str).collect();
            let kept: BTreeSet<&str> = kept.iter().copied().chain(["accept"]).collect();
            assert_eq!(names, kept, "{inspected:?}");
        }
        // The operator may set headers that a program may not.
        let name = HeaderName::from_static("x-http-method-override");
        let added = [AddedHeader { name, value: HeaderValue::from_static("GET") }];
        let mut given = headers(&[("x-http-method-override", "DELETE")]);
        let inspected = InspectedParts { path: true, method: true };
        of_request(&mut given, &added, inspected, false);
        assert_eq!(given, headers(&[("x-http-method-override", "GET")]));
    }

    #[test]
    fn fields_of_a_query_that_stand_for_a_method_are_found() {
        for (query, expected) in [
            ("a=1&_method=DELETE", Some("_method")),
            ("%5FMethod=delete", Some("_method")),
            ("_method[]=delete", Some("_method")),
            ("+_method=delete", Some("_method")),
            ("a;_method=put", Some("_method")),
            ("%24httpMethod=DELETE", Some("$httpmethod")),
            ("method=DELETE&a=_method", None),
            ("", None),
        ] {
            assert_eq!(method_field(query), expected, "{query}");
        }
    }

    #[test]
    fn answers_that_cannot_be_searched_are_refused() {
        for (status, list, is_searchable) in [
            (200, headers(&[]), true),
            (200, headers(&[("content-encoding", "identity")]), true),
            (200, headers(&[("transfer-encoding", "Chunked")]), true),
            (200, headers(&[("content-encoding", "gzip")]), false),
            (200, headers(&[("content-encoding", "identity"), ("content-encoding", "br")]), false),
            (200, headers(&[("transfer-encoding", "gzip, chunked")]), false),
            (206, headers(&[]), false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let reason = reason_not_searchable(status, &list);
            assert_eq!(reason.is_none(), is_searchable, "{status} {list:?}");
        }
    }
}
