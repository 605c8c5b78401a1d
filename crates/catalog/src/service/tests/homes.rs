//! Locations that a principal with write access to a namespace may use: each operation that takes a
//! location, with each kind of location.

use std::fs;

use super::super::homes::LocationRules;
use super::*;

/// Two principals: one has `a.b`, the other one the whole warehouse. A third one has a table of
/// `a.b`.
pub(super) struct Granted;

impl RightAuthority for Granted {
    fn check(
        &self,
        who: &CatalogPrincipal,
        _: &Warehouse,
        right: AccessRight,
        object: RightTarget<'_>,
    ) -> Result<()> {
        let home = NamespaceIdent::new(["a", "b"]).unwrap();
        let may = match (&*who.id, object) {
            ("warehouse", _) => true,
            ("namespace", RightTarget::Namespace(it)) => home.contains(it),
            ("namespace", RightTarget::Relation(it)) => home.contains(&it.namespace),
            ("table", RightTarget::Relation(it)) => *it == ident(&["a", "b"], "own"),
            _ => false,
        };
        match may && right != AccessRight::Grant {
            true => Ok(()),
            false => Err(CatalogError::new(ErrorReason::Forbidden, "not granted")),
        }
    }
}

/// A catalog with namespaces `a`, `a.b`, `a.bc` and `z`.
struct HomesFixture {
    stage: Stage,
    catalog: Catalog,
    home: NamespaceIdent,
}

/// Operations that take a location.
const OPERATIONS: [&str; 15] = [
    "create table",
    "stage table",
    "commit a new table",
    "commit new tables at once",
    "set location",
    "set location of several",
    "create view",
    "replace view",
    "register file",
    "register document",
    "register over",
    "register view",
    "put function",
    "create namespace",
    "update namespace",
];

fn fragment(body: &Value) -> RawJson {
    RawJson::of(body).unwrap()
}

fn moved(location: &str) -> Value {
    json!({"action": "set-location", "location": location})
}

fn commit_of(updates: &Value) -> Value {
    json!({"requirements": [], "updates": updates})
}

fn new_table() -> Value {
    let fields = json!([{"id": 1, "name": "x", "required": false, "type": "long"}]);
    json!({"name": "own", "schema": {"type": "struct", "schema-id": 0, "fields": fields}})
}

fn new_view() -> Value {
    let mut body = new_table();
    body["properties"] = json!({});
    body["view-version"] = json!({
        "version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {},
        "default-namespace": ["a"],
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    });
    body
}

impl HomesFixture {
    async fn new() -> HomesFixture {
        let stage = sqlite().await;
        for levels in [&["a"][..], &["a", "b"], &["a", "bc"], &["z"]] {
            stage.namespace(levels).await;
        }
        let settings = CatalogSettings::clone(&stage.catalog.0.settings);
        let catalog = Catalog::open(stage.store.clone(), settings, Arc::new(Granted)).await;
        let home = NamespaceIdent::new(["a", "b"]).unwrap();
        HomesFixture { stage, catalog: catalog.unwrap(), home }
    }

    fn warehouse(&self) -> &Arc<Warehouse> {
        &self.stage.warehouse
    }

    async fn commit(
        &self,
        who: &CatalogPrincipal,
        ident: &TableIdent,
        body: &Value,
    ) -> Result<Arc<CachedVersion>> {
        let body = fragment(body);
        self.catalog
            .relations()
            .commit_table(&ChangeCall::of(who), self.warehouse(), ident, &body)
            .await
    }

    async fn transact(
        &self,
        who: &CatalogPrincipal,
        changes: &[(&TableIdent, Value)],
    ) -> Result<()> {
        let changes: Vec<Value> = changes
            .iter()
            .map(|(ident, body)| {
                let mut body = body.clone();
                body["identifier"] = json!({"namespace": ident.namespace, "name": ident.name});
                body
            })
            .collect();
        let body = fragment(&json!({"table-changes": changes}));
        self.catalog
            .relations()
            .commit_transaction(&ChangeCall::of(who), self.warehouse(), &body)
            .await
    }

