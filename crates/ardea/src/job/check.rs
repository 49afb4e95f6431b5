//! Whether settings can be meant, as far as that shows here: what is a name has to name something, what has a form has to be of it.
//!
//! Kinds of settings are checked where they are read. What is left are texts, of which the rooms know what they may be; asked before
//! anything is stored or started, they tell where a wrong one was written. Whether an address is there, a port free, a file to be
//! read is known only to the machine that uses it.

use ardea_config::Resolved;
use ardea_core::{Error, Result};
use ardea_metastore::StateUrl;
use ardea_rest::{Client, ClusterSettings};
use ardea_scheduler::{SLURM_OPTIONS, slurm_options};

use super::dead_letters;
use crate::cluster::{Modules, store_options};

const PACKING: &str = "cluster.packing";
const SCHEDULER: &str = "cluster.scheduler";
const SINKS: &str = "metrics.sinks";
const TRANSPORT: &str = "worker.transport";

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
    let mut unknown = unknown_names(resolved, modules).into_iter();
    match unknown.find(|(key, _)| *key != SCHEDULER) {
        Some((_, error)) => Err(error),
        None => check_forms(resolved, cluster, modules),
    }
}

/// Checks all settings but for whether there is what they name: each text is of its form, whether it is used or not.
///
/// # Errors
/// As [`check_settings`].
pub fn check_forms(
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
    if let Some(api) = &cluster.api {
        Client::new(api, None).map_err(in_setting("cluster.api"))?;
    }
    slurm_options(resolved.text(SLURM_OPTIONS)?)
        .map_err(|why| resolved.refuse(SLURM_OPTIONS, why))?;
    // What an argument has to be is known to sinks that there are.
    checked(resolved, SINKS, |list| {
        match modules.sinks.check_names(list) {
            Ok(()) => modules.sinks.check(list),
            Err(_) => Ok(()),
        }
    })?;
    dead_letters::check(resolved)?;
    ardea_worker::check_settings(resolved)
}

/// Checks the settings of a run in this process that are texts: metrics sinks and the place of dead
/// letters.
///
/// # Errors
/// As [`check_settings`].
pub(crate) fn check_here(resolved: &Resolved, modules: &Modules) -> Result<()> {
    checked(resolved, SINKS, |list| {
        modules.sinks.check_names(list)?;
        modules.sinks.check(list)
    })?;
    dead_letters::check(resolved)
}

/// The settings that name what these modules have not, each with the error that says so: a packing policy, a transport or metrics sinks,
/// which containers get from this same program, or a scheduler, which hosts that are started with these modules have.
pub fn unknown_names(resolved: &Resolved, modules: &Modules) -> Vec<(&'static str, Error)> {
    type Check<'a> = &'a dyn Fn(&str) -> Result<()>;
    let checks: [(&'static str, Check<'_>); 4] = [
        (PACKING, &|name| modules.managers.get(name).map(drop)),
        (TRANSPORT, &|name| modules.transports.check(name)),
        (SINKS, &|list| modules.sinks.check_names(list)),
        (SCHEDULER, &|name| modules.check_scheduler(name)),
    ];
    let unknown = checks.into_iter().filter_map(|(key, check)| {
        let error = checked(resolved, key, check).err()?;
        Some((key, error))
    });
    unknown.collect()
}

/// What `check` says of a setting. A schema without it, as of a benchmark, gives the job its default.
fn checked(resolved: &Resolved, key: &str, check: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    if resolved.value(key).is_none() {
        return Ok(());
    }
    check(resolved.text(key)?).map_err(|error| refused(resolved, key, &error))
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

    use ardea_config::Resolver;

    use super::*;
    use crate::job::schema;

    fn check(flag: &str) -> Result<()> {
        let schema = schema();
        let resolved = Resolver::new(&schema).flags([flag]).resolve()?;
        let cluster = ClusterSettings::from_settings(&resolved, Some(Path::new("/home/ada")))?;
        let modules = Modules::builtin();
        check_settings(&resolved, &cluster, &modules)?;
        match unknown_names(&resolved, &modules).pop() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
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
            ("dead_letters=kafka:x", "where dead letters go"),
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
            "worker.transport=tcp",
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
