//! Which settings a program reads, and where they are.

use std::env;
use std::path::{Path, PathBuf};

use ardea_checkpoint::local::SURVIVAL_SETTINGS;
use ardea_config::{ConfigFile, Flag, Resolved, Resolver, Schema};
use ardea_connectors::dead_letters::DEAD_LETTER_SETTINGS;
use ardea_coordination::control::WORKER_START_VARIABLE;
use ardea_core::Result;
use ardea_engine::{NODE_SETTINGS, NodeConfig};
use ardea_metrics::METRICS_SETTINGS;
use ardea_rest::{ClusterSettings, with_clusters};
use ardea_worker::WORKER_SETTINGS;

/// All settings of programs that run and submit jobs: of the node, of what survives, of dead
/// letters, of workers and their metrics, and of clusters.
pub fn schema() -> Schema {
    let of_processes = Schema::of(NODE_SETTINGS)
        .and(SURVIVAL_SETTINGS)
        .and(DEAD_LETTER_SETTINGS)
        .and(METRICS_SETTINGS);
    with_clusters(of_processes.and(WORKER_SETTINGS))
}

/// A resolver of all settings, with what the environment says, and the files: the one that is named, or else `ardea.toml` in the user's
/// folder of configuration and then that in the folder of the process.
///
/// # Errors
/// [`ErrorCode::ReadFailed`](ardea_core::ErrorCode::ReadFailed) if a file can't be read.
pub fn resolver<'a>(schema: &'a Schema, config: Option<&Path>) -> Result<Resolver<'a>> {
    resolver_over(schema, None, config)
}

/// The same over a file that counts after all others.
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

/// All settings as they are, with these flags; those of the node; and the cluster that they describe.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for a wrong setting, with its place.
pub fn read_settings(
    config: Option<&Path>,
    flags: &[Flag],
) -> Result<(Resolved, NodeConfig, ClusterSettings)> {
    read_settings_over(None, config, flags)
}

/// The same over a file that counts after all others, as the settings of a running job do.
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

/// Ardea's folder in the one that this variable names, or else in this folder of the user's own.
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
