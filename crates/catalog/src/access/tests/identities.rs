//! API keys, roles, and revoked tokens.

use super::*;

#[tokio::test]
async fn an_api_key_is_its_client_until_it_ends_or_goes() {
    check(async |fixture| {
        let (here, there) = (fixture.access().await, fixture.access().await);
        let client = here.clients().create_client(&operator(), "spark", true).await.unwrap().client;
        let id = &*client.client_id;
        let hour = Some(Duration::from_secs(3600));
        let made = here.api_keys().create_key(&operator(), id, "ci", hour).await.unwrap();
        assert!(made.key.starts_with(KEY_PREFIX) && made.record.expires.is_some());
        for server in [&here, &there] {
            let who = server.identify(&headers(&made.key)).await.unwrap();
            assert_eq!((&*who.id, who.operator), (&*client.principal, true));
        }
        // The time of use is known at the server that saw it and, soon, at the others.
        let used = |server: &AccessControl| {
            server.api_keys().keys(&operator(), id).unwrap()[0].last_used.clone()
        };
        assert!(used(&here).is_some());
        here.tidy().await.unwrap();
        assert_eq!(used(&fixture.access().await), used(&here));

        // A key cannot create other secrets of its client, even if the client is an operator.
        let plain = here.clients().create_client(&operator(), "etl", false).await.unwrap();
        let own = here
            .api_keys()
            .create_key(&operator(), &plain.client.client_id, "a", None)
            .await
            .unwrap();
        let by_key = here.identify(&headers(&own.key)).await.unwrap();
        let refused = here.api_keys().create_key(&by_key, &plain.client.client_id, "b", None).await;
        assert_eq!(refused.unwrap_err().kind, ErrorReason::Forbidden);
        let (other, secret) = (&plain.client.client_id, &plain.client_secret);
        let token = here.tokens().token_for(other, secret, None).await.unwrap().token;
        let by_token = here.identify(&headers(&token)).await.unwrap();
        here.api_keys().create_key(&by_token, other, "b", None).await.unwrap();
        assert_eq!(here.api_keys().keys(&by_token, other).unwrap().len(), 2);
        let refused = here.api_keys().keys(&by_token, id).unwrap_err();
        assert_eq!(refused.kind, ErrorReason::Forbidden);

        let key_id = &*made.record.key_id;
        let next = here
            .api_keys()
            .rotate_key(&operator(), id, key_id, Duration::from_secs(60))
            .await
            .unwrap();
        for key in [&made.key, &next.key] {
            here.identify(&headers(key)).await.unwrap();
        }
        let last =
            here.api_keys().rotate_key(&operator(), id, key_id, Duration::ZERO).await.unwrap();
        there.reload().await.unwrap();
        for server in [&here, &there] {
            for (key, is_good) in [(&made.key, false), (&next.key, false), (&last.key, true)] {
                let found = server.identify(&headers(key)).await.map_err(|error| error.kind);
                assert_eq!(found.is_ok(), is_good, "{found:?}");
            }
        }
        // A key cannot be reached by another client's path.
        let elsewhere = here.api_keys().delete_key(&operator(), other, key_id).await.unwrap_err();
        assert_eq!(elsewhere.kind, ErrorReason::NotFound);
        here.api_keys().delete_key(&operator(), id, key_id).await.unwrap();
        there.reload().await.unwrap();
        for server in [&here, &there] {
            let gone = server.identify(&headers(&last.key)).await.unwrap_err();
            assert_eq!(gone.kind, ErrorReason::NotAuthorized);
        }
        here.clients().delete_client(&operator(), other).await.unwrap();
        assert!(here.identify(&headers(&own.key)).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn keys_are_refused_by_field() {
    let scratch = Scratch::new();
    let tokens = TokenRegistry::open(scratch.path()).unwrap();
    let url = StoreUrl::Sqlite(scratch.path().join("db"));
    let fixture = AccessFixture { scratch, url, tokens };
    let access = fixture.access().await;
    let id =
        access.clients().create_client(&operator(), "a", false).await.unwrap().client.client_id;
    let long = "x".repeat(101);
    for (name, lifetime, expected) in [
        ("", None, "`name`"),
        (&*long, None, "`name`"),
        ("a", Some(Duration::ZERO), "`expires-seconds`"),
        ("a", Some(KEY_LIFETIME_MAX + Duration::from_secs(1)), "`expires-seconds`"),
    ] {
        let refused =
            access.api_keys().create_key(&operator(), &id, name, lifetime).await.unwrap_err();
        assert_eq!(refused.kind, ErrorReason::BadRequest);
        assert!(refused.message.contains(expected), "{}", refused.message);
    }
    for _ in 0..KEYS_OF_CLIENT_MAX {
        access.api_keys().create_key(&operator(), &id, "a", None).await.unwrap();
    }
    let full = access.api_keys().create_key(&operator(), &id, "a", None).await.unwrap_err();
    assert_eq!(full.kind, ErrorReason::BadRequest);
}

#[tokio::test]
async fn a_token_that_is_taken_back_is_good_nowhere() {
    check(async |fixture| {
        let (here, there) = (fixture.access().await, fixture.access().await);
        let made = here.clients().create_client(&operator(), "a", false).await.unwrap();
        let (id, secret) = (&*made.client.client_id, &*made.client_secret);
        let token = here.tokens().token_for(id, secret, None).await.unwrap().token;
        there.reload().await.unwrap();
        let own = there.identify(&headers(&token)).await.unwrap();
        let stranger = CatalogPrincipal::new("client:cl_other", "other");
        let refused = there.tokens().revoke_token(&stranger, &token).await.unwrap_err();
        assert_eq!(refused.kind, ErrorReason::Forbidden);
        there.identify(&headers(&token)).await.unwrap();
        there.tokens().revoke_token(&own, &token).await.unwrap();
        // At this server it was in memory.
        here.reload().await.unwrap();
        for server in [&here, &there, &fixture.access().await] {
            let gone = server.identify(&headers(&token)).await.unwrap_err();
            assert_eq!(gone.kind, ErrorReason::NotAuthorized);
        }
        for unknown in ["cat_00", &"cat_".repeat(1000)] {
            there.tokens().revoke_token(&own, unknown).await.unwrap();
        }
        // A token outlives the server that issued it.
        let kept = here.tokens().token_for(id, secret, None).await.unwrap().token;
        let who = fixture.access().await.identify(&headers(&kept)).await.unwrap();
        assert_eq!(&*who.id, &*made.client.principal);
    })
    .await;
}

#[tokio::test]
async fn who_asks_for_too_many_tokens_loses_his_own() {
    let scratch = Scratch::new();
    let tokens = TokenRegistry::open(scratch.path()).unwrap();
    let url = StoreUrl::Sqlite(scratch.path().join("db"));
    let fixture = AccessFixture { scratch, url, tokens };
    let access = fixture.access().await;
    let row = |client: &str, ends_ms| super::tokens::TokenRow {
        client: client.to_owned(),
        secret: None,
        role: None,
        ends_ms,
    };
    let hash = |number: usize| random::hash(&number.to_string());
    let store = &access.0.store;
    store.insert_token(hash(0), row("quiet", 1000), 0).await.unwrap();
    let numbers: Vec<usize> = (1..=TOKENS_OF_CLIENT_MAX).collect();
    for some in numbers.chunks(128) {
        let all = some.iter().map(|number| {
            let ends_ms = 1000 + u64::try_from(*number).unwrap();
            store.insert_token(hash(*number), row("loud", ends_ms), 0)
        });
        futures_util::future::try_join_all(all).await.unwrap();
    }
    let is_there = async |number| store.token(hash(number)).await.unwrap().is_some();
    assert!(is_there(1).await && is_there(2).await);
    let last = TOKENS_OF_CLIENT_MAX + 1;
    store.insert_token(hash(last), row("loud", 100_000), 0).await.unwrap();
    assert!(!is_there(1).await);
    for kept in [0, 2, TOKENS_OF_CLIENT_MAX, last] {
        assert!(is_there(kept).await, "{kept}");
    }
    store.forget_tokens(50_000).await.unwrap();
    assert!(!is_there(0).await && !is_there(2).await && is_there(last).await);
}

#[tokio::test]
async fn a_role_gives_its_members_what_it_was_given() {
    check(async |fixture| {
        let (here, there) = (fixture.access().await, fixture.access().await);
        let catalog = fixture.catalog().await;
        make_namespace(&catalog, "n").await;
        let warehouse = fixture.warehouse();
        let made = here.clients().create_client(&operator(), "a", false).await.unwrap();
        let (id, secret) = (&*made.client.client_id, &*made.client_secret);
        let member = made.client.principal.clone();
        here.roles().create_role(&operator(), "etl", std::slice::from_ref(&member)).await.unwrap();
        here.roles().create_role(&operator(), "idle", &[]).await.unwrap();
        let to_etl = grant("role:etl", Some("n"), &[AccessRight::Write]);
        here.grant(&operator(), &warehouse, &to_etl).await.unwrap();
        let to_itself = grant(&member, None, &[AccessRight::Read]);
        here.grant(&operator(), &warehouse, &to_itself).await.unwrap();
        there.reload().await.unwrap();

        let namespace = NamespaceIdent::new(["n"]).unwrap();
        let may =
            |server: &AccessControl, who: &CatalogPrincipal, right, object: RightTarget<'_>| {
                server.check(who, &warehouse, right, object).is_ok()
            };
        let in_n = RightTarget::Namespace(&namespace);
        let all = here.tokens().token_for(id, secret, None).await.unwrap();
        let one = here.tokens().token_for(id, secret, Some("etl")).await.unwrap();
        assert_eq!((all.role, one.role.as_deref()), (None, Some("etl")));
        for server in [&here, &there] {
            let who = server.identify(&headers(&all.token)).await.unwrap();
            // Twice: the second time uses the cached rights.
            for _ in 0..2 {
                assert!(may(server, &who, AccessRight::Write, in_n));
                assert!(may(server, &who, AccessRight::Read, RightTarget::Warehouse));
            }
            let who = server.identify(&headers(&one.token)).await.unwrap();
            assert!(may(server, &who, AccessRight::Write, in_n));
            assert!(!may(server, &who, AccessRight::Read, RightTarget::Warehouse));
        }
        // A token for one role gives no access to other roles, and none to other secrets.
        let again = here.tokens().token_after(&one.token, None).await.unwrap();
        assert_eq!(again.role.as_deref(), Some("etl"));
        let refused = here.tokens().token_after(&one.token, Some("idle")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorReason::Forbidden);
        let refused = here.tokens().token_for(id, secret, Some("idle")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorReason::Forbidden);
        let limited = here.identify(&headers(&one.token)).await.unwrap();
        let refused = here.clients().rotate_client(&limited, id, Duration::ZERO).await.unwrap_err();
        assert_eq!(refused.kind, ErrorReason::Forbidden);

        let change = MembersChange { add: vec!["tenant:x".to_owned()], remove: vec![member] };
        here.roles().change_members(&operator(), "etl", &change).await.unwrap();
        assert_eq!(here.roles().list(&operator()).unwrap()[0].members, ["tenant:x"]);
        assert!(!may(&here, &limited, AccessRight::Read, in_n));
        assert!(may(&here, &CatalogPrincipal::new("tenant:x", "x"), AccessRight::Write, in_n));
        here.roles().delete_role(&operator(), "etl").await.unwrap();
        assert!(!may(&here, &CatalogPrincipal::new("tenant:x", "x"), AccessRight::Read, in_n));
        // A new role of that name has none of the grants.
        here.roles().create_role(&operator(), "etl", &["tenant:x".to_owned()]).await.unwrap();
        assert!(!may(&here, &CatalogPrincipal::new("tenant:x", "x"), AccessRight::Read, in_n));
        for (done, expected) in [
            (here.roles().create_role(&operator(), "etl", &[]).await, ErrorReason::AlreadyExists),
            (here.roles().create_role(&operator(), "a b", &[]).await, ErrorReason::BadRequest),
            (here.roles().create_role(&limited, "b", &[]).await, ErrorReason::Forbidden),
            (here.roles().delete_role(&operator(), "none").await, ErrorReason::NotFound),
            (
                here.roles().change_members(&operator(), "none", &change).await,
                ErrorReason::NotFound,
            ),
        ] {
            assert_eq!(done.unwrap_err().kind, expected);
        }
        let nobody = grant("role:none", None, &[AccessRight::Read]);
        let refused = here.grant(&operator(), &warehouse, &nobody).await.unwrap_err();
        assert_eq!(refused.kind, ErrorReason::NotFound);
    })
    .await;
}
