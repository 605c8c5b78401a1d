//! Access to routes: where a request carries its token, and which routes need none.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use api::ErrorCode;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::connection::ConnectionPeer;
use super::error::HttpError;
use super::stream::is_websocket;
use crate::auth::{self, RevocationSignal, TokenPrincipal, TokenRegistry, TokenScope};

/// Judge0's header for a token.
const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// E2B's header for a token.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Prefix of a token among the protocols that a WebSocket offers: all that a script in a browser
/// can add to its request.
const PROTOCOL_PREFIX: &str = "bearer.";

/// Access to a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaceAccess {
    /// Callers with a token.
    Token,
    /// Callers with a token; and, as this principal, programs of this machine without one. Pages in
    /// a browser of this machine are not among them, whatever their origin.
    Loopback(TokenPrincipal),
    /// Callers with a token, and all others as this principal. Cove is made to run programs of
    /// strangers; their senders are then unknown, so these are not limited individually.
    Open(TokenPrincipal),
    /// Callers that the face itself admits, with [`authenticate`] or otherwise: it has requests
    /// with secrets of another kind, and some whose headers are for other servers.
    Own,
}

/// Differences of a face from the native one, for the shell.
#[derive(Clone, Debug)]
pub struct CompatFace {
    /// Access.
    pub access: FaceAccess,
    /// Rendering of the errors of the shell and its extractors; `retry-after` and
    /// `www-authenticate` are added. None for Cove's own shape.
    pub render: Option<fn(&HttpError) -> Response>,
    /// Scope that a token needs; none if any token suffices.
    pub scope: Option<TokenScope>,
    /// Schemes of `Authorization` that carry a token.
    pub schemes: TokenSchemes,
    /// Parameters of `www-authenticate` after `Bearer` when a token is missing or wrong, if there
    /// are any.
    pub challenge: Option<Arc<str>>,
}

/// Schemes of `Authorization` that carry a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenSchemes {
    /// `Bearer` (RFC 6750).
    Bearer,
    /// `Bearer`, and `Basic` (RFC 7617) with the token as password: for clients that send no header
    /// but accept a URL with user and password. No challenge is ever sent, and requests that a
    /// browser makes for a page are refused, because a browser adds such credentials by itself.
    BearerOrBasic,
}

impl CompatFace {
    /// The native face: tokens, and Cove's own errors.
    pub const NATIVE: CompatFace = CompatFace {
        access: FaceAccess::Token,
        render: None,
        scope: None,
        schemes: TokenSchemes::Bearer,
        challenge: None,
    };

    /// Returns the native face for a path that requires a scope.
    #[must_use]
    pub const fn native_for(scope: TokenScope) -> CompatFace {
        CompatFace { scope: Some(scope), ..CompatFace::NATIVE }
    }
}

/// Caller of a request.
pub(super) struct AdmittedCaller {
    pub(super) principal: TokenPrincipal,
    /// None if no token was needed.
    pub(super) revocation: Option<RevocationSignal>,
    /// The protocol that carried the token, to be selected if the handler selects none: browsers
    /// close a WebSocket that accepts none of the offered protocols.
    pub(super) protocol: Option<HeaderValue>,
}

/// Identifies the caller of a request, and checks its rights.
pub(super) fn admit(
    face: &CompatFace,
    tokens: &TokenRegistry,
    headers: &HeaderMap,
    peer: Option<ConnectionPeer>,
) -> Result<AdmittedCaller, HttpError> {
    let admitted = identify(face, tokens, headers, peer)?;
    face.scope.map_or(Ok(()), |scope| admitted.principal.require(scope))?;
    Ok(admitted)
}

/// Returns the principal of a request's token, for faces that [authenticate by
/// themselves](FaceAccess::Own); they [bind](super::CredentialBinding::bind) the request to it.
///
/// # Errors
/// If the request has no token, a wrong one, several, or one without the scope.
pub fn authenticate(
    tokens: &TokenRegistry,
    headers: &HeaderMap,
    scope: TokenScope,
) -> Result<TokenPrincipal, HttpError> {
    let found = find(headers, TokenSchemes::Bearer)?;
    let (token, _) = found.ok_or_else(HttpError::unauthenticated)?;
    let principal = tokens.verify(&token).ok_or_else(HttpError::unknown_token)?;
    principal.require(scope)?;
    Ok(principal)
}

