//! Command line, configuration, serve and doctor.
fn main() {}
