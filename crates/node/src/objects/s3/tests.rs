//! Requests to and answers of the service, without a service, and the handling of failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::{ObjectStore, ObjectsUrl};
use super::*;

fn location(text: &str) -> S3Location {
    match text.parse() {
        Ok(ObjectsUrl::S3(location)) => location,
        other => panic!("{other:?}"),
    }
}

fn credentials(session_token: Option<&str>) -> SigningCredentials {
    SigningCredentials {
        access_key_id: "ID".to_owned(),
        secret_access_key: "KEY".to_owned(),
        session_token: session_token.map(str::to_owned),
    }
}

#[test]
fn the_bucket_stands_where_the_style_says() {
    for (text, key, url) in [
        ("s3://abc", "k/l", "https://abc.s3.us-east-1.amazonaws.com/k/l"),
        ("s3://abc/p", "", "https://abc.s3.us-east-1.amazonaws.com/"),
        ("s3://abc/p/q?endpoint=http://h:80", "k", "http://h/abc/p/q/k"),
        ("s3://abc?endpoint=http://h:443", "k", "http://h:443/abc/k"),
        ("s3://abc?endpoint=https://h:443&style=virtual", "k", "https://abc.h/k"),
        ("s3://abc?endpoint=http://[::1]:9", "", "http://[::1]:9/abc"),
    ] {
        let s3 = S3Objects::new(location(text), credentials(Some("session")));
        let request = s3.request(&S3Request::new("read", Method::GET, key)).unwrap();
        assert_eq!(request.url, url, "{text}");
        assert_eq!(request.headers[X_AMZ_SECURITY_TOKEN], "session");
        let signed = request.headers[header::AUTHORIZATION].to_str().unwrap();
        let names = "host;x-amz-content-sha256;x-amz-date;x-amz-security-token";
        assert!(signed.contains(&format!("SignedHeaders={names},")), "{signed}");
    }
}

#[test]
fn lists_are_read_and_what_is_none_is_refused() {
    let check = |text: &str, expected: Option<(&[&str], bool)>| {
        let found = page(text.as_bytes());
        let found = found.map(|page| (page.keys, page.is_truncated));
        let expected = expected.map(|(keys, is_truncated)| {
            (keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>(), is_truncated)
        });
        assert_eq!(found, expected, "{text}");
    };
    let list = |inside: &str| {
        format!(
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\">{inside}</ListBucketResult>"
        )
    };
    check(&list(""), Some((&[], false)));
    check(
        &list(
            "<Name>b</Name><IsTruncated>true</IsTruncated><Contents><Key>a%2Fb</Key><Size>1</Size>\
             </Contents><Contents>\n<Key>c</Key></Contents>",
        ),
        Some((&["a/b", "c"], true)),
    );
    check(&list("<ContentsX><Key>a</Key></ContentsX>"), Some((&[], false)));
    check(&list("<Contents><Size>1</Size></Contents>"), None);
    check(&list("<Contents><Key>%f</Key></Contents>"), None);
    check("<html>hello</html>", None);
    check("<ListBucketResult><Contents>", None);
    check("", None);
}

/// A service that sends these answers, one after the other, and then repeats the last one; and the
/// number of its answers.
async fn scripted(answers: &'static [&'static str]) -> (ObjectStore, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let number = usize::try_from(count.fetch_add(1, Ordering::SeqCst)).unwrap();
            let answer = answers[number.min(answers.len() - 1)];
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let location = location(&format!("s3://abc?endpoint={endpoint}"));
    (ObjectStore::in_s3(location, credentials(None)), requests)
}

const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const BUSY: &str =
    "HTTP/1.1 503 Slow Down\r\ncontent-length: 27\r\n\r\n<Error><Code>Slow</Code></E";
const SHORT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nnot twenty";
const DENIED: &str = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
const LONG: &str = "HTTP/1.1 200 OK\r\ncontent-length: 67108865\r\n\r\nits beginning";

