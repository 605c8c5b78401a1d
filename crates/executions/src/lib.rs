//! Languages, stages, admission and verdicts.
