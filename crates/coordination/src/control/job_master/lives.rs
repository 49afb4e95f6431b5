//! The lives of a job with a guarantee: who takes part in one, when it has begun, and when it is over.
//!
//! `Epochs` conducts; this joins it to workers. A life goes through these stages:
//!
//! ```text
//! asked for   every worker that comes is told of it, and begins it; sources wait
//!    │        until all have carried that out: they are its participants
//! runs        sources read, epochs are committed
//!    │        until a worker is lost that is needed, or says that it can't go on, or another plan is to be followed
//! asked for   the next one
//! ```
//!
//! **In a life a container has one worker process.** One that comes later is told nothing before the next life, even if the life has not
//! begun yet: what others have sent to its predecessor would be missing in it, though they remember that they have sent it.
//!
//! **The plan of a life is that of its record** ([`EpochsRecord::plan`](crate::control::EpochsRecord::plan)), which is written with it. An update
//! first stores the next plan, and has its containers started while the present life goes on; when their workers are there, the
//! conductor is told of the plan. So whoever takes over knows by which plan the present life runs, and what comes next.
//! All of the job begins anew then: [`Scaling`](crate::control::Scaling), which moves only what moves, is for jobs without a guarantee. What of the state has to be
//! read again for that, and what is in memory still, is decided by each worker for itself.

mod taking_part;
mod upgrading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, PackingPlan};

use super::{JobMaster, JobPhase, MasterAction, Note};
use crate::control::{
    Command, CommandId, Epochs, EpochsAction, EpochsConfig, EpochsEvent, EpochsNote, EpochsOver,
    Generation, Intent, JobRef, LeftState, Life, MasterEpoch, PlanVersion, Refused, Run, ToWorker,
    WorkerId,
};

/// The conductor, and how far the life is that it has asked for.
#[derive(Debug)]
pub(super) struct Lives {
    pub(super) epochs: Epochs,
    stage: Stage,
    life: Option<Life>,
    /// Whether its sources are not to read until somebody decides.
    is_paused: bool,
    /// The worker of each container in this life, as soon as it has been told of it.
    participants: BTreeMap<ContainerId, WorkerId>,
    /// Containers whose worker is gone, and which the life does without: all there had ended.
    released: BTreeSet<ContainerId>,
    /// The plan that the life is arranged by.
    plan: Option<PlanVersion>,
    /// The plan that the conductor has been told of.
    arranged: Option<PlanVersion>,
    /// The plans whose containers the scheduler has been asked for.
    had: Option<(PlanVersion, Option<PlanVersion>)>,
    /// Whether the conductor has been told to stop the job, since another program is to follow.
    stops_for_upgrade: bool,
    /// Whether the job is to give way to the program before, which goes on from where it stopped: nothing is committed any more.
    is_condemned: bool,
    over: Option<EpochsOver>,
    /// When it is told who keeps the life from beginning, if that has not been told.
    late_at: Option<Duration>,
}

/// How long a life may take to begin before it is told whom it waits for.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// None has been asked for, or somebody has to decide.
    Idle,
    /// It is to begin.
    Beginning,
    /// It was begun under another master: its workers are expected until then.
    Resuming(Duration),
    /// All of its participants are there.
    Running,
}

impl Lives {
    pub(super) fn new(job: JobRef, master: MasterEpoch, config: EpochsConfig) -> Self {
        Lives {
            epochs: Epochs::new(job, master, config),
            stage: Stage::Idle,
            life: None,
            is_paused: false,
            participants: BTreeMap::new(),
            released: BTreeSet::new(),
            plan: None,
            arranged: None,
            had: None,
            stops_for_upgrade: false,
            is_condemned: false,
            over: None,
            late_at: None,
        }
    }

    /// Whether the present life runs by that plan, and the conductor has not been told of this one.
    pub(super) fn runs_by(&self, plan: PlanVersion, next: PlanVersion) -> bool {
        self.are_conducted() && self.plan == Some(plan) && self.arranged != Some(next)
    }

