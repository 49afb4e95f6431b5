//! State on its way back into a stage that is about to begin.

use std::time::Duration;

use ardea_core::{Epoch, Progress, RestoredState, Result, StateChunk, Timestamp, Watermark};

use super::cutting::WATERMARK_STATE;
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
    /// The least of the watermarks that the instances had been told.
    watermark: Option<Watermark>,
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
            watermark: None,
        }
    }

    /// Looks for what the runtime keeps. The end of all time comes again by itself.
    fn note_watermarks(&mut self) {
        let marks = self
            .chunk
            .entries()
            .filter(|entry| entry.state == WATERMARK_STATE)
            .filter_map(|entry| entry.value?.try_into().ok())
            .map(|bytes| Watermark(Timestamp::from_micros(i64::from_le_bytes(bytes))))
            .filter(|watermark| *watermark != Watermark::END);
        self.watermark = marks.chain(self.watermark).min();
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
            let (epoch, watermark) = (restoring.epoch, restoring.watermark);
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
            CutRead::Entries => restoring.note_watermarks(),
            CutRead::End => restoring.has_all = true,
        }
        Ok(Progress::MADE)
    }

    /// The processor is told again of time, before anything comes.
    fn resume_time(&mut self, watermark: Option<Watermark>) {
        if self.kind == Kind::Step
            && let Some(watermark) = watermark
        {
            self.watermark = watermark;
            self.phase = Phase::Watermark(watermark);
        }
    }
}
