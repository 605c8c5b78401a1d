//! Clients and grants, kept on SQLite and on PostgreSQL.

use axum::http::HeaderValue;
use node::auth::{NewToken, Scopes};
use node::store::{StoreConfig, StoreUrl};
use node::telemetry::Registry;
use testkit::{Postgres, Scratch};

use super::*;
use crate::warehouse::WarehouseSpec;

struct Ground {
    scratch: Scratch,
    url: StoreUrl,
    tokens: Tokens,
}

impl Ground {
    async fn access(&self) -> Access {
        let config = StoreConfig::new(self.url.clone());
        let store = Store::open(config, &mut Registry::default()).await.unwrap();
        Access::open(store, self.tokens.clone()).await.unwrap()
    }

    fn warehouse(&self) -> Warehouse {
        Warehouse::new(WarehouseSpec {
            id: "wh_1".to_owned(),
            name: "main".to_owned(),
            root: format!("file://{}/warehouse", self.scratch.path().display()),
            locations: Vec::new(),
            credentials: None,
        })
        .unwrap()
    }
}

async fn check(claim: impl AsyncFn(&Ground)) {
    let server = Postgres::shared();
    for is_shared in [false, true] {
        let scratch = Scratch::new();
        let tokens = Tokens::open(scratch.path()).unwrap();
        let url = match is_shared {
            false => StoreUrl::Sqlite(scratch.path().join("db")),
            true => StoreUrl::Postgres(server.database()),
        };
        claim(&Ground { scratch, url, tokens }).await;
    }
}

fn operator() -> Who {
    Who { id: "tenant:root".into(), name: "root".into(), operator: true }
}

fn headers(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    headers.insert(header::AUTHORIZATION, value);
    headers
}

fn grant(principal: &str, namespace: Option<&str>, rights: &[Right]) -> Grant {
    Grant {
        principal: principal.to_owned(),
        namespace: namespace.map(|it| NamespaceIdent::new([it]).unwrap()),
        name: None,
        rights: rights.iter().copied().collect(),
    }
}

#[tokio::test]
async fn a_client_is_known_by_its_secret_on_every_server_until_it_goes() {
    check(async |ground| {
        let (here, there) = (ground.access().await, ground.access().await);
        let made = here.create_client(&operator(), "spark", false).await.unwrap();
        let (id, first) = (made.client.client_id.clone(), made.client_secret);
        there.reload().await.unwrap();
        for server in [&here, &there] {
            let token = server.token_for(&id, &first).unwrap().token;
            let who = server.identify(&headers(&token)).unwrap();
            assert_eq!((&*who.id, &*who.name), (&*made.client.principal, "spark"));
            assert!(!who.operator);
            let next = server.token_after(&token).unwrap().token;
            assert!(next != token && server.identify(&headers(&next)).unwrap() == who);
        }
        let own = here.identify(&headers(&here.token_for(&id, &first).unwrap().token)).unwrap();
        let grace = Duration::from_secs(3600);
        let second = here.rotate_client(&own, &id, grace).await.unwrap().client_secret;
        for secret in [&first, &second] {
            here.token_for(&id, secret).unwrap();
        }
        let third = here.rotate_client(&operator(), &id, Duration::ZERO).await.unwrap();
        let last = here.token_for(&id, &third.client_secret).unwrap().token;
        for secret in [&first, &second, ""] {
            let refused = here.token_for(&id, secret).unwrap_err();
            assert_eq!(refused.kind, Kind::NotAuthorized);
        }
        let other = there.token_for(&id, &first).unwrap().token;
        here.delete_client(&operator(), &id).await.unwrap();
        there.reload().await.unwrap();
        for (server, token) in [(&here, last), (&there, other)] {
            assert_eq!(server.identify(&headers(&token)).unwrap_err().kind, Kind::NotAuthorized);
            assert_eq!(server.token_after(&token).unwrap_err().kind, Kind::NotAuthorized);
        }
        let gone = here.delete_client(&operator(), &id).await.unwrap_err();
        assert_eq!(gone.kind, Kind::NotFound);
    })
    .await;
}

