//! Accepted and rejected requests: a table of requests as clients send them, and as attackers
//! would.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::scope::tests::scope;
use super::*;

const WRITE: FilePermission = FilePermission::Write;
const READ: FilePermission = FilePermission::Read;

fn path_style() -> S3Location {
    "bkt/w?endpoint=http://store:9000&region=eu-1".parse().unwrap()
}

fn amazon() -> S3Location {
    "bkt/w?region=eu-west-1".parse().unwrap()
}

fn request(place: &S3Location, method: &str, uri: &str, headers: &Value) -> SignRequest {
    let json = json!({"region": place.region, "uri": uri, "method": method, "headers": headers});
    serde_json::from_value(json).unwrap()
}

/// Returns the outcome of a request of a principal with this permission.
fn judge(
    permission: FilePermission,
    request: &SignRequest,
) -> std::result::Result<ExaminedRequest, ErrorReason> {
    let scope = scope(&["s3://bkt/w/t", "s3://other/data"]);
    examine(request, &path_style(), &scope, permission).map_err(|error| error.kind)
}

fn check(permission: FilePermission, method: &str, target: &str, expected: Option<ErrorReason>) {
    let uri = format!("http://store:9000{target}");
    let found = judge(permission, &request(&path_style(), method, &uri, &json!({})));
    assert_eq!(found.err(), expected, "{permission:?} {method} {target}");
}

#[test]
fn requests_for_files_of_the_table_are_signed_by_right() {
    for (method, target, needs) in [
        ("GET", "/bkt/w/t/metadata/1.json", READ),
        ("GET", "/bkt/w/t/a%20b%2Fc=%25d", READ),
        ("GET", "/bkt/w/t/x?x-id=GetObject", READ),
        ("HEAD", "/other/data/x.parquet", READ),
        ("GET", "/bkt?list-type=2&prefix=w%2Ft%2F&delimiter=%2F&encoding-type=url", READ),
        ("GET", "/bkt/?list-type=2&prefix=w/t/data/&max-keys=1&continuation-token=abc", READ),
        ("GET", "/bkt?location", READ),
        ("PUT", "/bkt/w/t/data/x", WRITE),
        ("PUT", "/bkt/w/t/data/x?partNumber=1&uploadId=a", WRITE),
        ("POST", "/bkt/w/t/data/x?uploads", WRITE),
        ("POST", "/bkt/w/t/data/x?uploads=", WRITE),
        ("POST", "/bkt/w/t/data/x?uploadId=a", WRITE),
        ("DELETE", "/bkt/w/t/data/x", WRITE),
        ("DELETE", "/bkt/w/t/data/x?uploadId=a", WRITE),
    ] {
        check(WRITE, method, target, None);
        check(READ, method, target, (needs == WRITE).then_some(ErrorReason::Forbidden));
    }
}

