//! Decisions: what is written down before it is done, and the commands of users.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{PackingPlan, VertexName};

use super::record_keeper::Kept;
use super::scheduler_desk::Subject;
use super::{Command, CommandId, Ending, JobMaster, JobPhase, MasterAction, Note, SchedulerCall};
use crate::control::{
    Intent, JobRecord, PlanVersion, Previous, Refused, Scaling, ScalingAction, ScalingEvent,
    Upgrade,
};

/// The most commands that wait for their turn.
const MOST_COMMANDS: usize = 64;

impl JobMaster {
    pub(super) fn killing(&self) -> bool {
        self.ending != Ending::No
    }

    /// Something has come of the stored record.
    pub(super) fn kept(&mut self, now: Duration, kept: Kept, actions: &mut Vec<MasterAction>) {
        match kept {
            Kept::Read => self.take_over(actions),
            Kept::Stored => {
                self.not_stored = None;
                if let Some(command) = self.deciding.take() {
                    actions.push(MasterAction::Reply(command, Ok(())));
                }
                self.act_on_record(now, actions);
            }
            Kept::Gone => {
                self.ending = Ending::Over;
                let refused = match self.gives_way() {
                    true => self.busy(self.how_it_ends()),
                    false => Refused::NoSuchJob(self.job.to_string()),
                };
                for command in self.open_commands() {
                    actions.push(MasterAction::Reply(command, Err(refused.clone())));
                }
                actions.push(MasterAction::JobGone);
            }
            Kept::Refused(refused) => match self.deciding.take() {
                Some(command) => actions.push(MasterAction::Reply(command, Err(refused))),
                None => self.not_stored = Some(refused.to_string()),
            },
            Kept::Doubtful(why) => match self.deciding.take() {
                Some(command) => {
                    let doubtful = Refused::doubtful(&why);
                    actions.push(MasterAction::Reply(command, Err(doubtful)));
                }
                None => self.not_stored = Some(why.to_string()),
            },
            Kept::Superseded(newest) => self.step_down(newest, actions),
        }
    }

    /// The first thing a master does is to write the record, with a plan if there is none: from then on no earlier master can.
    fn take_over(&mut self, actions: &mut Vec<MasterAction>) {
        let Some(mut record) = self.keeper.record().cloned() else {
            return;
        };
        if record.plan.is_none() && !record.is_ending() {
            match self.manager.pack(&record.demand, &record.packing) {
                Ok(plan) => {
                    record.plan = Some(Arc::new(self.sized(plan)));
                    record.plan_version = PlanVersion(1);
                    if self.not_stored.is_none() {
                        actions.push(MasterAction::Note(Note::Packed(record.plan_version)));
                    }
                }
                Err(error) => self.impossible = Some(error.to_string()),
            }
        }
        self.keeper.propose(record);
    }

    /// One size of containers, if the scheduler knows no other.
    fn sized(&self, plan: PackingPlan) -> PackingPlan {
        match self.config.scheduler.homogeneous {
            true => plan.homogeneous(),
            false => plan,
        }
    }

    /// The stored record is another one: does what follows from it.
    fn act_on_record(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let Some(record) = self.keeper.record().cloned() else {
            return;
        };
        if record.is_ending() {
            if self.ending == Ending::No {
                self.begin_to_end(now, actions);
            }
            return;
        }
        let Some(plan) = &record.plan else {
            return;
        };
        if let Some(config) = self.config.epochs {
            self.act_on_record_of_lives(now, config);
            return self.settle_all(now, actions);
        }
        let first = self.containers.is_empty();
        match (&record.previous, &mut self.scaling) {
            (Some(previous), scaling)
                if scaling.as_ref().map(Scaling::next) != Some(record.plan_version) =>
            {
                let last = (previous.version, Arc::clone(&previous.plan));
                let next = (record.plan_version, Arc::clone(plan));
                self.scaling = Some(Scaling::new(last, next, previous.switched));
                self.have_containers(now, first);
            }
            (Some(previous), Some(scaling)) if previous.switched => {
                scaling.on(ScalingEvent::SwitchWritten);
            }
            (None, Some(_)) => {
                self.scaling = None;
                self.have_containers(now, false);
            }
            // A record that was started by another master: its workers are there, and will come.
            (None, None) if first => self.have_containers(now, record.started),
            _ => {}
        }
        self.settle_all(now, actions);
    }

