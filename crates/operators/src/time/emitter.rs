//! Watermarks and idle markers into an outbox: the part with a clock.

use std::sync::Arc;

use ardea_core::{
    AheadBound, Clock, CutWriter, InstanceContext, JobSignals, Marker, Ordinal, Outbox, Progress,
    RestoredState, Result, StateShape, Timestamp, Waker, Watermark,
};

use crate::of_instance::OfInstance;
use crate::time::WatermarkPolicy;
use crate::time::generator::WatermarkGenerator;

/// Sends the watermarks of a [`WatermarkGenerator`], and its idle marker when the clock says so.
#[derive(Debug)]
pub(crate) struct WatermarkEmitter {
    policy: WatermarkPolicy,
    generator: WatermarkGenerator,
    clock: Clock,
    /// Records wait in the inbox for room: the input is not silent, whatever the clock says.
    held_up: bool,
    /// What was promised in another life, as long as that has to be said once more.
    again: Option<Watermark>,
    waker: Waker,
    /// Whether sources are read.
    signals: Arc<JobSignals>,
    /// What the generator remembers, where that has to survive it.
    kept: OfInstance<2>,
}

impl WatermarkEmitter {
    pub(crate) fn new(policy: WatermarkPolicy) -> Self {
        let clock = Clock::system();
        let generator = WatermarkGenerator::new(policy, clock.now());
        WatermarkEmitter {
            policy,
            generator,
            clock,
            held_up: false,
            again: None,
            waker: Waker::none(),
            signals: Arc::default(),
            kept: OfInstance::default(),
        }
    }

    /// Starts to measure silence, on the instance's clock.
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.clock = context.clock.clone();
        self.waker = context.waker.clone();
        self.signals = Arc::clone(&context.signals);
        self.kept.attach(context);
        self.generator = WatermarkGenerator::new(self.policy, self.clock.now());
        if self.policy.wanted_idle_timeout().is_some() {
            // A source may be silent from the start: the first wake asks for the next.
            context.waker.wake();
        }
    }

    /// The bound on the event times of the records that come next.
    pub(crate) fn bound(&self) -> AheadBound {
        AheadBound::new(
            self.policy.wanted_max_ahead(),
            self.generator.highest(),
            self.clock.clone(),
        )
    }

    /// Sends what is due after a chunk of which `passed` records were passed on.
    ///
    /// `highest` is the latest event time so far; `held_up` says that some records had no room. An
    /// input whose records are all set aside is silent: it must not hold back the time of others.
    pub(crate) fn after_chunk(
        &mut self,
        passed: usize,
        highest: Timestamp,
        held_up: bool,
        outbox: &mut Outbox,
    ) {
        self.held_up = held_up;
        self.promise_again(outbox);
        if passed > 0
            && let Some(watermark) = self.generator.records(highest, self.clock.now())
        {
            outbox.watermark(watermark);
        }
        self.watch_silence(outbox);
    }

    /// A watermark came from before: those made here take its place, only the end of all time is passed on.
    pub(crate) fn replace(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Progress {
        if watermark == Watermark::END {
            self.again = None;
            outbox.watermark(watermark);
        } else {
            self.watch_silence(outbox);
        }
        Progress::DONE
    }

    /// Says once more what was promised in another life: those behind it wait for all that it came from.
    fn promise_again(&mut self, outbox: &mut Outbox) {
        if let Some(watermark) = self.again.take() {
            outbox.watermark(watermark);
        }
    }

    /// What it remembers.
    pub(crate) fn states() -> Vec<StateShape> {
        OfInstance::<2>::states()
    }

    /// Notes what belongs to a cut.
    pub(crate) fn take_cut(&mut self) -> Result<()> {
        let remembered = self.generator.remembered();
        self.kept
            .take_cut(remembered.map(|watermark| watermark.0.as_micros()))
    }

    /// Writes the cut that was taken last.
    pub(crate) fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.kept.write_cut(writer)
    }

    /// Takes back what instances remembered.
    pub(crate) fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.kept.restore(state)
    }

    /// Goes on from what this instance remembered; if there were more or fewer of them, from the least that any did.
    ///
    /// What is read here then may have been read by any of those before. The least of their promises holds for all of it: the others may
    /// have been ahead of this very part of the input, and a promise that is broken makes records late that were not. Nobody
    /// behind is further than that least, as time there is that of the slowest, unless that had fallen silent.
    pub(crate) fn restored(&mut self) -> Result<()> {
        if let Some(numbers) = self.kept.own_or_least()? {
            let remembered = numbers.map(|micros| Watermark(Timestamp::from_micros(micros)));
            self.again = self.generator.remember(remembered);
            // There is no outbox here.
            self.waker.wake();
        }
        Ok(())
    }

    /// Sends an idle marker if the input has been silent for too long; else asks to be woken when it will have been.
    pub(crate) fn watch_silence(&mut self, outbox: &mut Outbox) {
        self.promise_again(outbox);
        if self.policy.wanted_idle_timeout().is_none() {
            return;
        }
        let now = self.clock.now();
        // Nor is one that is not read.
        if self.held_up || self.signals.is_paused() || !outbox.has_room(Ordinal::FIRST) {
            self.generator.records(Timestamp::MIN, now);
        }
        let silence = self.generator.silence(now);
        if let Some(watermark) = silence.watermark {
            outbox.watermark(watermark);
        }
        if silence.says_idle {
            outbox.marker(Marker::Idle);
        }
        if let Some(deadline) = silence.ask_again {
            outbox.wake_at(deadline);
        }
    }
}
