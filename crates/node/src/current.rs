//! Settings that a reload replaces while the server runs.

use std::sync::Arc;

use parking_lot::RwLock;

/// Settings in force. Cheap to clone; clones share what holds.
///
/// Whoever uses several of them together takes one snapshot, so that it does not see some from
/// before a reload and some from after it.
#[derive(Debug)]
pub struct CurrentSettings<T>(Arc<RwLock<Arc<T>>>);

impl<T> Clone for CurrentSettings<T> {
    fn clone(&self) -> CurrentSettings<T> {
        CurrentSettings(Arc::clone(&self.0))
    }
}

impl<T> CurrentSettings<T> {
    /// Settings that hold until they are replaced.
    pub fn new(settings: T) -> CurrentSettings<T> {
        CurrentSettings(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// Returns a snapshot of what holds now.
    #[must_use]
    pub fn now(&self) -> Arc<T> {
        Arc::clone(&self.0.read())
    }

    /// Replaces them, for work that begins from now on.
    pub fn replace(&self, settings: T) {
        *self.0.write() = Arc::new(settings);
    }
}

impl<T> From<T> for CurrentSettings<T> {
    fn from(settings: T) -> CurrentSettings<T> {
        CurrentSettings::new(settings)
    }
}
