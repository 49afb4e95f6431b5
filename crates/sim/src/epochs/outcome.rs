//! What always has to hold, and what has to hold in the end.

use ardea_coordination::control::{EpochWord, EpochsOver, EpochsRecord, StopState, ToParticipant};
use ardea_core::{Epoch, Guarantee};

use super::EpochsReport;
use super::process::Process;
use super::scene::Scene;

impl Scene {
    /// What came of it.
    pub fn report(&self) -> EpochsReport {
        EpochsReport {
            results: self.outside.results(),
            ..self.report
        }
    }

    fn record(&self) -> Option<&EpochsRecord> {
        let stored = self.store.value.as_ref();
        stored.map(|(record, _)| &**record)
    }

    /// A commit is told only of what is recorded, and that an epoch is given up only if it never was.
    pub fn check_word(&mut self, message: &ToParticipant) {
        if let Some(epoch) = message.committed
            && !self.vault.was_recorded(epoch)
        {
            self.breaks(format!(
                "{epoch:?} is told to be committed, and is not recorded"
            ));
        }
        if let EpochWord::GivenUp(epoch) = message.word {
            self.was_given_up(epoch);
        }
    }

    pub fn was_given_up(&mut self, epoch: Epoch) {
        self.given_up.insert(epoch);
        if self.vault.was_recorded(epoch) {
            self.breaks(format!("{epoch:?} is given up, and was recorded"));
        }
    }

    /// Something was recorded: in order, by nobody who has been outrun, and complete.
    pub fn check_record(&mut self, before: Option<&EpochsRecord>, record: &EpochsRecord) {
        if record.master < self.writer {
            let (master, writer) = (record.master, self.writer);
            self.breaks(format!("{master:?} wrote after {writer:?}"));
        }
        self.writer = record.master;
        match self.vault.recorded(record) {
            Err(broken) => self.breaks(broken),
            Ok(false) => {}
            Ok(true) => {
                let newest = record.snapshots.last();
                let complete = newest.is_some_and(|newest| {
                    newest.cuts.keys().copied().eq(self.shape.participants())
                        && Some(newest.epoch) == record.committed
                        && newest.generation == record.generation
                });
                if !complete {
                    self.breaks(format!("a snapshot is not complete: {newest:?}"));
                }
                if self
                    .given_up
                    .iter()
                    .any(|epoch| self.vault.was_recorded(*epoch))
                {
                    self.breaks("an epoch was recorded that had been given up".to_string());
                }
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

    /// Whether so many results may be published of so many records.
    fn is_as_promised(&self, published: u64, prefix: u64) -> bool {
        match self.config.guarantee {
            Guarantee::ExactlyOnce => published == prefix,
            Guarantee::AtLeastOnce | Guarantee::None => published >= prefix,
        }
    }

    /// The job has come to its end or has stopped: all that was committed is published, except if it was stopped in safe mode.
    pub fn check_the_end(&mut self, over: &EpochsOver) {
        let Some(record) = self.record() else {
            return;
        };
        let committed = record.committed.unwrap_or_default();
        let (published, prefix) = (self.outside.results(), self.vault.prefix(committed));
        let as_is = record.stop == StopState::AsIs;
        if !self.is_as_promised(published, prefix) && !as_is {
            self.breaks(format!(
                "{published} results are published at the end, not {prefix}"
            ));
        }
        let all = self
            .shape
            .records
            .map(|records| records * u64::from(self.shape.sources));
        if *over == EpochsOver::Finished && Some(published) != all {
            self.breaks(format!(
                "{published} results are published at the end, of {all:?}"
            ));
        }
    }

    /// What is not as it should be after all is mended; nothing if all is well.
    pub fn missing(&self) -> Option<String> {
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
                return Some(format!("participant {participant} is of another life"));
            }
            if process.visible < Some(committed) {
                return Some(format!(
                    "participant {participant} has not heard of {committed:?}"
                ));
            }
        }
        let (published, prefix) = (self.outside.results(), self.vault.prefix(committed));
        (!self.is_as_promised(published, prefix))
            .then(|| format!("{published} results are published, not {prefix}"))
    }
}
