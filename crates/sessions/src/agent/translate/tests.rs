//! Lines of the real program, and what becomes of them.