    async fn register(&self, who: &CatalogPrincipal, body: &Value) -> Result<Arc<CachedVersion>> {
        let (call, body) = (ChangeCall::of(who), fragment(body));
        self.catalog.relations().register_table(&call, self.warehouse(), &self.home, &body).await
    }

    async fn relocate(
        &self,
        who: &CatalogPrincipal,
        ident: &NamespaceIdent,
        to: Option<&str>,
    ) -> Result<()> {
        let key = "location".to_owned();
        let (removals, updates) = match to {
            Some(to) => (vec![], Properties::from([(key, to.to_owned())])),
            None => (vec![key], Properties::new()),
        };
        let call = ChangeCall::of(who);
        let done = self.catalog.namespaces().update_namespace(
            &call,
            self.warehouse(),
            ident,
            removals,
            updates,
        );
        done.await.map(drop)
    }

    async fn create_namespace(
        &self,
        who: &CatalogPrincipal,
        levels: &[&str],
        at: Option<&str>,
    ) -> Result<()> {
        let ident = NamespaceIdent::new(levels).unwrap();
        let properties = at.map(|it| ("location".to_owned(), it.to_owned())).into_iter().collect();
        let call = ChangeCall::of(who);
        let made =
            self.catalog.namespaces().create_namespace(&call, self.warehouse(), &ident, properties);
        made.await.map(drop)
    }

    /// Writes a document to the file of a location, as if it belonged to a table at another one.
    async fn document(&self, of: &CachedVersion, location: &str, place: &str) -> String {
        let mut document: Value = serde_json::from_slice(of.document()).unwrap();
        document["location"] = json!(location);
        let file = format!("{}.metadata.json", place.trim_end_matches('/'));
        // An invalid location is rejected before any other check.
        if self.warehouse().check_location(&file).is_ok() {
            let path = file.replacen("file:/", "/", 1);
            let path = PathBuf::from(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, document.to_string()).unwrap();
        }
        file
    }

    /// Tries one operation with one location, and removes its results.
    async fn attempt(&self, who: &CatalogPrincipal, operation: &str, place: &str) -> Result<()> {
        let operator = &self.stage.who;
        let (own, other) = (ident(&["a", "b"], "own"), ident(&["a", "b"], "other"));
        let needs_table = ["set location", "set location of several", "register over"];
        let mut fixture = None;
        if needs_table.contains(&operation) {
            fixture = Some(self.commit(operator, &own, &creation(&json!({}))).await.unwrap());
            let mut elsewhere = creation(&json!({}));
            let place = format!("{}/other", self.warehouse().root());
            elsewhere["updates"].as_array_mut().unwrap().push(moved(&place));
            self.commit(operator, &other, &elsewhere).await.unwrap();
        }
        let done = self.tried(who, operation, place, fixture.as_deref()).await;
        let (call, warehouse) = (ChangeCall::of(operator), self.warehouse());
        for ident in [&own, &other] {
            for gone in [
                self.catalog.relations().drop_table(&call, warehouse, ident, false).await,
                self.catalog.relations().drop_view(&call, warehouse, ident).await,
                self.catalog.functions().drop_function(&call, warehouse, ident).await,
            ] {
                assert!(gone.is_ok() || refusal(gone).0.status() == 404);
            }
        }
        let inner = NamespaceIdent::new(["a", "b", "c"]).unwrap();
        let gone = self.catalog.namespaces().drop_namespace(&call, warehouse, &inner).await;
        assert!(gone.is_ok() || refusal(gone).0 == ErrorReason::NoSuchNamespace);
        self.relocate(operator, &self.home, None).await.unwrap();
        done
    }

