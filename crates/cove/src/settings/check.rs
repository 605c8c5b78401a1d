//! Checks that a server could start with a configuration whose values are individually valid: finds
//! settings that contradict each other, missing files, and references to secrets that cannot be
//! resolved.
//!
//! It uses the functions with which the services start. It opens no store, does not listen and
//! creates no file.

use crate::config::{self, CoveConfig, Environment};
use crate::storage::{self, objects};
use crate::{bouncer, catalog, cluster, gateway, serve, sessions, traces};

/// Returns all problems, each as a setting and a message.
pub(crate) fn contradictions(
    config: &CoveConfig,
    environment: &Environment,
) -> Vec<(String, String)> {
    let mut found = FoundContradictions(Vec::new());
    found.note("tls.cert", config.tls.listener());
    let data_dir = &config.data_dir;
    let store = found.note("store.url", storage::store_config(config, environment, data_dir));
    found.note("objects.url", objects::check(config, environment));
    if let Some(store) = store {
        found.note("cluster.listen", cluster::check(config, &store.url));
    }
    let jobs = &config.executions.jobs;
    if let Some(url) = &jobs.redis {
        let key = "executions.jobs.redis";
        found.note(key, config::resolve(key, url, environment));
    }
    // Without a configured key, the data directory's is used, which this call would create.
    if jobs.webhook_key.is_some() {
        let key = storage::webhook_key(config, environment, data_dir);
        found.note("executions.jobs.webhook_key", key);
    }
    if config.secrets_key.is_some() {
        found.note("secrets_key", objects::secrets_key(config, environment, data_dir));
    }
    found.note("executions.limits", config.executions.check(crate::host::capacity()));
    let key = sessions::model_key(config, environment);
    if found.note("sessions.model.api_key", key).is_some() {
        found.note("sessions.model.url", gateway::check_model(config, environment));
    }
    if config.sessions.claude.is_some() {
        found.note("sessions.claude", sessions::claude_program(config, environment));
    }
    if config.bouncer.enabled {
        for (key, message) in bouncer::contradictions(config, environment) {
            found.add(&key, &message);
        }
    }
    if config.catalog.enabled {
        found.note("catalog.root", catalog::check(config, environment, data_dir));
    }
    found.note("gateway", config.gateway.check().map_err(anyhow::Error::msg));
    for (name, text) in &config.gateway.secrets.0 {
        let key = format!("gateway.secrets.{name}");
        found.note(&key, config::resolve(&key, text, environment));
    }
    found.note("telemetry", traces::check(config, environment));
    found.note("auth.issuers", node::auth::check_issuers(config.auth.issuers.clone()));
    found.note("mcp.resource", serve::mcp_endpoint(config));
    found.0
}

struct FoundContradictions(Vec<(String, String)>);

impl FoundContradictions {
    /// Records an error of `key`, and returns the value if there is none.
    fn note<T, E: Into<anyhow::Error>>(&mut self, key: &str, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(key, &format!("{:#}", error.into()));
                None
            }
        }
    }

    /// Adds a message, which may begin with its own setting.
    fn add(&mut self, key: &str, message: &str) {
        let (key, message) = match message.split_once(": ") {
            Some((own, rest)) if config::is_setting(own) => (own, rest),
            _ => (key, message),
        };
        self.0.push((key.to_owned(), message.to_owned()));
    }
}
