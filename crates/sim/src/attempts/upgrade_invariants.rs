//! The invariants of upgrades: the new program starts from the final state of the old one, and the
//! replaced program publishes nothing beyond that.

use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    CheckpointRecord, FinalState, IMPORTED, JobRecord, Rejection, StoreReply, StoreRequest,
    Upgrade, UpgradeEnd, WorkerId,
};
use ardea_core::{Error, ErrorCode};

use super::Program;
use super::published::behind;
use crate::faults::Fault;
use crate::metastore::CheckpointReply;
use crate::simulation::ClusterSimulation;
use crate::storage::Counts;

/// The behaviour of a program that replaces another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProgramBehavior {
    /// The program starts successfully.
    #[default]
    Good,
    /// The program's instances fail whenever they start.
    Fails,
    /// None of the program's snapshots can be saved.
    Mute,
    /// The program's first snapshots are saved just when the upgrade times out.
    Slow,
    /// The program cannot restore the state of the previous program.
    Misfit,
}

impl Program {
    /// Checks that nothing is published that no recorded epoch has read, or that is beyond the
    /// state that another program resumes from.
    ///
    /// # Errors
    ///
    /// If it is.
    pub fn may_publish(&self, counts: &Counts) -> Result<(), String> {
        let newest = self.storage.newest();
        let read = newest.and_then(|epoch| self.storage.offsets(epoch));
        if let Some(early) = behind(counts, read.unwrap_or(&Counts::new())) {
            return Err(early);
        }
        let doubled = self.bound.as_ref().and_then(|bound| behind(counts, bound));
        doubled.map_or(Ok(()), |what| {
            Err(format!("a replaced program publishes: {what}"))
        })
    }
}

impl ClusterSimulation {
    /// Returns the current behaviour of a worker's program.
    pub fn nature_of(&self, id: WorkerId) -> ProgramBehavior {
        match self.attempts.nature(self.submission_of(id)) {
            ProgramBehavior::Slow if !self.is_proving() => ProgramBehavior::Good,
            nature => nature,
        }
    }

    fn is_proving(&self) -> bool {
        self.patience().is_some()
    }

    /// Returns the time limit for the first commit of an upgraded program, if an upgrade is at that
    /// stage.
    fn patience(&self) -> Option<Duration> {
        let (record, _) = self.metastore.record.value.as_ref()?;
        match &record.upgrade {
            Some(Upgrade::Starting(before)) => Some(before.commit_timeout),
            _ => None,
        }
    }

    /// Handles the claim of a leader for a slow upgraded program. Around the timeout some messages
    /// are lost: the commits of the program, and its rollback.
    pub fn note_claim(&mut self, before: Option<&CheckpointRecord>, record: &CheckpointRecord) {
        let of = record.job.submission;
        let is_claim = before.is_none_or(|before| before.master < record.master);
        let is_slow = self.attempts.nature(of) == ProgramBehavior::Slow;
        let Some(patience) = self.patience().filter(|_| is_claim && is_slow) else {
            return;
        };
        let judged_at = self.now + patience;
        self.attempts.program(of).timeout_at = Some(judged_at);
        let second = Duration::from_secs(1);
        let until = judged_at + 3 * second;
        if until < self.attempts.faults_until {
            let at = judged_at.saturating_sub(self.random.time(Duration::ZERO, second));
            let storm = Fault::Storm(self.random.time(second, 3 * second));
            self.plan(at, move |sim| sim.inject(storm));
        }
    }

    /// Returns the extra delay of a worker's snapshots in milliseconds.
    pub fn lateness_of(&mut self, id: WorkerId) -> u64 {
        if self.nature_of(id) != ProgramBehavior::Slow {
            return 0;
        }
        let of = self.submission_of(id);
        let judged_at = self.attempts.program(of).timeout_at;
        let left = judged_at.map(|at| at.saturating_sub(self.now).as_millis() as u64);
        (left.unwrap_or(0) + self.random.below(1_000)).saturating_sub(500)
    }

