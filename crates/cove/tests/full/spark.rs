//! Spark, unmodified, with Iceberg's runtime: what people do with tables and views in SQL, on
//! tables of both versions, and what keeps tables small.

use std::path::Path;
use std::process::{Command, Stdio};

use testkit::Server;

use crate::java::class_path;
use crate::shared::{COMPAT, COVE, finish, interpreter_with};

#[test]
fn spark_makes_changes_and_maintains_tables_and_views() {
    let server = Server::start(COVE);
    let work = server.scratch().path().join("spark");
    std::fs::create_dir(&work).unwrap();
    let python = interpreter_with("iceberg/spark/requirements.txt", "compat-spark");
    let mut client = Command::new(python);
    client
        .arg(Path::new(COMPAT).join("iceberg/spark/client.py"))
        .env("BASE", format!("http://{}/catalog", server.client().address()))
        .env("TOKEN", server.token())
        .env("JARS", class_path("iceberg/spark/pom.xml"))
        .env("SCRATCH", &work)
        .current_dir(&work)
        // Where it is: it takes minutes.
        .stderr(Stdio::inherit());
    let said = finish(&mut client);
    assert!(said.ends_with("ok\n"), "{said}");
}
