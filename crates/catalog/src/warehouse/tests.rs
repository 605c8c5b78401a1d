//! Locations inside and outside of a warehouse, by name and by symbolic link.

use std::fs;
use std::os::unix::fs::symlink;

use bytes::Bytes;
use node::objects::SigningCredentials;
use testkit::{S3, Scratch};

use super::*;

fn warehouse(root: &str, locations: &[&str], credentials: Option<SigningCredentials>) -> Warehouse {
    let locations = locations.iter().map(|it| (*it).to_owned()).collect();
    let (id, name) = ("wh_1".to_owned(), "main".to_owned());
    let spec = WarehouseSpec {
        id,
        name,
        root: root.to_owned(),
        locations,
        credentials,
        ..WarehouseSpec::default()
    };
    Warehouse::new(spec).unwrap()
}

#[test]
fn a_location_outside_of_the_roots_is_refused() {
    let warehouse = warehouse("file:///w/main/", &["file:/tmp", "/data//x"], None);
    for (location, expected) in [
        ("file:///w/main/ns/t", None),
        ("file:/w/main/ns/t", None),
        ("/w/main/t", None),
        ("file:///w//main/t/", None),
        ("file:/tmp/ns/tbl", None),
        ("file:///data/x/y", None),
        ("file:///w/main", Some(ErrorReason::Forbidden)),
        ("file:///w/main/", Some(ErrorReason::Forbidden)),
        ("file:///w/mainly/t", Some(ErrorReason::Forbidden)),
        ("file:///w", Some(ErrorReason::Forbidden)),
        ("file:///etc/passwd", Some(ErrorReason::Forbidden)),
        ("file:///", Some(ErrorReason::Forbidden)),
        ("s3://w/main/t", Some(ErrorReason::Forbidden)),
        ("file:///w/main/../../etc", Some(ErrorReason::BadRequest)),
        ("file:///w/main/./t", Some(ErrorReason::BadRequest)),
        ("file:///w/main/%2e%2E/t", Some(ErrorReason::BadRequest)),
        ("file:///w/main/.%2e/t", Some(ErrorReason::BadRequest)),
        ("file:///w/main/..%2fetc", Some(ErrorReason::BadRequest)),
        ("file:///w/main/a\\..\\b", Some(ErrorReason::BadRequest)),
        ("file:///w/main/a\0b", Some(ErrorReason::BadRequest)),
        ("file:///w/main/a?b", Some(ErrorReason::BadRequest)),
        ("file:///w/main/a#b", Some(ErrorReason::BadRequest)),
        ("file://elsewhere/w/main/t", Some(ErrorReason::BadRequest)),
        ("file:w/main/t", Some(ErrorReason::BadRequest)),
        ("w/main/t", Some(ErrorReason::BadRequest)),
        ("http://w/main/t", Some(ErrorReason::BadRequest)),
        ("s3:///w", Some(ErrorReason::BadRequest)),
        ("s3://w/main//t", Some(ErrorReason::BadRequest)),
        ("s3://w//main", Some(ErrorReason::BadRequest)),
        ("", Some(ErrorReason::BadRequest)),
    ] {
        let refused = warehouse.check_location(location).err().map(|error| error.kind);
        assert_eq!(refused, expected, "{location}");
    }
    let long = format!("file:///w/main/{}", "x/".repeat(LOCATION_BYTES_MAX));
    assert_eq!(warehouse.check_location(&long).unwrap_err().kind, ErrorReason::BadRequest);
    assert!(warehouse.check_location(&format!("/w/main/{}", "x".repeat(256))).is_err());
}

#[test]
fn all_texts_of_a_place_become_one() {
    for (text, expected) in [
        ("file:/a//b/", "file:///a/b"),
        ("/a/b", "file:///a/b"),
        ("file:///a/b", "file:///a/b"),
        ("s3a://b/x/y/", "s3://b/x/y"),
        ("s3://b", "s3://b"),
    ] {
        assert_eq!(text.parse::<TableLocation>().unwrap().to_string(), expected);
    }
}