    async fn tried(
        &self,
        who: &CatalogPrincipal,
        operation: &str,
        place: &str,
        fixture: Option<&CachedVersion>,
    ) -> Result<()> {
        let (catalog, warehouse, call) = (&self.catalog, self.warehouse(), &ChangeCall::of(who));
        let (own, other) = (&ident(&["a", "b"], "own"), &ident(&["a", "b"], "other"));
        let mut new = creation(&json!({}));
        match operation {
            "create table" | "stage table" => {
                let mut table = new_table();
                table["location"] = json!(place);
                table["stage-create"] = json!(operation == "stage table");
                let body = fragment(&table);
                catalog.relations().create_table(call, warehouse, &self.home, &body).await.map(drop)
            }
            "commit a new table" => {
                new["updates"].as_array_mut().unwrap().push(moved(place));
                self.commit(who, own, &new).await.map(drop)
            }
            "commit new tables at once" => {
                let mut fine = new.clone();
                // The two principals' objects must not overlap: overlaps are tested elsewhere.
                if &*who.id == "warehouse" {
                    let apart = format!("{}/other", warehouse.root());
                    fine["updates"].as_array_mut().unwrap().push(moved(&apart));
                }
                new["updates"].as_array_mut().unwrap().push(moved(place));
                self.transact(who, &[(other, fine), (own, new)]).await
            }
            "set location" => {
                self.commit(who, own, &commit_of(&json!([moved(place)]))).await.map(drop)
            }
            "set location of several" => {
                let property = json!([{"action": "set-properties", "updates": {"k": "v"}}]);
                let changes =
                    [(other, commit_of(&property)), (own, commit_of(&json!([moved(place)])))];
                self.transact(who, &changes).await
            }
            "put function" => {
                let mut metadata = testkit::documents::function_metadata();
                metadata["location"] = json!(place);
                let body = json!({"namespace": ["a", "b"], "name": "own", "metadata": metadata});
                catalog.functions().put_function(call, warehouse, &fragment(&body)).await.map(drop)
            }
            "create namespace" => self.create_namespace(who, &["a", "b", "c"], Some(place)).await,
            "update namespace" => self.relocate(who, &self.home, Some(place)).await,
            "create view" | "replace view" | "register view" => {
                self.tried_with_view(who, operation, place).await
            }
            _ => self.tried_with_file(who, operation, place, fixture).await,
        }
    }

    /// The same for operations on views.
    async fn tried_with_view(
        &self,
        who: &CatalogPrincipal,
        operation: &str,
        place: &str,
    ) -> Result<()> {
        let (catalog, warehouse, call) = (&self.catalog, self.warehouse(), &ChangeCall::of(who));
        let own = &ident(&["a", "b"], "own");
        let mut view = new_view();
        if operation == "create view" {
            view["location"] = json!(place);
            return catalog
                .relations()
                .create_view(call, warehouse, &self.home, &fragment(&view))
                .await
                .map(drop);
        }
        let root = ChangeCall::of(&self.stage.who);
        let made = catalog
            .relations()
            .create_view(&root, warehouse, &self.home, &fragment(&view))
            .await
            .unwrap();
        if operation == "replace view" {
            let body = fragment(&commit_of(&json!([moved(place)])));
            return catalog.relations().replace_view(call, warehouse, own, &body).await.map(drop);
        }
        catalog.relations().drop_view(&root, warehouse, own).await.unwrap();
        let file = self.document(&made, place, place).await;
        let body = fragment(&json!({"name": "own", "metadata-location": file}));
        catalog.relations().register_view(call, warehouse, &self.home, &body).await.map(drop)
    }

