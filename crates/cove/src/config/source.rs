//! Configuration together with its source.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ConfigLayers, CoveConfig, CoveConfigError, Environment, Flags, LoadedConfig};

/// Configuration, and everything needed to reload it while the process runs.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSource {
    pub(crate) config: CoveConfig,
    pub(crate) environment: Environment,
    /// Layers from which `config` was made.
    pub(crate) layers: ConfigLayers,
    /// Configuration that the bouncer reloaded last by itself.
    pub(crate) bouncer_read: Arc<Mutex<Option<LoadedConfig>>>,
    file: Option<PathBuf>,
    flags: Flags,
}

impl ConfigSource {
    /// Reads a configuration for the first time.
    ///
    /// # Errors
    /// If the file cannot be read, or a value is invalid.
    pub(crate) fn read(
        file: Option<PathBuf>,
        environment: &Environment,
        flags: Flags,
    ) -> Result<ConfigSource, CoveConfigError> {
        let loaded = LoadedConfig::read(file.as_deref(), environment, flags.clone())?;
        Ok(ConfigSource {
            config: loaded.config,
            environment: environment.clone(),
            layers: loaded.layers,
            bouncer_read: Arc::default(),
            file,
            flags,
        })
    }

    /// Reads the configuration again.
    pub(crate) fn reload(&self) -> Result<LoadedConfig, CoveConfigError> {
        LoadedConfig::read(self.file.as_deref(), &self.environment, self.flags.clone())
    }

    /// Reloads the configuration for the bouncer, and keeps it for views of the configuration in
    /// force.
    pub(crate) fn reload_for_bouncer(
        &self,
    ) -> Result<::bouncer::config::BouncerConfig, CoveConfigError> {
        let loaded = self.reload()?;
        let config = loaded.config.bouncer.clone();
        *self.bouncer_read.lock() = Some(loaded);
        Ok(config)
    }
}
