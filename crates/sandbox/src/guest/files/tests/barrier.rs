//! Events of a watch up to a barrier.

use super::*;

/// Returns the events that a watch has reported when its barrier is passed.
async fn so_far(watch: &mut Watch) -> Vec<(WatchKind, String)> {
    let barrier = watch.barrier();
    let mut passed = Box::pin(barrier.wait());
    let mut received = Vec::new();
    let waited = time::timeout(PATIENCE, async {
        loop {
            tokio::select! {
                () = &mut passed => return,
                event = watch.next() => {
                    let WatchEvent { kind, path } = event.unwrap();
                    received.push((kind, path));
                }
            }
        }
    });
    waited.await.unwrap();
    received
}

// Regression: clients that asked right after a write got its event in half of all cases only, and
// events of this helper's temporary names.
#[tokio::test]
async fn what_has_happened_is_told_when_it_is_asked_for_and_no_temporary_names_are() {
    let place = Place::new();
    for depth in [ListDepth::Single, ListDepth::Recursive] {
        let dir = format!("{depth:?}");
        fs::create_dir(place.dir.join(&dir)).unwrap();
        std::os::unix::fs::chown(place.dir.join(&dir), Some(USER), Some(USER)).ok();
        let mut watch = place.files.watch(place.at(&dir), depth).await.unwrap();
        assert_eq!(so_far(&mut watch).await, []);
        let name = format!("{dir}/f.txt");
        let created = [(WatchKind::Create, "f.txt".to_owned())];
        for round in 0..20 {
            place.write(&name, &format!("{round}")).await;
            assert_eq!(so_far(&mut watch).await, created, "{name} {round}");
        }
        // A program's own file, although its name looks like that of an unnamed one.
        let odd = place.dir.join(&dir).join("#1");
        fs::write(&odd, "").unwrap();
        fs::set_permissions(&odd, fs::Permissions::from_mode(0o600)).unwrap();
        let odd = |kind| (kind, "#1".to_owned());
        let received = so_far(&mut watch).await;
        assert_eq!(received, [odd(WatchKind::Create), odd(WatchKind::Chmod)]);
    }
}

#[tokio::test]
async fn nobody_waits_at_the_barrier_of_a_watch_that_has_ended() {
    let place = Place::new();
    fs::create_dir(place.dir.join("d")).unwrap();
    let mut watch = place.files.watch(place.at("d"), ListDepth::Single).await.unwrap();
    let barrier = watch.barrier();
    fs::remove_dir(place.dir.join("d")).unwrap();
    until(&mut watch, WatchKind::Remove, "").await;
    assert_eq!(time::timeout(PATIENCE, watch.next()).await.unwrap(), None);
    time::timeout(PATIENCE, barrier.wait()).await.unwrap();
    drop(watch);
    time::timeout(PATIENCE, barrier.wait()).await.unwrap();
}

#[test]
fn temporary_names_are_known() {
    for (name, expected) in [
        (".cove-17-0", true),
        (".cove-17-moved", true),
        (".cove-17-", false),
        (".cove--1", false),
        (".cove-a-1", false),
        (".cove-17-1.txt", false),
        (".cove", false),
        ("f.txt", false),
    ] {
        assert_eq!(crate::guest::files::ops::is_temporary(name.as_bytes()), expected, "{name}");
    }
}
