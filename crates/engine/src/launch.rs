//! Making a job's tasklets after its plan, and handing them to their threads.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, Dag, EdgeId, Error, ErrorCode, Instance, InstanceContext, InstanceMetrics,
    Processor, Result, Routing, Vertex, VertexId, Waker,
};
use ardea_ring::Capacity;

use crate::NodeConfig;
use crate::execution_plan::{ExecutionPlan, PlannedTasklet};
use crate::input::InputSet;
use crate::job::{Counted, JobShared};
use crate::output::{OutputEdge, Route};
use crate::panics::{message, quietly};
use crate::queue::{QueueReceiver, QueueSender, queue};
use crate::stage::{AtDrain, Stage};
use crate::tasklet::Tasklet;
use crate::worker::TaskletWaker;

/// The most queues that one job may have: each takes some hundred bytes even when it is empty.
const MAX_QUEUES: u64 = 1 << 18;

/// Where the tasklets of a job will live: by planned tasklet and instance. Given back when dropped, unless they are kept.
#[derive(Default)]
pub(crate) struct Places(pub(crate) Vec<Vec<TaskletWaker>>);

impl Places {
    /// The tasklets live there now; each thread gives a place back when its tasklet ends.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.0.iter().flatten().for_each(TaskletWaker::release);
    }
}

/// The ends of an edge's queues, by producer and consumer instance, until the tasklets take them.
type Ends<T> = HashMap<(EdgeId, u32), Vec<T>>;

/// Makes all tasklets of a job; none runs yet.
pub(crate) struct Launch<'a> {
    pub(crate) dag: &'a Dag,
    pub(crate) plan: &'a ExecutionPlan,
    pub(crate) config: &'a NodeConfig,
    pub(crate) clock: &'a Clock,
    pub(crate) job: &'a Arc<JobShared>,
    pub(crate) places: &'a Places,
}

/// A tasklet, and the waker that also knows its place.
pub(crate) type Placed = (TaskletWaker, Box<Tasklet>);

