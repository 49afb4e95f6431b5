//! The parts of a cluster that a site may want to choose, by name.

use ardea_metrics::MetricsSinks;
use ardea_packing::{ResourceManager, ResourceManagers};
use ardea_scheduler::{SchedulerKind, Schedulers};
use ardea_worker::Transports;

/// Packing policies, schedulers, metrics sinks and transports by name: those that come with Ardea, and a program's own.
///
/// A program that has some passes them to [`main_with`](crate::main_with): its hosts and its containers know them then.
#[derive(Clone, Debug)]
pub struct Modules {
    pub(crate) managers: ResourceManagers,
    pub(crate) schedulers: Schedulers,
    pub(crate) sinks: MetricsSinks,
    pub(crate) transports: Transports,
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
}
