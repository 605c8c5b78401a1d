//! Concurrent requests for one name or one location: one succeeds, and the others leave everything
//! unchanged.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::*;

/// Rounds on each store.
const ROUNDS: u64 = 40;

/// An operation on the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Create,
    /// Finishes a staged table.
    Commit,
    View,
    Register,
    Rename,
    Undrop,
    /// Removes the namespace of the name.
    DropNamespace,
}

const DEEDS: [Deed; 7] = [
    Deed::Create,
    Deed::Commit,
    Deed::View,
    Deed::Register,
    Deed::Rename,
    Deed::Undrop,
    Deed::DropNamespace,
];

/// A deterministic generator: the same numbers for the same seed.
struct Numbers(u64);

impl Numbers {
    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// Initial state of a round: an empty namespace, and another one with the objects to move there.
#[derive(Clone, Debug)]
struct Scene {
    name: TableIdent,
    /// The table that is renamed.
    from: TableIdent,
    /// The metadata file to register, which belongs to no table.
    file: String,
    /// Id of the dropped table.
    dropped: String,
}

fn view(name: &str) -> Value {
    json!({
        "name": name,
        "schema": schema(),
        "properties": {},
        "view-version": {
            "version-id": 1,
            "timestamp-ms": 1,
            "schema-id": 0,
            "summary": {},
            "default-namespace": ["n"],
            "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
        },
    })
}

fn schema() -> Value {
    creation(&json!({}))["updates"][1]["schema"].clone()
}

impl Scene {
    async fn new(stage: &Stage, round: u64) -> Scene {
        let (here, there) = (format!("r{round}"), format!("s{round}"));
        stage.namespace(&[&here]).await;
        stage.namespace(&[&there]).await;
        let [from, gone, lost] = ["from", "gone", "lost"].map(|name| ident(&[&there], name));
        for table in [&from, &gone, &lost] {
            stage.table(table).await;
        }
        let (call, catalog, warehouse) = (stage.call(), &stage.catalog, &stage.warehouse);
        let gone = catalog.relations().unregister_table(&call, warehouse, &gone).await.unwrap();
        stage.drop(&lost, false).await.unwrap();
        let page = PageRequest::default();
        let namespace = Some(&lost.namespace);
        let dropped = catalog.dropped().list_dropped(&stage.who, warehouse, namespace, &page).await;
        let dropped = dropped.unwrap().items.pop().unwrap().pointer.id;
        Scene { name: ident(&[&here], "t"), from, file: location(&gone).to_owned(), dropped }
    }

