//! Association of sandboxes with traces.
//!
//! A program's use of a grant arrives at a socket that knows its sandbox, but no request. So the
//! code that works with a sandbox registers its trace here meanwhile: an execution, a turn of an
//! agent, a command in a session. If there are several, the latest counts: a socket
//! does not say which program has opened it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{TraceContext, Tracer};

/// Traces by the sandboxes within them. Their number is at most that of requests that use
/// sandboxes, which services bound.
#[derive(Debug, Default)]
pub(super) struct HolderTraces(Mutex<HashMap<Arc<str>, Vec<TraceContext>>>);

impl HolderTraces {
    pub(super) fn latest(&self, holder: &str) -> Option<TraceContext> {
        self.0.lock().get(holder)?.last().cloned()
    }
}

/// Makes a sandbox a part of a trace until this value is dropped.
#[derive(Debug)]
pub struct HolderTrace {
    tracer: Tracer,
    holder: Arc<str>,
    context: TraceContext,
}

impl HolderTrace {
    pub(super) fn new(tracer: &Tracer, holder: &str, context: TraceContext) -> HolderTrace {
        let holder: Arc<str> = holder.into();
        let mut holders = tracer.0.holders.0.lock();
        holders.entry(Arc::clone(&holder)).or_default().push(context.clone());
        drop(holders);
        HolderTrace { tracer: tracer.clone(), holder, context }
    }
}

impl Drop for HolderTrace {
    fn drop(&mut self) {
        let mut holders = self.tracer.0.holders.0.lock();
        let Some(traces) = holders.get_mut(&self.holder) else { return };
        // Spans have unique ids, so this is the one that was added.
        if let Some(place) = traces.iter().rposition(|it| it.span_id == self.context.span_id) {
            traces.remove(place);
        }
        if traces.is_empty() {
            holders.remove(&self.holder);
        }
    }
}