fn identify(
    face: &CompatFace,
    tokens: &TokenRegistry,
    headers: &HeaderMap,
    peer: Option<ConnectionPeer>,
) -> Result<AdmittedCaller, HttpError> {
    let found = find(headers, face.schemes)?;
    if let Some((token, protocol)) = found {
        // A wrong token is not treated as a missing one: its owner would not notice.
        let principal = tokens.verify(&token).ok_or_else(HttpError::unknown_token)?;
        let revocation = Some(tokens.revocation(&principal));
        return Ok(AdmittedCaller { principal, revocation, protocol });
    }
    let principal = match &face.access {
        FaceAccess::Token | FaceAccess::Own => None,
        FaceAccess::Loopback(principal) => is_local(headers, peer).then_some(principal),
        FaceAccess::Open(principal) => Some(principal),
    };
    let principal = principal.cloned().ok_or_else(HttpError::unauthenticated)?;
    refuse_form(headers)?;
    Ok(AdmittedCaller { principal, revocation: None, protocol: None })
}

/// Returns the token of a request, if it has one.
pub(super) fn token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    find(headers, TokenSchemes::BearerOrBasic).ok().flatten().map(|(token, _)| token)
}

/// A token, and the protocol that carried it.
type FoundToken<'a> = (Cow<'a, str>, Option<HeaderValue>);

/// Returns the only token of a request. Two would let a proxy check one and the server use the
/// other.
fn find(headers: &HeaderMap, schemes: TokenSchemes) -> Result<Option<FoundToken<'_>>, HttpError> {
    let mut found = None;
    let mut add = |token, protocol: Option<HeaderValue>| match found.replace((token, protocol)) {
        None => Ok(()),
        Some(_) => Err(HttpError::unauthenticated()),
    };
    if is_scheme(headers, b"bearer") {
        let token = auth::bearer(headers).ok_or_else(HttpError::unauthenticated)?;
        add(Cow::Borrowed(token), None)?;
    } else if schemes == TokenSchemes::BearerOrBasic && is_scheme(headers, b"basic") {
        let token = basic_password(headers).ok_or_else(HttpError::unauthenticated)?;
        add(Cow::Owned(token), None)?;
    }
    let of_others = [X_AUTH_TOKEN, X_API_KEY];
    for value in of_others.iter().flat_map(|name| headers.get_all(name)) {
        let token = value.to_str().map_err(|_| HttpError::unauthenticated())?;
        add(Cow::Borrowed(token), None)?;
    }
    if is_websocket(headers) {
        for value in headers.get_all(header::SEC_WEBSOCKET_PROTOCOL) {
            let offered = value.to_str().unwrap_or_default().split(',').map(str::trim);
            for protocol in offered {
                if let Some(token) = protocol.strip_prefix(PROTOCOL_PREFIX) {
                    add(Cow::Borrowed(token), HeaderValue::from_str(protocol).ok())?;
                }
            }
        }
    }
    Ok(found)
}

/// Returns whether the headers have an `Authorization` of this scheme.
fn is_scheme(headers: &HeaderMap, scheme: &[u8]) -> bool {
    headers.get_all(header::AUTHORIZATION).iter().any(|value| {
        let found = value.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        found.eq_ignore_ascii_case(scheme)
    })
}

/// Returns the password of the only `Authorization`, which is of the scheme `Basic`. None for a
/// request that a browser makes for a page.
fn basic_password(headers: &HeaderMap) -> Option<String> {
    if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
        return None;
    }
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (_, credentials) = values.next()?.to_str().ok()?.split_once(' ')?;
    if values.next().is_some() {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(credentials.trim()).ok()?).ok()?;
    decoded.split_once(':').map(|(_user, password)| password.to_owned())
}

/// Returns whether a program of this machine makes the request. A page in a browser of this machine
/// could make one, by its own script or under a name that resolves to this machine; `origin` or
/// `host` reveals it.
fn is_local(headers: &HeaderMap, peer: Option<ConnectionPeer>) -> bool {
    let from_here =
        peer.is_some_and(|ConnectionPeer(address)| address.ip().to_canonical().is_loopback());
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    from_here
        && hosts.next().is_none()
        && !headers.contains_key(header::ORIGIN)
        && !is_forwarded(headers)
        && is_local_name(host)
}