    /// The same for operations with metadata files of tables.
    async fn tried_with_file(
        &self,
        who: &CatalogPrincipal,
        operation: &str,
        place: &str,
        fixture: Option<&CachedVersion>,
    ) -> Result<()> {
        let (operator, warehouse) = (&self.stage.who, self.warehouse());
        let own = &ident(&["a", "b"], "own");
        let body = |file: &str| json!({"name": "own", "metadata-location": file});
        if operation == "register over" {
            let file = self.document(fixture.unwrap(), place, place).await;
            let mut body = body(&file);
            body["overwrite"] = json!(true);
            return self.register(who, &body).await.map(drop);
        }
        let made = self.commit(operator, own, &creation(&json!({}))).await.unwrap();
        self.catalog
            .relations()
            .drop_table(&ChangeCall::of(operator), warehouse, own, false)
            .await
            .unwrap();
        let mine = format!("{}/a/b/mine", warehouse.root());
        let file = match operation {
            "register file" => self.document(&made, &mine, place).await,
            "register document" => self.document(&made, place, &mine).await,
            _ => unreachable!("{operation}"),
        };
        self.register(who, &body(&file)).await.map(drop)
    }
}

/// Checks the outcomes of a location, for the principals of the namespace and of the warehouse,
/// with every operation.
async fn check_place(
    fixture: &HomesFixture,
    place: &str,
    of_namespace: Option<ErrorReason>,
    of_warehouse: Option<ErrorReason>,
) {
    let home = format!("{}/a/b", fixture.warehouse().root());
    for (id, expected) in [("namespace", of_namespace), ("warehouse", of_warehouse)] {
        let who = CatalogPrincipal::new(id, id);
        for operation in OPERATIONS {
            // A namespace may get its parent's home, or keep its own.
            let is_home = operation.ends_with("namespace") && place == home;
            let expected = if is_home { None } else { expected };
            let done = fixture.attempt(&who, operation, place).await;
            let found = done.as_ref().err().map(|error| error.kind);
            assert_eq!(found, expected, "{id}: {operation} at {place}: {done:?}");
            if found == Some(ErrorReason::Forbidden) && of_warehouse.is_none() {
                let message = refusal(done).1;
                assert!(message.contains("location`: the location `"), "{operation}: {message}");
                assert!(message.contains(&home), "{operation}: {message}");
            }
        }
    }
}

#[tokio::test]
async fn who_has_a_namespace_puts_nothing_outside_of_its_home() {
    let fixture = HomesFixture::new().await;
    let root = fixture.warehouse().root().to_owned();
    let extra = format!("file://{}/extra/x", fixture.stage._scratch.path().display());
    let (no, bad) = (Some(ErrorReason::Forbidden), Some(ErrorReason::BadRequest));
    for (place, of_namespace, of_warehouse) in [
        (format!("{root}/a/b/x"), None, None),
        (format!("{root}/a/b/x/"), None, None),
        (format!("{root}/a//b/x").replacen("file://", "file:", 1), None, None),
        (format!("{root}/a/b"), no, None),
        (format!("{root}/a"), no, None),
        (format!("{root}/a/x"), no, None),
        (format!("{root}/a/bc"), no, None),
        (format!("{root}/a/bc/x"), no, None),
        (format!("{root}/z/x"), no, None),
        (format!("{root}/A/b/x"), no, None),
        (extra, no, None),
        (root.clone(), no, no),
        ("file:///etc".to_owned(), no, no),
        ("s3://bucket/a/b/x".to_owned(), no, no),
        (format!("{root}/a/b/../z/x"), bad, bad),
        (format!("{root}/a/b/%2e%2e/z"), bad, bad),
        (format!("{root}/a/b/..%2fz"), bad, bad),
    ] {
        check_place(&fixture, &place, of_namespace, of_warehouse).await;
    }
}

/// Returns the default location of a new table of a namespace for the operator.
async fn default_of(fixture: &HomesFixture, namespace: &NamespaceIdent) -> String {
    let ident = TableIdent::new(namespace.clone(), "t").unwrap();
    let uuid = Uuid::from_bytes([0; 16]);
    let place = LocationRules::new(fixture.catalog.store())
        .new_location(fixture.warehouse(), &ident, uuid)
        .await
        .unwrap();
    place.rsplit_once('/').unwrap().0.to_owned()
}

