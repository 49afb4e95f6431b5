//! The runtime context of an instance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::{
    Clock, Dag, DeadLetters, Edge, Epoch, FailureReports, Guarantee, InstanceMetrics, MicroBatch,
    Origins, Routing, StateBackend, StateRegistry, Waker,
};

/// Default number of records per chunk. Large enough to amortize one dynamic call per chunk, small
/// enough for two columns to fit into the L1 cache.
pub const DEFAULT_CHUNK_RECORDS: usize = 1024;

/// The index of one parallel instance of a vertex, and the number of instances.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Instance {
    /// The index, from zero, over the whole job.
    pub index: u32,
    /// The number of instances of the vertex.
    pub parallelism: u32,
}

impl Instance {
    /// The only instance of a vertex.
    pub const ONLY: Instance = Instance {
        index: 0,
        parallelism: 1,
    };

    /// Returns true if work item `number` (a file, a source partition) is assigned to this
    /// instance.
    pub const fn owns(self, number: u64) -> bool {
        number % self.parallelism as u64 == self.index as u64
    }
}

/// Requests to a job, as its instances see them: drain, cancel, pause, and epochs to end.
///
/// For a source, [`is_draining`](Self::is_draining) is false until
/// [`on_drain`](crate::SourceControl::on_drain) is called. Otherwise a source could stop because of
/// draining in a call whose result the runtime takes for the end of its input.
#[derive(Debug, Default)]
pub struct JobSignals {
    requests: Arc<JobSignalsShared>,
    sight: DrainVisibility,
}

/// The requests, shared by all instances of a job.
#[derive(Debug, Default)]
struct JobSignalsShared {
    state: AtomicU8,
    epochs: AtomicU64,
    /// The latest skipped epoch: it and earlier ones need not be ended.
    skipped: AtomicU64,
    was_drained: AtomicBool,
    is_paused: AtomicBool,
}

/// The moment from which `is_draining` may return true.
#[derive(Debug, Default)]
enum DrainVisibility {
    /// At once.
    #[default]
    AtOnce,
    /// When the runtime has notified the source.
    OnceTold(AtomicBool),
}

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const CANCELLED: u8 = 2;

impl JobSignals {
    /// For the runtime: returns the same signals for a source. They report draining only after
    /// [`notify_draining`](Self::notify_draining).
    pub fn for_source(&self) -> JobSignals {
        JobSignals {
            requests: Arc::clone(&self.requests),
            sight: DrainVisibility::OnceTold(AtomicBool::new(false)),
        }
    }

    /// For the runtime: makes draining visible to a source. Returns true if the job drains.
    pub fn notify_draining(&self) -> bool {
        let drains = self.requests.state.load(Ordering::Acquire) >= DRAINING;
        if let DrainVisibility::OnceTold(told) = &self.sight
            && drains
        {
            told.store(true, Ordering::Release);
        }
        drains
    }

