//! E2B's network rules of a sandbox, translated into a grant. Pure.
//!
//! E2B decides by addresses: allow rules precede deny rules, and everything else is allowed. In
//! Cove, a sandbox reaches only destinations of its grants, through the gateway's proxy. Therefore
//! allow rules become rules of an `http` grant; a rule for everything else is added only if the
//! server's settings give sandboxes internet access by default.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{Grant, HeaderSource, HttpEffect, HttpGrant, HttpRule};
use node::client::is_public;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::errors::{RestError, shown};

/// Maximum number of destinations in one list, of hosts with rules, and of headers of one host.
const ENTRIES_MAX: usize = 100;
/// Networks that contain all addresses.
const EVERYTHING: [&str; 2] = ["0.0.0.0/0", "::/0"];
/// Minimum prefix length for which a network that starts at an internal address counts as internal.
const INTERNAL_BITS_MIN: u8 = 8;
/// Fields of `network` when a sandbox is created.
pub(super) const FIELDS_OF_NEW: [&str; 6] =
    ["allowOut", "allowPublicTraffic", "denyOut", "egressProxy", "maskRequestHost", "rules"];
/// Fields of an update.
const FIELDS_OF_UPDATE: [&str; 5] =
    ["allowOut", "allow_internet_access", "denyOut", "egressProxy", "rules"];
/// Longest host mask, in bytes.
const MASK_BYTES_MAX: usize = 255;

/// Requested outbound network access of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NetworkRules {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allow_out: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deny_out: Vec<String>,
    /// Headers added to requests to a host.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, BTreeMap<String, String>>,
    /// True if only listed destinations are allowed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_closed: bool,
}

/// Inbound rules of `network`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InboundRules {
    pub(super) private_ports: bool,
    pub(super) masked_host: Option<String>,
}

fn wrong(field: &str, message: &str) -> RestError {
    RestError::invalid(format!("network.{}: {message}", shown(field)))
}

/// Returns an accessor of an object's known fields.
///
/// # Errors
/// Names an unknown field.
fn fields<'a>(
    value: &'a Value,
    path: &str,
    known: &[&str],
) -> Result<impl Fn(&str) -> Option<&'a Value> + use<'a>, RestError> {
    let given: &Map<String, Value> = value
        .as_object()
        .ok_or_else(|| RestError::invalid(format!("{path}: must be an object")))?;
    if let Some(unknown) = given.keys().find(|name| !known.contains(&name.as_str())) {
        let message = format!("unknown field; there are {}", known.join(", "));
        return Err(RestError::invalid(format!("{path}.{}: {message}", shown(unknown))));
    }
    Ok(move |name: &str| given.get(name).filter(|value| !value.is_null()))
}

fn flag(value: Option<&Value>, field: &str) -> Result<Option<bool>, RestError> {
    value
        .map(|value| value.as_bool().ok_or_else(|| wrong(field, "must be true or false")))
        .transpose()
}

fn texts(value: Option<&Value>, field: &str) -> Result<Vec<String>, RestError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let list = value.as_array().filter(|list| list.len() <= ENTRIES_MAX);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let texts = list.and_then(|list| list.iter().map(text).collect::<Option<Vec<String>>>());
    texts.ok_or_else(|| wrong(field, &format!("must be a list of at most {ENTRIES_MAX} strings")))
}

/// Parses `network` of a new sandbox; `internet` is the separate field of the request.
///
/// # Errors
/// Names the field that is invalid, unknown or unsupported.
pub(super) fn of_new(
    network: Option<&Value>,
    internet: Option<bool>,
) -> Result<(NetworkRules, InboundRules), RestError> {
    let none = Value::Object(Map::new());
    let field = fields(network.unwrap_or(&none), "network", &FIELDS_OF_NEW)?;
    let public = flag(field("allowPublicTraffic"), "allowPublicTraffic")?;
    let masked_host = match field("maskRequestHost") {
        None => None,
        Some(mask) => Some(mask_of(mask)?),
    };
    let inbound = InboundRules { private_ports: public == Some(false), masked_host };
    Ok((outbound(field, internet)?, inbound))
}

/// Parses an update, which replaces all earlier rules.
///
/// # Errors
/// See [`of_new`].
pub(super) fn of_update(network: &Value) -> Result<NetworkRules, RestError> {
    let field = fields(network, "network", &FIELDS_OF_UPDATE)?;
    let internet = flag(field("allow_internet_access"), "allow_internet_access")?;
    outbound(field, internet)
}

