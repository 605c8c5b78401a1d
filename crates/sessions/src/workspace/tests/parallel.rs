//! Concurrent restores: a store that answers only once enough requests have arrived concurrently.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use node::objects::{ObjectStore, ObjectsUrl, SigningCredentials};
use parking_lot::Mutex;
use sandbox::DiskSize;
use tokio::sync::watch;

use super::{MIB, Place, image_of, restore_within, store_alone};
use crate::metrics::RestoreMetrics;
use crate::workspace::WorkspaceStore;
use crate::workspace::restores::{RestoreLimits, RestoreRank};

/// Time limit for waits that would never end.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Objects in memory. Requests for keys that contain `held` are answered only once `together` of
/// them are pending.
struct HeldObjects {
    objects: Mutex<BTreeMap<String, Bytes>>,
    held: &'static str,
    together: usize,
    /// Keys of pending requests.
    asked: watch::Sender<HashSet<String>>,
    /// Keys in order of their requests.
    order: Mutex<Vec<String>>,
    most: Mutex<usize>,
}

impl HeldObjects {
    /// Starts a store that answers requests for keys with `held` in groups of `together`.
    async fn start(held: &'static str, together: usize) -> (Arc<HeldObjects>, ObjectStore) {
        let held = Arc::new(HeldObjects {
            objects: Mutex::default(),
            held,
            together,
            asked: watch::Sender::default(),
            order: Mutex::default(),
            most: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("s3://held?endpoint=http://{}", listener.local_addr().unwrap());
        let service = Router::new().fallback(answer).with_state(Arc::clone(&held));
        tokio::spawn(async move { axum::serve(listener, service).await });
        let Ok(ObjectsUrl::S3(location)) = url.parse() else { panic!("{url}") };
        let credentials = SigningCredentials {
            access_key_id: "ID".to_owned(),
            secret_access_key: "KEY".to_owned(),
            session_token: None,
        };
        (held, ObjectStore::in_s3(location, credentials))
    }

    async fn get(&self, key: &str) -> Option<Bytes> {
        let object = self.objects.lock().get(key).cloned()?;
        self.order.lock().push(key.to_owned());
        if key.contains(self.held) {
            self.asked.send_modify(|asked| {
                asked.insert(key.to_owned());
                let mut most = self.most.lock();
                *most = most.max(asked.len());
            });
            // Members of a complete group proceed, even if others have already left.
            let are_enough = |_: &HashSet<String>| *self.most.lock() >= self.together;
            self.asked.subscribe().wait_for(are_enough).await.unwrap();
            self.asked.send_modify(|asked| asked.retain(|it| it != key));
        }
        Some(object)
    }
}

async fn answer(
    State(held): State<Arc<HeldObjects>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, Bytes) {
    let key = uri.path().trim_start_matches("/held/").to_owned();
    match method {
        Method::PUT => {
            held.objects.lock().insert(key, body);
            (StatusCode::OK, Bytes::new())
        }
        Method::HEAD => match held.objects.lock().contains_key(&key) {
            true => (StatusCode::OK, Bytes::new()),
            false => (StatusCode::NOT_FOUND, Bytes::new()),
        },
        _ => match held.get(&key).await {
            Some(object) => (StatusCode::OK, object),
            None => (StatusCode::NOT_FOUND, Bytes::new()),
        },
    }
}

/// Waits for work that would never finish without enough concurrency.
async fn soon<T>(held: &HeldObjects, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(GIVE_UP, work).await {
        Ok(done) => done,
        Err(_) => panic!("{} at once instead of {}", held.most.lock(), held.together),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_an_image_come_side_by_side() {
    let place = Place::new("side");
    let (held, objects) = HeldObjects::start("/pieces/", 16).await;
    let path = place.0.join("image");
    let parts: Vec<_> = (0..20).map(|i: u8| (u64::from(i) * MIB, vec![i + 1; 4096])).collect();
    image_of(&path, 20 * MIB, &parts);
    let stored = store_alone(&objects, "d", "m", &path, None).await.unwrap();
    let back = place.0.join("back");
    let limits = RestoreLimits::new();
    let restored = restore_within(&limits, &objects, RestoreRank::Disk(1), &stored.manifest, &back);
    soon(&held, restored).await.unwrap();
    assert!(std::fs::read(&path).unwrap() == std::fs::read(&back).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn images_come_side_by_side_and_those_that_were_used_last_first() {
    const IMAGES: usize = 4;
    let place = Place::new("order");
    let (held, objects) = HeldObjects::start("/m.json", IMAGES).await;
    let limits = Arc::new(RestoreLimits::with(IMAGES, 1));
    let mut manifests = Vec::new();
    for number in 0..2 * IMAGES as u64 {
        let path = place.0.join(format!("image{number}"));
        image_of(&path, MIB, &[(0, vec![7; 4096])]);
        let disk = format!("d{number}");
        let stored = store_alone(&objects, &disk, "m", &path, None).await.unwrap();
        manifests.push(stored.manifest);
    }
    let mut taken = Vec::new();
    for _ in 0..IMAGES {
        taken.push(limits.image(RestoreRank::Layer).await);
    }
    let mut restoring = tokio::task::JoinSet::new();
    for (number, manifest) in manifests.iter().enumerate() {
        let to = place.0.join(format!("back{number}"));
        let (objects, limits) = (objects.clone(), Arc::clone(&limits));
        let (rank, manifest) = (RestoreRank::Disk(number as u64), manifest.clone());
        let waiting = Arc::clone(&limits);
        restoring
            .spawn(async move { restore_within(&limits, &objects, rank, &manifest, &to).await });
        waiting.until_waiting(number + 1).await;
    }
    drop(taken);
    while let Some(restored) = soon(&held, restoring.join_next()).await {
        restored.unwrap().unwrap();
    }
    assert_eq!(*held.most.lock(), IMAGES, "no more than there are places");
    let order = held.order.lock();
    let mut first: Vec<&String> =
        order.iter().filter(|key| key.ends_with("/m.json")).take(IMAGES).collect();
    first.sort();
    // The fourth place goes to the request that has waited longest.
    assert_eq!(first, [0, 5, 6, 7].map(|number| &manifests[number]));
}

/// Layers do not wait for each other, so a chain is ready with its slowest layer.
#[tokio::test(flavor = "multi_thread")]
async fn layers_come_side_by_side() {
    let place = Place::new("layers");
    let (held, objects) = HeldObjects::start("/manifest.json", 3).await;
    let size = DiskSize { bytes: 16 << 20, inodes: 1024 };
    let open = || {
        let metrics = RestoreMetrics::default();
        WorkspaceStore::open(&place.0, objects.clone(), size, 0, metrics).unwrap()
    };
    let workspaces = open();
    let mut chain = Vec::new();
    for _ in 0..3 {
        let disk = workspaces.blank(size).await.unwrap();
        let id = disk.id.clone();
        drop(disk);
        chain.push(workspaces.freeze(&id).await.unwrap());
    }
    workspaces.publish_all(&chain).await.unwrap();
    for layer in &chain {
        std::fs::remove_file(workspaces.layer_path(layer)).unwrap();
    }
    let (one, others) = chain.split_at(1);
    let elsewhere = open();
    // Two chains: one of one layer, and one of two.
    let found =
        soon(&held, async { tokio::try_join!(elsewhere.layers(one), elsewhere.layers(others)) });
    let (one, others) = found.await.unwrap();
    assert_eq!((one.len(), others.len()), (1, 2));
    assert_eq!(elsewhere.layers(&chain).await.unwrap().len(), 3);
}
