//! The program that runs cells of Python inside of a sandbox, with the standard library alone.
//!
//! It is text: each user appends a driver to it, which says where cells come from and where
//! results go. Contexts of a session run their cells with it where there is no IPython, and the
//! notebooks of `SandboxFusion` always do.
//!
//! This crate never starts a process, does no I/O and knows neither of its users.
//!
//! | file | what |
//! |---|---|
//! | `cells.py` | the program |

/// Source of the program: definitions alone, with nothing that runs by itself.
pub const PYTHON_CELLS: &str = include_str!("cells.py");
