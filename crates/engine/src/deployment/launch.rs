//! Creation of tasklets: the processors of a chain of vertices, or the end of an edge to another
//! process.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{
    Clock, Epoch, Error, ErrorCode, Instance, InstanceContext, JobSignals, Result, StateBackend,
    UpstreamVertex, VertexId, Waker, Watermark, panic_message,
};

use crate::executor::threads::Threads;
use crate::executor::worker_shared::TaskletWaker;
use crate::job::{InstanceMetricsHandle, JobShared};
use crate::panics::quietly;
use crate::planning::wiring::{Role, TaskletEdge, Wiring};
use crate::recording::JobRecorder;
use crate::snapshotting::HandedOffState;
use crate::snapshotting::InstanceName;
use crate::stage::{Code, DrainMode, Kind, ProcessorStage, Restoring, SnapshotState};
use crate::tasklet::SliceConfig;
use crate::{NodeConfig, RemoteEdges};

/// The resume point of a processor that took over state in memory: the epoch, and the watermark of
/// its predecessor.
type ResumePoint = (Epoch, Option<Watermark>);

/// The factory of the stages of a job's tasklets.
pub(crate) struct Launch {
    pub(crate) wiring: Arc<Wiring>,
    pub(crate) config: NodeConfig,
    pub(crate) clock: Clock,
    pub(crate) job: Arc<JobShared>,
    /// Disk storage for state that does not fit into memory.
    pub(crate) local: Option<Arc<dyn StateBackend>>,
    /// The ends of edges to other processes.
    pub(crate) remote: Option<Arc<dyn RemoteEdges>>,
    /// The sources that run to their end when the job drains.
    pub(crate) to_their_end: BTreeSet<VertexId>,
    /// Present if micro-batches are recorded.
    pub(crate) recorder: Option<JobRecorder>,
}

impl Launch {
    pub(crate) fn new(
        wiring: Arc<Wiring>,
        threads: &Threads,
        job: Arc<JobShared>,
        remote: Option<Arc<dyn RemoteEdges>>,
    ) -> Self {
        Launch {
            to_their_end: wiring.dag.feeding_urgent_inputs(),
            wiring,
            config: threads.config.clone(),
            clock: threads.clock.clone(),
            job,
            remote,
            local: threads.local.clone(),
            recorder: None,
        }
    }

    /// Returns the names of the vertices of a chain.
    pub(crate) fn names(&self, chain: usize) -> Vec<Arc<str>> {
        self.wiring.plan.tasklets[chain].names.clone()
    }

