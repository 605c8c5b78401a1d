//! Other systems' ways in: their paths, their bodies, their errors, over the same sessions.
//!
//! A face translates and nothing else: it asks the service for what it is asked for, and answers in
//! its own words. What only it knows of something, it keeps as documents.

pub mod ash;
pub mod e2b;