fn mask_of(value: &Value) -> Result<String, RestError> {
    let message = "must be a host, with `${PORT}` where the port is to be";
    let mask = value.as_str().filter(|mask| (1..=MASK_BYTES_MAX).contains(&mask.len()));
    let plain = |mask: &&str| {
        let rest = mask.replace("${PORT}", "0");
        rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
    };
    mask.filter(plain).map(str::to_owned).ok_or_else(|| wrong("maskRequestHost", message))
}

fn outbound<'a>(
    field: impl Fn(&str) -> Option<&'a Value>,
    internet: Option<bool>,
) -> Result<NetworkRules, RestError> {
    if field("egressProxy").is_some() {
        return Err(wrong("egressProxy", "custom proxies are not supported"));
    }
    let allow_out = texts(field("allowOut"), "allowOut")?;
    let deny_out = texts(field("denyOut"), "denyOut")?;
    for (index, text) in allow_out.iter().enumerate() {
        if EgressDestination::parse(text).is_none() {
            let message = "must be a host, an address or a network such as `8.8.8.0/24`";
            return Err(wrong(&format!("allowOut[{index}]"), message));
        }
    }
    for (index, text) in deny_out.iter().enumerate() {
        if !matches!(EgressDestination::parse(text), Some(EgressDestination::Subnet { .. })) {
            let message = "must be an address or a network such as `8.8.8.0/24`";
            return Err(wrong(&format!("denyOut[{index}]"), message));
        }
    }
    let headers = match field("rules") {
        None => BTreeMap::new(),
        Some(rules) => headers(rules)?,
    };
    Ok(NetworkRules { allow_out, deny_out, headers, is_closed: internet == Some(false) })
}

/// Parses `rules`: `{ HOST: [{ "transform": { "headers": { NAME: VALUE } } }] }`.
fn headers(rules: &Value) -> Result<BTreeMap<String, BTreeMap<String, String>>, RestError> {
    let hosts = rules.as_object().filter(|hosts| hosts.len() <= ENTRIES_MAX);
    let hosts = hosts.ok_or_else(|| {
        wrong("rules", &format!("must be an object of at most {ENTRIES_MAX} hosts"))
    })?;
    let mut all = BTreeMap::new();
    for (host, list) in hosts {
        let path = format!("rules.{}", shown(host));
        if !matches!(EgressDestination::parse(host), Some(EgressDestination::Name(_))) {
            return Err(wrong(&path, "must be the name of a host"));
        }
        let list = list.as_array().ok_or_else(|| wrong(&path, "must be a list of rules"))?;
        let of_host: &mut BTreeMap<String, String> = all.entry(host.clone()).or_default();
        for (index, rule) in list.iter().enumerate() {
            let path = format!("network.{path}[{index}]");
            let Some(transform) = fields(rule, &path, &["transform"])?("transform") else {
                continue;
            };
            let path = format!("{path}.transform");
            let Some(given) = fields(transform, &path, &["headers"])?("headers") else { continue };
            for (name, value) in given.as_object().into_iter().flatten() {
                let value = value.as_str().ok_or_else(|| {
                    RestError::invalid(format!("{path}.headers.{}: must be a string", shown(name)))
                })?;
                of_host.insert(name.to_ascii_lowercase(), value.to_owned());
            }
            if !given.is_object() || of_host.len() > ENTRIES_MAX {
                let message = format!("must be an object of at most {ENTRIES_MAX} strings");
                return Err(RestError::invalid(format!("{path}.headers: {message}")));
            }
        }
    }
    Ok(all)
}

/// Destination in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EgressDestination {
    /// A host name, or `*.` and a host name.
    Name(String),
    /// A network, with whether it is internal, and whether it contains all addresses.
    Subnet { text: String, is_internal: bool, is_everything: bool },
}

impl EgressDestination {
    fn parse(text: &str) -> Option<EgressDestination> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            let name = text.strip_prefix("*.").unwrap_or(text);
            return node::client::is_name(name).then(|| EgressDestination::Name(text.to_owned()));
        };
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.map_or(Some(bits_max), |bits| bits.parse().ok())?;
        // Rejects `10.1.2.3/8`, which is more likely a mistake than another form of `10.0.0.0/8`.
        let text = format!("{address}/{bits}");
        text.parse::<node::client::AllowedNetwork>().ok()?;
        let is_internal = !is_public(address) && bits >= INTERNAL_BITS_MIN;
        Some(EgressDestination::Subnet { text, is_internal, is_everything: bits == 0 })
    }
}

