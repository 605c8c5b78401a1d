//! Servers on one store as one service: whichever is asked.

use serde_json::Value;
use testkit::{Client, Postgres, Server, until};

use crate::support::{COVE, SOON, beside_others};

fn config(database: &str) -> String {
    let keys = ["secrets_key", "executions.jobs.webhook_key"];
    let keys = keys.map(|name| format!("{name} = \"{}\"\n", "5a".repeat(32))).concat();
    format!("store.url = {database:?}\n{keys}sandbox.warm_runtimes = false\n")
}

fn answers(server: &Server, token: &str) -> u16 {
    let client = Client::new(server.client().address(), Some(token.to_owned()));
    client.get("/v1/languages").status
}

#[test]
fn tokens_are_made_and_revoked_for_all_servers() {
    let _guard = beside_others();
    let database = Postgres::shared();
    let config = config(&database.database());
    let one = Server::start_with(COVE, &[], Some(&config));
    let two = one.start_beside(&config);
    assert_eq!((answers(&one, one.token()), answers(&two, one.token())), (200, 200));

    let made = one.command("token").args(["--json", "create", "--name", "ci"]).output().unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    // At the first request, without waiting for anything.
    assert_eq!((answers(&two, token), answers(&one, token)), (200, 200));

    let listed = two.command("token").arg("list").output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains(id), "{listed:?}");
    assert!(two.command("token").args(["revoke", id]).output().unwrap().status.success());
    for server in [&one, &two] {
        until("the token to be refused", SOON, || match answers(server, token) {
            401 => Ok(()),
            other => Err(other.to_string()),
        });
    }
    let brief = ["create", "--name", "brief", "--expires", "1ms"];
    let brief = one.command("token").args(brief).output().unwrap();
    assert_eq!(answers(&two, String::from_utf8_lossy(&brief.stdout).trim()), 401);
}

/// A token that is put into a file that no server reads would be of no use, and be missed.
#[test]
fn tokens_of_a_shared_store_are_not_made_in_the_file() {
    let _guard = beside_others();
    let database = Postgres::shared();
    let server = Server::start_with(COVE, &[], Some(&config(&database.database())));
    let mut create = testkit::command(COVE);
    create.args(["token", "--data-dir"]).arg(server.data_dir());
    let output = create.args(["create", "--name", "lost"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("COVE_STORE__URL"), "{errors}");
    assert!(!server.data_dir().join("tokens.jsonl").exists());
}
