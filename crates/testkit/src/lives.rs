//! The epochs of a run in which the processor dies and comes back: when cuts are taken, what comes of them, and when it dies.

use std::collections::VecDeque;

use ardea_core::{Cut, CutWriter, Epoch, Processor, Result as CoreResult, StateChunk, Watermark};

use crate::kept::KeptState;
use crate::random::SplitMix64;

/// How often a processor dies in a run at the most.
const MOST_DEATHS: u32 = 3;
/// How often a processor may be asked without anything coming of it.
const MOST_IDLE: u32 = 1_000;

/// Where a run stood when a cut was taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark {
    /// The step that comes next.
    pub(crate) step: usize,
    /// What each lane held.
    pub(crate) lanes: Vec<[usize; 3]>,
    pub(crate) written: usize,
    pub(crate) given_watermarks: usize,
    pub(crate) given_epochs: usize,
    /// The watermark that the processor had been told.
    pub(crate) watermark: Option<Watermark>,
    pub(crate) now: std::time::Duration,
    pub(crate) late: u64,
    pub(crate) dead_letters: u64,
}

/// A cut that is being written, or has been.
#[derive(Debug)]
struct Written {
    cut: Cut,
    chunk: StateChunk,
    mark: Mark,
}

/// What the runtime knows of the processor's epochs.
#[derive(Debug)]
pub(crate) struct Lives {
    pub(crate) random: SplitMix64,
    epoch: Epoch,
    writing: Option<Written>,
    idle: u32,
    /// The latest committed state, and where the run stood.
    committed: Option<(Epoch, KeptState, Mark)>,
    /// The latest epoch that the processor has been told is committed.
    told: Option<Epoch>,
    fates: VecDeque<(Epoch, bool)>,
    /// How many calls are left of this life; none if it goes on to the end.
    calls_left: Option<usize>,
    deaths: u32,
    usual_calls: usize,
}

impl Lives {
    /// Of a run that usually takes so many calls.
    pub(crate) fn new(seed: u64, usual_calls: u64) -> Self {
        let mut lives = Lives {
            random: SplitMix64::new(seed ^ 0xdead),
            epoch: Epoch(0),
            writing: None,
            idle: 0,
            committed: None,
            told: None,
            fates: VecDeque::new(),
            calls_left: None,
            deaths: 0,
            usual_calls: usual_calls as usize,
        };
        lives.draw_end();
        lives
    }

    fn draw_end(&mut self) {
        let dies = self.deaths < MOST_DEATHS;
        self.calls_left = dies.then(|| 1 + self.random.below(self.usual_calls * 3 / 2 + 2));
    }

