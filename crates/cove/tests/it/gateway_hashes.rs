//! Database grants show no password, no password hash and no statement of others.

use serde_json::json;

use crate::gateway::{CANARY, Stage, judge, python, shop, stage};
use crate::support::beside_others;

/// Program that queries for them in many ways.
const PROGRAM: &str = include_str!("../programs/secrets_of_databases.py");

#[test]
fn databases_show_a_sandbox_no_password_and_no_statement_of_others() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, postgres, mariadb, .. } = &stage;
    postgres.sql(&format!(
        "CREATE EXTENSION postgres_fdw; \
         CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw; \
         GRANT USAGE ON FOREIGN SERVER elsewhere TO clerk; \
         CREATE USER MAPPING FOR clerk SERVER elsewhere OPTIONS (password '{CANARY}')"
    ));
    let hash = mariadb.sql(&format!("SELECT PASSWORD('{CANARY}')"));
    for access in ["read_only", "read_write"] {
        let mut judge = judge();
        judge["access"] = json!(access);
        let session = sessions.create(&json!({"grants": [shop(access), judge]}));
        let output = python(sessions, &session, PROGRAM, "2> told");
        let report = sessions.read(&session, "told").text();
        assert!(output.ends_with(" asked, 0 told"), "{access}: {output}: {report}");
        assert!(!report.contains(CANARY) && !report.contains(&hash), "{access}: {report}");
        sessions.end(&session);
    }
}
