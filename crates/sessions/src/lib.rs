//! Agents and sessions: one sandbox, one workspace, one conversation each.
//!
//! An agent is a folder with versions; a session is a sandbox over it that keeps its process, its
//! files and its conversation: while it is in use and while it is idle, after the server was
//! killed, and on another server that shares the store and the object store.
//!
//! # What this crate never does
//! - start a process itself or touch a namespace or a cgroup: that is `sandbox`'s task;
//! - open a file of a session by its path: the sandbox's file helper does, as the session's user;
//! - listen, authenticate or read the clock: that is `node`'s task;
//! - give a sandbox a key that the server holds, unless its owner put it into the environment;
//! - report success for data that is not durable.
//!
//! # Terms
//! A *turn* is one message with all of its events, up to `done`. A sandbox is *resident* while it
//! lives; a session without one is *cold*. A *layer* is a frozen disk below others; the layers
//! below a disk are its *chain*.
//!
//! # Files
//! | file | contents |
//! |---|---|
//! | `http.rs`, `faces.rs` | the native interface, and those of Ash and E2B |
//! | `service.rs` | every operation without HTTP, one file per component in `service/` |
//! | `service/backup.rs` | disks and layers in a backup of the server |
//! | `service/templates.rs` | templates: plans with keys of layers, builds, start commands |
//! | `agent.rs`, `turn.rs` | one agent process and its runtimes; the states of a turn, pure |
//! | `interpreter.rs` | the code interpreter: contexts, their processes, their cells |
//! | `terminals.rs` | terminals with their recent output, independent of their clients |
//! | `events.rs` | the log of a session: numbers, subscribers, the background writer |
//! | `model.rs` | the relay to the model; `model/door.rs` is the one of a grant, with budgets |
//! | `workspace.rs` | disks and layers, on this machine and in the object store |
//! | `store.rs` | the only SQL of this crate, one table type for each kind of rows |
//! | `other_nodes.rs`, `everywhere.rs` | other nodes with sessions, and figures of all nodes |
//! | `routing.rs` | the session that a request addresses, and its server |
//! | `config.rs`, `error.rs`, `metrics.rs` | the `[sessions]` table, failures, figures |
//! | `traces.rs` | spans of turns, tools and requests to the model |
#![forbid(unsafe_code)]

mod agent;
mod config;
mod error;
mod events;
mod everywhere;
pub mod faces;
pub mod http;
mod interpreter;
mod metrics;
mod model;
mod other_nodes;
mod program_end;
mod routing;
pub mod service;
mod store;
mod terminals;
mod traces;
mod turn;
mod workspace;

pub use config::{SessionsConfig, SnapshotPolicy};
pub use error::{SessionError, SessionRefusal};
pub use everywhere::peer_routes;

#[cfg(fuzzing)]
#[doc(hidden)]
pub use interpreter::fuzzing as context_frames;
pub use interpreter::{ForkHazards, ModuleHazard, ParkedImports};
pub use model::door as model_door;
pub use routing::{SessionHolder, SessionInterface, SessionOwners, session_of};
pub use service::{SessionActivity, SessionFileNames, Sessions, move_to_server};
