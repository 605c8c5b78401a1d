//! Documents as others write them.
