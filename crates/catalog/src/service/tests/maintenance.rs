//! Maintenance of tables: removed and kept objects, and dry runs that list exactly the removed
//! ones.

use std::collections::BTreeSet;

use super::*;

/// Magic bytes of Avro containers, and the sync marker of the blocks in these tests.
const MAGIC: &[u8] = b"Obj\x01";
const SYNC: &[u8] = b"sixteen bytes...";

fn put_long(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).unwrap());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_long(out, i64::try_from(text.len()).unwrap());
    out.extend_from_slice(text.as_bytes());
}

/// An Avro container with these rows.
fn container(schema: &Value, rows: &[Vec<u8>]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put_long(&mut out, 2);
    for (name, value) in [("avro.schema", schema.to_string()), ("avro.codec", "null".to_owned())] {
        put_text(&mut out, name);
        put_text(&mut out, &value);
    }
    put_long(&mut out, 0);
    out.extend_from_slice(SYNC);
    if !rows.is_empty() {
        put_long(&mut out, i64::try_from(rows.len()).unwrap());
        put_long(&mut out, i64::try_from(rows.iter().map(Vec::len).sum::<usize>()).unwrap());
        rows.iter().for_each(|row| out.extend_from_slice(row));
        out.extend_from_slice(SYNC);
    }
    out
}

fn field(name: &str, kind: &Value, id: i32) -> Value {
    json!({"name": name, "type": kind, "field-id": id})
}

/// A manifest list of these manifests.
fn manifest_list(paths: &[&str]) -> Vec<u8> {
    let schema = json!({"type": "record", "name": "manifest_file", "fields": [
        field("manifest_path", &json!("string"), 500),
        field("manifest_length", &json!("long"), 501),
        field("partition_spec_id", &json!("int"), 502),
        field("content", &json!("int"), 517),
        field("sequence_number", &json!("long"), 515),
        field("added_snapshot_id", &json!("long"), 503),
    ]});
    let row = |path: &&str| {
        let mut out = Vec::new();
        put_text(&mut out, path);
        [1, 0, 0, 1, 1].into_iter().for_each(|number| put_long(&mut out, number));
        out
    };
    container(&schema, &paths.iter().map(row).collect::<Vec<_>>())
}

/// A manifest of these files, with their status.
fn manifest(files: &[(&str, i64)]) -> Vec<u8> {
    let data = json!({"type": "record", "name": "r2", "fields": [
        field("content", &json!("int"), 134),
        field("file_path", &json!("string"), 100),
        field("file_format", &json!("string"), 101),
        field("record_count", &json!("long"), 103),
        field("file_size_in_bytes", &json!("long"), 104),
    ]});
    let schema = json!({"type": "record", "name": "manifest_entry", "fields": [
        field("status", &json!("int"), 0),
        field("snapshot_id", &json!("long"), 1),
        field("data_file", &data, 2),
    ]});
    let row = |(path, status): &(&str, i64)| {
        let mut out = Vec::new();
        put_long(&mut out, *status);
        put_long(&mut out, 1);
        put_long(&mut out, 0);
        put_text(&mut out, path);
        put_text(&mut out, "PARQUET");
        put_long(&mut out, 3);
        put_long(&mut out, 9);
        out
    };
    container(&schema, &files.iter().map(row).collect::<Vec<_>>())
}

const ADDED: i64 = 1;
const DELETED: i64 = 2;

