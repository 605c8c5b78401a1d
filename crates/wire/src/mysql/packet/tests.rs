//! OK, EOF and error packets as bytes.