#[tokio::test]
async fn a_home_is_in_the_one_above_and_only_those_above_widen_it() {
    let fixture = HomesFixture::new().await;
    let (operator, who) = (&fixture.stage.who, &CatalogPrincipal::new("namespace", "n"));
    let root = fixture.warehouse().root().to_owned();
    let above = NamespaceIdent::new(["a"]).unwrap();
    assert_eq!(default_of(&fixture, &fixture.home).await, format!("{root}/a/b"));
    fixture.relocate(operator, &above, Some(&format!("{root}/moved/"))).await.unwrap();
    assert_eq!(default_of(&fixture, &fixture.home).await, format!("{root}/moved/b"));
    let own = ident(&["a", "b"], "own");
    for (place, expected) in [("a/b/x", Some(ErrorReason::Forbidden)), ("moved/b/x", None)] {
        let mut body = creation(&json!({}));
        body["updates"].as_array_mut().unwrap().push(moved(&format!("{root}/{place}")));
        let made = fixture.commit(who, &own, &body).await;
        assert_eq!(made.err().map(|error| error.kind), expected, "{place}");
    }
    for (to, expected) in [
        (Some("moved/b"), None),
        (Some("moved/b/in"), None),
        (Some("moved/b/in"), None),
        (Some("moved/b"), Some(ErrorReason::Forbidden)),
        (Some("a/b"), Some(ErrorReason::Forbidden)),
        (None, Some(ErrorReason::Forbidden)),
    ] {
        let to = to.map(|it| format!("{root}/{it}"));
        let done = fixture.relocate(who, &fixture.home, to.as_deref()).await;
        assert_eq!(done.err().map(|error| error.kind), expected, "{to:?}");
    }
    assert_eq!(default_of(&fixture, &fixture.home).await, format!("{root}/moved/b/in"));
    fixture.create_namespace(who, &["a", "b", "c"], None).await.unwrap();
    let inner = NamespaceIdent::new(["a", "b", "c"]).unwrap();
    assert_eq!(default_of(&fixture, &inner).await, format!("{root}/moved/b/in/c"));
    // Without a location, there is nothing to remove.
    fixture.relocate(who, &inner, None).await.unwrap();
    fixture.relocate(operator, &fixture.home, None).await.unwrap();
    assert_eq!(default_of(&fixture, &inner).await, format!("{root}/moved/b/c"));
    let strange = fixture.create_namespace(who, &["y"], Some(&format!("{root}/moved/b/y"))).await;
    assert_eq!(refusal(strange).0, ErrorReason::Forbidden);
}

#[tokio::test]
async fn a_table_stays_where_it_is_and_moves_within_it() {
    let fixture = HomesFixture::new().await;
    let operator = &fixture.stage.who;
    let root = fixture.warehouse().root().to_owned();
    let (own, from) = (ident(&["a", "b"], "own"), ident(&["z"], "t"));
    fixture.commit(operator, &from, &creation(&json!({}))).await.unwrap();
    // A rename does not change the location.
    let (call, kind) = (ChangeCall::of(operator), RelationKind::Table);
    let renamed =
        fixture.catalog.relations().rename(&call, fixture.warehouse(), kind, &from, &own).await;
    renamed.unwrap();
    let entry =
        fixture.catalog.relations().load(operator, fixture.warehouse(), kind, &own).await.unwrap();
    let place = entry.table().unwrap().location.clone();
    assert!(place.starts_with(&format!("{root}/z/")), "{place}");
    // A principal with the table only may use only the table's location.
    let spelled = place.replacen("file://", "file:", 1);
    for (id, to, expected) in [
        ("namespace", spelled.clone(), None),
        ("table", place.clone(), None),
        ("table", format!("{root}/a/b/x"), Some(ErrorReason::Forbidden)),
        ("table", format!("{place}-2"), Some(ErrorReason::Forbidden)),
        ("table", format!("{place}/in"), None),
        ("table", place.clone(), Some(ErrorReason::Forbidden)),
        ("namespace", format!("{root}/z/other"), Some(ErrorReason::Forbidden)),
        ("namespace", format!("{root}/a/b/x"), None),
        // It was used before.
        ("namespace", place.clone(), Some(ErrorReason::Forbidden)),
        ("warehouse", place.clone(), None),
    ] {
        let who = CatalogPrincipal::new(id, id);
        let done = fixture.commit(&who, &own, &commit_of(&json!([moved(&to)]))).await;
        assert_eq!(done.err().map(|error| error.kind), expected, "{id} {to}");
    }
}