#[test]
fn a_request_for_anything_else_is_refused() {
    let (forbidden, malformed) = (Some(ErrorReason::Forbidden), Some(ErrorReason::BadRequest));
    for (method, target, expected) in [
        // Objects outside of the table.
        ("GET", "/bkt/w/u/x", forbidden),
        ("GET", "/bkt/w/t2/x", forbidden),
        ("GET", "/bkt/w/t", forbidden),
        ("GET", "/else/w/t/x", forbidden),
        ("GET", "/", forbidden),
        ("GET", "", forbidden),
        ("GET", "/bkt", forbidden),
        ("PUT", "/bkt", forbidden),
        ("DELETE", "/bkt", forbidden),
        // Ambiguous keys.
        ("GET", "/bkt/w/t/../u/x", forbidden),
        ("GET", "/bkt/w/t/%2e%2e/u/x", forbidden),
        ("GET", "/bkt/w/t/%2E%2E%2Fu%2Fx", forbidden),
        ("GET", "/bkt/w/t/.%2e/u/x", forbidden),
        ("GET", "/bkt/w//t/x", forbidden),
        ("GET", "/bkt//w/t/x", forbidden),
        ("GET", "//bkt/w/t/x", forbidden),
        ("GET", "/bkt/w/t//x", forbidden),
        ("GET", "/bkt/w/t/./x", forbidden),
        ("GET", "/bkt/w/t/x%00", forbidden),
        ("GET", "/bkt/w/t/x%0d%0a", forbidden),
        ("GET", "/bkt/w/t/%5c..%5cu", forbidden),
        ("GET", "/bkt/w/t/\\..\\u", malformed),
        ("GET", "/bkt/w/t/x%", malformed),
        ("GET", "/bkt/w/t/x%2", malformed),
        ("GET", "/bkt/w/t/x%zz", malformed),
        ("GET", "/bkt/w/t/%ff", malformed),
        ("GET", "/bkt/w/t/a+b", malformed),
        ("GET", "/bkt/w/t/a b", malformed),
        ("GET", "/bkt/w/t/é", malformed),
        ("GET", "/bkt/w/t/x#y", malformed),
        // Parameters of other operations.
        ("GET", "/bkt/w/t/x?acl", forbidden),
        ("PUT", "/bkt/w/t/x?acl", forbidden),
        ("PUT", "/bkt/w/t/x?tagging", forbidden),
        ("PUT", "/bkt/w/t/x?retention", forbidden),
        ("PUT", "/bkt/w/t/x?partNumber=1", forbidden),
        ("GET", "/bkt/w/t/x?versionId=1", forbidden),
        ("DELETE", "/bkt/w/t/x?versionId=1", forbidden),
        ("GET", "/bkt/w/t/x?%61cl", forbidden),
        ("GET", "/bkt/w/t/x?X-Amz-Signature=1", forbidden),
        ("GET", "/bkt/w/t/x?response-content-type=text/html", forbidden),
        ("GET", "/bkt/w/t/x?list-type=2&prefix=w/t/", forbidden),
        ("POST", "/bkt/w/t/x", forbidden),
        ("POST", "/bkt/w/t/x?select&select-type=2", forbidden),
        ("POST", "/bkt/w/t/x?restore", forbidden),
        ("PATCH", "/bkt/w/t/x", forbidden),
        ("OPTIONS", "/bkt/w/t/x", forbidden),
        ("get", "/bkt/w/t/x", forbidden),
        ("PUT", "/bkt?policy", forbidden),
        ("GET", "/bkt?uploads", forbidden),
        ("GET", "/bkt?versions&prefix=w/t/", forbidden),
        ("GET", "/bkt/w/t/x?uploadId=1&uploadId=2", malformed),
        ("GET", "/bkt/w/t/x?a=%zz", malformed),
        ("GET", "/bkt?list-type=2&prefix=w/t/&prefix=w/u/", malformed),
        // Lists beyond the table.
        ("GET", "/bkt?list-type=2", forbidden),
        ("GET", "/bkt?list-type=2&prefix=", forbidden),
        ("GET", "/bkt?list-type=2&prefix=w/", forbidden),
        ("GET", "/bkt?list-type=2&prefix=w/t", forbidden),
        ("GET", "/bkt?list-type=2&prefix=w/t2/", forbidden),
        ("GET", "/bkt?list-type=2&prefix=w/t/../u/", forbidden),
        ("GET", "/bkt?list-type=2&prefix=w/t/+x", malformed),
        ("GET", "/bkt?prefix=w/t/", forbidden),
        ("GET", "/bkt?list-type=1&prefix=w/t/", forbidden),
        // Requests that need a body, without one.
        ("POST", "/bkt?delete", malformed),
        ("POST", "/else?delete", forbidden),
        ("POST", "/bkt/w/t/x?delete", forbidden),
    ] {
        check(WRITE, method, target, expected);
    }
}

