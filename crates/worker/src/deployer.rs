//! Carries out what the master wants to run here: the thread between the control side and the engine.
//!
//! Starting instances runs the user's code, and a change of what runs may take as long as the records under way, so none of it happens
//! on the control side's thread, which has to go on saying that this worker is alive.

mod lives;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ardea_coordination::control::{Change, EpochsAgentAction, Generation, Order, Run};
use ardea_coordination::packing::{ContainerId, InstanceId};
use ardea_core::{DeadLetters, Error, ErrorCode, MessageReport, Result, VertexId, Waker};
use ardea_engine::{
    Begin, Crossings, Deployment, InstanceAt, Job, JobConfig, JobStatus, Layout, Node,
    OnInstanceFailure, Site,
};
use ardea_metrics::{Labels, MetricsManager};
use tokio::sync::mpsc;

use crate::crossings::{StreamConfig, WorkerCrossings};
use crate::driver::Event;
use crate::failures::Failures;
use crate::gauges::Gauges;
use crate::instance::{InstanceProcesses, ToInstance, vertex_at, with_processes};
use crate::living::{Legacy, Living};
use crate::mail::PostOffice;
use crate::network::Network;
use crate::plan::{Names, parallelisms, sites};
use ardea_checkpoint::local::CutKeeper;

/// How long it waits at most before it looks around.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often it looks whether what could not be changed yet can be.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// How long sinks may take for the batches that wait for them at the end.
const LAST_BATCHES: Duration = Duration::from_millis(500);

/// What the deployer is asked for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Have exactly these instances run.
    Apply {
        change: Change,
        instances: Vec<InstanceId>,
    },
    /// Do something about the epochs of that life.
    Epochs(Generation, EpochsAgentAction),
    /// A container was lost with what was under way there.
    PeerLost,
    /// The process of an instance was lost with what was under way there.
    InstanceLost(Site),
    /// Let what was read flow on, then say so.
    Leave,
    /// Something may have changed.
    Look,
}

/// The way to the deployer. When it is dropped, all instances end.
#[derive(Debug)]
pub(crate) struct Commands(pub(crate) Sender<Command>);

impl Commands {
    /// Asks for something. If the deployer is gone, it has said why.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.0.send(command);
    }
}

/// What the deployer works with.
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
    pub(crate) processes: Arc<InstanceProcesses>,
    pub(crate) failures: Arc<Failures>,
    /// Where cuts are kept, if the program keeps any.
    pub(crate) cuts: Option<Arc<dyn CutKeeper>>,
    pub(crate) dead_letters: Arc<DeadLetters>,
    /// How often in a row an instance that fails is made anew, where the job allows that.
    pub(crate) instance_restarts: u32,
    /// Wakes it by [`Command::Look`]; holds the way to itself weakly, so that the driver's end is heard.
    pub(crate) look: Waker,
}

/// Works until nobody can ask for anything any more.
pub(crate) fn run(deployer: Deployer<'_>, metrics: MetricsManager, commands: &Receiver<Command>) {
    let events = deployer.events.clone();
    let processes = Arc::clone(&deployer.processes);
    let worked = catch_unwind(AssertUnwindSafe(|| {
        Work::new(deployer, &metrics).run(commands)
    }));
    processes.close();
    metrics.close(LAST_BATCHES);
    let broken = match worked {
        Ok(Ok(())) => return,
        Ok(Err((instance, error))) => Event::Broken(instance, error),
        Err(_) => Event::Broken(
            None,
            Error::new(
                ErrorCode::UserPanic,
                "the job's program panicked while it was made",
            )
            .hint("the panic's own message is in this container's log"),
        ),
    };
    let _ = events.send(broken);
}

/// Why the job can't go on here, and who is to blame.
type Broken = (Option<InstanceId>, Error);

