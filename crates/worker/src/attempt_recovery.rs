//! The workers of an attempt that can be restored alone.
//!
//! All workers derive them from the graph, the plan and the settings, so they agree. A worker keeps
//! its output for these workers, and takes complete micro-batches from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_coordination::control::{
    ExecutionAttempt, JobRecoveryReason, RecoveryScope, RestoredWorker, WorkerId,
};
use ardea_core::{Dag, Epoch, Isolation};
use ardea_engine::{ModeChoice, Placement, Site, SourceLog};
use ardea_network::exchange::{RetainedStreamState, WorkerNumber};

/// The workers of an attempt that can be restored alone, and the output that is kept for them.
#[derive(Clone, Default)]
pub(crate) struct AttemptRecovery {
    scopes: BTreeMap<Site, RecoveryScope>,
    /// The epoch that the attempt was restored from in this process.
    from: Option<Epoch>,
    keeping: Option<Arc<RetainedStreamState>>,
    /// The micro-batches of the sources here, if this worker can be restored alone.
    log: Option<Arc<SourceLog>>,
    /// The number of micro-batches that this worker has got again.
    repeated: Arc<AtomicU64>,
}

impl AttemptRecovery {
    /// Determines the workers of an attempt that can be restored alone. `has_side_channels` is true
    /// if instances exchange messages other than records, and `is_restored_alone` if the worker at
    /// `here` joins an attempt that runs.
    pub(crate) fn of(
        dag: &Dag,
        placement: &Placement,
        attempt: ExecutionAttempt,
        mode: &ModeChoice,
        has_side_channels: bool,
        (here, is_restored_alone): (Site, bool),
    ) -> Self {
        let Some(batches) = &mode.batches else {
            return AttemptRecovery::default();
        };
        let is_isolated =
            |vertex: &ardea_core::Vertex| vertex.wanted_isolation() == Isolation::Process;
        let has_feature = has_side_channels
            || !dag.feeding_urgent_inputs().is_empty()
            || dag.vertices().iter().any(is_isolated);
        let job = match (batches.kept_bytes, has_feature) {
            (0, _) => Some(JobRecoveryReason::NothingKept),
            (_, true) => Some(JobRecoveryReason::Feature),
            _ => None,
        };
        let vertices = || {
            dag.edges()
                .iter()
                .flat_map(|edge| [edge.source().0, edge.target().0])
        };
        let mut scopes = BTreeMap::new();
        for site in vertices().flat_map(|vertex| placement.sites(vertex)) {
            let scope = scopes.entry(*site).or_insert(match job {
                Some(why) => RecoveryScope::JobBecause(why),
                None => RecoveryScope::Worker,
            });
            if *scope != RecoveryScope::Worker {
                continue;
            }
            for vertex in vertices().filter(|it| placement.sites(*it).contains(site)) {
                let is_source = dag.inputs(vertex).is_empty();
                let outputs = dag.outputs(vertex).len();
                let vertex = dag.get(vertex);
                let is_repeatable = vertex.is_repeatable() && vertex.nondeterminism().is_none();
                if is_source && !(is_repeatable && outputs == 1) {
                    *scope = RecoveryScope::JobBecause(JobRecoveryReason::HasSource);
                    break;
                }
                if !is_repeatable {
                    *scope = RecoveryScope::JobBecause(JobRecoveryReason::NotRepeatable);
                }
            }
        }
        let log = scopes.get(&here) == Some(&RecoveryScope::Worker);
        AttemptRecovery {
            scopes,
            log: log.then(|| Arc::new(SourceLog::new(attempt.from, is_restored_alone))),
            from: attempt.from,
            repeated: Arc::default(),
            keeping: Some(Arc::new(RetainedStreamState::new(batches.kept_bytes))),
        }
    }

    /// Returns the part of the job that is restored if the worker at `site` is lost.
    pub(crate) fn scope(&self, site: Site) -> RecoveryScope {
        self.scopes.get(&site).copied().unwrap_or_default()
    }

    /// Returns true if the worker at `site` can be restored alone.
    pub(crate) fn covers(&self, site: Site) -> bool {
        self.scope(site) == RecoveryScope::Worker
    }

    /// Returns the log of the micro-batches of the sources here.
    pub(crate) fn source_log(&self) -> Option<&Arc<SourceLog>> {
        self.log.as_ref()
    }

    /// Returns the counter of the micro-batches that this worker has got again.
    pub(crate) fn repeated(&self) -> &Arc<AtomicU64> {
        &self.repeated
    }

    /// Returns the number of micro-batches that this worker has got again.
    pub(crate) fn repeated_batches(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Returns the store of the output to `site`, if its worker can be restored alone.
    pub(crate) fn keeping_for(
        &self,
        site: Site,
    ) -> Option<(Arc<RetainedStreamState>, Option<Epoch>)> {
        let keeping = self.keeping.as_ref().filter(|_| self.covers(site))?;
        Some((Arc::clone(keeping), self.from))
    }

    /// Records a worker that was restored alone. Returns true if that was not known.
    pub(crate) fn restarted(&self, restarted: &RestoredWorker) -> bool {
        let RestoredWorker { worker, from, .. } = restarted;
        let WorkerId {
            container,
            incarnation,
        } = worker;
        let number = WorkerNumber(u64::from(container.0));
        let keeping = self.keeping.as_ref();
        keeping.is_some_and(|keeping| keeping.restarted(number, *incarnation, *from))
    }

    /// Drops output that is part of a committed epoch.
    pub(crate) fn committed(&self, epoch: Epoch) {
        if let Some(keeping) = &self.keeping {
            keeping.committed(epoch);
        }
    }

    /// Returns the number of bytes that are kept.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let keeping = self.keeping.as_ref();
        keeping.map_or(0, |keeping| keeping.bytes.used())
    }

    /// Returns the number of kept frames that were sent again.
    pub(crate) fn reused_frames(&self) -> u64 {
        let keeping = self.keeping.as_ref();
        keeping.map_or(0, |keeping| keeping.reused.load(Ordering::Relaxed))
    }
}
