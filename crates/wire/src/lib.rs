//! Database protocols as bytes and state machines, without sockets.
//!
//! This crate owns no socket and no clock, and knows no tenants: the input is bytes, the output
//! bytes and decisions. All input from the other side is considered hostile until it was checked
//! here.
//!
//! # Files
//! | file | what |
//! |---|---|
//! | `pg/frame.rs`, `pg/startup.rs`, `pg/message.rs`, `pg/notice.rs` | PostgreSQL's messages |
//! | `pg/scram.rs`, `pg/md5.rs`, `pg/secret.rs` | authentication |
//! | `pg/exchange.rs` | which reply belongs to which request |
//! | `pg/sql.rs` | the effects of a statement on its session, without a grammar |
//! | `mysql/frame.rs`, `mysql/lenenc.rs`, `mysql/packet.rs` | MySQL's packets, integers and strings, OK and error packets |
//! | `mysql/capabilities.rs`, `mysql/handshake.rs`, `mysql/auth.rs` | the connection phase |
//! | `mysql/command.rs`, `mysql/reply.rs`, `mysql/changes.rs` | commands, the grammar of their replies, session trackers |
//! | `mysql/sql.rs` | the effects of a statement: `mysql/sql/lexer.rs`, `mysql/sql/scan.rs`, `mysql/sql/keywords.rs` |
//! | `prohibitions.rs`, `mask.rs`, `shape.rs` | prohibited parts; statements without values |
#![forbid(unsafe_code)]

pub mod mask;
pub mod mysql;
pub mod pg;
pub mod prohibitions;
pub mod shape;