    fn generation(&self) -> Option<Generation> {
        self.life.map(|life| life.generation)
    }

    /// Whether anything may come of its epochs yet.
    fn are_conducted(&self) -> bool {
        self.over.is_none() && !self.is_condemned
    }

    /// Whether this worker may be told of the life.
    fn takes(&self, worker: WorkerId) -> bool {
        let known = self.participants.get(&worker.container);
        match (self.stage, known) {
            (Stage::Idle, _) | (Stage::Resuming(_) | Stage::Running, None) => false,
            (Stage::Beginning, None) => true,
            (_, Some(known)) => *known == worker,
        }
    }

    fn run(&self, intent: Intent) -> Run {
        let goes_on = self.life.is_some_and(|life| life.from.is_some());
        // While what it begins from can't be read it is tried again and again: sinks without exactly-once would show the same each time.
        let begins_early = goes_on && self.epochs.waits_because().is_none();
        let is_paused = self.is_paused || intent == Intent::Pause;
        match self.stage {
            Stage::Beginning if begins_early && !is_paused => Run::Early,
            Stage::Idle | Stage::Beginning => Run::Prepared,
            _ if is_paused => Run::Paused,
            Stage::Resuming(_) | Stage::Running => Run::Running,
        }
    }
}

impl JobMaster {
    /// What is known of the epochs of a job with a guarantee.
    pub fn epochs(&self) -> Option<&Epochs> {
        self.lives.as_ref().map(|lives| &lives.epochs)
    }

    /// The life that the job is in, or is to begin, if it has lives.
    pub fn life(&self) -> Option<Life> {
        self.lives.as_ref()?.life
    }

    /// The job's record is this master's, or another than before: has the containers of its plans, for a job with a guarantee.
    pub(super) fn act_on_record_of_lives(&mut self, now: Duration, config: EpochsConfig) {
        let Some(record) = self.keeper.record() else {
            return;
        };
        let previous = record.previous.as_ref();
        let plans = (
            record.plan_version,
            previous.map(|previous| previous.version),
        );
        let (job, epoch, started) = (self.job.clone(), self.epoch, record.started);
        let first = self.lives.is_none();
        let lives = self
            .lives
            .get_or_insert_with(|| Lives::new(job, epoch, config));
        if lives.had.replace(plans) != Some(plans) {
            self.have_containers(now, first && started);
        }
    }

    /// The plan that the present life is arranged by, if it is still stored.
    pub(super) fn plan_of_life(&self) -> Option<(PlanVersion, Arc<PackingPlan>)> {
        let version = self.lives.as_ref()?.plan?;
        let mut plans = self.known_plans().into_iter();
        plans.find(|(known, _)| *known == version)
    }

    /// Passes an event to the conductor, and does what follows.
    pub(super) fn conduct(
        &mut self,
        now: Duration,
        event: EpochsEvent,
        actions: &mut Vec<MasterAction>,
    ) {
        let Some(lives) = self.lives.as_mut().filter(|lives| lives.are_conducted()) else {
            return;
        };
        for action in lives.epochs.on(now, event) {
            self.led_by_epochs(now, action, actions);
        }
    }

