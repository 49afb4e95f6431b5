//! Schedulers by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::StateManager;
use ardea_network::rpc::Security;

use crate::{ContainerEvents, Hosts, JobScheduler, LaunchPlan, Local, Runner, SchedulerKind};

/// The name of the scheduler that starts all containers of a job on the machine that leads it.
pub const LOCAL: &str = "local";

/// The name of the one whose containers are on several machines, each of which keeps its own.
pub const HOSTS: &str = "hosts";

/// Kinds of schedulers by name: `scheduler=slurm` in a job's configuration chooses one, so that two jobs of one cluster may use
/// different ones.
#[derive(Clone)]
pub struct Schedulers {
    kinds: BTreeMap<String, Arc<dyn SchedulerKind>>,
    /// Those that are made when `local` is known.
    over_local: BTreeMap<String, Arc<OverLocal>>,
}

/// Makes a kind that leaves its work to `local`.
type OverLocal = dyn Fn(Local) -> Arc<dyn SchedulerKind> + Send + Sync;

impl Schedulers {
    /// Those that need nothing but Ardea itself: `local`, with this runner, and `hosts`, with the hosts that have registered
    /// in this state manager. [`Slurm`](crate::Slurm) has to be added where there is one.
    pub fn builtin(runner: Runner, state: Arc<dyn StateManager>, security: Security) -> Self {
        Schedulers::none()
            .with_local(Local::new(runner))
            .with(HOSTS, Hosts::new(state, security))
    }

    /// None so far.
    pub fn none() -> Self {
        Schedulers {
            kinds: BTreeMap::new(),
            over_local: BTreeMap::new(),
        }
    }

    /// Adds a kind, or replaces the one of this name.
    pub fn with(mut self, name: impl Into<String>, kind: impl SchedulerKind + 'static) -> Self {
        self.kinds.insert(name.into(), Arc::new(kind));
        self
    }

    /// Adds a kind that leaves its work to `local`, which is known only where containers are started: it is there once
    /// [`with_local`](Self::with_local) has been called.
    pub fn over_local<K: SchedulerKind + 'static>(
        mut self,
        name: impl Into<String>,
        make: impl Fn(Local) -> K + Send + Sync + 'static,
    ) -> Self {
        let make = move |local| Arc::new(make(local)) as Arc<dyn SchedulerKind>;
        self.over_local.insert(name.into(), Arc::new(make));
        self
    }

    /// Adds `local`, and makes all those that leave their work to it.
    pub fn with_local(mut self, local: Local) -> Self {
        for (name, make) in std::mem::take(&mut self.over_local) {
            self.kinds.insert(name, make(local.clone()));
        }
        self.with(LOCAL, local)
    }

    /// The kind of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidConfig`] when there is none, with the names that there are.
    pub fn get(&self, name: &str) -> Result<Arc<dyn SchedulerKind>> {
        let kind = self.kinds.get(name).map(Arc::clone);
        kind.ok_or_else(|| no_such_scheduler(name, self.names()))
    }

    /// Makes the scheduler of a job, of the kind that its definition names.
    ///
    /// # Errors
    ///
    /// When there is no such kind, and as of [`SchedulerKind::initialize`].
    pub async fn start(&self, launch: LaunchPlan) -> Result<(JobScheduler, ContainerEvents)> {
        let kind = self.get(&launch.definition.scheduler)?;
        let (scheduler, events) = kind.initialize(launch).await?;
        Ok((JobScheduler::new(kind.traits(), scheduler), events))
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }

    /// The names of those that there are where containers are started.
    pub fn names_with_local(&self) -> impl Iterator<Item = &str> {
        self.names()
            .chain(self.over_local.keys().map(String::as_str))
    }
}

/// The error for a scheduler that there is not; there are those of these names.
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
