//! Runs in which a processor writes snapshots, fails and is restored.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ardea_core::{
    DeadLetters, Epoch, Inbox, InstanceContext, InstanceMetrics, ManualClock, Marker, Outbox,
    Priority, Processor, SnapshotRequest, Watermark,
};

use super::{Driver, Halt, guard};
use crate::callback::Callback;
use crate::captured_state::{CapturedState, full_snapshot};
use crate::failure_schedule::RunPosition;
use crate::input::InputPlan;
use crate::random::SplitMix64;
use crate::steps::Step;

type NewProcessor<'a> = &'a dyn Fn() -> Box<dyn Processor>;

impl Driver {
    /// Runs all steps in as many attempts as the failure schedule requires. `close` is a separate
    /// call.
    pub(crate) fn run_with_failures(
        &mut self,
        steps: &[Step],
        inputs: &[(Box<dyn InputPlan>, Priority)],
        make: NewProcessor<'_>,
        has_own_clock: bool,
    ) -> Result<(), Halt> {
        if let Some(what) = self.processor.unsaved_state() {
            let broken =
                format!("the test calls `survives`, but the processor does not save {what}");
            return Err(Halt::Broken(broken));
        }
        self.init()?;
        let last_snapshot = last_snapshot(steps);
        let mut at = 0;
        while at < steps.len() {
            self.at_step = at;
            let mut taken = Ok(());
            if at <= last_snapshot {
                taken = self.maybe_end_epoch();
            }
            if taken.is_ok() {
                taken = self.maybe_move(make, &steps[..at]);
            }
            match taken.and_then(|()| self.take_step(steps[at], inputs)) {
                Ok(()) => at += 1,
                Err(Halt::Failed) => at = self.restart(make, steps, has_own_clock)?,
                Err(halt) => return Err(halt),
            }
        }
        self.restore_rest()?;
        self.move_all_on()?;
        self.check_restored_end(steps, make)
    }

    /// Returns the position of this attempt before step `at`.
    fn mark(&self, at: usize) -> RunPosition {
        RunPosition {
            step: at,
            lanes: self.lanes.iter().map(|lane| lane.mark()).collect(),
            written: self.written,
            given_watermarks: self.given_watermarks.len(),
            given_epochs: self.given_epochs.len(),
            watermark: self.given_watermarks.last().copied(),
            now: self.context.clock.now(),
            late: self.late_before + self.context.metrics.snapshot().late,
            dead_letters: self.dead_letters_before + self.context.dead_letters.count(),
        }
    }

    /// Ends an epoch before the current step, or in the middle of a source's only step, if the
    /// schedule requires it. No barrier is emitted.
    pub(super) fn maybe_end_epoch(&mut self) -> Result<(), Halt> {
        match self
            .failures
            .as_mut()
            .is_some_and(|lives| lives.ends_epoch())
        {
            true => self.end_epoch(self.at_step, None),
            false => Ok(()),
        }
    }

    /// Ends an epoch before step `next` and requests a snapshot. Emits a barrier for `marker`, if
    /// any.
    pub(super) fn end_epoch(&mut self, next: usize, marker: Option<Epoch>) -> Result<(), Halt> {
        self.restore_rest()?;
        let Some(epoch) = self.failures.as_mut().map(|lives| lives.next_epoch()) else {
            return Ok(());
        };
        self.until_done(Callback::Epoch(epoch), &mut |p, out| p.on_epoch(epoch, out))?;
        if let Some(marker) = marker {
            self.given_epochs.push(marker);
            self.outbox.marker(Marker::Barrier(marker));
        }
        // Output from before the end of the epoch is not repeated after a restore.
        self.move_all_on()?;
        let mark = self.mark(next);
        let Driver {
            processor,
            failures: lives,
            ..
        } = self;
        let Some(lives) = lives else { return Ok(()) };
        let snapshot = lives.request_snapshot(mark);
        guard(Callback::TakeSnapshot(epoch), || {
            processor.state().take_snapshot(snapshot)
        })
    }

    /// Lets the failure schedule write part of a snapshot or report a commit, between two calls.
    pub(super) fn drive_snapshot(&mut self) -> Result<(), Halt> {
        let Driver {
            processor,
            failures: lives,
            ..
        } = self;
        let Some(lives) = lives else { return Ok(()) };
        let tended = guard(Callback::DriveSnapshot, || {
            lives.drive_snapshot(&mut **processor)
        })?;
        tended.map_err(Halt::Broken)
    }

