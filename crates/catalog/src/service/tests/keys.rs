//! Repeated requests.

use iceberg::ident::Uuid;
use node::clock;

use super::*;

fn keyed<'a>(stage: &'a Stage, key: Uuid, hash: u8) -> ChangeCall<'a> {
    ChangeCall { who: &stage.who, key: Some(IdempotencyKey { key, hash: [hash; 32] }) }
}

#[tokio::test]
async fn a_request_with_a_key_is_carried_out_once() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        let (catalog, warehouse) = (&stage.catalog, &stage.warehouse);
        let key = Uuid::v7(clock::wall_ms()).unwrap();
        let call = keyed(stage, key, 1);
        let body = RawJson::of(&creation(&json!({}))).unwrap();
        let made = catalog.relations().commit_table(&call, warehouse, &t, &body).await.unwrap();
        let again = catalog.relations().commit_table(&call, warehouse, &t, &body).await.unwrap();
        assert_eq!(location(&made), location(&again));
        // It is another request.
        let other = keyed(stage, key, 2);
        let refused = catalog.relations().drop_table(&other, warehouse, &t, false).await;
        assert_eq!(refusal(refused).0, ErrorReason::UnprocessableEntity);

        // A rejected request stays rejected, even if it would succeed now.
        let call = keyed(stage, Uuid::v7(clock::wall_ms()).unwrap(), 3);
        let u = ident(&["a"], "u");
        let gone = (ErrorReason::NoSuchTable, "Table does not exist: a.u".to_owned());
        assert_eq!(
            refusal(catalog.relations().drop_table(&call, warehouse, &u, false).await),
            gone
        );
        stage.table(&u).await;
        assert_eq!(
            refusal(catalog.relations().drop_table(&call, warehouse, &u, false).await),
            gone
        );
        stage.load(&u).await.unwrap();

        // A drop is carried out once, even if another table has the name now.
        let call = keyed(stage, Uuid::v7(clock::wall_ms()).unwrap(), 4);
        catalog.relations().drop_table(&call, warehouse, &u, false).await.unwrap();
        stage.table(&u).await;
        catalog.relations().drop_table(&call, warehouse, &u, false).await.unwrap();
        stage.load(&u).await.unwrap();

        // A request without changes is recorded as well.
        let call = keyed(stage, Uuid::v7(clock::wall_ms()).unwrap(), 5);
        let nothing = RawJson::of(&json!({"requirements": [], "updates": []})).unwrap();
        catalog.relations().commit_table(&call, warehouse, &t, &nothing).await.unwrap();
        let reused = keyed(stage, call.key.unwrap().key, 6);
        let refused = catalog.relations().commit_table(&reused, warehouse, &t, &nothing).await;
        assert_eq!(refusal(refused).0, ErrorReason::UnprocessableEntity);
        assert_eq!(catalog.0.changes.forget_keys().await.unwrap(), 0, "they are young");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_request_at_the_same_time_is_carried_out_once() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        stage.table(&t).await;
        let key = Uuid::v7(clock::wall_ms()).unwrap();
        let requests: Vec<_> = (0..8)
            .map(|number| {
                let (catalog, warehouse) = (stage.catalog.clone(), Arc::clone(&stage.warehouse));
                let (who, t) = (stage.who.clone(), t.clone());
                tokio::spawn(async move {
                    let key = Some(IdempotencyKey { key, hash: [1; 32] });
                    let body = setting("k", &format!("{number}"));
                    let body = RawJson::of(&body).unwrap();
                    let call = ChangeCall { who: &who, key };
                    catalog.relations().commit_table(&call, &warehouse, &t, &body).await.unwrap()
                })
            })
            .collect();
        for request in requests {
            assert_eq!(version(&request.await.unwrap()), 2);
        }
        assert_eq!(version(&stage.load(&t).await.unwrap()), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_request_to_several_servers_is_carried_out_once() {
    let server = Postgres::shared();
    let url = StoreUrl::Postgres(server.database());
    let one = Stage::new(url, Arc::new(Scratch::new())).await;
    let two = one.again().await;
    one.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    one.table(&t).await;
    for number in 0..10_u64 {
        let key = Uuid::v7(clock::wall_ms()).unwrap();
        let requests = [&one, &two].map(|stage| {
            let (catalog, warehouse) = (stage.catalog.clone(), Arc::clone(&stage.warehouse));
            let (who, t) = (stage.who.clone(), t.clone());
            tokio::spawn(async move {
                let key = Some(IdempotencyKey { key, hash: [1; 32] });
                let body = RawJson::of(&setting("n", &number.to_string())).unwrap();
                let call = ChangeCall { who: &who, key };
                catalog.relations().commit_table(&call, &warehouse, &t, &body).await.unwrap()
            })
        });
        for request in requests {
            assert_eq!(version(&request.await.unwrap()), 2 + number);
        }
    }
    one.store.close().await;
    two.store.close().await;
}

#[tokio::test]
async fn what_was_dropped_comes_back_and_is_purged_once_by_a_key() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let (catalog, warehouse) = (&stage.catalog, &stage.warehouse);
        catalog.dropped().set_retention(&stage.who, warehouse, Some(3600)).await.unwrap();
        let (t, u) = (ident(&["a"], "t"), ident(&["a"], "u"));
        let id = stage.table(&t).await.pointer.clone().unwrap().id;
        stage.drop(&t, true).await.unwrap();
        let undrop = async |call: &ChangeCall<'_>, name: &str, to: &TableIdent| {
            let to = to.clone();
            catalog.dropped().undrop(call, warehouse, name, move |_| Ok(to)).await
        };
        let call = keyed(stage, Uuid::v7(clock::wall_ms()).unwrap(), 1);
        let first = undrop(&call, &id, &u).await.unwrap();
        assert_eq!((&first.ident, &first.id), (&u, &id));
        assert_eq!(undrop(&call, &id, &u).await.unwrap(), first);
        let other = keyed(stage, call.key.unwrap().key, 2);
        assert_eq!(refusal(undrop(&other, &id, &u).await).0, ErrorReason::UnprocessableEntity);
        let none = keyed(stage, Uuid::v7(clock::wall_ms()).unwrap(), 1);
        assert_eq!(refusal(undrop(&none, &id, &u).await).0, ErrorReason::NotFound);

        stage.drop(&u, true).await.unwrap();
        let call = keyed(stage, Uuid::v7(clock::wall_ms()).unwrap(), 3);
        for _ in 0..2 {
            catalog.dropped().purge_dropped(&call, warehouse, &id).await.unwrap();
        }
        let none = keyed(stage, Uuid::v7(clock::wall_ms()).unwrap(), 3);
        assert_eq!(
            refusal(catalog.dropped().purge_dropped(&none, warehouse, &id).await).0,
            ErrorReason::NotFound
        );
        // An immediate purge is a drop that is recorded once.
        catalog.dropped().set_retention(&stage.who, warehouse, Some(0)).await.unwrap();
        stage.table(&t).await;
        let call = keyed(stage, Uuid::v7(clock::wall_ms()).unwrap(), 4);
        for _ in 0..2 {
            catalog.relations().drop_table(&call, warehouse, &t, true).await.unwrap();
        }
    })
    .await;
}
