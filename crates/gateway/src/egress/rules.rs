//! The rules of an `http` grant: which requests may go outside. Pure. The first matching rule
//! decides.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr as _;

use api::{HeaderSource, HttpEffect, HttpRule};
use hyper::header::{HeaderName, HeaderValue};
use node::client::{AddressGuard, AddressRefusal, AllowedNetwork};

use super::echo::SecretScanner;
use super::headers::{AddedHeader, InspectedParts, may_be_set};
use super::host::{HostPattern, RequestHost};
use super::path::{PathPattern, RequestPath};
use crate::config::NamedSecrets;
use crate::doors::FieldError;

/// Most rules of one grant.
pub const RULES_MAX: usize = 100;

/// Most entries of each list of a rule.
pub const ENTRIES_MAX: usize = 100;

/// Most bytes of one entry.
pub const ENTRY_BYTES_MAX: usize = 4096;

/// Ports of a rule that names none.
pub(crate) const PORTS: [u16; 2] = [80, 443];

/// Port of unencrypted HTTP.
const HTTP: u16 = 80;

/// The method of a tunnel.
const CONNECT: &str = "CONNECT";

/// Methods whose response repeats the request, including added headers.
const ECHOES: [&str; 2] = ["TRACE", "TRACK"];

/// The parsed rules of one grant.
#[derive(Clone, Debug)]
pub struct GrantRules(Vec<EgressRule>);

/// A rule.
#[derive(Clone, Debug)]
pub(super) struct EgressRule {
    denies: bool,
    hosts: Vec<HostPattern>,
    ports: Vec<u16>,
    methods: Vec<String>,
    paths: Vec<PathPattern>,
    pub(super) added: Vec<AddedHeader>,
    /// Finds secrets in responses; `None` without a secret.
    pub(super) scanner: Option<SecretScanner>,
    pub(super) is_tls: bool,
    /// True if requests carry the session headers.
    pub(super) has_session_headers: bool,
    /// True if the rule names its ports explicitly.
    pub(super) names_ports: bool,
    /// Addresses that its hosts may have.
    pub(super) guard: AddressGuard,
    /// Networks that its hosts must not be in.
    pub(super) networks: DeniedNetworks,
}

/// Networks that the hosts of a rule must not be in; they may include public ones.
#[derive(Clone, Debug, Default)]
pub(super) struct DeniedNetworks {
    denied: Vec<AllowedNetwork>,
    excepted: Vec<AllowedNetwork>,
}

impl DeniedNetworks {
    /// Checks all addresses of a name, as [`AddressGuard::check`] does.
    ///
    /// # Errors
    /// If one of the addresses is not allowed.
    pub(super) fn check(&self, host: &str, addresses: &[SocketAddr]) -> Result<(), AddressRefusal> {
        for address in addresses {
            let address = address.ip().to_canonical();
            let has =
                |list: &[AllowedNetwork]| list.iter().any(|network| network.has_address(address));
            if has(&self.denied) && !has(&self.excepted) {
                return Err(AddressRefusal::Address { host: host.to_owned(), class: DENIED });
            }
        }
        Ok(())
    }
}

/// Reason for an address that a rule denies.
const DENIED: &str = "of a network that the rule denies";

/// Request to check against the rules.
#[derive(Clone, Copy, Debug)]
pub struct RuleRequest<'a> {
    /// Method, as it was sent; `CONNECT` for a tunnel.
    pub method: &'a str,
    /// Requested host.
    pub host: &'a RequestHost,
    /// Requested port.
    pub port: u16,
    /// `None` for a tunnel.
    pub path: Option<&'a RequestPath>,
}

/// Verdict on a request.
#[derive(Clone, Debug)]
pub(super) enum RuleVerdict<'a> {
    /// Sent.
    Allow {
        rule: &'a EgressRule,
        /// Parts that this or an earlier rule compared.
        inspected: InspectedParts,
    },
    /// Rejected, with the reason for the header.
    Refuse(String),
}

impl GrantRules {
    /// Parses rules.
    ///
    /// # Errors
    /// The invalid field: `rules[1].hosts[0]`.
    pub fn new(rules: &[HttpRule], secrets: &NamedSecrets) -> Result<GrantRules, FieldError> {
        if rules.is_empty() || rules.len() > RULES_MAX {
            let message = format!("must have 1 to {RULES_MAX} rules");
            return Err(FieldError::new("rules", message));
        }
        let read = |(index, rule)| {
            EgressRule::new(rule, secrets).map_err(|error| error.below(&format!("rules[{index}]")))
        };
        Ok(GrantRules(rules.iter().enumerate().map(read).collect::<Result<_, _>>()?))
    }

