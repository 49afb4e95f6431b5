//! The deployer: the thread that applies the leader's changes to the engine.
//!
//! The start of instances runs user code, and a change waits for the records in flight. The
//! separate thread keeps both from delaying the heartbeats of the control side.

mod attempts;
mod deployment_parts;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ardea_coordination::control::{Change, Generation, Order, ParticipantAction, Run};
use ardea_coordination::packing::{ContainerId, InstanceId};
use ardea_core::{DeadLetters, Error, ErrorCode, Result, Waker};
use ardea_engine::{
    Deployment, InstanceAt, Job, JobConfig, JobStatus, Layout, Node, OnInstanceFailure,
    RemoteEdges, Site, StartMode,
};
use ardea_instance::VertexProcesses;
use ardea_metrics::{Labels, MetricsManager};
use tokio::sync::mpsc;

pub(crate) use deployment_parts::View;

use crate::attempt::{HandedOffState, RunningAttempt};
use crate::backchannel::BackchannelRouter;
use crate::driver::Event;
use crate::failures::Failures;
use crate::gauges::Gauges;
use crate::isolated_vertices;
use crate::network::Network;
use crate::plan::{Names, parallelisms, sites};
use crate::remote_edges::{StreamConfig, WorkerRemoteEdges};
use ardea_checkpoint::local::WorkerCheckpointBackend;

/// Maximum time between two rounds of the deployer's loop.
const MAX_ROUND_INTERVAL: Duration = Duration::from_millis(50);

/// Poll interval while a change cannot be applied yet.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// Timeout for delivering the last metrics batches to the metrics sinks.
const LAST_BATCHES: Duration = Duration::from_millis(500);

/// A command to the deployer.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run exactly these instances.
    Apply {
        change: Change,
        instances: Vec<InstanceId>,
    },
    /// Execute an action on the epochs of this attempt.
    Epochs(Generation, ParticipantAction),
    /// A container has been lost with the records in flight.
    PeerLost,
    /// Let the records in flight pass through, then report [`Event::Drained`].
    Leave,
    /// Check for changes of the deployment's state.
    Look,
}

/// The sending end of the deployer's command channel. Dropping it ends all instances.
#[derive(Debug)]
pub(crate) struct Commands(pub(crate) Sender<Command>);

impl Commands {
    /// Sends a command. If the deployer has ended, the command is dropped, because the error has
    /// been reported.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.0.send(command);
    }
}

/// The dependencies of the deployer.
pub(crate) struct Deployer<'a> {
    pub(crate) job: &'a dyn Job,
    pub(crate) name: String,
    pub(crate) here: ContainerId,
    pub(crate) node: &'a Node,
    pub(crate) network: Network,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) process: Labels,
    pub(crate) metrics_every: Duration,
    pub(crate) leave_within: Duration,
    /// The processes of isolated vertices.
    pub(crate) processes: VertexProcesses,
    pub(crate) failures: Arc<Failures>,
    /// The checkpoint backend, if the program has one.
    pub(crate) snapshots: Option<Arc<dyn WorkerCheckpointBackend>>,
    pub(crate) dead_letters: Arc<DeadLetters>,
    /// Maximum number of consecutive restarts of a failed instance, if the job allows restarts.
    pub(crate) instance_restarts: u32,
    /// Wakes the deployer with [`Command::Look`]. Holds the command channel weakly, so that
    /// dropping the driver still closes it.
    pub(crate) look: Waker,
}

/// Runs until the command channel is closed.
pub(crate) fn run(deployer: Deployer<'_>, metrics: MetricsManager, commands: &Receiver<Command>) {
    let events = deployer.events.clone();
    let worked = catch_unwind(AssertUnwindSafe(|| {
        DeployerState::new(deployer, &metrics).run(commands)
    }));
    metrics.close(LAST_BATCHES);
    let broken = match worked {
        Ok(Ok(())) => return,
        Ok(Err((instance, error))) => Event::Broken(instance, error),
        Err(_) => Event::Broken(
            None,
            Error::new(
                ErrorCode::UserPanic,
                "the job's program panicked while its graph was built",
            )
            .hint("the panic's own message is in this container's log"),
        ),
    };
    let _ = events.send(broken);
}

/// The error that ends the job in this container, and the instance that caused it, if known.
type Broken = (Option<InstanceId>, Error);

