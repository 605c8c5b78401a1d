//! Clients and grants, stored in SQLite and in PostgreSQL.

use axum::http::HeaderValue;
use node::auth::{NewToken, TokenScopes};
use node::store::{StoreConfig, StoreUrl};
use node::telemetry::Registry;
use testkit::{Postgres, Scratch};

mod identities;
mod objects;
mod polaris;

use iceberg::ident::Uuid;

use super::*;
use crate::service::ChangeCall;
use crate::store::{
    CatalogStore, ChangeContext, LogAction, NewRelation, Properties, RelationKind, WarehouseRow,
};
use crate::warehouse::WarehouseSpec;

struct AccessFixture {
    scratch: Scratch,
    url: StoreUrl,
    tokens: TokenRegistry,
}

impl AccessFixture {
    async fn access(&self) -> AccessControl {
        let config = StoreConfig::new(self.url.clone());
        let store = SqlStore::open(config, &mut Registry::default()).await.unwrap();
        AccessControl::open(store, self.tokens.clone(), AccessSettings::default()).await.unwrap()
    }

    async fn catalog(&self) -> CatalogStore {
        let config = StoreConfig::new(self.url.clone());
        let store = SqlStore::open(config, &mut Registry::default()).await.unwrap();
        CatalogStore::open(store).await.unwrap()
    }

    fn warehouse(&self) -> Warehouse {
        Warehouse::new(WarehouseSpec {
            id: "wh_1".to_owned(),
            name: "main".to_owned(),
            root: format!("file://{}/warehouse", self.scratch.path().display()),
            locations: Vec::new(),
            credentials: None,
            ..WarehouseSpec::default()
        })
        .unwrap()
    }
}

async fn check(claim: impl AsyncFn(&AccessFixture)) {
    let server = Postgres::shared();
    for is_shared in [false, true] {
        let scratch = Scratch::new();
        let tokens = TokenRegistry::open(scratch.path()).unwrap();
        let url = match is_shared {
            false => StoreUrl::Sqlite(scratch.path().join("db")),
            true => StoreUrl::Postgres(server.database()),
        };
        claim(&AccessFixture { scratch, url, tokens }).await;
    }
}

fn operator() -> CatalogPrincipal {
    CatalogPrincipal::operator("tenant:root", "root")
}

fn headers(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    headers.insert(header::AUTHORIZATION, value);
    headers
}

fn grant(principal: &str, namespace: Option<&str>, rights: &[AccessRight]) -> PrincipalGrant {
    PrincipalGrant {
        principal: principal.to_owned(),
        namespace: namespace.map(|it| NamespaceIdent::new([it]).unwrap()),
        name: None,
        rights: rights.iter().copied().collect(),
    }
}

fn context() -> ChangeContext {
    ChangeCall::of(&operator()).context(node::clock::wall_ms())
}

fn ident(name: &str) -> TableIdent {
    TableIdent::new(NamespaceIdent::new(["n"]).unwrap(), name).unwrap()
}

async fn make_namespace(catalog: &CatalogStore, name: &str) {
    if catalog.warehouses().list().await.unwrap().is_empty() {
        let (id, name) = ("wh_1".to_owned(), "main".to_owned());
        let root = "file:///w".to_owned();
        let row = WarehouseRow { id, name, root, created_ms: 1, storage: None };
        catalog.warehouses().insert_warehouse(row, Vec::new(), Properties::new()).await.unwrap();
    }
    let ident = NamespaceIdent::new([name]).unwrap();
    catalog
        .namespaces()
        .insert_namespace(&context(), "wh_1", &ident, &Properties::new())
        .await
        .unwrap();
}

async fn make_table(catalog: &CatalogStore, name: &str) {
    let new = NewRelation {
        ident: ident(name),
        kind: RelationKind::Table,
        uuid: Uuid::v4().unwrap().to_string(),
        base: format!("file:///w/{name}"),
        places: Vec::new(),
        location: format!("file:///w/{name}/1.metadata.json"),
        document: "{}".into(),
        act: LogAction::CreateTable,
    };
    catalog.relations().insert_relation(&context(), "wh_1", new).await.unwrap();
}

