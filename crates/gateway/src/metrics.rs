//! Metrics of the gateway.

use std::fmt;
use std::sync::Arc;

use node::telemetry::Registry;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::Semaphore;

use crate::audit::GatewayAudit;

/// Adds the figures of the gateway. `rooms`: what connections are counted with, and how many there
/// are.
pub(crate) fn register(
    audit: &GatewayAudit,
    rooms: Arc<Semaphore>,
    most: usize,
    registry: &mut Registry,
) {
    let audit = audit.clone();
    registry.register_collector(Box::new(GatewayFigures { audit, rooms, most }));
}

#[derive(Debug)]
struct GatewayFigures {
    audit: GatewayAudit,
    rooms: Arc<Semaphore>,
    most: usize,
}

impl Collector for GatewayFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let open = self.most.saturating_sub(self.rooms.available_permits());
        let open = ConstGauge::new(i64::try_from(open).unwrap_or(i64::MAX));
        let help = "Connections of sandboxes that the gateway serves";
        let kind = open.metric_type();
        open.encode(encoder.encode_descriptor("cove_gateway_connections", help, None, kind)?)?;
        let counters = [
            ("cove_gateway_audit_records", "Records that were written", self.audit.written()),
            ("cove_gateway_audit_lost", "Records that were only counted", self.audit.lost()),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        Ok(())
    }
}
