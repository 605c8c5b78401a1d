//! The pool's tests: data tables, a simulation against an oracle, and, with `--features model`,
//! interleavings explored by loom.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[cfg(feature = "model")]
mod model;
#[cfg(not(feature = "model"))]
mod residents;
#[cfg(not(feature = "model"))]
mod shares;
#[cfg(not(feature = "model"))]
mod sim;
#[cfg(not(feature = "model"))]
mod support;
#[cfg(not(feature = "model"))]
mod table;
#[cfg(not(feature = "model"))]
mod turns;