    /// Creates the stages of an instance of a chain, with the counters `before` or new ones. A
    /// source is held back if `is_kept_back`. The stages get their restored state if `begins`: at
    /// the job's start.
    ///
    /// # Errors
    /// An error of a supplier or of the restore source; [`ErrorCode::UserPanic`] if one panics.
    pub(crate) fn chain(
        &self,
        chain: usize,
        which: Instance,
        place: &TaskletWaker,
        (is_kept_back, begins): (bool, bool),
        before: Option<&[InstanceMetricsHandle]>,
    ) -> Result<(Vec<ProcessorStage>, Vec<InstanceMetricsHandle>)> {
        let (mut stages, mut counted) = (Vec::new(), Vec::new());
        let dag = &self.wiring.dag;
        for (position, &id) in self.wiring.plan.tasklets[chain].vertices.iter().enumerate() {
            let vertex = dag.get(id);
            let before = before.and_then(|before| before.get(position));
            let metrics = before.map_or_else(Arc::default, |before| Arc::clone(&before.metrics));
            counted.push(InstanceMetricsHandle {
                order: (chain, which.index, position),
                vertex: Arc::clone(vertex.name()),
                instance: which.index,
                metrics: Arc::clone(&metrics),
            });
            let (inputs, outputs) = (dag.inputs(id).len(), dag.outputs(id).len());
            let at_drain = match self.to_their_end.contains(&id) {
                true => DrainMode::GoesOn,
                false => DrainMode::Stops,
            };
            let (kind, signals) = match inputs {
                0 => (
                    Kind::Source {
                        at_drain,
                        is_kept_back,
                    },
                    Arc::new(self.job.signals.for_source()),
                ),
                _ => (Kind::Step, Arc::clone(&self.job.signals)),
            };
            let woken = Arc::new(AtomicBool::new(false));
            let feeds_urgent = self.to_their_end.contains(&id);
            let context = InstanceContext {
                metrics,
                waker: waker(place.clone(), Arc::clone(&woken)),
                inputs: self.producers(id),
                // No micro-batch ends at the input of a vertex that feeds an urgent input.
                micro_batches: match inputs == 0 || feeds_urgent {
                    true => None,
                    false => self.job.batches.as_ref().map(|clock| clock.time()),
                },
                ..self.context(vertex.name(), which, signals)
            };
            let name = InstanceName {
                vertex: Arc::clone(vertex.name()),
                instance: which,
            };
            let made = self
                .supply(id, which)
                .and_then(|code| self.check(code))
                .and_then(|code| self.take_over_state(code, &name, begins));
            let (code, taken) = made.map_err(|e| e.in_vertex(vertex.name(), which.index))?;
            let desk = self.snapshot_state(name, place, begins && taken.is_none())?;
            // Recordings start with whole states.
            let is_recorded = matches!(code, Code::Recorded(_));
            let desk = desk.map(|desk| desk.always_full(is_recorded));
            let stage = ProcessorStage::new(code, context, inputs, outputs, kind, woken);
            let log = self.remote.as_ref().and_then(|remote| remote.source_log());
            let log = log.map(|log| (log, id));
            let stage = stage.with_batches(self.job.batches.as_ref(), feeds_urgent, log);
            let stage = match desk {
                Some(desk) => stage.with_snapshots(desk),
                None => stage,
            };
            stages.push(match taken {
                Some((epoch, told)) => stage.resumed_at(epoch, told),
                None => stage,
            });
        }
        Ok((stages, counted))
    }

    /// Creates the processor of an instance; a panic of the user's supplier becomes an error.
    fn supply(&self, vertex: VertexId, instance: Instance) -> Result<Code> {
        let supplier = self.wiring.dag.get(vertex).supplier();
        let supplied = catch_unwind(AssertUnwindSafe(|| supplier.supply(instance)));
        let supplied = supplied.unwrap_or_else(|payload| Err(panicked("the supplier", payload)));
        let Some(recorder) = &self.recorder else {
            return supplied.map(Code::Processor);
        };
        let wrapped = recorder.wrap((&self.wiring.dag, vertex), instance, supplied?)?;
        Ok(wrapped.map_or_else(Code::Processor, Code::Recorded))
    }

