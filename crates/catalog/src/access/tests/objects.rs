//! Rights follow their objects.

use iceberg::json::RawJson;
use serde_json::json;

use super::*;
use crate::store::DropMode;

#[tokio::test]
async fn a_right_moves_with_its_table_and_goes_with_it() {
    check(async |fixture| {
        let (access, catalog) = (fixture.access().await, fixture.catalog().await);
        let warehouse = fixture.warehouse();
        make_namespace(&catalog, "n").await;
        make_table(&catalog, "t").await;
        let who = CatalogPrincipal::new("tenant:x", "x");
        let of = |name: Option<&str>| PrincipalGrant {
            name: name.map(str::to_owned),
            ..grant("tenant:x", Some("n"), &[AccessRight::Read])
        };
        access.grant(&operator(), &warehouse, &of(Some("t"))).await.unwrap();
        let may = |name: &str| {
            access
                .check(&who, &warehouse, AccessRight::Read, RightTarget::Relation(&ident(name)))
                .is_ok()
        };
        assert!(may("t") && !may("u"));
        let (from, to) = (ident("t"), ident("u"));
        let names = (&from, &to);
        let kind = RelationKind::Table;
        catalog
            .relations()
            .rename_relation(&context(), "wh_1", kind, names.0, names.1)
            .await
            .unwrap();
        make_table(&catalog, "t").await;
        access.refresh().await.unwrap();
        assert!(may("u") && !may("t"));
        let listed = access.grants(&operator(), &warehouse, None).await.unwrap();
        assert_eq!(listed, [of(Some("u"))]);

        let dropped = (kind, &to);
        catalog
            .relations()
            .drop_relation(&context(), "wh_1", dropped.0, dropped.1, LogAction::DropTable)
            .await
            .unwrap();
        make_table(&catalog, "u").await;
        access.refresh().await.unwrap();
        assert!(!may("u"));
        assert_eq!(access.grants(&operator(), &warehouse, None).await.unwrap(), []);

        // The same for a namespace, which cannot be renamed.
        access.grant(&operator(), &warehouse, &of(None)).await.unwrap();
        assert!(may("t") && may("u"));
        for name in ["t", "u"] {
            let ident = ident(name);
            let dropped = (kind, &ident);
            catalog
                .relations()
                .drop_relation(&context(), "wh_1", dropped.0, dropped.1, LogAction::DropTable)
                .await
                .unwrap();
        }
        let namespace = NamespaceIdent::new(["n"]).unwrap();
        catalog.namespaces().drop_namespace(&context(), "wh_1", &namespace).await.unwrap();
        make_namespace(&catalog, "n").await;
        access.refresh().await.unwrap();
        assert!(!may("t"));

        for (wrong, expected) in [
            (of(Some("none")), ErrorReason::NoSuchTable),
            (grant("tenant:x", Some("none"), &[AccessRight::Read]), ErrorReason::NoSuchNamespace),
        ] {
            for done in [
                access.grant(&operator(), &warehouse, &wrong).await,
                access.revoke(&operator(), &warehouse, &wrong).await,
            ] {
                assert_eq!(done.unwrap_err().kind, expected);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn rights_and_policies_are_there_again_with_a_table_that_was_dropped() {
    check(async |fixture| {
        let (access, catalog) = (fixture.access().await, fixture.catalog().await);
        let warehouse = fixture.warehouse();
        make_namespace(&catalog, "n").await;
        make_table(&catalog, "t").await;
        let t = ident("t");
        let right = PrincipalGrant {
            name: Some("t".to_owned()),
            ..grant("tenant:x", Some("n"), &[AccessRight::Read])
        };
        access.grant(&operator(), &warehouse, &right).await.unwrap();
        let (policy, schema) = policy("tenant:x");
        let policy = (&policy, &schema);
        access
            .policies()
            .put_policy(&operator(), &warehouse, "p", policy.0, policy.1)
            .await
            .unwrap();
        let kind = RelationKind::Table;
        let keep = DropMode { until_ms: u64::MAX / 2, purge: true };
        let what = (kind, &t);
        let old = catalog
            .dropped_relations()
            .set_aside(&context(), "wh_1", what.0, what.1, LogAction::DropTable, keep)
            .await
            .unwrap();
        let new = || NewRelation {
            ident: t.clone(),
            kind,
            uuid: old.uuid.clone(),
            base: old.base.clone(),
            places: Vec::new(),
            location: old.location.clone(),
            document: "{}".into(),
            act: LogAction::RegisterTable,
        };
        let made = catalog
            .dropped_relations()
            .register_dropped(&context(), "wh_1", new(), &old.id)
            .await
            .unwrap();
        assert_ne!(made.id, old.id);
        assert_eq!(catalog.dropped_relations().dropped_as("wh_1", &old.id).await.unwrap(), []);
        access.refresh().await.unwrap();
        assert_eq!(access.grants(&operator(), &warehouse, None).await.unwrap(), [right]);
        assert_eq!(access.policies().list(&operator(), &warehouse).unwrap().len(), 1);
        let who = CatalogPrincipal::new("tenant:x", "x");
        assert!(access.restrictions(&who, &warehouse, &t).is_some());

        // Of a concurrent purge and restore, the first one succeeds.
        let old = catalog
            .dropped_relations()
            .set_aside(&context(), "wh_1", what.0, what.1, LogAction::DropTable, keep)
            .await
            .unwrap();
        catalog.dropped_relations().take_dropped(&old.id, 5).await.unwrap();
        for gone in [&*old.id, "tb_none"] {
            let refused =
                catalog.dropped_relations().register_dropped(&context(), "wh_1", new(), gone).await;
            assert_eq!(refused.unwrap_err().kind, ErrorReason::CommitFailed);
        }
        assert!(catalog.relations().pointer("wh_1", &t).await.unwrap().is_none());
    })
    .await;
}

/// Returns a policy of the table `t` for a principal, and the table's schema.
fn policy(principal: &str) -> (NewPolicy, RawJson) {
    let policy = NewPolicy {
        principal: principal.to_owned(),
        namespace: ident("t").namespace,
        table: "t".to_owned(),
        row_filter: Some(json!({"type": "eq", "term": "x", "value": 1})),
        column_projections: Vec::new(),
        trusted: false,
    };
    let schema = json!({"type": "struct", "schema-id": 0, "fields": [
        {"id": 1, "name": "x", "required": false, "type": "long"}]});
    (policy, RawJson::of(&schema).unwrap())
}

#[tokio::test]
async fn nothing_is_given_to_who_is_gone_at_another_server() {
    check(async |fixture| {
        let catalog = fixture.catalog().await;
        let (warehouse, root, none) = (fixture.warehouse(), operator(), Properties::new());
        make_namespace(&catalog, "n").await;
        make_table(&catalog, "t").await;
        let here = fixture.access().await;
        let make = async || {
            here.roles().create_role(&root, "r", &[]).await.unwrap();
            here.catalog_roles().create_catalog_role(&root, &warehouse, "r", &none).await.unwrap();
        };
        make().await;
        let client = here.clients().create_client(&root, "c", false).await.unwrap().client;
        let there = fixture.access().await;
        here.roles().delete_role(&root, "r").await.unwrap();
        here.catalog_roles().delete_catalog_role(&root, &warehouse, "r").await.unwrap();
        here.clients().delete_client(&root, &client.client_id).await.unwrap();
        let catalog_role = catalog_role_principal(warehouse.id(), "r");
        let principals = ["role:r", &catalog_role, &client.principal];
        for principal in principals {
            let manage = grant(principal, None, &[AccessRight::Manage]);
            let granted = there.grant(&root, &warehouse, &manage).await;
            assert_eq!(granted.unwrap_err().kind, ErrorReason::NotFound, "{principal}");
            let (new, schema) = policy(principal);
            let put = there.policies().put_policy(&root, &warehouse, "p", &new, &schema).await;
            assert_eq!(put.unwrap_err().kind, ErrorReason::NotFound, "{principal}");
        }
        make().await;
        assert_eq!(here.grants(&root, &warehouse, None).await.unwrap(), []);
        assert!(here.policies().list(&root, &warehouse).unwrap().is_empty());
        // Changes made here are visible here immediately.
        for principal in ["role:r", &catalog_role] {
            let manage = grant(principal, None, &[AccessRight::Read]);
            there.grant(&root, &warehouse, &manage).await.unwrap();
        }
    })
    .await;
}
