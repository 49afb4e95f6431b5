//! Whether settings can be meant, as far as that shows here: what is a name has to name something, what has a form has to be of it.
//!
//! Kinds of settings are checked where they are read. What is left are texts, of which the rooms know what they may be; asked before
//! anything is stored or started, they tell where a wrong one was written. Whether an address is there, a port free, a file to be
//! read is known only to the machine that uses it.

use ardea_api::{Client, ClusterSettings};
use ardea_core::settings::Resolved;
use ardea_core::{Error, Result};
use ardea_scheduler::{SLURM_OPTIONS, slurm_options};
use ardea_state_manager::StateUrl;

use crate::cluster::{Modules, store_options};

/// Checks all settings that a job is submitted with: how its cluster is reached, how it is packed, and what its processes are told. The
/// scheduler is the hosts' to know.
///
/// # Errors
/// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for the first that is wrong, with where it was written and what to write instead.
pub fn check_settings(
    resolved: &Resolved,
    cluster: &ClusterSettings,
    modules: &Modules,
) -> Result<()> {
    let in_setting = |key: &'static str| move |error: Error| refused(resolved, key, &error);
    let state: Result<StateUrl> = cluster.state.parse();
    state.map_err(in_setting("cluster.state"))?;
    let store = modules
        .stores
        .open(&cluster.packages, &store_options(cluster, None));
    store.map_err(in_setting("cluster.packages"))?;
    if let Some(api) = resolved.text("cluster.api").ok().filter(|it| *it != "auto") {
        Client::new(api, None).map_err(in_setting("cluster.api"))?;
    }
    let policy = modules.managers.get(&cluster.packing);
    policy.map_err(in_setting("cluster.packing"))?;
    slurm_options(resolved.text(SLURM_OPTIONS)?)
        .map_err(|why| resolved.refuse(SLURM_OPTIONS, why))?;
    check_sinks(resolved, modules)?;
    ardea_worker::check_settings(resolved, &modules.transports)
}

/// Checks that hosts which are started with these settings and modules know the scheduler that is named.
///
/// # Errors
/// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) with the names that there are.
pub fn check_scheduler(resolved: &Resolved, modules: &Modules) -> Result<()> {
    const SCHEDULER: &str = "cluster.scheduler";
    modules
        .check_scheduler(resolved.text(SCHEDULER)?)
        .map_err(|error| refused(resolved, SCHEDULER, &error))
}

/// Metrics sinks that there are not would have the job's containers fail, which are of this same program. A schema without that setting,
/// as of a benchmark, gives its containers none.
fn check_sinks(resolved: &Resolved, modules: &Modules) -> Result<()> {
    const SINKS: &str = "metrics.sinks";
    if resolved.value(SINKS).is_none() {
        return Ok(());
    }
    let checked = modules.sinks.check(resolved.text(SINKS)?);
    checked.map_err(|error| refused(resolved, SINKS, &error))
}

/// What a room says of a setting, with the setting and where it was written.
fn refused(resolved: &Resolved, key: &str, why: &Error) -> Error {
    let error = resolved.refuse(key, why.message());
    match why.what_next() {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ardea_core::settings::Resolver;

    use super::*;
    use crate::job::schema;

    fn check(flag: &str) -> Result<()> {
        let schema = schema();
        let resolved = Resolver::new(&schema).flags([flag]).resolve()?;
        let cluster = ClusterSettings::from_settings(&resolved, Some(Path::new("/home/ada")))?;
        let modules = Modules::builtin();
        check_settings(&resolved, &cluster, &modules)?;
        check_scheduler(&resolved, &modules)
    }

    #[test]
    fn what_is_no_name_or_not_of_its_form_is_refused_with_its_place_and_a_way_out() {
        for (wrong, hint) in [
            ("cluster.name=a/b", "which cluster"),
            ("cluster.state=foo", "file:/DIRECTORY"),
            ("cluster.packages=foo", "file:///DIRECTORY"),
            ("cluster.api=foo", "http://HOST:PORT"),
            ("cluster.packing=foo", "choose one of: binpack"),
            (
                "cluster.scheduler=k8s",
                "choose one of: hosts, local, slurm",
            ),
            ("container.cpu=2x", "such as 2 or 0.5"),
            ("slurm.options=-p long", "--partition"),
            ("metrics.sinks=prom", "prometheus"),
            ("worker.ports=abc", "7400-7499"),
            ("worker.bind=a b", "the address"),
            ("worker.transport=udp", "choose one of: tcp"),
        ] {
            let error = check(wrong).unwrap_err();
            let (key, value) = wrong.split_once('=').unwrap();
            let begins = format!("{key} cannot be {value:?} (from --set)");
            assert!(error.message().starts_with(&begins), "{error}");
            assert!(error.what_next().unwrap().contains(hint), "{error}");
        }
        for right in [
            "cluster.state=etcd://10.0.0.7:2379/prod",
            "cluster.scheduler=hosts",
            "metrics.sinks=prometheus:127.0.0.1:9464+,json-lines:/tmp/metrics.jsonl",
        ] {
            check(right).unwrap();
        }
    }

    #[test]
    fn the_schedulers_of_a_program_are_known_to_it() {
        let modules = Modules::builtin().scheduler_over_local("mine", |local| local);
        assert!(modules.check_scheduler("mine").is_ok());
        assert!(Modules::builtin().check_scheduler("mine").is_err());
    }
}
