//! Grants that holders of tokens may give to their sandboxes: what is offered to them, and no more
//! than the server's limits. Pure.

use api::{
    DatabaseGrant, DatabaseGrantLimits, ErrorCode, Grant, GrantAccess, HeaderSource, HttpEffect,
    HttpGrant, HttpRule,
};
use node::auth::{TokenPrincipal, TokenScope};
use node::client::AllowedNetwork;
use node::http;

use crate::config::{GatewayConfig, GrantOffer};
use crate::egress::host::HostPattern;
use crate::egress::rules::PORTS;

/// Offered to everybody.
const EVERYBODY: &str = "*";

/// Checks that everything in `offers` can be understood, so that a mistake does not look like a
/// refusal.
///
/// # Errors
/// Names the setting.
pub(crate) fn check(offers: &[GrantOffer]) -> Result<(), String> {
    for (index, offer) in offers.iter().enumerate() {
        for (place, label) in offer.grants.iter().enumerate() {
            let (kind, rest) = label.split_once(':').unwrap_or((label, ""));
            let is_good = match kind {
                "postgres" | "mysql" | "catalog" => {
                    let name = rest.strip_suffix(":rw").unwrap_or(rest);
                    !name.is_empty() && !name.contains(':')
                }
                "http" => HostPattern::parse(rest).is_some(),
                "model" => label == "model",
                _ => false,
            };
            if !is_good {
                return Err(format!(
                    "gateway.offers[{index}].grants[{place}]: `{label}` is no grant"
                ));
            }
        }
        for (place, network) in offer.internal.iter().enumerate() {
            if network.parse::<AllowedNetwork>().is_err() {
                let setting = format!("gateway.offers[{index}].internal[{place}]");
                return Err(format!("{setting}: `{network}` is no network"));
            }
        }
    }
    Ok(())
}

/// Returns whether somebody may give these grants.
///
/// # Errors
/// 403 with the grant that is not his to give.
pub(crate) fn authorize(
    config: &GatewayConfig,
    who: &TokenPrincipal,
    grants: &[Grant],
) -> Result<(), http::HttpError> {
    if who.operator && who.scopes.has(TokenScope::Tenants) {
        return Ok(());
    }
    let is_his = |tenant: &String| tenant == EVERYBODY || **tenant == *who.tenant;
    let offers = config.offers.iter().filter(|offer| offer.tenants.iter().any(is_his));
    let offers: Vec<&GrantOffer> = offers.collect();
    for (index, grant) in grants.iter().enumerate() {
        let refused = |field: &str, what: String| {
            let message = format!("{what} is not offered to this token's tenant");
            let field = format!("grants[{index}]{field}");
            http::HttpError::new(ErrorCode::Forbidden, message).at(field)
        };
        let is_offered = match grant {
            Grant::Postgres(it) | Grant::Mysql(it) => database(&offers, grant, it),
            Grant::Catalog(it) => has(&offers, &grant.label(), it.access),
            Grant::Model(_) => has(&offers, "model", GrantAccess::ReadOnly),
            Grant::Http(it) => match http_rule(&offers, it) {
                None => true,
                Some((place, what)) => return Err(refused(&format!(".rules[{place}]"), what)),
            },
        };
        if !is_offered {
            return Err(refused("", format!("`{}`", wanted(grant))));
        }
        if let Some(limit) = over(config, grant) {
            let message = "is above what this server gives";
            let field = format!("grants[{index}].limits.{limit}");
            return Err(http::HttpError::new(ErrorCode::Forbidden, message).at(field));
        }
    }
    Ok(())
}

/// A grant as it would be offered.
fn wanted(grant: &Grant) -> String {
    let label = grant.label();
    let (access, role) = match grant {
        Grant::Postgres(it) | Grant::Mysql(it) => (it.access, it.role.as_deref()),
        Grant::Catalog(it) => (it.access, None),
        Grant::Http(_) | Grant::Model(_) => (GrantAccess::ReadOnly, None),
    };
    let write = if access == GrantAccess::ReadWrite { ":rw" } else { "" };
    role.map_or(format!("{label}{write}"), |role| format!("{label}{write} as {role}"))
}

fn offers_label(offer: &GrantOffer, label: &str, access: GrantAccess) -> bool {
    offer.grants.iter().any(|offered| match offered.strip_suffix(":rw") {
        Some(plain) => plain == label,
        None => offered == label && access == GrantAccess::ReadOnly,
    })
}

fn has(offers: &[&GrantOffer], label: &str, access: GrantAccess) -> bool {
    offers.iter().any(|offer| offers_label(offer, label, access))
}

