//! Sources that have to come to their end before an epoch can.
//!
//! A step that reads one input to its end before its others (the build side of a hash join) can't hold that one at an epoch's end: the others
//! would never come there. Within a container the engine sees to it, which knows who reads there. A source may feed such a step in
//! another container; so in a container with such a source no epoch ends before that has come to its end. Sources of other containers
//! may be ahead: what they send waits until then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_coordination::packing::InstanceId;
use ardea_core::{Cut, Dag, Epoch, StateChunk, Waker};
use ardea_engine::{CutEnd, CutReport, CutSink, InstanceName};

/// The instances here of such sources that have not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadFirst {
    open: Arc<Mutex<BTreeSet<(String, u32)>>>,
}

impl ReadFirst {
    /// Of these instances of the graph; none is known to have ended yet.
    pub(crate) fn of(dag: &Dag, instances: &[InstanceId]) -> Self {
        let feeding = dag.feeding_urgent_inputs().into_iter();
        let sources = feeding.filter(|vertex| dag.inputs(*vertex).is_empty());
        let names: BTreeSet<_> = sources
            .map(|source| dag.get(source).name().to_string())
            .collect();
        let here = instances.iter();
        let here = here.filter(|id| names.contains(id.vertex.as_str()));
        let open = here.map(|id| (id.vertex.as_str().to_string(), id.index));
        ReadFirst {
            open: Arc::new(Mutex::new(open.collect())),
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeSet<(String, u32)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all of them have.
    pub(crate) fn have_ended(&self) -> bool {
        self.open().is_empty()
    }

    /// Takes cuts as `sink` does, and learns from them who has ended; `look` is woken when all have.
    pub(crate) fn listen(&self, sink: Arc<dyn CutSink>, look: &Waker) -> Arc<dyn CutSink> {
        match self.have_ended() {
            true => sink,
            false => Arc::new(Listening {
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

struct Listening {
    sink: Arc<dyn CutSink>,
    first: ReadFirst,
    look: Waker,
}

impl CutSink for Listening {
    fn wants_all(&self, of: &InstanceName, epoch: Epoch) -> bool {
        self.sink.wants_all(of, epoch)
    }

    fn buffer(&self, of: &InstanceName, waker: &Waker) -> Option<StateChunk> {
        self.sink.buffer(of, waker)
    }

    fn take(&self, of: &InstanceName, cut: Cut, entries: StateChunk) {
        self.sink.take(of, cut, entries);
    }

    fn finish(&self, of: &InstanceName, report: CutReport, entries: StateChunk) {
        self.sink.finish(of, report, entries);
        if report.cut.is_last && self.first.ended(of) {
            self.look.wake();
        }
    }

    fn give_up(&self, of: &InstanceName, cut: Cut, why: CutEnd) {
        self.sink.give_up(of, cut, why);
    }

    fn heard(&self, of: &InstanceName, epoch: Epoch) {
        self.sink.heard(of, epoch);
    }

    fn left(&self, of: &InstanceName) {
        self.sink.left(of);
    }
}
