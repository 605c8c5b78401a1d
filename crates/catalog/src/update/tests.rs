//! Commits, one by one.