    fn led_by_epochs(
        &mut self,
        now: Duration,
        action: EpochsAction,
        actions: &mut Vec<MasterAction>,
    ) {
        match action {
            EpochsAction::Record(id, request) => actions.push(MasterAction::Epochs(id, request)),
            EpochsAction::To(participant, message) => {
                let container = participant.container();
                let lives = self.lives.as_ref();
                let worker = lives.and_then(|lives| lives.participants.get(&container).copied());
                let present = worker.filter(|_| self.members.worker(container) == worker);
                actions.extend(present.map(|to| MasterAction::To(to, ToWorker::Epochs(message))));
            }
            EpochsAction::RollBack { paused, .. } => {
                self.enter_life(now, Stage::Beginning, paused, actions);
            }
            EpochsAction::Resume { .. } => {
                let until = now + self.config.recovery_grace;
                let record = self.epochs().and_then(Epochs::record);
                let paused = record.is_some_and(|record| record.is_paused());
                self.enter_life(now, Stage::Resuming(until), paused, actions);
            }
            EpochsAction::Keep(needed) => actions.push(MasterAction::Keep(needed)),
            EpochsAction::Reply(upgrading::STOPS, reply) => {
                if let Some(lives) = &mut self.lives {
                    lives.stops_for_upgrade = reply.is_ok();
                }
            }
            EpochsAction::Reply(id, reply) => {
                let reply = reply.map(drop).map_err(|not_done| not_done.into());
                actions.push(MasterAction::Reply(id, reply));
            }
            EpochsAction::Note(note) => {
                match &note {
                    EpochsNote::Down(_) => {
                        if let Some(lives) = &mut self.lives {
                            lives.stage = Stage::Idle;
                        }
                    }
                    // It is asked again all the same: somebody may restore what is gone.
                    EpochsNote::RecordRefused(why) if why.is_for_good() => {
                        self.stillborn = Some(format!("{why}; {}", why.hint()));
                    }
                    _ => {}
                }
                actions.push(MasterAction::Note(Note::Epochs(note)));
            }
            EpochsAction::Over(over) => self.epochs_are_over(over, actions),
        }
    }

    fn epochs_are_over(&mut self, over: EpochsOver, actions: &mut Vec<MasterAction>) {
        match &over {
            EpochsOver::Superseded(newest) => self.step_down(*newest, actions),
            EpochsOver::Gone => {
                let why = "what is stored of its epochs has been removed";
                self.impossible = Some(why.to_string());
            }
            EpochsOver::Finished | EpochsOver::Stopped => {}
        }
        if let Some(lives) = &mut self.lives {
            lives.over = Some(over);
        }
    }

    /// The life of the record is the one that everybody is to be in.
    fn enter_life(
        &mut self,
        now: Duration,
        stage: Stage,
        is_paused: bool,
        actions: &mut Vec<MasterAction>,
    ) {
        let Some(lives) = &mut self.lives else {
            return;
        };
        lives.stage = stage;
        lives.is_paused = is_paused;
        lives.late_at = (stage == Stage::Beginning).then(|| now + BEGINS_WITHIN);
        let record = lives.epochs.record();
        lives.life = record.map(|record| record.life());
        lives.plan = record.map(|record| record.plan);
        lives.participants.clear();
        let was_released = std::mem::take(&mut lives.released);
        if let Stage::Resuming(_) = stage {
            let present = lives.generation();
            let workers = self.workers.values();
            let held = workers.filter(|worker| worker.lives_in(present));
            lives.participants = held
                .map(|worker| (worker.id().container, worker.id()))
                .collect();
        }
        if self.plan_of_life().is_none() {
            let version = self.lives.as_ref().and_then(|lives| lives.plan);
            self.impossible = Some(format!("the plan {version:?} of its life is not stored"));
            return;
        }
        self.arrange_containers();
        for container in was_released {
            if !self.workers.contains_key(&container) {
                self.expect_again(now, container, actions);
            }
        }
        self.settle_all(now, actions);
    }

    /// Tells the conductor of the newest plan, when that can be followed: all of its containers have workers.
    pub(super) fn follow_plan(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let (Some(lives), Some(record)) = (&self.lives, self.keeper.record()) else {
            return;
        };
        let Some(plan) = record.plan.as_ref() else {
            return;
        };
        let version = record.plan_version;
        // What is just being taken back is followed by nobody.
        if lives.arranged == Some(version) || self.keeper.is_changing_plans() {
            return;
        }
        let follows = match &record.previous {
            None => true,
            Some(_) => {
                let mut containers = plan.containers().iter();
                let are_there = containers.all(|it| self.workers.contains_key(&it.id));
                are_there && !self.waits_for_scheduler()
            }
        };
        if follows {
            if let Some(lives) = &mut self.lives {
                lives.arranged = Some(version);
            }
            self.conduct(now, EpochsEvent::Arranged(version), actions);
        }
    }

