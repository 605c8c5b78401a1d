//! Entities of Polaris's management beside clients and roles, on both engines.

use super::*;
use crate::store::{EntityChange, EntityKey, EntityKind};

fn properties(key: &str) -> Properties {
    Properties::from([(key.to_owned(), "v".to_owned())])
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorReason {
    result.unwrap_err().kind
}

/// Checks that an entity has its initial metadata, and can be changed once from each version.
async fn check_entity(access: &AccessControl, key: &EntityKey) {
    let who = operator();
    let found = access.entities().entity(key.clone()).await.unwrap();
    assert_eq!(
        (found.properties, found.version, found.updated_ms.is_some()),
        (properties("k"), 1, true)
    );
    assert!(found.created_ms.is_some());
    let change = EntityChange { version: 1, properties: Some(properties("other")) };
    let changed = access.entities().update_entity(&who, key.clone(), change.clone()).await.unwrap();
    assert_eq!((&changed.properties, changed.version), (&properties("other"), 2));
    assert_eq!(changed.created_ms, found.created_ms);
    let late = access.entities().update_entity(&who, key.clone(), change).await;
    assert_eq!(kind(late), ErrorReason::CommitFailed, "{key:?}");
    let kept = EntityChange { version: 2, properties: None };
    let changed = access.entities().update_entity(&who, key.clone(), kept).await.unwrap();
    assert_eq!((changed.properties, changed.version), (properties("other"), 3));
}

#[tokio::test]
async fn what_is_said_of_principals_and_roles_is_kept_and_goes_with_them() {
    check(async |fixture| {
        let (access, catalog) = (fixture.access().await, fixture.catalog().await);
        let (who, warehouse) = (operator(), fixture.warehouse());
        make_namespace(&catalog, "n").await;
        let made =
            access.clients().create_named_client(&who, "alice", properties("k")).await.unwrap();
        let id = made.client.client_id.clone();
        let again = access.clients().create_named_client(&who, "alice", properties("k")).await;
        assert_eq!(kind(again), ErrorReason::AlreadyExists);
        access.roles().create_role_with(&who, "etl", &[], &properties("k")).await.unwrap();
        access
            .catalog_roles()
            .create_catalog_role(&who, &warehouse, "reader", &properties("k"))
            .await
            .unwrap();
        let again = access
            .catalog_roles()
            .create_catalog_role(&who, &warehouse, "reader", &properties("k"))
            .await;
        assert_eq!(kind(again), ErrorReason::AlreadyExists);
        let keys = [
            EntityKey::client(&id),
            EntityKey::role("etl"),
            EntityKey::catalog_role("wh_1", "reader"),
        ];
        for key in &keys {
            check_entity(&access, key).await;
        }
        for (of, warehouse, name) in [
            (EntityKind::Client, "", &*id),
            (EntityKind::Role, "", "etl"),
            (EntityKind::CatalogRole, "wh_1", "reader"),
            (EntityKind::Warehouse, "", "wh_1"),
        ] {
            let all = access.entities().list(of, warehouse).await.unwrap();
            assert_eq!(all.keys().collect::<Vec<_>>(), [name], "{of:?}");
        }
        access.clients().delete_client(&who, &id).await.unwrap();
        access.roles().delete_role(&who, "etl").await.unwrap();
        access.catalog_roles().delete_catalog_role(&who, &warehouse, "reader").await.unwrap();
        for key in keys {
            let change = EntityChange { version: 1, properties: None };
            let gone = access.entities().update_entity(&who, key.clone(), change).await;
            assert_eq!(kind(gone), ErrorReason::NotFound, "{key:?}");
            assert_eq!(access.entities().entity(key).await.unwrap().version, 1);
        }
    })
    .await;
}

#[tokio::test]
async fn a_catalog_role_gives_its_rights_to_those_who_have_it_on_every_server() {
    check(async |fixture| {
        let (here, there) = (fixture.access().await, fixture.access().await);
        let (catalog, warehouse, who) = (fixture.catalog().await, fixture.warehouse(), operator());
        make_namespace(&catalog, "n").await;
        make_table(&catalog, "t").await;
        let none = Properties::new();
        here.roles().create_role_with(&who, "etl", &["tenant:x".to_owned()], &none).await.unwrap();
        for name in ["reader", "a", "z"] {
            here.catalog_roles().create_catalog_role(&who, &warehouse, name, &none).await.unwrap();
        }
        let principal = catalog_roles::catalog_role_principal("wh_1", "reader");
        let on_table = PrincipalGrant {
            name: Some("t".to_owned()),
            ..grant(&principal, Some("n"), &[AccessRight::Read])
        };
        here.grant(&who, &warehouse, &on_table).await.unwrap();
        let may = async || {
            there.refresh().await.unwrap();
            let object = ident("t");
            let x = CatalogPrincipal::new("tenant:x", "x");
            there.check(&x, &warehouse, AccessRight::Read, RightTarget::Relation(&object)).is_ok()
        };
        assert!(!may().await);
        let pair = ("reader", "etl");
        for _ in 0..2 {
            here.catalog_roles()
                .give_catalog_role(&who, &warehouse, pair.0, pair.1, true)
                .await
                .unwrap();
        }
        assert!(may().await);
        let holders = |access: &AccessControl| {
            let all = access.catalog_roles().list(&who, &warehouse).unwrap();
            all.into_iter().map(|it| (it.name, it.holders)).collect::<Vec<_>>()
        };
        let of = |name: &str, holders: &[&str]| {
            (name.to_owned(), holders.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(holders(&there), [of("a", &[]), of("reader", &["etl"]), of("z", &[])]);
        // A table is not a view.
        assert!(
            here.catalog_roles().granted_views(&warehouse, &principal).await.unwrap().is_empty()
        );
        here.catalog_roles()
            .give_catalog_role(&who, &warehouse, pair.0, pair.1, false)
            .await
            .unwrap();
        assert!(!may().await);
        here.catalog_roles()
            .give_catalog_role(&who, &warehouse, pair.0, pair.1, true)
            .await
            .unwrap();
        assert!(may().await);
        for (pair, expected) in
            [(("reader", "none"), ErrorReason::NotFound), (("none", "etl"), ErrorReason::NotFound)]
        {
            let result = here
                .catalog_roles()
                .give_catalog_role(&who, &warehouse, pair.0, pair.1, true)
                .await;
            assert_eq!(kind(result), expected, "{pair:?}");
        }
        // Removed grants do not apply to a new role of that name.
        here.catalog_roles().delete_catalog_role(&who, &warehouse, "reader").await.unwrap();
        here.catalog_roles().create_catalog_role(&who, &warehouse, "reader", &none).await.unwrap();
        assert!(!may().await);
        assert_eq!(holders(&there)[1], of("reader", &[]));
        here.catalog_roles()
            .give_catalog_role(&who, &warehouse, pair.0, pair.1, true)
            .await
            .unwrap();
        here.roles().delete_role(&who, "etl").await.unwrap();
        there.refresh().await.unwrap();
        assert_eq!(holders(&there)[1], of("reader", &[]));
    })
    .await;
}

#[tokio::test]
async fn views_that_were_granted_on_are_told_and_a_warehouse_takes_all_along() {
    check(async |fixture| {
        let (access, catalog) = (fixture.access().await, fixture.catalog().await);
        let (who, warehouse, none) = (operator(), fixture.warehouse(), Properties::new());
        make_namespace(&catalog, "n").await;
        let new = NewRelation {
            ident: ident("v"),
            kind: RelationKind::View,
            uuid: Uuid::v4().unwrap().to_string(),
            base: "file:///w/v".to_owned(),
            places: Vec::new(),
            location: "file:///w/v/1.metadata.json".to_owned(),
            document: "{}".into(),
            act: LogAction::CreateView,
        };
        catalog.relations().insert_relation(&context(), "wh_1", new).await.unwrap();
        access
            .catalog_roles()
            .create_catalog_role(&who, &warehouse, "reader", &none)
            .await
            .unwrap();
        let principal = catalog_roles::catalog_role_principal("wh_1", "reader");
        let on_view = PrincipalGrant {
            name: Some("v".to_owned()),
            ..grant(&principal, Some("n"), &[AccessRight::Read])
        };
        access.grant(&who, &warehouse, &on_view).await.unwrap();
        let views = access.catalog_roles().granted_views(&warehouse, &principal).await.unwrap();
        assert_eq!(views, [("n".to_owned(), "v".to_owned())]);
        let (kind_of, v) = (RelationKind::View, ident("v"));
        catalog
            .relations()
            .drop_relation(&context(), "wh_1", kind_of, &v, LogAction::DropView)
            .await
            .unwrap();
        let namespace = NamespaceIdent::new(["n"]).unwrap();
        catalog.namespaces().drop_namespace(&context(), "wh_1", &namespace).await.unwrap();

        // Its version increases with each change of its metadata.
        let row = catalog.warehouses().list().await.unwrap().remove(0);
        let change = |version| Some(EntityChange { version, properties: Some(properties("k")) });
        let update = async |version| {
            catalog
                .warehouses()
                .update_warehouse(row.clone(), None, Vec::new(), change(version))
                .await
        };
        update(1).await.unwrap();
        assert_eq!(kind(update(1).await), ErrorReason::CommitFailed);
        let key = EntityKey::warehouse("wh_1");
        let found = access.entities().entity(key.clone()).await.unwrap();
        assert_eq!((found.properties, found.version), (properties("k"), 2));
        catalog.warehouses().delete_warehouse("wh_1", "main").await.unwrap();
        assert_eq!(access.entities().entity(key).await.unwrap().version, 1);
        assert!(access.entities().list(EntityKind::CatalogRole, "wh_1").await.unwrap().is_empty());
        access.refresh().await.unwrap();
        assert!(access.catalog_roles().list(&who, &warehouse).unwrap().is_empty());
    })
    .await;
}
