//! Agents of which every line is written here.