    /// Refuses a processor that would break the job's guarantee.
    fn check(&self, mut code: Code) -> Result<Code> {
        let guarantee = self.job.guarantee;
        let unsaved = code.processor().and_then(|it| it.unsaved_state());
        match unsaved.filter(|_| guarantee.keeps_state()) {
            None => Ok(code),
            Some(what) => {
                let what = format!(
                    "it would forget {what}, although the guarantee of the job is {guarantee}"
                );
                Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint("run the job without that guarantee, or without this step"))
            }
        }
    }

    /// Lets a processor take over the state that its predecessor of the previous attempt left in
    /// memory, if any. Returns the epoch and watermark of that state.
    fn take_over_state(
        &self,
        mut code: Code,
        name: &InstanceName,
        begins: bool,
    ) -> Result<(Code, Option<ResumePoint>)> {
        let snapshots = &self.job.snapshots;
        let (Some(left), Some(source), true) = (&snapshots.handoff_in, &snapshots.source, begins)
        else {
            return Ok((code, None));
        };
        let Some(keepsake) = left.take(name, source.epoch()) else {
            return Ok((code, None));
        };
        let HandedOffState {
            epoch,
            watermark,
            memory,
        } = keepsake;
        let taken = catch_unwind(AssertUnwindSafe(|| code.state().take_over_state(memory)));
        match taken {
            Ok(is_taken) => Ok((code, is_taken.then_some((epoch, watermark)))),
            Err(payload) => Err(panicked("taking over the previous state", payload)),
        }
    }

    /// Creates the snapshot and restore state of an instance; `None` if the job uses neither.
    fn snapshot_state(
        &self,
        name: InstanceName,
        place: &TaskletWaker,
        is_restored: bool,
    ) -> Result<Option<SnapshotState>> {
        let snapshots = &self.job.snapshots;
        let sink = snapshots
            .sink
            .clone()
            .filter(|_| self.job.guarantee.keeps_state());
        let source = snapshots.source.as_ref().filter(|_| is_restored);
        if sink.is_none() && source.is_none() {
            return Ok(None);
        }
        let restoring = match source {
            None => None,
            Some(source) => {
                let opened = source.open(&name);
                let reader = opened.map_err(|e| e.in_vertex(&name.vertex, name.instance.index))?;
                Some(Restoring::new(reader, source.epoch()))
            }
        };
        let place = place.clone();
        let waker = Waker::new(move || place.wake());
        let ended = Epoch(self.job.signals.requested_epochs());
        Ok(Some(SnapshotState::new(
            name, sink, waker, restoring, ended,
        )))
    }

    /// Creates the stage of an edge's end to or from another process.
    pub(crate) fn crossing(
        &self,
        joint: &TaskletEdge,
        code: Code,
        kind: Kind,
        width: usize,
        place: &TaskletWaker,
    ) -> ProcessorStage {
        let ends = [joint.edge.source().0, joint.edge.target().0];
        let [from, to] = ends.map(|vertex| self.wiring.dag.get(vertex).name());
        let woken = Arc::new(AtomicBool::new(false));
        let signals = Arc::clone(&self.job.signals);
        let context = InstanceContext {
            waker: waker(place.clone(), Arc::clone(&woken)),
            inputs: Arc::from([UpstreamVertex {
                name: Arc::clone(from),
                is_forward: false,
            }]),
            ..self.context(
                &Arc::from(format!("{from} → {to}")),
                Instance::ONLY,
                signals,
            )
        };
        let (inputs, outputs) = match kind {
            Kind::Sender => (width, 0),
            _ => (0, width),
        };
        ProcessorStage::new(code, context, inputs, outputs, kind, woken)
    }

    fn context(
        &self,
        vertex: &Arc<str>,
        instance: Instance,
        signals: Arc<JobSignals>,
    ) -> InstanceContext {
        InstanceContext {
            job: Arc::clone(&self.job.name),
            vertex: Arc::clone(vertex),
            instance,
            inputs: Arc::from([]),
            clock: self.clock.clone(),
            signals,
            waker: Waker::none(),
            metrics: Arc::default(),
            dead_letters: Arc::clone(&self.job.dead_letters),
            origins: Arc::clone(&self.job.origins),
            chunk_records: self.config.chunk_records.get(),
            guarantee: self.job.guarantee,
            local: self.local.clone(),
            state_registry: Arc::default(),
            failures: self.job.failure_reports(vertex, instance),
            micro_batches: None,
        }
    }

    /// Returns the upstream vertices, by input.
    fn producers(&self, vertex: VertexId) -> Arc<[UpstreamVertex]> {
        let dag = &self.wiring.dag;
        let edges = dag.inputs(vertex).into_iter();
        edges
            .map(|edge| UpstreamVertex::of(dag, &dag.edges()[edge.index()]))
            .collect()
    }

    /// Returns the slice settings of a tasklet.
    pub(crate) fn turns(&self, role: Role) -> SliceConfig {
        let config = &self.config;
        SliceConfig {
            slice: if self.wiring.is_dedicated(role) {
                Duration::ZERO
            } else {
                config.slice
            },
            idle_poll: config.idle_poll,
            latency: self.wiring.latency(role, config.latency),
        }
    }
}

fn panicked(what: &str, payload: Box<dyn Any + Send>) -> Error {
    let said = panic_message(&*payload);
    let error = Error::new(ErrorCode::UserPanic, format!("{what} panicked: {said}"));
    quietly(|| drop(payload));
    error
}

fn waker(place: TaskletWaker, woken: Arc<AtomicBool>) -> Waker {
    Waker::new(move || {
        woken.store(true, Ordering::Release);
        place.wake_for_data();
    })
}
