//! The decisions of a job master, which are stored before they are executed, and the commands of
//! users.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{PackingPlan, VertexName};

use super::record_store::WriteOutcome;
use super::scheduler_calls::Subject;
use super::{
    Command, CommandId, JobMaster, JobPhase, MasterAction, MasterStatus, SchedulerCall,
    ShutdownPhase,
};
use crate::control::{
    DesiredState, JobRecord, PlanVersion, Previous, Rejection, Scaling, ScalingAction,
    ScalingEvent, Upgrade,
};

/// The maximum number of queued commands.
const MOST_COMMANDS: usize = 64;

impl JobMaster {
    pub(super) fn killing(&self) -> bool {
        self.ending != ShutdownPhase::No
    }

    /// Handles the outcome of a request about the stored record.
    pub(super) fn record_outcome(
        &mut self,
        now: Duration,
        kept: WriteOutcome,
        actions: &mut Vec<MasterAction>,
    ) {
        match kept {
            WriteOutcome::Read => self.take_over(actions),
            WriteOutcome::Stored => {
                self.not_stored = None;
                if let Some(command) = self.deciding.take() {
                    actions.push(MasterAction::Reply(command, Ok(())));
                }
                self.act_on_record(now, actions);
            }
            WriteOutcome::Gone => {
                self.ending = ShutdownPhase::Over;
                let refused = match self.is_being_replaced() {
                    true => self.busy(self.how_it_ends()),
                    false => Rejection::NoSuchJob(self.job.to_string()),
                };
                for command in self.open_commands() {
                    actions.push(MasterAction::Reply(command, Err(refused.clone())));
                }
                actions.push(MasterAction::JobGone);
            }
            WriteOutcome::Refused(refused) => match self.deciding.take() {
                Some(command) => actions.push(MasterAction::Reply(command, Err(refused))),
                None => self.not_stored = Some(refused.to_string()),
            },
            WriteOutcome::Doubtful(why) => match self.deciding.take() {
                Some(command) => {
                    let doubtful = Rejection::doubtful(&why);
                    actions.push(MasterAction::Reply(command, Err(doubtful)));
                }
                None => self.not_stored = Some(why.to_string()),
            },
            WriteOutcome::Superseded(newest) => self.step_down(newest, actions),
        }
    }

    /// Writes the record, and packs the job first if the record has no plan. This is the first
    /// action of a master; afterwards no earlier master can write.
    fn take_over(&mut self, actions: &mut Vec<MasterAction>) {
        let Some(mut record) = self.record_store.record().cloned() else {
            return;
        };
        if record.plan.is_none() && !record.is_ending() {
            match self.manager.pack(&record.demand, &record.packing) {
                Ok(plan) => {
                    record.plan = Some(Arc::new(self.sized(plan)));
                    record.plan_version = PlanVersion(1);
                    if self.not_stored.is_none() {
                        actions.push(MasterAction::Note(MasterStatus::Packed(
                            record.plan_version,
                        )));
                    }
                }
                Err(error) => self.impossible = Some(error.to_string()),
            }
        }
        self.record_store.propose(record);
    }

    /// Returns the plan, with all containers of the same size if the scheduler requires this.
    fn sized(&self, plan: PackingPlan) -> PackingPlan {
        match self.config.scheduler.homogeneous {
            true => plan.homogeneous(),
            false => plan,
        }
    }

