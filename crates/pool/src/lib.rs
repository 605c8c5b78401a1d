//! Bounded, keyed, fair pools of anything, and buffers.
