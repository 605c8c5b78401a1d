//! The relay before a real PostgreSQL, with a client that says exactly what a test wants said.

mod ends;
mod faults;
mod former;
mod guests;
mod listening;
mod logins;
mod passing;
mod queries;
mod sharing;
mod support;
mod takeover;
