//! Encryption on both sides, and a server newer than Debian's.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use testkit::{Certificate, PgFailure, Postgres, Scratch, until};

use crate::clients::{check_output, python};
use crate::support::{Behind, Bounced, PASSWORD, USER, bounce_at, prepared};

/// Time limit for a state to be reached.
const SOON: Duration = Duration::from_secs(60);

/// Starts a tenant on an encrypted PostgreSQL 18, whose clients may encrypt, too.
fn newer(scratch: &Scratch, name: &str, trusts: Option<&Path>) -> Bounced {
    let postgres = prepared(Postgres::start_18_with_tls());
    let certificate = Certificate::new(scratch);
    let trusted = trusts.map_or_else(|| postgres.certificate(), Path::to_path_buf);
    let bouncer = format!(
        "tls.cert = {:?}\ntls.key = {:?}\n\
         servers.newer.address = \"localhost:{}\"\nservers.newer.tls = \"verify-full\"\n\
         servers.newer.ca = {trusted:?}",
        certificate.certificate,
        certificate.key,
        postgres.port(),
    );
    bounce_at(Arc::new(postgres), "newer", &bouncer, &[Behind::new(name, "transaction", 5)])
}

fn run(bounced: &Bounced, program: &str, database: &str, root: &Path, least: usize) {
    let mut command = python(program);
    command.env("PGHOST", bounced.tcp().ip().to_string());
    command.env("PGPORT", bounced.tcp().port().to_string()).env("PGDATABASE", database);
    command.env("PGUSER", USER).env("PGPASSWORD", PASSWORD).env("ROOT", root);
    check_output(program, least, &command.output().unwrap());
}

#[test]
fn clients_encrypt_in_every_way_that_a_new_server_knows() {
    let scratch = Scratch::new();
    let bounced = newer(&scratch, "encrypted", None);
    run(
        &bounced,
        "postgres/tls_client.py",
        "encrypted",
        &scratch.path().join("certificate.pem"),
        5,
    );
    let mut client = bounced.login("encrypted");
    assert!(client.value("SHOW server_version").starts_with("18."));
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(client.value(sql), "t");
    run(&bounced, "postgres/psycopg_client.py", "encrypted", scratch.path(), 22);
}

#[test]
fn a_server_that_cannot_prove_who_it_is_is_not_used() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let stranger = Certificate::new(&other).certificate;
    let mut bounced = newer(&scratch, "impostor", Some(&stranger));
    bounced.server.expect_log("impostor");
    bounced.server.expect_log("newer");
    bounced.server.expect_log("certificate");
    let client = bounced.try_login("impostor", &[]);
    let answer = client.and_then(|mut client| client.query("SELECT 1"));
    let error = match answer {
        Ok(answer) => answer.error(),
        Err(failure) => PgFailure::error(&failure),
    };
    let error = error.expect("a word about it").to_string();
    assert!(error.starts_with("08") && error.contains("certificate"), "{error}");
}

#[test]
fn a_certificate_is_changed_without_a_restart() {
    let scratch = Scratch::new();
    let bounced = newer(&scratch, "renewed", None);
    let peer_certificate = || {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-starttls", "postgres", "-connect"]);
        openssl.arg(bounced.tcp().to_string()).stdin(Stdio::null());
        let text = String::from_utf8_lossy(&openssl.output().unwrap().stdout).into_owned();
        let certificate = text.split("-----BEGIN CERTIFICATE-----").nth(1);
        let certificate = certificate.and_then(|rest| rest.split("-----END").next());
        certificate.unwrap_or_else(|| panic!("no certificate in {text}")).trim().to_owned()
    };
    let before = peer_certificate();
    let mut client = bounced.login("renewed");
    let renewed = Certificate::new(&scratch);
    let on_disk = fs::read_to_string(&renewed.certificate).unwrap();
    let reload = testkit::Request::new("POST", "/v1/bouncer/reload");
    let answer = bounced.server.client().send(&reload);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.json()["restart_needed_for"] == Value::Array(Vec::new()), "{}", answer.text());
    until("the new certificate to be shown", SOON, || {
        let now = peer_certificate();
        if now != before && on_disk.contains(&now) { Ok(()) } else { Err(now) }
    });
    assert_eq!(client.value("SELECT 1"), "1");
}
