//! Tests of user lookups, with a real server.

use api::{AuthQuerySpec, TenantSpec};
use testkit::Postgres;

use super::*;
use crate::config::BouncerConfig;
use crate::tenants::{SharedSettings, TenantDefinition, TenantRegistry};

const KEPT_LONG: Duration = Duration::from_secs(3600);

fn tenant(postgres: &Postgres, query: AuthQuerySpec) -> Arc<TenantSnapshot> {
    let server = format!("{}:{}", postgres.socket_directory().display(), postgres.port());
    let spec = TenantSpec {
        name: "postgres".to_owned(),
        server,
        auth_query: Some(query),
        ..TenantSpec::default()
    };
    let definitions = [TenantDefinition::of_api(spec).expect("a definition")];
    let routing = TenantRegistry::default()
        .build(&SharedSettings::new(&BouncerConfig::default()), &definitions);
    Arc::clone(routing.expect("a routing").named("postgres").expect("the tenant"))
}

fn by(user: &str) -> AuthQuerySpec {
    AuthQuerySpec { user: user.to_owned(), ..AuthQuerySpec::default() }
}

fn queries(kept: Duration) -> Arc<AuthQueries> {
    let queries = AuthQueries::new(Arc::default(), kept);
    Arc::new(AuthQueries { doubted_after: Duration::ZERO, ..queries })
}

async fn found(
    queries: &Arc<AuthQueries>,
    tenant: &TenantSnapshot,
    user: &str,
) -> Result<String, String> {
    match queries.look_up(tenant, user).await {
        Ok(Some(secret)) => Ok(secret.expose().to_owned()),
        Ok(None) => Ok("nobody".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn ok(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

#[tokio::test]
async fn the_query_that_comes_with_us_finds_who_may_log_in() {
    let postgres = Postgres::start();
    postgres.sql(
        "CREATE ROLE alice LOGIN PASSWORD 'x'; CREATE ROLE free LOGIN; \
         CREATE ROLE late LOGIN PASSWORD 'x' VALID UNTIL '2020-01-01'; \
         CREATE ROLE soon LOGIN PASSWORD 'x' VALID UNTIL 'infinity'; \
         CREATE ROLE crowd PASSWORD 'x'; \
         CREATE ROLE \"o'dd\" LOGIN PASSWORD 'x'",
    );
    let stored =
        |name| postgres.sql(&format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{name}'"));
    let (queries, tenant) = (queries(KEPT_LONG), tenant(&postgres, by("postgres")));
    for (user, expected) in [
        ("alice", stored("alice")),
        ("soon", stored("soon")),
        ("o'dd", stored("o''dd")),
        ("free", String::new()),
        ("late", String::new()),
        ("crowd", "nobody".to_owned()),
        ("missing", "nobody".to_owned()),
        ("", "nobody".to_owned()),
        (&"x".repeat(256), "nobody".to_owned()),
        ("' OR true --", "nobody".to_owned()),
    ] {
        assert_eq!(found(&queries, &tenant, user).await, Ok(expected), "{user}");
    }
    let looker = "clients cannot log in as the role of `auth_query`";
    assert_eq!(found(&queries, &tenant, "postgres").await, Err(looker.to_owned()));
}

#[tokio::test]
async fn answers_are_remembered_and_forgotten() {
    let postgres = Postgres::start();
    postgres
        .sql("CREATE TABLE users (name text, secret text); INSERT INTO users VALUES ('a', '1')");
    let spec = AuthQuerySpec {
        query: Some("SELECT name, secret FROM public.users WHERE name = $1".to_owned()),
        ..by("postgres")
    };
    let (queries, tenant) = (queries(KEPT_LONG), tenant(&postgres, spec));
    assert_eq!(found(&queries, &tenant, "a").await, ok("1"));
    postgres.sql("UPDATE users SET secret = '2'");
    assert_eq!(found(&queries, &tenant, "a").await, ok("1"));
    queries.doubt(tenant.id, "a");
    assert_eq!(found(&queries, &tenant, "a").await, ok("2"));

    // All lookups use one connection, and another one after that was closed.
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cove auth_query'";
    assert_eq!(postgres.sql(count), "1");
    postgres.sql("UPDATE users SET secret = '3'");
    postgres.cut_connections();
    queries.doubt(tenant.id, "a");
    assert_eq!(found(&queries, &tenant, "a").await, ok("3"));

    // The tenant's new server may have another answer.
    postgres.sql("UPDATE users SET secret = '4'");
    tenant.state.next_epoch();
    assert_eq!(found(&queries, &tenant, "a").await, ok("4"));

    let at_once = self::queries(Duration::ZERO);
    assert_eq!(found(&at_once, &tenant, "a").await, ok("4"));
    postgres.sql("UPDATE users SET secret = '5'");
    assert_eq!(found(&at_once, &tenant, "a").await, ok("5"));
}

#[tokio::test]
async fn whoever_guesses_does_not_make_us_ask() {
    let postgres = Postgres::start();
    postgres
        .sql("CREATE TABLE users (name text, secret text); INSERT INTO users VALUES ('a', '1')");
    let spec = AuthQuerySpec {
        query: Some("SELECT name, secret FROM public.users WHERE name = $1".to_owned()),
        ..by("postgres")
    };
    let tenant = tenant(&postgres, spec);
    let queries = Arc::new(AuthQueries::new(Arc::default(), KEPT_LONG));
    assert_eq!(found(&queries, &tenant, "a").await, ok("1"));
    postgres.sql("UPDATE users SET secret = '2'");
    queries.doubt(tenant.id, "a");
    assert_eq!(found(&queries, &tenant, "a").await, ok("1"));
}

#[tokio::test]
async fn a_flood_of_names_is_one_connection() {
    let postgres = Postgres::start();
    postgres.sql("CREATE ROLE alice LOGIN PASSWORD 'x'");
    let (queries, tenant) = (queries(KEPT_LONG), tenant(&postgres, by("postgres")));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..50 {
        let (queries, tenant) = (Arc::clone(&queries), Arc::clone(&tenant));
        tasks.spawn(async move {
            let name = if number % 2 == 0 { "alice".to_owned() } else { format!("n{number}") };
            found(&queries, &tenant, &name).await.expect("an answer")
        });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| *answer != "nobody").count(), 25);
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cove auth_query'";
    assert_eq!(postgres.sql(count), "1");
}

#[tokio::test]
async fn what_is_no_answer_is_said() {
    let postgres = Postgres::start();
    let with = |query: &str| AuthQuerySpec { query: Some(query.to_owned()), ..by("postgres") };
    for (spec, expected) in [
        (with("SELECT $1::text"), Err("`auth_query` must return a row with a name and a secret")),
        (with("SELECT $1::text || 'x', 'y'"), Ok("nobody")),
        (with("SELECT NULL, 'y' WHERE $1 = 'a'"), Ok("y")),
        (with("SELECT $1::text, ''"), Ok("")),
        (
            with("SELECT 1 / 0, $1::text"),
            Err("run `auth_query` at the server: division by zero (22012)"),
        ),
        (
            by("missing"),
            Err("run `auth_query` at the server: log in to the server: role \"missing\" \
                 does not exist"),
        ),
    ] {
        let tenant = tenant(&postgres, spec);
        let answer = found(&queries(KEPT_LONG), &tenant, "a").await;
        assert_eq!(answer, expected.map(str::to_owned).map_err(str::to_owned));
    }
}