    /// The job ends, because it was killed or has finished: has everything stopped, and removed after that.
    fn begin_to_end(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        self.ending = Ending::Stopping;
        self.scaling = None;
        if let Some(mut lives) = self.lives.take() {
            for command in lives.epochs.open_commands() {
                let refused = self.busy(self.how_it_ends());
                actions.push(MasterAction::Reply(command, Err(refused)));
            }
        }
        for command in std::mem::take(&mut self.restarting).into_values() {
            let refused = self.busy(self.how_it_ends());
            actions.push(MasterAction::Reply(command, Err(refused)));
        }
        for (id, command) in std::mem::take(&mut self.commands) {
            self.take_command(id, command, actions);
        }
        let containers: Vec<_> = self.containers.keys().copied().collect();
        for id in &containers {
            self.desk.forget(Subject::Container(*id));
            self.settle(now, *id, actions);
        }
        let order = self.next_order();
        self.desk.ask(Subject::Job, order, SchedulerCall::Kill);
    }

    /// Decides what is due to be decided, if nothing is being written.
    pub(super) fn decide(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        if !self.keeper.is_busy() && self.killing() {
            return self.decide_end(actions);
        }
        while !self.keeper.is_busy() && self.ending == Ending::No {
            // Its first write was refused: until it has written it leads nobody.
            if self
                .record()
                .is_some_and(|record| record.epoch != self.epoch)
            {
                return self.take_over(actions);
            }
            if let Some((id, command)) = self.commands.pop_front() {
                let command = self.command_epochs(now, id, command, actions);
                if let Some(reply) = command.and_then(|command| self.command(id, command)) {
                    actions.push(MasterAction::Reply(id, reply));
                }
                continue;
            }
            if self.decide_upgrade(now, actions) {
                return;
            }
            if self.decide_return(now, actions) || self.decide_moves(actions) {
                return;
            }
            if self.lives.is_some() {
                return self.decide_lives();
            }
            if !self.unsettled.is_empty() || self.plan().is_none() {
                return;
            }
            let Some(mut record) = self.keeper.record().cloned() else {
                return;
            };
            if !record.started {
                record.started = true;
                self.keeper.propose(record);
                return;
            }
            if self.has_finished() {
                record.finished = true;
                self.keeper.propose(record);
                return;
            }
            if !self.advance_scaling(now, actions) {
                return;
            }
        }
    }

    /// The record of a job that ends is removed when nothing runs any more. One that gives way may be killed after all, as long as no
    /// other has taken its place: perhaps none can.
    fn decide_end(&mut self, actions: &mut Vec<MasterAction>) {
        if self.gives_way()
            && let Some((id, _)) = self.commands.pop_front()
            && let Some(mut record) = self.keeper.record().cloned()
        {
            record.intent = Intent::Kill;
            self.deciding = Some(id);
            return self.keeper.propose(record);
        }
        for (id, command) in std::mem::take(&mut self.commands) {
            self.take_command(id, command, actions);
        }
        if self.ending == Ending::Deleting {
            self.keeper.delete();
        }
    }

    /// Whether every worker has said that all it has to run has ended, while none is missing and no plan is being changed.
    pub(super) fn has_finished(&self) -> bool {
        let all = !self.containers.is_empty() && self.ended.len() == self.containers.len();
        all && self.scaling.is_none() && self.unsettled.is_empty()
    }