/// Returns the networks of a list, the internal ones among them, and whether one contains all
/// addresses.
fn networks(list: &[String]) -> (Vec<String>, Vec<String>, bool) {
    let (mut networks, mut internal, mut has_everything) = (Vec::new(), Vec::new(), false);
    for destination in list.iter().filter_map(|text| EgressDestination::parse(text)) {
        if let EgressDestination::Subnet { text, is_internal, is_everything } = destination {
            if is_internal {
                internal.push(text.clone());
            }
            networks.push(text);
            has_everything |= is_everything;
        }
    }
    (networks, internal, has_everything)
}

impl NetworkRules {
    /// Returns whether an allow rule exists.
    pub(super) fn names_something(&self) -> bool {
        !self.allow_out.is_empty()
    }

    /// Returns whether anything is denied.
    pub(super) fn denies_something(&self) -> bool {
        self.is_closed || !self.deny_out.is_empty()
    }

    /// Returns whether the sandbox may reach destinations that no rule mentions.
    pub(super) fn is_open(&self, begins_with_internet: bool) -> bool {
        begins_with_internet && !self.is_closed && !networks(&self.deny_out).2
    }

    /// Returns the grant for the allowed destinations; none if nothing is allowed.
    pub(super) fn grant(&self, begins_with_internet: bool) -> Option<Grant> {
        let is_open = self.is_open(begins_with_internet);
        let names: Vec<String> = self
            .allow_out
            .iter()
            .filter(|text| {
                matches!(EgressDestination::parse(text), Some(EgressDestination::Name(_)))
            })
            .cloned()
            .collect();
        let (allowed, internal, _) = networks(&self.allow_out);
        let denied = match is_open {
            true => networks(&self.deny_out).0,
            false => EVERYTHING.map(str::to_owned).to_vec(),
        };
        // Addresses are checked after name resolution, for names as well.
        let by_address = HttpRule {
            hosts: vec!["*".to_owned()],
            deny_networks: denied,
            allow_networks: allowed.clone(),
            internal,
            ..HttpRule::default()
        };
        let has_addresses = is_open || !allowed.is_empty();
        let mut rules = Vec::new();
        for (host, headers) in self.headers.iter().filter(|(_, headers)| !headers.is_empty()) {
            let is_named = names.iter().any(|name| covers(name, host));
            if !is_named && !has_addresses {
                continue;
            }
            let base = if is_named { HttpRule::default() } else { by_address.clone() };
            let text = |(name, value): (&String, &String)| {
                (name.clone(), HeaderSource::Text(value.clone()))
            };
            rules.push(HttpRule {
                hosts: vec![host.clone()],
                headers: headers.iter().map(text).collect(),
                // Such headers are usually keys, so they are sent only over TLS.
                tls: true,
                ..base
            });
            // Denied, because the proxy cannot add the header inside a tunnel, and a request
            // without the header would violate the rule.
            rules.push(HttpRule {
                effect: HttpEffect::Deny,
                hosts: vec![host.clone()],
                methods: vec!["CONNECT".to_owned()],
                ..HttpRule::default()
            });
        }
        if !names.is_empty() {
            rules.push(HttpRule { hosts: names, ..HttpRule::default() });
        }
        if has_addresses {
            rules.push(by_address);
        }
        let is_something = rules.iter().any(|rule| rule.effect == HttpEffect::Allow);
        is_something.then(|| Grant::Http(HttpGrant { rules, ..HttpGrant::default() }))
    }
}

/// Returns whether a name entry matches this host.
fn covers(name: &str, host: &str) -> bool {
    let (name, host) = (name.to_ascii_lowercase(), host.to_ascii_lowercase());
    match name.strip_prefix('*') {
        Some(end) => host.ends_with(end),
        None => name == host,
    }
}

#[cfg(test)]
mod tests {
    //! Translation of fields into rules, and rejections that name the field.

    use serde_json::json;

    use super::*;

