//! Omissions of a backup by the configuration: data outside the data directory.

use node::store::StoreDialect;

use super::manifest::BackupOmission;
use crate::config::CoveConfig;

/// Returns the omissions, each with a way to keep its data.
pub(super) fn elsewhere(config: &CoveConfig, store: StoreDialect) -> Vec<BackupOmission> {
    let mut all = vec![omission(
        "the configuration: its file, and variables of the environment",
        "keep a copy of them",
    )];
    let mut add = |is_elsewhere: bool, what: &str, remedy: &str| {
        all.extend(is_elsewhere.then(|| omission(what, remedy)));
    };
    add(
        store == StoreDialect::Postgres,
        "the store, in PostgreSQL (`store.url`): executions, sessions, tenants, the catalog's \
         pointers and rights, tokens, the audit",
        "run `pg_dump` before this backup, and restore both",
    );
    add(
        store == StoreDialect::Sqlite && config.store.url.is_some(),
        "the place of the store (`store.url`): a restored one is `cove.sqlite` in the data directory",
        "move it to that place, or leave the setting out",
    );
    add(
        config.objects.url.is_some(),
        "objects (`objects.url`): files of agents, snapshots, attachments and sessions at rest",
        "copy the directory or the bucket after this backup; let a bucket keep deleted versions \
         for as long as this backup may be restored",
    );
    add(
        config.executions.jobs.redis.is_some(),
        "executions in Redis (`executions.jobs.redis`)",
        "back up Redis",
    );
    add(
        config.secrets_key.is_some(),
        "the key of secrets (`secrets_key`)",
        "keep it elsewhere: without it secrets in the store cannot be read",
    );
    add(
        config.executions.jobs.webhook_key.is_some(),
        "the key of webhooks (`executions.jobs.webhook_key`)",
        "keep it elsewhere: receivers refuse webhooks that are signed with another one",
    );
    let roots = config.catalog.root.iter().chain(&config.catalog.locations);
    let roots: Vec<&str> = roots.map(|it| it.split('?').next().unwrap_or_default()).collect();
    add(
        config.catalog.enabled && !roots.is_empty(),
        &format!("tables in places of the configuration: {}", roots.join(", ")),
        "copy what of it is not below the data directory after this backup",
    );
    all
}

fn omission(what: &str, remedy: &str) -> BackupOmission {
    BackupOmission { what: what.to_owned(), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Flags};

    #[test]
    fn what_the_configuration_puts_elsewhere_is_named() {
        let named = |variables: &[(&str, &str)], store| {
            let own = [("COVE_DATA_DIR", "/data")];
            let variables = own.iter().chain(variables);
            let variables = variables.map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            let environment = Environment::made_up(variables.collect());
            let config = CoveConfig::load(None, &environment, Flags::new()).unwrap();
            let all = elsewhere(&config, store);
            all.into_iter().map(|it| it.what).collect::<Vec<_>>().join("\n")
        };
        let usual = named(&[], StoreDialect::Sqlite);
        assert_eq!(usual.lines().count(), 1, "{usual}");
        let all = [
            ("COVE_OBJECTS__URL", "s3://bucket/x?secret_access_key=hidden"),
            ("COVE_EXECUTIONS__JOBS__REDIS", "redis://:hidden@r"),
            ("COVE_SECRETS_KEY", &*"0a".repeat(32)),
            ("COVE_EXECUTIONS__JOBS__WEBHOOK_KEY", &*"0b".repeat(32)),
            ("COVE_CATALOG__ROOT", "s3://lake/x?endpoint=http://hidden"),
        ];
        let text = named(&all, StoreDialect::Postgres);
        assert_eq!(text.lines().count(), 7, "{text}");
        for secret in ["hidden", "0a0a", "0b0b"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(text.contains("s3://lake/x"), "{text}");
    }
}