/// Headers that reverse proxies, load balancers and content delivery networks add to forwarded
/// requests: RFC 7239, RFC 9110 §7.6.3, RFC 8586, and those of the products.
const OF_PROXIES: [&str; 18] = [
    "forwarded",
    "via",
    "cdn-loop",
    "client-ip",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-proxyuser-ip",
    "x-scheme",
    "x-host",
    "cf-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
];
/// Prefixes of such headers.
const PREFIXES_OF_PROXIES: [&str; 3] = ["x-forwarded", "x-original-", "x-envoy-"];

/// Returns whether a proxy of this machine forwards the request of another client, or a browser
/// sends it for a page of another origin (W3C Fetch Metadata, `Sec-Fetch-Site`).
pub fn is_forwarded(headers: &HeaderMap) -> bool {
    let is_of_proxy = |name: &HeaderName| {
        // Gateways like CGI's treat `x_real_ip` and `x-real-ip` as the same.
        let name = name.as_str().replace('_', "-");
        let begins = |prefix: &&str| name.starts_with(*prefix);
        OF_PROXIES.contains(&&*name) || PREFIXES_OF_PROXIES.iter().any(begins)
    };
    let of_page = headers.get_all("sec-fetch-site").iter();
    headers.keys().any(is_of_proxy)
        || of_page.into_iter().any(|site| site != "same-origin" && site != "none")
}

/// Refuses requests that a page in a browser can send anywhere without a preflight: forms (WHATWG
/// Fetch, "CORS-safelisted request-header"). Only for requests without a token, which no page
/// knows.
fn refuse_form(headers: &HeaderMap) -> Result<(), HttpError> {
    let is_form = |value: &HeaderValue| {
        let text = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        text.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    };
    match headers.get_all(header::CONTENT_TYPE).iter().any(is_form) {
        true => {
            let message = "the content type is a form's; send `content-type: application/json`, \
                           or a token";
            Err(HttpError::new(ErrorCode::UnsupportedMediaType, message))
        }
        false => Ok(()),
    }
}

