//! Test kit for tests of the real binary: servers, clients, and checks of the host.
//!
//! [`Server`] starts `cove serve` on a free port in its own directory and ends it on drop,
//! [`Client`] speaks HTTP/1.1 to it over a plain socket, [`Host`] records state outside that a run
//! may not change (control groups, mounts, processes, network namespaces, memory, files) and
//! [`until`] waits for a state with a deadline. Development only: no shipped crate depends on it.
//!
//! It never links a crate of Cove, and uses only the server's external interfaces: command line,
//! files in the data directory, HTTP. Errors panic, because a failed step is a failed test.
//!
//! ```no_run
//! let server = testkit::Server::start("target/debug/cove");
//! let reply = server.client().run(&serde_json::json!({"argv": ["/bin/true"]}));
//! assert_eq!(reply.json()["verdict"], "OK");
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `server.rs` | process of one `cove serve` |
//! | `http.rs` | blocking HTTP/1.1 client |
//! | `websocket.rs` | blocking WebSocket client |
//! | `events.rs` | reader of server-sent events |
//! | `receiver.rs` | HTTP server that records its requests |
//! | `host.rs` | host invariants: snapshot and comparison |
//! | `process.rs` | `/proc`: descendants, descriptors, namespaces, signals |
//! | `avro.rs` | writer of Avro container files |
//! | `certificate.rs` | a certificate for `localhost` |
//! | `service.rs`, `postgres.rs`, `mariadb.rs`, `redis.rs`, `s3.rs` | real servers beside Cove |
//! | `pg.rs` | blocking PostgreSQL client that sends exactly the given messages |
//! | `my.rs` | the same for MySQL |
//! | `balancer.rs` | HAProxy in front of several servers |
//! | `cutter.rs` | proxy that breaks connections at a chosen byte |
//! | `documents.rs` | example documents of Iceberg |
//! | `npm.rs`, `pip.rs` | packages of Node.js and Python, installed once |
//! | `log.rs` | unlisted WARN and ERROR lines |
//! | `scratch.rs` | temporary directories |
//! | `wait.rs` | deadlines; the only reader of the clock here |

pub mod avro;
mod balancer;
mod certificate;
mod cluster;
mod cutter;
pub mod documents;
mod events;
mod host;
mod http;
mod log;
mod mariadb;
pub mod my;
mod network;
mod npm;
pub mod pg;
mod pip;
mod postgres;
pub mod process;
mod receiver;
mod redis;
mod s3;
mod scratch;
mod server;
mod service;
mod wait;
mod websocket;

pub use balancer::{BalancedUnit, Balancer};
pub use certificate::Certificate;
pub use cluster::{BalancedPort, ServerCluster, node_config, nodes_seen_by, wait_for_each_other};
pub use cutter::{Cut, Cutter, Way};
pub use events::{EventStream, SentEvent};
pub use host::{Host, Watch};
pub use http::{Client, Request, Response};
pub use log::unlisted;
pub use mariadb::MariaDb;
pub use my::{MyAnswer, MyClient, MyError, MyFailure, MyLogin, MyStatement, MyValue};
pub use network::{Network, NetworkPlace};
pub use npm::{install_packages, packaged_node};
pub use pg::{
    PgAddress, PgAnswer, PgBatch, PgClient, PgError, PgFailure, PgMessage, PgNotification,
};
pub use pip::{pip_install, python_environment};
pub use postgres::Postgres;
pub use receiver::{Delivered, Receiver, TAKEN};
pub use redis::Redis;
pub use s3::S3;
pub use scratch::Scratch;
pub use server::{Server, command};
pub use wait::{Stopwatch, eventually, until};
pub use websocket::{Message, WebSocket, Writer};
