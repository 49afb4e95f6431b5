//! The invariants of the checkpoint simulation, and the conditions of recovery.

use ardea_coordination::control::{
    CheckpointRecord, CoordinatorMessage, EpochsOver, StopState, ToParticipant,
};
use ardea_core::{Epoch, Guarantee};

use super::process::Process;
use super::published_output::{offsets, prefix};
use super::simulation::CheckpointSimulation;

impl CheckpointSimulation {
    fn record(&self) -> Option<&CheckpointRecord> {
        self.store.get().map(|record| &**record)
    }

    /// Checks that only recorded epochs are reported as committed, and only other epochs as
    /// aborted.
    pub fn check_word(&mut self, message: &ToParticipant) {
        if let Some(epoch) = message.committed
            && self.vault.offsets(epoch).is_none()
        {
            self.breaks(format!(
                "{epoch:?} is announced as committed, and is not recorded"
            ));
        }
        if let CoordinatorMessage::Aborted(epoch) = message.word {
            self.was_aborted(epoch);
        }
    }

    pub fn was_aborted(&mut self, epoch: Epoch) {
        self.aborted.insert(epoch);
        if self.vault.offsets(epoch).is_some() {
            self.breaks(format!("{epoch:?} is aborted, and was recorded"));
        }
    }

    /// Checks a written record: epochs are in order, no superseded master writes, and checkpoints
    /// are complete.
    pub fn check_record(&mut self, before: Option<&CheckpointRecord>, record: &CheckpointRecord) {
        if record.master < self.writer {
            let (master, writer) = (record.master, self.writer);
            self.breaks(format!("{master:?} wrote after {writer:?}"));
        }
        self.writer = record.master;
        let recorded = self.vault.recorded(record, |_, states| Ok(offsets(states)));
        if self.checked(recorded) == Some(true) {
            let newest = record.checkpoints.last();
            let complete = newest.is_some_and(|newest| {
                let participants = newest.snapshots.keys().copied();
                participants.eq(self.shape.participants())
                    && Some(newest.epoch) == record.committed
                    && newest.generation == record.generation
            });
            if !complete {
                self.breaks(format!("a checkpoint is not complete: {newest:?}"));
            }
            let mut aborted = self.aborted.iter();
            if aborted.any(|epoch| self.vault.offsets(*epoch).is_some()) {
                self.breaks("an aborted epoch was recorded".to_string());
            }
        }
        let Some(before) = before else {
            return;
        };
        let goes_back = before.committed > record.committed;
        if goes_back && self.config.guarantee == Guarantee::ExactlyOnce {
            let (from, to) = (before.committed, record.committed);
            self.breaks(format!("the job goes back from {from:?} to {to:?}"));
        }
        if before.generation > record.generation || before.numbers > record.numbers {
            self.breaks(format!("{record:?} follows {before:?}"));
        }
    }

    /// Returns true if the number of `published` results is consistent with the number of records
    /// read, `prefix`.
    fn is_as_promised(&self, published: u64, prefix: u64) -> bool {
        match self.config.guarantee {
            Guarantee::ExactlyOnce => published == prefix,
            Guarantee::AtLeastOnce | Guarantee::None => published >= prefix,
        }
    }

    /// Checks the end of the job: all committed output is published, unless it was stopped in safe
    /// mode.
    pub fn check_the_end(&mut self, over: &EpochsOver) {
        let Some(record) = self.record() else {
            return;
        };
        let committed = record.committed.unwrap_or_default();
        let (published, prefix) = (self.outside.results(), prefix(&self.vault, committed));
        let as_is = record.stop == StopState::AsIs;
        if !self.is_as_promised(published, prefix) && !as_is {
            self.breaks(format!(
                "{published} results are published at the end, not {prefix}"
            ));
        }
        let sources = u64::from(self.shape.sources);
        let all = self.shape.records.map(|records| records * sources);
        if *over == EpochsOver::Finished && Some(published) != all {
            self.breaks(format!(
                "{published} results are published at the end, of {all:?}"
            ));
        }
    }

    /// Returns the first reason why the job has not recovered yet; `None` if it has.
    pub fn unrecovered(&self) -> Option<String> {
        if self.over.is_some() {
            return None;
        }
        if self.shape.records.is_some() {
            let processes: Vec<_> = self.processes.values().map(Process::summary).collect();
            let processes = processes.join("; ");
            return Some(format!("the job has not come to its end: {processes}"));
        }
        let Some(record) = self.record() else {
            return Some("nothing is recorded".to_string());
        };
        if record.safe_mode.is_some() || record.stop != StopState::No {
            return Some(format!(
                "the job is paused: {:?}, {:?}",
                record.safe_mode, record.stop
            ));
        }
        let Some(committed) = record.committed else {
            return Some("no epoch is committed".to_string());
        };
        let mended = self.mended_with;
        if Some(committed) <= mended {
            return Some(format!("no epoch is committed since {mended:?}"));
        }
        for participant in self.shape.participants() {
            let life = self.life(participant);
            let process = life.and_then(|life| self.processes.get(&life));
            let Some(process) = process else {
                return Some(format!("participant {participant} is not there"));
            };
            if process.agent.generation() != record.generation {
                return Some(format!("participant {participant} is of another attempt"));
            }
            if process.visible < Some(committed) {
                return Some(format!(
                    "participant {participant} has not carried out the commit of {committed:?}"
                ));
            }
        }
        let (published, prefix) = (self.outside.results(), prefix(&self.vault, committed));
        (!self.is_as_promised(published, prefix))
            .then(|| format!("{published} results are published, not {prefix}"))
    }
}
