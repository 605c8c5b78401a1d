//! Faces of other systems.

pub mod dbbouncer;