    /// Checks the replacement of this job by another that starts with the final state of submission
    /// `from`.
    ///
    /// # Errors
    ///
    /// If an instance of this job runs, the state is not the final one, or more than that state is
    /// published.
    pub fn check_replacement(
        &mut self,
        from: (u64, Option<FinalState>),
        next: u64,
    ) -> Result<(), String> {
        let own = self.job.submission;
        let (from, state) = from;
        if let Some(worker) = self.cluster.current().next() {
            return Err(format!("a program is replaced while {worker} runs"));
        }
        let committed = self.metastore.epochs_of(from);
        let committed = committed.and_then(|record| FinalState::of(record));
        let lives = &mut self.attempts;
        let program = lives.program(from);
        let known = *program.left.get_or_insert(state);
        if known != state || (from == own && committed != state) {
            return Err(format!(
                "a program goes on from {state:?}, and {known:?} was left of {committed:?}"
            ));
        }
        let bound = state.map(|state| program.storage.offsets(state.epoch).cloned());
        let bound = match bound {
            Some(Some(read)) => read,
            Some(None) => return Err(format!("{state:?} was never recorded")),
            None => Counts::new(),
        };
        if let Some(what) = lives.published.behind(&bound) {
            return Err(format!(
                "a program resumes from before the published output: {what}"
            ));
        }
        for of in [own, from] {
            lives.program(of).bound = Some(bound.clone());
        }
        lives.program(next).begins = state.map(|state| (from, state));
        Ok(())
    }

    /// Handles the first read of the checkpoint record of a new job: copies the state that the job
    /// starts with, unless that state cannot be read.
    pub fn import_state(&mut self, of: u64) -> Option<CheckpointReply> {
        let (from, state) = self.attempts.programs.get(&of)?.begins?;
        if !self.metastore.is_there(of) {
            return None;
        }
        if self.is_damaged {
            return Some(match self.random.per_mille(500) {
                true => StoreReply::Unavailable,
                false => {
                    let error = Error::new(ErrorCode::CheckpointDamaged, "a block is damaged");
                    StoreReply::Refused(Rejection::not_stored(&error))
                }
            });
        }
        let first = Arc::new(CheckpointRecord::imported(self.job.clone(), state.epoch));
        let left = self.attempts.programs.remove(&from)?;
        let storage = &mut self.attempts.program(of).storage;
        let mut checkpoints = first.checkpoints.iter();
        let imported =
            checkpoints.try_for_each(|it| storage.import(&left.storage, it, state.generation));
        self.attempts.programs.insert(from, left);
        self.checked(imported);
        let write = StoreRequest::Write {
            value: first,
            expected: None,
        };
        self.metastore.epochs(of, write);
        None
    }

    /// Checks a stored job record: each step of an upgrade follows from the previous one, and a
    /// completed upgrade is final.
    pub fn check_upgrade(&mut self, before: Option<&JobRecord>, record: &JobRecord) {
        let before = before.and_then(|before| before.upgrade.as_ref());
        let after = record.upgrade.as_ref();
        if before == after {
            return;
        }
        let is_next = match (before, after) {
            (None | Some(Upgrade::Over(_)), Some(Upgrade::Stopping(_))) => true,
            (Some(Upgrade::Stopping(order)), Some(Upgrade::Stopped(same, _))) => order == same,
            (Some(Upgrade::Starting(by)), Some(Upgrade::RollingBack(same, _))) => by == same,
            (Some(Upgrade::Starting(by)), Some(Upgrade::Over(UpgradeEnd::Upgraded { from }))) => {
                self.has_come_up() && by.job.definition.job.submission == *from
            }
            _ => false,
        };
        let word = |upgrade: Option<&Upgrade>| upgrade.map(Upgrade::word);
        let what = format!("upgrade: {:?} after {:?}", word(after), word(before));
        if !is_next {
            return self.breaks(what);
        }
        self.remember(what);
        let is_over = matches!(after, Some(Upgrade::Over(_)));
        self.attempts.report.upgraded += u64::from(is_over);
    }

    /// Returns true if the job has committed an epoch taken by itself.
    fn has_come_up(&self) -> bool {
        let record = self.epochs_record();
        let committed = record.and_then(FinalState::of);
        committed.is_some_and(|state| state.generation != IMPORTED)
    }
}
