//! The context of a command for clusters: the modules of the program, and the settings of clusters.

use ardea_config::{ConfigFile, Flag, Resolved};
use ardea_core::Result;
use ardea_rest::ClusterSettings;

use super::{ClusterArgs, Context};
use crate::cluster::Modules;
use crate::job::read_settings_over;

impl Context {
    /// Replaces the built-in modules of this program.
    pub fn with_modules(self, modules: Modules) -> Self {
        Context { modules, ..self }
    }

    /// Resolves all settings from `--set`, the environment and the configuration file, for the
    /// cluster named `cluster` if given.
    ///
    /// # Errors
    /// `InvalidConfig` for an invalid setting, with the place where it is set.
    pub fn settings_of(&self, cluster: Option<&str>) -> Result<Resolved> {
        self.settings_with(cluster.map(cluster_flag))
    }

    /// Returns the settings of the cluster that the options `place` and the settings name.
    ///
    /// # Errors
    /// As [`settings_of`](Self::settings_of).
    pub fn cluster(&self, place: &ClusterArgs) -> Result<ClusterSettings> {
        Ok(self.of_cluster(place)?.1)
    }

    /// Returns all settings, and the settings of the cluster that the options `place` and the
    /// settings name.
    ///
    /// # Errors
    /// As [`settings_of`](Self::settings_of).
    pub fn of_cluster(&self, place: &ClusterArgs) -> Result<(Resolved, ClusterSettings)> {
        self.of_cluster_over(None, place)
    }

    /// Like [`of_cluster`](Self::of_cluster), with a base file that all other sources override.
    ///
    /// # Errors
    /// As [`settings_of`](Self::settings_of).
    pub fn of_cluster_over(
        &self,
        base: Option<ConfigFile>,
        place: &ClusterArgs,
    ) -> Result<(Resolved, ClusterSettings)> {
        let flags = self.flags(place.cluster.as_deref().map(cluster_flag));
        let config = self.global.config.as_deref();
        let (resolved, _, mut cluster) = read_settings_over(base, config, &flags)?;
        cluster.api = place.at.clone().or(cluster.api);
        Ok((resolved, cluster))
    }

    /// Returns `--set` and `--config` as options for another program.
    pub fn settings_options(&self) -> Vec<String> {
        let set = self.global.set.iter();
        let mut options: Vec<String> = set.map(|set| format!("--set={set}")).collect();
        let config = self.global.config.iter();
        options.extend(config.map(|path| format!("--config={}", path.display())));
        options
    }
}

/// Returns `--cluster` as a flag.
fn cluster_flag(name: &str) -> Flag {
    Flag::of_option("--cluster", format!("cluster.name={name}"))
}