    /// Returns the verdict of the first matching rule.
    pub(super) fn decide(&self, asked: &RuleRequest<'_>) -> RuleVerdict<'_> {
        // A server might take `get` for `GET`, which a rule could deny.
        if !asked.method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
            return RuleVerdict::Refuse("method: must be in upper case".to_owned());
        }
        if ECHOES.contains(&asked.method) {
            return RuleVerdict::Refuse(format!("method: {} is not sent", asked.method));
        }
        let mut inspected = InspectedParts::default();
        for (index, rule) in self.0.iter().enumerate() {
            match rule.fits(asked, &mut inspected) {
                RuleFit::No => {}
                RuleFit::Odd => {
                    let why = "servers may read it in different ways";
                    return RuleVerdict::Refuse(format!(
                        "path: {why}, and rules[{index}] looks at it"
                    ));
                }
                RuleFit::Yes if rule.denies => {
                    return RuleVerdict::Refuse(format!("rules[{index}]"));
                }
                RuleFit::Yes => return RuleVerdict::Allow { rule, inspected },
            }
        }
        RuleVerdict::Refuse("no rule fits".to_owned())
    }
}

enum RuleFit {
    No,
    Yes,
    /// The path cannot be compared.
    Odd,
}

impl EgressRule {
    fn new(rule: &HttpRule, secrets: &NamedSecrets) -> Result<EgressRule, FieldError> {
        if rule.hosts.is_empty() {
            return Err(FieldError::new("hosts", "must name at least one host; `*` is for all"));
        }
        let hosts = entries("hosts", &rule.hosts, |text| {
            HostPattern::parse(text).ok_or("must be a name, `*.` before a name, `*` or an address")
        })?;
        let methods = entries("methods", &rule.methods, |text| {
            let good =
                !text.is_empty() && text.bytes().all(|it| it.is_ascii_uppercase() || it == b'-');
            if good { Ok(text.to_owned()) } else { Err("must be in upper case") }
        })?;
        let paths = entries("paths", &rule.paths, |text| {
            PathPattern::parse(text).ok_or("must be `/path`, or `/path/*` for all that begin so")
        })?;
        let internal = entries("internal", &rule.internal, |text| {
            network(text).ok_or("must be a network such as `10.1.0.0/16`")
        })?;
        if rule.ports.len() > ENTRIES_MAX || rule.ports.contains(&0) {
            return Err(FieldError::new("ports", "must be at most 100 ports, from 1 to 65535"));
        }
        let denies = rule.effect == HttpEffect::Deny;
        let changes = [
            ("tls", rule.tls),
            ("headers", !rule.headers.is_empty()),
            ("session_headers", rule.session_headers),
        ];
        if let Some((field, _)) = changes.into_iter().find(|(_, is_set)| denies && *is_set) {
            return Err(FieldError::new(field, "a rule that denies changes nothing"));
        }
        let networks = denied_networks(rule)?;
        let (added, scanner) = headers(rule, secrets)?;
        let names_ports = !rule.ports.is_empty();
        Ok(EgressRule {
            denies,
            hosts,
            ports: if names_ports { rule.ports.clone() } else { PORTS.to_vec() },
            methods,
            paths,
            added,
            scanner,
            is_tls: rule.tls,
            has_session_headers: rule.session_headers,
            names_ports,
            guard: AddressGuard::Public(internal),
            networks,
        })
    }

    fn fits(&self, asked: &RuleRequest<'_>, inspected: &mut InspectedParts) -> RuleFit {
        let is_host = self.hosts.iter().any(|pattern| pattern.fits(asked.host));
        // A deny rule covers all ports unless it names some.
        let any_port = self.denies && !self.names_ports;
        if !is_host || !(any_port || self.ports.contains(&asked.port)) {
            return RuleFit::No;
        }
        let Some(path) = asked.path else { return self.fits_tunnel(asked.port) };
        if !self.methods.is_empty() {
            inspected.method = true;
            if !self.methods.iter().any(|it| it == asked.method) {
                return RuleFit::No;
            }
        }
        if self.paths.is_empty() {
            return RuleFit::Yes;
        }
        inspected.path = true;
        match path {
            RequestPath::Odd => RuleFit::Odd,
            RequestPath::Plain { text, .. } if self.paths.iter().any(|it| it.fits(text)) => {
                RuleFit::Yes
            }
            RequestPath::Plain { .. } => RuleFit::No,
        }
    }