#[test]
fn only_the_warehouses_own_endpoint_is_signed_for() {
    let scope = scope(&["s3://bkt/w/t"]);
    for (place, uri, is_good) in [
        (path_style(), "http://store:9000/bkt/w/t/x", true),
        (path_style(), "http://STORE:9000/bkt/w/t/x", true),
        (path_style(), "https://store:9000/bkt/w/t/x", false),
        (path_style(), "http://store/bkt/w/t/x", false),
        (path_style(), "http://store:9001/bkt/w/t/x", false),
        (path_style(), "http://bkt.store:9000/w/t/x", false),
        (path_style(), "http://u@store:9000/bkt/w/t/x", false),
        (path_style(), "http://store:9000@evil/bkt/w/t/x", false),
        (path_style(), "http://store%3A9000/bkt/w/t/x", false),
        (path_style(), "http://evil/bkt/w/t/x", false),
        (path_style(), "file:///bkt/w/t/x", false),
        (path_style(), "/bkt/w/t/x", false),
        (amazon(), "https://bkt.s3.eu-west-1.amazonaws.com/w/t/x", true),
        (amazon(), "https://bkt.s3.eu-west-1.amazonaws.com:443/w/t/x", true),
        (amazon(), "https://s3.eu-west-1.amazonaws.com/bkt/w/t/x", true),
        (amazon(), "https://else.s3.eu-west-1.amazonaws.com/w/t/x", false),
        (amazon(), "https://.s3.eu-west-1.amazonaws.com/w/t/x", false),
        (amazon(), "https://bkts3.eu-west-1.amazonaws.com/w/t/x", false),
        (amazon(), "https://bkt.s3.us-east-1.amazonaws.com/w/t/x", false),
        (amazon(), "https://s3.amazonaws.com/bkt/w/t/x", false),
        (amazon(), "https://bkt.s3.eu-west-1.amazonaws.com.evil/w/t/x", false),
        (amazon(), "http://bkt.s3.eu-west-1.amazonaws.com/w/t/x", false),
    ] {
        let found = examine(&request(&place, "GET", uri, &json!({})), &place, &scope, READ);
        assert_eq!(found.is_ok(), is_good, "{uri} {:?}", found.err());
    }
    let place = path_style();
    for (field, value) in [("region", "us-east-1"), ("provider", "gcs")] {
        let mut json = json!({"region": place.region, "uri": "http://store:9000/bkt/w/t/x",
            "method": "GET", "headers": {}});
        json[field] = value.into();
        let request: SignRequest = serde_json::from_value(json).unwrap();
        assert_eq!(judge(READ, &request).unwrap_err(), ErrorReason::BadRequest, "{field}");
    }
}

