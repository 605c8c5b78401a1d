//! Catalog grants in real sandboxes: the example of `examples/gateway/analyst` according to its
//! page, and what its sandbox can reach besides.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Postgres, S3, Scratch, Server, pip_install};

use crate::gateway::{CANARY, audit};
use crate::sessions_support::{DISK_BYTES, Sessions, config};
use crate::shared::{COMPAT, finish, interpreter};
use crate::support::{COVE, beside_others};

/// Directory of the example.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway/analyst");
/// Program that tries operations that a reader may not do.
const READER: &str = include_str!("../programs/lake_reader.py");
/// Directory in sessions of Python packages that the host does not have.
pub(crate) const PACKAGES: &str = "packages";

/// Returns PyIceberg and its dependencies for the sandboxes' interpreter, which may differ from
/// that of the tests; rebuilt when the requirements change.
pub(crate) fn packages() -> PathBuf {
    let files = inside_packages("iceberg/requirements.txt", "compat-iceberg-inside");
    // Optional for Arrow, which would use the host's versions; they may be too old.
    for optional in ["numpy.py", "pandas.py"] {
        fs::write(files.join(optional), "raise ImportError('not for this test')\n").unwrap();
    }
    files
}

/// Returns the packages of a requirements file for the same interpreter, in a cache directory.
pub(crate) fn inside_packages(requirements: &str, directory: &str) -> PathBuf {
    let requirements = Path::new(COMPAT).join(requirements);
    let wanted = fs::read_to_string(&requirements).unwrap();
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let version = finish(Command::new("/usr/bin/python3").args(["-c", version]));
    let wanted = format!("{wanted}{version}");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    let (files, made) = (directory.join("files"), directory.join("made-of"));
    if fs::read_to_string(&made).ok().as_deref() != Some(wanted.as_str()) {
        drop(fs::remove_dir_all(&directory));
        let mut install = pip_install(interpreter());
        install.args(["--only-binary=:all:", "--python-version", version.trim()]);
        install.arg("--target").arg(&files).arg("-r").arg(&requirements);
        finish(&mut install);
        fs::write(&made, wanted).unwrap();
    }
    files
}

/// Starts a server with a warehouse in a bucket, and a database.
fn serve(store: &S3, postgres: &Postgres, scratch: &Scratch) -> Server {
    let mut table = lake_config(store, scratch);
    let _ = write!(
        table,
        "[bouncer]\nlisten = \"127.0.0.1:0\"\n\
         [[bouncer.tenants]]\nname = \"shop\"\nserver = \"{}\"\ndatabase = \"postgres\"\n\
         users = [{{ name = \"clerk\", password = \"{CANARY}\" }}]\n",
        postgres.tcp(),
    );
    Server::start_with(COVE, &[], Some(&table))
}

/// Returns the configuration of a server with a warehouse in a bucket, for sessions with large
/// packages.
pub(crate) fn lake_config(store: &S3, scratch: &Scratch) -> String {
    let id = scratch.file("id", &store.access_key_id);
    let secret = scratch.file("secret", &store.secret_access_key);
    // Arrow is large.
    let small = format!("disk_bytes = {DISK_BYTES}");
    let mut table = config("memory_bytes = 1073741824").replace(&small, "disk_bytes = 1073741824");
    let _ = write!(
        table,
        "[catalog]\nwarehouse = \"lake\"\nroot = \"{}\"\naccess_key_id = \"file:{}\"\n\
         secret_access_key = \"file:{}\"\nremote_signing = true\n",
        store.url("w"),
        id.display(),
        secret.display(),
    );
    table
}

/// Creates a session with PyIceberg in its workspace.
fn session(sessions: &Sessions, request: &Value) -> String {
    let session = sessions.create(request);
    sessions.unpack(&session, PACKAGES, &packages(), &["."]);
    session
}

/// Runs a Python program that must succeed.
fn python(sessions: &Sessions, session: &str, program: &str) -> String {
    sessions.out(session, &format!("PYTHONPATH=$PWD/{PACKAGES} /usr/bin/python3 {program}"))
}

#[test]
fn an_agent_answers_from_a_database_and_a_table_with_nothing_secret_inside() {
    let _guard = beside_others();
    let (store, postgres, scratch) = (S3::start(), Postgres::start(), Scratch::new());
    let setup = fs::read_to_string(Path::new(EXAMPLE).join("setup.sql")).unwrap();
    postgres.sql(&setup.replace(":'password'", &format!("'{CANARY}'")));
    let server = serve(&store, &postgres, &scratch);
    let sessions = Sessions::from(&server);

    // The session that fills the table has a write grant, and no key.
    let grants = json!([{"kind": "catalog", "warehouse": "lake", "access": "read_write"}]);
    let writer = session(&sessions, &json!({"grants": grants}));
    let seed = fs::read(Path::new(EXAMPLE).join("seed.py")).unwrap();
    assert!(sessions.write(&writer, "seed.py", &seed).status < 300);
    assert_eq!(python(&sessions, &writer, "seed.py"), "shop.visits: 42 rows\n");
    let theirs = "from pyiceberg.catalog import load_catalog; import pyarrow\n\
                  data = pyarrow.table({'id': [1, 2]})\n\
                  catalog = load_catalog(); catalog.create_namespace('theirs')\n\
                  table = catalog.create_table('theirs.t', data.schema); table.append(data)\n\
                  print(table.metadata_location)";
    assert!(sessions.write(&writer, "theirs.py", theirs.as_bytes()).status < 300);
    let theirs = python(&sessions, &writer, "theirs.py");

    // The agent, deployed according to its page.
    let mut deploy = Command::new(COVE);
    deploy.args(["agent", "deploy", EXAMPLE]);
    deploy.env("COVE_URL", format!("http://{}", server.client().address()));
    finish(deploy.env("COVE_TOKEN", server.token()));
    let analyst = session(&sessions, &json!({"agent": "analyst"}));
    assert_eq!(
        python(&sessions, &analyst, "ask.py conversion"),
        "product\tvisits\torders\tconversion\nkettle\t385\t140\t36.4 %\n\
         teapot\t665\t140\t21.1 %\ncup\t945\t140\t14.8 %\n"
    );
    let filtered = python(&sessions, &analyst, "ask.py visits 'product = 2 and visits > 53'");
    assert_eq!(filtered, "day\tproduct\tvisits\n2026-11-14\t2\t54\n");

    // Ungranted objects, through its client and by direct requests.
    assert!(sessions.write(&analyst, "reader.py", READER.as_bytes()).status < 300);
    let program =
        format!("PYTHONPATH=$PWD/{PACKAGES} THEIRS={} /usr/bin/python3 reader.py", theirs.trim());
    assert_eq!(sessions.out(&analyst, &program).trim(), "[]");
    // Neither the sandbox nor the audit records contain the key.
    let seen = "cat /proc/[0-9]*/environ; env; curl -s localhost:8181/v1/config; \
                curl -s localhost:8181/v1/lake/namespaces/shop/tables/visits";
    let seen = sessions.out(&analyst, seen);
    let records = audit(&server.client(), &analyst, |record| {
        let text = record["text"].as_str().unwrap_or_default();
        record["outcome"] == "refused" && text.starts_with("DELETE ")
    });
    for secret in [&store.secret_access_key, &store.access_key_id, CANARY] {
        assert!(!seen.contains(secret), "{seen}");
        assert!(!records.iter().any(|record| record.to_string().contains(secret)));
    }
}
