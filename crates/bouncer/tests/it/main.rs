//! The relay before a real PostgreSQL, with a client whose messages each test controls exactly.

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