    /// Replaces a failed processor and restores it. Returns the next step.
    fn restart(
        &mut self,
        make: NewProcessor<'_>,
        steps: &[Step],
        has_own_clock: bool,
    ) -> Result<usize, Halt> {
        let begins = self
            .failures
            .as_mut()
            .and_then(|lives| lives.start_attempt());
        let mark = begins.as_ref().map(|(_, _, mark)| mark.clone());
        let mark = mark.unwrap_or_else(|| RunPosition {
            lanes: vec![[0; 3]; self.lanes.len()],
            ..RunPosition::default()
        });
        self.replace(make(), &mark, has_own_clock)?;
        self.init()?;
        if let Some((epoch, kept, _)) = begins {
            let mut lives = mem::take(&mut self.failures);
            // A source has no input that could wait for its state.
            let may_be_early = !self.inboxes.is_empty();
            let early = lives.as_mut().and_then(|lives| lives.early_start());
            let is_early = match early.filter(|_| may_be_early) {
                Some(random) => self.restore_early(&kept, (epoch, mark.watermark), random)?,
                None => false,
            };
            if !is_early {
                self.restore(&kept, epoch)?;
            }
            self.repeat_watermark(&steps[..mark.step], mark.watermark)?;
            self.failures = lives;
        }
        Ok(mark.step)
    }

    /// Replaces the processor by a new one, if an epoch has just ended and the schedule requires
    /// it. The new processor takes over the memory of the old one if both support that, else it is
    /// restored.
    fn maybe_move(&mut self, make: NewProcessor<'_>, before: &[Step]) -> Result<(), Halt> {
        let Driver {
            processor,
            failures: lives,
            inboxes,
            ..
        } = self;
        let lives = lives.as_mut().filter(|_| !inboxes.is_empty());
        let Some(lives) = lives.and_then(|lives| lives.moves(before.len()).then_some(lives)) else {
            return Ok(());
        };
        let handed = guard(Callback::DriveSnapshot, || {
            lives.hand_over(&mut **processor)
        })?;
        let (epoch, kept) = handed.map_err(Halt::Broken)?;
        let mark = self.mark(before.len());
        self.close()?;
        let former = mem::replace(&mut self.processor, make());
        let memory = guard(Callback::HandOver, || Ok(former.hand_over_state()))?;
        let is_taken = match memory {
            Some(memory) => guard(Callback::TakeOver, || {
                Ok(self.processor.state().take_over_state(memory))
            })?,
            None => false,
        };
        self.reset_to(&mark, false);
        self.init()?;
        let lives = mem::take(&mut self.failures);
        match is_taken {
            true => self.woken.store(true, Ordering::Release),
            false => self.restore(&kept, epoch)?,
        }
        self.repeat_watermark(before, mark.watermark)?;
        self.failures = lives;
        Ok(())
    }

    /// Replaces the processor and its inboxes and outbox; all output after `mark` is dropped.
    fn replace(
        &mut self,
        processor: Box<dyn Processor>,
        mark: &RunPosition,
        has_own_clock: bool,
    ) -> Result<(), Halt> {
        self.close()?;
        self.processor = processor;
        self.unrestored = None;
        self.reset_to(mark, has_own_clock);
        Ok(())
    }

    /// Resets the inboxes, outbox and counters for an attempt that starts at `mark`.
    fn reset_to(&mut self, mark: &RunPosition, has_own_clock: bool) {
        self.inboxes
            .iter_mut()
            .for_each(|inbox| *inbox = Inbox::default());
        self.fed.fill(0);
        self.outbox = Outbox::new(self.lanes.len(), self.context.chunk_records);
        for (lane, mark) in self.lanes.iter_mut().zip(&mark.lanes) {
            lane.truncate(*mark);
        }
        self.written = mark.written;
        self.given_watermarks.truncate(mark.given_watermarks);
        self.given_epochs.truncate(mark.given_epochs);
        (self.late_before, self.dead_letters_before) = (mark.late, mark.dead_letters);
        if has_own_clock {
            // Resets the clock to the time of `mark`, so that the same calls are repeated.
            self.clock = ManualClock::new();
            self.clock.advance(mark.now);
        }
        self.context = InstanceContext {
            clock: self.clock.clock(),
            metrics: Arc::<InstanceMetrics>::default(),
            dead_letters: Arc::<DeadLetters>::default(),
            ..self.context.clone()
        };
    }

    /// Restores the processor from the state at the end of an epoch.
    pub(crate) fn restore(&mut self, kept: &CapturedState, epoch: Epoch) -> Result<(), Halt> {
        let instance = self.context.instance;
        let mut random = SplitMix64::new(epoch.0);
        let processor = &mut *self.processor;
        let restored = guard(Callback::Restore, || {
            kept.restore(processor, instance, epoch, &mut random)
        })?;
        restored.map_err(Halt::Broken)
    }