    fn how_it_ends(&self) -> &'static str {
        if self.gives_way() {
            return "being upgraded";
        }
        let finished = self.keeper.record().is_some_and(|record| record.finished);
        if finished { "finished" } else { "being killed" }
    }

    /// Everybody does what the stage asks of them: goes on to the next. Whether something else may be due now.
    fn advance_scaling(&mut self, now: Duration, actions: &mut Vec<MasterAction>) -> bool {
        let waiting = match &self.scaling {
            Some(scaling) => scaling.is_waiting(self.may_run(), self.holding()),
            None => true,
        };
        // Containers that are given back have to be given back before the job is said to be updated.
        if waiting || self.desk.is_waiting(Subject::Job) {
            return false;
        }
        let (Some(scaling), Some(mut record)) = (&mut self.scaling, self.keeper.record().cloned())
        else {
            return false;
        };
        match scaling.on(ScalingEvent::Settled) {
            ScalingAction::WriteSwitch => {
                if let Some(previous) = &mut record.previous {
                    previous.switched = true;
                }
                self.keeper.propose(record);
            }
            ScalingAction::Enter(_) => {
                self.have_containers(now, false);
                self.settle_all(now, actions);
            }
            ScalingAction::WriteDone => {
                record.previous = None;
                self.keeper.propose(record);
            }
        }
        true
    }

    /// A command has come: it waits for its turn.
    pub(super) fn take_command(
        &mut self,
        id: CommandId,
        command: Command,
        actions: &mut Vec<MasterAction>,
    ) {
        let refused = match (&command, self.killing()) {
            // It is being done already.
            (Command::Kill, true) if !self.gives_way() => {
                return actions.push(MasterAction::Reply(id, Ok(())));
            }
            (Command::Kill, true) if self.commands.len() < MOST_COMMANDS => {
                return self.commands.push_back((id, command));
            }
            (_, true) => self.busy(self.how_it_ends()),
            _ if self.commands.len() >= MOST_COMMANDS => self.busy("dealing with other commands"),
            _ => return self.commands.push_back((id, command)),
        };
        actions.push(MasterAction::Reply(id, Err(refused)));
    }

    /// Does what the command wants, or begins to: an answer, or none before it is stored or done.
    fn command(&mut self, id: CommandId, command: Command) -> Option<Result<(), Refused>> {
        let mut record = self.keeper.record()?.clone();
        let intent = match command {
            Command::Activate => Intent::Run,
            Command::Deactivate => Intent::Pause,
            Command::Kill => Intent::Kill,
            Command::Upgrade(order) => {
                let begun = self.begin_upgrade(&mut record, *order);
                return self.follow(id, record, begun);
            }
            // The conductor has been told.
            Command::Epochs(_) => return None,
            Command::Restart(container) => {
                return match self.restart(container) {
                    Ok(()) => {
                        self.restarting.insert(container, id);
                        None
                    }
                    Err(refused) => Some(Err(refused)),
                };
            }
            Command::Update(parallelism) => {
                let updated = self.update(&mut record, &parallelism);
                return self.follow(id, record, updated);
            }
            Command::Rescale(containers) => {
                let rescaled = self.rescale(&mut record, containers);
                return self.follow(id, record, rescaled);
            }
        };
        if record.intent == intent {
            return Some(Ok(()));
        }
        record.intent = intent;
        self.deciding = Some(id);
        self.keeper.propose(record);
        None
    }

    /// Stores the record, if it is another one: the command is answered then.
    fn follow(
        &mut self,
        id: CommandId,
        record: JobRecord,
        is_another: Result<bool, Refused>,
    ) -> Option<Result<(), Refused>> {
        match is_another {
            Ok(true) => {
                self.deciding = Some(id);
                self.keeper.propose(record);
                None
            }
            Ok(false) => Some(Ok(())),
            Err(refused) => Some(Err(refused)),
        }
    }

    /// The plan that another one may follow now.
    pub(super) fn plan_to_follow(&self, record: &JobRecord) -> Result<Arc<PackingPlan>, Refused> {
        if self.scaling.is_some() || record.previous.is_some() {
            return Err(self.busy_with_update());
        }
        if record.upgrade.as_ref().is_some_and(Upgrade::is_under_way) {
            return Err(self.busy("being upgraded"));
        }
        let plan = record.plan.as_ref().filter(|_| record.started);
        plan.map(Arc::clone)
            .ok_or_else(|| self.busy("being started"))
    }

    /// Puts the next plan into the record.
    pub(super) fn put_next(
        &self,
        record: &mut JobRecord,
        plan: Arc<PackingPlan>,
        next: PackingPlan,
    ) {
        record.previous = Some(Previous {
            plan,
            version: record.plan_version,
            switched: false,
        });
        record.plan_version.0 += 1;
        record.plan = Some(Arc::new(next));
    }

    /// Puts a plan of so many containers into the record; whether it is another one.
    fn rescale(&self, record: &mut JobRecord, containers: NonZeroU32) -> Result<bool, Refused> {
        if self.can_take_back(record) && record.is_rescaled_from(containers) {
            record.take_back();
            return Ok(true);
        }
        let plan = self.plan_to_follow(record)?;
        let next = self
            .manager
            .spread_over(&plan, &record.packing, containers)
            .map_err(|error| Refused::impossible(&error))?;
        let most = next.containers().len();
        if most != containers.get() as usize {
            let message = format!(
                "{containers} workers are too many: with what has to stay together, its instances can be in {most}"
            );
            let hint = format!("ask for up to {most} workers, or for more instances first");
            return Err(Refused::Impossible {
                resources: false,
                message,
                hint: Some(hint),
            });
        }
        let next = self.sized(next);
        if next == *plan {
            return Ok(false);
        }
        // What is added later is spread over as many.
        record.packing.containers = Some(containers);
        self.put_next(record, plan, next);
        Ok(true)
    }

    /// Puts the next plan into the record; whether it is another one.
    fn update(
        &self,
        record: &mut JobRecord,
        parallelism: &BTreeMap<VertexName, u32>,
    ) -> Result<bool, Refused> {
        let busy = self.plan_to_follow(record);
        let wanted = parallelism.iter();
        let demand = record
            .demand
            .rescaled(wanted.map(|(vertex, count)| (vertex.as_str(), *count)));
        if self.can_take_back(record) && demand.as_ref().is_ok_and(|it| record.is_updated_from(it))
        {
            record.take_back();
            return Ok(true);
        }
        let (plan, demand) = (busy?, demand.map_err(|error| Refused::impossible(&error))?);
        if demand == record.demand {
            return Ok(false);
        }
        let limits = self.config.instances;
        limits
            .check(&demand, Some(&record.demand))
            .map_err(|error| Refused::impossible(&error))?;
        let next = self
            .manager
            .repack(&plan, &demand, &record.packing)
            .map_err(|error| Refused::impossible(&error))?;
        self.put_next(record, plan, self.sized(next));
        record.demand = demand;
        Ok(true)
    }

    /// An update is under way. In safe mode it is followed only when the job begins again.
    pub(super) fn busy_with_update(&self) -> Refused {
        self.busy(match &self.phase {
            JobPhase::SafeMode(_) => {
                "in safe mode, with an update that is followed when it begins again (recover)"
            }
            _ => "being updated",
        })
    }

    pub(super) fn busy(&self, doing: &str) -> Refused {
        Refused::Busy {
            job: self.job.to_string(),
            doing: doing.to_string(),
        }
    }

    /// The commands that have not been answered; none of them will be done by this master for sure.
    pub(super) fn open_commands(&mut self) -> Vec<CommandId> {
        let waiting = std::mem::take(&mut self.commands).into_iter();
        let restarting = std::mem::take(&mut self.restarting).into_values();
        let deciding = self.deciding.take().into_iter();
        let lives = self.lives.as_mut();
        let of_epochs = lives.map(|lives| lives.epochs.open_commands());
        waiting
            .map(|(id, _)| id)
            .chain(restarting)
            .chain(deciding)
            .chain(of_epochs.into_iter().flatten())
            .collect()
    }
}

impl JobPhase {
    /// Whether the job does what its user wants: it runs, or is paused, with all of its workers.
    pub fn is_steady(&self) -> bool {
        matches!(self, JobPhase::Running | JobPhase::Paused)
    }
}