struct Work<'a> {
    with: Deployer<'a>,
    metrics: &'a MetricsManager,
    active: Option<Active>,
    /// The life that is active, if the job has lives.
    living: Option<Living>,
    /// What instances of the life before have left, until the next one begins.
    legacy: Option<Legacy>,
    /// What was active of an earlier life, until nothing of it is left: it may have files and connections that the next one wants.
    former: Option<Active>,
    /// The life that can't go on here.
    failed: Option<Generation>,
    /// A change that could not be carried out yet, as an earlier one is under way.
    waiting: Option<(Change, Vec<InstanceId>)>,
    /// Asked for, and not known to be carried out.
    unsettled: Option<Order>,
    /// Carried out, and not known to have ended.
    running: Option<(Order, Vec<InstanceId>)>,
    leaving: Option<Leaving>,
    gauges: Gauges,
}

/// What runs.
struct Active {
    names: Names,
    /// The vertices whose instances have processes of their own.
    isolated: Vec<VertexId>,
    crossings: Arc<WorkerCrossings>,
    mail: PostOffice,
    deployment: Deployment,
}

/// How far what was read has flowed on.
struct Leaving {
    until: Instant,
    /// What all instances had read when it was looked at last.
    read: Option<u64>,
}

impl<'a> Work<'a> {
    fn new(with: Deployer<'a>, metrics: &'a MetricsManager) -> Self {
        Work {
            gauges: Gauges::new(&with),
            metrics,
            with,
            active: None,
            living: None,
            legacy: None,
            former: None,
            failed: None,
            waiting: None,
            unsettled: None,
            running: None,
            leaving: None,
        }
    }

    fn run(mut self, commands: &Receiver<Command>) -> Result<(), Broken> {
        let worked = self.obey(commands);
        if let Err((_, error)) = &worked {
            // The container ends with it: what was counted so far is told before.
            if let Some((vertex, instance)) = error.vertex() {
                self.with.failures.fails(vertex, instance, error.code());
            }
            self.gauges.be_due();
            self.tell_metrics();
        }
        worked
    }

