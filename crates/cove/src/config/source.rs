//! A configuration together with where it came from.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ConfigLayers, CoveConfig, CoveConfigError, Environment, Flags, LoadedConfig};

/// A configuration, and all that it takes to read it again while the process runs.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSource {
    pub(crate) config: CoveConfig,
    pub(crate) environment: Environment,
    /// Layers that `config` was made of.
    pub(crate) layers: ConfigLayers,
    /// Configuration that the bouncer read last by itself.
    pub(crate) bouncer_read: Arc<Mutex<Option<LoadedConfig>>>,
    file: Option<PathBuf>,
    flags: Flags,
}

impl ConfigSource {
    /// Reads a configuration for the first time.
    ///
    /// # Errors
    /// When the file cannot be read, or a value is wrong.
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

    /// Reads the configuration again for the bouncer, and keeps it for views of what is in force.
    pub(crate) fn reload_for_bouncer(
        &self,
    ) -> Result<::bouncer::config::BouncerConfig, CoveConfigError> {
        let loaded = self.reload()?;
        let config = loaded.config.bouncer.clone();
        *self.bouncer_read.lock() = Some(loaded);
        Ok(config)
    }
}
