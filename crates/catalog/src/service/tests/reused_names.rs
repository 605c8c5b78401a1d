//! Objects that a namespace leaves behind do not belong to the next namespace of its name.

use node::clock;

use super::*;
use crate::store::TimelineMoment;

/// One principal may do everything in namespaces named `a`, the other one in the warehouse.
struct ByName;

impl RightAuthority for ByName {
    fn check(
        &self,
        who: &CatalogPrincipal,
        _: &Warehouse,
        _: AccessRight,
        object: RightTarget<'_>,
    ) -> Result<()> {
        let namespace = match object {
            RightTarget::Warehouse => None,
            RightTarget::Namespace(it) => Some(it),
            RightTarget::Relation(it) => Some(&it.namespace),
        };
        let is_a = namespace.is_some_and(|it| it.key() == "a");
        match &*who.id == "warehouse" || is_a {
            true => Ok(()),
            false => Err(CatalogError::new(ErrorReason::Forbidden, "not granted")),
        }
    }
}

/// Checks the rights to a dropped table `a.t` that can be restored.
async fn check_rights(catalog: &Catalog, warehouse: &Arc<Warehouse>, id: &str, may: bool) {
    let who = CatalogPrincipal::new(id, id);
    let (call, t) = (ChangeCall::of(&who), ident(&["a"], "t"));
    let namespace = Some(&t.namespace);
    let list = catalog
        .dropped()
        .list_dropped(&who, warehouse, namespace, &PageRequest::default())
        .await
        .unwrap();
    assert_eq!(list.items.len(), usize::from(may), "{id}");
    let operator = CatalogPrincipal::operator("o", "o");
    let all = catalog
        .dropped()
        .list_dropped(&operator, warehouse, None, &PageRequest::default())
        .await
        .unwrap();
    let dropped = all.items[0].pointer.clone();
    let kind = RelationKind::Table;
    let changes =
        catalog.changes().changes(&operator, warehouse, &ChangeFilter::default(), None, 100).await;
    let changes = changes.unwrap().changes;
    let made = changes.iter().find(|it| it.action == "create-table").unwrap();
    let then = catalog
        .history()
        .load_at(&who, warehouse, kind, &t, TimelineMoment::Number(made.seq))
        .await;
    check_lists(catalog, warehouse, &who, made.seq, may).await;
    let missing = dropped.id.clone();
    let unknown = move |_: &TableIdent| TableIdent::new(NamespaceIdent::new(["y"])?, &missing);
    let undropped = catalog.dropped().undrop(&call, warehouse, &dropped.id, unknown).await;
    let (then, undropped) = (then.err().map(|it| it.kind), undropped.unwrap_err().kind);
    if !may {
        assert_eq!(
            (then, undropped),
            (Some(ErrorReason::Forbidden), ErrorReason::Forbidden),
            "{id}"
        );
        let purged = catalog.dropped().purge_dropped(&call, warehouse, &dropped.id).await;
        assert_eq!(refusal(purged).0, ErrorReason::Forbidden, "{id}");
        let body = json!({"name": "t", "metadata-location": dropped.location});
        let body = RawJson::of(&body).unwrap();
        let registered =
            catalog.relations().register_table(&call, warehouse, &t.namespace, &body).await;
        assert_eq!(refusal(registered).0, ErrorReason::Forbidden, "{id}");
        return;
    }
    assert_eq!(then, None, "{id}");
    // The lookup succeeded; only the target is invalid.
    let expected =
        if id == "warehouse" { ErrorReason::NoSuchNamespace } else { ErrorReason::Forbidden };
    assert_eq!(undropped, expected, "{id}");
}

/// Checks whether a principal sees the content of namespace `a` after this change, and the changes.
async fn check_lists(
    catalog: &Catalog,
    warehouse: &Arc<Warehouse>,
    who: &CatalogPrincipal,
    seq: i64,
    may: bool,
) {
    let (moment, page, kind) =
        (TimelineMoment::Number(seq), PageRequest::default(), RelationKind::Table);
    let a = NamespaceIdent::new(["a"]).unwrap();
    let tables = catalog.history().list_at(who, warehouse, kind, &a, moment, &page).await;
    let inner = catalog.history().list_namespaces_at(who, warehouse, Some(&a), moment, &page).await;
    let inner = inner.map(|it| it.items).map_err(|it| it.kind);
    let tables = tables.map(|it| it.items).map_err(|it| it.kind);
    match may {
        true => assert_eq!((tables.unwrap().len(), inner.unwrap().len()), (1, 1), "{who:?}"),
        false => {
            assert_eq!((tables, inner), (Err(ErrorReason::Forbidden), Err(ErrorReason::Forbidden)))
        }
    }
    let filter = ChangeFilter { namespace: Some(a), ident: None };
    let changes =
        catalog.changes().changes(who, warehouse, &filter, None, 100).await.unwrap().changes;
    let is_listed = changes.iter().any(|it| it.name.is_some());
    let inner = changes.iter().any(|it| it.namespace.as_ref().is_some_and(|it| it.key() != "a"));
    assert_eq!((is_listed, inner), (may, may && &*who.id == "warehouse"), "{who:?} {changes:?}");
    // The creation of the present namespace is visible in any case.
    let own = changes.iter().rev().find(|it| it.action == "create-namespace" && it.name.is_none());
    assert!(own.is_some(), "{who:?}");
}

/// Waits until the clock has passed every recorded time.
async fn a_tick() {
    let now = clock::wall_ms();
    while clock::wall_ms() <= now {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn rights_to_a_namespace_are_none_to_what_one_of_its_name_has_left() {
    check(async |stage| {
        let (warehouse, operator) = (&stage.warehouse, &stage.who);
        let settings = CatalogSettings::clone(&stage.catalog.0.settings);
        let catalog = Catalog::open(stage.store.clone(), settings, Arc::new(ByName)).await.unwrap();
        catalog.dropped().set_retention(operator, warehouse, Some(3600)).await.unwrap();
        let namespace = stage.namespace(&["a"]).await;
        a_tick().await;
        let t = ident(&["a"], "t");
        let (call, body) = (ChangeCall::of(operator), RawJson::of(&creation(&json!({}))).unwrap());
        let inner = stage.namespace(&["a", "b"]).await;
        catalog.relations().commit_table(&call, warehouse, &t, &body).await.unwrap();
        catalog.relations().drop_table(&call, warehouse, &t, false).await.unwrap();
        for id in ["namespace", "warehouse"] {
            check_rights(&catalog, warehouse, id, true).await;
        }
        a_tick().await;
        catalog.namespaces().drop_namespace(&call, warehouse, &inner).await.unwrap();
        catalog.namespaces().drop_namespace(&call, warehouse, &namespace).await.unwrap();
        let none = Properties::new();
        catalog.namespaces().create_namespace(&call, warehouse, &namespace, none).await.unwrap();
        for (id, may) in [("namespace", false), ("warehouse", true)] {
            check_rights(&catalog, warehouse, id, may).await;
        }
        let to = |was: &TableIdent| Ok(was.clone());
        let id = catalog
            .dropped()
            .list_dropped(operator, warehouse, None, &PageRequest::default())
            .await
            .unwrap();
        let id = id.items[0].pointer.id.clone();
        let who = CatalogPrincipal::new("warehouse", "w");
        catalog.dropped().undrop(&ChangeCall::of(&who), warehouse, &id, to).await.unwrap();
    })
    .await;
}
