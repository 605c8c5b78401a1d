//! Environments of sandboxes, by the kinds of their grants.

use crate::config::NamedSecrets;
use crate::doors::DatabaseFacts;
use crate::egress::rules::GrantRules;
use crate::environment::environment;

use super::*;

fn database(engine: TenantEngine, database: &str) -> Box<dyn ResolvedGrant> {
    let facts = DatabaseFacts { database: database.to_owned(), user: "a b".to_owned() };
    Box::new(database::ResolvedDatabase {
        engine,
        grant: api::DatabaseGrant::default(),
        limits: api::DatabaseGrantLimits::default(),
        facts,
    })
}

#[test]
fn the_first_of_a_kind_is_what_clients_find() {
    let shop = database(TenantEngine::Postgres, "shop");
    let books = database(TenantEngine::Postgres, "books");
    let judge = database(TenantEngine::Mysql, "judge");
    let all = environment(&[(5432, &*shop), (5433, &*books), (3306, &*judge)]);
    let get = |name: &str| all.get(name).map(String::as_str);
    assert_eq!(get("PGDATABASE"), Some("shop"));
    assert_eq!(get("PGPORT"), Some("5432"));
    assert_eq!(get("PGHOST"), Some("127.0.0.1"));
    assert_eq!(get("PGSSLMODE"), Some("disable"));
    assert_eq!(get("MYSQL_TCP_PORT"), Some("3306"));
    assert_eq!(get("MYSQL_DATABASE"), Some("judge"));
    assert_eq!(get("DATABASE_URL"), None);

    let one = environment(&[(5433, &*database(TenantEngine::Postgres, "a/b"))]);
    let url = "postgresql://a%20b@127.0.0.1:5433/a%2Fb?sslmode=disable";
    assert_eq!(one["DATABASE_URL"], url);
    let one = environment(&[(3306, &*judge)]);
    assert_eq!(one["DATABASE_URL"], "mysql://a%20b@127.0.0.1:3306/judge");
}

#[test]
fn every_kind_has_its_variables() {
    let warehouse = api::CatalogGrant { warehouse: "lake".to_owned(), ..Default::default() };
    let lake = catalog::ResolvedWarehouse(warehouse);
    let rule = api::HttpRule { hosts: vec!["example.com".to_owned()], ..Default::default() };
    let rules = GrantRules::new(&[rule], &NamedSecrets::default()).unwrap();
    let proxy = http::ResolvedProxy { rules, limits: crate::config::HttpLimits::default() };
    let model = model::ResolvedModel(api::ModelGrant::default());
    let all = environment(&[(8181, &lake), (9000, &proxy), (8100, &model)]);
    assert_eq!(all["PYICEBERG_CATALOG__DEFAULT__URI"], "http://127.0.0.1:8181");
    assert_eq!(all["PYICEBERG_CATALOG__DEFAULT__WAREHOUSE"], "lake");
    assert_eq!(all["https_proxy"], "http://127.0.0.1:9000");
    assert_eq!(all["NO_PROXY"], "localhost,127.0.0.1,::1");
    assert!(!all.contains_key("ALL_PROXY"));
    assert_eq!(all["ANTHROPIC_BASE_URL"], "http://127.0.0.1:8100");
    assert!(!all.contains_key("DATABASE_URL"));
    assert!(environment(&[]).is_empty());
}