#[tokio::test]
async fn a_client_is_known_by_its_secret_on_every_server_until_it_goes() {
    check(async |fixture| {
        let (here, there) = (fixture.access().await, fixture.access().await);
        let made = here.clients().create_client(&operator(), "spark", false).await.unwrap();
        let (id, first) = (made.client.client_id.clone(), made.client_secret);
        for server in [&here, &there] {
            let token = server.tokens().token_for(&id, &first, None).await.unwrap().token;
            let who = server.identify(&headers(&token)).await.unwrap();
            assert_eq!((&*who.id, &*who.name), (&*made.client.principal, "spark"));
            assert!(!who.operator);
            let next = server.tokens().token_after(&token, None).await.unwrap().token;
            assert_ne!(next, token);
            // Grants made at one server are known at the other.
            for server in [&here, &there] {
                assert_eq!(server.identify(&headers(&next)).await.unwrap(), who);
            }
        }
        let token = here.tokens().token_for(&id, &first, None).await.unwrap().token;
        let own = here.identify(&headers(&token)).await.unwrap();
        let grace = Duration::from_secs(3600);
        let second = here.clients().rotate_client(&own, &id, grace).await.unwrap().client_secret;
        for secret in [&first, &second] {
            here.tokens().token_for(&id, secret, None).await.unwrap();
        }
        // Tokens of the replaced secret are valid until its grace period ends, including tokens
        // exchanged for them.
        let of_first = here.tokens().token_for(&id, &first, None).await.unwrap().token;
        let exchanged = there.tokens().token_after(&of_first, None).await.unwrap().token;
        let of_second = here.tokens().token_for(&id, &second, None).await.unwrap().token;
        for token in [&of_first, &exchanged, &of_second] {
            for server in [&here, &there] {
                assert_eq!(server.identify(&headers(token)).await.unwrap(), own);
            }
        }
        let third = here.clients().rotate_client(&operator(), &id, Duration::ZERO).await.unwrap();
        let last = here.tokens().token_for(&id, &third.client_secret, None).await.unwrap().token;
        for secret in [&first, &second, ""] {
            let refused = here.tokens().token_for(&id, secret, None).await.unwrap_err();
            assert_eq!(refused.kind, ErrorReason::NotAuthorized);
        }
        let stale = there.tokens().token_for(&id, &first, None).await.unwrap().token;
        there.reload().await.unwrap();
        let new = fixture.access().await;
        for token in [&token, &of_first, &exchanged, &of_second, &stale] {
            for server in [&here, &there, &new] {
                let refused = server.identify(&headers(token)).await.unwrap_err();
                assert_eq!(refused.kind, ErrorReason::NotAuthorized);
                let refused = server.tokens().token_after(token, None).await.unwrap_err();
                assert_eq!(refused.kind, ErrorReason::NotAuthorized);
            }
        }
        for server in [&here, &there, &new] {
            assert_eq!(server.identify(&headers(&last)).await.unwrap(), own);
        }
        let other = there.tokens().token_for(&id, &third.client_secret, None).await.unwrap().token;
        here.clients().delete_client(&operator(), &id).await.unwrap();
        there.reload().await.unwrap();
        for (server, token) in [(&here, last), (&there, other)] {
            let refused = server.identify(&headers(&token)).await.unwrap_err();
            assert_eq!(refused.kind, ErrorReason::NotAuthorized);
            let refused = server.tokens().token_after(&token, None).await.unwrap_err();
            assert_eq!(refused.kind, ErrorReason::NotAuthorized);
        }
        let gone = here.clients().delete_client(&operator(), &id).await.unwrap_err();
        assert_eq!(gone.kind, ErrorReason::NotFound);
    })
    .await;
}