#[test]
fn headers_name_nothing_else_and_give_nobody_a_right() {
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    for (name, value, expected) in [
        ("x-amz-copy-source", "/bkt/w/t/y", None),
        ("X-Amz-Copy-Source", "bkt/w/t/a%20b", None),
        ("x-amz-copy-source", "/bkt/w/u/y", Some(ErrorReason::Forbidden)),
        ("x-amz-copy-source", "/bkt/w/t/../u/y", Some(ErrorReason::Forbidden)),
        ("x-amz-copy-source", "/bkt/w/t/%2e%2e/u/y", Some(ErrorReason::Forbidden)),
        ("x-amz-copy-source", "//bkt/w/t/y", Some(ErrorReason::Forbidden)),
        ("x-amz-copy-source", "/bkt/w/t/y?versionId=1", Some(ErrorReason::Forbidden)),
        ("x-amz-copy-source", "/bkt/w/t/a+b", Some(ErrorReason::Forbidden)),
        (
            "x-amz-copy-source",
            "arn:aws:s3:eu:1:accesspoint/x/object/y",
            Some(ErrorReason::Forbidden),
        ),
        ("x-amz-copy-source", "", Some(ErrorReason::Forbidden)),
        ("x-amz-copy-source-range", "bytes=0-9", None),
        ("x-amz-copy-source-if-match", "x", None),
        ("x-amz-meta-k", "v", None),
        ("x-amz-meta-k", "a  b", Some(ErrorReason::BadRequest)),
        ("x-amz-meta-k", "a\nb", Some(ErrorReason::BadRequest)),
        ("x-amz-checksum-crc32", "AAAA", None),
        ("x-amz-storage-class", "STANDARD", None),
        ("x-amz-acl", "public-read", Some(ErrorReason::Forbidden)),
        ("X-AMZ-ACL", "public-read", Some(ErrorReason::Forbidden)),
        ("x-amz-grant-read", "x", Some(ErrorReason::Forbidden)),
        ("x-amz-website-redirect-location", "x", Some(ErrorReason::Forbidden)),
        ("x-amz-object-lock-mode", "x", Some(ErrorReason::Forbidden)),
        ("x-amz-tagging", "x", Some(ErrorReason::Forbidden)),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD", None),
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", None),
        (
            "x-amz-content-sha256",
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            Some(ErrorReason::BadRequest),
        ),
        ("x-amz-content-sha256", "x", Some(ErrorReason::BadRequest)),
        ("host", "store:9000", None),
        ("Host", "evil", Some(ErrorReason::BadRequest)),
        ("user-agent", "x", None),
        ("authorization", "whatever", None),
        ("x-amz-date", "20000101T000000Z", None),
        ("x y", "z", Some(ErrorReason::BadRequest)),
        ("", "z", Some(ErrorReason::BadRequest)),
        ("k", &long, Some(ErrorReason::BadRequest)),
    ] {
        let uri = "http://store:9000/bkt/w/t/x";
        let headers = json!({name: [value]});
        let found = judge(WRITE, &request(&path_style(), "PUT", uri, &headers));
        assert_eq!(found.err(), expected, "{name}: {value:.60}");
        if name.eq_ignore_ascii_case(COPY_SOURCE) {
            // With another method the headers would have another meaning.
            let found = judge(WRITE, &request(&path_style(), "GET", uri, &headers));
            assert_eq!(found.err(), Some(ErrorReason::Forbidden));
            let found = judge(READ, &request(&path_style(), "PUT", uri, &headers));
            assert_eq!(found.err(), Some(ErrorReason::Forbidden));
        }
    }
    let uri = "http://store:9000/bkt/w/t/x";
    let twice = json!({"x-amz-meta-k": ["a"], "X-Amz-Meta-K": ["b"]});
    let found = judge(WRITE, &request(&path_style(), "PUT", uri, &twice));
    assert_eq!(found.err(), Some(ErrorReason::BadRequest));
    let many: serde_json::Map<String, Value> =
        (0..=HEADERS_MAX).map(|n| (format!("h{n}"), json!(["v"]))).collect();
    let found = judge(WRITE, &request(&path_style(), "PUT", uri, &many.into()));
    assert_eq!(found.err(), Some(ErrorReason::BadRequest));
}

fn delete(
    body: Option<&str>,
    headers: &Value,
) -> std::result::Result<ExaminedRequest, ErrorReason> {
    let place = path_style();
    let mut json = json!({"region": place.region, "uri": "http://store:9000/bkt?delete",
        "method": "POST", "headers": headers});
    json["body"] = json!(body);
    judge(WRITE, &serde_json::from_value(json).unwrap())
}

