//! Session state of PostgreSQL that the random model does not cover: a client keeps its own state,
//! as without the bouncer.

use std::time::Duration;

use serde_json::json;
use testkit::{PgBatch, PgClient, until};

use crate::support::{Behind, PASSWORD, USER, bounce, shared_postgres};
use crate::tenants::send;

/// Time limit for a state to be reached, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Returns texts with the responses that a client receives.
fn transcript(client: &mut PgClient, texts: &[&str], batches: bool) -> String {
    let mut transcript = String::new();
    for text in texts {
        let batch = match batches {
            true => PgBatch::new().parse("", text).bind("", "", &[]).execute("", 0).sync(),
            false => PgBatch::new().query(text),
        };
        let answer = client.ask(&batch).unwrap_or_else(|error| panic!("{text}: {error}"));
        let error = answer.error().map(|error| error.code().to_owned());
        transcript.push_str(&format!(
            "{text}: {:?} {:?} {error:?}\n",
            answer.tags(),
            answer.rows()
        ));
    }
    transcript
}

#[test]
fn resets_within_transactions_give_what_the_client_started_with() {
    let tenants = [Behind::new("resets", "transaction", 2)];
    let bounced = bounce(shared_postgres(), "", &tenants);
    let started = [
        ("options", "-c search_path=a,\\ \"B\\ c\" -c cove.x=mine -c work_mem=5MB"),
        ("TimeZone", "Europe/Berlin"),
    ];
    let direct = || {
        let parameters = [&[("user", USER), ("database", "resets")], &started[..]].concat();
        PgClient::login(&bounced.postgres.address(), &parameters, PASSWORD).unwrap()
    };
    for texts in [
        &["BEGIN", "RESET search_path", "SHOW search_path", "COMMIT", "SHOW search_path"][..],
        &["BEGIN", "SET search_path TO DEFAULT", "SHOW search_path", "ROLLBACK"],
        &["SET search_path = zzz", "BEGIN", "RESET search_path", "ROLLBACK", "SHOW search_path"],
        &["BEGIN", "SET LOCAL search_path TO DEFAULT", "SHOW search_path", "COMMIT"],
        &["BEGIN", "SET work_mem = '9MB'", "SET LOCAL work_mem TO DEFAULT", "SHOW work_mem"],
        &["BEGIN", "RESET TIME ZONE", "SHOW timezone", "SET TIME ZONE LOCAL", "SHOW timezone"],
        &[
            "BEGIN",
            "SET cove.x = 'other'",
            "SAVEPOINT s",
            "RESET ALL",
            "SHOW cove.x",
            "SHOW work_mem",
            "ROLLBACK TO s",
            "SHOW cove.x",
            "COMMIT",
            "SHOW cove.x",
            "SHOW search_path",
        ],
        &[
            "SET work_mem = '9MB'",
            "BEGIN",
            "SELECT set_config('work_mem', NULL, false)",
            "SHOW work_mem",
            "COMMIT",
            "SHOW work_mem",
        ],
        &["BEGIN", "DISCARD ALL", "ROLLBACK", "DISCARD ALL", "SHOW search_path", "SHOW timezone"],
        &["RESET ALL", "SHOW search_path", "SHOW work_mem", "SHOW cove.x", "SHOW timezone"],
        &["BEGIN", "SELECT 1/0", "RESET search_path", "ROLLBACK", "SHOW search_path"],
        &["BEGIN", "RESET ROLE", "RESET SESSION AUTHORIZATION", "SHOW work_mem", "COMMIT"],
    ] {
        for batches in [false, true] {
            let mut through = bounced.try_login("resets", &started).unwrap();
            let pooled = transcript(&mut through, texts, batches);
            assert_eq!(pooled, transcript(&mut direct(), texts, batches));
        }
    }
    for texts in [
        &["BEGIN; RESET search_path; SHOW search_path; COMMIT; SHOW search_path"][..],
        &["RESET ALL; SHOW work_mem; RESET work_mem; SHOW cove.x"],
        &["SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL; SHOW search_path;"],
    ] {
        let mut through = bounced.try_login("resets", &started).unwrap();
        let pooled = transcript(&mut through, texts, false);
        assert_eq!(pooled, transcript(&mut direct(), texts, false));
    }
}

