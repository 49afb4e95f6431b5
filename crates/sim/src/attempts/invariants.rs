//! The invariants of execution attempts, and the conditions of recovery.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_coordination::control::{
    Assignment, Change, CheckpointRecord, DesiredState, IMPORTED, JobRecord, ParticipantId, Run,
    StopState, Upgrade, WorkerId,
};
use ardea_core::Epoch;

use super::AttemptsReport;
use super::published::agreed;
use crate::simulation::{ClusterSimulation, WorkerProcess};
use crate::storage::Counts;

impl ClusterSimulation {
    pub fn epochs_record(&self) -> Option<&CheckpointRecord> {
        let stored = self.metastore.epochs_of(self.job.submission);
        stored.map(|record| &**record)
    }

    pub fn note_plans(&mut self, record: &JobRecord) {
        let previous = record.previous.as_ref();
        let previous = previous.map(|previous| (previous.version, Arc::clone(&previous.plan)));
        let plan = record.plan.as_ref();
        let plan = plan.map(|plan| (record.plan_version, Arc::clone(plan)));
        let program = self.attempts.program(record.job.submission);
        program.plans.extend(previous.into_iter().chain(plan));
    }

    /// Checks a stored checkpoint record: its epochs never decrease, an attempt keeps its plan, and
    /// each checkpoint is complete.
    pub fn check_epochs(&mut self, before: Option<&CheckpointRecord>, record: &CheckpointRecord) {
        let vertices = self.config.demand.vertices.len();
        let program = self.attempts.program(record.job.submission);
        let arranged = &mut program.arranged;
        let known = arranged.entry(record.generation).or_insert(record.plan);
        if *known != record.plan {
            return self.breaks(format!("attempt {} has two plans", record.generation));
        }
        // The participants of the attempt that took the newest checkpoint, which may have been
        // handed over with it.
        let newest = record.checkpoints.last().map(|newest| newest.generation);
        let plan = newest.and_then(|life| program.plans.get(program.arranged.get(&life)?));
        let participants: Option<BTreeSet<_>> = plan.map(|plan| {
            let containers = plan.containers().iter();
            containers.map(|it| ParticipantId::of(it.id)).collect()
        });
        let recorded = program.storage.recorded(record, |checkpoint, states| {
            let of: BTreeSet<_> = checkpoint.snapshots.keys().copied().collect();
            match participants.as_ref() == Some(&of) {
                true => agreed(states, vertices),
                false => Err(format!("it is of {of:?}, and not of {participants:?}")),
            }
        });
        if self.checked(recorded).is_none() {
            return;
        }
        self.note_claim(before, record);
        let Some(before) = before else {
            return;
        };
        let goes_back = before.committed > record.committed
            || before.generation > record.generation
            || before.numbers > record.numbers
            || before.master > record.master;
        if goes_back {
            self.breaks(format!("{record:?} follows {before:?}"));
        }
        let report = &mut self.attempts.report;
        report.committed += u64::from(before.committed < record.committed);
        report.safe_modes += u64::from(before.safe_mode.is_none() && record.safe_mode.is_some());
        report.handed_over += u64::from(before.plan < record.plan);
        report.lives += u64::from(before.generation < record.generation);
        let goes_on = before.master < record.master && before.generation == record.generation;
        report.resumed += u64::from(goes_on && record.begun);
        if before.generation < record.generation {
            let (life, from) = (record.generation, record.restored_from);
            let what = format!(
                "attempt {life} from {from:?} by {:?} is written",
                record.plan
            );
            self.remember(what);
        }
    }

    /// Checks that in one attempt a container has one worker, and all workers receive the same
    /// plan.
    pub fn check_life(&mut self, of: u64, to: WorkerId, assignment: &Assignment) {
        let program = self.attempts.program(of);
        let Some(life) = assignment.attempt else {
            return self.breaks(format!("worker {to} gets an assignment without an attempt"));
        };
        let place = (life.generation, to.container);
        let is_news = !program.assigned.contains_key(&place);
        let known = *program.assigned.entry(place).or_insert(to);
        if is_news {
            let what = format!("attempt {} is assigned to {to}", life.generation);
            self.world.remember(what);
        }
        if known != to {
            return self.breaks(format!(
                "attempt {} is assigned to {to} after {known}",
                life.generation
            ));
        }
        let plan = program.arranged.get(&life.generation).copied();
        if plan != Some(assignment.routes) {
            let (routes, generation) = (assignment.routes, life.generation);
            self.breaks(format!(
                "attempt {generation} of {plan:?} is assigned to {to} by {routes:?}"
            ));
        }
    }