    /// Matches a tunnel. Its content is invisible: it may contain a denied request, and need not be
    /// an allowed one. At port 80 nothing in it identifies the host, and plain requests need no
    /// tunnel; so both the method and the port must be named explicitly.
    fn fits_tunnel(&self, port: u16) -> RuleFit {
        let is_named = self.methods.iter().any(|method| method == CONNECT);
        let sees_nothing =
            self.paths.is_empty() && self.added.is_empty() && !self.has_session_headers;
        let is_meant = match port {
            HTTP => is_named && self.names_ports,
            _ => is_named || self.methods.is_empty(),
        };
        let fits = self.denies || (sees_nothing && is_meant);
        if fits { RuleFit::Yes } else { RuleFit::No }
    }
}

fn denied_networks(rule: &HttpRule) -> Result<DeniedNetworks, FieldError> {
    let read = |field: &str, list: &[String]| {
        if rule.effect == HttpEffect::Deny && !list.is_empty() {
            return Err(FieldError::new(field, "is for rules that allow"));
        }
        entries(field, list, |text| network(text).ok_or("must be a network such as `8.8.8.0/24`"))
    };
    Ok(DeniedNetworks {
        denied: read("deny_networks", &rule.deny_networks)?,
        excepted: read("allow_networks", &rule.allow_networks)?,
    })
}

