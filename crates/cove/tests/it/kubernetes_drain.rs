//! A node drains while its Kubernetes node is cordoned, tainted or deleted; drains by operators are
//! kept.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Certificate, Scratch, Server, until};

use crate::kubernetes_api::{ApiServer, MACHINE};
use crate::support::{COVE, SOON, beside_others};

/// Key of a taint named in the configuration.
const NAMED_TAINT: &str = "node.kubernetes.io/out-of-service";

/// A server on a Kubernetes node, with a service account mounted as by a kubelet.
struct ClusteredServer {
    server: Server,
    api: ApiServer,
    credentials: PathBuf,
    _scratch: Scratch,
}

impl ClusteredServer {
    fn start() -> ClusteredServer {
        let scratch = Scratch::new();
        let certificate = Certificate::new(&scratch);
        let api = ApiServer::start(&certificate, "first");
        let credentials = scratch.path().join("serviceaccount");
        fs::create_dir(&credentials).unwrap();
        fs::copy(&certificate.certificate, credentials.join("ca.crt")).unwrap();
        write_token(&credentials, "first");
        let config = format!(
            "bouncer.enabled = false\ncatalog.enabled = false\nsandbox.warm_runtimes = false\n\
             [cluster.kubernetes]\nnode = {MACHINE:?}\nserver = {:?}\nservice_account = {:?}\n\
             drain_taints = [\"other\", {NAMED_TAINT:?}]\n",
            api.url(),
            credentials
        );
        let server = Server::start_with(COVE, &[], Some(&config));
        ClusteredServer { server, api, credentials, _scratch: scratch }
    }

    /// Runs `cove node`.
    fn node(&self, arguments: &[&str]) -> Value {
        let mut command = testkit::command(COVE);
        command.arg("node").args(arguments).args(["--json", "--data-dir"]);
        let output = command.arg(self.server.data_dir()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// State of the node in `cove node list`.
    fn state(&self) -> String {
        self.node(&["list"])["nodes"][0]["state"].as_str().unwrap().to_owned()
    }

    fn wait_for(&self, state: &str) {
        until(&format!("the node to be {state}"), SOON, || match self.state() {
            now if now == state => Ok(()),
            now => Err(now),
        });
    }

    /// Waits until the server has acted on the current object: a watch begins after the changes of
    /// the previous watch, and the object itself, have been handled.
    fn wait_until_met(&self) {
        let before = self.api.watches();
        self.api.cut();
        self.api.wait_for_watch_beyond(before);
    }

    fn wait_for_log(&self, text: &str) {
        until("a line of the log", SOON, || match self.server.log() {
            log if log.contains(text) => Ok(()),
            log => Err(log),
        });
    }
}

/// Replaces the token atomically, as a kubelet does.
fn write_token(credentials: &Path, token: &str) {
    let new = credentials.join("..new");
    fs::write(&new, format!("{token}\n")).unwrap();
    fs::rename(new, credentials.join("token")).unwrap();
}

#[test]
fn a_node_drains_while_its_machine_is_cordoned() {
    let _guard = beside_others();
    let mut it = ClusteredServer::start();
    it.wait_for("active");
    it.api.cordon(true);
    it.wait_for("draining");
    it.api.cordon(false);
    it.wait_for("active");

    // A taint named in the configuration has the same effect; other taints have none.
    it.api.taint(&["example.com/dedicated", NAMED_TAINT]);
    it.wait_for("draining");
    it.api.taint(&["example.com/dedicated"]);
    it.wait_for("active");

    // The Kubernetes node is deleted, and registers again.
    it.server.expect_log("cluster.kubernetes.node` names no node");
    it.api.remove(true);
    it.wait_for("draining");
    it.api.remove(false);
    it.wait_for("active");

    // The drain still belongs to this node after another process takes over its directory.
    it.api.cordon(true);
    it.wait_for("draining");
    let before = it.api.watches();
    it.server.restart();
    it.api.wait_for_watch_beyond(before);
    assert_eq!(it.state(), "draining");
    it.api.cordon(false);
    it.wait_for("active");
    assert!(!it.server.data_dir().join("kubernetes.drain").exists());
    // Cordoned while no server was watching.
    it.server.signal("TERM");
    it.server.wait(SOON);
    it.api.cordon(true);
    it.server.restart();
    it.wait_for("draining");
}

#[test]
fn a_drain_that_somebody_else_asked_for_is_left_alone() {
    let _guard = beside_others();
    let it = ClusteredServer::start();
    let nodes = it.node(&["list"]);
    let id = nodes["nodes"][0]["id"].as_str().unwrap();
    it.node(&["drain", id]);
    it.api.cordon(true);
    it.wait_until_met();
    it.api.cordon(false);
    it.wait_until_met();
    assert_eq!(it.state(), "draining");
    it.node(&["undrain", id]);
    it.wait_for("active");

    // The server does not request the drain again after an operator has reverted it.
    it.api.cordon(true);
    it.wait_for("draining");
    it.node(&["undrain", id]);
    it.wait_until_met();
    assert_eq!(it.state(), "active");
    it.api.cordon(false);
    it.wait_until_met();
    assert_eq!(it.state(), "active");
    assert!(!it.server.data_dir().join("kubernetes.drain").exists());
}

#[test]
fn what_goes_wrong_with_the_api_server_is_said_and_passes() {
    let _guard = beside_others();
    let mut it = ClusteredServer::start();
    it.server.expect_log("the Kubernetes node cannot be watched");
    it.wait_for("active");

    // The former token remains valid for a while, and the next watch uses the new one.
    write_token(&it.credentials, "second");
    it.api.honour("second");
    it.wait_until_met();
    it.api.cordon(true);
    it.wait_for("draining");

    // The last known state holds while the API server cannot be read.
    it.api.forbid(true);
    it.api.cut();
    it.wait_for_log("bind the service account to a ClusterRole with `get` and `watch` on `nodes`");
    assert_eq!(it.state(), "draining");
    it.api.cordon(false);
    it.api.forbid(false);
    it.wait_for("active");
    it.wait_for_log("the Kubernetes node is watched again");

    it.api.honour("third");
    it.api.cut();
    it.wait_for_log("its token is not good there");
    write_token(&it.credentials, "third");
    it.api.cordon(true);
    it.wait_for("draining");

    // The resource version of a watch has expired.
    let before = it.api.watches();
    it.api.expire();
    it.api.wait_for_watch_beyond(before);
    it.api.cordon(false);
    it.wait_for("active");

    // The log contains no token.
    let log = it.server.log();
    assert!(!["first", "second", "third"].iter().any(|it| log.contains(&format!("Bearer {it}"))));
}
