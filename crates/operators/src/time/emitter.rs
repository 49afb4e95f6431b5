//! Watermarks and idle markers into an outbox: the part with a clock.

use ardea_core::{Clock, InstanceContext, Marker, Ordinal, Outbox, Progress, Timestamp, Watermark};

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
        }
    }

    /// Starts to measure silence, on the instance's clock.
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.clock = context.clock.clone();
        self.generator = WatermarkGenerator::new(self.policy, self.clock.now());
        if self.policy.wanted_idle_timeout().is_some() {
            // A source may be silent from the start: the first wake asks for the next.
            context.waker.wake();
        }
    }

    /// Records were passed on, `highest` being their latest event time; `held_up` if some had no room.
    pub(crate) fn after_chunk(&mut self, highest: Timestamp, held_up: bool, outbox: &mut Outbox) {
        self.held_up = held_up;
        if let Some(watermark) = self.generator.records(highest, self.clock.now()) {
            outbox.watermark(watermark);
        }
        self.watch_silence(outbox);
    }

    /// A watermark came from before: those made here take its place, only the end of all time is passed on.
    pub(crate) fn replace(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Progress {
        if watermark == Watermark::END {
            outbox.watermark(watermark);
        } else {
            self.watch_silence(outbox);
        }
        Progress::DONE
    }

    /// Sends an idle marker if the input has been silent for too long; else asks to be woken when it will have been.
    pub(crate) fn watch_silence(&mut self, outbox: &mut Outbox) {
        if self.policy.wanted_idle_timeout().is_none() {
            return;
        }
        let now = self.clock.now();
        if self.held_up || !outbox.has_room(Ordinal::FIRST) {
            self.generator.records(Timestamp::MIN, now);
        }
        let silence = self.generator.silence(now);
        if let Some(watermark) = silence.watermark {
            outbox.watermark(watermark);
        }
        if silence.turned_idle {
            outbox.marker(Marker::Idle);
        }
        if let Some(deadline) = silence.ask_again {
            outbox.wake_at(deadline);
        }
    }
}
