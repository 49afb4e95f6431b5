//! The failure schedule of a run: the times of snapshots, their outcomes, and the times of
//! failures.

use std::collections::VecDeque;

use ardea_core::{
    Epoch, Processor, Result as CoreResult, SnapshotRequest, SnapshotWriter, StateChunk, Watermark,
};

use crate::captured_state::CapturedState;
use crate::random::SplitMix64;

/// The largest number of failures per run.
const MAX_FAILURES: u32 = 3;
/// The number of calls in a row that may make no progress.
const MAX_IDLE_CALLS: u32 = 1_000;

/// The position of a run at a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunPosition {
    /// The next step.
    pub(crate) step: usize,
    /// The length of each lane's output.
    pub(crate) lanes: Vec<[usize; 3]>,
    pub(crate) written: usize,
    pub(crate) given_watermarks: usize,
    pub(crate) given_epochs: usize,
    /// The latest watermark passed to the processor.
    pub(crate) watermark: Option<Watermark>,
    pub(crate) now: std::time::Duration,
    pub(crate) late: u64,
    pub(crate) dead_letters: u64,
}

/// A snapshot, complete or still being written.
#[derive(Debug)]
struct ScheduledSnapshot {
    snapshot: SnapshotRequest,
    chunk: StateChunk,
    mark: RunPosition,
}

/// The epochs, snapshots and failures of one run.
#[derive(Debug)]
pub(crate) struct FailureSchedule {
    pub(crate) random: SplitMix64,
    epoch: Epoch,
    writing: Option<ScheduledSnapshot>,
    idle: u32,
    /// The latest committed state and the position of the run at its snapshot.
    committed: Option<(Epoch, CapturedState, RunPosition)>,
    /// The latest epoch whose commit was reported to the processor.
    reported_commit: Option<Epoch>,
    outcomes: VecDeque<(Epoch, bool)>,
    /// The calls left in this attempt; `None` if it runs to the end.
    calls_left: Option<usize>,
    failures: u32,
    usual_calls: usize,
}

impl FailureSchedule {
    /// Creates the schedule of a run that takes about `usual_calls` calls.
    pub(crate) fn new(seed: u64, usual_calls: u64) -> Self {
        let mut lives = FailureSchedule {
            random: SplitMix64::new(seed ^ 0xdead),
            epoch: Epoch(0),
            writing: None,
            idle: 0,
            committed: None,
            reported_commit: None,
            outcomes: VecDeque::new(),
            calls_left: None,
            failures: 0,
            usual_calls: usual_calls as usize,
        };
        lives.draw_failure();
        lives
    }

    fn draw_failure(&mut self) {
        let dies = self.failures < MAX_FAILURES;
        self.calls_left = dies.then(|| 1 + self.random.below(self.usual_calls * 3 / 2 + 2));
    }

