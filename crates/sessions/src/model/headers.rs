//! Headers that the relay passes on; all others are dropped.
//!
//! An allow list rather than a deny list, because keys, cookies and headers trusted by proxies have
//! many names.

use hyper::HeaderMap;
use hyper::header::HeaderName;

/// Names of request headers, and prefixes of names, which end with `-`.
const OF_REQUESTS: &[&str] = &[
    "accept",
    "anthropic-",
    "content-type",
    "idempotency-key",
    "user-agent",
    "x-app",
    "x-claude-",
    "x-stainless-",
];

/// Names of answer headers, and prefixes of names, which end with `-`.
const OF_ANSWERS: &[&str] = &[
    "anthropic-",
    "cache-control",
    "content-type",
    "date",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
];

/// Copies the allowed request headers.
pub(super) fn copy_request(from: &HeaderMap, to: &mut HeaderMap) {
    copy(OF_REQUESTS, from, to);
}

/// Copies the allowed answer headers.
pub(super) fn copy_answer(from: &HeaderMap, to: &mut HeaderMap) {
    copy(OF_ANSWERS, from, to);
}

fn copy(list: &[&str], from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from {
        if passes(list, name) {
            to.append(name, value.clone());
        }
    }
}

fn passes(list: &[&str], name: &HeaderName) -> bool {
    let name = name.as_str();
    list.iter().any(|one| if one.ends_with('-') { name.starts_with(one) } else { name == *one })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_headers_pass() {
        let check = |list, name: &str, expected| {
            assert_eq!(passes(list, &name.parse().unwrap()), expected, "{name}");
        };
        for name in ["anthropic-beta", "anthropic-version", "content-type", "x-stainless-os"] {
            check(OF_REQUESTS, name, true);
        }
        for name in [
            "authorization",
            "proxy-authorization",
            "x-api-key",
            "cookie",
            "host",
            "connection",
            "transfer-encoding",
            "content-length",
            "x-forwarded-for",
            "accept-encoding",
            "anthropic",
            "x-application",
        ] {
            check(OF_REQUESTS, name, false);
        }
        for name in ["request-id", "retry-after", "anthropic-ratelimit-tokens-remaining"] {
            check(OF_ANSWERS, name, true);
        }
        for name in ["set-cookie", "x-api-key", "location", "server", "content-encoding"] {
            check(OF_ANSWERS, name, false);
        }
    }
}