/// Returns whether `host:port` is an address, or `localhost`.
pub fn is_local_name(host: &str) -> bool {
    let Ok(uri) = Uri::builder().scheme("http").authority(host).path_and_query("/").build() else {
        return false;
    };
    let name = uri.host().unwrap_or_default();
    let inside = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    let is_local = name.eq_ignore_ascii_case("localhost") || inside.parse::<IpAddr>().is_ok();
    is_local && !host.contains('@')
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::*;
    use crate::auth::{NewToken, TokenScopes};
    use crate::testing::TempDir;

    #[test]
    fn a_token_is_for_what_its_scopes_say_wherever_it_stands() {
        let temp = TempDir::new();
        let tokens = TokenRegistry::open(temp.path()).unwrap();
        let scopes: TokenScopes = [TokenScope::Sessions].into_iter().collect();
        let new =
            NewToken { name: "sdk", operator: false, tenant: Some("team"), scopes, lifetime: None };
        let (_, secret) = tokens.create_as(&new).unwrap();
        let (token, e2b) = (secret.expose(), secret.expose_as_e2b());
        let nobody = || TokenPrincipal::without_token("compat_x", "x");
        let foreign = || CompatFace {
            access: FaceAccess::Open(nobody()),
            scope: Some(TokenScope::Executions),
            ..CompatFace::NATIVE
        };
        let unknown = Err(ErrorCode::Unauthenticated);
        let sessions = || CompatFace::native_for(TokenScope::Sessions);
        for (face, sent, expected) in [
            (sessions(), vec![("x-api-key", &*e2b)], Ok("team")),
            (sessions(), vec![("x-api-key", &token)], Ok("team")),
            (sessions(), vec![("x-auth-token", &e2b)], Ok("team")),
            (sessions(), vec![("authorization", &format!("Bearer {e2b}"))], Ok("team")),
            (sessions(), vec![("x-api-key", &e2b), ("x-auth-token", &e2b)], unknown),
            (sessions(), vec![("x-api-key", &e2b), ("x-api-key", &e2b)], unknown),
            (sessions(), vec![("x-api-key", "e2b_00")], unknown),
            (sessions(), vec![], unknown),
            (CompatFace::NATIVE, vec![("x-api-key", &e2b)], Ok("team")),
            (
                CompatFace::native_for(TokenScope::Agents),
                vec![("x-api-key", &e2b)],
                Err(ErrorCode::Forbidden),
            ),
            // Where no token is needed, a token without the scope is still refused.
            (foreign(), vec![("x-api-key", &e2b)], Err(ErrorCode::Forbidden)),
            (foreign(), vec![], Ok("compat_x")),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in &sent {
                headers.append(*name, value.parse().unwrap());
            }
            let found = admit(&face, &tokens, &headers, None);
            let found = found.map(|admitted| admitted.principal.tenant.to_string());
            let found = found.map_err(|error| error.detail().code);
            assert_eq!(found.as_deref().map_err(|code| *code), expected, "{face:?} {sent:?}");
        }
    }

    #[test]
    fn a_token_may_be_a_password_where_the_face_says_so_and_no_browser_sends_it() {
        let temp = TempDir::new();
        let tokens = TokenRegistry::open(temp.path()).unwrap();
        let new = NewToken {
            name: "rig",
            operator: false,
            tenant: Some("team"),
            scopes: [TokenScope::Executions].into_iter().collect(),
            lifetime: None,
        };
        let (_, secret) = tokens.create_as(&new).unwrap();
        let token = secret.expose();
        let bearer = format!("Bearer {token}");
        let basic = |text: &str| format!("Basic {}", BASE64.encode(text));
        let good = basic(&format!("cove:{token}"));
        let taken = CompatFace {
            schemes: TokenSchemes::BearerOrBasic,
            ..CompatFace::native_for(TokenScope::Executions)
        };
        let unknown = Err(ErrorCode::Unauthenticated);
        for (face, sent, expected) in [
            (&taken, vec![("authorization", &*good)], Ok("team")),
            (&taken, vec![("authorization", &*good.replace("Basic", "bAsIc"))], Ok("team")),
            (&taken, vec![("authorization", &*bearer)], Ok("team")),
            (&CompatFace::NATIVE, vec![("authorization", &*good)], unknown),
            (&taken, vec![("authorization", &*basic(&token))], unknown),
            (&taken, vec![("authorization", &*basic(&format!("{token}:")))], unknown),
            (&taken, vec![("authorization", &*basic("cove:cove_wrong"))], unknown),
            (&taken, vec![("authorization", "Basic ?")], unknown),
            (&taken, vec![("authorization", "Basic")], unknown),
            // Two would let a proxy check one and the server use the other.
            (&taken, vec![("authorization", &*good), ("authorization", &*bearer)], unknown),
            (&taken, vec![("authorization", &*good), ("authorization", &*good)], unknown),
            (&taken, vec![("authorization", &*good), ("x-api-key", &*token)], unknown),
            // A browser adds stored credentials to the requests of any page.
            (&taken, vec![("authorization", &*good), ("origin", "https://a.example")], unknown),
            (&taken, vec![("authorization", &*good), ("sec-fetch-site", "same-origin")], unknown),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in &sent {
                headers.append(*name, value.parse().unwrap());
            }
            let found = admit(face, &tokens, &headers, None);
            let found = found.map(|admitted| admitted.principal.tenant.to_string());
            let found = found.map_err(|error| error.detail().code);
            assert_eq!(found.as_deref().map_err(|code| *code), expected, "{sent:?}");
        }
    }

    #[test]
    fn a_face_may_ask_for_itself() {
        let temp = TempDir::new();
        let tokens = TokenRegistry::open(temp.path()).unwrap();
        let scopes: TokenScopes = [TokenScope::Sessions].into_iter().collect();
        let new =
            NewToken { name: "sdk", operator: false, tenant: Some("team"), scopes, lifetime: None };
        let (_, secret) = tokens.create_as(&new).unwrap();
        for (sent, scope, expected) in [
            (Some(secret.expose_as_e2b()), TokenScope::Sessions, Ok("team")),
            (Some(secret.expose_as_e2b()), TokenScope::Agents, Err(ErrorCode::Forbidden)),
            (Some("e2b_00".to_owned()), TokenScope::Sessions, Err(ErrorCode::Unauthenticated)),
            (None, TokenScope::Sessions, Err(ErrorCode::Unauthenticated)),
        ] {
            let headers = sent.iter().map(|key| (X_API_KEY, key.parse().unwrap())).collect();
            let found = authenticate(&tokens, &headers, scope);
            let found = found.map(|principal| principal.tenant.to_string());
            let found = found.map_err(|error| error.detail().code);
            assert_eq!(found.as_deref().map_err(|code| *code), expected, "{sent:?} {scope:?}");
        }
    }

    #[test]
    fn only_programs_of_this_machine_are_local() {
        for (peer, host, origin, local) in [
            ("127.0.0.1:5", "127.0.0.1:2000", None, true),
            ("127.3.2.1:5", "LOCALHOST:2000", None, true),
            ("[::1]:5", "[::1]:2000", None, true),
            ("[::ffff:127.0.0.1]:5", "localhost", None, true),
            // A container's own address, by which its neighbours and itself reach it.
            ("127.0.0.1:5", "10.0.0.1:2000", None, true),
            ("10.0.0.1:5", "127.0.0.1:2000", None, false),
            ("[::ffff:10.0.0.1]:5", "localhost", None, false),
            ("127.0.0.1:5", "evil.example:2000", None, false),
            ("127.0.0.1:5", "localhost.evil.example", None, false),
            ("127.0.0.1:5", "user@localhost", None, false),
            ("127.0.0.1:5", "", None, false),
            ("127.0.0.1:5", "a b", None, false),
            ("127.0.0.1:5", "localhost", Some("http://localhost"), false),
            ("127.0.0.1:5", "localhost", Some("null"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            headers.extend(origin.map(|origin| (header::ORIGIN, origin.parse().unwrap())));
            let found = is_local(&headers, Some(ConnectionPeer(peer.parse().unwrap())));
            assert_eq!(found, local, "{peer} {host} {origin:?}");
            assert!(!is_local(&headers, None));
        }
    }

    /// A reverse proxy on the same machine connects from loopback, and often with a local `host`.
    #[test]
    fn what_a_proxy_passes_on_is_not_local() {
        for (name, value, local) in [
            ("x-forwarded-for", "8.8.8.8", false),
            ("x-forwarded-proto", "https", false),
            ("forwarded", "for=8.8.8.8", false),
            ("x-real-ip", "8.8.8.8", false),
            ("via", "1.1 proxy", false),
            ("x_forwarded_for", "8.8.8.8", false),
            ("x-forwarded", "for=8.8.8.8", false),
            ("x-original-host", "judge.example", false),
            ("x-envoy-external-address", "8.8.8.8", false),
            ("cf-connecting-ip", "8.8.8.8", false),
            ("true-client-ip", "8.8.8.8", false),
            ("x-request-id", "1", true),
            ("sec-fetch-site", "cross-site", false),
            ("sec-fetch-site", "same-site", false),
            ("sec-fetch-site", "none", true),
            ("x-request-id", "1", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "localhost:2000".parse().unwrap());
            headers.insert(name, value.parse().unwrap());
            let peer = Some(ConnectionPeer("127.0.0.1:5".parse().unwrap()));
            assert_eq!(is_local(&headers, peer), local, "{name}: {value}");
        }
    }

    #[test]
    fn a_form_without_a_token_is_refused() {
        let temp = TempDir::new();
        let tokens = TokenRegistry::open(temp.path()).unwrap();
        let access = FaceAccess::Open(TokenPrincipal::without_token("compat_x", "x"));
        let face = CompatFace { access, ..CompatFace::NATIVE };
        for (kind, expected) in [
            ("application/x-www-form-urlencoded", Err(ErrorCode::UnsupportedMediaType)),
            (
                "Application/X-WWW-Form-URLEncoded; charset=utf-8",
                Err(ErrorCode::UnsupportedMediaType),
            ),
            ("application/json", Ok(())),
        ] {
            let headers = [(header::CONTENT_TYPE, kind.parse().unwrap())].into_iter().collect();
            let found = admit(&face, &tokens, &headers, None).map(|_| ());
            assert_eq!(found.map_err(|error| error.detail().code), expected, "{kind}");
        }
    }
}