    /// Whether the processor dies before the next call.
    pub(crate) fn dies_now(&mut self) -> bool {
        let Some(left) = &mut self.calls_left else {
            return false;
        };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// Whether an epoch ends here.
    pub(crate) fn ends_epoch(&mut self) -> bool {
        let odds = if self.writing.is_some() { 8 } else { 3 };
        self.random.below(odds) == 0
    }

    /// An epoch ends here: its number.
    pub(crate) fn next_epoch(&mut self) -> Epoch {
        self.epoch = self.epoch.next();
        self.epoch
    }

    /// An epoch has ended: which cut is asked for.
    pub(crate) fn take(&mut self, mark: Mark) -> Cut {
        let cut = Cut {
            epoch: self.epoch,
            since: self.told.filter(|_| self.random.below(6) > 0),
            is_last: false,
        };
        self.idle = 0;
        self.writing = Some(Written {
            cut,
            chunk: StateChunk::default(),
            mark,
        });
        cut
    }

    /// Between two calls: perhaps has the processor write some of the cut, perhaps tells it what came of one.
    ///
    /// # Errors
    /// The processor's.
    pub(crate) fn tend(&mut self, processor: &mut dyn Processor) -> CoreResult<Result<(), String>> {
        if self.random.coin() {
            self.tell(processor)?;
        }
        let Some(writing) = &mut self.writing else {
            return Ok(Ok(()));
        };
        if self.random.coin() {
            return Ok(Ok(()));
        }
        let limit = writing.chunk.byte_len() + 1 + self.random.below(60);
        let before = writing.chunk.byte_len();
        let progress = processor.write_cut(&mut CutWriter::new(&mut writing.chunk, limit))?;
        let wrote = writing.chunk.byte_len() > before;
        self.idle = if wrote || progress.made {
            0
        } else {
            self.idle + 1
        };
        if self.idle > MOST_IDLE {
            return Ok(Err("write_cut has room and writes nothing".into()));
        }
        Ok(if progress.done { self.decide() } else { Ok(()) })
    }

    /// Whether the processor is to go on elsewhere behind the cut that was just taken, before this step.
    pub(crate) fn moves(&mut self, step: usize) -> bool {
        let writing = self.writing.as_ref();
        writing.is_some_and(|writing| writing.mark.step == step) && self.random.below(3) == 0
    }

    /// Has the cut that was taken last written to its end and committed, and another life begin from there.
    ///
    /// # Errors
    /// The processor's.
    pub(crate) fn hand_over(
        &mut self,
        processor: &mut dyn Processor,
    ) -> CoreResult<Result<(Epoch, KeptState), String>> {
        let Some(mut written) = self.writing.take() else {
            return Ok(Err("there is no cut to go on from".into()));
        };
        for _ in 0..MOST_IDLE {
            let mut writer = CutWriter::new(&mut written.chunk, usize::MAX);
            if processor.write_cut(&mut writer)?.done {
                return Ok(self.go_on_behind(written));
            }
        }
        Ok(Err("write_cut has room and is never done".into()))
    }

    fn go_on_behind(&mut self, written: Written) -> Result<(Epoch, KeptState), String> {
        let Written { cut, chunk, mark } = written;
        let kept = self.laid_over(cut, &chunk)?;
        self.committed = Some((cut.epoch, kept.clone(), mark));
        self.told = Some(cut.epoch);
        self.fates.clear();
        if self.random.coin() {
            self.fates.push_back((cut.epoch, true));
        }
        Ok((cut.epoch, kept))
    }

    /// A cut laid over what is committed.
    fn laid_over(&self, cut: Cut, chunk: &StateChunk) -> Result<KeptState, String> {
        let before = self.committed.as_ref().map(|(_, kept, _)| kept);
        match before {
            Some(before) => before.after(cut, chunk),
            None => KeptState::default().after(cut, chunk),
        }
    }

    /// A cut is whole: it is committed, given up, or nobody hears of it.
    fn decide(&mut self) -> Result<(), String> {
        let Some(Written { cut, chunk, mark }) = self.writing.take() else {
            return Ok(());
        };
        let kept = self.laid_over(cut, &chunk)?;
        match self.random.below(6) {
            0 => {}
            1 => self.fates.push_back((cut.epoch, false)),
            told => {
                self.committed = Some((cut.epoch, kept, mark));
                if told > 2 {
                    self.fates.push_back((cut.epoch, true));
                }
                if told > 4 {
                    self.fates.push_back((cut.epoch, true));
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, processor: &mut dyn Processor) -> CoreResult<()> {
        if let Some((epoch, is_committed)) = self.fates.front().copied() {
            let progress = match is_committed {
                true => processor.on_epoch_committed(epoch)?,
                false => processor.on_epoch_given_up(epoch)?,
            };
            if progress.done {
                self.fates.pop_front();
                if is_committed {
                    self.told = self.told.max(Some(epoch));
                }
            }
        }
        Ok(())
    }

    /// The processor has died: where the run goes on, and from what. Nothing if from the beginning.
    pub(crate) fn begin_again(&mut self) -> Option<(Epoch, KeptState, Mark)> {
        self.deaths += 1;
        self.writing = None;
        self.fates.clear();
        self.draw_end();
        self.told = self.committed.as_ref().map(|(epoch, ..)| *epoch);
        self.committed.clone()
    }

    /// What the order is drawn from in which partitions come back, if the processor may begin before they have.
    pub(crate) fn begins_early(&mut self) -> Option<SplitMix64> {
        let seed = self.random.below(usize::MAX) as u64;
        (seed & 1 == 0).then(|| SplitMix64::new(seed))
    }

    /// The run has come to its end: the cut that holds for ever.
    pub(crate) fn last(&self) -> Cut {
        Cut {
            is_last: true,
            ..Cut::full(self.epoch.next())
        }
    }
}
