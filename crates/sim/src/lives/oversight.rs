//! What must hold of lives at any time, and what has to be so in the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_coordination::control::{
    Assignment, BROUGHT, Change, EpochsRecord, Intent, JobRecord, ParticipantId, Run, StopState,
    Upgrade, WorkerId,
};
use ardea_core::Epoch;

use super::LivesReport;
use super::instance::Counts;
use crate::world::World;

impl World {
    /// What is stored of the job's epochs.
    pub(crate) fn epochs_record(&self) -> Option<&EpochsRecord> {
        let stored = self.shelf.epochs_of(self.job.submission);
        stored.map(|record| &**record)
    }

    /// The job's record is stored: remembers its plans.
    pub(crate) fn note_plans(&mut self, record: &JobRecord) {
        if let Some(lives) = &mut self.lives {
            let previous = record.previous.as_ref();
            let previous = previous.map(|previous| (previous.version, Arc::clone(&previous.plan)));
            let plan = record.plan.as_ref();
            let plan = plan.map(|plan| (record.plan_version, Arc::clone(plan)));
            let program = lives.program(record.job.submission);
            program.plans.extend(previous.into_iter().chain(plan));
        }
    }

    /// The record of epochs is stored: it never goes back, a life keeps its plan, and each snapshot is whole.
    pub(crate) fn check_epochs(&mut self, before: Option<&EpochsRecord>, record: &EpochsRecord) {
        let vertices = self.config.demand.vertices.len();
        let Some(lives) = &mut self.lives else {
            return;
        };
        let program = lives.program(record.job.submission);
        let known = program
            .arranged
            .entry(record.generation)
            .or_insert(record.plan);
        if *known != record.plan {
            let broken = format!("life {} runs by two plans", record.generation);
            return self.watch.broken(broken);
        }
        // Those of the life that the newest snapshot was taken in, which may have been handed over with it.
        let newest = record.snapshots.last().map(|snapshot| snapshot.generation);
        let plan = newest.and_then(|life| program.plans.get(program.arranged.get(&life)?));
        let participants: Option<BTreeSet<_>> = plan.map(|plan| {
            let containers = plan.containers().iter();
            containers.map(|it| ParticipantId::of(it.id)).collect()
        });
        let recorded = program
            .vault
            .recorded(record, participants.as_ref(), vertices);
        if let Err(broken) = recorded {
            return self.watch.broken(broken);
        }
        self.note_claim(before, record);
        let Some((before, lives)) = before.zip(self.lives.as_mut()) else {
            return;
        };
        let goes_back = before.committed > record.committed
            || before.generation > record.generation
            || before.numbers > record.numbers
            || before.master > record.master;
        if goes_back {
            self.watch.broken(format!("{record:?} follows {before:?}"));
        }
        lives.report.committed += u64::from(before.committed < record.committed);
        lives.report.safe_modes +=
            u64::from(before.safe_mode.is_none() && record.safe_mode.is_some());
        lives.report.handed_over += u64::from(before.plan < record.plan);
        lives.report.lives += u64::from(before.generation < record.generation);
        let goes_on = before.master < record.master && before.generation == record.generation;
        lives.report.resumed += u64::from(goes_on && record.begun);
        if before.generation < record.generation {
            let (life, from) = (record.generation, record.restored_from);
            let what = format!("life {life} from {from:?} by {:?} is written", record.plan);
            self.watch.say(self.now, what);
        }
    }

    /// In one life a container has one worker, and all are told the same of it.
    pub(crate) fn check_life(&mut self, of: u64, to: WorkerId, assignment: &Assignment) {
        let Some(lives) = &mut self.lives else {
            return;
        };
        let program = lives.program(of);
        let Some(life) = assignment.life else {
            let broken = format!("worker {to} is told to run something that belongs to no life");
            return self.watch.broken(broken);
        };
        let place = (life.generation, to.container);
        let is_news = !program.told.contains_key(&place);
        let known = *program.told.entry(place).or_insert(to);
        if is_news {
            let what = format!("life {} is told to {to}", life.generation);
            self.watch.say(self.now, what);
        }
        if known != to {
            let broken = format!("life {} is told to {to} after {known}", life.generation);
            return self.watch.broken(broken);
        }
        let plan = program.arranged.get(&life.generation).copied();
        if plan != Some(assignment.routes) {
            let (routes, generation) = (assignment.routes, life.generation);
            let broken = format!("life {generation} of {plan:?} is told to {to} by {routes:?}");
            self.watch.broken(broken);
        }
    }

