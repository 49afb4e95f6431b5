//! A processor that hands over what it remembers, dies, and comes back.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ardea_core::{
    Cut, DeadLetters, Epoch, Inbox, InstanceContext, InstanceMetrics, ManualClock, Marker, Outbox,
    Priority, Processor, Watermark,
};

use super::{Driver, Halt, guard};
use crate::callback::Callback;
use crate::input::InputPlan;
use crate::kept::{KeptState, whole_cut};
use crate::lives::Mark;
use crate::random::SplitMix64;
use crate::steps::Step;

/// What makes a processor.
type Make<'a> = &'a dyn Fn() -> Box<dyn Processor>;

impl Driver {
    /// Runs all steps through as many lives as it takes. `close` is another call.
    pub(crate) fn run_lives(
        &mut self,
        steps: &[Step],
        inputs: &[(Box<dyn InputPlan>, Priority)],
        make: Make<'_>,
        has_own_clock: bool,
    ) -> Result<(), Halt> {
        if let Some(what) = self.processor.forgets() {
            let broken = format!("it is said to survive, and says that it forgets {what}");
            return Err(Halt::Broken(broken));
        }
        self.init()?;
        let last_cut = last_cut(steps);
        let mut at = 0;
        while at < steps.len() {
            self.at_step = at;
            let mut taken = Ok(());
            if at <= last_cut {
                taken = self.end_epoch_perhaps();
            }
            if taken.is_ok() {
                taken = self.move_perhaps(make, &steps[..at]);
            }
            match taken.and_then(|()| self.take_step(steps[at], inputs)) {
                Ok(()) => at += 1,
                Err(Halt::Died) => at = self.begin_again(make, steps, has_own_clock)?,
                Err(halt) => return Err(halt),
            }
        }
        self.come_back()?;
        self.move_all_on()?;
        self.outlive(steps, make)
    }

