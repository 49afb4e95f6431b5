//! The replaceable parts of a cluster, selected by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_coordination::elasticity::{ElasticityConfig, ElasticityPolicies, ElasticityPolicy};
use ardea_coordination::optimizer::{OptimizerConfig, OptimizerRule, OptimizerRules};
use ardea_coordination::packing::{PackingPolicies, PackingPolicy};
use ardea_core::Result;
use ardea_metrics::{MetricsSink, MetricsSinks, SinkSetup};
use ardea_network::exchange::Transport;
use ardea_rest::ClusterSettings;
use ardea_scheduler::artifacts::{PackageStore, PackageStores, StoreOptions};
use ardea_scheduler::{HOSTS, LOCAL, Local, SchedulerKind, Schedulers, no_such_scheduler};
use ardea_worker::{TransportSetup, Transports};

use super::slurm::slurm;

/// The name of the scheduler for Slurm.
const SLURM: &str = "slurm";

/// The packing and elasticity policies, schedulers, metrics sinks and transports by name, and
/// package stores by URL scheme: built-in ones and a program's own.
///
/// A program with its own modules passes them to [`main_with`](crate::main_with), which makes them
/// available to its hosts and containers.
#[derive(Clone, Debug)]
pub struct Modules {
    pub(crate) managers: PackingPolicies,
    pub(crate) elasticity: ElasticityPolicies,
    pub(crate) optimizer: OptimizerRules,
    pub(crate) schedulers: Schedulers,
    pub(crate) sinks: MetricsSinks,
    pub(crate) transports: Transports,
    pub(crate) stores: PackageStores,
    /// True if the program has the commands of `ardea`, with which hosts run sent programs.
    pub(crate) has_commands: bool,
}

impl Default for Modules {
    fn default() -> Self {
        Modules::builtin()
    }
}

impl Modules {
    /// Returns the built-in modules.
    pub fn builtin() -> Self {
        Modules {
            managers: PackingPolicies::builtin(),
            elasticity: ElasticityPolicies::builtin(),
            optimizer: OptimizerRules::builtin(),
            schedulers: Schedulers::none(),
            sinks: MetricsSinks::builtin(),
            transports: Transports::builtin(),
            stores: PackageStores::builtin(),
            has_commands: false,
        }
    }

    /// Lets hosts of this program run the job programs that clients send to them. The program must
    /// have the commands `submit`, `upgrade` and `diff` of `ardea`.
    pub fn with_commands(self) -> Self {
        Modules {
            has_commands: true,
            ..self
        }
    }

    /// Adds the packing policy that `cluster.packing` selects by `name`; replaces one of the same
    /// name.
    pub fn packing(mut self, name: &str, policy: impl PackingPolicy + 'static) -> Self {
        self.managers = self.managers.with(name, policy);
        self
    }

    /// Adds the elasticity policy that the setting `elasticity.policy` of a job selects by `name`;
    /// replaces one of the same name. `make` is called at the leader of each such job.
    pub fn elasticity(
        mut self,
        name: &str,
        make: impl Fn(&ElasticityConfig) -> Box<dyn ElasticityPolicy> + Send + Sync + 'static,
    ) -> Self {
        self.elasticity = self.elasticity.with(name, make);
        self
    }

    /// Adds a rule to the optimizer; replaces one of the same name. `make` is called at the leader
    /// of each job.
    pub fn optimizer_rule(
        mut self,
        name: &str,
        make: impl Fn(&OptimizerConfig) -> Box<dyn OptimizerRule> + Send + Sync + 'static,
    ) -> Self {
        self.optimizer = self.optimizer.with(name, make);
        self
    }

    /// Adds the scheduler that `cluster.scheduler` selects by `name`; replaces one of the same
    /// name.
    pub fn scheduler(mut self, name: &str, kind: impl SchedulerKind + 'static) -> Self {
        self.schedulers = self.schedulers.with(name, kind);
        self
    }

    /// Adds a scheduler that delegates its work to the `local` scheduler of its host.
    /// `cluster.scheduler` selects it by `name`.
    pub fn scheduler_over_local<K: SchedulerKind + 'static>(
        mut self,
        name: &str,
        make: impl Fn(Local) -> K + Send + Sync + 'static,
    ) -> Self {
        self.schedulers = self.schedulers.over_local(name, make);
        self
    }

    /// Checks whether hosts of this program have a scheduler of this name.
    pub(crate) fn check_scheduler(&self, name: &str) -> Result<()> {
        let own = self.schedulers.names_with_local();
        let names: BTreeSet<&str> = own.chain([HOSTS, LOCAL, SLURM]).collect();
        match names.contains(name) {
            true => Ok(()),
            false => Err(no_such_scheduler(name, names.into_iter())),
        }
    }

    /// Returns the program's schedulers, with the cluster's `slurm` unless the program has its own.
    /// Hosts add `local` and `hosts` themselves.
    pub(super) fn schedulers_of(
        &self,
        cluster: &ClusterSettings,
        options: &StoreOptions,
    ) -> Schedulers {
        let own = self.schedulers.clone();
        let has_one = own.names().any(|name| name == SLURM);
        match has_one {
            true => own,
            false => own.with(SLURM, slurm(cluster, &self.stores, options)),
        }
    }

    /// Adds the kind of package stores for `cluster.packages=SCHEME:…`; replaces one of the same
    /// scheme. `make` gets the whole URL. It is called where a job is submitted, and on each host.
    pub fn package_store(
        mut self,
        scheme: &str,
        make: impl Fn(&str, &StoreOptions) -> Result<Arc<dyn PackageStore>> + Send + Sync + 'static,
    ) -> Self {
        self.stores = self.stores.with(scheme, make);
        self
    }

    /// Adds the metrics sink that `metrics.sinks` selects by `name`; replaces one of the same name.
    /// `make` is called in each container.
    pub fn sink(
        mut self,
        name: &str,
        make: impl Fn(&SinkSetup) -> Result<Box<dyn MetricsSink>> + Send + Sync + 'static,
    ) -> Self {
        self.sinks = self.sinks.with(name, make);
        self
    }

    /// Adds the transport that `worker.transport` selects by `name`; replaces one of the same name.
    /// `make` is called in each container.
    pub fn transport(
        mut self,
        name: &str,
        make: impl Fn(&TransportSetup) -> Result<Box<dyn Transport>> + Send + Sync + 'static,
    ) -> Self {
        self.transports = self.transports.with(name, make);
        self
    }
}