#[tokio::test]
async fn nobody_gives_more_than_he_has() {
    check(async |ground| {
        let access = ground.access().await;
        let warehouse = ground.warehouse();
        let made = access.create_client(&operator(), "etl", false).await.unwrap();
        let token = access.token_for(&made.client.client_id, &made.client_secret).unwrap();
        let etl = access.identify(&headers(&token.token)).unwrap();
        let to_etl = grant(&etl.id, Some("n"), &[Right::Write, Right::Grant]);
        access.grant(&operator(), &warehouse, &to_etl).await.unwrap();

        for (namespace, right, expected) in [
            (Some("n"), Right::Read, Ok(())),
            (Some("n"), Right::Write, Ok(())),
            (Some("n"), Right::Manage, Err(Kind::Forbidden)),
            (Some("m"), Right::Read, Err(Kind::Forbidden)),
            (None, Right::Read, Err(Kind::Forbidden)),
        ] {
            let to_other = grant("tenant:bi", namespace, &[right]);
            let done = access.grant(&etl, &warehouse, &to_other).await;
            assert_eq!(done.map_err(|error| error.kind), expected, "{namespace:?} {right:?}");
        }
        let bi = Who { id: "tenant:bi".into(), name: "bi".into(), operator: false };
        let namespace = NamespaceIdent::new(["n"]).unwrap();
        let may = |right| access.check(&bi, &warehouse, right, Object::Namespace(&namespace));
        assert!(may(Right::Write).is_ok() && may(Right::Manage).is_err());
        let from_bi = grant("tenant:x", Some("n"), &[Right::Read]);
        let refused = access.grant(&bi, &warehouse, &from_bi).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Forbidden);

        let back = grant("tenant:bi", Some("n"), &[Right::Write]);
        access.revoke(&etl, &warehouse, &back).await.unwrap();
        assert!(may(Right::Read).is_ok() && may(Right::Write).is_err());
        let listed = access.grants(&operator(), &warehouse, Some("tenant:bi")).await.unwrap();
        assert_eq!(listed, [grant("tenant:bi", Some("n"), &[Right::Read])]);
        let rest = grant("tenant:bi", Some("n"), &[Right::Read]);
        access.revoke(&operator(), &warehouse, &rest).await.unwrap();
        assert!(may(Right::Read).is_err());
        let again = access.revoke(&operator(), &warehouse, &rest).await.unwrap_err();
        assert_eq!(again.kind, Kind::NotFound);
        access.delete_client(&operator(), &made.client.client_id).await.unwrap();
        assert_eq!(access.grants(&operator(), &warehouse, None).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_token_of_the_server_is_its_tenant_where_it_is_for_the_catalog() {
    check(async |ground| {
        let access = ground.access().await;
        let secret = |operator, scope| {
            let scopes: Scopes = [scope].into_iter().collect();
            let new = NewToken { name: "t", operator, tenant: Some("team"), scopes };
            ground.tokens.create_as(&new).unwrap().1.expose()
        };
        let found = |token: &str| {
            let who = access.identify(&headers(token)).map_err(|error| error.kind);
            who.map(|who| (who.id.to_string(), who.operator))
        };
        let team = "tenant:team".to_owned();
        assert_eq!(found(&secret(false, Scope::Catalog)), Ok((team.clone(), false)));
        assert_eq!(found(&secret(true, Scope::Catalog)), Ok((team, true)));
        assert_eq!(found(&secret(true, Scope::Sessions)), Err(Kind::Forbidden));
        assert_eq!(found("cove_00"), Err(Kind::NotAuthorized));
        assert_eq!(found("cat_00"), Err(Kind::NotAuthorized));
        let nobody = access.identify(&HeaderMap::new()).unwrap_err();
        assert_eq!(nobody.kind, Kind::NotAuthorized);
        let mut twice = headers("cat_00");
        twice.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer cat_01"));
        assert_eq!(access.identify(&twice).unwrap_err().kind, Kind::NotAuthorized);
    })
    .await;
}