    /// Returns true if the processor fails before the next call.
    pub(crate) fn fails_now(&mut self) -> bool {
        let Some(left) = &mut self.calls_left else {
            return false;
        };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// Decides at random whether an epoch ends before the next call.
    pub(crate) fn ends_epoch(&mut self) -> bool {
        let odds = if self.writing.is_some() { 8 } else { 3 };
        self.random.below(odds) == 0
    }

    /// Starts the end of an epoch and returns its number.
    pub(crate) fn next_epoch(&mut self) -> Epoch {
        self.epoch = self.epoch.next();
        self.epoch
    }

    /// Returns the snapshot to request at the end of an epoch, at the position `mark` of the run.
    pub(crate) fn request_snapshot(&mut self, mark: RunPosition) -> SnapshotRequest {
        let snapshot = SnapshotRequest {
            epoch: self.epoch,
            since: self.reported_commit.filter(|_| self.random.below(6) > 0),
            is_last: false,
        };
        self.idle = 0;
        self.writing = Some(ScheduledSnapshot {
            snapshot,
            chunk: StateChunk::default(),
            mark,
        });
        snapshot
    }

    /// Acts at random between two calls: lets the processor write part of the current snapshot, or
    /// reports the outcome of an earlier one.
    ///
    /// # Errors
    /// The error returned by the processor.
    pub(crate) fn drive_snapshot(
        &mut self,
        processor: &mut dyn Processor,
    ) -> CoreResult<Result<(), String>> {
        if self.random.random_bool() {
            self.report_outcome(processor)?;
        }
        let Some(writing) = &mut self.writing else {
            return Ok(Ok(()));
        };
        if self.random.random_bool() {
            return Ok(Ok(()));
        }
        let limit = writing.chunk.byte_len() + 1 + self.random.below(60);
        let before = writing.chunk.byte_len();
        let progress = processor
            .state()
            .write_snapshot(&mut SnapshotWriter::new(&mut writing.chunk, limit))?;
        let wrote = writing.chunk.byte_len() > before;
        self.idle = if wrote || progress.made {
            0
        } else {
            self.idle + 1
        };
        if self.idle > MAX_IDLE_CALLS {
            return Ok(Err("write_snapshot has room and writes nothing".into()));
        }
        Ok(if progress.done { self.decide() } else { Ok(()) })
    }

    /// Returns true if a new processor is to replace the current one before `step`, just after its
    /// snapshot.
    pub(crate) fn moves(&mut self, step: usize) -> bool {
        let writing = self.writing.as_ref();
        writing.is_some_and(|writing| writing.mark.step == step) && self.random.below(3) == 0
    }

    /// Writes the latest snapshot to its end and commits it; the next attempt starts from it.
    ///
    /// # Errors
    /// The error returned by the processor.
    pub(crate) fn hand_over(
        &mut self,
        processor: &mut dyn Processor,
    ) -> CoreResult<Result<(Epoch, CapturedState), String>> {
        let Some(mut written) = self.writing.take() else {
            return Ok(Err("there is no snapshot to go on from".into()));
        };
        for _ in 0..MAX_IDLE_CALLS {
            let mut writer = SnapshotWriter::new(&mut written.chunk, usize::MAX);
            if processor.state().write_snapshot(&mut writer)?.done {
                return Ok(self.continue_from(written));
            }
        }
        Ok(Err("write_snapshot has room and is never done".into()))
    }

    fn continue_from(
        &mut self,
        written: ScheduledSnapshot,
    ) -> Result<(Epoch, CapturedState), String> {
        let ScheduledSnapshot {
            snapshot,
            chunk,
            mark,
        } = written;
        let kept = self.updated_state(snapshot, &chunk)?;
        self.committed = Some((snapshot.epoch, kept.clone(), mark));
        self.reported_commit = Some(snapshot.epoch);
        self.outcomes.clear();
        if self.random.random_bool() {
            self.outcomes.push_back((snapshot.epoch, true));
        }
        Ok((snapshot.epoch, kept))
    }

    /// Returns the committed state updated with a snapshot.
    fn updated_state(
        &self,
        snapshot: SnapshotRequest,
        chunk: &StateChunk,
    ) -> Result<CapturedState, String> {
        let before = self.committed.as_ref().map(|(_, kept, _)| kept);
        match before {
            Some(before) => before.updated_with(snapshot, chunk),
            None => CapturedState::default().updated_with(snapshot, chunk),
        }
    }

    /// Decides on a complete snapshot: committed, aborted, or no outcome reported.
    fn decide(&mut self) -> Result<(), String> {
        let Some(ScheduledSnapshot {
            snapshot,
            chunk,
            mark,
        }) = self.writing.take()
        else {
            return Ok(());
        };
        let kept = self.updated_state(snapshot, &chunk)?;
        match self.random.below(6) {
            0 => {}
            1 => self.outcomes.push_back((snapshot.epoch, false)),
            told => {
                self.committed = Some((snapshot.epoch, kept, mark));
                if told > 2 {
                    self.outcomes.push_back((snapshot.epoch, true));
                }
                if told > 4 {
                    self.outcomes.push_back((snapshot.epoch, true));
                }
            }
        }
        Ok(())
    }

    fn report_outcome(&mut self, processor: &mut dyn Processor) -> CoreResult<()> {
        if let Some((epoch, is_committed)) = self.outcomes.front().copied() {
            let progress = match is_committed {
                true => processor.state().on_checkpoint_committed(epoch)?,
                false => processor.state().on_checkpoint_aborted(epoch)?,
            };
            if progress.done {
                self.outcomes.pop_front();
                if is_committed {
                    self.reported_commit = self.reported_commit.max(Some(epoch));
                }
            }
        }
        Ok(())
    }

    /// Starts another attempt after a failure. Returns the epoch, state and position to restore,
    /// `None` for the beginning.
    pub(crate) fn start_attempt(&mut self) -> Option<(Epoch, CapturedState, RunPosition)> {
        self.failures += 1;
        self.writing = None;
        self.outcomes.clear();
        self.draw_failure();
        self.reported_commit = self.committed.as_ref().map(|(epoch, ..)| *epoch);
        self.committed.clone()
    }

    /// Returns the generator for the order in which partitions are restored, if the processor may
    /// start early.
    pub(crate) fn early_start(&mut self) -> Option<SplitMix64> {
        let seed = self.random.below(usize::MAX) as u64;
        (seed & 1 == 0).then(|| SplitMix64::new(seed))
    }

    /// Returns the request for the final snapshot at the end of the run.
    pub(crate) fn final_snapshot(&self) -> SnapshotRequest {
        SnapshotRequest {
            is_last: true,
            ..SnapshotRequest::full(self.epoch.next())
        }
    }
}
