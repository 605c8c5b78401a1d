//! Spark, unmodified, with Iceberg's runtime: common SQL on tables and views of both versions, and
//! table maintenance. Its catalog is three nodes behind a balancer, so each request goes to another
//! node than the previous one.

use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{BalancedPort, Network, Postgres, Scratch, ServerCluster};

use crate::java::class_path;
use crate::shared::{COMPAT, COVE, finish, interpreter_with};

#[test]
fn spark_makes_changes_and_maintains_tables_and_views() {
    let files = Scratch::new();
    let catalog = format!("[catalog]\nroot = \"file://{}/main\"\n", files.path().display());
    let cluster = ServerCluster::start(COVE, Network::start(3), Postgres::shared(), &catalog);
    let work = files.path().join("spark");
    std::fs::create_dir(&work).unwrap();
    let python = interpreter_with("iceberg/spark/requirements.txt", "compat-spark");
    let mut client = Command::new(python);
    client
        .arg(Path::new(COMPAT).join("iceberg/spark/client.py"))
        .env("BASE", format!("http://{}/catalog", cluster.port(BalancedPort::Requests)))
        .env("TOKEN", cluster.first().token())
        .env("JARS", class_path("iceberg/spark/pom.xml"))
        .env("SCRATCH", &work)
        .current_dir(&work)
        // Shows the progress: the program takes minutes.
        .stderr(Stdio::inherit());
    let output = finish(&mut client);
    assert!(output.ends_with("ok\n"), "{output}");
}