    /// Within a life nothing starts or stops.
    pub(crate) fn check_change_of_life(&mut self, id: WorkerId, change: &Change) {
        let changes = !change.start.is_empty() || !change.stop.is_empty();
        if self.lives.is_some() && changes && !change.begins {
            let broken = format!("worker {id} changes within a life: {change:?}");
            self.watch.broken(broken);
        }
    }

    /// A job has finished when all that its sources have is published, or what its last epoch has read.
    pub(crate) fn check_finished_lives(&mut self, value: &JobRecord) {
        // One that did not come up leaves everything to the program before.
        if matches!(value.upgrade, Some(Upgrade::Returning(..))) {
            return;
        }
        let (Some(lives), Some(record)) = (&self.lives, self.epochs_record()) else {
            return;
        };
        let all = lives.survival.records;
        let is_whole = match (record.stop, all) {
            (StopState::No, Some(records)) => lives.published.is_all(records),
            (StopState::No, None) => false,
            (StopState::WhenHeard, _) => record.committed.is_some_and(|committed| {
                let read = self.read_by(committed);
                read.is_some_and(|read| lives.published.differs(read).is_none())
            }),
            (StopState::AsIs, _) => true,
        };
        if is_whole {
            if let Some(lives) = self.lives.as_mut().filter(|_| !value.gives_way()) {
                lives.report.finished = 1;
            }
        } else {
            let results = lives.published.total();
            let broken = format!("the job is said to have finished with {results} of {all:?} each");
            self.watch.broken(broken);
        }
    }

    /// What came of it.
    pub(crate) fn report_of_lives(&self, steps: u64) -> LivesReport {
        let lives = self.lives.as_ref();
        let report = lives.map(|lives| LivesReport {
            results: lives.published.total(),
            ..lives.report
        });
        LivesReport {
            steps,
            ..report.unwrap_or_default()
        }
    }

    /// Nothing befalls the job any more.
    pub(crate) fn note_mended(&mut self) {
        let committed = self.epochs_record().and_then(|record| record.committed);
        if let Some(lives) = &mut self.lives {
            lives.mended_with = committed;
        }
    }

    /// What is still missing of the lives of a job that goes on.
    pub(crate) fn missing_of_lives(&self, intent: Intent) -> Option<String> {
        let (lives, record) = (self.lives.as_ref()?, self.epochs_record());
        let Some(record) = record else {
            return Some("nothing is recorded of its epochs".to_string());
        };
        if let Some(why) = &record.safe_mode {
            return Some(format!("the job is in safe mode: {why}"));
        }
        let Some(committed) = record.committed.filter(|it| Some(*it) > lives.mended_with) else {
            return Some(format!(
                "no epoch is committed since {:?}",
                lives.mended_with
            ));
        };
        for (id, worker) in &self.workers {
            let part = worker.part.as_ref();
            let lives_on = part
                .is_some_and(|part| !part.is_broken && part.life.generation == record.generation);
            if !lives_on {
                let summary = part.map(|part| part.summary());
                return Some(format!("worker {id} is not in the life: {summary:?}"));
            }
        }
        let reads = lives.survival.records.is_none() && intent == Intent::Run;
        let is_read = |worker: &crate::world::WorkerProcess| worker.agent.run() == Run::Running;
        if reads && !self.workers.values().all(is_read) {
            return Some("sources don't read".to_string());
        }
        let snapshot = record.snapshot(committed);
        if snapshot.is_some_and(|snapshot| snapshot.generation == BROUGHT) {
            return Some("the program has committed nothing of its own".to_string());
        }
        lives.published.differs(self.read_by(committed)?)
    }

    /// How far a recorded epoch of the job has read.
    fn read_by(&self, epoch: Epoch) -> Option<&Counts> {
        let programs = &self.lives.as_ref()?.programs;
        programs.get(&self.job.submission)?.vault.read_by(epoch)
    }
}