impl Stage {
    fn put(&self, location: &str, content: &[u8]) {
        let path = self.path(location);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Creates a table with two snapshots: the second replaces a file of the first, and keeps one.
    async fn table_of_two(&self, t: &TableIdent) -> Arc<CachedVersion> {
        let entry = self.table(t).await;
        let base = entry.table().unwrap().location.clone();
        let at = |name: &str| format!("{base}/{name}");
        let (kept, old, new) = (at("data/kept"), at("data/old"), at("data/new"));
        for file in [&kept, &old, &new] {
            self.put(file, b"rows");
        }
        let outside = format!("{}/extra/theirs", self.warehouse.root().replace("/w", ""));
        self.put(&outside, b"rows");
        let first = [(&*kept, ADDED), (&*old, ADDED), (&*outside, ADDED)];
        let (one, two) = (at("metadata/m1.avro"), at("metadata/m2.avro"));
        self.put(&one, &manifest(&first));
        self.put(&two, &manifest(&[(&kept, ADDED), (&old, DELETED), (&new, ADDED)]));
        let now_ms = i64::try_from(node::clock::wall_ms()).unwrap();
        let mut updates = Vec::new();
        for (id, manifests, parent) in [(11, &one, None), (12, &two, Some(11))] {
            let list = at(&format!("metadata/snap-{id}.avro"));
            self.put(&list, &manifest_list(&[manifests]));
            let mut snapshot = json!({"snapshot-id": id, "sequence-number": id - 10,
                "timestamp-ms": now_ms - 100 + id, "manifest-list": list, "schema-id": 0,
                "summary": {"operation": "append"}});
            if let Some(parent) = parent {
                snapshot["parent-snapshot-id"] = json!(parent);
            }
            updates.push(json!({"action": "add-snapshot", "snapshot": snapshot}));
        }
        updates.push(json!({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch",
            "snapshot-id": 12}));
        updates.push(json!({"action": "set-properties", "updates": {
            "history.expire.max-snapshot-age-ms": "0"}}));
        let body = json!({"requirements": [], "updates": updates});
        self.commit(t, &body).await.unwrap()
    }

    /// Runs a job.
    async fn maintain(&self, request: Value) -> JobReport {
        let (call, warehouse) = (self.call(), &self.warehouse);
        let request = serde_json::from_value(request).unwrap();
        let id =
            self.catalog.maintenance().start_maintenance(&call, warehouse, request).await.unwrap();
        self.ended(&id).await
    }

    async fn ended(&self, id: &str) -> JobReport {
        loop {
            let report = self
                .catalog
                .maintenance()
                .maintenance(&self.who, &self.warehouse, id)
                .await
                .unwrap();
            if matches!(report.state, JobState::Done | JobState::Cancelled) {
                return report;
            }
            tokio::task::yield_now().await;
        }
    }

    fn files_below(&self, location: &str) -> BTreeSet<String> {
        fn walk(directory: &Path, all: &mut BTreeSet<String>) {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => walk(&path, all),
                    false => drop(all.insert(format!("file://{}", path.display()))),
                }
            }
        }
        let mut all = BTreeSet::new();
        walk(&self.path(location), &mut all);
        all
    }
}

fn names(report: &JobReport, kind: &str) -> BTreeSet<String> {
    let of_kind = report.items.iter().filter(|it| it.kind == kind);
    of_kind.map(|it| it.name.clone()).collect()
}

#[tokio::test]
async fn what_expired_goes_with_what_only_it_leads_to_and_a_dry_run_says_so_before() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        let entry = stage.table_of_two(&t).await;
        let base = entry.table().unwrap().location.clone();
        let before = stage.files_below(&base);
        let mut request = json!({"actions": ["expire-snapshots"], "dry-run": true,
            "delete-files": true});
        let dry = stage.maintain(request.clone()).await;
        assert!(dry.failures.is_empty(), "{:?}", dry.failures);
        assert_eq!((dry.state, dry.snapshots, dry.tables_done), (JobState::Done, 1, 1));
        assert_eq!(names(&dry, "snapshot"), BTreeSet::from(["11".to_owned()]));
        let doomed = names(&dry, "file");
        let expected = ["data/old", "metadata/m1.avro", "metadata/snap-11.avro"];
        assert_eq!(doomed, expected.map(|it| format!("{base}/{it}")).into_iter().collect());
        assert_eq!(stage.files_below(&base), before, "a dry run changes nothing");
        assert_eq!(version(&stage.load(&t).await.unwrap()), 2);
        request["dry-run"] = json!(false);
        let done = stage.maintain(request.clone()).await;
        assert_eq!((names(&done, "file"), done.files), (doomed.clone(), 3));
        let now = stage.load(&t).await.unwrap();
        let snapshots: Vec<_> = now.table().unwrap().snapshots.iter().map(|it| it.id).collect();
        assert_eq!((version(&now), snapshots), (3, vec![12]));
        let mut after = stage.files_below(&base);
        assert!(after.remove(location(&now)), "the new metadata file");
        assert_eq!(after, before.difference(&doomed).cloned().collect());
        let nothing = stage.maintain(request).await;
        assert_eq!((nothing.snapshots, nothing.files), (0, 0));
    })
    .await;
}

#[tokio::test]
async fn files_stay_unless_it_was_asked_for_and_what_is_not_its_own_always() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    let (t, u) = (ident(&["a"], "t"), ident(&["a"], "u"));
    let entry = stage.table_of_two(&t).await;
    let base = entry.table().unwrap().location.clone();
    let before = stage.files_below(&base);
    let kept = stage.maintain(json!({"actions": ["expire-snapshots"]})).await;
    assert_eq!((kept.snapshots, kept.files), (1, 0));
    assert!(stage.files_below(&base).is_superset(&before));
    stage.table_of_two(&u).await;
    stage.commit(&u, &setting("gc.enabled", "false")).await.unwrap();
    let request = json!({"actions": ["expire-snapshots"], "delete-files": true,
        "tables": [{"namespace": ["a"], "name": "u"}, {"namespace": ["a"], "name": "none"}]});
    let refused = stage.maintain(request).await;
    assert_eq!((refused.snapshots, refused.files, refused.tables_done), (0, 0, 2));
    let why: Vec<_> = refused.failures.iter().map(|it| &*it.table).collect();
    assert_eq!(why, ["a.u", "a.none"]);
}

