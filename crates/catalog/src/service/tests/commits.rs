//! Commits: concurrent ones, several tables at once, old files.

use std::fs;

use super::*;

/// Writers that change one table at the same time.
const WRITERS: usize = 16;
/// Changes of each.
const CHANGES: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_writers_lose_nothing() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        stage.table(&t).await;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (catalog, warehouse) = (stage.catalog.clone(), Arc::clone(&stage.warehouse));
                let (who, t) = (stage.who.clone(), t.clone());
                tokio::spawn(async move {
                    for change in 0..CHANGES {
                        let body = setting(&format!("w{writer}.{change}"), "done");
                        let body = RawJson::of(&body).unwrap();
                        let call = ChangeCall::of(&who);
                        catalog
                            .relations()
                            .commit_table(&call, &warehouse, &t, &body)
                            .await
                            .unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let entry = stage.load(&t).await.unwrap();
        assert_eq!(version(&entry), 1 + (WRITERS * CHANGES) as u64);
        for (writer, change) in (0..WRITERS).flat_map(|it| (0..CHANGES).map(move |to| (it, to))) {
            assert!(property(&entry, &format!("w{writer}.{change}")).is_some());
        }
        let fresh = stage.again().await;
        assert_eq!(fresh.load(&t).await.unwrap().document(), entry.document());
        fresh.store.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_share_a_store_lose_nothing_either() {
    let server = Postgres::shared();
    let url = StoreUrl::Postgres(server.database());
    let one = Stage::new(url, Arc::new(Scratch::new())).await;
    let two = one.again().await;
    one.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    one.table(&t).await;
    two.load(&t).await.unwrap();
    let writers = [&one, &two].map(|stage| {
        let (catalog, warehouse) = (stage.catalog.clone(), Arc::clone(&stage.warehouse));
        let (who, t, side) = (stage.who.clone(), t.clone(), stage as *const Stage as usize);
        tokio::spawn(async move {
            let mut done = Vec::new();
            for change in 0..20 {
                let key = format!("{side}.{change}");
                let body = RawJson::of(&setting(&key, "done")).unwrap();
                match catalog
                    .relations()
                    .commit_table(&ChangeCall::of(&who), &warehouse, &t, &body)
                    .await
                {
                    Ok(_) => done.push(key),
                    Err(error) => assert_eq!(error.kind, ErrorReason::CommitFailed, "{error:?}"),
                }
            }
            done
        })
    });
    let mut done = Vec::new();
    for writer in writers {
        done.extend(writer.await.unwrap());
    }
    for stage in [&one, &two] {
        let entry = stage.load(&t).await.unwrap();
        assert_eq!(version(&entry), 1 + done.len() as u64, "what failed changed nothing");
        assert!(done.iter().all(|key| property(&entry, key).is_some()));
        let directory = stage.path(location(&entry)).parent().unwrap().to_owned();
        let files = fs::read_dir(directory).unwrap().count();
        assert_eq!(files, 1 + done.len(), "what failed left no file");
    }
    one.store.close().await;
    two.store.close().await;
}

fn change(name: &str, requirements: Value, key: &str) -> Value {
    json!({
        "identifier": {"namespace": ["a"], "name": name},
        "requirements": requirements,
        "updates": [{"action": "set-properties", "updates": {key: "v"}}],
    })
}

#[tokio::test]
async fn a_transaction_changes_all_tables_or_none() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let (one, two, three) =
            (ident(&["a"], "one"), ident(&["a"], "two"), ident(&["a"], "three"));
        let first = stage.table(&one).await;
        stage.table(&two).await;
        let commit = async |changes: Vec<Value>| {
            let body = RawJson::of(&json!({"table-changes": changes})).unwrap();
            stage
                .catalog
                .relations()
                .commit_transaction(&stage.call(), &stage.warehouse, &body)
                .await
        };
        let mut made = creation(&json!({}));
        made["identifier"] = json!({"namespace": ["a"], "name": "three"});
        let good = vec![change("two", json!([]), "k"), made.clone(), change("one", json!([]), "k")];
        commit(good).await.unwrap();
        for ident in [&one, &two] {
            let entry = stage.load(ident).await.unwrap();
            assert_eq!((version(&entry), property(&entry, "k")), (2, Some("v".to_owned())));
        }
        assert_eq!(version(&stage.load(&three).await.unwrap()), 1);

        let stale = json!([{"type": "assert-current-schema-id", "current-schema-id": 7}]);
        for (changes, expected) in [
            (
                vec![change("one", json!([]), "l"), change("two", stale, "l")],
                ErrorReason::CommitFailed,
            ),
            (
                vec![change("one", json!([]), "l"), change("no", json!([]), "l")],
                ErrorReason::NoSuchTable,
            ),
            (vec![change("one", json!([]), "l"), made], ErrorReason::CommitFailed),
            (
                vec![change("one", json!([]), "l"), change("one", json!([]), "m")],
                ErrorReason::BadRequest,
            ),
            (vec![json!({"requirements": [], "updates": []})], ErrorReason::BadRequest),
            (vec![json!({"identifier": 1})], ErrorReason::BadRequest),
            // No right would be checked.
            (Vec::new(), ErrorReason::BadRequest),
        ] {
            assert_eq!(refusal(commit(changes).await).0, expected);
        }
        let entry = stage.load(&one).await.unwrap();
        assert_eq!((version(&entry), property(&entry, "l")), (2, None));
        let directory = stage.path(location(&first)).parent().unwrap().to_owned();
        assert_eq!(fs::read_dir(directory).unwrap().count(), 2, "what failed left no file");
    })
    .await;
}

