//! Making what runs in a tasklet: the processors of a chain of vertices, or the end of an edge to another process.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{
    Clock, Epoch, Error, ErrorCode, Instance, InstanceContext, JobSignals, LocalStore, Processor,
    Result, Vertex, VertexId, Waker, Watermark, panic_message,
};

use crate::NodeConfig;
use crate::cuts::InstanceName;
use crate::job::{Counted, JobShared};
use crate::keepsakes::Keepsake;
use crate::panics::quietly;
use crate::stage::{AtDrain, CutDesk, Kind, Restoring, Stage};
use crate::tasklet::Turns;
use crate::threads::Threads;
use crate::wiring::{Joint, Wiring};
use crate::worker::TaskletWaker;

/// Where a processor goes on from that has taken over what another one remembered: the epoch, and what that had been told of time.
type Standing = (Epoch, Option<Watermark>);

/// Makes the stages of a job's tasklets.
pub(crate) struct Launch {
    pub(crate) wiring: Arc<Wiring>,
    pub(crate) config: NodeConfig,
    pub(crate) clock: Clock,
    pub(crate) job: Arc<JobShared>,
    /// Where state goes that memory has no room for.
    pub(crate) local: Option<Arc<dyn LocalStore>>,
    /// The sources that go on to their end when the job drains.
    pub(crate) to_their_end: BTreeSet<VertexId>,
}

impl Launch {
    pub(crate) fn new(wiring: Arc<Wiring>, threads: &Threads, job: Arc<JobShared>) -> Self {
        Launch {
            to_their_end: wiring.dag.feeding_urgent_inputs(),
            wiring,
            config: threads.config.clone(),
            clock: threads.clock.clone(),
            job,
            local: threads.local.clone(),
        }
    }

    /// The names of the vertices of a chain.
    pub(crate) fn names(&self, chain: usize) -> Vec<Arc<str>> {
        self.wiring.plan.tasklets[chain].names.clone()
    }

    /// The stages of an instance of a chain, and the counters of its instances: those given, or new ones. A source may be kept back; at the
    /// job's beginning they get its state.
    ///
    /// # Errors
    /// Whatever a supplier, or the source of the state, returns; [`ErrorCode::UserPanic`] if one panics.
    pub(crate) fn chain(
        &self,
        chain: usize,
        which: Instance,
        place: &TaskletWaker,
        (is_kept_back, begins): (bool, bool),
        before: Option<&[Counted]>,
    ) -> Result<(Vec<Stage>, Vec<Counted>)> {
        let (mut stages, mut counted) = (Vec::new(), Vec::new());
        let dag = &self.wiring.dag;
        for (position, &id) in self.wiring.plan.tasklets[chain].vertices.iter().enumerate() {
            let vertex = dag.get(id);
            let before = before.and_then(|before| before.get(position));
            let metrics = before.map_or_else(Arc::default, |before| Arc::clone(&before.metrics));
            counted.push(Counted {
                order: (chain, which.index, position),
                vertex: Arc::clone(vertex.name()),
                instance: which.index,
                metrics: Arc::clone(&metrics),
            });
            let (inputs, outputs) = (dag.inputs(id).len(), dag.outputs(id).len());
            let at_drain = match self.to_their_end.contains(&id) {
                true => AtDrain::GoesOn,
                false => AtDrain::Stops,
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
            let context = InstanceContext {
                metrics,
                waker: waker(place.clone(), Arc::clone(&woken)),
                inputs: self.producers(id),
                ..self.context(vertex.name(), which, signals)
            };
            let name = InstanceName {
                vertex: Arc::clone(vertex.name()),
                instance: which,
            };
            let made = supply(vertex, which)
                .and_then(|processor| self.check(processor))
                .and_then(|processor| self.remind(processor, &name, begins));
            let (processor, taken) = made.map_err(|e| e.in_vertex(vertex.name(), which.index))?;
            let desk = self.desk(name, place, begins && taken.is_none())?;
            let stage = Stage::new(processor, context, inputs, outputs, kind, woken);
            let stage = match desk {
                Some(desk) => stage.with_cuts(desk),
                None => stage,
            };
            stages.push(match taken {
                Some((epoch, told)) => stage.going_on(epoch, told),
                None => stage,
            });
        }
        Ok((stages, counted))
    }

    /// Refuses what would break the job's promise.
    fn check(&self, processor: Box<dyn Processor>) -> Result<Box<dyn Processor>> {
        let guarantee = self.job.guarantee;
        match processor.forgets().filter(|_| guarantee.keeps_state()) {
            None => Ok(processor),
            Some(what) => {
                let what = format!("it would forget {what}, where the job promises {guarantee}");
                Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint("run the job without that guarantee, or without this step"))
            }
        }
    }