#[test]
fn every_object_of_a_request_to_delete_is_looked_at() {
    let object = |key: &str| format!("<Object><Key>{key}</Key></Object>");
    let many = |count: usize| object("w/t/x").repeat(count);
    for (inside, expected) in [
        (object("w/t/x"), None),
        (format!("<Quiet>true</Quiet>{}{}", object("w/t/x"), object("w/t/a&amp;b")), None),
        (many(DELETED_MAX), None),
        (many(DELETED_MAX + 1), Some(ErrorReason::BadRequest)),
        (String::new(), Some(ErrorReason::BadRequest)),
        (format!("{}{}", object("w/t/x"), object("w/u/x")), Some(ErrorReason::Forbidden)),
        (object("w/t/../u/x"), Some(ErrorReason::Forbidden)),
        (object("w/t&#47;..&#47;u"), Some(ErrorReason::Forbidden)),
        (object(""), Some(ErrorReason::Forbidden)),
        (
            "<Object><Key>w/t/x</Key><VersionId>1</VersionId></Object>".into(),
            Some(ErrorReason::BadRequest),
        ),
        ("<Object><Key>w/t/x</Key><Key>w/u/x</Key></Object>".into(), Some(ErrorReason::BadRequest)),
        ("<Object><Key><b>w/t/x</b></Key></Object>".into(), Some(ErrorReason::BadRequest)),
        ("<Thing><Key>w/u/x</Key></Thing>".into(), Some(ErrorReason::BadRequest)),
        (format!("<!-- x -->{}", object("w/t/x")), Some(ErrorReason::BadRequest)),
    ] {
        let body =
            format!("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inside}</Delete>");
        let found = delete(Some(&body), &json!({}));
        match (&found, expected) {
            // The signature covers exactly this body.
            (Ok(examined), None) => assert_eq!(examined.payload, sign::sha256(body.as_bytes())),
            _ => assert_eq!(found.err(), expected, "{inside:.80}"),
        }
        let unsigned = json!({CONTENT_SHA256: [UNSIGNED]});
        assert!(delete(Some(&body), &unsigned).is_err());
    }
    for body in [None, Some(""), Some("{}"), Some("<Remove/>")] {
        assert_eq!(delete(body, &json!({})).unwrap_err(), ErrorReason::BadRequest);
    }
}

#[test]
fn what_is_signed_is_what_was_understood() {
    let place = path_style();
    let credentials = SigningCredentials {
        access_key_id: "ID".to_owned(),
        secret_access_key: "HIDDEN".to_owned(),
        session_token: Some("SESSION".to_owned()),
    };
    let uri = "http://store:9000/bkt/w/t/a%20b%7Ec=d?x-id=%47et";
    let headers = json!({"User-Agent": ["x"], "X-Amz-Meta-K": [" v "], "Host": ["store:9000"]});
    let request = request(&place, "GET", uri, &headers);
    let examined = judge(READ, &request).unwrap();
    let found = serde_json::to_value(signed(&request, &examined, &place, &credentials)).unwrap();
    assert_eq!(found["uri"], "http://store:9000/bkt/w/t/a%20b~c%3Dd?x-id=Get");
    let headers = found["headers"].as_object().unwrap();
    let names: Vec<&str> = headers.keys().map(|it| &**it).collect();
    // Headers that the client already has are not returned: some clients append them.
    let expected = ["authorization", CONTENT_SHA256, "x-amz-date", "x-amz-security-token"];
    assert_eq!(names, expected);
    assert_eq!(found["headers"][CONTENT_SHA256], json!([UNSIGNED]));
    let text = found["headers"]["authorization"][0].as_str().unwrap();
    let names = "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-meta-k;\
        x-amz-security-token,";
    assert!(text.contains(names) && text.contains("Credential=ID/"), "{text}");
    assert!(!found.to_string().contains("HIDDEN"));
}

proptest! {
    /// Every signed path begins with the table's location, as the store parses it.
    #[test]
    fn nothing_outside_is_ever_signed(
        path in "(/bkt)?(/|%2[fF]|w|t|u|\\.|%2[eE]|%25|\\+|x|//){0,12}",
        query in "(\\?(list-type=2|prefix=w/(t|u)?(/|%2F|\\.)*|acl|uploads|&){0,5})?",
        method in "GET|PUT|POST|DELETE|HEAD",
    ) {
        let uri = format!("http://store:9000{path}{query}");
        let found = judge(WRITE, &request(&path_style(), &method, &uri, &json!({})));
        if let Ok(found) = found {
            let is_inside = found.path.starts_with("/bkt/w/t/");
            let is_list = found.query.contains("prefix=w%2Ft%2F") && found.path.trim_end_matches('/') == "/bkt";
            prop_assert!(is_inside || is_list, "{uri} {found:?}");
            prop_assert!(!found.path.contains("..") && !found.path.contains("//"));
        }
    }

    #[test]
    fn no_address_does_harm(uri in "\\PC{0,60}", method in "[A-Z]{0,7}") {
        drop(judge(WRITE, &request(&path_style(), &method, &uri, &json!({}))));
    }
}