    /// Decides what is due of a job with lives, when nothing of its own record is being written.
    pub(super) fn decide_lives(&mut self) {
        let (Some(lives), Some(record)) = (&self.lives, self.keeper.record()) else {
            return;
        };
        let mut next = record.clone();
        // It is written in the conductor's record that no life will ever run by the plan before.
        let is_followed = lives.plan == Some(record.plan_version);
        if is_followed && next.previous.is_some() {
            next.previous = None;
        } else if matches!(lives.over, Some(EpochsOver::Finished | EpochsOver::Stopped)) {
            next.finished = true;
            if lives.over == Some(EpochsOver::Stopped) {
                let state = lives.epochs.record().and_then(LeftState::of);
                next.upgrade = next.upgrade.map(|upgrade| upgrade.left(state));
            }
        } else if lives.stage == Stage::Running {
            next.started = true;
        }
        if next != *record {
            self.keeper.propose(next);
        }
    }

    /// What the job is doing, as far as its lives say.
    pub(super) fn phase_of_life(&self) -> Option<JobPhase> {
        let (lives, record) = (self.lives.as_ref()?, self.keeper.record()?);
        let is_whole = || !lives.epochs.is_between_lives() && !self.is_worker_missing();
        let of_epochs = lives.epochs.record();
        if let Some(why) = of_epochs.and_then(|epochs| epochs.safe_mode.as_ref()) {
            return Some(JobPhase::SafeMode(why.to_string()));
        }
        Some(match lives.stage {
            _ if record.plan.is_none() || !record.started => JobPhase::Starting,
            _ if record.previous.is_some() => JobPhase::Updating,
            Stage::Running if is_whole() && (lives.is_paused || record.intent == Intent::Pause) => {
                JobPhase::Paused
            }
            Stage::Running if is_whole() => JobPhase::Running,
            _ => JobPhase::Recovering,
        })
    }

    /// Why its first life can't begin, if that is so: of one that has begun there is a record.
    pub(super) fn stillborn(&self) -> Option<&String> {
        let has_record = self
            .epochs()
            .is_some_and(|epochs| epochs.record().is_some());
        self.stillborn.as_ref().filter(|_| !has_record)
    }

    /// Whether no other life follows the present one.
    pub(super) fn are_lives_over(&self) -> bool {
        let lives = self.lives.as_ref();
        lives.is_some_and(|lives| lives.over.is_some() || lives.is_condemned)
    }

    /// Whether the present life runs, by the newest plan.
    pub(super) fn is_life_settled(&self) -> bool {
        self.lives.as_ref().is_none_or(|lives| {
            let newest = self.keeper.record().map(|record| record.plan_version);
            lives.stage == Stage::Running && lives.plan == newest
        })
    }

    /// A person wants something of the job's epochs.
    pub(super) fn command_epochs(
        &mut self,
        now: Duration,
        id: CommandId,
        command: Command,
        actions: &mut Vec<MasterAction>,
    ) -> Option<Command> {
        let Command::Epochs(wanted) = command else {
            return Some(command);
        };
        match &self.lives {
            Some(lives) if lives.are_conducted() => {
                self.conduct(now, EpochsEvent::Command(id, wanted), actions);
            }
            Some(lives) if lives.is_condemned => {
                let refused = self.busy("being upgraded");
                actions.push(MasterAction::Reply(id, Err(refused)));
            }
            _ => {
                let refused = Refused::no_epochs(&self.job);
                actions.push(MasterAction::Reply(id, Err(refused)));
            }
        }
        None
    }
}