struct DeployerState<'a> {
    with: Deployer<'a>,
    metrics: &'a MetricsManager,
    active: Option<Active>,
    /// The current attempt, if the job has a processing guarantee.
    current_attempt: Option<RunningAttempt>,
    /// State handed off by the previous attempt, until the next one starts.
    handed_off: Option<HandedOffState>,
    /// The ending deployment of an earlier attempt. The next attempt waits for its end, because the
    /// ending deployment may hold files and connections.
    former: Option<Active>,
    /// The attempt that has failed in this container.
    failed: Option<Generation>,
    /// A change that waits for an earlier change to take effect.
    waiting: Option<(Change, Vec<InstanceId>)>,
    /// The order of the last applied change, until the change has taken effect.
    unsettled: Option<Order>,
    /// The order of the last applied change and its instances, until the instances have ended.
    running: Option<(Order, Vec<InstanceId>)>,
    leaving: Option<InFlightDrain>,
    gauges: Gauges,
}

/// The current deployment.
struct Active {
    names: Names,
    crossings: Arc<WorkerRemoteEdges>,
    backchannel: BackchannelRouter,
    deployment: Deployment,
}

/// The progress of draining the records in flight before this worker leaves.
struct InFlightDrain {
    until: Instant,
    /// The number of processed records at the last check.
    read: Option<u64>,
}

impl<'a> DeployerState<'a> {
    fn new(with: Deployer<'a>, metrics: &'a MetricsManager) -> Self {
        DeployerState {
            gauges: Gauges::new(&with),
            metrics,
            with,
            active: None,
            current_attempt: None,
            handed_off: None,
            former: None,
            failed: None,
            waiting: None,
            unsettled: None,
            running: None,
            leaving: None,
        }
    }

    fn run(mut self, commands: &Receiver<Command>) -> Result<(), Broken> {
        let worked = self.run_commands(commands);
        if let Err((_, error)) = &worked {
            // The container ends with the error, so the last metrics are sent first.
            if let Some((vertex, instance)) = error.vertex() {
                self.with.failures.fails(vertex, instance, error.code());
            }
            self.gauges.be_due();
            self.report_metrics();
        }
        worked
    }