    fn obey(&mut self, commands: &Receiver<Command>) -> Result<(), Broken> {
        loop {
            match commands.recv_timeout(self.rest()) {
                Ok(Command::Apply { change, instances }) => {
                    self.waiting = Some((change, instances));
                }
                Ok(Command::Epochs(generation, action)) => self.in_epochs(generation, action),
                Ok(Command::PeerLost) => {
                    if let Some(active) = &self.active {
                        active.mail.process_lost();
                        self.with.processes.tell_all(&ToInstance::Lost);
                    }
                }
                Ok(Command::InstanceLost(site)) => {
                    if let Some(active) = &self.active {
                        active.instance_lost(site);
                    }
                }
                Ok(Command::Leave) => self.leave(),
                Ok(Command::Look) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.look_around()?;
        }
    }

    fn rest(&self) -> Duration {
        let is_busy = self.waiting.is_some() || self.leaving.is_some();
        let longest = if is_busy { TRY_EVERY } else { LOOK_EVERY };
        self.gauges.due_in().min(longest)
    }

    fn look_around(&mut self) -> Result<(), Broken> {
        if let Some((change, instances)) = self.waiting.take() {
            match self.ends_former_life(&change) {
                true => self.waiting = Some((change, instances)),
                false => self.change(change, instances)?,
            }
        }
        if let (Some(living), Some(active)) = (&mut self.living, &self.active) {
            living.end_if_due(&active.deployment);
        }
        self.tell_settled();
        self.tell_failures();
        self.tell_status()?;
        self.look_whether_quiet();
        self.tell_metrics();
        Ok(())
    }

    fn tell_metrics(&mut self) {
        let processes = &self.with.processes;
        let view = self.active.as_ref().map(|active| active.view(processes));
        if let Some(batch) = self.gauges.read_if_due(view, self.metrics) {
            self.tell(match batch {
                Ok(batch) => Event::Metrics(batch),
                Err(error) => Event::Unmeasured(error),
            });
        }
        for trouble in self.metrics.new_troubles() {
            self.tell(Event::SinkTrouble(trouble));
        }
    }

    fn tell(&self, event: Event) {
        let _ = self.with.events.send(event);
    }

    /// Carries out a change, or keeps it for later.
    fn change(&mut self, change: Change, instances: Vec<InstanceId>) -> Result<(), Broken> {
        let life = change.life.map(|life| life.generation);
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
            Err(error) if change.life.is_some() => {
                self.fail_life(change.life, &error);
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
            // Without instances there may be records for those that were here: others would hold them until somebody takes them.
            if instances.is_empty() && !is_placed(change, self.with.here) {
                self.legacy = None;
                return Ok(());
            }
            self.begin_life(change, instances)?;
            let active = self.deploy(change, instances, members)?;
            if let Some(living) = &mut self.living {
                living.begun(&active.deployment);
            }
            self.active = Some(active);
        } else if let Some(active) = &mut self.active {
            self.with.processes.rescaled(&parallelisms(&change.routes));
            let layout = layout(&active.names, change, instances, self.with.here)?;
            active.deployment.rewire(layout)?;
            active.place(change, instances, members, &self.with)?;
        }
        if let (Some(active), Some(living)) = (&self.active, &mut self.living)
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

    /// Makes the job's graph, and starts what is to run here.
    fn deploy(
        &mut self,
        change: &Change,
        instances: &[InstanceId],
        members: BTreeSet<Site>,
    ) -> Result<Active> {
        self.with.processes.rescaled(&parallelisms(&change.next));
        let program = self.with.job.program(&parallelisms(&change.next))?;
        let names = Names::of(&program.dag)?;
        let living = self.living.as_mut();
        let config = StreamConfig {
            life: living.as_ref().map(|living| living.generation()),
            ..StreamConfig::default()
        };
        let network = self.with.network.clone();
        let crossings = Arc::new(WorkerCrossings::new(&program.dag, network, config));
        let (dag, isolated) = self.with.processes.stand_in(&program.dag, &crossings)?;
        let mail = PostOffice::new(
            &self.with.name,
            program.side_channels,
            Arc::clone(&crossings),
        );
        let layout = layout(&names, change, instances, self.with.here)?;
        let ends: Arc<dyn Crossings> = Arc::<WorkerCrossings>::clone(&crossings);
        let config = JobConfig {
            dead_letters: Arc::clone(&self.with.dead_letters),
            on_failure: match (program.may_lose_instances, self.with.instance_restarts) {
                (false, _) | (_, 0) => OnInstanceFailure::FailJob,
                // What one has lost, all have to go back behind.
                _ if living.is_some() => OnInstanceFailure::FailJob,
                (true, at_most) => OnInstanceFailure::Restart { at_most },
            },
            guarantee: living
                .as_ref()
                .map(|living| living.guarantee())
                .unwrap_or_default(),
            cuts: living
                .map(|living| living.cuts(&program.dag, instances))
                .unwrap_or_default(),
            ..JobConfig::named(&self.with.name)
        };
        let deployment = self
            .with
            .node
            .deploy(&dag, config, layout, ends, Begin::Paused)?;
        deployment.when_changed(self.with.look.clone());
        // A change may have been carried out before anybody listened: it looks around anyway, now and then.
        let mut active = Active {
            names,
            isolated,
            crossings,
            mail,
            deployment,
        };
        active.place(change, instances, members, &self.with)?;
        Ok(active)
    }

    fn tell_settled(&mut self) {
        let is_settled = self
            .active
            .as_ref()
            .is_none_or(|active| active.deployment.is_settled());
        let is_restored = self.living.as_ref().is_none_or(Living::is_restored);
        if self.waiting.is_none()
            && is_settled
            && is_restored
            && let Some(order) = self.unsettled.take()
        {
            self.tell(Event::Applied(order));
        }
    }

    /// Instances that have failed are made anew by the engine: what was lost with them has to come again, and the master hears of it.
    fn tell_failures(&self) {
        let Some(active) = &self.active else { return };
        let failures = &self.with.failures;
        for failure in active.deployment.handle().take_failures() {
            for vertex in &failure.vertices {
                failures.restarts(vertex, failure.instance);
                if let Ok(id) = active.names.vertex(vertex) {
                    active.mail.instance_lost(id);
                }
            }
            let first = failure.vertices.first().map_or("", |name| name);
            let (vertex, instance) = failure.error.vertex().unwrap_or((first, failure.instance));
            failures.fails(vertex, instance, failure.error.code());
            let why = failure.error.to_string();
            self.tell(Event::Failed(InstanceId::new(vertex, instance), why));
        }
    }

    fn tell_status(&mut self) -> Result<(), Broken> {
        let status = self
            .active
            .as_ref()
            .map(|active| active.deployment.status());
        if let Some(JobStatus::Failed(error)) = &status {
            if self.ends_with_life(error) {
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
            self.tell(Event::Ended(order));
        }
        Ok(())
    }

    /// Asked to end: sources stop reading, and what was read flows on to where it is going. The job is not told that its input has ended,
    /// for it has not: this container may be started again.
    fn leave(&mut self) {
        if let Some(active) = &self.active {
            active.deployment.pause();
        }
        self.leaving = Some(Leaving {
            until: Instant::now() + self.with.leave_within,
            read: None,
        });
    }

    fn look_whether_quiet(&mut self) {
        let read = self.active.as_ref().map_or(0, Active::records);
        let Some(leaving) = &mut self.leaving else {
            return;
        };
        let is_quiet = leaving.read.replace(read) == Some(read);
        if is_quiet || self.active.is_none() || Instant::now() >= leaving.until {
            self.tell(Event::Quiet);
        }
    }
}

impl Active {
    /// Has the mail carried to where instances are.
    fn place(
        &mut self,
        change: &Change,
        instances: &[InstanceId],
        mut members: BTreeSet<Site>,
        with: &Deployer<'_>,
    ) -> Result<()> {
        let names = &self.names;
        let routes = names.placement(&change.routes, with.here)?;
        let run: Vec<InstanceAt> = instances
            .iter()
            .map(|id| names.instance(id))
            .collect::<Result<_>>()?;
        let (placement, own) = with_processes(
            &routes,
            names.count(),
            names.vertices(),
            &run,
            &self.isolated,
        )?;
        members.extend(own);
        self.mail.place(&placement, &members, with.node)
    }

    /// The process of an instance was lost.
    fn instance_lost(&self, site: Site) {
        let mut vertices = self.names.vertices();
        if let Some(id) = vertices.find(|id| id.index() == vertex_at(site)) {
            self.mail.instance_lost(id);
        }
    }

    /// What all instances have read and written so far.
    fn records(&self) -> u64 {
        let instances = self.deployment.instances().into_iter();
        instances
            .map(|it| it.metrics.records_in + it.metrics.records_out)
            .sum()
    }

    fn view<'a>(&'a self, processes: &'a InstanceProcesses) -> View<'a> {
        View {
            deployment: &self.deployment,
            crossings: &self.crossings,
            mail: &self.mail,
            processes,
        }
    }
}

/// What is counted.
pub(crate) struct View<'a> {
    pub(crate) deployment: &'a Deployment,
    pub(crate) crossings: &'a WorkerCrossings,
    pub(crate) mail: &'a PostOffice,
    processes: &'a InstanceProcesses,
}

impl View<'_> {
    /// The instances that have processes of their own, and the numbers of these.
    pub(crate) fn processes(&self) -> Vec<(InstanceId, Option<u32>)> {
        self.processes.numbers()
    }

    /// What became of the messages of this container's instances, wherever they run; those of one may come in parts.
    pub(crate) fn messages(&self) -> Vec<MessageReport> {
        let mut messages = self.mail.messages();
        messages.extend(self.processes.messages());
        messages
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

/// Whether records may be routed here by any plan.
fn is_placed(change: &Change, here: ContainerId) -> bool {
    let plans = [&change.routes, &change.next, &change.last];
    plans.iter().any(|plan| plan.container(here).is_some())
}

fn blamed(error: &Error) -> Option<InstanceId> {
    let (vertex, instance) = error.vertex()?;
    Some(InstanceId::new(vertex, instance))
}