#[tokio::test]
async fn metadata_files_go_that_no_version_and_no_log_leads_to() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        stage.table(&t).await;
        stage.commit(&t, &setting("k", "1")).await.unwrap();
        let now = stage.commit(&t, &setting("k", "2")).await.unwrap();
        let directory = location(&now).rsplit_once('/').unwrap().0.to_owned();
        let name = |number: u32| format!("{number:05}-{}.metadata.json", Uuid::v4().unwrap());
        let (lost, coming) = (name(2), name(3));
        for name in [&*lost, &*coming, "snap-1.avro", "v1.metadata.json"] {
            stage.put(&format!("{directory}/{name}"), b"{}");
        }
        let before = stage.files_below(&directory);
        let mut request =
            json!({"actions": ["clean-metadata"], "dry-run": true, "namespace": ["a"]});
        let dry = stage.maintain(request.clone()).await;
        let expected = BTreeSet::from([format!("{directory}/{lost}")]);
        assert_eq!(names(&dry, "metadata-file"), expected, "{:?}", dry.failures);
        assert_eq!(stage.files_below(&directory), before);
        request["dry-run"] = json!(false);
        let done = stage.maintain(request.clone()).await;
        assert_eq!(names(&done, "metadata-file"), expected);
        assert_eq!(stage.files_below(&directory), before.difference(&expected).cloned().collect());
        // The log refers to the older ones, for as long as they are retained.
        stage.commit(&t, &setting("write.metadata.previous-versions-max", "1")).await.unwrap();
        assert_eq!(stage.maintain(request.clone()).await.files, 1, "what was coming never came");
        stage.catalog.store().change_log().trim_log(u64::MAX / 2).await.unwrap();
        assert_eq!(stage.maintain(request).await.files, 2);
        stage.load(&t).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_job_is_for_who_may_manage_what_it_names_and_can_be_stopped() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    let (catalog, warehouse, call) = (&stage.catalog, &stage.warehouse, stage.call());
    let who = CatalogPrincipal { operator: false, ..stage.who.clone() };
    let parse = |value: Value| serde_json::from_value::<MaintenanceRequest>(value).unwrap();
    let all = json!({"actions": ["clean-metadata"]});
    let of_a = json!({"actions": ["clean-metadata"], "namespace": ["a"]});
    let one = json!({"actions": ["clean-metadata"], "tables": [{"namespace": ["a"], "name": "t"}]});
    for value in [all.clone(), of_a, one] {
        let refused = catalog
            .maintenance()
            .start_maintenance(&ChangeCall::of(&who), warehouse, parse(value))
            .await;
        assert_eq!(refusal(refused).0, ErrorReason::Forbidden);
    }
    let both = json!({"actions": ["clean-metadata"], "namespace": ["a"], "tables": []});
    for wrong in [both, json!({"actions": []})] {
        let refused = catalog.maintenance().start_maintenance(&call, warehouse, parse(wrong)).await;
        assert_eq!(refusal(refused).0, ErrorReason::BadRequest);
    }
    let permits = catalog.0.maintenance.0.jobs.hold().await;
    let id = catalog.maintenance().start_maintenance(&call, warehouse, parse(all)).await.unwrap();
    let state = catalog.maintenance().maintenance(&stage.who, warehouse, &id).await.unwrap().state;
    assert_eq!(state, JobState::Queued);
    let other = CatalogPrincipal { id: "other".into(), ..who };
    assert_eq!(
        refusal(catalog.maintenance().maintenance(&other, warehouse, &id).await).0,
        ErrorReason::Forbidden
    );
    assert_eq!(
        refusal(catalog.maintenance().maintenance(&stage.who, warehouse, "mj_0").await).0,
        ErrorReason::NotFound
    );
    catalog.maintenance().cancel_maintenance(&stage.who, warehouse, &id).await.unwrap();
    drop(permits);
    assert_eq!(stage.ended(&id).await.state, JobState::Cancelled);
}