    fn run_commands(&mut self, commands: &Receiver<Command>) -> Result<(), Broken> {
        loop {
            let (rest, asleep) = (self.rest(), Instant::now());
            let received = commands.recv_timeout(rest);
            self.gauges.waited(rest, asleep.elapsed());
            match received {
                Ok(Command::Apply { change, instances }) => {
                    self.waiting = Some((change, instances));
                }
                Ok(Command::Epochs(generation, action)) => self.in_epochs(generation, action),
                Ok(Command::PeerLost) => {
                    if let Some(active) = &self.active {
                        active.backchannel.process_lost();
                    }
                }
                Ok(Command::Leave) => self.leave(),
                Ok(Command::Look) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.run_round()?;
        }
    }

    fn rest(&self) -> Duration {
        let is_busy = self.waiting.is_some() || self.leaving.is_some();
        let longest = if is_busy {
            TRY_EVERY
        } else {
            MAX_ROUND_INTERVAL
        };
        self.gauges.due_in().min(longest)
    }

    fn run_round(&mut self) -> Result<(), Broken> {
        if let Some((change, instances)) = self.waiting.take() {
            match self.end_former_attempt(&change) {
                true => self.waiting = Some((change, instances)),
                false => self.change(change, instances)?,
            }
        }
        if let (Some(living), Some(active)) = (&mut self.current_attempt, &self.active) {
            living.end_if_due(&active.deployment);
        }
        self.report_settled();
        self.report_failures();
        self.report_status()?;
        self.check_drained();
        self.report_metrics();
        Ok(())
    }

    fn report_metrics(&mut self) {
        let view = self.active.as_ref().map(Active::view);
        if let Some(batch) = self.gauges.read_if_due(view, self.metrics) {
            self.report(match batch {
                Ok(batch) => Event::Metrics(batch),
                Err(error) => Event::MetricsRejected(error),
            });
        }
        for trouble in self.metrics.new_errors() {
            self.report(Event::SinkFailed(trouble));
        }
    }

    fn report(&self, event: Event) {
        let _ = self.with.events.send(event);
    }

    /// Applies a change, or defers it.
    fn change(&mut self, change: Change, instances: Vec<InstanceId>) -> Result<(), Broken> {
        let life = change.attempt.map(|life| life.generation);
        if life.is_some() && life == self.failed {
            return Ok(());
        }
        match self.apply(&change, &instances) {
            Ok(()) => {
                self.unsettled = Some(change.order);
                self.running = Some((change.order, instances));
                Ok(())
            }
            Err(error) if error.code() == ErrorCode::WrongState && self.is_alive() => {
                self.waiting = Some((change, instances));
                Ok(())
            }
            Err(error) if change.attempt.is_some() => {
                self.fail_attempt(change.attempt, &error);
                Ok(())
            }
            Err(error) => {
                let blamed = change.start.first().or(instances.first()).cloned();
                Err((blamed, error))
            }
        }
    }

    fn is_alive(&self) -> bool {
        let active = self.active.as_ref();
        active.is_some_and(|active| !matches!(active.deployment.status(), JobStatus::Failed(_)))
    }

    fn apply(&mut self, change: &Change, instances: &[InstanceId]) -> Result<()> {
        let members: BTreeSet<Site> = sites(&change.routes)
            .union(&sites(&change.next))
            .copied()
            .collect();
        self.with.network.members(members.clone());
        if self.active.is_none() {
            // Even without instances, this container may receive records for former instances.
            // Their producers keep the records until they are consumed.
            if instances.is_empty() && !is_placed(change, self.with.here) {
                self.handed_off = None;
                return Ok(());
            }
            self.begin_attempt(change, instances)?;
            let active = self.deploy(change, instances, members)?;
            if let Some(living) = &mut self.current_attempt {
                living.begun(&active.deployment);
            }
            if let Some(log) = active.crossings.recovery().source_log() {
                log.open();
            }
            self.active = Some(active);
        } else if let Some(active) = &mut self.active {
            let layout = layout(&active.names, change, instances, self.with.here)?;
            active.deployment.rewire(layout)?;
            active.crossings.workers_restarted(&change.restarted);
            active.place(change, &members, &self.with)?;
        }
        if let (Some(active), Some(living)) = (&self.active, &mut self.current_attempt)
            && self.leaving.is_none()
        {
            living.set_run(change.run, &active.deployment);
        } else if let Some(active) = &self.active
            && self.leaving.is_none()
        {
            match change.run {
                Run::Running => active.deployment.resume(),
                Run::Prepared | Run::Early | Run::Paused => active.deployment.pause(),
            }
        }
        Ok(())
    }

    /// Builds the job's graph and deploys the instances of this container.
    fn deploy(
        &mut self,
        change: &Change,
        instances: &[InstanceId],
        members: BTreeSet<Site>,
    ) -> Result<Active> {
        let program = self.with.job.program(&parallelisms(&change.next))?;
        let program = isolated_vertices::host(self.with.job, program, &self.with.processes)?;
        let names = Names::of(&program.dag)?;
        let recovery = self.recovery(&program, &names, change)?;
        let living = self.current_attempt.as_mut();
        let config = StreamConfig {
            life: living.as_ref().map(|living| living.generation()),
            ..StreamConfig::default()
        };
        let network = self.with.network.clone();
        let crossings = WorkerRemoteEdges::new(&program.dag, network, config);
        let crossings = Arc::new(crossings.with_recovery(recovery));
        crossings.workers_restarted(&change.restarted);
        let ends: Arc<dyn RemoteEdges> = Arc::<WorkerRemoteEdges>::clone(&crossings);
        let mail = BackchannelRouter::new(
            &self.with.name,
            program.side_channels,
            Arc::clone(&crossings),
        );
        let layout = layout(&names, change, instances, self.with.here)?;
        let config = JobConfig {
            dead_letters: Arc::clone(&self.with.dead_letters),
            on_failure: match (program.may_lose_instances, self.with.instance_restarts) {
                (false, _) | (_, 0) => OnInstanceFailure::FailJob,
                // With a processing guarantee, a lost instance requires a rollback of all
                // instances.
                _ if living.is_some() => OnInstanceFailure::FailJob,
                (true, at_most) => OnInstanceFailure::Restart { at_most },
            },
            guarantee: living
                .as_ref()
                .map(|living| living.guarantee())
                .unwrap_or_default(),
            snapshots: living
                .map(|living| living.snapshots(&program.dag, instances))
                .unwrap_or_default(),
            ..JobConfig::named(&self.with.name)
        };
        let deployment =
            self.with
                .node
                .deploy(&program.dag, config, layout, ends, StartMode::Paused)?;
        deployment.when_changed(self.with.look.clone());
        // A change that took effect before the waker was set is found in the next round.
        let mut active = Active {
            names,
            crossings,
            backchannel: mail,
            deployment,
        };
        active.place(change, &members, &self.with)?;
        Ok(active)
    }

    fn report_settled(&mut self) {
        let is_settled = self
            .active
            .as_ref()
            .is_none_or(|active| active.deployment.is_settled());
        let is_restored = self
            .current_attempt
            .as_ref()
            .is_none_or(RunningAttempt::is_restored);
        if self.waiting.is_none()
            && is_settled
            && is_restored
            && let Some(order) = self.unsettled.take()
        {
            self.report(Event::Applied(order));
        }
    }

    /// Reports the instances that the engine has restarted after a failure, to the leader and to
    /// the side channels, whose messages to them are lost.
    fn report_failures(&self) {
        let Some(active) = &self.active else { return };
        let failures = &self.with.failures;
        for failure in active.deployment.handle().take_failures() {
            for vertex in &failure.vertices {
                failures.restarts(vertex, failure.instance);
                // An instance that has restarted its process has lost no messages.
                if !failure.is_of_process
                    && let Ok(id) = active.names.vertex(vertex)
                {
                    active.backchannel.instance_lost(id);
                }
            }
            let first = failure.vertices.first().map_or("", |name| name);
            let (vertex, instance) = failure.error.vertex().unwrap_or((first, failure.instance));
            failures.fails(vertex, instance, failure.error.code());
            let why = failure.error.to_string();
            self.report(Event::Failed(InstanceId::new(vertex, instance), why));
        }
    }

    fn report_status(&mut self) -> Result<(), Broken> {
        let status = self
            .active
            .as_ref()
            .map(|active| active.deployment.status());
        if let Some(JobStatus::Failed(error)) = &status {
            if self.ends_with_attempt(error) {
                return Ok(());
            }
            return Err((blamed(error), error.clone()));
        }
        let has_ended = match &self.running {
            None => false,
            Some((_, instances)) if instances.is_empty() => true,
            Some(_) => matches!(status, Some(JobStatus::Completed | JobStatus::Drained)),
        };
        if has_ended
            && self.unsettled.is_none()
            && self.leaving.is_none()
            && let Some((order, _)) = self.running.take()
        {
            self.report(Event::Ended(order));
        }
        Ok(())
    }

    /// Handles a request to end: sources stop, and records in flight pass through. The consumers'
    /// inputs do not end, because this container may be restarted.
    fn leave(&mut self) {
        if let Some(active) = &self.active {
            active.deployment.pause();
        }
        self.leaving = Some(InFlightDrain {
            until: Instant::now() + self.with.leave_within,
            read: None,
        });
    }

    fn check_drained(&mut self) {
        let read = self.active.as_ref().map_or(0, Active::records);
        let Some(leaving) = &mut self.leaving else {
            return;
        };
        let is_quiet = leaving.read.replace(read) == Some(read);
        if is_quiet || self.active.is_none() || Instant::now() >= leaving.until {
            self.report(Event::Drained);
        }
    }
}

impl Active {
    /// Applies the placement to the side channels.
    fn place(
        &mut self,
        change: &Change,
        members: &BTreeSet<Site>,
        with: &Deployer<'_>,
    ) -> Result<()> {
        let placement = self.names.placement(&change.routes, with.here)?;
        self.backchannel.place(&placement, members, with.node)
    }