#[tokio::test]
async fn a_view_has_no_files_elsewhere() {
    let fixture = HomesFixture::new().await;
    let who = CatalogPrincipal::new("warehouse", "w");
    let (call, warehouse) = (ChangeCall::of(&who), fixture.warehouse());
    let own = ident(&["a", "b"], "own");
    let body = fragment(&new_view());
    let made = fixture
        .catalog
        .relations()
        .create_view(&call, warehouse, &fixture.home, &body)
        .await
        .unwrap();
    let place = made.view().unwrap().location.clone();
    for (path, expected) in [
        (format!("{place}/else"), None),
        (format!("{}/z", warehouse.root()), Some(ErrorReason::Forbidden)),
    ] {
        let updates = json!([{
            "action": "set-properties", "updates": {"write.metadata.path": path},
        }]);
        let body = fragment(&commit_of(&updates));
        let done = fixture.catalog.relations().replace_view(&call, warehouse, &own, &body).await;
        assert_eq!(done.err().map(|error| error.kind), expected, "{path}");
        let mut document: Value = serde_json::from_slice(made.document()).unwrap();
        document["location"] = json!(format!("{}/a/b/r", warehouse.root()));
        document["properties"] = json!({"write.metadata.path": format!("{}/z", warehouse.root())});
        let file = format!("{}/a/b/r.metadata.json", warehouse.root());
        fs::create_dir_all(fixture.stage.path(&file).parent().unwrap()).unwrap();
        fs::write(fixture.stage.path(&file), document.to_string()).unwrap();
        let body = fragment(&json!({"name": "r", "metadata-location": file}));
        let done =
            fixture.catalog.relations().register_view(&call, warehouse, &fixture.home, &body).await;
        assert_eq!(refusal(done).0, ErrorReason::Forbidden);
    }
}

#[tokio::test]
async fn a_document_that_was_changed_in_its_file_gives_no_other_place() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    stage.catalog.dropped().set_retention(&stage.who, &stage.warehouse, Some(3600)).await.unwrap();
    let t = ident(&["a"], "t");
    // Too long to be stored outside of its file.
    let long = "x".repeat(crate::store::DOCUMENT_BYTES_KEPT_MAX);
    let made = stage.commit(&t, &creation(&json!({"long": long}))).await.unwrap();
    let base = made.table().unwrap().location.clone();
    let file = stage.path(location(&made));
    let other = stage.directory.join("other");
    fs::create_dir_all(&other).unwrap();
    let elsewhere = format!("{}/other", stage.warehouse.root());
    let document: Value = serde_json::from_slice(made.document()).unwrap();
    for (path, value, is_good) in [
        ("/location", json!(elsewhere), false),
        ("/table-uuid", json!("00000000-0000-4000-8000-000000000000"), false),
        ("/properties/write.data.path", json!(elsewhere), false),
        ("/properties/write.data.path", json!(format!("{base}/data")), true),
        ("/location", json!(format!("{base}/")), true),
    ] {
        let mut changed = document.clone();
        changed["properties"]["write.data.path"] = json!(format!("{base}/x"));
        *changed.pointer_mut(path).unwrap() = value.clone();
        fs::write(&file, changed.to_string()).unwrap();
        // Another process has an empty cache.
        let other = stage.again().await;
        let loaded = other.load(&t).await;
        match is_good {
            true => drop(loaded.unwrap()),
            false => assert_eq!(refusal(loaded).0, ErrorReason::NotFound, "{path} {value}"),
        }
        other.store.close().await;
    }
    stage.drop(&t, true).await.unwrap();
    let mut changed = document.clone();
    changed["location"] = json!(elsewhere);
    check_purge(&stage, &file, &changed).await;
    // Its log could name any file that no pointer refers to.
    let u = ident(&["a"], "u");
    let made = stage.commit(&u, &creation(&json!({"long": long}))).await.unwrap();
    let mut changed: Value = serde_json::from_slice(made.document()).unwrap();
    changed["properties"]["write.metadata.path"] = json!(elsewhere);
    changed["metadata-log"] =
        json!([{"timestamp-ms": 1, "metadata-file": format!("{elsewhere}/data.parquet")}]);
    stage.drop(&u, true).await.unwrap();
    check_purge(&stage, &stage.path(location(&made)), &changed).await;
}