    /// Executes the consequences of a changed record.
    fn act_on_record(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let Some(record) = self.record_store.record().cloned() else {
            return;
        };
        if record.is_ending() {
            if self.ending == ShutdownPhase::No {
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
            // If an earlier master has started the job, the job's workers are running and will
            // register.
            (None, None) if first => self.have_containers(now, record.started),
            _ => {}
        }
        self.settle_all(now, actions);
    }

    /// Ends a job that was killed or has finished: stops all containers, then removes the record.
    fn begin_to_end(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        self.ending = ShutdownPhase::Stopping;
        self.scaling = None;
        if let Some(mut lives) = self.attempts.take() {
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
            self.scheduler_calls.forget(Subject::Container(*id));
            self.settle(now, *id, actions);
        }
        let order = self.next_order();
        self.scheduler_calls
            .ask(Subject::Job, order, SchedulerCall::Kill);
    }

    /// Makes the decisions that are due, unless a write of the record is pending.
    pub(super) fn decide(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        if !self.record_store.is_busy() && self.killing() {
            return self.decide_end(actions);
        }
        while !self.record_store.is_busy() && self.ending == ShutdownPhase::No {
            // The first write was refused: a master does not act before it has written.
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
            if self.attempts.is_some() {
                return self.decide_attempts();
            }
            if !self.unsettled.is_empty() || self.plan().is_none() {
                return;
            }
            let Some(mut record) = self.record_store.record().cloned() else {
                return;
            };
            if !record.started {
                record.started = true;
                self.record_store.propose(record);
                return;
            }
            if self.has_finished() {
                record.finished = true;
                self.record_store.propose(record);
                return;
            }
            if !self.advance_scaling(now, actions) {
                return;
            }
        }
    }

    /// Removes the record of an ending job when no container runs any more. If another job replaces
    /// this one, it can still be killed until the replacement is stored, since the replacement may
    /// fail.
    fn decide_end(&mut self, actions: &mut Vec<MasterAction>) {
        if self.is_being_replaced()
            && let Some((id, _)) = self.commands.pop_front()
            && let Some(mut record) = self.record_store.record().cloned()
        {
            record.intent = DesiredState::Kill;
            self.deciding = Some(id);
            return self.record_store.propose(record);
        }
        for (id, command) in std::mem::take(&mut self.commands) {
            self.take_command(id, command, actions);
        }
        if self.ending == ShutdownPhase::Deleting {
            self.record_store.delete();
        }
    }

    /// Returns true if all workers have reported the completion of their instances, no worker is
    /// missing, and no change of plans is pending.
    pub(super) fn has_finished(&self) -> bool {
        let all = !self.containers.is_empty() && self.ended.len() == self.containers.len();
        all && self.scaling.is_none() && self.unsettled.is_empty()
    }

    fn how_it_ends(&self) -> &'static str {
        if self.is_being_replaced() {
            return "being upgraded";
        }
        let finished = self
            .record_store
            .record()
            .is_some_and(|record| record.finished);
        if finished { "finished" } else { "being killed" }
    }

    /// Continues to the next stage of a change of plans when all workers have reached the current
    /// one. Returns true if further decisions may be due.
    fn advance_scaling(&mut self, now: Duration, actions: &mut Vec<MasterAction>) -> bool {
        let waiting = match &self.scaling {
            Some(scaling) => scaling.is_waiting(self.may_run(), self.holding()),
            None => true,
        };
        // Surplus containers must be released before the update counts as done.
        if waiting || self.scheduler_calls.is_waiting(Subject::Job) {
            return false;
        }
        let (Some(scaling), Some(mut record)) =
            (&mut self.scaling, self.record_store.record().cloned())
        else {
            return false;
        };
        match scaling.on(ScalingEvent::Settled) {
            ScalingAction::WriteSwitch => {
                if let Some(previous) = &mut record.previous {
                    previous.switched = true;
                }
                self.record_store.propose(record);
            }
            ScalingAction::Enter(_) => {
                self.have_containers(now, false);
                self.settle_all(now, actions);
            }
            ScalingAction::WriteDone => {
                record.previous = None;
                self.record_store.propose(record);
            }
        }
        true
    }

    /// Queues a user's command, or answers it with a rejection.
    pub(super) fn take_command(
        &mut self,
        id: CommandId,
        command: Command,
        actions: &mut Vec<MasterAction>,
    ) {
        let refused = match (&command, self.killing()) {
            // The job is already being killed.
            (Command::Kill, true) if !self.is_being_replaced() => {
                return actions.push(MasterAction::Reply(id, Ok(())));
            }
            (Command::Kill, true) if self.commands.len() < MOST_COMMANDS => {
                return self.commands.push_back((id, command));
            }
            (_, true) => self.busy(self.how_it_ends()),
            _ if self.commands.len() >= MOST_COMMANDS => self.busy("processing other commands"),
            _ => return self.commands.push_back((id, command)),
        };
        actions.push(MasterAction::Reply(id, Err(refused)));
    }

