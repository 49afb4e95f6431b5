//! A registry of the kinds of schedulers by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::MetadataStore;
use ardea_network::rpc::Security;

use crate::{ContainerEvents, Hosts, JobScheduler, LaunchPlan, Local, Runner, SchedulerKind};

/// The name of the scheduler that starts all containers of a job on the leader's machine.
pub const LOCAL: &str = "local";

/// The name of the scheduler that distributes containers over the hosts of a cluster.
pub const HOSTS: &str = "hosts";

/// The kinds of schedulers by name. The setting `scheduler`, such as `scheduler=slurm`, selects a
/// job's kind, so jobs of one cluster may use different kinds.
#[derive(Clone)]
pub struct Schedulers {
    kinds: BTreeMap<String, Arc<dyn SchedulerKind>>,
    /// The factories of kinds that delegate to `local`. They are called once `local` is known.
    over_local: BTreeMap<String, Arc<OverLocal>>,
}

/// A factory of a kind that delegates to `local`.
type OverLocal = dyn Fn(Local) -> Arc<dyn SchedulerKind> + Send + Sync;

impl Schedulers {
    /// Returns the kinds without external dependencies: `local`, with this runner, and `hosts`,
    /// with the hosts registered in this metadata store. [`Slurm`](crate::Slurm) must be added
    /// where it is available.
    pub fn builtin(runner: Runner, state: Arc<dyn MetadataStore>, security: Security) -> Self {
        Schedulers::none()
            .with_local(Local::new(runner))
            .with(HOSTS, Hosts::new(state, security))
    }

    /// Creates an empty registry.
    pub fn none() -> Self {
        Schedulers {
            kinds: BTreeMap::new(),
            over_local: BTreeMap::new(),
        }
    }

    /// Adds a kind, or replaces the kind of this name.
    pub fn with(mut self, name: impl Into<String>, kind: impl SchedulerKind + 'static) -> Self {
        self.kinds.insert(name.into(), Arc::new(kind));
        self
    }

    /// Adds a kind that delegates to `local`. Since `local` is known only where containers are
    /// started, the kind becomes available with [`with_local`](Self::with_local).
    pub fn over_local<K: SchedulerKind + 'static>(
        mut self,
        name: impl Into<String>,
        make: impl Fn(Local) -> K + Send + Sync + 'static,
    ) -> Self {
        let make = move |local| Arc::new(make(local)) as Arc<dyn SchedulerKind>;
        self.over_local.insert(name.into(), Arc::new(make));
        self
    }

    /// Adds `local`, and creates all kinds that delegate to it.
    pub fn with_local(mut self, local: Local) -> Self {
        for (name, make) in std::mem::take(&mut self.over_local) {
            self.kinds.insert(name, make(local.clone()));
        }
        self.with(LOCAL, local)
    }

    /// Returns the kind of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidConfig`], with the available names, if there is no kind of this name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn SchedulerKind>> {
        let kind = self.kinds.get(name).map(Arc::clone);
        kind.ok_or_else(|| no_such_scheduler(name, self.names()))
    }

    /// Creates the scheduler of a job, of the kind named in its definition.
    ///
    /// # Errors
    ///
    /// If there is no such kind, and the errors of [`SchedulerKind::initialize`].
    pub async fn start(&self, launch: LaunchPlan) -> Result<(JobScheduler, ContainerEvents)> {
        let kind = self.get(&launch.definition.scheduler)?;
        let (scheduler, events) = kind.initialize(launch).await?;
        Ok((JobScheduler::new(kind.traits(), scheduler), events))
    }

    /// Returns the names of the available kinds, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }

    /// Returns the names of the kinds that are available where containers are started, including
    /// those that delegate to `local`.
    pub fn names_with_local(&self) -> impl Iterator<Item = &str> {
        self.names()
            .chain(self.over_local.keys().map(String::as_str))
    }
}

/// Creates the error for an unknown scheduler, listing the available names.
pub fn no_such_scheduler<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Error {
    let what = format!("there is no scheduler {name:?}");
    let names: Vec<&str> = names.collect();
    Error::new(ErrorCode::InvalidConfig, what).hint(format!("choose one of: {}", names.join(", ")))
}

impl fmt::Debug for Schedulers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
