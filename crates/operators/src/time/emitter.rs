//! The part of watermark generation with a clock: sends watermarks and idle markers to an outbox.

use std::sync::Arc;

use ardea_core::{
    AheadBound, Clock, InstanceContext, JobSignals, Marker, Ordinal, Outbox, Progress,
    RestoredState, Result, SnapshotWriter, StateShape, Timestamp, Waker, Watermark,
};

use crate::instance_state::InstanceCounters;
use crate::time::WatermarkPolicy;
use crate::time::generator::WatermarkGenerator;

/// Generates watermarks from the event times of chunks and sends them to an outbox, with an idle
/// marker after the policy's timeout. The common part of the operators that assign event times.
#[derive(Debug)]
pub struct WatermarkEmitter {
    policy: WatermarkPolicy,
    generator: WatermarkGenerator,
    clock: Clock,
    /// True if records wait in the inbox for room. The input is then not idle.
    held_up: bool,
    /// The restored watermark, until it has been sent again.
    restored_watermark: Option<Watermark>,
    waker: Waker,
    /// The job's signals, which pause sources.
    signals: Arc<JobSignals>,
    /// The checkpointed state of the generator.
    kept: InstanceCounters<2>,
}

impl WatermarkEmitter {
    /// Creates an emitter of watermarks by `policy`.
    pub fn new(policy: WatermarkPolicy) -> Self {
        let clock = Clock::system();
        let generator = WatermarkGenerator::new(policy, clock.now());
        WatermarkEmitter {
            policy,
            generator,
            clock,
            held_up: false,
            restored_watermark: None,
            waker: Waker::none(),
            signals: Arc::default(),
            kept: InstanceCounters::default(),
        }
    }

    /// Attaches the instance's clock and starts to measure silence.
    pub fn attach(&mut self, context: &InstanceContext) {
        self.clock = context.clock.clone();
        self.waker = context.waker.clone();
        self.signals = Arc::clone(&context.signals);
        self.kept.attach(context);
        self.generator = WatermarkGenerator::new(self.policy, self.clock.now());
        if self.policy.wanted_idle_timeout().is_some() {
            // A source may be silent from the start. The first wake-up schedules the next.
            context.waker.wake();
        }
    }

    /// Returns the upper bound of the event times of the next records.
    pub fn bound(&self) -> AheadBound {
        AheadBound::new(
            self.policy.wanted_max_ahead(),
            self.generator.highest(),
            self.clock.clone(),
        )
    }

    /// Sends the watermark that is due after a chunk of which `passed` records were forwarded.
    ///
    /// `highest` is the latest event time so far. `held_up` is true if some records had no room. An
    /// input whose records are all rejected counts as silent, so that it does not hold back other
    /// inputs.
    pub fn after_chunk(
        &mut self,
        passed: usize,
        highest: Timestamp,
        held_up: bool,
        outbox: &mut Outbox,
    ) {
        self.held_up = held_up;
        self.resend_restored(outbox);
        if passed > 0
            && let Some(watermark) = self.generator.records(highest, self.clock.now())
        {
            outbox.watermark(watermark);
        }
        self.check_idle(outbox);
    }

    /// Handles an upstream watermark. The generator's watermarks replace it; only the end of time
    /// is forwarded.
    pub fn replace(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Progress {
        if watermark == Watermark::END {
            self.restored_watermark = None;
            outbox.watermark(watermark);
        } else {
            self.check_idle(outbox);
        }
        Progress::DONE
    }

    /// Sends the restored watermark again. Downstream instances wait for watermarks of all their
    /// inputs.
    fn resend_restored(&mut self, outbox: &mut Outbox) {
        if let Some(watermark) = self.restored_watermark.take() {
            outbox.watermark(watermark);
        }
    }

    /// Returns the shape of the state.
    pub fn states() -> Vec<StateShape> {
        InstanceCounters::<2>::states()
    }

    /// Captures the state for the current snapshot.
    pub fn take_snapshot(&mut self) -> Result<()> {
        let remembered = self.generator.state();
        self.kept
            .take_snapshot(remembered.map(|watermark| watermark.0.as_micros()))
    }

    /// Writes the captured snapshot.
    pub fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.kept.write_snapshot(writer)
    }

    /// Reads the restored state of the previous instances.
    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.kept.restore(state)
    }

    /// Continues from this instance's restored state. After a rescale, it continues from the
    /// minimum over all previous instances.
    ///
    /// After a rescale, this instance may read input of any previous instance. Only the lowest
    /// watermark of these instances holds for all of that input; a higher one would make records
    /// late. Downstream event time is at most that minimum, unless the slowest input was idle.
    pub fn restored(&mut self) -> Result<()> {
        if let Some(numbers) = self.kept.own_or_least()? {
            let remembered = numbers.map(|micros| Watermark(Timestamp::from_micros(micros)));
            self.restored_watermark = self.generator.restore(remembered);
            // There is no outbox in this callback.
            self.waker.wake();
        }
        Ok(())
    }

    /// Sends an idle marker if the input has been silent for longer than the timeout. Otherwise
    /// requests a wake-up for the end of the timeout.
    pub fn check_idle(&mut self, outbox: &mut Outbox) {
        self.resend_restored(outbox);
        if self.policy.wanted_idle_timeout().is_none() {
            return;
        }
        let now = self.clock.now();
        // A paused input is not idle either.
        if self.held_up || self.signals.is_paused() || !outbox.has_room(Ordinal::FIRST) {
            self.generator.records(Timestamp::MIN, now);
        }
        let silence = self.generator.check_idle(now);
        if let Some(watermark) = silence.watermark {
            outbox.watermark(watermark);
        }
        if silence.send_idle {
            outbox.marker(Marker::Idle);
        }
        if let Some(deadline) = silence.next_check {
            outbox.wake_at(deadline);
        }
    }
}