    /// Checks that no instance starts or stops within an attempt.
    pub fn check_change_of_life(&mut self, id: WorkerId, change: &Change) {
        let changes = !change.start.is_empty() || !change.stop.is_empty();
        if self.has_guarantee() && changes && !change.begins {
            self.breaks(format!("worker {id} changes within an attempt: {change:?}"));
        }
    }

    /// Checks that a finished job has published all records of its sources, or all that its final
    /// epoch has read.
    pub fn check_finished_lives(&mut self, value: &JobRecord) {
        // A failed upgrade leaves everything to the previous program.
        if matches!(value.upgrade, Some(Upgrade::RollingBack(..))) {
            return;
        }
        let (lives, Some(record)) = (&self.attempts, self.epochs_record()) else {
            return;
        };
        let all = self.records();
        let is_whole = match (record.stop, all) {
            (StopState::No, Some(records)) => lives.published.is_all(records),
            (StopState::No, None) => false,
            (StopState::WhenHeard, _) => record.committed.is_some_and(|committed| {
                let read = self.read_by(committed);
                read.is_some_and(|read| lives.published.differs(read).is_none())
            }),
            (StopState::AsIs, _) => true,
        };
        if is_whole && !value.is_being_replaced() {
            self.attempts.report.finished = 1;
        } else if !is_whole {
            let results = lives.published.total();
            self.breaks(format!(
                "the job is said to have finished with {results} of {all:?} each"
            ));
        }
    }

    /// Returns the number of records in each partition of the sources, if it is finite.
    pub fn records(&self) -> Option<u64> {
        self.config.survival.and_then(|survival| survival.records)
    }

    /// Returns the statistics of the run.
    pub fn report_of_lives(&self) -> AttemptsReport {
        AttemptsReport {
            steps: self.steps,
            results: self.attempts.published.total(),
            ..self.attempts.report
        }
    }

    /// Returns a condition of recovery of a running job that is not met yet, if any.
    pub fn missing_of_lives(&self, intent: DesiredState) -> Option<String> {
        self.config.survival?;
        let lives = &self.attempts;
        let Some(record) = self.epochs_record() else {
            return Some("nothing is recorded of its epochs".to_string());
        };
        if let Some(why) = &record.safe_mode {
            return Some(format!("the job is in safe mode: {why}"));
        }
        let since = lives.repaired_with;
        let Some(committed) = record.committed.filter(|it| Some(*it) > since) else {
            return Some(format!("no epoch is committed since {since:?}"));
        };
        for (id, worker) in &self.workers {
            let part = worker.part.as_ref();
            let lives_on = part
                .is_some_and(|part| !part.is_broken && part.life.generation == record.generation);
            if !lives_on {
                let summary = part.map(|part| part.summary());
                return Some(format!("worker {id} is not in the attempt: {summary:?}"));
            }
        }
        let reads = self.records().is_none() && intent == DesiredState::Run;
        let is_read = |worker: &WorkerProcess| worker.agent.run() == Run::Running;
        if reads && !self.workers.values().all(is_read) {
            return Some("sources don't read".to_string());
        }
        let checkpoint = record.checkpoint(committed);
        if checkpoint.is_some_and(|checkpoint| checkpoint.generation == IMPORTED) {
            return Some("the program has committed nothing of its own".to_string());
        }
        lives.published.differs(self.read_by(committed)?)
    }

    /// Returns the offsets of a recorded epoch of the job.
    fn read_by(&self, epoch: Epoch) -> Option<&Counts> {
        let program = self.attempts.programs.get(&self.job.submission)?;
        program.storage.offsets(epoch)
    }
}
