//! Validation of text settings before anything is stored or started: names must exist, values must
//! parse.
//!
//! The types of settings are checked where they are read. This module checks text settings whose
//! valid values other modules define, and reports where an invalid one is set. Addresses, ports and
//! files are not checked: only the machine that uses them can.

use ardea_config::Resolved;
use ardea_coordination::elasticity::ElasticityConfig;
use ardea_coordination::placement::PlacementConfig;
use ardea_core::{Error, Result};
use ardea_metastore::StateUrl;
use ardea_rest::{Client, ClusterSettings};
use ardea_scheduler::{SLURM_OPTIONS, slurm_options};

use crate::cluster::{Modules, store_options};
use crate::console::{OTLP, SINKS, checked, dead_letters, refused};

const PACKING: &str = "cluster.packing";
const SCHEDULER: &str = "cluster.scheduler";
const TRANSPORT: &str = "worker.transport";
const ELASTICITY: &str = "elasticity.policy";

/// Checks all settings of a submission: access to the cluster, packing, and worker processes. The
/// scheduler's name is not checked: only hosts know it.
///
/// # Errors
/// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for the first invalid setting, with the
/// place where it is set and the valid values.
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

/// Checks the syntax of all text settings, even unused ones, but not whether the named modules
/// exist.
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
    // Only known sinks can check their arguments.
    checked(resolved, SINKS, |list| {
        match modules.sinks.check_names(list) {
            Ok(()) => modules.sinks.check(list),
            Err(_) => Ok(()),
        }
    })?;
    dead_letters::check(resolved)?;
    // The schema of a benchmark lacks these settings.
    if resolved.value(ELASTICITY).is_some() {
        ElasticityConfig::from_settings(resolved)?;
        PlacementConfig::from_settings(resolved)?;
    }
    ardea_worker::check_settings(resolved)
}

/// Returns the settings that name something unknown to `modules`, each with its error. Checks the
/// packing policy, transport and metrics sinks, which containers take from this program, and the
/// scheduler and elasticity policy, which hosts with `modules` have.
pub fn unknown_names(resolved: &Resolved, modules: &Modules) -> Vec<(&'static str, Error)> {
    type Check<'a> = &'a dyn Fn(&str) -> Result<()>;
    let checks: [(&'static str, Check<'_>); 6] = [
        (PACKING, &|name| modules.managers.get(name).map(drop)),
        (ELASTICITY, &|name| modules.elasticity.check_name(name)),
        (TRANSPORT, &|name| modules.transports.check(name)),
        (SINKS, &|list| modules.sinks.check_names(list)),
        (OTLP, &|url| modules.sinks.check_otlp(url)),
        (SCHEDULER, &|name| modules.check_scheduler(name)),
    ];
    let unknown = checks.into_iter().filter_map(|(key, check)| {
        let error = checked(resolved, key, check).err()?;
        Some((key, error))
    });
    unknown.collect()
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
                "elasticity.policy=foo",
                "choose one of: none, hosts, utilization",
            ),
            ("elasticity.low_percent=80", "set the target above the low"),
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
            ("worker.transport=udp", "choose one of: auto, shm, tcp, uds"),
        ] {
            let error = check(wrong).unwrap_err();
            let (key, value) = wrong.split_once('=').unwrap();
            let begins = format!("{key} cannot be {value:?} (from --set)");
            assert!(error.message().starts_with(&begins), "{error}");
            assert!(error.hint_text().unwrap().contains(hint), "{error}");
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