#[tokio::test]
async fn nobody_gives_more_than_he_has() {
    check(async |fixture| {
        let (access, catalog) = (fixture.access().await, fixture.catalog().await);
        let warehouse = fixture.warehouse();
        for name in ["n", "m"] {
            make_namespace(&catalog, name).await;
        }
        let made = access.clients().create_client(&operator(), "etl", false).await.unwrap();
        let token = access.tokens().token_for(&made.client.client_id, &made.client_secret, None);
        let token = token.await.unwrap();
        let etl = access.identify(&headers(&token.token)).await.unwrap();
        let to_etl = grant(&etl.id, Some("n"), &[AccessRight::Write, AccessRight::Grant]);
        access.grant(&operator(), &warehouse, &to_etl).await.unwrap();

        for (namespace, right, expected) in [
            (Some("n"), AccessRight::Read, Ok(())),
            (Some("n"), AccessRight::Write, Ok(())),
            (Some("n"), AccessRight::Manage, Err(ErrorReason::Forbidden)),
            (Some("m"), AccessRight::Read, Err(ErrorReason::Forbidden)),
            (None, AccessRight::Read, Err(ErrorReason::Forbidden)),
        ] {
            let to_other = grant("tenant:bi", namespace, &[right]);
            let done = access.grant(&etl, &warehouse, &to_other).await;
            assert_eq!(done.map_err(|error| error.kind), expected, "{namespace:?} {right:?}");
        }
        let bi = CatalogPrincipal::new("tenant:bi", "bi");
        let namespace = NamespaceIdent::new(["n"]).unwrap();
        let may = |right| access.check(&bi, &warehouse, right, RightTarget::Namespace(&namespace));
        assert!(may(AccessRight::Write).is_ok() && may(AccessRight::Manage).is_err());
        let from_bi = grant("tenant:x", Some("n"), &[AccessRight::Read]);
        let refused = access.grant(&bi, &warehouse, &from_bi).await.unwrap_err();
        assert_eq!(refused.kind, ErrorReason::Forbidden);

        let back = grant("tenant:bi", Some("n"), &[AccessRight::Write]);
        access.revoke(&etl, &warehouse, &back).await.unwrap();
        assert!(may(AccessRight::Read).is_ok() && may(AccessRight::Write).is_err());
        let listed = access.grants(&operator(), &warehouse, Some("tenant:bi")).await.unwrap();
        assert_eq!(listed, [grant("tenant:bi", Some("n"), &[AccessRight::Read])]);
        let rest = grant("tenant:bi", Some("n"), &[AccessRight::Read]);
        access.revoke(&operator(), &warehouse, &rest).await.unwrap();
        assert!(may(AccessRight::Read).is_err());
        let again = access.revoke(&operator(), &warehouse, &rest).await.unwrap_err();
        assert_eq!(again.kind, ErrorReason::NotFound);
        access.clients().delete_client(&operator(), &made.client.client_id).await.unwrap();
        assert_eq!(access.grants(&operator(), &warehouse, None).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_token_of_the_server_is_its_tenant_where_it_is_for_the_catalog() {
    check(async |fixture| {
        let access = fixture.access().await;
        let secret = |operator, scope| {
            let scopes: TokenScopes = [scope].into_iter().collect();
            let new =
                NewToken { name: "t", operator, tenant: Some("team"), scopes, lifetime: None };
            fixture.tokens.create_as(&new).unwrap().1.expose()
        };
        let found = async |token: &str| {
            let who = access.identify(&headers(token)).await.map_err(|error| error.kind);
            who.map(|who| (who.id.to_string(), who.operator))
        };
        let team = "tenant:team".to_owned();
        assert_eq!(found(&secret(false, TokenScope::Catalog)).await, Ok((team.clone(), false)));
        assert_eq!(found(&secret(true, TokenScope::Catalog)).await, Ok((team, true)));
        assert_eq!(found(&secret(true, TokenScope::Sessions)).await, Err(ErrorReason::Forbidden));
        assert_eq!(found("cove_00").await, Err(ErrorReason::NotAuthorized));
        assert_eq!(found("cat_00").await, Err(ErrorReason::NotAuthorized));
        let nobody = access.identify(&HeaderMap::new()).await.unwrap_err();
        assert_eq!(nobody.kind, ErrorReason::NotAuthorized);
        let mut twice = headers("cat_00");
        twice.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer cat_01"));
        assert_eq!(access.identify(&twice).await.unwrap_err().kind, ErrorReason::NotAuthorized);
    })
    .await;
}
