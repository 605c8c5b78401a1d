//! Names under which the server may be addressed, and origins of pages that may do so. Pure.
//!
//! A page in a browser can be loaded under a name that its owner resolves to this machine (DNS
//! rebinding): then its requests come from here, with that name as `host` and as `origin`. An
//! address cannot be redirected, so any is accepted; a name has to be configured, or be that of a
//! proxy that identifies itself as one. All that is a second line of defence: no page has a token.
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports>
//! - <https://github.com/modelcontextprotocol/typescript-sdk/security/advisories/GHSA-w48q-cv73-mx4w>

use std::net::SocketAddr;
use std::sync::Arc;

use api::ErrorCode;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};

use super::{ConnectionPeer, HttpError, is_forwarded, is_local_name};

/// Names under which browsers reach a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HostNames {
    known: Arc<[String]>,
    /// Settings with the names, for refusals.
    settings: &'static str,
}

impl HostNames {
    /// Uses the names of `settings`; without names, all are accepted except those that indicate an
    /// attack.
    pub fn new(known: impl IntoIterator<Item = String>, settings: &'static str) -> HostNames {
        HostNames { known: known.into_iter().collect(), settings }
    }

    /// Checks `host` and `origin` of a request.
    ///
    /// # Errors
    /// If they belong to another server: a sentence with the remedy.
    pub fn check(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Result<(), String> {
        check_hosts(headers, peer, &self.known, self.settings)
    }

    /// Wraps the routes so that requests under other names get 403.
    pub fn guard(self, routes: Router) -> Router {
        routes.layer(middleware::from_fn_with_state(self, refuse_others))
    }
}

async fn refuse_others(State(names): State<HostNames>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectionPeer>();
    let peer = peer.map(|ConnectionPeer(address)| *address);
    match names.check(request.headers(), peer) {
        Ok(()) => next.run(request).await,
        Err(message) => HttpError::new(ErrorCode::Forbidden, message).into_response(),
    }
}

/// Checks `host` and `origin` of a request against the names that `settings` configure.
///
/// # Errors
/// If they belong to another server: a sentence with the remedy.
pub fn check_hosts(
    headers: &HeaderMap,
    peer: Option<SocketAddr>,
    known: &[String],
    settings: &str,
) -> Result<(), String> {
    let host = match headers.contains_key(header::HOST) {
        true => one(headers, &header::HOST).ok_or("there are several hosts, or none of ASCII")?,
        false => "",
    };
    let origin = match headers.contains_key(header::ORIGIN) {
        true => Some(one(headers, &header::ORIGIN).unwrap_or("null")),
        false => None,
    };
    let is_named = |name: &str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    if let Some(origin) = origin
        && !authority(origin).is_some_and(|authority| {
            // A configured name is not an attacker's, whatever host a proxy sends instead of it.
            // Another port may belong to another server.
            authority.eq_ignore_ascii_case(host) || is_named(&authority)
        })
    {
        let message = "may not use this server from a browser; a proxy has to pass `host` on";
        return Err(format!("origin \"{origin}\" {message}, or {settings} to name its host"));
    }
    // Clients of HTTP/1.0 and some probes send none; they are not browsers.
    if host.is_empty() || is_local_name(host) || is_below_localhost(host) {
        return Ok(());
    }
    let name = name(host);
    let is_known = match known.is_empty() {
        false => is_named(name),
        // An attacker has no certificate of such a server for a name that resolves elsewhere.
        true => match origin {
            Some(origin) => origin.starts_with("https://"),
            None => {
                let from_here = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
                !from_here || is_forwarded(headers)
            }
        },
    };
    match is_known {
        true => Ok(()),
        false => Err(format!("host \"{name}\" is not one of this server; {settings} names them")),
    }
}

/// Returns the value of a header that occurs once.
fn one<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn authority(origin: &str) -> Option<String> {
    Some(origin.parse::<Uri>().ok()?.authority()?.to_string())
}

/// Returns a host without its port.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns whether a host is below `localhost`; such names are local everywhere (RFC 6761 §6.3).
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
        check_hosts(&headers, Some(peer.parse().unwrap()), &known, "`mcp.hosts`").is_ok()
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
            // A program of this machine that uses a foreign name.
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
            // With configured names no other rule applies.
            (&[("host", "cove.example:443")], here, &["cove.example"], true),
            (&[("host", "COVE.example")], away, &["cove.example"], true),
            (&[("host", "evil.example"), forwarded], here, &["cove.example"], false),
            (&[("host", "evil.example")], away, &["cove.example"], false),
            (&[("host", "127.0.0.1")], away, &["cove.example"], true),
            // A proxy that forwards another host than the requested one.
            (
                &[("host", "127.0.0.1:4100"), ("origin", "https://cove.example")],
                here,
                &["cove.example"],
                true,
            ),
            (
                &[("host", "127.0.0.1:4100"), ("origin", "https://cove.example:8443")],
                here,
                &["cove.example"],
                false,
            ),
            (
                &[("host", "127.0.0.1:4100"), ("origin", "https://evil.example")],
                here,
                &["cove.example"],
                false,
            ),
            (
                &[("host", "evil.example"), ("origin", "https://cove.example")],
                here,
                &["cove.example"],
                false,
            ),
            (&[("host", "user@localhost")], here, &[], false),
            (&[("host", "localhost"), ("host", "evil.example")], here, &[], false),
        ] {
            assert_eq!(is_allowed(sent, peer, known), expected, "{sent:?} {peer} {known:?}");
        }
    }
}