    /// Returns the number of records read and written by all instances.
    fn records(&self) -> u64 {
        let instances = self.deployment.instances().into_iter();
        instances
            .map(|it| it.metrics.records_in + it.metrics.records_out)
            .sum()
    }

    fn view(&self) -> View<'_> {
        View {
            deployment: &self.deployment,
            crossings: &self.crossings,
            backchannel: &self.backchannel,
        }
    }
}

fn layout(
    names: &Names,
    change: &Change,
    instances: &[InstanceId],
    here: ContainerId,
) -> Result<Layout> {
    let run: Vec<InstanceAt> = instances
        .iter()
        .map(|id| names.instance(id))
        .collect::<Result<_>>()?;
    let routes = names.placement(&change.routes, here)?;
    let next = names.placement(&change.next, here)?;
    let last = names.placement(&change.last, here)?;
    Ok(Layout::new(run, routes).towards(next).after(last))
}

/// Returns true if any plan of the change may route records to this container.
fn is_placed(change: &Change, here: ContainerId) -> bool {
    let plans = [&change.routes, &change.next, &change.last];
    plans.iter().any(|plan| plan.container(here).is_some())
}

fn blamed(error: &Error) -> Option<InstanceId> {
    let (vertex, instance) = error.vertex()?;
    Some(InstanceId::new(vertex, instance))
}
