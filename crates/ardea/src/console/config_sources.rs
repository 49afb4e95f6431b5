//! The settings of a run in this process, and the files that contain them.

use std::env;
use std::path::{Path, PathBuf};

use ardea_checkpoint::local::FAULT_TOLERANCE_SETTINGS;
use ardea_config::{ConfigFile, Resolver, Schema};
use ardea_connectors::dead_letters::DEAD_LETTER_SETTINGS;
use ardea_core::Result;
use ardea_engine::NODE_SETTINGS;
use ardea_metrics::METRICS_SETTINGS;

/// The tables of the settings of clusters, which share their files with runs in one process.
const CLUSTER_TABLES: [&str; 10] = [
    "cluster",
    "clusters",
    "container",
    "elasticity",
    "instance",
    "job",
    "optimizer",
    "placement",
    "slurm",
    "worker",
];

/// Returns the schema of a run in this process: node, fault tolerance, dead letters and metrics.
/// The tables of clusters are ignored.
pub fn run_schema() -> Schema {
    settings_of_run().with_other_tables(CLUSTER_TABLES)
}

/// Returns the settings of a run in this process, without the tables of clusters.
pub(crate) fn settings_of_run() -> Schema {
    let schema = Schema::of(NODE_SETTINGS)
        .and(FAULT_TOLERANCE_SETTINGS)
        .and(DEAD_LETTER_SETTINGS)
        .and(METRICS_SETTINGS);
    #[cfg(feature = "cluster")]
    let schema = schema.and(super::page::PAGE_SETTINGS);
    schema
}

/// Returns a resolver over the environment and the configuration files: the named file, or else
/// `ardea.toml` in the user's configuration folder and then in the current folder.
///
/// # Errors
/// [`ErrorCode::ReadFailed`](ardea_core::ErrorCode::ReadFailed) if a file can't be read.
pub fn run_resolver<'a>(schema: &'a Schema, config: Option<&Path>) -> Result<Resolver<'a>> {
    resolver_over(schema, None, config)
}

/// Like [`run_resolver`], with a base file that all other sources override.
pub(crate) fn resolver_over<'a>(
    schema: &'a Schema,
    base: Option<ConfigFile>,
    config: Option<&Path>,
) -> Result<Resolver<'a>> {
    let of_user = user_folder("XDG_CONFIG_HOME", ".config");
    let files = ConfigFile::find_all(config, Path::new("."), of_user.as_deref())?;
    Ok(Resolver::new(schema)
        .file(base)
        .file(files)
        .environment(env::vars_os()))
}

/// Returns Ardea's folder in the folder that the environment variable `variable` names, or else in
/// the folder `in_home` of the home directory.
pub(crate) fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_clusters_are_ignored_in_files_and_refused_as_options() {
        let schema = run_schema();
        let resolver = || {
            let file = "threads = 2\ncluster.name = \"prod\"\n[clusters.prod]\nstate = \"auto\"\n";
            Resolver::new(&schema)
                .file([ConfigFile::new("ardea.toml", file)])
                .environment([("ARDEA_JOB_CONTAINERS", "3")])
        };
        let resolved = resolver().resolve().unwrap();
        assert_eq!(resolved.count_or_auto("threads").unwrap(), Some(2));
        let error = resolver().flags(["job.containers=3"]).resolve();
        assert!(error.is_err());
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn the_ignored_tables_are_those_of_clusters() {
        let run = settings_of_run();
        let all = crate::job::schema();
        for setting in all.settings() {
            let table = setting.key.split('.').next().unwrap();
            let is_of_run = run.find(setting.key).is_some();
            assert_ne!(
                CLUSTER_TABLES.contains(&table),
                is_of_run,
                "{}",
                setting.key
            );
        }
    }
}