    /// Has a processor take over what the instance remembered in the life before, if that left it here. Says of which epoch that was, and
    /// what it had been told of time.
    fn remind(
        &self,
        mut processor: Box<dyn Processor>,
        name: &InstanceName,
        begins: bool,
    ) -> Result<(Box<dyn Processor>, Option<Standing>)> {
        let cuts = &self.job.cuts;
        let (Some(left), Some(source), true) = (&cuts.left, &cuts.source, begins) else {
            return Ok((processor, None));
        };
        let Some(keepsake) = left.take(name, source.epoch()) else {
            return Ok((processor, None));
        };
        let Keepsake {
            epoch,
            watermark,
            memory,
        } = keepsake;
        let taken = catch_unwind(AssertUnwindSafe(|| processor.take_over(memory)));
        match taken {
            Ok(is_taken) => Ok((processor, is_taken.then_some((epoch, watermark)))),
            Err(payload) => Err(panicked("taking over what was remembered", payload)),
        }
    }

    /// What an instance takes cuts with, and gets its state back if it `is_restored`; nothing if the job does neither.
    fn desk(
        &self,
        name: InstanceName,
        place: &TaskletWaker,
        is_restored: bool,
    ) -> Result<Option<CutDesk>> {
        let cuts = &self.job.cuts;
        let sink = cuts
            .sink
            .clone()
            .filter(|_| self.job.guarantee.keeps_state());
        let source = cuts.source.as_ref().filter(|_| is_restored);
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
        let ended = Epoch(self.job.signals.epochs_asked());
        Ok(Some(CutDesk::new(name, sink, waker, restoring, ended)))
    }

    /// The stage of an edge's end towards another process, or from there.
    pub(crate) fn crossing(
        &self,
        joint: &Joint,
        processor: Box<dyn Processor>,
        kind: Kind,
        width: usize,
        place: &TaskletWaker,
    ) -> Stage {
        let ends = [joint.edge.source().0, joint.edge.target().0];
        let [from, to] = ends.map(|vertex| self.wiring.dag.get(vertex).name());
        let woken = Arc::new(AtomicBool::new(false));
        let signals = Arc::clone(&self.job.signals);
        let context = InstanceContext {
            waker: waker(place.clone(), Arc::clone(&woken)),
            inputs: Arc::from([Arc::clone(from)]),
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
        Stage::new(processor, context, inputs, outputs, kind, woken)
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
        }
    }

    /// The names of the vertices that feed a vertex, by input.
    fn producers(&self, vertex: VertexId) -> Arc<[Arc<str>]> {
        let dag = &self.wiring.dag;
        let edges = dag.inputs(vertex).into_iter();
        edges
            .map(|edge| {
                let from = dag.edges()[edge.index()].source().0;
                Arc::clone(dag.get(from).name())
            })
            .collect()
    }

    /// How long a tasklet works at a time.
    pub(crate) fn turns(config: &NodeConfig, is_dedicated: bool) -> Turns {
        Turns {
            slice: if is_dedicated {
                Duration::ZERO
            } else {
                config.slice
            },
            idle_poll: config.idle_poll,
        }
    }
}

/// The processor of an instance; a panic of the user's supplier becomes an error.
fn supply(vertex: &Vertex, instance: Instance) -> Result<Box<dyn Processor>> {
    let supplied = catch_unwind(AssertUnwindSafe(|| vertex.supplier().supply(instance)));
    supplied.unwrap_or_else(|payload| Err(panicked("the supplier", payload)))
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
        place.wake();
    })
}