/// Parses the entries of a list, and reports which of them is invalid.
fn entries<T>(
    field: &str,
    list: &[String],
    read: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Vec<T>, FieldError> {
    if list.len() > ENTRIES_MAX {
        return Err(FieldError::new(field, format!("must have at most {ENTRIES_MAX} entries")));
    }
    let one = |(index, text): (usize, &String)| {
        let known = if text.len() > ENTRY_BYTES_MAX { Err("is too long") } else { read(text) };
        known.map_err(|message| FieldError::new(format!("{field}[{index}]"), message))
    };
    list.iter().enumerate().map(one).collect()
}

/// Parses a network, not a name: any address of a name would be trusted.
fn network(text: &str) -> Option<AllowedNetwork> {
    let address = text.split('/').next().unwrap_or_default();
    address.parse::<IpAddr>().ok()?;
    AllowedNetwork::from_str(text).ok()
}

type Headers = (Vec<AddedHeader>, Option<SecretScanner>);

fn headers(rule: &HttpRule, secrets: &NamedSecrets) -> Result<Headers, FieldError> {
    let (mut added, mut values) = (Vec::new(), Vec::new());
    if rule.headers.len() > ENTRIES_MAX {
        return Err(FieldError::new("headers", format!("must be at most {ENTRIES_MAX}")));
    }
    for (name, source) in &rule.headers {
        let wrong = |message: &str| FieldError::new(format!("headers.{name}"), message);
        let header = name.parse::<HeaderName>().map_err(|_| wrong("is not a header name"))?;
        if !may_be_set(&header) {
            return Err(wrong("is the proxy's own business"));
        }
        let text = match source {
            HeaderSource::Text(text) => text,
            HeaderSource::Secret(secret) => {
                let found = secrets.0.get(secret).filter(|text| !text.is_empty());
                found.ok_or_else(|| wrong("no secret has this name"))?
            }
        };
        let mut value = HeaderValue::from_str(text)
            .ok()
            .filter(|_| text.len() <= ENTRY_BYTES_MAX)
            .ok_or_else(|| wrong("cannot be the value of a header"))?;
        if matches!(source, HeaderSource::Secret(_)) {
            value.set_sensitive(true);
            values.push(text.as_str());
        }
        added.push(AddedHeader { name: header, value });
    }
    Ok((added, SecretScanner::new(values)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(text: &str) -> HttpRule {
        toml::from_str(text).unwrap()
    }

    fn secrets() -> NamedSecrets {
        NamedSecrets([("key".to_owned(), "Bearer planted-canary".to_owned())].into())
    }

    fn rules(list: &[&str]) -> GrantRules {
        let list: Vec<HttpRule> = list.iter().map(|text| rule(text)).collect();
        GrantRules::new(&list, &secrets()).unwrap()
    }

    /// Evaluates `METHOD http://host:port/path` or `CONNECT host:port`; returns the index of the
    /// allowing rule, or the reason.
    fn decide(rules: &GrantRules, text: &str) -> Result<usize, String> {
        let (method, url) = text.split_once(' ').unwrap();
        let url = url.strip_prefix("http://").unwrap_or(url);
        let (authority, path) =
            url.find('/').map_or((url, None), |at| (&url[..at], Some(&url[at..])));
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
        let host = RequestHost::parse(host).unwrap();
        let path = (method != CONNECT).then(|| RequestPath::read(path.unwrap_or("/")));
        let port = port.parse().unwrap();
        match rules.decide(&RuleRequest { method, host: &host, port, path: path.as_ref() }) {
            RuleVerdict::Allow { rule, .. } => {
                Ok(rules.0.iter().position(|one| std::ptr::eq(one, rule)).unwrap())
            }
            RuleVerdict::Refuse(why) => Err(why),
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = rules(&[
            "hosts = ['api.example.com']\npaths = ['/admin/*']\neffect = 'deny'",
            "hosts = ['api.example.com']\nmethods = ['GET', 'POST']\npaths = ['/v1/*', '/health']",
            "hosts = ['*.files.example']",
            "hosts = ['ssh.example']\nports = [22]\nmethods = ['CONNECT']",
            "hosts = ['key.example']\ntls = true\n[headers.authorization]\nsecret = 'key'",
            "hosts = ['10.0.0.1']\nports = [8080]",
            "hosts = ['open.example']\nports = [80]\nmethods = ['CONNECT']",
            "hosts = ['half.example']\nports = [80]",
            "hosts = ['half.example']\nmethods = ['CONNECT']",
        ]);
        for (asked, expected) in [
            ("GET http://api.example.com/v1/items", Ok(1)),
            ("GET http://API.example.com./v1/%69tems", Ok(1)),
            ("GET http://api.example.com/v1/../admin/x", Err("rules[0]")),
            ("GET http://api.example.com/%61dmin/x", Err("rules[0]")),
            ("GET http://api.example.com/v2", Err("no rule fits")),
            ("GET http://api.example.com/v1/..%2fadmin/x", Err("path: servers may read")),
            ("GET http://api.example.com//admin/x", Err("path: servers may read")),
            ("PUT http://api.example.com/v1/items", Err("no rule fits")),
            ("get http://api.example.com/v1/items", Err("method: must")),
            ("TRACE http://a.files.example/", Err("method: TRACE")),
            ("GET http://api.example.com:8080/v1/items", Err("no rule fits")),
            // The tunnel could contain a denied request without being detected.
            ("CONNECT api.example.com:443", Err("rules[0]")),
            ("CONNECT a.files.example:443", Ok(2)),
            ("CONNECT files.example:443", Err("no rule fits")),
            // A request in it could be for another site of the same server.
            ("CONNECT a.files.example:80", Err("no rule fits")),
            ("GET http://a.files.example:80/", Ok(2)),
            ("CONNECT open.example:80", Ok(6)),
            ("CONNECT half.example:80", Err("no rule fits")),
            ("CONNECT half.example:443", Ok(8)),
            ("CONNECT a.files.example:22", Err("no rule fits")),
            ("GET http://a.files.example/a%2fb//c;d", Ok(2)),
            ("CONNECT ssh.example:22", Ok(3)),
            ("GET http://ssh.example:22/", Err("no rule fits")),
            ("GET http://key.example/", Ok(4)),
            ("CONNECT key.example:443", Err("no rule fits")),
            ("GET http://0xa.0.0.1:8080/", Ok(5)),
            ("GET http://evil.example/", Err("no rule fits")),
        ] {
            let found = decide(&rules, asked);
            match expected {
                Ok(index) => assert_eq!(found, Ok(index), "{asked}"),
                Err(why) => {
                    assert!(found.as_ref().unwrap_err().starts_with(why), "{asked} {found:?}")
                }
            }
        }
    }

    #[test]
    fn networks_are_denied_but_for_those_that_are_excepted() {
        let check = |text: &str, addresses: &[&str]| {
            let rules = rules(&[text]);
            let port = |it: &&str| SocketAddr::new(it.parse().unwrap(), 443);
            let addresses: Vec<SocketAddr> = addresses.iter().map(port).collect();
            rules.0[0].networks.check("a.example", &addresses).is_ok()
        };
        let open = "hosts = ['*']";
        let one = "hosts = ['*']\ndeny_networks = ['8.8.8.0/24']";
        let all = "hosts = ['*']\ndeny_networks = ['0.0.0.0/0', '::/0']\n\
                   allow_networks = ['1.1.1.0/24']";
        for (text, addresses, expected) in [
            (open, &["8.8.8.8"][..], true),
            (one, &["8.8.8.8"], false),
            (one, &["8.8.9.8"], true),
            // A partly allowed answer is treated as an attack.
            (one, &["8.8.9.8", "8.8.8.8"], false),
            (one, &["::ffff:8.8.8.8"], false),
            (all, &["1.1.1.1"], true),
            (all, &["1.1.2.1"], false),
            (all, &["2606:4700::1111"], false),
        ] {
            assert_eq!(check(text, addresses), expected, "{text} {addresses:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, field) in [
            ("hosts = []", "rules[0].hosts"),
            ("hosts = ['a', 'b c']", "rules[0].hosts[1]"),
            ("hosts = ['a']\nmethods = ['get']", "rules[0].methods[0]"),
            ("hosts = ['a']\npaths = ['/a', 'b']", "rules[0].paths[1]"),
            ("hosts = ['a']\npaths = ['/a/../b']", "rules[0].paths[0]"),
            ("hosts = ['a']\nports = [0]", "rules[0].ports"),
            ("hosts = ['a']\ninternal = ['localhost']", "rules[0].internal[0]"),
            ("hosts = ['a']\ndeny_networks = ['localhost']", "rules[0].deny_networks[0]"),
            ("hosts = ['a']\nallow_networks = ['1.1.1.1/8']", "rules[0].allow_networks[0]"),
            (
                "hosts = ['a']\neffect = 'deny'\ndeny_networks = ['1.1.1.1']",
                "rules[0].deny_networks",
            ),
            ("hosts = ['a']\ninternal = ['10.0.0.0/33']", "rules[0].internal[0]"),
            ("hosts = ['a']\n[headers.host]\ntext = 'b'", "rules[0].headers.host"),
            ("hosts = ['a']\n[headers.x]\ntext = \"a\\r\\nb: c\"", "rules[0].headers.x"),
            ("hosts = ['a']\n[headers.'x y']\ntext = 'b'", "rules[0].headers.x y"),
            ("hosts = ['a']\n[headers.x]\nsecret = 'none'", "rules[0].headers.x"),
            ("hosts = ['a']\neffect = 'deny'\ntls = true", "rules[0].tls"),
        ] {
            let error = GrantRules::new(&[rule(text)], &secrets()).unwrap_err();
            assert_eq!(error.field, field, "{text}");
        }
        assert_eq!(GrantRules::new(&[], &secrets()).unwrap_err().field, "rules");
        // A rule does not show its secrets.
        let shown =
            format!("{:?}", rules(&["hosts = ['a']\n[headers.x]\nsecret = 'key'"]).0[0].added);
        assert!(!shown.contains("canary"), "{shown}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        /// For any request: what is allowed below a path is sent below that path, to a host that
        /// was named, and what is denied is not sent.
        #[test]
        fn what_is_not_allowed_is_not_sent(
            host in prop_oneof![
                Just("a.example"), Just("A.EXAMPLE."), Just("b.a.example"), Just("aa.example"),
                Just("127.0.0.1"), Just("0x7f.1"), Just("[::ffff:127.0.0.1]"),
            ],
            method in prop_oneof![Just("GET"), Just("POST"), Just("get"), Just("CONNECT")],
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("/"), Just("/v1"), Just("/keys"), Just(".."), Just("."), Just("%2e"),
                    Just("%2F"), Just("%6b"), Just("x"), Just(";"), Just("%25"),
                ],
                0..8,
            ),
        ) {
            let rules = rules(&[
                "hosts = ['*']\npaths = ['/v1/keys*']\neffect = 'deny'",
                "hosts = ['a.example']\nmethods = ['GET']\npaths = ['/v1/*']",
            ]);
            let host = RequestHost::parse(host).unwrap();
            let raw = format!("/{}", parts.concat());
            let path = (method != CONNECT).then(|| RequestPath::read(&raw));
            let asked = RuleRequest { method, host: &host, port: 80, path: path.as_ref() };
            if let RuleVerdict::Allow { inspected, .. } = rules.decide(&asked) {
                prop_assert!(inspected.path && method == "GET");
                prop_assert_eq!(host.to_string(), "a.example");
                let Some(RequestPath::Plain { sent, .. }) = path else { panic!("odd") };
                prop_assert!(sent.starts_with("/v1/") && !sent.starts_with("/v1/keys"), "{}", sent);
                prop_assert!(!sent.split('/').any(|part| part == ".." || part == "."));
            }
        }
    }
}
