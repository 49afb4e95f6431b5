//! The settings that job programs read, and the files that contain them.

use std::env;
use std::path::{Path, PathBuf};

use ardea_checkpoint::local::FAULT_TOLERANCE_SETTINGS;
use ardea_config::{ConfigFile, Flag, Resolved, Resolver, Schema};
use ardea_connectors::dead_letters::DEAD_LETTER_SETTINGS;
use ardea_coordination::control::WORKER_START_VARIABLE;
use ardea_core::Result;
use ardea_engine::{NODE_SETTINGS, NodeConfig};
use ardea_metrics::METRICS_SETTINGS;
use ardea_rest::{ClusterSettings, with_clusters};
use ardea_worker::WORKER_SETTINGS;

/// Returns the schema of all settings of programs that run and submit jobs: node, fault tolerance,
/// dead letters, workers, metrics, and clusters.
pub fn schema() -> Schema {
    let of_processes = Schema::of(NODE_SETTINGS)
        .and(FAULT_TOLERANCE_SETTINGS)
        .and(DEAD_LETTER_SETTINGS)
        .and(METRICS_SETTINGS);
    with_clusters(of_processes.and(WORKER_SETTINGS))
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
    let of_user = folder("XDG_CONFIG_HOME", ".config");
    let files = ConfigFile::find_all(config, Path::new("."), of_user.as_deref())?;
    Ok(Resolver::new(schema)
        .file(base)
        .file(files)
        .environment(env::vars_os())
        .other_variables([WORKER_START_VARIABLE]))
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
    let of_user = folder("XDG_STATE_HOME", ".local/state");
    let cluster = ClusterSettings::from_settings(&resolved, of_user.as_deref())?;
    Ok((resolved, node, cluster))
}

/// Returns Ardea's folder in the folder that the environment variable `variable` names, or else in
/// the folder `in_home` of the home directory.
fn folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |path: std::ffi::OsString| {
        let path = PathBuf::from(path);
        path.is_absolute().then_some(path)
    };
    let named = env::var_os(variable).and_then(absolute);
    let base = named.or_else(|| {
        let home = env::var_os("HOME").and_then(absolute)?;
        Some(home.join(in_home))
    });
    base.map(|base| base.join("ardea"))
}