#[test]
fn a_connection_of_dblink_is_nobody_elses() {
    let tenants = ["unknown", "always"].map(|verify| {
        let name = format!("links_{verify}");
        Behind::new(&name, "transaction", 1).with(&format!("verify = {verify:?}"))
    });
    let bounced = bounce(shared_postgres(), "", &tenants);
    for tenant in ["links_unknown", "links_always"] {
        let mut a = bounced.login(tenant);
        a.run("CREATE EXTENSION dblink");
        a.run(
            "CREATE FUNCTION opens(name text, target text) RETURNS text LANGUAGE plpgsql AS \
             $$ BEGIN RETURN dblink_connect(name, target); END $$",
        );
        a.close();
        let port = bounced.postgres.tcp().port();
        let target =
            format!("host=127.0.0.1 port={port} dbname={tenant} user={USER} password={PASSWORD}");
        for sql in [
            format!("SELECT dblink_connect('secret', '{target}')"),
            format!("SELECT dblink_connect('{target}')"),
            format!("SELECT opens('secret', '{target}')"),
            format!("DO $x$ BEGIN PERFORM dblink_connect('secret', '{target}'); END $x$"),
        ] {
            let mut a = bounced.login(tenant);
            a.run(&sql);
            // There is one server connection, and client A has state on it.
            until("the connection to be A's", SOON, || {
                let pins = bounced.server.client().get(&format!("/v1/tenants/{tenant}/pins"));
                let pins = pins.text();
                if pins.contains("session_function") { Ok(()) } else { Err(pins) }
            });
            if sql.contains("'secret'") {
                assert_eq!(a.value("SELECT dblink_get_connections()"), "{secret}", "{sql}");
            }
            a.close();
            let mut b = bounced.login(tenant);
            let answer = b.query("SELECT dblink_get_connections()").unwrap();
            assert_eq!(answer.rows(), [[None]], "{sql}");
            let error = b.fail("SELECT * FROM dblink('SELECT 1') AS t(a int)");
            assert_eq!(error.code(), "08003", "{sql}");
            b.close();
        }
    }
}

#[test]
fn a_client_that_leaves_in_a_copy_frees_its_connection_at_once() {
    // Shorter than a cancel request may take.
    let tenant = Behind::new("copies", "transaction", 1).with("limits.wait_s = 8");
    let bounced = bounce(shared_postgres(), "", &[tenant]);
    bounced.login("copies").run("CREATE TABLE rows (a text)");
    let data = vec![b'x'; 300_000];
    let simple = || PgBatch::new().query("COPY rows FROM STDIN");
    let extended =
        || PgBatch::new().parse("", "COPY rows FROM STDIN").bind("", "", &[]).execute("", 0);
    for begins in [simple(), extended().flush(), extended().sync()] {
        for (data, cut) in [(&data[..0], 0), (&data[..3], 0), (&data[..3], 4), (&data, 100_000)] {
            for waits in [false, true] {
                let mut client = bounced.login("copies");
                client.run("BEGIN");
                client.run("SELECT pg_advisory_lock(1)");
                let copied = match data.is_empty() {
                    true => Vec::new(),
                    false => PgBatch::new().copy_data(data).0,
                };
                client.send(&begins.0).unwrap();
                if waits {
                    while client.message().unwrap().tag != b'G' {}
                }
                drop(client.send(&copied[..copied.len() - cut]));
                // Unread data turns the close into a reset.
                drop(client);
                let mut next = bounced.login("copies");
                assert_eq!(next.value("SELECT pg_try_advisory_lock(1)"), "t", "{cut} {waits}");
                assert_eq!(next.value("SELECT count(*) FROM rows"), "0");
                next.run("SELECT pg_advisory_unlock_all()");
                next.close();
            }
        }
    }
}

#[test]
fn every_client_reads_why_the_server_refuses_and_is_served_once_that_is_mended() {
    let tenants = [Behind::new("mended", "transaction", 2)];
    let bouncer = "health.interval_s = 1\nhealth.failures = 1";
    let mut bounced = bounce(shared_postgres(), bouncer, &tenants);
    bounced.server.expect_log("the server refuses the login");
    let address = bounced.postgres.tcp().to_string();
    let api = bounced.server.client();
    for (field, wrong, right, code, reason) in [
        ("database", "oops", "mended", "3D000", "database \"oops\" does not exist"),
        ("server_password", "wrong", PASSWORD, "28P01", "password authentication failed"),
    ] {
        let definition = |value: &str| {
            let mut definition = json!({
                "name": "late", "server": address, "database": "mended",
                "server_user": USER, "server_password": PASSWORD,
                "users": [{"name": USER, "password": PASSWORD}],
            });
            definition[field] = json!(value);
            definition
        };
        let exists = api.get("/v1/tenants/late").status == 200;
        let (method, path) = match exists {
            true => ("PUT", "/v1/tenants/late"),
            false => ("POST", "/v1/tenants"),
        };
        let made = send(&api, method, path, &definition(wrong));
        assert!(made.status < 300, "{}", made.text());
        let refused = || {
            let failure = bounced.try_login("late", &[]).expect_err("there is no such server");
            failure.error().unwrap_or_else(|| panic!("no word: {failure}"))
        };
        let check = || {
            let error = refused();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.message().contains(reason), "{error}");
            assert!(error.message().contains("tenant \"late\""), "{error}");
        };
        check();
        check();
        until("the check of its health to fail", SOON, || {
            let health = api.get("/v1/tenants/late/health").text();
            if health.contains("unhealthy") { Ok(()) } else { Err(health) }
        });
        check();
        let mended = send(&api, "PUT", "/v1/tenants/late", &definition(right));
        assert!(mended.status < 300, "{}", mended.text());
        // At once: not after the pause before the next attempt.
        bounced.login("late").run("SELECT 1");
    }
}
