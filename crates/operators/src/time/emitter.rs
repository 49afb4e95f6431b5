//! The part of watermark generation with a clock: sends watermarks and idle markers to an outbox.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    AheadBound, Clock, InstanceContext, JobSignals, ManualClock, Marker, MicroBatch,
    MicroBatchTime, Ordinal, Outbox, Progress, RestoredState, Result, SnapshotWriter, StateShape,
    Timestamp, Waker, Watermark,
};

use crate::instance_state::InstanceCounters;
use crate::time::WatermarkPolicy;
use crate::time::generator::WatermarkGenerator;

/// Generates watermarks from the event times of chunks and sends them to an outbox, with an idle
/// marker after the policy's timeout. The common part of the operators that assign event times.
///
/// In micro-batch mode the emitter sends watermarks and idle markers [at the ends](Self::end_batch)
/// only, so that they do not depend on the division into chunks. If the numbers of micro-batches
/// tell the time, the clock advances by them. Watermarks and idleness then follow from the input
/// alone.
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
    /// The relation of micro-batches to the time, if they end here.
    micro_batches: Option<MicroBatchTime>,
    /// The control of the clock, if it advances by the numbers of micro-batches.
    hand: Option<ManualClock>,
    /// The checkpointed state: the watermarks of the generator, the time, and its
    /// [silence](WatermarkGenerator::silence). The time is zero if it is that of the process.
    kept: InstanceCounters<6>,
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
            micro_batches: None,
            hand: None,
            kept: InstanceCounters::default(),
        }
    }

    /// Attaches the instance's clock and starts to measure silence.
    pub fn attach(&mut self, context: &InstanceContext) {
        self.clock = context.clock.clone();
        self.waker = context.waker.clone();
        self.signals = Arc::clone(&context.signals);
        self.kept.attach(context);
        self.micro_batches = context.micro_batches;
        if let Some(MicroBatchTime::From1970(_)) = self.micro_batches {
            let now = self.clock.wall().since(Timestamp::UNIX_EPOCH);
            self.start_clock(now);
        }
        self.generator = WatermarkGenerator::new(self.policy, self.clock.now());
        if self.micro_batches.is_none() && self.policy.wanted_idle_timeout().is_some() {
            // A source may be silent from the start. The first wake-up schedules the next.
            context.waker.wake();
        }
    }

    /// Starts a clock that advances by the numbers of micro-batches, at `now` since 1970.
    fn start_clock(&mut self, now: Duration) {
        let hand = ManualClock::new();
        hand.advance(now);
        self.clock = hand.clock();
        self.hand = Some(hand);
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
        if self.micro_batches.is_some() {
            if passed > 0 {
                self.generator.observe(highest, self.clock.now());
            }
            return;
        }
        if passed > 0
            && let Some(watermark) = self.generator.records(highest, self.clock.now())
        {
            outbox.watermark(watermark);
        }
        self.check_idle(outbox);
    }

    /// Handles the end of a micro-batch: sends the watermark that is due, and an idle marker if the
    /// input has been silent for longer than the timeout.
    pub fn end_batch(&mut self, batch: MicroBatch, outbox: &mut Outbox) -> Progress {
        let Some(time) = self.micro_batches else {
            return Progress::DONE;
        };
        self.resend_restored(outbox);
        if let (Some(hand), Some(end)) = (&self.hand, time.end_of(batch)) {
            hand.advance(end.saturating_sub(self.clock.now()));
        }
        if let Some(watermark) = self.generator.take_due() {
            outbox.watermark(watermark);
        }
        // A paused input is not idle.
        if self.signals.is_paused() {
            self.generator.observe(Timestamp::MIN, self.clock.now());
        }
        self.send_idle(outbox);
        Progress::DONE
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
        InstanceCounters::<6>::states()
    }

    /// Captures the state for the current snapshot.
    pub fn take_snapshot(&mut self) -> Result<()> {
        let [sent, known] = self.generator.state().map(|it| it.0.as_micros());
        let now = self.hand.as_ref().map(|_| self.clock.now());
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let [record, state, since] = match now {
            Some(_) => self.generator.silence().map(micros),
            None => [0; 3],
        };
        let now = now.map_or(0, micros);
        self.kept
            .take_snapshot([sent, known, now, record, state, since])
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
        if let Some([sent, known, times @ ..]) = self.kept.own_or_least()? {
            let remembered = [sent, known].map(|it| Watermark(Timestamp::from_micros(it)));
            let times = times.map(|it| Duration::from_micros(it.max(0).unsigned_abs()));
            let [now, silence @ ..] = times;
            if self.hand.is_some() && now > Duration::ZERO {
                self.start_clock(now);
                self.generator.restore_silence(silence);
            }
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
        if self.micro_batches.is_some() || self.policy.wanted_idle_timeout().is_none() {
            return;
        }
        let now = self.clock.now();
        // A paused input is not idle either.
        if self.held_up || self.signals.is_paused() || !outbox.has_room(Ordinal::FIRST) {
            self.generator.records(Timestamp::MIN, now);
        }
        if let Some(deadline) = self.send_idle(outbox) {
            outbox.wake_at(deadline);
        }
    }

    /// Sends an idle marker if the input has been silent for longer than the timeout. Returns the
    /// time of the next check.
    fn send_idle(&mut self, outbox: &mut Outbox) -> Option<Duration> {
        let silence = self.generator.check_idle(self.clock.now());
        if let Some(watermark) = silence.watermark {
            outbox.watermark(watermark);
        }
        if silence.send_idle {
            outbox.marker(Marker::Idle);
        }
        silence.next_check
    }
}