    /// Starts a command. Returns the reply; `None` if the reply follows later, when the command is
    /// stored or done.
    fn command(&mut self, id: CommandId, command: Command) -> Option<Result<(), Rejection>> {
        let mut record = self.record_store.record()?.clone();
        let intent = match command {
            Command::Resume => DesiredState::Run,
            Command::Pause => DesiredState::Pause,
            Command::Kill => DesiredState::Kill,
            Command::Upgrade(order) => {
                let begun = self.begin_upgrade(&mut record, *order);
                return self.follow(id, record, begun);
            }
            // The checkpoint coordinator has already received the command.
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
            Command::Place(next) => {
                let placed = self.place(&mut record, *next);
                return self.follow(id, record, placed);
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
        self.record_store.propose(record);
        None
    }

    /// Stores `record` if `is_another` is `Ok(true)`; the command is answered afterwards. Otherwise
    /// returns the reply.
    fn follow(
        &mut self,
        id: CommandId,
        record: JobRecord,
        is_another: Result<bool, Rejection>,
    ) -> Option<Result<(), Rejection>> {
        match is_another {
            Ok(true) => {
                self.deciding = Some(id);
                self.record_store.propose(record);
                None
            }
            Ok(false) => Some(Ok(())),
            Err(refused) => Some(Err(refused)),
        }
    }

    /// Returns the current plan if a change of plans may start now, otherwise the rejection.
    pub(super) fn plan_to_follow(&self, record: &JobRecord) -> Result<Arc<PackingPlan>, Rejection> {
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

    /// Puts a plan with this number of containers into the record. Returns true if the record has
    /// changed.
    fn rescale(&self, record: &mut JobRecord, containers: NonZeroU32) -> Result<bool, Rejection> {
        if self.can_cancel_change(record) && record.is_rescaled_from(containers) {
            record.cancel_change();
            return Ok(true);
        }
        let plan = self.plan_to_follow(record)?;
        let next = self
            .manager
            .spread_over(&plan, &record.packing, containers)
            .map_err(|error| Rejection::impossible(&error))?;
        let most = next.containers().len();
        if most != containers.get() as usize {
            let message = format!(
                "{containers} workers are too many: given its colocated instances, the job fits in at most {most}"
            );
            let hint = format!("ask for up to {most} workers, or for more instances first");
            return Err(Rejection::Impossible {
                resources: false,
                message,
                hint: Some(hint),
            });
        }
        let next = self.sized(next);
        if next == *plan {
            return Ok(false);
        }
        // Instances that are added later are spread over the same number of containers.
        record.packing.containers = Some(containers);
        self.put_next(record, plan, next);
        Ok(true)
    }

    /// Puts another placement of the same instances in the same containers into the record. Returns
    /// true if the record has changed.
    fn place(&self, record: &mut JobRecord, next: PackingPlan) -> Result<bool, Rejection> {
        let plan = self.plan_to_follow(record)?;
        let change = plan.change_to(&next);
        let is_outdated = next.demand() != plan.demand()
            || !change.containers_added.is_empty()
            || !change.containers_removed.is_empty();
        if is_outdated {
            return Err(Rejection::Impossible {
                resources: false,
                message: "the placement is for an earlier plan of the job".into(),
                hint: Some("compare the placements again".into()),
            });
        }
        let next = self.sized(next);
        if next == *plan {
            return Ok(false);
        }
        self.put_next(record, plan, next);
        Ok(true)
    }

    /// Puts a plan with this parallelism of the given vertices into the record. Returns true if the
    /// record has changed.
    fn update(
        &self,
        record: &mut JobRecord,
        parallelism: &BTreeMap<VertexName, u32>,
    ) -> Result<bool, Rejection> {
        let busy = self.plan_to_follow(record);
        let wanted = parallelism.iter();
        let demand = record
            .demand
            .rescaled(wanted.map(|(vertex, count)| (vertex.as_str(), *count)));
        if self.can_cancel_change(record)
            && demand.as_ref().is_ok_and(|it| record.is_updated_from(it))
        {
            record.cancel_change();
            return Ok(true);
        }
        let (plan, demand) = (
            busy?,
            demand.map_err(|error| Rejection::impossible(&error))?,
        );
        if demand == record.demand {
            return Ok(false);
        }
        let limits = self.config.instances;
        limits
            .check(&demand, Some(&record.demand))
            .map_err(|error| Rejection::impossible(&error))?;
        let next = self
            .manager
            .repack(&plan, &demand, &record.packing)
            .map_err(|error| Rejection::impossible(&error))?;
        self.put_next(record, plan, self.sized(next));
        record.demand = demand;
        Ok(true)
    }

    /// Returns the rejection of commands that are not possible during an update. In safe mode an
    /// update is carried out only when the job is restarted.
    pub(super) fn busy_with_update(&self) -> Rejection {
        self.busy(match &self.phase {
            JobPhase::SafeMode(_) => {
                "in safe mode, with a pending update that is applied on recovery (recover)"
            }
            _ => "being updated",
        })
    }

    pub(super) fn busy(&self, doing: &str) -> Rejection {
        Rejection::Busy {
            job: self.job.to_string(),
            doing: doing.to_string(),
        }
    }

    /// Takes the unanswered commands, when this master will not complete them any more.
    pub(super) fn open_commands(&mut self) -> Vec<CommandId> {
        let waiting = std::mem::take(&mut self.commands).into_iter();
        let restarting = std::mem::take(&mut self.restarting).into_values();
        let deciding = self.deciding.take().into_iter();
        let lives = self.attempts.as_mut();
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
    /// Returns true if the job is in its intended state: running, or paused, with all of its
    /// workers.
    pub fn is_steady(&self) -> bool {
        matches!(self, JobPhase::Running | JobPhase::Paused)
    }
}