/// A role is offered together with its database.
fn database(offers: &[&GrantOffer], grant: &Grant, it: &DatabaseGrant) -> bool {
    let label = grant.label();
    offers.iter().any(|offer| {
        let is_role = it.role.as_ref().is_none_or(|role| offer.roles.contains(role));
        is_role && offers_label(offer, &label, it.access)
    })
}

/// The first rule that is not offered, and what of it is not.
fn http_rule(offers: &[&GrantOffer], grant: &HttpGrant) -> Option<(usize, String)> {
    let allowing = |(_, rule): &(usize, &HttpRule)| rule.effect == HttpEffect::Allow;
    let mut rules = grant.rules.iter().enumerate().filter(allowing);
    rules.find_map(|(place, rule)| {
        let bad = rule.hosts.iter().find(|host| !is_host_offered(offers, rule, host));
        bad.map(|host| (place, format!("`http:{host}`, with what the rule adds,")))
    })
}

/// Checks that a single offer has the host with all that the rule wants beside it: otherwise a
/// secret that is for one host could be sent to another one.
fn is_host_offered(offers: &[&GrantOffer], rule: &HttpRule, host: &str) -> bool {
    let Some(wanted) = HostPattern::parse(host) else { return false };
    offers.iter().any(|offer| {
        let mut patterns = offer.grants.iter().filter_map(|it| it.strip_prefix("http:"));
        let covers = |text: &str| HostPattern::parse(text).is_some_and(|one| one.covers(&wanted));
        let has_secret = |source: &HeaderSource| match source {
            HeaderSource::Text(_) => true,
            HeaderSource::Secret(name) => offer.secrets.contains(name),
        };
        patterns.any(covers)
            && rule.headers.values().all(has_secret)
            && rule.internal.iter().all(|network| offer.internal.contains(network))
            && ports(&rule.ports).iter().all(|port| ports(&offer.ports).contains(port))
    })
}

/// Returns what a list of ports means that may be empty.
fn ports(named: &[u16]) -> &[u16] {
    if named.is_empty() { &PORTS } else { named }
}