    /// Requests that sources end as if their input had ended; results in flight are still emitted.
    pub fn drain(&self) {
        let _ = self.requests.state.compare_exchange(
            RUNNING,
            DRAINING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// Requests that all instances stop at once.
    pub fn cancel(&self) {
        self.requests.state.store(CANCELLED, Ordering::Release);
    }

    /// Returns true if sources must end. For a source itself it is false until
    /// [`on_drain`](crate::SourceControl::on_drain) is called or the job is cancelled.
    pub fn is_draining(&self) -> bool {
        match (self.requests.state.load(Ordering::Acquire), &self.sight) {
            (RUNNING, _) => false,
            (DRAINING, DrainVisibility::OnceTold(told)) => told.load(Ordering::Acquire),
            _ => true,
        }
    }

    /// Returns true if all instances must stop.
    pub fn is_cancelled(&self) -> bool {
        self.requests.state.load(Ordering::Acquire) == CANCELLED
    }

    /// For the runtime: records that a source ended because the job drains, before its input ended.
    pub fn set_drained(&self) {
        self.requests.was_drained.store(true, Ordering::Release);
    }

    /// Returns true if a source ended because the job drains, before its input ended.
    pub fn was_drained(&self) -> bool {
        self.requests.was_drained.load(Ordering::Acquire)
    }

    /// Requests that sources stop reading until [`resume`](Self::resume); records in flight are
    /// still processed.
    pub fn pause(&self) {
        self.requests.is_paused.store(true, Ordering::Release);
    }

    /// Lets the sources read again.
    pub fn resume(&self) {
        self.requests.is_paused.store(false, Ordering::Release);
    }

    /// Returns true if sources must not read at the moment. The runtime does not call paused
    /// sources except those that [pause themselves](crate::SourceControl::pauses_itself).
    pub fn is_paused(&self) -> bool {
        self.requests.is_paused.load(Ordering::Acquire)
    }

    /// Requests that sources end all epochs up to `until`. Returns false if these were requested
    /// before. Epochs count from 1, or from the epoch that a job was restored from.
    pub fn request_barriers(&self, until: Epoch) -> bool {
        self.requests.epochs.fetch_max(until.0, Ordering::AcqRel) < until.0
    }

    /// Returns the number of the latest epoch whose end was requested.
    pub fn requested_epochs(&self) -> u64 {
        self.requests.epochs.load(Ordering::Acquire)
    }

    /// Skips all epochs up to `until`: sources that have not ended them yet need not do so.
    pub fn skip_epochs(&self, until: Epoch) {
        self.requests.skipped.fetch_max(until.0, Ordering::AcqRel);
    }

    /// For the runtime: returns the next epoch that a source must end, if any; `ended` is the last
    /// one that it ended.
    pub fn next_epoch(&self, ended: u64) -> Option<Epoch> {
        let asked = self.requested_epochs();
        // `skip_epochs` may arrive before the request for a later epoch.
        let behind = self
            .requests
            .skipped
            .load(Ordering::Acquire)
            .saturating_add(1);
        (ended < asked).then(|| Epoch((ended + 1).max(behind.min(asked))))
    }
}

/// The vertex that produces an input of an instance.
#[derive(Clone, Debug)]
pub struct UpstreamVertex {
    /// The vertex's name.
    pub name: Arc<str>,
    /// True if each instance receives the records of the upstream instance with the same index.
    pub is_forward: bool,
}

impl UpstreamVertex {
    /// Returns the vertex that produces the records of `edge`.
    pub fn of(dag: &Dag, edge: &Edge) -> Self {
        UpstreamVertex {
            name: Arc::clone(dag.get(edge.source().0).name()),
            is_forward: matches!(edge.wanted_routing(), Routing::Forward),
        }
    }
}

/// The relation of the numbers of micro-batches to the time of day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MicroBatchTime {
    /// There is none: the numbers count from the start of the job.
    FromStart,
    /// Each micro-batch takes this time. Number zero starts in 1970.
    From1970(Duration),
}

impl MicroBatchTime {
    /// Returns the time from 1970 to the end of a micro-batch, if its number determines it.
    pub fn end_of(self, batch: MicroBatch) -> Option<Duration> {
        let MicroBatchTime::From1970(length) = self else {
            return None;
        };
        let nanos = length.as_nanos() * (u128::from(batch.0) + 1);
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }
}

/// The runtime context of an instance; passed to [`Processor::init`](crate::Processor::init).
#[derive(Clone, Debug)]
pub struct InstanceContext {
    /// The job's name.
    pub job: Arc<str>,
    /// The vertex's name.
    pub vertex: Arc<str>,
    /// The index of the instance, and the parallelism of the vertex.
    pub instance: Instance,
    /// The upstream vertices, by input.
    pub inputs: Arc<[UpstreamVertex]>,
    /// The clock, which a test may control.
    pub clock: Clock,
    /// Requests to the job. A call that takes long must check now and then whether the job was
    /// cancelled.
    pub signals: Arc<JobSignals>,
    /// The waker of this instance, for other threads.
    pub waker: Waker,
    /// This instance's counters.
    pub metrics: Arc<InstanceMetrics>,
    /// The destination of records that could not be processed.
    pub dead_letters: Arc<DeadLetters>,
    /// The origins of records of the job's sources.
    pub origins: Arc<Origins>,
    /// The number of records per chunk.
    pub chunk_records: usize,
    /// The processing guarantee; snapshots are taken unless it is `None`.
    pub guarantee: Guarantee,
    /// The store for state that does not fit into memory, if the job may keep state on disk.
    pub local: Option<Arc<dyn StateBackend>>,
    /// The states that the operator has opened, which its snapshots must contain.
    pub state_registry: Arc<StateRegistry>,
    /// The destination of failures that the instance handles itself.
    pub failures: FailureReports,
    /// The clock of the micro-batches that end at the inputs of the instance; `None` if none end
    /// there.
    pub micro_batches: Option<MicroBatchTime>,
}

impl InstanceContext {
    /// Creates a context outside of any job, for tests of a single processor.
    pub fn detached(vertex: &str) -> Self {
        InstanceContext {
            job: Arc::from("test"),
            vertex: Arc::from(vertex),
            instance: Instance::ONLY,
            inputs: Arc::from([]),
            clock: Clock::system(),
            signals: Arc::default(),
            waker: Waker::none(),
            metrics: Arc::default(),
            dead_letters: Arc::default(),
            origins: Arc::default(),
            chunk_records: DEFAULT_CHUNK_RECORDS,
            guarantee: Guarantee::None,
            local: None,
            state_registry: Arc::default(),
            failures: FailureReports::default(),
            micro_batches: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_sees_that_its_job_drains_when_it_is_told_and_not_before() {
        let job = JobSignals::default();
        let (told, untold) = (job.for_source(), job.for_source());
        assert!(!told.notify_draining() && !told.is_draining());
        job.drain();
        assert!(job.is_draining());
        assert!(!told.is_draining());
        assert!(told.notify_draining() && told.is_draining());
        assert!(!untold.is_draining());
        job.cancel();
        assert!(untold.is_draining() && untold.is_cancelled());
    }

    #[test]
    fn epochs_are_ended_one_by_one_but_for_those_that_are_skipped() {
        let job = JobSignals::default();
        assert_eq!(job.next_epoch(0), None);
        job.request_barriers(Epoch(2));
        assert_eq!(job.next_epoch(0), Some(Epoch(1)));
        assert_eq!(job.next_epoch(1), Some(Epoch(2)));
        // `skip_epochs` arrives before the request for a later epoch.
        job.skip_epochs(Epoch(64));
        assert_eq!(job.next_epoch(2), None);
        assert_eq!(job.next_epoch(1), Some(Epoch(2)));
        job.request_barriers(Epoch(65));
        assert_eq!(job.next_epoch(2), Some(Epoch(65)));
        assert_eq!(job.next_epoch(65), None);
    }
}