    async fn act(&self, deed: Deed, catalog: &Catalog, who: &CatalogPrincipal) -> Result<()> {
        let warehouse = &catalog.default_warehouse().unwrap();
        let (call, ns, name) = (&ChangeCall::of(who), &self.name.namespace, &self.name);
        let body = match deed {
            Deed::Create => json!({"name": "t", "schema": schema()}),
            Deed::Commit => creation(&json!({})),
            Deed::View => view("t"),
            Deed::Register => json!({"name": "t", "metadata-location": self.file}),
            Deed::Rename | Deed::Undrop | Deed::DropNamespace => json!({}),
        };
        let body = &RawJson::of(&body).unwrap();
        match deed {
            Deed::Create => {
                catalog.relations().create_table(call, warehouse, ns, body).await.map(drop)
            }
            Deed::Commit => {
                catalog.relations().commit_table(call, warehouse, name, body).await.map(drop)
            }
            Deed::View => {
                catalog.relations().create_view(call, warehouse, ns, body).await.map(drop)
            }
            Deed::Register => {
                catalog.relations().register_table(call, warehouse, ns, body).await.map(drop)
            }
            Deed::Rename => {
                let names = (&self.from, name);
                catalog
                    .relations()
                    .rename(call, warehouse, RelationKind::Table, names.0, names.1)
                    .await
            }
            Deed::Undrop => {
                let to = name.clone();
                let undropped =
                    catalog.dropped().undrop(call, warehouse, &self.dropped, |_| Ok(to)).await;
                undropped.map(drop)
            }
            Deed::DropNamespace => catalog.namespaces().drop_namespace(call, warehouse, ns).await,
        }
    }
}

/// Chooses the concurrent operations of a round: two to five, different or equal.
fn cast(numbers: &mut Numbers) -> Vec<Deed> {
    let count = 2 + numbers.below(4);
    let mut deeds: Vec<Deed> = (0..count).map(|_| DEEDS[numbers.below(DEEDS.len())]).collect();
    if deeds.iter().all(|deed| *deed == Deed::DropNamespace) {
        deeds.push(Deed::Create);
    }
    deeds
}

/// Returns whether an error is one of an operation that lost the race.
fn is_late(deed: Deed, kind: ErrorReason) -> bool {
    match deed {
        Deed::DropNamespace => {
            matches!(kind, ErrorReason::NamespaceNotEmpty | ErrorReason::NoSuchNamespace)
        }
        // Its table was taken by an equal operation.
        Deed::Rename if kind == ErrorReason::NoSuchTable => true,
        Deed::Undrop if kind == ErrorReason::NotFound => true,
        // The location of the file belongs to another table by then.
        Deed::Commit if kind == ErrorReason::CommitFailed => true,
        _ => matches!(kind, ErrorReason::AlreadyExists | ErrorReason::NoSuchNamespace),
    }
}

/// Returns the metadata files of the namespaces of a round.
fn files(stage: &Stage, scene: &Scene) -> BTreeSet<PathBuf> {
    let mut waiting: Vec<_> = [&scene.name, &scene.from]
        .iter()
        .map(|it| stage.directory.join(&*it.namespace.levels()[0]))
        .collect();
    let mut found = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        let Ok(inside) = std::fs::read_dir(&path) else { continue };
        for entry in inside.map(|it| it.unwrap().path()) {
            if entry.is_dir() {
                waiting.push(entry);
            } else {
                found.insert(entry);
            }
        }
    }
    found
}

