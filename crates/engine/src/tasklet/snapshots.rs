//! The part of a tasklet's slice for state: restore at the start, and writing snapshots while
//! processing continues.

use std::time::Duration;

use ardea_core::{Progress, Result};

use super::{CallSite, Round, SliceEnd, Tasklet};
use crate::stage::{ProcessorStage, SNAPSHOT_SLICE};

/// Maximum extension of a slice for snapshots on a dedicated thread, where no other tasklet waits
/// and slices are few.
const SNAPSHOT_SLICE_ALONE: Duration = Duration::from_millis(1);

/// The result of snapshot work.
#[derive(Default)]
pub(super) struct SnapshotWork {
    /// The time from which more work is due, if there is any.
    pub(super) goes_on: Option<Duration>,
    /// The time at the end of the work, if some was done.
    pub(super) until: Option<Duration>,
}

impl SnapshotWork {
    fn go_on(&mut self, from: Duration) {
        self.goes_on = Some(self.goes_on.map_or(from, |earlier| earlier.min(from)));
    }
}

impl Tasklet {
    /// Restores the stages. Returns the end of the slice if they are not restored enough to start.
    pub(super) fn restore(&mut self, start: Duration) -> Result<Option<SliceEnd>> {
        let mut all = Progress {
            made: false,
            done: true,
        };
        let until = start + self.turns.slice.max(SNAPSHOT_SLICE);
        for at in 0..self.stages.len() {
            self.at = CallSite::Stage(at);
            all = all | self.stages[at].restore(until)?;
        }
        self.is_restored = all.done;
        self.is_returning = self.stages.iter().any(ProcessorStage::is_restoring);
        Ok(match all {
            Progress { done: true, .. } => None,
            Progress { made: true, .. } => Some(SliceEnd::Again),
            _ => Some(SliceEnd::Rest {
                wake_at: Some(start.saturating_add(self.turns.idle_poll)),
            }),
        })
    }

    /// Continues lazy restores after the records of a slice. Returns true if anything moved in this
    /// call or `before`, and the time.
    #[cold]
    pub(super) fn bring_back(&mut self, before: bool, now: Duration) -> Result<(bool, Duration)> {
        let (mut moved, mut last) = (before, now);
        for at in 0..self.stages.len() {
            if self.stages[at].is_restoring() {
                self.at = CallSite::Stage(at);
                let until = last + self.turns.slice.max(SNAPSHOT_SLICE);
                moved |= self.stages[at].continue_lazy_restore(until)?;
                let now = self.stages[at].context.clock.now();
                self.work.note_apart(at, now.saturating_sub(last));
                last = now;
            }
        }
        self.is_returning = self.stages.iter().any(ProcessorStage::is_restoring);
        Ok((moved, last))
    }

    /// Delivers epoch outcomes and writes snapshots after the records of a slice, if the thread is
    /// idle or this work is due.
    pub(super) fn tend_snapshots(&mut self, round: Round, now: Duration) -> Result<SnapshotWork> {
        let slice = match self.turns.slice.is_zero() {
            true => SNAPSHOT_SLICE_ALONE,
            false => SNAPSHOT_SLICE,
        };
        // On an idle thread the pause concerns the whole thread, otherwise each tasklet.
        let wrote_at = match round.has_leisure {
            true => self.wrote_at.max(round.wrote_at),
            false => self.wrote_at,
        };
        let mut tended = SnapshotWork::default();
        let mut last = now;
        for at in 0..self.stages.len() {
            let Some(pace) = self.stages[at].pace_of_snapshots(now) else {
                continue;
            };
            let due = wrote_at + pace.pause(slice, round.has_leisure);
            if now < due {
                // If records wait, the thread may become idle before it is due.
                tended.go_on(if round.has_leisure { due } else { now });
                continue;
            }
            self.at = CallSite::Stage(at);
            let moved = self.stages[at].tend_snapshots(now + slice)?;
            let until = self.stages[at].context.clock.now();
            self.work.note_apart(at, until.saturating_sub(last));
            last = until;
            (self.wrote_at, tended.until) = (until, Some(until));
            if moved {
                tended.go_on(until + pace.pause(slice, true));
            }
        }
        Ok(tended)
    }

    /// Returns the time when the tasklet last wrote snapshots.
    pub(crate) fn wrote_at(&self) -> Duration {
        self.wrote_at
    }
}
