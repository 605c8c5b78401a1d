//! Recently used layers of short-lived sandboxes. Attaching one takes milliseconds, about as long
//! as an execution: so they stay attached for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sandbox::AttachedLayer;

use super::LayerId;

/// Time for which a layer stays attached after its last use.
const KEPT: Duration = Duration::from_secs(60);
/// Layers that stay attached; each takes a loop device.
const COUNT_MAX: usize = 128;

/// Layers with the time of their last use.
#[derive(Debug, Default)]
pub(super) struct RecentLayers(Mutex<HashMap<LayerId, (Arc<AttachedLayer>, Instant)>>);

impl RecentLayers {
    /// Keeps layers that are used now. Answers those that had to give way, to be dropped where the
    /// kernel may be waited for.
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

    /// Takes out those that nobody has used for long, likewise.
    pub(super) fn take_unused(&self, now: Instant) -> Vec<Arc<AttachedLayer>> {
        let is_unused = |at: Instant| now.saturating_duration_since(at) >= KEPT;
        let unused = self.0.lock().extract_if(|_, (_, at)| is_unused(*at)).collect::<Vec<_>>();
        unused.into_iter().map(|(_, (layer, _))| layer).collect()
    }

    /// Takes one out, likewise.
    pub(super) fn take(&self, id: &str) -> Option<Arc<AttachedLayer>> {
        self.0.lock().remove(id).map(|(layer, _)| layer)
    }
}