/// Checks whether the next server treats a job as interrupted if its server has not stored its end.
async fn check_next(stage: Stage, expected: JobState) {
    stage.namespace(&["a"]).await;
    stage.table(&ident(&["a"], "t")).await;
    let request = json!({"actions": ["clean-metadata"]});
    let done = stage.maintain(request.clone()).await;
    let permits = stage.catalog.0.maintenance.0.jobs.hold().await;
    let request = serde_json::from_value(request).unwrap();
    let (call, warehouse) = (stage.call(), &stage.warehouse);
    let id =
        stage.catalog.maintenance().start_maintenance(&call, warehouse, request).await.unwrap();
    let next = stage.again().await;
    let seen = async |id: &str| {
        next.catalog.maintenance().maintenance(&next.who, &next.warehouse, id).await.unwrap()
    };
    // The end of a job is stored a moment after it is reported.
    while seen(&done.id).await.state != JobState::Done {
        tokio::task::yield_now().await;
    }
    assert_eq!(seen(&done.id).await.tables_done, 1);
    assert_eq!(seen(&id).await.state, expected);
    let listed =
        next.catalog.maintenance().maintenance_jobs(&next.who, &next.warehouse).await.unwrap();
    let listed: BTreeSet<_> = listed.iter().map(|it| it.id.clone()).collect();
    assert_eq!(listed, BTreeSet::from([done.id.clone(), id.clone()]));
    let other = CatalogPrincipal { id: "other".into(), operator: false, ..stage.who.clone() };
    let refused = next.catalog.maintenance().maintenance(&other, &next.warehouse, &id).await;
    assert_eq!(refusal(refused).0, ErrorReason::Forbidden);
    // The server that runs it notices that another one was asked to stop it.
    next.catalog.maintenance().cancel_maintenance(&next.who, &next.warehouse, &id).await.unwrap();
    let job = stage.catalog.0.maintenance.0.jobs.find(&id).unwrap();
    stage.catalog.maintenance().write_job(&job).await;
    drop(permits);
    assert_eq!(stage.ended(&id).await.state, JobState::Cancelled);
    next.store.close().await;
    stage.store.close().await;
}

#[tokio::test]
async fn a_job_is_found_by_the_next_server_and_is_interrupted() {
    check_next(sqlite().await, JobState::Interrupted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_found_by_servers_beside_and_is_another_ones() {
    // It ends with its last holder.
    let server = Postgres::shared();
    let url = StoreUrl::Postgres(server.database());
    check_next(Stage::new(url, Arc::new(Scratch::new())).await, JobState::Queued).await;
}

#[tokio::test]
async fn files_of_a_snapshot_are_shown_in_pages() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    let entry = stage.table_of_two(&t).await;
    let base = entry.table().unwrap().location.clone();
    for (snapshot, expected) in
        [(None, &["kept", "new"][..]), (Some(11), &["kept", "old", "theirs"])]
    {
        let mut page = RowsPage { token: None, size: Some(1), snapshot };
        let mut found = Vec::new();
        loop {
            let (who, warehouse) = (&stage.who, &stage.warehouse);
            let what = (InspectAspect::Files, None);
            let rows =
                stage.catalog.inspect(who, warehouse, &t, what.0, what.1, &page).await.unwrap();
            assert!(rows.rows.len() <= 1);
            for row in rows.rows {
                let [content, InspectCell::Text(path), format, ..] = &row[..] else {
                    panic!("{row:?}")
                };
                assert_eq!(
                    (content, format),
                    (&InspectCell::Text("data".into()), &InspectCell::Text("parquet".into()))
                );
                found.push(path.rsplit('/').next().unwrap().to_owned());
            }
            page.token = rows.next;
            if page.token.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{base}");
    }
}

#[tokio::test]
async fn metadata_files_stay_that_the_log_names_of_a_table_with_another_id() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        stage.table(&t).await;
        stage.commit(&t, &setting("write.metadata.previous-versions-max", "1")).await.unwrap();
        let last = stage.commit(&t, &setting("k", "1")).await.unwrap();
        let (call, warehouse) = (stage.call(), &stage.warehouse);
        stage.catalog.relations().unregister_table(&call, warehouse, &t).await.unwrap();
        let body = json!({"name": "t", "metadata-location": location(&last)});
        let body = RawJson::of(&body).unwrap();
        stage
            .catalog
            .relations()
            .register_table(&call, warehouse, &t.namespace, &body)
            .await
            .unwrap();
        let request = json!({"actions": ["clean-metadata"], "namespace": ["a"]});
        assert_eq!(stage.maintain(request.clone()).await.files, 0, "the past can be shown");
        stage.catalog.store().change_log().trim_log(u64::MAX / 2).await.unwrap();
        assert_eq!(stage.maintain(request).await.files, 1);
    })
    .await;
}