/// Runs the operations on both servers and checks the state of both afterwards.
async fn round(stage: &Stage, servers: &[Catalog; 2], round: u64) {
    let mut numbers = Numbers(round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (scene, deeds) = (Scene::new(stage, round).await, cast(&mut numbers));
    let (start, mut all) = (Arc::new(Barrier::new(deeds.len())), JoinSet::new());
    for deed in deeds.iter().copied() {
        let (scene, start, who) = (scene.clone(), Arc::clone(&start), stage.who.clone());
        let (catalog, pauses) = (servers[numbers.below(2)].clone(), numbers.below(4));
        all.spawn(async move {
            start.wait().await;
            for _ in 0..pauses {
                tokio::task::yield_now().await;
            }
            (deed, scene.act(deed, &catalog, &who).await)
        });
    }
    let results = all.join_all().await;
    let about = || {
        let outcomes =
            results.iter().map(|(deed, it)| (deed, it.as_ref().map_err(|it| &it.message)));
        format!("round {round}: {:?}", outcomes.collect::<Vec<_>>())
    };
    for (deed, result) in &results {
        let refused = result.as_ref().err().map(|error| error.kind);
        assert!(
            refused.is_none_or(|kind| is_late(*deed, kind)),
            "{deed:?} {refused:?} {}",
            about()
        );
    }
    let done: Vec<Deed> = results.iter().filter(|it| it.1.is_ok()).map(|it| it.0).collect();
    assert_eq!(done.len(), 1, "{}", about());
    check_end(stage, servers, &scene, done[0]).await;
}

async fn check_end(stage: &Stage, servers: &[Catalog; 2], scene: &Scene, winner: Deed) {
    let (who, warehouse, page) = (&stage.who, &stage.warehouse, &PageRequest::default());
    let mut expected = BTreeSet::from([stage.path(&scene.file)]);
    for server in servers {
        for kind in [RelationKind::Table, RelationKind::View] {
            let found =
                server.relations().list(who, warehouse, kind, &scene.name.namespace, page).await;
            if winner == Deed::DropNamespace {
                assert_eq!(refusal(found).0, ErrorReason::NoSuchNamespace, "{scene:?}");
                continue;
            }
            let is_its_kind = (kind == RelationKind::View) == (winner == Deed::View);
            let wanted = if is_its_kind { vec![scene.name.clone()] } else { Vec::new() };
            assert_eq!(found.unwrap().items, wanted, "{winner:?}");
            let loaded = server.relations().load(who, warehouse, kind, &scene.name).await;
            assert_eq!(loaded.is_ok(), is_its_kind, "{winner:?} {kind:?}");
            if let Ok(entry) = loaded {
                let file = documents::read(warehouse, location(&entry)).await.unwrap();
                assert_eq!(file, entry.document(), "{winner:?}");
                expected.insert(stage.path(location(&entry)));
            }
        }
        let from = server.relations().load(who, warehouse, RelationKind::Table, &scene.from).await;
        assert_eq!(from.is_ok(), winner != Deed::Rename);
        expected.extend(from.iter().map(|entry| stage.path(location(entry))));
        let lost = Some(&scene.from.namespace);
        let dropped =
            server.dropped().list_dropped(who, warehouse, lost, page).await.unwrap().items;
        assert_eq!(dropped.len(), usize::from(winner != Deed::Undrop));
        expected.extend(dropped.iter().map(|it| stage.path(&it.pointer.location)));
    }
    // Losers left nothing behind, and removed nothing of others.
    assert_eq!(files(stage, scene), expected, "{winner:?}");
}

async fn check_rounds(stage: &Stage, servers: [Catalog; 2]) {
    stage.catalog.dropped().set_retention(&stage.who, &stage.warehouse, Some(3600)).await.unwrap();
    for number in 0..ROUNDS {
        round(stage, &servers, number).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_all_who_want_a_name_one_gets_it_with_sqlite() {
    let stage = sqlite().await;
    check_rounds(&stage, [stage.catalog.clone(), stage.catalog.clone()]).await;
    stage.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_all_who_want_a_name_one_gets_it_with_two_servers() {
    let server = Postgres::shared();
    let url = StoreUrl::Postgres(server.database());
    let one = Stage::new(url, Arc::new(Scratch::new())).await;
    let other = one.again().await;
    check_rounds(&one, [one.catalog.clone(), other.catalog.clone()]).await;
    other.store.close().await;
    one.store.close().await;
}

/// Grants everything to all principals, none of which is an operator.
struct All;

impl RightAuthority for All {
    fn check(
        &self,
        _: &CatalogPrincipal,
        _: &Warehouse,
        _: AccessRight,
        _: RightTarget<'_>,
    ) -> Result<()> {
        Ok(())
    }
}

/// Returns a commit that creates a table at a location.
fn creation_at(place: &str) -> Value {
    let mut body = creation(&json!({}));
    let updates = body["updates"].as_array_mut().unwrap();
    updates.push(json!({"action": "set-location", "location": place}));
    body
}

async fn check_places(stage: &Stage) {
    let authority: Arc<dyn RightAuthority> = Arc::new(All);
    let settings = &*stage.catalog.0.settings;
    let mut servers = Vec::new();
    for _ in 0..2 {
        let opened = Catalog::open(stage.store.clone(), settings.clone(), Arc::clone(&authority));
        servers.push(opened.await.unwrap());
    }
    let who = CatalogPrincipal { operator: false, ..stage.who.clone() };
    stage.namespace(&["a"]).await;
    let root = stage.warehouse.root().to_owned();
    for round in 0..8 {
        // Each location equals another one, or is below or above it.
        let places = ["x/y", "x/y", "x/y/z", "x"].map(|it| format!("{root}/p{round}/{it}"));
        let (start, mut all) = (Arc::new(Barrier::new(places.len())), JoinSet::new());
        for (number, place) in places.into_iter().enumerate() {
            let (catalog, who) = (servers[number % 2].clone(), who.clone());
            let (warehouse, start) = (Arc::clone(&stage.warehouse), Arc::clone(&start));
            let t = ident(&["a"], &format!("t{round}-{number}"));
            all.spawn(async move {
                let body = RawJson::of(&creation_at(&place)).unwrap();
                start.wait().await;
                catalog
                    .relations()
                    .commit_table(&ChangeCall::of(&who), &warehouse, &t, &body)
                    .await
                    .map(drop)
            });
        }
        let results = all.join_all().await;
        assert_eq!(results.iter().filter(|it| it.is_ok()).count(), 1, "{results:?}");
        for refused in results.into_iter().filter(Result::is_err) {
            let (kind, message) = refusal(refused);
            assert_eq!(kind, ErrorReason::Forbidden);
            assert!(message.contains("is within another table's or contains it"), "{message}");
        }
    }
    // Two changes of one transaction cannot share or nest locations either.
    let change = |name: &str, place: &str| {
        let mut body = creation_at(&format!("{root}/{place}"));
        body["identifier"] = json!({"namespace": ["a"], "name": name});
        body
    };
    let call = ChangeCall::of(&who);
    for (one, other, is_good) in [
        ("once", "once", false),
        ("once", "once/in", false),
        ("once/in", "once", false),
        ("once", "once-more", true),
    ] {
        let both = json!({"table-changes": [change("u", one), change("v", other)]});
        let both = RawJson::of(&both).unwrap();
        let done = servers[0].relations().commit_transaction(&call, &stage.warehouse, &both).await;
        match is_good {
            true => done.unwrap(),
            false => assert_eq!(refusal(done).0, ErrorReason::Forbidden, "{one} {other}"),
        }
        for name in ["u", "v"] {
            let loaded = stage.load(&ident(&["a"], name)).await;
            assert_eq!(loaded.is_ok(), is_good, "{one} {other}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_all_who_want_a_place_one_gets_it() {
    check(check_places).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_all_who_make_a_namespace_one_makes_it() {
    let server = Postgres::shared();
    let url = StoreUrl::Postgres(server.database());
    let one = Stage::new(url, Arc::new(Scratch::new())).await;
    let other = one.again().await;
    for round in 0..20 {
        let (start, mut all) = (Arc::new(Barrier::new(4)), JoinSet::new());
        let ident = NamespaceIdent::new([format!("n{round}")]).unwrap();
        for number in 0..4 {
            let stage = if number % 2 == 0 { &one } else { &other };
            let (catalog, warehouse) = (stage.catalog.clone(), Arc::clone(&stage.warehouse));
            let (ident, start, who) = (ident.clone(), Arc::clone(&start), stage.who.clone());
            all.spawn(async move {
                let of = Properties::from([("maker".to_owned(), number.to_string())]);
                start.wait().await;
                let made = catalog
                    .namespaces()
                    .create_namespace(&ChangeCall::of(&who), &warehouse, &ident, of)
                    .await;
                (number, made.map(drop))
            });
        }
        let (made, refused): (Vec<_>, Vec<_>) =
            all.join_all().await.into_iter().partition(|it| it.1.is_ok());
        assert_eq!(made.len(), 1, "{refused:?}");
        for (_, late) in refused {
            assert_eq!(refusal(late).0, ErrorReason::AlreadyExists);
        }
        for stage in [&one, &other] {
            let found = stage
                .catalog
                .namespaces()
                .load_namespace(&stage.who, &stage.warehouse, &ident)
                .await;
            assert_eq!(found.unwrap()["maker"], made[0].0.to_string());
        }
    }
    other.store.close().await;
    one.store.close().await;
}
