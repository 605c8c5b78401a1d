//! The conformance suite of back ends, on a directory and on a real service.

use std::fs;

use testkit::S3 as Service;

use super::*;
use crate::testing::TempDir;

fn s3(service: &Service, prefix: &str, secret: &str) -> ObjectStore {
    let Ok(ObjectsUrl::S3(location)) = service.url(prefix).parse() else { panic!("no location") };
    let credentials = SigningCredentials {
        access_key_id: service.access_key_id.clone(),
        secret_access_key: secret.to_owned(),
        session_token: None,
    };
    ObjectStore::in_s3(location, credentials)
}

async fn list(
    objects: &ObjectStore,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Vec<String> {
    objects.list(prefix, after, limit).await.unwrap()
}

async fn what_is_written_is_read(objects: &ObjectStore) {
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let read = async |key: &str| objects.get(key).await.unwrap();
    assert_eq!(read("a").await, None);
    assert!(!objects.exists("a").await.unwrap());
    objects.put("a", text("one")).await.unwrap();
    assert_eq!(read("a").await, Some(text("one")));
    objects.put("a", text("two, and longer")).await.unwrap();
    objects.put("a", text("3")).await.unwrap();
    assert_eq!(read("a").await, Some(text("3")));
    assert!(objects.exists("a").await.unwrap());

    // A key may be a prefix of another one, and an object may be empty.
    for key in ["a/b", "a/b/c", "a.b", "a/b/c.d-e_F"] {
        objects.put(key, Bytes::from(key.to_owned())).await.unwrap();
    }
    objects.put("empty", Bytes::new()).await.unwrap();
    for key in ["a/b", "a/b/c", "a.b", "a/b/c.d-e_F"] {
        assert_eq!(read(key).await, Some(Bytes::from(key.to_owned())));
    }
    assert_eq!(read("empty").await, Some(Bytes::new()));
    for absent in ["a/b/c/d", "a/bb", "A", "a/b/c.d-e_F/g"] {
        assert_eq!((read(absent).await, objects.exists(absent).await.unwrap()), (None, false));
    }
    // Arbitrary bytes are preserved, also large objects.
    let large: Vec<u8> =
        (0..3_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    objects.put("large", large.clone().into()).await.unwrap();
    assert!(read("large").await == Some(large.into()));

    objects.delete("a/b").await.unwrap();
    objects.delete("a/b").await.unwrap();
    objects.delete("never").await.unwrap();
    assert_eq!((read("a/b").await, read("a").await), (None, Some(text("3"))));
    for key in ["a", "a/b/c", "a.b", "a/b/c.d-e_F", "empty", "large"] {
        objects.delete(key).await.unwrap();
    }
    assert_eq!(list(objects, "", None, 10).await, [""; 0]);
}

async fn who_is_first_stays(objects: &ObjectStore) {
    let bytes = |n: u8| Bytes::from(vec![n; 1000]);
    assert_eq!(objects.put_if_absent("x/first", bytes(1)).await.unwrap(), PutOutcome::New);
    assert_eq!(objects.put_if_absent("x/first", bytes(2)).await.unwrap(), PutOutcome::Present);
    assert_eq!(objects.get("x/first").await.unwrap(), Some(bytes(1)));
    // Several concurrent writes, each of them whole.
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let objects = objects.clone();
            tokio::spawn(async move {
                let (placed, put) = tokio::join!(
                    objects.put_if_absent("x/y/race", bytes(n)),
                    objects.put("x/z/last", bytes(n))
                );
                put.unwrap();
                (n, placed.unwrap())
            })
        })
        .collect();
    let mut winners = Vec::new();
    for task in tasks {
        let (n, placed) = task.await.unwrap();
        winners.extend((placed == PutOutcome::New).then_some(n));
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(objects.get("x/y/race").await.unwrap(), Some(bytes(winners[0])));
    let last = objects.get("x/z/last").await.unwrap().unwrap();
    assert!(last.len() == 1000 && last.iter().all(|byte| *byte == last[0]));
    for key in ["x/first", "x/y/race", "x/z/last"] {
        objects.delete(key).await.unwrap();
    }
}

async fn lists_are_in_the_order_of_bytes(objects: &ObjectStore) {
    let mut keys = vec![
        "c/0",
        "c/1",
        "c/10",
        "c/2",
        "c-d",
        "c.d",
        "c",
        "c0",
        "c/1/x",
        "c/1.x",
        "c/1-x",
        "C",
        "d/e/f",
        "d/e/g",
        "d",
        "b",
        "e/x=a%2Fb+c/1",
    ];
    for key in &keys {
        objects.put(key, Bytes::from_static(b"k")).await.unwrap();
    }
    keys.sort_unstable();
    let with = |prefix: &str, after: &str| -> Vec<&str> {
        let all = keys.iter().copied();
        all.filter(|key| key.starts_with(prefix) && *key > after).collect()
    };
    for prefix in ["", "c", "c/", "c/1", "c/1/", "d/e/", "d/e/f", "x", "c/1/x"] {
        assert_eq!(list(objects, prefix, None, 100).await, with(prefix, ""), "{prefix}");
        for after in ["C", "c", "c-", "c/", "c/1", "c/1/", "c/1/x", "c0", "d/e", "zz", "A"] {
            let found = list(objects, prefix, Some(after), 100).await;
            assert_eq!(found, with(prefix, after), "{prefix} after {after}");
        }
    }
    // Paging returns the same list.
    for limit in [1, 2, 5] {
        let mut found: Vec<String> = Vec::new();
        loop {
            let page = list(objects, "", found.last().map(String::as_str), limit).await;
            let is_last = page.len() < limit;
            found.extend(page);
            if is_last {
                break;
            }
        }
        assert_eq!(found, keys, "{limit}");
    }
    assert_eq!(list(objects, "", None, 0).await, [""; 0]);
    for key in keys {
        objects.delete(key).await.unwrap();
    }
}

async fn what_can_be_no_key_is_refused(objects: &ObjectStore) {
    let long = ["x".repeat(201), ["x".repeat(100).as_str(); 6].join("/")];
    for key in ["/a", "a//b", "../a", "a/..", "a/.b", ".new/x", "a b", "a\0", "ä", "a*b", "a@"]
        .into_iter()
        .chain(long.iter().map(String::as_str))
    {
        let is_key = |error: ObjectsError| matches!(error, ObjectsError::Key(_));
        let bytes = || Bytes::from_static(b"x");
        assert!(is_key(objects.put(key, bytes()).await.unwrap_err()), "{key}");
        assert!(is_key(objects.put_if_absent(key, bytes()).await.unwrap_err()), "{key}");
        assert!(is_key(objects.get(key).await.unwrap_err()), "{key}");
        assert!(is_key(objects.exists(key).await.unwrap_err()), "{key}");
        assert!(is_key(objects.delete(key).await.unwrap_err()), "{key}");
        assert!(is_key(objects.list(key, None, 1).await.unwrap_err()), "{key}");
        assert!(is_key(objects.list("", Some(key), 1).await.unwrap_err()), "{key}");
    }
    for key in ["", "a/"] {
        assert!(matches!(objects.get(key).await, Err(ObjectsError::Key(_))), "{key}");
    }
    let length = usize::try_from(OBJECT_BYTES_MAX).unwrap();
    let error = objects.put("a", Bytes::from(vec![0; length + 1])).await.unwrap_err();
    assert!(matches!(error, ObjectsError::TooLarge(_)) && !error.is_temporary());
}

async fn conformance(objects: &ObjectStore) {
    what_is_written_is_read(objects).await;
    who_is_first_stays(objects).await;
    lists_are_in_the_order_of_bytes(objects).await;
    what_can_be_no_key_is_refused(objects).await;
}

#[tokio::test]
async fn a_directory_keeps_what_is_promised() {
    let temp = TempDir::new();
    let root = temp.path().join("deep/objects");
    conformance(&ObjectStore::in_directory(&root, CommitDurability::Process).unwrap()).await;
    // Nothing is left behind, neither temporary files nor directories.
    let left: Vec<_> = fs::read_dir(&root).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, [".new"]);
    assert_eq!(fs::read_dir(root.join(".new")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_service_keeps_what_is_promised() {
    let service = Service::start();
    conformance(&s3(&service, "", &service.secret_access_key)).await;

    // Two prefixes of a bucket are isolated from each other, and from foreign objects.
    let (one, two) = ("one", "deeply/nested/two");
    let one = s3(&service, one, &service.secret_access_key);
    let two = s3(&service, two, &service.secret_access_key);
    one.put("key", Bytes::from_static(b"1")).await.unwrap();
    conformance(&two).await;
    assert_eq!(list(&one, "", None, 9).await, ["key"]);
    let all = s3(&service, "", &service.secret_access_key);
    assert_eq!(list(&all, "", None, 9).await, ["one/key"]);

    let wrong = s3(&service, "", "not the secret");
    let error = wrong.get("one/key").await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("403") && text.contains("SignatureDoesNotMatch"), "{text}");
    assert!(!error.is_temporary() && !format!("{wrong:?}").contains("secret"));

    let Ok(ObjectsUrl::S3(mut location)) = service.url("").parse() else { panic!("no location") };
    location.bucket = "no-such-bucket".to_owned();
    let credentials = SigningCredentials {
        access_key_id: service.access_key_id.clone(),
        secret_access_key: service.secret_access_key.clone(),
        session_token: None,
    };
    let nowhere = ObjectStore::in_s3(location, credentials);
    for result in [
        nowhere.put("a", Bytes::new()).await,
        nowhere.get("a").await.map(drop),
        nowhere.list("", None, 1).await.map(drop),
        nowhere.delete("a").await,
    ] {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("NoSuchBucket"), "{text}");
    }
}

#[tokio::test]
async fn objects_outlive_the_server_and_leftovers_do_not() {
    let temp = TempDir::new();
    let first = ObjectStore::in_directory(temp.path(), CommitDurability::Power).unwrap();
    first.put("a/b", Bytes::from_static(b"kept")).await.unwrap();
    let beside = temp.path().join(".new");
    let (old, young) = (beside.join("OLD"), beside.join("YOUNG"));
    fs::write(&young, "half").unwrap();
    fs::write(&old, "half").unwrap();
    let long_ago = clock_before(Duration::from_secs(7200));
    fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    // Foreign files are no objects, and remain.
    fs::create_dir(temp.path().join("lost+found")).unwrap();
    fs::write(temp.path().join("notes"), "text").unwrap();
    drop(first);

    let second = ObjectStore::in_directory(temp.path(), CommitDurability::Power).unwrap();
    assert_eq!(second.get("a/b").await.unwrap(), Some(Bytes::from_static(b"kept")));
    assert_eq!(list(&second, "", None, 9).await, ["a/b"]);
    assert!(!old.exists() && young.exists());
}

fn clock_before(time: Duration) -> std::time::SystemTime {
    crate::clock::wall() - time
}

#[test]
fn addresses_say_where_objects_are() {
    let s3 = |text: &str| match text.parse::<ObjectsUrl>() {
        Ok(ObjectsUrl::S3(location)) => {
            let style = format!("{:?}", location.style);
            let S3Location { bucket, prefix, endpoint, region, .. } = location;
            [bucket, prefix, endpoint, region, style].join(" ")
        }
        Ok(ObjectsUrl::Directory(path)) => path.display().to_string(),
        Err(error) => error.to_string(),
    };
    let bad = |what: &str, why: &str| format!("`{what}` of an object store: {why}");
    for (text, expected) in [
        ("/var/objects", "/var/objects".to_owned()),
        ("s3://abc", "abc  https://s3.us-east-1.amazonaws.com us-east-1 Virtual".to_owned()),
        (
            "s3://abc/x/y/?region=eu-west-3",
            "abc x/y/ https://s3.eu-west-3.amazonaws.com eu-west-3 Virtual".to_owned(),
        ),
        ("s3://a.bc", "a.bc  https://s3.us-east-1.amazonaws.com us-east-1 Path".to_owned()),
        (
            "s3://abc?endpoint=http%3A%2F%2F10.0.0.1%3A9000/",
            "abc  http://10.0.0.1:9000 us-east-1 Path".to_owned(),
        ),
        (
            "s3://abc?endpoint=https://minio.example&style=virtual",
            "abc  https://minio.example us-east-1 Virtual".to_owned(),
        ),
        ("objects", bad("url", "it is neither an absolute path nor `s3://…`")),
        ("s3://", bad("bucket", "it has 3 to 63 of `a` to `z`, digits, `-` and `.`")),
        ("s3://Abc", bad("bucket", "it has 3 to 63 of `a` to `z`, digits, `-` and `.`")),
        ("s3://a..b", bad("bucket", "it has 3 to 63 of `a` to `z`, digits, `-` and `.`")),
        ("s3://abc/../x", bad("prefix", "keys cannot begin with it")),
        ("s3://abc?a=b", bad("query", "there are `endpoint`, `region`, `style` and `ca`")),
        ("s3://abc?region=a&region=b", bad("query", "a name occurs twice")),
        ("s3://abc?region=%4", bad("query", "a `%` is not followed by two hexadecimal digits")),
        ("s3://abc?region=a/b", bad("region", "it has letters, digits and `-`")),
        ("s3://abc?style=both", bad("style", "there are `path` and `virtual`")),
        ("s3://abc?endpoint=http://h/p", bad("endpoint", "it has a path")),
        (
            "s3://abc?endpoint=h",
            bad("endpoint", "it is not `http://HOST[:PORT]` or `https://HOST[:PORT]`"),
        ),
        (
            "s3://abc?endpoint=http://10.0.0.1&style=virtual",
            bad("style", "the bucket and the endpoint together are not a host name"),
        ),
    ] {
        assert_eq!(s3(text), expected, "{text}");
    }
}