/// Checks that purging a dropped table, whose document was replaced in its file by this one,
/// removes no files elsewhere.
async fn check_purge(stage: &Stage, file: &Path, changed: &Value) {
    let other = stage.directory.join("other/data.parquet");
    fs::write(&other, "x").unwrap();
    fs::write(file, changed.to_string()).unwrap();
    let page = PageRequest::default();
    let list =
        stage.catalog.dropped().list_dropped(&stage.who, &stage.warehouse, None, &page).await;
    let id = list.unwrap().items[0].pointer.id.clone();
    stage.catalog.dropped().purge_dropped(&stage.call(), &stage.warehouse, &id).await.unwrap();
    assert!(other.exists() && file.exists(), "{changed}");
}

#[tokio::test]
async fn a_namespace_has_its_home_beside_the_table_of_its_name() {
    let fixture = HomesFixture::new().await;
    let (stage, operator) = (&fixture.stage, &fixture.stage.who);
    let mut settings = CatalogSettings::clone(&stage.catalog.0.settings);
    settings.storage.plain_locations = true;
    let catalog = Catalog::open(stage.store.clone(), settings, Arc::new(Granted)).await.unwrap();
    let (call, warehouse) = (ChangeCall::of(operator), catalog.default_warehouse().unwrap());
    let plain = format!("{}/a/b", warehouse.root());
    catalog.namespaces().drop_namespace(&call, &warehouse, &fixture.home).await.unwrap();
    let body = fragment(&creation(&json!({})));
    let made = catalog
        .relations()
        .commit_table(&call, &warehouse, &ident(&["a"], "b"), &body)
        .await
        .unwrap();
    assert_eq!(made.table().unwrap().location, plain);
    let none = Properties::new();
    let properties = catalog
        .namespaces()
        .create_namespace(&call, &warehouse, &fixture.home, none)
        .await
        .unwrap();
    let home = properties["location"].trim_end_matches('/');
    assert!(home.starts_with(&format!("{plain}~")), "{home}");
    // The principal of the namespace stages a table there and creates it.
    let (who, own) = (CatalogPrincipal::new("namespace", "n"), ident(&["a", "b"], "own"));
    let mut body = new_table();
    body["stage-create"] = json!(true);
    let (call, body) = (ChangeCall::of(&who), fragment(&body));
    let staged =
        catalog.relations().create_table(&call, &warehouse, &fixture.home, &body).await.unwrap();
    let place = staged.table().unwrap().location.clone();
    assert_eq!(place, format!("{home}/own"));
    let mut body = creation(&json!({}));
    body["updates"].as_array_mut().unwrap().push(moved(&place));
    let body = fragment(&body);
    let made = catalog.relations().commit_table(&call, &warehouse, &own, &body).await.unwrap();
    assert_eq!(made.table().unwrap().location, place);
}
