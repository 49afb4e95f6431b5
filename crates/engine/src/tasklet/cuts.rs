//! A tasklet's time for the state of its stages: giving it back at the beginning, and writing cuts while records go on.

use std::time::Duration;

use ardea_core::{Progress, Result};

use super::{Place, Round, SliceEnd, Tasklet};
use crate::stage::{CUT_SLICE, Stage};

/// How long a slice may take longer for cuts on a thread of its own, where nobody else waits and slices are few.
const CUT_SLICE_ALONE: Duration = Duration::from_millis(1);

/// What came of tending cuts.
#[derive(Default)]
pub(super) struct Tended {
    /// If there is more to do: from when on.
    pub(super) goes_on: Option<Duration>,
    /// The time then, if something was done.
    pub(super) until: Option<Duration>,
}

impl Tended {
    fn go_on(&mut self, from: Duration) {
        self.goes_on = Some(self.goes_on.map_or(from, |earlier| earlier.min(from)));
    }
}

impl Tasklet {
    /// Gives the stages back what they remembered; how the slice ends, if they have not got enough of it to begin.
    pub(super) fn restore(&mut self, start: Duration) -> Result<Option<SliceEnd>> {
        let mut all = Progress {
            made: false,
            done: true,
        };
        let until = start + self.turns.slice.max(CUT_SLICE);
        for at in 0..self.stages.len() {
            self.at = Place::Stage(at);
            all = all | self.stages[at].restore(until)?;
        }
        self.is_restored = all.done;
        self.is_returning = self.stages.iter().any(Stage::is_returning);
        Ok(match all {
            Progress { done: true, .. } => None,
            Progress { made: true, .. } => Some(SliceEnd::Again),
            _ => Some(SliceEnd::Rest {
                wake_at: Some(start.saturating_add(self.turns.idle_poll)),
            }),
        })
    }

    /// After the records of a slice: gives stages that have begun early more of what they remembered. Says whether anything moved, then or
    /// `before`, and when that was over.
    #[cold]
    pub(super) fn bring_back(&mut self, before: bool, now: Duration) -> Result<(bool, Duration)> {
        let (mut moved, mut last) = (before, now);
        for at in 0..self.stages.len() {
            if self.stages[at].is_returning() {
                self.at = Place::Stage(at);
                let until = last + self.turns.slice.max(CUT_SLICE);
                moved |= self.stages[at].bring_back(until)?;
                let now = self.stages[at].context.clock.now();
                self.work.note_apart(at, now.saturating_sub(last));
                last = now;
            }
        }
        self.is_returning = self.stages.iter().any(Stage::is_returning);
        Ok((moved, last))
    }

    /// After the records of a slice: tells what came of epochs, and writes on at cuts, where there is leisure for it or it is due.
    pub(super) fn tend_cuts(&mut self, round: Round, now: Duration) -> Result<Tended> {
        let slice = match self.turns.slice.is_zero() {
            true => CUT_SLICE_ALONE,
            false => CUT_SLICE,
        };
        // At leisure a pause is one of the whole thread; where records wait each has its turns.
        let wrote_at = match round.has_leisure {
            true => self.wrote_at.max(round.wrote_at),
            false => self.wrote_at,
        };
        let mut tended = Tended::default();
        let mut last = now;
        for at in 0..self.stages.len() {
            let Some(pace) = self.stages[at].pace_of_cuts(now) else {
                continue;
            };
            let due = wrote_at + pace.pause(slice, round.has_leisure);
            if now < due {
                // If records wait, leisure may come before it is due.
                tended.go_on(if round.has_leisure { due } else { now });
                continue;
            }
            self.at = Place::Stage(at);
            let moved = self.stages[at].tend_cuts(now + slice)?;
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

    /// When it last wrote at cuts.
    pub(crate) fn wrote_at(&self) -> Duration {
        self.wrote_at
    }
}