#[tokio::test]
async fn trouble_of_the_service_is_tried_again_and_a_refusal_is_not() {
    for (answers, attempts, expected) in [
        (&[BUSY, SHORT, "", GOOD][..], 4, Ok("ok")),
        (&[BUSY], ATTEMPTS_MAX, Err("read `k` in the object store: 503 Service Unavailable Slow")),
        (&[DENIED], 1, Err("read `k` in the object store: 403 Forbidden ")),
        (&[""], ATTEMPTS_MAX, Err("read `k` in the object store")),
    ] {
        let (objects, count) = scripted(answers).await;
        let found = objects.get("k").await;
        let is_temporary = found.as_ref().is_err_and(super::super::ObjectsError::is_temporary);
        let found = found.map(|bytes| String::from_utf8(bytes.unwrap().to_vec()).unwrap());
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(|text| &**text), expected);
        assert_eq!(
            (count.load(Ordering::SeqCst), is_temporary),
            (attempts, attempts == ATTEMPTS_MAX)
        );
    }
}

#[tokio::test]
async fn an_object_that_is_too_long_is_not_read() {
    let (objects, count) = scripted(&[LONG]).await;
    let error = objects.get("k").await.unwrap_err();
    assert!(matches!(error, super::super::ObjectsError::TooLarge(_)) && !error.is_temporary());
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// The same service, and the heads of the requests that it received.
async fn overheard(answers: &'static [&'static str]) -> (ObjectStore, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen_heads = Arc::clone(&heads);
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length = length.map_or(0, |it| it.lines().next().unwrap().parse().unwrap());
            stream.read_exact(&mut vec![0; length]).await.unwrap();
            seen_heads.lock().push(head);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let location = location(&format!("s3://abc?endpoint={endpoint}"));
    (ObjectStore::in_s3(location, credentials(None)), heads)
}

const EMPTY: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const ABSENT: &str = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const THERE: &str =
    "HTTP/1.1 412 Precondition Failed\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const AT_ONCE: &str = "HTTP/1.1 409 Conflict\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const UNKNOWN: &str = "HTTP/1.1 501 Not Implemented\r\nconnection: close\r\n\
    content-length: 42\r\n\r\n<Error><Code>NotImplemented</Code></Error>";

#[tokio::test]
async fn the_service_itself_sees_to_it_that_nothing_is_overwritten() {
    let refused = "write `k` in the object store: 501 Not Implemented NotImplemented";
    for (answers, expected, sent) in [
        (&[ABSENT, EMPTY][..], Ok(PutOutcome::New), &["head", "put"][..]),
        // Another writer was faster.
        (&[ABSENT, THERE], Ok(PutOutcome::Present), &["head", "put"]),
        // Two concurrent writers, after which the service requires a retry.
        (&[ABSENT, AT_ONCE, THERE], Ok(PutOutcome::Present), &["head", "put", "put"]),
        (&[EMPTY], Ok(PutOutcome::Present), &["head"]),
        // A service without the condition is not used without it.
        (&[ABSENT, UNKNOWN], Err(refused.to_owned()), &["head", "put"]),
    ] {
        let (objects, heads) = overheard(answers).await;
        let placed = objects.put_if_absent("k", Bytes::from_static(b"new")).await;
        assert_eq!(placed.map_err(|error| error.to_string()), expected);
        let heads = heads.lock();
        let methods: Vec<_> = heads.iter().map(|it| it.split(' ').next().unwrap()).collect();
        assert_eq!(methods, sent);
        for head in heads.iter().filter(|head| head.starts_with("put")) {
            assert!(head.contains("\r\nif-none-match: *\r\n"), "{head}");
        }
    }
}

#[tokio::test]
async fn what_is_to_be_replaced_is_written_without_a_condition() {
    let (objects, heads) = overheard(&[EMPTY]).await;
    objects.put("k", Bytes::from_static(b"new")).await.unwrap();
    let heads = heads.lock();
    assert!(heads.len() == 1 && !heads[0].contains("if-none-match"), "{heads:?}");
}
