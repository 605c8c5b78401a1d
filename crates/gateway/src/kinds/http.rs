//! Grants of outside servers, reached through the proxy.

use std::sync::Arc;

use api::{HeaderSource, HttpEffect, HttpGrant, HttpRule};

use super::{
    GrantKind, GrantListener, GrantVariables, LOOPBACK, OpenContext, ResolvedGrant, first_above,
    is_above,
};
use crate::config::{GatewayConfig, GrantOffer, HttpLimits};
use crate::doors::FieldError;
use crate::egress::host::HostPattern;
use crate::egress::rules::{GrantRules, PORTS};
use crate::egress::{EgressProxy, ProxyContext};
use crate::offers::{GrantNotOffered, TenantOffers};
use crate::shared::GatewayShared;

/// Returns whether an offer has valid hosts.
pub(super) fn is_offer(hosts: Option<&str>) -> bool {
    hosts.is_some_and(|hosts| HostPattern::parse(hosts).is_some())
}

/// A grant of outside servers.
pub(super) struct HttpKind<'a>(pub(super) &'a HttpGrant);

impl GrantKind for HttpKind<'_> {
    fn check_offered(&self, offers: &TenantOffers<'_>) -> Result<(), GrantNotOffered> {
        let allowing = |(_, rule): &(usize, &HttpRule)| rule.effect == HttpEffect::Allow;
        for (place, rule) in self.0.rules.iter().enumerate().filter(allowing) {
            let is_missing = |host: &&String| !is_host_offered(offers, rule, host);
            if let Some(host) = rule.hosts.iter().find(is_missing) {
                let what = format!("`http:{host}`, with what the rule adds,");
                return Err(GrantNotOffered { field: format!(".rules[{place}]"), what });
            }
        }
        Ok(())
    }

    fn limit_above(&self, config: &GatewayConfig) -> Option<&'static str> {
        let (own, server) = (&self.0.limits, &config.http);
        first_above([
            ("connections", is_above(own.connections, server.connections)),
            ("requests", is_above(own.requests, server.requests)),
            ("bytes", is_above(own.bytes, server.bytes)),
        ])
    }

    fn resolve(&self, shared: &GatewayShared) -> Result<Box<dyn ResolvedGrant>, FieldError> {
        let config = shared.config.now();
        let rules = GrantRules::new(&self.0.rules, &config.secrets)?;
        let limits = config.http.complete(&self.0.limits);
        Ok(Box::new(ResolvedProxy { rules, limits }))
    }
}

/// Checks that a single offer has the host with everything else in the rule: otherwise a secret for
/// one host could be sent to another one.
fn is_host_offered(offers: &TenantOffers<'_>, rule: &HttpRule, host: &str) -> bool {
    let Some(wanted) = HostPattern::parse(host) else { return false };
    offers.any(|offer: &GrantOffer| {
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

/// Returns the ports of a list, which may be empty.
fn ports(named: &[u16]) -> &[u16] {
    if named.is_empty() { &PORTS } else { named }
}

/// A proxy that can be opened.
pub(super) struct ResolvedProxy {
    pub(super) rules: GrantRules,
    pub(super) limits: HttpLimits,
}

impl ResolvedGrant for ResolvedProxy {
    fn variables(&self, port: u16) -> GrantVariables {
        let url = format!("http://{LOOPBACK}:{port}");
        let names = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
        let mut variables: GrantVariables = names.map(|name| (name, url.clone())).into();
        let near = format!("localhost,{LOOPBACK},::1");
        variables.extend(["NO_PROXY", "no_proxy"].map(|name| (name, near.clone())));
        variables
    }

    fn open(self: Box<Self>, context: OpenContext<'_>) -> Result<GrantListener, String> {
        let OpenContext { shared, tenant, holder, port, audit } = context;
        let proxy = ProxyContext {
            dialer: Arc::clone(&shared.dialer),
            lookups: Arc::clone(&tenant.lookups),
            account: shared.accounts.open(&holder, port),
            witness: audit,
            shows_queries: shared.config.now().audit_queries,
            fence: shared.fence.clone(),
            holder,
        };
        Ok(GrantListener::Stream(Arc::new(EgressProxy::new(self.rules, self.limits, proxy))))
    }
}
