//! Folders, attachments and archives in the object store.

use bytes::Bytes;
use node::objects::{ObjectStore, ObjectsError};

use crate::error::SessionError;

/// Objects that belong to agents, sessions and templates. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionObjects(ObjectStore);

impl SessionObjects {
    pub(super) fn new(store: ObjectStore) -> SessionObjects {
        SessionObjects(store)
    }

    /// Stores an object.
    ///
    /// # Errors
    /// If the object store cannot be reached.
    pub(super) async fn put(&self, key: &str, content: Bytes) -> Result<(), SessionError> {
        self.0.put(key, content).await.map_err(unavailable)
    }

    /// Returns an object; none if it does not exist.
    ///
    /// # Errors
    /// If the object store cannot be reached.
    pub(super) async fn get(&self, key: &str) -> Result<Option<Bytes>, SessionError> {
        self.0.get(key).await.map_err(unavailable)
    }

    /// Removes an unneeded object. If that fails, the object stays.
    pub(super) async fn remove(&self, key: &str) {
        if let Err(error) = self.0.delete(key).await {
            tracing::warn!(
                key,
                error = &error as &dyn std::error::Error,
                "failed to remove an unneeded object"
            );
        }
    }
}

fn unavailable(error: ObjectsError) -> SessionError {
    SessionError::Unavailable(Box::new(error))
}
