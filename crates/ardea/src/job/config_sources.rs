//! The settings that job programs read, and the files that contain them.

use std::path::Path;

use ardea_config::{ConfigFile, Flag, Resolved, Resolver, Schema};
use ardea_coordination::control::WORKER_START_VARIABLE;
use ardea_coordination::elasticity::ELASTICITY_SETTINGS;
use ardea_coordination::optimizer::OPTIMIZER_SETTINGS;
use ardea_coordination::placement::PLACEMENT_SETTINGS;
use ardea_core::Result;
use ardea_engine::NodeConfig;
use ardea_rest::{ClusterSettings, with_clusters};
use ardea_worker::WORKER_SETTINGS;

use crate::console::config_sources;

/// Returns the schema of all settings of programs that run and submit jobs: node, fault tolerance,
/// dead letters, workers, elasticity, placement, optimizer, metrics, and clusters.
pub fn schema() -> Schema {
    let of_jobs = config_sources::settings_of_run().and(WORKER_SETTINGS);
    let adaptation = of_jobs.and(ELASTICITY_SETTINGS).and(PLACEMENT_SETTINGS);
    with_clusters(adaptation.and(OPTIMIZER_SETTINGS))
}

/// Returns a resolver of all settings over the environment and the configuration files: the named
/// file, or else `ardea.toml` in the user's configuration folder and then in the current folder.
///
/// # Errors
/// [`ErrorCode::ReadFailed`](ardea_core::ErrorCode::ReadFailed) if a file can't be read.
pub fn resolver<'a>(schema: &'a Schema, config: Option<&Path>) -> Result<Resolver<'a>> {
    resolver_over(schema, None, config)
}

/// Like [`resolver`], with a base file that all other sources override.
fn resolver_over<'a>(
    schema: &'a Schema,
    base: Option<ConfigFile>,
    config: Option<&Path>,
) -> Result<Resolver<'a>> {
    let resolver = config_sources::resolver_over(schema, base, config)?;
    Ok(resolver.other_variables([WORKER_START_VARIABLE]))
}

/// Resolves all settings with `flags`. Returns them, and the node and cluster configurations in
/// them.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an invalid setting, with
/// the place where it is set.
pub fn read_settings(
    config: Option<&Path>,
    flags: &[Flag],
) -> Result<(Resolved, NodeConfig, ClusterSettings)> {
    read_settings_over(None, config, flags)
}

/// Like [`read_settings`], with a base file that all other sources override, such as the settings
/// of a running job.
///
/// # Errors
/// As [`read_settings`].
pub fn read_settings_over(
    base: Option<ConfigFile>,
    config: Option<&Path>,
    flags: &[Flag],
) -> Result<(Resolved, NodeConfig, ClusterSettings)> {
    let schema = schema();
    let resolver = resolver_over(&schema, base, config)?;
    let resolved = resolver.flags(flags.iter().cloned()).resolve()?;
    let node = NodeConfig::from_settings(&resolved)?;
    let of_user = config_sources::user_folder("XDG_STATE_HOME", ".local/state");
    let cluster = ClusterSettings::from_settings(&resolved, of_user.as_deref())?;
    Ok((resolved, node, cluster))
}