    /// Where a life stands before step `at`.
    fn mark(&self, at: usize) -> Mark {
        Mark {
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

    /// If it is drawn so, ends an epoch before the step at hand, or in the middle of a source's only one. Nobody else hears of it.
    pub(super) fn end_epoch_perhaps(&mut self) -> Result<(), Halt> {
        match self.lives.as_mut().is_some_and(|lives| lives.ends_epoch()) {
            true => self.end_epoch(self.at_step, None),
            false => Ok(()),
        }
    }

    /// Ends an epoch before step `next` and asks for a cut; a marker of this epoch goes on, if there is to be one.
    pub(super) fn end_epoch(&mut self, next: usize, marker: Option<Epoch>) -> Result<(), Halt> {
        self.come_back()?;
        let Some(epoch) = self.lives.as_mut().map(|lives| lives.next_epoch()) else {
            return Ok(());
        };
        self.until_done(Callback::Epoch(epoch), &mut |p, out| p.on_epoch(epoch, out))?;
        if let Some(marker) = marker {
            self.given_epochs.push(marker);
            self.outbox.marker(Marker::EpochEnd(marker));
        }
        // What came before the end of the epoch does not come again.
        self.move_all_on()?;
        let mark = self.mark(next);
        let Driver {
            processor, lives, ..
        } = self;
        let Some(lives) = lives else { return Ok(()) };
        let cut = lives.take(mark);
        guard(Callback::TakeCut(epoch), || processor.take_cut(cut))
    }

    /// Between two calls.
    pub(super) fn tend_cut(&mut self) -> Result<(), Halt> {
        let Driver {
            processor, lives, ..
        } = self;
        let Some(lives) = lives else { return Ok(()) };
        let tended = guard(Callback::TendCut, || lives.tend(&mut **processor))?;
        tended.map_err(Halt::Broken)
    }

    /// Another processor takes the place of the one that died: which step comes next.
    fn begin_again(
        &mut self,
        make: Make<'_>,
        steps: &[Step],
        has_own_clock: bool,
    ) -> Result<usize, Halt> {
        let begins = self.lives.as_mut().and_then(|lives| lives.begin_again());
        let mark = begins.as_ref().map(|(_, _, mark)| mark.clone());
        let mark = mark.unwrap_or_else(|| Mark {
            lanes: vec![[0; 3]; self.lanes.len()],
            ..Mark::default()
        });
        self.replace(make(), &mark, has_own_clock)?;
        self.init()?;
        if let Some((epoch, kept, _)) = begins {
            let mut lives = mem::take(&mut self.lives);
            // One that reads nothing has nothing that could wait for its state.
            let may_be_early = !self.inboxes.is_empty();
            let early = lives.as_mut().and_then(|lives| lives.begins_early());
            let is_early = match early.filter(|_| may_be_early) {
                Some(random) => self.restore_early(&kept, (epoch, mark.watermark), random)?,
                None => false,
            };
            if !is_early {
                self.restore(&kept, epoch)?;
            }
            self.tell_again(&steps[..mark.step], mark.watermark)?;
            self.lives = lives;
        }
        Ok(mark.step)
    }

    /// If an epoch has just ended, and it is drawn so, another processor goes on from there: with what this one remembers if it hands that
    /// over, else restored.
    fn move_perhaps(&mut self, make: Make<'_>, before: &[Step]) -> Result<(), Halt> {
        let Driver {
            processor,
            lives,
            inboxes,
            ..
        } = self;
        let lives = lives.as_mut().filter(|_| !inboxes.is_empty());
        let Some(lives) = lives.and_then(|lives| lives.moves(before.len()).then_some(lives)) else {
            return Ok(());
        };
        let handed = guard(Callback::TendCut, || lives.hand_over(&mut **processor))?;
        let (epoch, kept) = handed.map_err(Halt::Broken)?;
        let mark = self.mark(before.len());
        self.close()?;
        let former = mem::replace(&mut self.processor, make());
        let memory = guard(Callback::HandOver, || Ok(former.hand_over()))?;
        let is_taken = match memory {
            Some(memory) => guard(Callback::TakeOver, || Ok(self.processor.take_over(memory)))?,
            None => false,
        };
        self.renew(&mark, false);
        self.init()?;
        let lives = mem::take(&mut self.lives);
        match is_taken {
            true => self.woken.store(true, Ordering::Release),
            false => self.restore(&kept, epoch)?,
        }
        self.tell_again(before, mark.watermark)?;
        self.lives = lives;
        Ok(())
    }

    /// Another processor with boxes of its own; all that came after the mark is forgotten.
    fn replace(
        &mut self,
        processor: Box<dyn Processor>,
        mark: &Mark,
        has_own_clock: bool,
    ) -> Result<(), Halt> {
        self.close()?;
        self.processor = processor;
        self.away = None;
        self.renew(mark, has_own_clock);
        Ok(())
    }

    /// Boxes and counters of another life, which begins where the mark is.
    fn renew(&mut self, mark: &Mark, has_own_clock: bool) {
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
            // As if no time had passed, so that the same comes again.
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

    /// Gives the processor what was kept at the end of an epoch.
    pub(crate) fn restore(&mut self, kept: &KeptState, epoch: Epoch) -> Result<(), Halt> {
        let instance = self.context.instance;
        let mut random = SplitMix64::new(epoch.0);
        let processor = &mut *self.processor;
        let restored = guard(Callback::Restore, || {
            kept.restore(processor, instance, epoch, &mut random)
        })?;
        restored.map_err(Halt::Broken)
    }

    /// Tells the processor again which watermark it had been told, and which inputs had ended. What is final by then has come already.
    pub(crate) fn tell_again(
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
        self.is_silent_since(&marks, "told the time again")?;
        if self.woken.swap(false, Ordering::AcqRel) {
            self.call(Callback::Wake, |p, _, out| p.on_wake(out))?;
        }
        Ok(())
    }

    /// No record has come since these marks; what else has is forgotten.
    pub(super) fn is_silent_since(&mut self, marks: &[[usize; 3]], what: &str) -> Result<(), Halt> {
        self.move_all_on()?;
        for (lane, mark) in self.lanes.iter_mut().zip(marks) {
            if lane.has_records_since(*mark) {
                return Err(Halt::Broken(format!(
                    "restored, and {what}, it emitted records: those had come already"
                )));
            }
            lane.truncate(*mark);
        }
        Ok(())
    }

    /// Takes all that the processor remembers, at a step's end.
    pub(crate) fn hand_over(&mut self, epoch: Epoch) -> Result<KeptState, Halt> {
        self.move_all_on()?;
        self.until_done(Callback::Epoch(epoch), &mut |p, out| p.on_epoch(epoch, out))?;
        self.move_all_on()?;
        let processor = &mut *self.processor;
        let kept = guard(Callback::TakeCut(epoch), || {
            whole_cut(processor, Cut::full(epoch))
        })?;
        kept.map_err(Halt::Broken)
    }

    /// Takes some steps.
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

    /// Calls `complete` of a source so often, or until it is done.
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

    /// A number below this one, drawn from what the run draws its rooms from.
    pub(crate) fn draw_below(&mut self, most: usize) -> usize {
        self.rooms.draw_below(most)
    }

    /// Prepares for [`run_some`](Self::run_some).
    pub(crate) fn begin(&mut self) -> Result<(), Halt> {
        self.init()
    }

    /// What comes back from the last cut of one that has ended ends again, without a word.
    fn outlive(&mut self, steps: &[Step], make: Make<'_>) -> Result<(), Halt> {
        let Some(lives) = mem::take(&mut self.lives) else {
            return Ok(());
        };
        let last = lives.last();
        let processor = &mut *self.processor;
        let kept = guard(Callback::TakeCut(last.epoch), || whole_cut(processor, last))?;
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
        self.is_silent_since(&mark.lanes, "told again that all has ended")?;
        self.given_watermarks = given_watermarks;
        Ok(())
    }
}

/// Before which step the last cut may be taken: what has ended takes none but the last.
pub(crate) fn last_cut(steps: &[Step]) -> usize {
    let is_end = |step: &Step| matches!(step, Step::EdgeDone(_));
    steps.iter().rposition(is_end).unwrap_or(0)
}