#[test]
fn a_default_location_is_below_its_base_whatever_a_table_is_called() {
    let warehouse = warehouse("s3://bucket/lake", &[], Some(credentials()));
    let uuid = Uuid::from_bytes([0xab; 16]);
    let hex = "ab".repeat(16);
    let long = "n".repeat(255);
    for (levels, name, directory, last) in [
        (&["ns"][..], "t", "/ns", "t"),
        (&["a.b", "c"], "t", "/a.b/c", "t"),
        (&[".."], "../../x", "/_.~b", "_._.._x"),
        (&["ä/ö"], "%2e", "/___~b", "_2e"),
        (&[&*long; 8], "t", &format!("/{0}~b/{0}~b/{0}~b/~b", "n".repeat(64)), "t"),
        (&[], &long, "", &"n".repeat(64)),
    ] {
        let levels: Vec<Box<str>> = levels.iter().map(|it| Box::from(*it)).collect();
        let home = warehouse.directory_in("s3://bucket/lake/", &levels);
        // Hashes are replaced by a `b`.
        let mut parts = home.split('~');
        let mut unhashed = parts.next().unwrap().to_owned();
        for part in parts {
            assert!(part[..32].bytes().all(|it| it.is_ascii_hexdigit()), "{home}");
            unhashed = format!("{unhashed}~b{}", &part[32..]);
        }
        assert_eq!(unhashed, format!("s3://bucket/lake{directory}"));
        let location = warehouse.location_in(&home, name, uuid);
        assert_eq!(location, format!("{home}/{last}-{hex}"));
        warehouse.check_location(&location).unwrap();
    }
}

#[test]
fn no_two_namespaces_have_one_directory() {
    let warehouse = warehouse("file:///w", &[], None);
    let (long, longer) = ("n".repeat(64), "n".repeat(65));
    let other = format!("{long}m");
    let deep = |last: &'static str| [[&*long; 8].to_vec(), vec![last]].concat();
    let mut seen = std::collections::HashSet::new();
    for levels in [
        vec!["a b"],
        vec!["a_b"],
        vec!["a-b"],
        vec!["a.b"],
        vec!["a", "b"],
        vec!["a/b"],
        vec!["a%b"],
        vec!["A_b"],
        vec!["..", "a"],
        vec!["_.", "a"],
        vec!["__", "a"],
        vec!["../a"],
        vec!["~"],
        vec!["_"],
        vec![&*long],
        vec![&*longer],
        vec![&*other],
        vec!["ä"],
        vec!["ö"],
        deep("x"),
        deep("y"),
        vec![&*long; 8],
        vec![&*long; 9],
    ] {
        let levels: Vec<Box<str>> = levels.into_iter().map(Box::from).collect();
        let home = warehouse.directory_in("file:///w", &levels);
        warehouse.check_location(&home).unwrap();
        // Nor by a name that equals another namespace's directory.
        let taken: Box<str> = home.rsplit('/').next().unwrap().into();
        if taken.contains('~') {
            let again = warehouse.directory_in("file:///w", &[taken]);
            assert_ne!(again, home);
        }
        assert!(seen.insert(home), "{levels:?}");
    }
}

fn credentials() -> SigningCredentials {
    SigningCredentials {
        access_key_id: "id".to_owned(),
        secret_access_key: "secret".to_owned(),
        session_token: None,
    }
}

#[tokio::test]
async fn a_file_is_written_once_and_found_until_it_is_removed() {
    let scratch = Scratch::new();
    let root = format!("file://{}/w", scratch.path().display());
    let warehouse = warehouse(&root, &[], None);
    let files = warehouse.files();
    let location = format!("{root}/ns/t/metadata/1.json");
    let error = files.read(&location).await.unwrap_err();
    let expected = format!("Failed to open input stream for file: {location}");
    assert_eq!((error.kind, error.message), (ErrorReason::NotFound, expected));
    assert!(!files.local_path(&location).unwrap().unwrap().exists());
    for flush in [FlushMode::No, FlushMode::Yes] {
        let location = format!("{location}-{flush:?}");
        let content = Bytes::from_static(b"{}");
        files.write_new(&location, content.clone(), flush).await.unwrap();
        assert!(files.local_path(&location).unwrap().unwrap().is_file());
        assert_eq!(files.read(&location).await.unwrap(), content);
        let again = files.write_new(&location, Bytes::new(), flush).await.unwrap_err();
        assert_eq!(again.kind, ErrorReason::AlreadyExists);
        assert_eq!(files.read(&location).await.unwrap(), content, "it is as it was");
    }
    let directory = scratch.path().join("w/ns/t/metadata");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "nothing stays beside");
    files.delete(&format!("{location}-No")).await.unwrap();
    files.delete(&format!("{location}-No")).await.unwrap();
    files.delete_tree(&format!("{root}/ns/t")).await.unwrap();
    files.delete_tree(&format!("{root}/ns/t")).await.unwrap();
    assert!(!scratch.path().join("w/ns/t").exists() && scratch.path().join("w/ns").exists());
}

