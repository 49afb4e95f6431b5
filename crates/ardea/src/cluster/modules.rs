//! The parts of a cluster that a site may want to choose, by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_coordination::packing::{ResourceManager, ResourceManagers};
use ardea_core::Result;
use ardea_metrics::{MetricsSink, MetricsSinks, SinkSetup};
use ardea_network::exchange::Transport;
use ardea_rest::ClusterSettings;
use ardea_scheduler::artifacts::{PackageStore, PackageStores, StoreOptions};
use ardea_scheduler::{HOSTS, LOCAL, Local, SchedulerKind, Schedulers, no_such_scheduler};
use ardea_worker::{TransportSetup, Transports};

use super::slurm::slurm;

/// The name of the scheduler that needs a Slurm.
const SLURM: &str = "slurm";

/// Packing policies, schedulers, metrics sinks and transports by name, package stores by the schemes of their URLs: those that come with
/// Ardea, and a program's own.
///
/// A program that has some passes them to [`main_with`](crate::main_with): its hosts and its containers know them then.
#[derive(Clone, Debug)]
pub struct Modules {
    pub(crate) managers: ResourceManagers,
    pub(crate) schedulers: Schedulers,
    pub(crate) sinks: MetricsSinks,
    pub(crate) transports: Transports,
    pub(crate) stores: PackageStores,
}

impl Default for Modules {
    fn default() -> Self {
        Modules::builtin()
    }
}

impl Modules {
    /// Those that come with Ardea.
    pub fn builtin() -> Self {
        Modules {
            managers: ResourceManagers::builtin(),
            schedulers: Schedulers::none(),
            sinks: MetricsSinks::builtin(),
            transports: Transports::builtin(),
            stores: PackageStores::builtin(),
        }
    }

    /// Adds a packing policy, or replaces the one of this name: `cluster.packing`.
    pub fn packing(mut self, name: &str, policy: impl ResourceManager + 'static) -> Self {
        self.managers = self.managers.with(name, policy);
        self
    }

    /// Adds a scheduler, or replaces the one of this name: `cluster.scheduler`.
    pub fn scheduler(mut self, name: &str, kind: impl SchedulerKind + 'static) -> Self {
        self.schedulers = self.schedulers.with(name, kind);
        self
    }

    /// Adds a scheduler that leaves its work to `local` of the host that it is used on: `cluster.scheduler`.
    pub fn scheduler_over_local<K: SchedulerKind + 'static>(
        mut self,
        name: &str,
        make: impl Fn(Local) -> K + Send + Sync + 'static,
    ) -> Self {
        self.schedulers = self.schedulers.over_local(name, make);
        self
    }

    /// Whether hosts of this program have a scheduler of this name.
    pub(crate) fn check_scheduler(&self, name: &str) -> Result<()> {
        let own = self.schedulers.names_with_local();
        let names: BTreeSet<&str> = own.chain([HOSTS, LOCAL, SLURM]).collect();
        match names.contains(name) {
            true => Ok(()),
            false => Err(no_such_scheduler(name, names.into_iter())),
        }
    }

    /// Its schedulers, and `slurm` as that cluster has it unless a program brings its own; `local` and `hosts` are a host's own matter.
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

    /// Adds a kind of package stores, or replaces the one of this scheme: `cluster.packages=SCHEME:…`. It is given the whole URL, and made
    /// where a job is submitted and on each host.
    pub fn package_store(
        mut self,
        scheme: &str,
        make: impl Fn(&str, &StoreOptions) -> Result<Arc<dyn PackageStore>> + Send + Sync + 'static,
    ) -> Self {
        self.stores = self.stores.with(scheme, make);
        self
    }

    /// Adds a metrics sink, or replaces the one of this name: `metrics.sinks`. It is made in each container.
    pub fn sink(
        mut self,
        name: &str,
        make: impl Fn(&SinkSetup) -> Result<Box<dyn MetricsSink>> + Send + Sync + 'static,
    ) -> Self {
        self.sinks = self.sinks.with(name, make);
        self
    }

    /// Adds a transport, or replaces the one of this name: `worker.transport`. It is made in each container.
    pub fn transport(
        mut self,
        name: &str,
        make: impl Fn(&TransportSetup) -> Result<Box<dyn Transport>> + Send + Sync + 'static,
    ) -> Self {
        self.transports = self.transports.with(name, make);
        self
    }
}