#[tokio::test]
async fn a_file_that_cannot_be_written_takes_back_the_others_and_nothing_is_tried_again() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let (one, two) = (ident(&["a"], "one"), ident(&["a"], "two"));
        let directory =
            |entry: &Arc<CachedVersion>| stage.path(location(entry)).parent().unwrap().to_owned();
        let first = directory(&stage.table(&one).await);
        let second = directory(&stage.table(&two).await);
        // No link is followed: the file cannot be written.
        let aside = second.with_extension("aside");
        fs::rename(&second, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, &second).unwrap();
        let changes = vec![change("one", json!([]), "k"), change("two", json!([]), "k")];
        let body = RawJson::of(&json!({"table-changes": changes})).unwrap();
        let relations = stage.catalog.relations();
        let commit =
            async || relations.commit_transaction(&stage.call(), &stage.warehouse, &body).await;
        assert_eq!(refusal(commit().await).0, ErrorReason::Forbidden);
        assert_eq!(relations.commits_and_conflicts(), (2, 0), "it did not lose against another");
        let files = |directory: &Path| fs::read_dir(directory).unwrap().count();
        assert_eq!((files(&first), files(&aside)), (1, 1), "what was written first is gone");
        fs::remove_file(&second).unwrap();
        fs::rename(&aside, &second).unwrap();
        commit().await.unwrap();
        assert_eq!((files(&first), files(&second)), (2, 2));
        assert_eq!(version(&stage.load(&one).await.unwrap()), 2);
    })
    .await;
}

#[tokio::test]
async fn old_metadata_files_go_when_the_table_says_so() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    let properties = json!({
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "2",
        "write.metadata.compression-codec": "gzip",
    });
    let mut last = stage.commit(&t, &creation(&properties)).await.unwrap();
    for number in 0..5 {
        last = stage.commit(&t, &setting("n", &number.to_string())).await.unwrap();
    }
    assert!(location(&last).ends_with(".gz.metadata.json"));
    let directory = stage.path(location(&last)).parent().unwrap().to_owned();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
    for entry in &last.table().unwrap().metadata_log {
        assert!(stage.path(&entry.metadata_file()).exists());
    }
    let read = documents::read(&stage.warehouse, location(&last)).await.unwrap();
    assert_eq!(read, last.document());
}

#[tokio::test]
async fn a_long_document_lives_in_its_file() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        stage.table(&t).await;
        let long = "x".repeat(crate::store::DOCUMENT_BYTES_KEPT_MAX);
        let last = stage.commit(&t, &setting("long", &long)).await.unwrap();
        let fresh = stage.again().await;
        let loaded = fresh.load(&t).await.unwrap();
        assert_eq!(loaded.document(), last.document());
        fresh.commit(&t, &setting("long", "short")).await.unwrap();
        fresh.store.close().await;
    })
    .await;
}
