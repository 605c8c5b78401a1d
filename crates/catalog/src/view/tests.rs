//! Tests of `view`.
