//! Rights go with what they are to.

use super::*;

#[tokio::test]
async fn a_right_moves_with_its_table_and_goes_with_it() {
    check(async |ground| {
        let (access, catalog) = (ground.access().await, ground.catalog().await);
        let warehouse = ground.warehouse();
        make_namespace(&catalog, "n").await;
        make_table(&catalog, "t").await;
        let who = Who::new("tenant:x", "x");
        let of = |name: Option<&str>| Grant {
            name: name.map(str::to_owned),
            ..grant("tenant:x", Some("n"), &[Right::Read])
        };
        access.grant(&operator(), &warehouse, &of(Some("t"))).await.unwrap();
        let may = |name: &str| {
            access.check(&who, &warehouse, Right::Read, Object::Relation(&ident(name))).is_ok()
        };
        assert!(may("t") && !may("u"));
        let (from, to) = (ident("t"), ident("u"));
        let names = (&from, &to);
        let kind = RelationKind::Table;
        catalog.rename_relation(&stamp(), "wh_1", kind, names).await.unwrap();
        make_table(&catalog, "t").await;
        access.refresh().await.unwrap();
        assert!(may("u") && !may("t"));
        let listed = access.grants(&operator(), &warehouse, None).await.unwrap();
        assert_eq!(listed, [of(Some("u"))]);

        let dropped = (kind, &to);
        catalog.drop_relation(&stamp(), "wh_1", dropped, Act::DropTable).await.unwrap();
        make_table(&catalog, "u").await;
        access.refresh().await.unwrap();
        assert!(!may("u"));
        assert_eq!(access.grants(&operator(), &warehouse, None).await.unwrap(), []);

        // The same of a namespace, which has no other name.
        access.grant(&operator(), &warehouse, &of(None)).await.unwrap();
        assert!(may("t") && may("u"));
        for name in ["t", "u"] {
            let ident = ident(name);
            let dropped = (kind, &ident);
            catalog.drop_relation(&stamp(), "wh_1", dropped, Act::DropTable).await.unwrap();
        }
        let namespace = NamespaceIdent::new(["n"]).unwrap();
        catalog.drop_namespace(&stamp(), "wh_1", &namespace).await.unwrap();
        make_namespace(&catalog, "n").await;
        access.refresh().await.unwrap();
        assert!(!may("t"));

        for (wrong, expected) in [
            (of(Some("none")), Kind::NoSuchTable),
            (grant("tenant:x", Some("none"), &[Right::Read]), Kind::NoSuchNamespace),
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
