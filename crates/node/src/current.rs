//! Settings that a reload replaces while the server runs.

use std::sync::Arc;

use parking_lot::RwLock;

/// Settings in force. Cheap to clone; clones share them.
///
/// A reader of several settings takes one snapshot, so that it does not mix settings from before
/// and after a reload.
#[derive(Debug)]
pub struct CurrentSettings<T>(Arc<RwLock<Arc<T>>>);

impl<T> Clone for CurrentSettings<T> {
    fn clone(&self) -> CurrentSettings<T> {
        CurrentSettings(Arc::clone(&self.0))
    }
}

impl<T> CurrentSettings<T> {
    /// Creates settings that are in force until they are replaced.
    pub fn new(settings: T) -> CurrentSettings<T> {
        CurrentSettings(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// Returns a snapshot of the settings in force.
    #[must_use]
    pub fn now(&self) -> Arc<T> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the settings, for work that begins from now on.
    pub fn replace(&self, settings: T) {
        *self.0.write() = Arc::new(settings);
    }
}

impl<T> From<T> for CurrentSettings<T> {
    fn from(settings: T) -> CurrentSettings<T> {
        CurrentSettings::new(settings)
    }
}
