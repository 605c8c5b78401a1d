//! Metrics of the gateway.

use std::fmt;
use std::sync::Arc;

use node::fence::{EffectFence, EffectWay};
use node::telemetry::Registry;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::Semaphore;

use crate::audit::GatewayAudit;

/// Adds the figures of the gateway.
pub(crate) fn register(figures: GatewayFigures, registry: &mut Registry) {
    registry.register_collector(Box::new(figures));
}

/// Sources of the gateway's figures.
#[derive(Debug)]
pub(crate) struct GatewayFigures {
    pub(crate) audit: GatewayAudit,
    /// Permits, one for each connection that may be open, and how many there are in all.
    pub(crate) rooms: Arc<Semaphore>,
    pub(crate) most: usize,
    pub(crate) fence: EffectFence,
}

impl Collector for GatewayFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let open = self.most.saturating_sub(self.rooms.available_permits());
        let open = ConstGauge::new(i64::try_from(open).unwrap_or(i64::MAX));
        let help = "Connections of sandboxes that the gateway serves";
        let kind = open.metric_type();
        open.encode(encoder.encode_descriptor("cove_gateway_connections", help, None, kind)?)?;
        let most = ConstGauge::new(i64::try_from(self.most).unwrap_or(i64::MAX));
        let help = "Most connections that it serves at one time";
        most.encode(encoder.encode_descriptor(
            "cove_gateway_connections_max",
            help,
            None,
            kind,
        )?)?;
        let counters = [
            ("cove_gateway_audit_records", "Records that were written", self.audit.written()),
            ("cove_gateway_audit_lost", "Records that were only counted", self.audit.lost()),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        let help = "Requests, statements and pieces of them that were refused to sandboxes after \
            the server's lease";
        let kind = ConstCounter::new(0_u64).metric_type();
        let mut family = encoder.encode_descriptor("cove_gateway_fenced", help, None, kind)?;
        for way in EffectWay::ALL {
            let counter = ConstCounter::new(self.fence.refused(way));
            counter.encode(family.encode_family(&[("way", way.name())])?)?;
        }
        Ok(())
    }
}
