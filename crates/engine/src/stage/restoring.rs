//! State on its way back into a stage that is about to begin.

use std::time::Duration;

use ardea_core::{Epoch, Progress, RestoredState, Result, StateChunk, Watermark};

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
        }
    }
}

impl Stage {
    /// Gives the processor back what it remembered, until about this time. Done when it has all.
    pub(crate) fn restore(&mut self, until: Duration) -> Result<Progress> {
        let mut made = false;
        loop {
            let progress = self.restore_some()?;
            if progress.done {
                return Ok(progress);
            }
            made |= progress.made;
            if !progress.made || self.context.clock.now() >= until {
                return Ok(Progress { made, done: false });
            }
        }
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
        if restoring.has_all {
            let watermark = restoring.told.to(self.context.instance);
            let epoch = restoring.epoch;
            let progress = self.processor.on_restored(epoch)?;
            if progress.done {
                desk.restoring = None;
                desk.committed = Some(epoch);
                self.resume_time(watermark);
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
