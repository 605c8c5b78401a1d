//! Warehouses in buckets, on MinIO, which enforces session policies: credentials and signatures of
//! one table are valid for that table only, and PyIceberg works with either. Of files that are
//! written concurrently, the first one is kept.
//!
//! MinIO is under the AGPL: it runs as a separate process and is not linked.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use node::objects::{ObjectStore, ObjectsUrl, PutOutcome, SigningCredentials};
use parking_lot::Mutex;
use testkit::{Client, Request, Scratch, Server, until};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::go::go;
use crate::shared::{COMPAT, COVE, finish, interpreter_with};

/// Version that is built.
const MINIO: &str = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c";
/// Time limit for the start on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const KEY: &str = "cove-test-key";
const SECRET: &str = "cove-test-secret-that-nobody-gets";

/// Running store, which is stopped on drop.
struct Store {
    child: Child,
    port: u16,
    scratch: Scratch,
}

impl Store {
    fn start() -> Store {
        let (scratch, port) = (Scratch::new(), free_port());
        let address = format!("127.0.0.1:{port}");
        let log = fs::File::create(scratch.path().join("log")).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program())
            .args(["server", "--quiet", "--address", &address])
            .args(["--console-address", "127.0.0.1:0"])
            .arg(scratch.path().join("data"))
            .env("MINIO_ROOT_USER", KEY)
            .env("MINIO_ROOT_PASSWORD", SECRET)
            .env("MINIO_BROWSER", "off")
            .env("HOME", scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut store = Store { child, port, scratch };
        let client = Client::new(([127, 0, 0, 1], port).into(), None);
        until("MinIO to be ready", READY_TIMEOUT, || {
            if let Some(status) = store.child.try_wait().unwrap() {
                panic!("MinIO ended: {status}\n{}", store.log_text());
            }
            match client.try_send(&Request::new("GET", "/minio/health/ready")) {
                Ok(reply) if reply.status == 200 => Ok(()),
                other => Err(format!("{other:?}\n{}", store.log_text())),
            }
        });
        store
    }

    /// Returns its log.
    fn log_text(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may have ended already; the test then reports the reason.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns MinIO's program; builds it if this version is missing.
fn program() -> PathBuf {
    // Several tests may build it concurrently.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("minio");
    let (program, made) = (directory.join("minio"), directory.join("made-of"));
    if fs::read_to_string(&made).ok().as_deref() != Some(MINIO) {
        fs::create_dir_all(&directory).unwrap();
        finish(go().args(["install", MINIO]).env("GOBIN", &directory));
        fs::write(&made, MINIO).unwrap();
    }
    program
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn access_to_one_table_is_access_to_no_other() {
    let (store, server) = (Store::start(), Server::start(COVE));
    let mut client =
        Command::new(interpreter_with("iceberg/s3/requirements.txt", "compat-iceberg-s3"));
    client
        .arg(Path::new(COMPAT).join("iceberg/s3/client.py"))
        .env("BASE", format!("http://{}/catalog", server.client().address()))
        .env("TOKEN", server.token())
        .env("STORE", format!("http://127.0.0.1:{}", store.port))
        .env("KEY", KEY)
        .env("SECRET", SECRET)
        .env("PYICEBERG_HOME", server.scratch().path())
        // PyIceberg installs its signer into a client that other threads already use, which then
        // send an unsigned request.
        .env("PYICEBERG_MAX_WORKERS", "1")
        .current_dir(server.scratch().path());
    let output = finish(&mut client);
    assert!(output.ends_with("ok\n"), "{output}");
}

/// Creates a bucket.
const MAKE_BUCKET: &str = "import botocore.session, os; botocore.session.Session().create_client(\
    's3', region_name='us-east-1', endpoint_url=os.environ['STORE'], \
    aws_access_key_id=os.environ['KEY'], aws_secret_access_key=os.environ['SECRET'])\
    .create_bucket(Bucket='lake')";

#[test]
fn of_files_with_one_name_the_first_stays() {
    let store = Store::start();
    let endpoint = format!("http://127.0.0.1:{}", store.port);
    let mut client =
        Command::new(interpreter_with("iceberg/s3/requirements.txt", "compat-iceberg-s3"));
    client.args(["-c", MAKE_BUCKET]).env("STORE", &endpoint).env("KEY", KEY).env("SECRET", SECRET);
    finish(&mut client);
    let Ok(ObjectsUrl::S3(location)) = format!("s3://lake?endpoint={endpoint}").parse() else {
        panic!("no location")
    };
    let credentials = SigningCredentials {
        access_key_id: KEY.to_owned(),
        secret_access_key: SECRET.to_owned(),
        session_token: None,
    };
    let objects = ObjectStore::in_s3(location, credentials);
    Runtime::new().unwrap().block_on(async {
        for round in 0..20 {
            let (key, mut all) = (format!("t/metadata/{round}"), JoinSet::new());
            for writer in 0..8_u8 {
                let (objects, key) = (objects.clone(), key.clone());
                all.spawn(async move {
                    (writer, objects.put_if_absent(&key, vec![writer; 5000].into()).await.unwrap())
                });
            }
            let placed = all.join_all().await;
            let mut first = placed.iter().filter(|(_, placed)| *placed == PutOutcome::New);
            let (writer, _) = first.next().expect("one of them is the first");
            assert_eq!(first.next(), None, "there is one first");
            assert_eq!(objects.get(&key).await.unwrap().unwrap(), vec![*writer; 5000]);
        }
    });
}
