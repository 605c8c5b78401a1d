//! Results: each stream once, binary safe, with a configured memory limit for all of them.

use std::net::TcpStream;

use serde_json::{Value, json};
use testkit::{Client, process, until};

use crate::asynchronous::{ended, submit};
use crate::support::{SOON, beside_others, run, serve, serve_with, shell};

const MIB: u64 = 1 << 20;
/// Bytes that a program writes to each of its streams.
const OUTPUT_BYTES: u64 = 4 * MIB;

/// Returns a program that writes NULs to both streams, which results in the longest encoding.
fn noise() -> Value {
    let source = format!(
        "import os\nb = bytes({OUTPUT_BYTES})\nfor f in (1, 2):\n    o = 0\n\
         \x20   while o < len(b): o += os.write(f, b[o:o + (1 << 20)])"
    );
    let limits = json!({"output_bytes": OUTPUT_BYTES, "memory_bytes": 128 * MIB});
    json!({"language": "python", "source": source, "limits": limits})
}

#[test]
fn an_answer_is_hardly_larger_than_what_it_holds() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let response = client.run(&noise());
    assert_eq!(response.status, 200);
    let (length, answer) = (response.text().len() as u64, response.json());
    assert!(length < 2 * OUTPUT_BYTES * 4 / 3 + MIB, "{length} bytes for {}", 2 * OUTPUT_BYTES);
    let exact = answer["stdout_base64"].as_str().map(|text| text.len() as u64);
    assert_eq!(exact, Some(OUTPUT_BYTES.div_ceil(3) * 4));
    let stage = &answer["stages"][0];
    assert_eq!((&stage["output_at_top"], &stage["stdout"]), (&json!(true), &json!("")), "{stage}");
    // Short output is also at its usual place.
    let answer = run(&client, &shell("printf 'a\\000b'; echo x >&2"));
    assert_eq!(answer["stdout"], "a\u{0}b");
    assert_eq!(answer["stages"][0]["stdout"], answer["stdout"], "{answer}");
    assert_eq!(answer["stages"][0]["stderr"], "x\n", "{answer}");
}

/// Sends requests whose responses are not read.
fn deaf(client: &Client, count: usize, request: &testkit::Request) -> Vec<TcpStream> {
    (0..count).map(|_| client.open(request).expect("send a request")).collect()
}

#[test]
fn clients_that_do_not_read_hold_what_they_may_and_no_more() {
    let _guard = beside_others();
    let server = serve_with(
        "answers_bytes_max = 50331648\nanswers_bytes_max_per_tenant = 25165824\nanswers_wait_s = 0",
    );
    let (client, other) = (server.client(), server.other_client("other", &[]));
    assert_eq!(run(&client, &noise())["verdict"], "OK");
    let id = submit(&client, &noise());
    ended(&client, &id);
    let before = process::resident_bytes(server.pid());
    let request = client.execution(&noise());
    let stored = testkit::Request::new("GET", &format!("/v1/executions/{id}"));
    let mut held = deaf(&client, 12, &request);
    until("this token's share to be used up", SOON, || {
        // Both kinds: reading a stored result first requires more memory than a run, so only runs
        // can fill up a share that is partly used by a stored result.
        held.extend(deaf(&client, 12, &stored));
        held.extend(deaf(&client, 12, &request));
        match client.run(&noise()) {
            refused if refused.status == 429 => Ok(()),
            answer => Err(format!("{}", answer.status)),
        }
    });
    let refused = client.run(&noise());
    assert_eq!(refused.json()["error"]["retry"], true, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    let grown = process::resident_bytes(server.pid()).saturating_sub(before);
    // The token's share, once more while responses are created, and the allocator's overhead.
    assert!(grown < 128 * MIB, "the server grew by {grown} bytes");
    // Other tokens are served meanwhile.
    assert_eq!(run(&other, &noise())["verdict"], "OK");
    drop(held);
    until("memory to be free again", SOON, || match client.run(&noise()) {
        answer if answer.status == 200 => Ok(()),
        answer => Err(answer.text()),
    });
}