impl Launch<'_> {
    /// The tasklets, and the counters of their instances.
    ///
    /// # Errors
    /// Whatever a supplier returns; [`ErrorCode::UserPanic`] if one panics; [`ErrorCode::LimitReached`] if there would be too
    /// many queues. Nothing has started then.
    pub(crate) fn make(&self) -> Result<(Vec<Placed>, Vec<Counted>)> {
        self.check_queues()?;
        let (mut senders, mut receivers) = self.queues();
        let mut placed = Vec::new();
        let mut metrics = Vec::new();
        let to_their_end = self.dag.feeding_urgent_inputs();
        for (planned, places) in self.plan.tasklets.iter().zip(&self.places.0) {
            for instance in 0..planned.parallelism {
                let place = &places[instance as usize];
                let stages = self.stages(planned, instance, place, &to_their_end, &mut metrics)?;
                let inputs = self.inputs(planned.vertices[0], instance, &mut receivers);
                let last = planned.vertices[planned.vertices.len() - 1];
                let outputs = self.outputs(last, instance, &mut senders);
                let slice = if planned.is_dedicated() {
                    Duration::ZERO
                } else {
                    self.config.slice
                };
                let tasklet = Tasklet::new(
                    Arc::clone(self.job),
                    stages,
                    inputs,
                    outputs,
                    slice,
                    self.config.idle_poll,
                );
                placed.push((place.clone(), Box::new(tasklet)));
            }
        }
        Ok((placed, metrics))
    }

    fn parallelism(&self, vertex: VertexId) -> u32 {
        self.dag
            .get(vertex)
            .wanted_parallelism()
            .resolve(self.config.threads)
    }

    fn place(&self, vertex: VertexId, instance: u32) -> &TaskletWaker {
        let planned = self
            .plan
            .tasklets
            .iter()
            .position(|tasklet| tasklet.vertices.contains(&vertex));
        &self.places.0[planned.unwrap_or(0)][instance as usize]
    }

    fn check_queues(&self) -> Result<()> {
        let mut queues = 0u64;
        for edge in self.dag.edges() {
            let (from, to) = (edge.source().0, edge.target().0);
            let consumers = match edge.wanted_routing() {
                Routing::Forward | Routing::AllToOne => 1,
                _ => self.parallelism(to),
            };
            queues =
                queues.saturating_add(u64::from(self.parallelism(from)) * u64::from(consumers));
            if queues > MAX_QUEUES {
                return Err(Error::new(
                    ErrorCode::LimitReached,
                    format!(
                        "the job needs more than {MAX_QUEUES} queues, many of them from {:?} to {:?}",
                        self.dag.get(from).name(),
                        self.dag.get(to).name()
                    ),
                )
                .hint("lower the parallelism of these vertices, or join them by a forward edge"));
            }
        }
        Ok(())
    }

    /// A queue for each pair of instances that an edge joins, unless it lies inside a tasklet.
    fn queues(&self) -> (Ends<QueueSender>, Ends<QueueReceiver>) {
        let (mut senders, mut receivers) = (Ends::new(), Ends::new());
        for (index, edge) in self.dag.edges().iter().enumerate() {
            let id = self.dag.outputs(edge.source().0)[edge.source().1.index()];
            debug_assert_eq!(id.index(), index);
            if self.plan.is_inside(self.dag, id) {
                continue;
            }
            let (from, to) = (edge.source().0, edge.target().0);
            let capacity = Capacity::clamped(
                edge.wanted_capacity()
                    .unwrap_or(self.config.queue_chunks)
                    .get(),
            );
            for producer in 0..self.parallelism(from) {
                let consumers = match edge.wanted_routing() {
                    Routing::Forward => producer..producer + 1,
                    Routing::AllToOne => 0..1,
                    _ => 0..self.parallelism(to),
                };
                for consumer in consumers {
                    let (sender, receiver) = queue(
                        capacity,
                        self.place(from, producer).clone(),
                        self.place(to, consumer).clone(),
                    );
                    senders.entry((id, producer)).or_default().push(sender);
                    receivers.entry((id, consumer)).or_default().push(receiver);
                }
            }
        }
        (senders, receivers)
    }

    fn stages(
        &self,
        planned: &PlannedTasklet,
        instance: u32,
        place: &TaskletWaker,
        to_their_end: &BTreeSet<VertexId>,
        metrics: &mut Vec<Counted>,
    ) -> Result<Vec<Stage>> {
        let mut stages = Vec::new();
        for &id in &planned.vertices {
            let vertex = self.dag.get(id);
            let counters = Arc::new(InstanceMetrics::default());
            metrics.push(Counted {
                vertex: Arc::clone(vertex.name()),
                instance,
                metrics: Arc::clone(&counters),
            });
            let woken = Arc::new(AtomicBool::new(false));
            let which = Instance {
                index: instance,
                parallelism: planned.parallelism,
            };
            let (inputs, outputs) = (self.dag.inputs(id).len(), self.dag.outputs(id).len());
            let is_source = inputs == 0;
            let at_drain = match is_source && !to_their_end.contains(&id) {
                true => AtDrain::Stops,
                false => AtDrain::GoesOn,
            };
            let context = InstanceContext {
                job: Arc::clone(&self.job.name),
                vertex: Arc::clone(vertex.name()),
                instance: which,
                inputs: self.producers(id),
                clock: self.clock.clone(),
                signals: if is_source {
                    Arc::new(self.job.signals.for_source())
                } else {
                    Arc::clone(&self.job.signals)
                },
                waker: waker(place.clone(), Arc::clone(&woken)),
                metrics: counters,
                dead_letters: Arc::clone(&self.job.dead_letters),
                origins: Arc::clone(&self.job.origins),
                chunk_records: self.config.chunk_records.get(),
            };
            let processor =
                supply(vertex, which).map_err(|e| e.in_vertex(vertex.name(), instance))?;
            stages.push(Stage::new(
                processor, context, inputs, outputs, at_drain, woken,
            ));
        }
        Ok(stages)
    }

    /// The names of the vertices that feed a vertex, by input.
    fn producers(&self, vertex: VertexId) -> Arc<[Arc<str>]> {
        let edges = self.dag.inputs(vertex);
        edges
            .iter()
            .map(|edge| {
                let from = self.dag.edges()[edge.index()].source().0;
                Arc::clone(self.dag.get(from).name())
            })
            .collect()
    }

    fn inputs(
        &self,
        head: VertexId,
        instance: u32,
        receivers: &mut Ends<QueueReceiver>,
    ) -> InputSet {
        let edges = self.dag.inputs(head);
        let timeless = edges
            .iter()
            .enumerate()
            .filter(|(_, id)| self.dag.edges()[id.index()].is_timeless());
        let timeless: Vec<usize> = timeless.map(|(input, _)| input).collect();
        let inputs = InputSet::new(
            edges
                .into_iter()
                .map(|id| {
                    let edge = &self.dag.edges()[id.index()];
                    (
                        edge.wanted_priority(),
                        receivers.remove(&(id, instance)).unwrap_or_default(),
                    )
                })
                .collect(),
        );
        timeless.into_iter().fold(inputs, InputSet::without_time)
    }

    fn outputs(
        &self,
        tail: VertexId,
        instance: u32,
        senders: &mut Ends<QueueSender>,
    ) -> Vec<OutputEdge> {
        let edges = self.dag.outputs(tail).into_iter();
        edges
            .map(|id| {
                let senders = senders.remove(&(id, instance)).unwrap_or_default();
                let routing = self.dag.edges()[id.index()].wanted_routing();
                OutputEdge::new(
                    route(routing, senders.len()),
                    senders,
                    self.config.chunk_records.get(),
                )
            })
            .collect()
    }
}

/// The processor of an instance; a panic of the user's supplier becomes an error.
fn supply(vertex: &Vertex, instance: Instance) -> Result<Box<dyn Processor>> {
    let supplied = catch_unwind(AssertUnwindSafe(|| vertex.supplier().supply(instance)));
    supplied.unwrap_or_else(|payload| {
        let error = Error::new(
            ErrorCode::UserPanic,
            format!("the supplier panicked: {}", message(&*payload)),
        );
        quietly(|| drop(payload));
        Err(error)
    })
}

fn route(routing: &Routing, consumers: usize) -> Route {
    match routing {
        _ if consumers == 1 => Route::Single,
        Routing::Forward | Routing::AllToOne => Route::Single,
        // All consumers are in this process.
        Routing::RoundRobin | Routing::LocalOrRoundRobin => Route::RoundRobin { next: 0 },
        Routing::Keyed(scatter) | Routing::Custom(scatter) => Route::Scatter {
            scatter: Arc::clone(scatter),
            staged: (0..consumers).map(|_| Chunk::default()).collect(),
        },
        Routing::Broadcast(replicate) => Route::Broadcast(Arc::clone(replicate)),
    }
}

fn waker(place: TaskletWaker, woken: Arc<AtomicBool>) -> Waker {
    Waker::new(move || {
        woken.store(true, Ordering::Release);
        place.wake();
    })
}
