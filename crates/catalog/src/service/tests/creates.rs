//! Tables created by the create operation, staged and not.

use super::*;

fn request(name: &str) -> Value {
    let fields = json!([
        {"id": 7, "name": "x", "required": false, "type": "long"},
        {"id": 9, "name": "y", "required": true, "type": "string"},
    ]);
    json!({"name": name, "schema": {"type": "struct", "schema-id": 5, "fields": fields}})
}

async fn create(stage: &Stage, ns: &NamespaceIdent, body: &Value) -> Result<Arc<CachedVersion>> {
    let body = RawJson::of(body).unwrap();
    stage.catalog.relations().create_table(&stage.call(), &stage.warehouse, ns, &body).await
}

#[tokio::test]
async fn a_created_table_is_there_and_a_staged_one_is_not_yet() {
    check(async |stage| {
        let ns = stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        let made = create(stage, &ns, &request("t")).await.unwrap();
        assert_eq!(made.table().unwrap().last_column_id, 2, "columns are numbered anew");
        assert!(stage.path(location(&made)).exists() && location(&made).contains("/00000-"));
        let loaded = stage.load(&t).await.unwrap();
        assert_eq!(loaded.document(), made.document());
        let again = create(stage, &ns, &request("t")).await;
        assert_eq!(
            refusal(again),
            (ErrorReason::AlreadyExists, "Table already exists: a.t".into())
        );

        let mut body = request("later");
        body["stage-create"] = json!(true);
        let staged = create(stage, &ns, &body).await.unwrap();
        assert_eq!(staged.location(), None);
        let answer = staged.frames(SnapshotSelection::All, None).concat();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer.get("metadata-location").is_none() && answer["metadata"].is_object());
        let later = ident(&["a"], "later");
        assert_eq!(refusal(stage.load(&later).await).0, ErrorReason::NoSuchTable);
        assert!(!stage.path(&staged.table().unwrap().location).exists());
        // After the commit, it is at the staged location.
        let mut finish = creation(&json!({}));
        let place = &staged.table().unwrap().location;
        let update = json!({"action": "set-location", "location": place});
        finish["updates"].as_array_mut().unwrap().push(update);
        let made = stage.commit(&later, &finish).await.unwrap();
        assert!(location(&made).starts_with(&**place));
        body["name"] = json!("t");
        assert_eq!(refusal(create(stage, &ns, &body).await).0, ErrorReason::AlreadyExists);
    })
    .await;
}

#[tokio::test]
async fn a_new_table_has_a_place_of_its_own_in_the_warehouse() {
    let stage = sqlite().await;
    let ns = stage.namespace(&["a"]).await;
    for (location, expected) in [
        ("file:///etc/t", ErrorReason::Forbidden),
        ("s3://bucket/t", ErrorReason::Forbidden),
        ("t", ErrorReason::BadRequest),
        (&*format!("{}/../t", stage.warehouse.root()), ErrorReason::BadRequest),
        (stage.warehouse.root(), ErrorReason::Forbidden),
    ] {
        let mut body = request("t");
        body["location"] = json!(location);
        assert_eq!(refusal(create(&stage, &ns, &body).await).0, expected, "{location}");
        body["stage-create"] = json!(true);
        assert_eq!(refusal(create(&stage, &ns, &body).await).0, expected, "{location}");
    }
    let nowhere = NamespaceIdent::new(["z"]).unwrap();
    let refused = refusal(create(&stage, &nowhere, &request("t")).await);
    assert_eq!(refused, (ErrorReason::NoSuchNamespace, "Namespace does not exist: z".into()));
    let mut body = request("t");
    let wanted = format!("{}/wanted", stage.warehouse.root());
    body["location"] = json!(format!("{wanted}/"));
    let made = create(&stage, &ns, &body).await.unwrap();
    assert_eq!(made.table().unwrap().location, wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_make_one_table_at_once_one_does() {
    check(async |stage| {
        let ns = stage.namespace(&["a"]).await;
        let makers: Vec<_> = (0..8)
            .map(|_| {
                let (catalog, warehouse) = (stage.catalog.clone(), Arc::clone(&stage.warehouse));
                let (who, ns) = (stage.who.clone(), ns.clone());
                tokio::spawn(async move {
                    let body = RawJson::of(&request("t")).unwrap();
                    catalog
                        .relations()
                        .create_table(&ChangeCall::of(&who), &warehouse, &ns, &body)
                        .await
                })
            })
            .collect();
        let mut made = 0;
        for maker in makers {
            match maker.await.unwrap() {
                Ok(_) => made += 1,
                Err(error) => assert_eq!(error.message, "Table already exists: a.t"),
            }
        }
        assert_eq!(made, 1);
    })
    .await;
}
