//! Headers on their way: what belongs to one connection stays, what is added replaces.

use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    IF_RANGE, RANGE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// Says why there is no answer from outside.
pub const REFUSED: HeaderName = HeaderName::from_static("x-cove-refused");

/// What belongs to one connection (RFC 9110 §7.6.1), and what clients say to proxies.
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

/// Whether a rule may set a header of this name.
#[must_use]
pub(super) fn may_be_set(name: &HeaderName) -> bool {
    let own = [HOST, CONTENT_LENGTH, REFUSED];
    !own.contains(name) && !OF_ONE_CONNECTION.contains(name)
}

/// Removes what is for the connection that a message came by.
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

/// A header that is put into requests.
#[derive(Clone, Debug)]
pub(super) struct Added {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
}

/// Makes the headers of a request those that go outside. The length of its body is added anew from
/// the body itself.
pub(super) fn of_request(headers: &mut HeaderMap, added: &[Added], has_secret: bool) {
    strip(headers);
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    for one in added {
        // Behind gateways of the old kind `x_key` and `x-key` are one variable.
        let alike: Vec<HeaderName> = headers
            .keys()
            .filter(|name| name.as_str().replace('_', "-") == one.name.as_str().replace('_', "-"))
            .cloned()
            .collect();
        for name in alike {
            headers.remove(name);
        }
        headers.insert(one.name.clone(), one.value.clone());
    }
    if has_secret {
        // What is compressed cannot be searched for the secret, nor what comes in parts of which
        // none has all of it.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.remove(RANGE);
        headers.remove(IF_RANGE);
    }
}

/// Makes the headers of an answer those that go inside: without those that hold a secret.
pub(super) fn of_answer(headers: &mut HeaderMap, secrets: &[Box<[u8]>]) {
    // Of two lengths the one of the chunks holds.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip(headers);
    headers.remove(REFUSED);
    let holds = |bytes: &[u8]| secrets.iter().any(|secret| contains(bytes, secret));
    let bad: Vec<HeaderName> = headers
        .iter()
        .filter(|(name, value)| holds(value.as_bytes()) || holds(name.as_str().as_bytes()))
        .map(|(name, _)| name.clone())
        .collect();
    for name in bad {
        headers.remove(name);
    }
}

/// Whether an answer says more than one thing of its length. Of one without a body nobody has
/// looked at that.
pub(super) fn differs_in_length(headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let first = lengths.next();
    lengths.any(|length| Some(length) != first)
}

/// Whether `part` stands somewhere in `bytes`.
pub(super) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}

/// Bytes from which a word is searched for by itself, and from which the beginning of one is told.
pub(super) const WORD_BYTES_MIN: usize = 8;

/// What must not come back of a secret: its words that are long enough to be no accident, or all
/// of it. `Bearer KEY` is not returned as `KEY` either.
#[must_use]
pub(super) fn words_of(secret: &str) -> Vec<Box<[u8]>> {
    let long = secret.split_whitespace().filter(|word| word.len() >= WORD_BYTES_MIN);
    let words: Vec<Box<[u8]>> = long.map(|word| word.as_bytes().into()).collect();
    if words.is_empty() { vec![secret.as_bytes().into()] } else { words }
}

#[cfg(test)]
mod tests {
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
        of_request(&mut without, &[], false);
        assert_eq!(without, headers(&[("range", "bytes=0-9")]));
        let name = HeaderName::from_static("x-key");
        let added = [Added { name, value: HeaderValue::from_static("secret") }];
        of_request(&mut given, &added, true);
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
        of_answer(&mut given, &words_of("Bearer planted-canary"));
        assert_eq!(given, headers(&[("location", "/elsewhere")]));
        assert_eq!(words_of("short"), [Box::from(b"short".as_slice())]);
    }
}
