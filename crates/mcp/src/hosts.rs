//! Names under which the server may be addressed, and origins of pages that may do so. Pure.
//!
//! A page in a browser can be shown under a name that its owner lets lead to this machine (DNS
//! rebinding): then its requests come from here, with that name as `host` and as `origin`. An
//! address cannot be redirected, so that any is taken; a name has to be known, or be that of a
//! proxy that says it is one. All that is a second lock: no page has a token.
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports>
//! - <https://github.com/modelcontextprotocol/typescript-sdk/security/advisories/GHSA-w48q-cv73-mx4w>

use std::net::SocketAddr;

use axum::http::{HeaderMap, Uri, header};

/// Checks `host` and `origin` of a request against the names that are configured.
///
/// # Errors
/// When they are another's: a sentence that names the remedy.
pub fn check(
    headers: &HeaderMap,
    peer: Option<SocketAddr>,
    known: &[String],
) -> Result<(), String> {
    let host = match headers.contains_key(header::HOST) {
        true => one(headers, &header::HOST).ok_or("there are several hosts, or none of ASCII")?,
        false => "",
    };
    let origin = match headers.contains_key(header::ORIGIN) {
        true => Some(one(headers, &header::ORIGIN).unwrap_or("null")),
        false => None,
    };
    if let Some(origin) = origin
        && !authority(origin).is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    {
        return Err(format!("origin \"{origin}\" may not use this server from a browser"));
    }
    // Clients of HTTP/1.0 and some probes have none; they are no browsers.
    if host.is_empty() || node::http::is_local_name(host) || is_below_localhost(host) {
        return Ok(());
    }
    let name = name(host);
    let is_known = match known.is_empty() {
        false => known.iter().any(|known| known.eq_ignore_ascii_case(name)),
        // Nobody has a certificate of such a server for a name that leads elsewhere.
        true => match origin {
            Some(origin) => origin.starts_with("https://"),
            None => {
                let from_here = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
                !from_here || node::http::is_forwarded(headers)
            }
        },
    };
    match is_known {
        true => Ok(()),
        false => Err(format!("host \"{name}\" is not one of this server; `mcp.hosts` names them")),
    }
}

/// The value of a header that is there once.
fn one<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn authority(origin: &str) -> Option<String> {
    Some(origin.parse::<Uri>().ok()?.authority()?.to_string())
}

/// A host without its port.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Names below `localhost` lead to this machine everywhere (RFC 6761 §6.3).
fn is_below_localhost(host: &str) -> bool {
    let name = name(host);
    name.len() > ".localhost".len()
        && !host.contains('@')
        && name
            .get(name.len() - ".localhost".len()..)
            .is_some_and(|end| end.eq_ignore_ascii_case(".localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(sent: &[(&str, &str)], peer: &str, known: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            let name: header::HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let known: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
        check(&headers, Some(peer.parse().unwrap()), &known).is_ok()
    }

    #[test]
    fn names_and_pages_of_others_are_refused() {
        let (here, away) = ("127.0.0.1:9", "192.0.2.7:9");
        let forwarded = ("x-forwarded-for", "192.0.2.9");
        for (sent, peer, known, expected) in [
            (&[("host", "127.0.0.1:4100")][..], here, &[][..], true),
            (&[("host", "[::1]:4100")], here, &[], true),
            (&[("host", "192.0.2.1:4100")], away, &[], true),
            (&[("host", "localhost")], here, &[], true),
            (&[("host", "cove.localhost:80")], here, &[], true),
            (&[("host", "localhost.evil.example")], here, &[], false),
            (&[], here, &[], true),
            // A program of this machine that uses a name which is not its own.
            (&[("host", "evil.example")], here, &[], false),
            (&[("host", "evil.example"), forwarded], here, &[], true),
            (&[("host", "cove.example")], away, &[], true),
            // Pages.
            (&[("host", "127.0.0.1:4100"), ("origin", "http://127.0.0.1:4100")], here, &[], true),
            (&[("host", "127.0.0.1:4100"), ("origin", "http://evil.example")], here, &[], false),
            (&[("host", "127.0.0.1:4100"), ("origin", "null")], here, &[], false),
            (&[("host", "evil.example"), ("origin", "http://evil.example")], here, &[], false),
            (&[("host", "evil.example"), ("origin", "http://evil.example")], away, &[], false),
            (
                &[("host", "evil.example"), ("origin", "http://evil.example"), forwarded],
                here,
                &[],
                false,
            ),
            (&[("host", "cove.example"), ("origin", "https://cove.example")], here, &[], true),
            // With names that are configured nothing else counts.
            (&[("host", "cove.example:443")], here, &["cove.example"], true),
            (&[("host", "COVE.example")], away, &["cove.example"], true),
            (&[("host", "evil.example"), forwarded], here, &["cove.example"], false),
            (&[("host", "evil.example")], away, &["cove.example"], false),
            (&[("host", "127.0.0.1")], away, &["cove.example"], true),
            (&[("host", "user@localhost")], here, &[], false),
            (&[("host", "localhost"), ("host", "evil.example")], here, &[], false),
        ] {
            assert_eq!(is_allowed(sent, peer, known), expected, "{sent:?} {peer} {known:?}");
        }
    }
}
