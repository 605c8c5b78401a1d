//! Sampling: the choice of traces to record.

use super::context::TraceId;

/// Selects a part of all traces, by their ids: nodes with the same ratio decide alike about one
/// trace, as SDKs of OpenTelemetry do (`TraceIdRatioBased`).
///
/// It decides only about traces that begin here. A trace from elsewhere is recorded if its caller
/// records it, so that no trace has holes (`ParentBased`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceSampler {
    /// Ids whose lower 63 bits are below this are selected.
    bound: u64,
}

impl TraceSampler {
    /// Creates a sampler for this part of all traces, from 0 to 1; none for other numbers.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a number between 0 and 2^63"
    )]
    pub fn new(ratio: f64) -> Option<TraceSampler> {
        let all = 1_u64 << 63;
        (0.0..=1.0).contains(&ratio).then_some(TraceSampler { bound: (ratio * all as f64) as u64 })
    }

    pub(super) fn takes(self, trace: TraceId) -> bool {
        trace.low() >> 1 < self.bound
    }
}
