//! The official conformance suite against the protocol layer, with the tools, prompts and resources
//! that the suite asks for by name. They are in this test alone; `cove` offers none of them.
#![allow(
    clippy::unwrap_used,
    reason = "a failed step is a failed test; clippy exempts only functions marked #[test]"
)]

mod fixture;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use axum::Extension;
use mcp::McpEndpoint;
use mcp::config::McpConfig;
use node::auth::TokenPrincipal;
use node::http::ConnectionPeer;
use testkit::{Scratch, install_packages, packaged_node};

use self::fixture::ConformanceFixture;

fn compat() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/mcp")
}

fn project() -> &'static Path {
    static PROJECT: OnceLock<PathBuf> = OnceLock::new();
    PROJECT.get_or_init(|| {
        install_packages(&compat(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-mcp"), &[])
    })
}

/// Serves the fixture on loopback while `client` runs.
async fn with_server(client: impl FnOnce(SocketAddr) + Send + 'static) {
    let endpoint = McpEndpoint::offering(
        Arc::new(ConformanceFixture),
        McpConfig::default(),
        &node::auth::random_key().unwrap(),
    );
    let peer = ConnectionPeer(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    let routes = mcp::routes(endpoint)
        .layer(Extension(TokenPrincipal::without_token("tok", "test")))
        .layer(Extension(peer));
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async { axum::serve(listener, routes).await.unwrap() });
    node::task::blocking(move || client(address)).await.unwrap();
    serving.abort();
}

/// Runs the suite's scenarios of a revision. Expected failures are in a file, with the reasons; the
/// suite also fails if one of them passes.
async fn conforms_to(revision: &'static str) {
    with_server(move |address| {
        let scratch = Scratch::new();
        let script = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
        let output = Command::new(packaged_node(project()))
            .arg(project().join(script))
            .args(["server", "--requirements", revision, "--url"])
            .arg(format!("http://{address}/mcp"))
            .arg("--expected-failures")
            .arg(compat().join(format!("expected-failures-{revision}.yaml")))
            .arg("--output-dir")
            .arg(scratch.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{errors}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocol_layer_conforms_to_the_stateless_revision() {
    conforms_to("2026-07-28").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocol_layer_conforms_to_the_last_revision_with_a_handshake() {
    conforms_to("2025-11-25").await;
}
