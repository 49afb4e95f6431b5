//! A gate that delays epochs until bounded sources have ended.
//!
//! A hash join reads its build input to the end before the other inputs, so it cannot align the
//! build input at a barrier. Within a container, the engine delays the barrier itself. But a source
//! may feed a hash join in another container. So no epoch ends in the source's container before the
//! source has ended. Data that sources of other containers send in the meantime is queued.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_coordination::packing::InstanceId;
use ardea_core::{Dag, Epoch, SnapshotRequest, StateChunk, Waker};
use ardea_engine::{InstanceName, SnapshotAbort, SnapshotReport, SnapshotSink};

/// The local instances of bounded sources that must end before an epoch can end.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoundedInputGate {
    open: Arc<Mutex<BTreeSet<(String, u32)>>>,
}

impl BoundedInputGate {
    /// Returns the gate for the sources among `instances`; all of them count as running.
    pub(crate) fn of(dag: &Dag, instances: &[InstanceId]) -> Self {
        let feeding = dag.feeding_urgent_inputs().into_iter();
        let sources = feeding.filter(|vertex| dag.inputs(*vertex).is_empty());
        let names: BTreeSet<_> = sources
            .map(|source| dag.get(source).name().to_string())
            .collect();
        let here = instances.iter();
        let here = here.filter(|id| names.contains(id.vertex.as_str()));
        let open = here.map(|id| (id.vertex.as_str().to_string(), id.index));
        BoundedInputGate {
            open: Arc::new(Mutex::new(open.collect())),
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeSet<(String, u32)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if all sources of the gate have ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.open().is_empty()
    }

    /// Wraps a snapshot sink to detect the end of a source from the source's last snapshot. `look`
    /// is woken once all sources of the gate have ended.
    pub(crate) fn wrap(&self, sink: Arc<dyn SnapshotSink>, look: &Waker) -> Arc<dyn SnapshotSink> {
        match self.have_ended() {
            true => sink,
            false => Arc::new(EndDetectingSink {
                sink,
                first: self.clone(),
                look: look.clone(),
            }),
        }
    }

    fn ended(&self, of: &InstanceName) -> bool {
        let mut open = self.open();
        let was_open = open.remove(&(of.vertex.to_string(), of.instance.index));
        was_open && open.is_empty()
    }
}

struct EndDetectingSink {
    sink: Arc<dyn SnapshotSink>,
    first: BoundedInputGate,
    look: Waker,
}

impl SnapshotSink for EndDetectingSink {
    fn wants_all(&self, of: &InstanceName, epoch: Epoch) -> bool {
        self.sink.wants_all(of, epoch)
    }

    fn buffer(&self, of: &InstanceName, waker: &Waker) -> Option<StateChunk> {
        self.sink.buffer(of, waker)
    }

    fn take(&self, of: &InstanceName, snapshot: SnapshotRequest, entries: StateChunk) {
        self.sink.take(of, snapshot, entries);
    }

    fn finish(&self, of: &InstanceName, report: SnapshotReport, entries: StateChunk) {
        self.sink.finish(of, report, entries);
        if report.snapshot.is_last && self.first.ended(of) {
            self.look.wake();
        }
    }

    fn abort(&self, of: &InstanceName, snapshot: SnapshotRequest, why: SnapshotAbort) {
        self.sink.abort(of, snapshot, why);
    }

    fn commit_processed(&self, of: &InstanceName, epoch: Epoch) {
        self.sink.commit_processed(of, epoch);
    }

    fn instance_ended(&self, of: &InstanceName) {
        self.sink.instance_ended(of);
    }
}