    fn rules(network: &Value, begins_with_internet: bool) -> Value {
        let (network, _) = of_new(Some(network), None).unwrap();
        match network.grant(begins_with_internet) {
            Some(Grant::Http(grant)) => {
                let rules = json!(grant.rules);
                let mut rules = rules.as_array().unwrap().clone();
                for rule in &mut rules {
                    let rule = rule.as_object_mut().unwrap();
                    rule.retain(|name, value| name != "effect" || value != "allow");
                }
                Value::Array(rules)
            }
            None => Value::Null,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_allowed_becomes_rules() {
        let all = json!(["0.0.0.0/0", "::/0"]);
        for (network, with_internet, expected) in [
            (json!({}), false, json!(null)),
            (json!({}), true, json!([{ "hosts": ["*"] }])),
            (json!({ "denyOut": ["8.8.8.8"] }), false, json!(null)),
            (
                json!({ "denyOut": ["8.8.8.8"] }),
                true,
                json!([{ "hosts": ["*"], "deny_networks": ["8.8.8.8/32"] }]),
            ),
            (json!({ "denyOut": ["0.0.0.0/0"] }), true, json!(null)),
            (
                json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["a.example", "1.1.1.1"] }),
                true,
                json!([
                    { "hosts": ["a.example"] },
                    { "hosts": ["*"], "deny_networks": all, "allow_networks": ["1.1.1.1/32"] },
                ]),
            ),
            (json!({ "allowOut": ["*.a.example"] }), false, json!([{ "hosts": ["*.a.example"] }])),
            (
                json!({ "allowOut": ["10.1.0.0/16"] }),
                false,
                json!([{ "hosts": ["*"], "deny_networks": all, "allow_networks": ["10.1.0.0/16"],
                    "internal": ["10.1.0.0/16"] }]),
            ),
        ] {
            assert_eq!(rules(&network, with_internet), expected, "{network} {with_internet}");
        }
    }

    #[test]
    fn headers_are_for_what_is_allowed_anyway() {
        let of = json!({ "a.example": [{ "transform": { "headers": { "X-Key": "k" } } }] });
        let headers = json!({ "x-key": { "text": "k" } });
        let tunnel = json!({ "effect": "deny", "hosts": ["a.example"], "methods": ["CONNECT"] });
        for (network, with_internet, expected) in [
            (json!({ "rules": of }), false, json!(null)),
            (
                json!({ "rules": of }),
                true,
                json!([
                    { "hosts": ["a.example"], "headers": headers, "tls": true },
                    tunnel,
                    { "hosts": ["*"] },
                ]),
            ),
            (
                json!({ "rules": of, "allowOut": ["*.example"] }),
                false,
                json!([
                    { "hosts": ["a.example"], "headers": headers, "tls": true },
                    tunnel,
                    { "hosts": ["*.example"] },
                ]),
            ),
        ] {
            assert_eq!(rules(&network, with_internet), expected, "{network} {with_internet}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (network, field) in [
            (json!([]), "network:"),
            (json!({ "allow_public_traffic": false }), "network.allow_public_traffic:"),
            (json!({ "allow_out": [] }), "network.allow_out:"),
            (json!({ "allowPublicTraffic": 0 }), "network.allowPublicTraffic:"),
            (json!({ "allowOut": "a" }), "network.allowOut:"),
            (json!({ "allowOut": ["a", "b c"] }), "network.allowOut[1]:"),
            (json!({ "allowOut": ["10.1.2.3/8"] }), "network.allowOut[0]:"),
            (json!({ "denyOut": ["a.example"] }), "network.denyOut[0]:"),
            (json!({ "egressProxy": { "address": "a:1" } }), "network.egressProxy:"),
            (json!({ "maskRequestHost": "a b" }), "network.maskRequestHost:"),
            (json!({ "rules": { "1.1.1.1": [] } }), "network.rules.1.1.1.1:"),
            (json!({ "rules": { "a": {} } }), "network.rules.a:"),
            (json!({ "rules": { "a": [{ "b": 1 }] } }), "network.rules.a[0].b:"),
            (
                json!({ "rules": { "a": [{ "transform": { "header": {} } }] } }),
                "network.rules.a[0].transform.header:",
            ),
            (
                json!({ "rules": { "a": [{ "transform": { "headers": { "x": 1 } } }] } }),
                "network.rules.a[0].transform.headers.x:",
            ),
        ] {
            let error = format!("{:?}", of_new(Some(&network), None).unwrap_err());
            assert!(error.contains(field), "{network}: {error}");
        }
        assert!(of_update(&json!({ "allow_internet_access": false })).is_ok());
        assert!(of_update(&json!({ "allowPublicTraffic": false })).is_err());
        let plain = of_new(Some(&json!({ "allowOut": null, "denyOut": [] })), Some(true)).unwrap();
        assert_eq!(plain, (NetworkRules::default(), InboundRules::default()));
    }

    #[test]
    fn what_comes_in_is_said_beside() {
        let network =
            json!({ "allowPublicTraffic": false, "maskRequestHost": "a.example:${PORT}" });
        let (_, inbound) = of_new(Some(&network), None).unwrap();
        let masked_host = Some("a.example:${PORT}".to_owned());
        assert_eq!(inbound, InboundRules { private_ports: true, masked_host });
    }
}