    /// Repeats the latest watermark and the ends of inputs to the processor. Results that were
    /// final at that watermark must not be emitted again.
    pub(crate) fn repeat_watermark(
        &mut self,
        before: &[Step],
        watermark: Option<Watermark>,
    ) -> Result<(), Halt> {
        let marks: Vec<_> = self.lanes.iter().map(|lane| lane.mark()).collect();
        if let Some(watermark) = watermark {
            self.until_done(Callback::Watermark(watermark), &mut |p, out| {
                p.on_watermark(watermark, out)
            })?;
        }
        for step in before {
            if matches!(step, Step::EdgeDone(_)) {
                self.execute(*step)?;
            }
        }
        self.check_silent_since(&marks, "with the watermark repeated")?;
        if self.woken.swap(false, Ordering::AcqRel) {
            self.call(Callback::Wake, |p, _, out| p.on_wake(out))?;
        }
        Ok(())
    }

    /// Fails if records were emitted after `marks`, the earlier lengths of the lanes. Drops all
    /// other later output.
    pub(super) fn check_silent_since(
        &mut self,
        marks: &[[usize; 3]],
        what: &str,
    ) -> Result<(), Halt> {
        self.move_all_on()?;
        for (lane, mark) in self.lanes.iter_mut().zip(marks) {
            if lane.has_records_since(*mark) {
                return Err(Halt::Broken(format!(
                    "after a restore ({what}) it emitted records: these had been emitted before"
                )));
            }
            lane.truncate(*mark);
        }
        Ok(())
    }

    /// Takes a full snapshot of the processor at the end of a step.
    pub(crate) fn hand_over(&mut self, epoch: Epoch) -> Result<CapturedState, Halt> {
        self.move_all_on()?;
        self.until_done(Callback::Epoch(epoch), &mut |p, out| p.on_epoch(epoch, out))?;
        self.move_all_on()?;
        let processor = &mut *self.processor;
        let kept = guard(Callback::TakeSnapshot(epoch), || {
            full_snapshot(processor, SnapshotRequest::full(epoch))
        })?;
        kept.map_err(Halt::Broken)
    }

    pub(crate) fn run_some(
        &mut self,
        steps: &[Step],
        inputs: &[(Box<dyn InputPlan>, Priority)],
    ) -> Result<(), Halt> {
        for step in steps {
            self.take_step(*step, inputs)?;
        }
        self.move_all_on()
    }

    /// Calls `complete` of a source at most `most` times, or until it is done.
    pub(crate) fn run_source(&mut self, most: Option<usize>) -> Result<(), Halt> {
        let Some(calls) = most else {
            self.execute(Step::Complete)?;
            return self.move_all_on();
        };
        let started = Instant::now();
        for _ in 0..calls {
            let outcome = self.call(Callback::Complete, |p, _, out| p.complete(out))?;
            if outcome.returned.done {
                break;
            }
            if outcome.had_room && !outcome.wrote && !outcome.returned.made {
                self.wait_for_source(started, &mut 1);
            }
        }
        self.move_all_on()
    }

    /// Draws a number below `most` from the random numbers of the room schedule.
    pub(crate) fn random_below(&mut self, most: usize) -> usize {
        self.rooms.random_below(most)
    }

    pub(crate) fn begin(&mut self) -> Result<(), Halt> {
        self.init()
    }

    /// Restores a new processor from the final snapshot of a finished one, replays the end-of-input
    /// callbacks, and checks that it emits nothing.
    fn check_restored_end(&mut self, steps: &[Step], make: NewProcessor<'_>) -> Result<(), Halt> {
        let Some(lives) = mem::take(&mut self.failures) else {
            return Ok(());
        };
        let last = lives.final_snapshot();
        let processor = &mut *self.processor;
        let kept = guard(Callback::TakeSnapshot(last.epoch), || {
            full_snapshot(processor, last)
        })?;
        let kept = kept.map_err(Halt::Broken)?;
        let (mark, given_watermarks) = (self.mark(steps.len()), self.given_watermarks.clone());
        self.replace(make(), &mark, false)?;
        self.init()?;
        self.restore(&kept, last.epoch)?;
        for step in steps {
            let ends = match step {
                Step::Watermark(watermark) => *watermark == Watermark::END,
                Step::EdgeDone(_) | Step::Complete => true,
                _ => false,
            };
            if ends {
                self.execute(*step)?;
            }
        }
        self.check_silent_since(&mark.lanes, "with the end of all inputs repeated")?;
        self.given_watermarks = given_watermarks;
        Ok(())
    }
}

/// Returns the step before which the last snapshot may be taken: after the end of an input only the
/// final snapshot is taken.
pub(crate) fn last_snapshot(steps: &[Step]) -> usize {
    let is_end = |step: &Step| matches!(step, Step::EdgeDone(_));
    steps.iter().rposition(is_end).unwrap_or(0)
}