#[tokio::test]
async fn no_symbolic_link_leads_out() {
    let scratch = Scratch::new();
    let (inside, outside) = (scratch.path().join("w"), scratch.path().join("outside"));
    fs::create_dir_all(inside.join("t/data")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    symlink(outside.join("secret"), inside.join("file")).unwrap();
    symlink(&outside, inside.join("t/data/link")).unwrap();
    let root = format!("file://{}", inside.display());
    let warehouse = warehouse(&root, &[], None);
    let files = warehouse.files();
    for place in ["link/secret", "file", "link/new/x"] {
        let location = format!("{root}/{place}");
        let error = files.read(&location).await.unwrap_err();
        assert_eq!(error.kind, ErrorReason::Forbidden, "read {place}: {error:?}");
        if place != "file" {
            let written = files.write_new(&location, Bytes::new(), FlushMode::No).await;
            assert_eq!(written.unwrap_err().kind, ErrorReason::Forbidden, "write {place}");
            assert!(files.delete_tree(&location).await.is_err(), "remove {place}");
        }
    }
    // A link is removed, not its target.
    files.delete(&format!("{root}/file")).await.unwrap();
    files.delete_tree(&format!("{root}/t")).await.unwrap();
    assert!(!inside.join("t").exists());
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[tokio::test]
async fn a_root_that_is_a_link_is_known_by_its_own_name_only() {
    let scratch = Scratch::new();
    let real = scratch.path().join("real");
    fs::create_dir(&real).unwrap();
    symlink(&real, scratch.path().join("link")).unwrap();
    let root = format!("file://{}/link", scratch.path().display());
    let warehouse = warehouse(&root, &[], None);
    let content = Bytes::from_static(b"x");
    warehouse.files().write_new(&format!("{root}/a"), content, FlushMode::No).await.unwrap();
    assert_eq!(fs::read_to_string(real.join("a")).unwrap(), "x");
    let by_other_name = format!("file://{}/a", real.display());
    let refused = warehouse.files().read(&by_other_name).await.unwrap_err();
    assert_eq!(refused.kind, ErrorReason::Forbidden);
}

#[tokio::test]
async fn what_is_no_file_is_not_waited_for() {
    let scratch = Scratch::new();
    let root = format!("file://{}", scratch.path().display());
    let pipe = scratch.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let warehouse = warehouse(&root, &[], None);
    for place in ["pipe", "."] {
        let result = warehouse.files().read(&format!("{root}/{place}")).await;
        assert!(matches!(
            result.unwrap_err().kind,
            ErrorReason::Forbidden | ErrorReason::BadRequest
        ));
    }
}

#[tokio::test]
async fn a_bucket_is_a_warehouse_too() {
    let service = S3::start();
    let credentials = SigningCredentials {
        access_key_id: service.access_key_id.clone(),
        secret_access_key: service.secret_access_key.clone(),
        session_token: None,
    };
    let root = service.url("lake");
    let warehouse = warehouse(&root, &[], Some(credentials));
    assert!(warehouse.root().ends_with("/lake"), "{}", warehouse.root());
    let files = warehouse.files();
    let location = format!("{}/ns/t/1.json", warehouse.root());
    assert_eq!(files.read(&location).await.unwrap_err().kind, ErrorReason::NotFound);
    files.write_new(&location, Bytes::from_static(b"{}"), FlushMode::No).await.unwrap();
    assert_eq!(files.read(&location).await.unwrap(), "{}");
    assert_eq!(files.local_path(&location).unwrap(), None);
    let other = location.replacen("s3://", "s3a://", 1);
    assert_eq!(files.read(&other).await.unwrap(), "{}");
    // A repetition after a broken connection succeeds; another writer's file is never replaced.
    files.write_new(&location, Bytes::from_static(b"{}"), FlushMode::No).await.unwrap();
    let refused = files.write_new(&location, Bytes::from_static(b"[]"), FlushMode::No).await;
    assert_eq!(refused.unwrap_err().kind, ErrorReason::AlreadyExists);
    assert_eq!(files.read(&location).await.unwrap(), "{}");
    let strange = format!("{}/ns/a*b", warehouse.root());
    assert_eq!(files.read(&strange).await.unwrap_err().kind, ErrorReason::BadRequest);
    let partition = format!("{}/ns/t/day=1/a+b", warehouse.root());
    files.write_new(&partition, Bytes::from_static(b"x"), FlushMode::No).await.unwrap();
    files.delete_tree(&format!("{}/ns", warehouse.root())).await.unwrap();
    assert_eq!(files.read(&partition).await.unwrap_err().kind, ErrorReason::NotFound);
    assert_eq!(files.read(&location).await.unwrap_err().kind, ErrorReason::NotFound);
}