/// The first limit of a grant that is above the server's; 0 is for no limit.
fn over(config: &GatewayConfig, grant: &Grant) -> Option<&'static str> {
    fn is_over<T: PartialOrd + Default>(own: Option<T>, server: T) -> bool {
        let none = T::default();
        own.is_some_and(|own| server != none && (own == none || own > server))
    }
    match grant {
        Grant::Postgres(it) | Grant::Mysql(it) => {
            let (own, server): (&DatabaseGrantLimits, _) = (&it.limits, &config.database);
            let list = [
                ("connections", is_over(own.connections, server.connections)),
                ("statement_s", is_over(own.statement_s, server.statement_s)),
                ("transaction_s", is_over(own.transaction_s, server.transaction_s)),
                (
                    "idle_in_transaction_s",
                    is_over(own.idle_in_transaction_s, server.idle_in_transaction_s),
                ),
                ("rows", is_over(own.rows, server.rows)),
                ("bytes", is_over(own.bytes, server.bytes)),
            ];
            list.into_iter().find(|(_, over)| *over).map(|(name, _)| name)
        }
        Grant::Http(it) => {
            let list = [
                ("connections", is_over(it.limits.connections, config.http.connections)),
                ("requests", is_over(it.limits.requests, config.http.requests)),
                ("bytes", is_over(it.limits.bytes, config.http.bytes)),
            ];
            list.into_iter().find(|(_, over)| *over).map(|(name, _)| name)
        }
        Grant::Catalog(_) | Grant::Model(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use node::auth::TokenScopes;

    use super::*;

    const CONFIG: &str = r#"
        [[offers]]
        tenants = ["*"]
        grants = ["postgres:shop", "model", "http:*.example.com"]
        [[offers]]
        tenants = ["judge"]
        grants = ["mysql:judge:rw", "catalog:lake", "postgres:books"]
        roles = ["reader"]
        [[offers]]
        tenants = ["judge"]
        grants = ["http:api.partner.example"]
        secrets = ["partner"]
        internal = ["10.1.0.0/16"]
        [[offers]]
        tenants = ["*"]
        grants = ["http:ports.example"]
        ports = [443, 8443]
    "#;

    fn who(tenant: &str, operator: bool, scopes: TokenScopes) -> TokenPrincipal {
        let (token_id, name) = ("tok_1".into(), "x".into());
        TokenPrincipal { token_id, name, operator, tenant: tenant.into(), scopes }
    }

    fn grant(json: &str) -> Grant {
        serde_json::from_str(json).unwrap()
    }

    fn http(rule: &str) -> String {
        format!(r#"{{"kind": "http", "rules": [{{"effect": "deny", "hosts": ["x"]}}, {rule}]}}"#)
    }

    /// Tenant, grant or rule of `http`, and the field that is refused.
    const CASES: &str = r#"
        a | {"kind": "postgres", "tenant": "shop"} |
        a | {"kind": "mysql", "tenant": "shop"} | grants[0]
        a | {"kind": "postgres", "tenant": "shop", "access": "read_write"} | grants[0]
        a | {"kind": "postgres", "tenant": "shop:rw"} | grants[0]
        a | {"kind": "postgres", "tenant": "shop", "role": "owner"} | grants[0]
        judge | {"kind": "postgres", "tenant": "shop", "role": "reader"} | grants[0]
        judge | {"kind": "postgres", "tenant": "books", "role": "reader"} |
        a | {"kind": "mysql", "tenant": "judge"} | grants[0]
        judge | {"kind": "mysql", "tenant": "judge"} |
        judge | {"kind": "mysql", "tenant": "judge", "access": "read_write"} |
        judge | {"kind": "catalog", "warehouse": "lake"} |
        judge | {"kind": "catalog", "warehouse": "lake", "access": "read_write"} | grants[0]
        a | {"kind": "model"} |
        a | {"kind": "postgres", "tenant": "shop", "limits": {"rows": 5}} |
        a | {"kind": "postgres", "tenant": "shop", "limits": {"rows": 0}} | grants[0].limits.rows
        a | {"kind": "postgres", "tenant": "shop", "limits": {"bytes": 999999999999}} | grants[0].limits.bytes
        a | {"hosts": ["a.example.com", "*.b.example.com"]} |
        a | {"hosts": ["a.example.com", "*"]} | grants[0].rules[1]
        a | {"hosts": ["example.com"]} | grants[0].rules[1]
        a | {"hosts": ["a.example.com"], "ports": [80]} |
        a | {"hosts": ["a.example.com"], "ports": [443, 22]} | grants[0].rules[1]
        a | {"hosts": ["ports.example"]} | grants[0].rules[1]
        a | {"hosts": ["ports.example"], "ports": [443, 8443]} |
        a | {"hosts": ["ports.example"], "ports": [80]} | grants[0].rules[1]
        a | {"hosts": ["a.example.com"], "internal": ["10.1.0.0/16"]} | grants[0].rules[1]
        judge | {"hosts": ["a.example.com"], "headers": {"k": {"secret": "partner"}}} | grants[0].rules[1]
        judge | {"hosts": ["a.example.com"], "headers": {"k": {"text": "v"}}} |
        judge | {"hosts": ["API.partner.example"], "headers": {"k": {"secret": "partner"}}} |
        judge | {"hosts": ["api.partner.example"], "internal": ["10.1.0.0/16"]} |
        judge | {"hosts": ["api.partner.example"], "headers": {"k": {"secret": "x"}}} | grants[0].rules[1]
    "#;

    #[test]
    fn nobody_gives_what_is_not_offered_to_him() {
        let config: GatewayConfig = toml::from_str(CONFIG).unwrap();
        check(&config.offers).unwrap();
        for line in CASES.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            let [tenant, json, expected] = parts[..] else { panic!("{line}") };
            let expected = Some(expected).filter(|field| !field.is_empty());
            let json = if json.contains("kind") { json.to_owned() } else { http(json) };
            for scopes in [TokenScopes::ALL, TokenScopes::NONE] {
                let found = authorize(&config, &who(tenant, false, scopes), &[grant(&json)]);
                let found = found.map_err(|error| {
                    assert_eq!(error.detail().code, ErrorCode::Forbidden);
                    error.detail().field.clone().unwrap()
                });
                assert_eq!(found.err().as_deref(), expected, "{tenant} {json}");
            }
            let operator = who("ops", true, TokenScopes::ALL);
            authorize(&config, &operator, &[grant(&json)]).unwrap();
            let narrow = who("ops", true, [TokenScope::Sessions].into_iter().collect());
            let found = authorize(&GatewayConfig::default(), &narrow, &[grant(&json)]);
            assert!(found.is_err(), "{json}");
        }
    }

    #[test]
    fn an_offer_that_is_none_is_no_offer() {
        for label in
            ["shop", "postgres:", "postgres", "postgres:a:b", "http:", "http:a b", "model:x", ""]
        {
            let offer = GrantOffer { grants: vec![label.to_owned()], ..GrantOffer::default() };
            assert!(check(&[offer]).unwrap_err().contains("offers[0].grants[0]"), "{label}");
        }
        let offer = GrantOffer { internal: vec!["10.0.0.1/8".to_owned()], ..GrantOffer::default() };
        assert!(check(&[offer]).is_err());
    }
}
