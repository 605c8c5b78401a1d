//! Recently used layers of short-lived sandboxes. They stay attached for a while, because attaching
//! one takes milliseconds, about as long as an execution.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sandbox::AttachedLayer;

use super::LayerId;

/// Time for which a layer stays attached after its last use.
const KEPT: Duration = Duration::from_secs(60);
/// Maximum number of attached layers; each uses a loop device.
const COUNT_MAX: usize = 128;

/// Layers with the time of their last use.
#[derive(Debug, Default)]
pub(super) struct RecentLayers(Mutex<HashMap<LayerId, (Arc<AttachedLayer>, Instant)>>);

impl RecentLayers {
    /// Keeps layers as used now. Returns the evicted ones, which the caller must drop on a blocking
    /// thread.
    pub(super) fn keep(
        &self,
        used: &[(LayerId, Arc<AttachedLayer>)],
        now: Instant,
    ) -> Vec<Arc<AttachedLayer>> {
        let mut kept = self.0.lock();
        for (id, layer) in used {
            kept.insert(id.clone(), (Arc::clone(layer), now));
        }
        let mut gone = Vec::new();
        while kept.len() > COUNT_MAX {
            let oldest = kept.iter().min_by_key(|(_, (_, at))| *at).map(|(id, _)| id.clone());
            let Some((layer, _)) = oldest.and_then(|id| kept.remove(&id)) else { break };
            gone.push(layer);
        }
        gone
    }

    /// Removes and returns layers unused for long, likewise.
    pub(super) fn take_unused(&self, now: Instant) -> Vec<Arc<AttachedLayer>> {
        let is_unused = |at: Instant| now.saturating_duration_since(at) >= KEPT;
        let unused = self.0.lock().extract_if(|_, (_, at)| is_unused(*at)).collect::<Vec<_>>();
        unused.into_iter().map(|(_, (layer, _))| layer).collect()
    }

    /// Removes and returns one layer, likewise.
    pub(super) fn take(&self, id: &str) -> Option<Arc<AttachedLayer>> {
        self.0.lock().remove(id).map(|(layer, _)| layer)
    }
}
