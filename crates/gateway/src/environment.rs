//! Environment variables that clients inside look for. The first grant of a kind sets it. Pure.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/libpq-envars.html>
//! - <https://dev.mysql.com/doc/refman/8.4/en/environment-variables.html>

use std::collections::BTreeMap;

use api::{CatalogGrant, Grant};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::doors::DatabaseFacts;

/// Address of all services inside.
const LOOPBACK: &str = "127.0.0.1";

/// Placeholder of the key that clients of the model insist on; it opens nothing.
const PLACEHOLDER_KEY: &str = "provided-by-cove";

/// Characters that need no encoding in a part of an address.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The variables that these grants need, each with what is known of its database.
pub(crate) fn environment(grants: &[(&Grant, Option<&DatabaseFacts>)]) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let databases = grants.iter().filter(|(_, facts)| facts.is_some()).count();
    for (grant, facts) in grants {
        let of_it = match (grant, facts) {
            (Grant::Postgres(_), Some(facts)) => postgres(grant.port(), facts),
            (Grant::Mysql(_), Some(facts)) => mysql(grant.port(), facts),
            (Grant::Catalog(it), _) => catalog(grant.port(), it),
            (Grant::Http(_), _) => proxy(grant.port()),
            (Grant::Model(_), _) => model(grant.port()),
            (Grant::Postgres(_) | Grant::Mysql(_), None) => Vec::new(),
        };
        // Those of one kind are set together or not at all.
        if of_it.iter().any(|(name, _)| variables.contains_key(*name)) {
            continue;
        }
        variables.extend(of_it.into_iter().map(|(name, value)| (name.to_owned(), value)));
        if let (1, Some(facts)) = (databases, facts) {
            variables.insert("DATABASE_URL".to_owned(), database_url(grant, facts));
        }
    }
    variables
}

type Variables = Vec<(&'static str, String)>;

fn postgres(port: u16, facts: &DatabaseFacts) -> Variables {
    vec![
        ("PGHOST", LOOPBACK.to_owned()),
        ("PGPORT", port.to_string()),
        ("PGDATABASE", facts.database.clone()),
        ("PGUSER", facts.user.clone()),
        // The connection does not leave the machine, and the other end has no certificate.
        ("PGSSLMODE", "disable".to_owned()),
        ("PGGSSENCMODE", "disable".to_owned()),
        ("PGAPPNAME", "cove".to_owned()),
    ]
}

fn mysql(port: u16, facts: &DatabaseFacts) -> Variables {
    vec![
        ("MYSQL_HOST", LOOPBACK.to_owned()),
        ("MYSQL_TCP_PORT", port.to_string()),
        ("MYSQL_USER", facts.user.clone()),
        ("MYSQL_DATABASE", facts.database.clone()),
    ]
}

fn database_url(grant: &Grant, facts: &DatabaseFacts) -> String {
    let (scheme, end) = match grant {
        Grant::Mysql(_) => ("mysql", ""),
        _ => ("postgresql", "?sslmode=disable"),
    };
    let part = |text: &str| utf8_percent_encode(text, PART).to_string();
    let (user, database) = (part(&facts.user), part(&facts.database));
    format!("{scheme}://{user}@{LOOPBACK}:{}/{database}{end}", grant.port())
}

fn catalog(port: u16, grant: &CatalogGrant) -> Variables {
    vec![
        ("PYICEBERG_CATALOG__DEFAULT__TYPE", "rest".to_owned()),
        ("PYICEBERG_CATALOG__DEFAULT__URI", format!("http://{LOOPBACK}:{port}")),
        ("PYICEBERG_CATALOG__DEFAULT__WAREHOUSE", grant.warehouse.clone()),
    ]
}

fn proxy(port: u16) -> Variables {
    let url = format!("http://{LOOPBACK}:{port}");
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
    let mut list: Variables = names.map(|name| (name, url.clone())).into();
    let near = format!("localhost,{LOOPBACK},::1");
    list.extend(["NO_PROXY", "no_proxy"].map(|name| (name, near.clone())));
    list
}

fn model(port: u16) -> Variables {
    vec![
        ("ANTHROPIC_BASE_URL", format!("http://{LOOPBACK}:{port}")),
        ("ANTHROPIC_API_KEY", PLACEHOLDER_KEY.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(json: &str) -> Grant {
        serde_json::from_str(json).unwrap()
    }

    fn facts(database: &str) -> DatabaseFacts {
        DatabaseFacts { database: database.to_owned(), user: "a b".to_owned() }
    }

    #[test]
    fn the_first_of_a_kind_is_what_clients_find() {
        let shop = grant(r#"{"kind": "postgres", "tenant": "shop"}"#);
        let books = grant(r#"{"kind": "postgres", "tenant": "books", "port": 5433}"#);
        let judge = grant(r#"{"kind": "mysql", "tenant": "judge"}"#);
        let (one, two, three) = (facts("shop"), facts("books"), facts("judge"));
        let all = environment(&[(&shop, Some(&one)), (&books, Some(&two)), (&judge, Some(&three))]);
        let get = |name: &str| all.get(name).map(String::as_str);
        assert_eq!(get("PGDATABASE"), Some("shop"));
        assert_eq!(get("PGPORT"), Some("5432"));
        assert_eq!(get("PGHOST"), Some("127.0.0.1"));
        assert_eq!(get("PGSSLMODE"), Some("disable"));
        assert_eq!(get("MYSQL_TCP_PORT"), Some("3306"));
        assert_eq!(get("MYSQL_DATABASE"), Some("judge"));
        assert_eq!(get("DATABASE_URL"), None);

        let one = environment(&[(&books, Some(&facts("a/b")))]);
        let url = "postgresql://a%20b@127.0.0.1:5433/a%2Fb?sslmode=disable";
        assert_eq!(one["DATABASE_URL"], url);
        let one = environment(&[(&judge, Some(&three))]);
        assert_eq!(one["DATABASE_URL"], "mysql://a%20b@127.0.0.1:3306/judge");
    }

    #[test]
    fn every_kind_has_its_variables() {
        let lake = grant(r#"{"kind": "catalog", "warehouse": "lake"}"#);
        let http = grant(r#"{"kind": "http", "rules": [], "port": 9000}"#);
        let model = grant(r#"{"kind": "model"}"#);
        let all = environment(&[(&lake, None), (&http, None), (&model, None)]);
        assert_eq!(all["PYICEBERG_CATALOG__DEFAULT__URI"], "http://127.0.0.1:8181");
        assert_eq!(all["PYICEBERG_CATALOG__DEFAULT__WAREHOUSE"], "lake");
        assert_eq!(all["https_proxy"], "http://127.0.0.1:9000");
        assert_eq!(all["NO_PROXY"], "localhost,127.0.0.1,::1");
        assert!(!all.contains_key("ALL_PROXY"));
        assert_eq!(all["ANTHROPIC_BASE_URL"], "http://127.0.0.1:8100");
        assert!(environment(&[]).is_empty());
    }
}
