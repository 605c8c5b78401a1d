//! Fresh Linux sandboxes with exact limits.
mod spec;
pub use spec::*;
