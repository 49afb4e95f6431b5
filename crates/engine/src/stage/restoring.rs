//! State on its way back into a stage that is about to begin.

use std::time::Duration;

use ardea_core::{
    Epoch, PartitionId, Processor, Progress, RestoredState, Result, StateChunk, Watermark,
};

use super::told_before::ToldBefore;
use super::{Kind, Phase, Stage};
use crate::cuts::{CutRead, CutReader};

/// How many entries a processor is given in a call.
const CALL_ENTRIES: usize = 256;

/// The state that a stage begins with, as far as it has not got it yet.
pub(crate) struct Restoring {
    reader: Box<dyn CutReader>,
    epoch: Epoch,
    chunk: StateChunk,
    /// Where in the chunk the next entry is.
    position: usize,
    has_all: bool,
    told: ToldBefore,
    way: Way,
    /// Empty between calls.
    wanted: Vec<PartitionId>,
}

/// How much has to be back before the processor begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// It has not been asked.
    Unknown,
    /// All of it.
    Whole,
    /// What has no partition; whether that is back.
    Early { has_base: bool },
}

impl Restoring {
    /// From what remembers the end of `epoch`.
    pub(crate) fn new(reader: Box<dyn CutReader>, epoch: Epoch) -> Self {
        Restoring {
            reader,
            epoch,
            chunk: StateChunk::default(),
            position: 0,
            has_all: false,
            told: ToldBefore::default(),
            way: Way::Unknown,
            wanted: Vec::new(),
        }
    }

    /// Whether the processor may begin.
    fn has_enough(&self) -> bool {
        self.way == Way::Early { has_base: true }
    }

    /// Asks a processor which way it wants to go, unless that is known.
    fn choose(&mut self, processor: &mut dyn Processor, may_begin: bool) {
        if self.way != Way::Unknown {
            return;
        }
        let entries = self.reader.entries_by_partition().filter(|_| may_begin);
        let is_early = entries.is_some_and(|entries| processor.begins_early(entries));
        self.way = Way::Whole;
        if is_early {
            self.reader.go_by_partition();
            self.way = Way::Early { has_base: false };
        }
    }

    /// The partitions that the processor waits for come next.
    pub(super) fn hurry(&mut self, processor: &mut dyn Processor) {
        processor.take_wanted(&mut self.wanted);
        if !self.wanted.is_empty() {
            self.reader.hurry(&self.wanted);
            self.wanted.clear();
        }
    }
}

impl Stage {
    /// Gives the processor back what it remembered, until about this time. Done when it has all, or enough to begin with.
    pub(crate) fn restore(&mut self, until: Duration) -> Result<Progress> {
        if self.returning.is_some() {
            let made = self.bring_back(until)?;
            return Ok(Progress { made, done: true });
        }
        let mut made = false;
        loop {
            let progress = self.restore_some()?;
            made |= progress.made;
            if progress.done || self.begins_early() {
                return Ok(Progress { made, done: true });
            }
            if !progress.made || self.context.clock.now() >= until {
                return Ok(Progress { made, done: false });
            }
        }
    }

    /// The same for one that has begun early, while records flow; whether anything moved.
    pub(crate) fn bring_back(&mut self, until: Duration) -> Result<bool> {
        // Not in the name of a record, but the records that wait are still there.
        let at = self.at.take();
        let mut made = false;
        loop {
            let progress = self.restore_some()?;
            made |= progress.made | progress.done;
            if progress.done || !progress.made || self.context.clock.now() >= until {
                break;
            }
        }
        self.at = at;
        Ok(made)
    }

    /// Begins if that is possible before all of its state is back; whether it does.
    fn begins_early(&mut self) -> bool {
        let restoring = self.cuts.as_ref().and_then(|desk| desk.restoring.as_ref());
        let Some(restoring) = restoring.filter(|restoring| restoring.has_enough()) else {
            return false;
        };
        let told = restoring.told.to(self.context.instance);
        self.returning = Some(Box::default());
        self.resume_time(told);
        true
    }

    fn restore_some(&mut self) -> Result<Progress> {
        let had_all = Progress {
            made: false,
            done: true,
        };
        let Some(desk) = &mut self.cuts else {
            return Ok(had_all);
        };
        let Some(restoring) = &mut desk.restoring else {
            return Ok(had_all);
        };
        restoring.choose(&mut *self.processor, self.kind == Kind::Step);
        if restoring.has_all {
            if self.returning.as_ref().is_some_and(|it| it.owes) {
                // With an outbox that has room, see `go_on_returning`.
                return Ok(Progress::NONE);
            }
            let watermark = restoring.told.to(self.context.instance);
            let epoch = restoring.epoch;
            let progress = self.processor.on_restored(epoch)?;
            if progress.done {
                desk.restoring = None;
                desk.committed = desk.committed.max(Some(epoch));
                match &mut self.returning {
                    Some(returning) => returning.is_over = true,
                    None => self.resume_time(watermark),
                }
            }
            return Ok(progress);
        }
        if restoring.position < restoring.chunk.byte_len() {
            let before = restoring.position;
            let instance = self.context.instance;
            let (chunk, position) = (&restoring.chunk, &mut restoring.position);
            let mut state = RestoredState::new(chunk, position, instance, CALL_ENTRIES);
            self.processor.restore(&mut state)?;
            let made = restoring.position > before;
            return Ok(Progress { made, done: false });
        }
        restoring.chunk.clear();
        restoring.position = 0;
        match restoring.reader.read(&mut restoring.chunk, &desk.waker)? {
            CutRead::NotYet => return Ok(Progress::NONE),
            CutRead::Entries => restoring.told.note(&restoring.chunk),
            CutRead::Base => restoring.way = Way::Early { has_base: true },
            CutRead::Partition(partition) => {
                self.processor.on_partition_restored(partition)?;
                if let Some(returning) = &mut self.returning {
                    returning.owes = true;
                }
            }
            CutRead::End => restoring.has_all = true,
        }
        Ok(Progress::MADE)
    }

    /// The processor is told again of time, before anything comes.
    pub(super) fn resume_time(&mut self, watermark: Option<Watermark>) {
        if self.kind == Kind::Step
            && let Some(watermark) = watermark
        {
            self.watermark = watermark;
            self.phase = Phase::Watermark(watermark);
        }
    }
}
