//! Network access of builds: the operator's mirrors, through the gateway's proxy. Pure.

use std::collections::BTreeMap;

use api::{Grant, HttpGrant, HttpRule};
use axum::http::Uri;

use crate::config::TemplatesConfig;
use crate::error::SessionError;

/// Environment of every step. Packages are installed into the user's own directories; caches go to
/// `/tmp`, so that no layer contains them.
const OF_STEPS: [(&str, &str); 13] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_CACHE_DIR", "1"),
    ("PIP_NO_INPUT", "1"),
    ("UV_CACHE_DIR", "/tmp/uv"),
    // As pip does; otherwise every execution would compile its imports again.
    ("UV_COMPILE_BYTECODE", "1"),
    ("UV_NO_PROGRESS", "1"),
    ("UV_PYTHON_DOWNLOADS", "never"),
    ("npm_config_audit", "false"),
    ("npm_config_cache", "/tmp/npm"),
    ("npm_config_prefix", "/home/user/.local"),
    ("npm_config_update_notifier", "false"),
];
/// Environment of steps without network access, so that they fail at once.
const WITHOUT_NETWORK: [(&str, &str); 2] =
    [("PIP_RETRIES", "0"), ("npm_config_fetch_retries", "0")];

/// Network access of builds, with the variables that use it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BuildNetwork {
    /// Grants of a step's sandbox.
    pub(crate) grants: Vec<Grant>,
    /// Environment of a step, in addition to that of the grants.
    pub(crate) env: BTreeMap<String, String>,
}

/// Derives the access from the settings.
///
/// # Errors
/// Names the invalid setting.
pub(crate) fn network(config: &TemplatesConfig) -> Result<BuildNetwork, SessionError> {
    let mut rules: Vec<HttpRule> = Vec::new();
    let mut add = |host: &str, port: Option<u16>| {
        let rule = HttpRule {
            hosts: vec![host.to_owned()],
            ports: port.into_iter().collect(),
            internal: config.internal.clone(),
            ..HttpRule::default()
        };
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    };
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut env: BTreeMap<String, String> = OF_STEPS.iter().map(owned).collect();
    if let Some(index) = &config.pip_index {
        let (host, port, is_plain) = address(index, "sessions.templates.pip_index")?;
        add(&host, Some(port));
        for name in ["PIP_INDEX_URL", "UV_DEFAULT_INDEX"] {
            env.insert(name.to_owned(), index.clone());
        }
        if is_plain {
            env.insert("PIP_TRUSTED_HOST".to_owned(), format!("{host}:{port}"));
        }
    }
    if let Some(registry) = &config.npm_registry {
        let (host, port, _) = address(registry, "sessions.templates.npm_registry")?;
        add(&host, Some(port));
        env.insert("npm_config_registry".to_owned(), registry.clone());
    }
    for host in &config.hosts {
        match host.rsplit_once(':').map(|(name, port)| (name, port.parse())) {
            Some((name, Ok(port))) => add(name, Some(port)),
            Some((_, Err(_))) => {
                let message = format!("`{host}` must be a host, or `host:port`");
                return Err(SessionError::invalid("sessions.templates.hosts", message));
            }
            None => add(host, None),
        }
    }
    if rules.is_empty() {
        env.extend(WITHOUT_NETWORK.iter().map(owned));
        return Ok(BuildNetwork { grants: Vec::new(), env });
    }
    let grants = vec![Grant::Http(HttpGrant { rules, ..HttpGrant::default() })];
    Ok(BuildNetwork { grants, env })
}

/// Returns host and port of a URL, and whether it is reached without TLS.
fn address(text: &str, setting: &str) -> Result<(String, u16, bool), SessionError> {
    let wrong = || {
        let message =
            format!("`{text}` must be an address such as `https://pypi.example.com/simple`");
        SessionError::invalid(setting, message)
    };
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let is_plain = match uri.scheme_str() {
        Some("http") => true,
        Some("https") => false,
        _ => return Err(wrong()),
    };
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    // Rejects credentials before an `@`, which every step could read.
    if uri.authority().is_some_and(|it| it.as_str().contains('@')) {
        return Err(wrong());
    }
    Ok((host.to_owned(), uri.port_u16().unwrap_or(if is_plain { 80 } else { 443 }), is_plain))
}

#[cfg(test)]
mod tests {
    //! Settings, and the resulting access.

    use super::*;

    #[test]
    fn mirrors_are_a_grant_and_variables_and_nothing_is_reached_without() {
        let none = network(&TemplatesConfig::default()).unwrap();
        assert!(none.grants.is_empty());
        assert_eq!(none.env["PIP_RETRIES"], "0");
        let config = TemplatesConfig {
            pip_index: Some("http://pip.internal:8080/simple".to_owned()),
            npm_registry: Some("https://npm.internal".to_owned()),
            hosts: vec!["github.com".to_owned(), "files.internal:8443".to_owned()],
            ..TemplatesConfig::default()
        };
        let found = network(&config).unwrap();
        assert_eq!(found.env["PIP_TRUSTED_HOST"], "pip.internal:8080");
        assert_eq!(found.env["npm_config_registry"], "https://npm.internal");
        let [Grant::Http(grant)] = &*found.grants else { panic!("{found:?}") };
        let shown: Vec<_> =
            grant.rules.iter().map(|rule| (rule.hosts[0].as_str(), &*rule.ports)).collect();
        let expected: [(&str, &[u16]); 4] = [
            ("pip.internal", &[8080]),
            ("npm.internal", &[443]),
            ("github.com", &[]),
            ("files.internal", &[8443]),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn settings_that_are_no_addresses_are_refused() {
        for wrong in [
            "pypi.example.com",
            "ftp://pypi.example.com",
            "https://",
            "https://user:key@pypi.example.com/simple",
        ] {
            let config =
                TemplatesConfig { pip_index: Some(wrong.to_owned()), ..TemplatesConfig::default() };
            assert!(network(&config).is_err(), "{wrong}");
        }
        let hosts = vec!["a:b".to_owned()];
        assert!(network(&TemplatesConfig { hosts, ..TemplatesConfig::default() }).is_err());
    }
}
