//! Grants that holders of tokens may give to their sandboxes: those offered to them, within the
//! server's limits. Pure.

use api::{ErrorCode, Grant, GrantAccess};
use node::auth::{TokenPrincipal, TokenScope};
use node::client::AllowedNetwork;
use node::http;

use crate::config::{GatewayConfig, GrantOffer};
use crate::kinds;

/// Mark of an offer that allows writing.
pub(crate) const READ_WRITE: &str = ":rw";
/// Matches every holder of a token.
const EVERYBODY: &str = "*";

/// Checks that all `offers` are valid, so that a mistake does not look like a rejection.
///
/// # Errors
/// Names the invalid setting.
pub(crate) fn check(offers: &[GrantOffer]) -> Result<(), String> {
    for (index, offer) in offers.iter().enumerate() {
        for (place, label) in offer.grants.iter().enumerate() {
            if !kinds::is_offer(label) {
                return Err(format!(
                    "gateway.offers[{index}].grants[{place}]: `{label}` is not a grant"
                ));
            }
        }
        for (place, network) in offer.internal.iter().enumerate() {
            if network.parse::<AllowedNetwork>().is_err() {
                let setting = format!("gateway.offers[{index}].internal[{place}]");
                return Err(format!("{setting}: `{network}` is not a network"));
            }
        }
    }
    Ok(())
}

/// Returns whether the caller may create these grants.
///
/// # Errors
/// 403 with the grant that the caller may not give.
pub(crate) fn authorize(
    config: &GatewayConfig,
    who: &TokenPrincipal,
    grants: &[Grant],
) -> Result<(), http::HttpError> {
    for (index, grant) in grants.iter().enumerate() {
        authorize_one(config, who, index, grant)?;
    }
    Ok(())
}

/// Returns whether the caller may create this grant, the one at `index` of a request.
///
/// # Errors
/// Those of [`authorize`].
pub(crate) fn authorize_one(
    config: &GatewayConfig,
    who: &TokenPrincipal,
    index: usize,
    grant: &Grant,
) -> Result<(), http::HttpError> {
    if is_unrestricted(who) {
        return Ok(());
    }
    let offers = TenantOffers::new(&config.offers, &who.tenant);
    let kind = kinds::kind_of(grant);
    kind.check_offered(&offers).map_err(|GrantNotOffered { field, what }| {
        let message = format!("{what} is not offered to this token's tenant");
        let field = format!("grants[{index}]{field}");
        http::HttpError::new(ErrorCode::Forbidden, message).at(field)
    })?;
    match kind.limit_above(config) {
        Some(limit) => {
            let message = "exceeds this server's limit";
            let field = format!("grants[{index}].limits.{limit}");
            Err(http::HttpError::new(ErrorCode::Forbidden, message).at(field))
        }
        None => Ok(()),
    }
}

/// Returns whether the holder of a token may give everything that the server has.
pub(crate) fn is_unrestricted(who: &TokenPrincipal) -> bool {
    who.operator && who.scopes.has(TokenScope::Tenants)
}

/// Part of a grant that is not offered.
#[derive(Debug)]
pub(crate) struct GrantNotOffered {
    /// Path below the grant, with its leading period; empty for the grant itself.
    pub(crate) field: String,
    /// The missing offer, in backquotes.
    pub(crate) what: String,
}

/// Offers that apply to one tenant.
pub(crate) struct TenantOffers<'a>(Vec<&'a GrantOffer>);

impl<'a> TenantOffers<'a> {
    pub(crate) fn new(offers: &'a [GrantOffer], tenant: &str) -> TenantOffers<'a> {
        let applies = |name: &String| name == EVERYBODY || name == tenant;
        TenantOffers(offers.iter().filter(|offer| offer.tenants.iter().any(applies)).collect())
    }

    /// Returns the offers in the order of the configuration.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a GrantOffer> {
        self.0.iter().copied()
    }

    /// Returns whether one of the offers passes a test.
    pub(crate) fn any(&self, test: impl Fn(&GrantOffer) -> bool) -> bool {
        self.0.iter().any(|offer| test(offer))
    }

    /// Checks that a label is offered for this access.
    ///
    /// # Errors
    /// If no offer has it.
    pub(crate) fn check_label(
        &self,
        label: &str,
        access: GrantAccess,
    ) -> Result<(), GrantNotOffered> {
        if self.any(|offer| has_label(offer, label, access)) {
            return Ok(());
        }
        Err(GrantNotOffered { field: String::new(), what: format!("`{}`", wanted(label, access)) })
    }

    /// Checks that `kind:name` is offered for this access, and its role by the same offer.
    ///
    /// # Errors
    /// If no single offer has all of it.
    pub(crate) fn check_named(
        &self,
        kind: &str,
        name: &str,
        access: GrantAccess,
        role: Option<&str>,
    ) -> Result<(), GrantNotOffered> {
        let label = format!("{kind}:{name}");
        let Some(role) = role else { return self.check_label(&label, access) };
        let has_role = |offer: &GrantOffer| offer.roles.iter().any(|offered| offered == role);
        if self.any(|offer| has_role(offer) && has_label(offer, &label, access)) {
            return Ok(());
        }
        let what = format!("`{} as {role}`", wanted(&label, access));
        Err(GrantNotOffered { field: String::new(), what })
    }
}

/// Returns the label of the offer that would be needed.
fn wanted(label: &str, access: GrantAccess) -> String {
    let mark = if access == GrantAccess::ReadWrite { READ_WRITE } else { "" };
    format!("{label}{mark}")
}

fn has_label(offer: &GrantOffer, label: &str, access: GrantAccess) -> bool {
    offer.grants.iter().any(|offered| match offered.strip_suffix(READ_WRITE) {
        Some(plain) => plain == label,
        None => offered == label && access == GrantAccess::ReadOnly,
    })
}

#[cfg(test)]
mod tests {
    use node::auth::{CallerCredential, TokenScopes};

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
        let credential = CallerCredential::Token;
        TokenPrincipal { token_id, name, operator, tenant: tenant.into(), scopes, credential }
    }

    fn grant(json: &str) -> Grant {
        serde_json::from_str(json).unwrap()
    }

    fn http(rule: &str) -> String {
        format!(r#"{{"kind": "http", "rules": [{{"effect": "deny", "hosts": ["x"]}}, {rule}]}}"#)
    }

    /// Tenant, grant or rule of `http`, and the field that is rejected.
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
