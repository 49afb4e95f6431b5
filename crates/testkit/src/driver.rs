//! The driver that runs one processor through one variant and checks every call.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ardea_core::{
    Epoch, Error, Inbox, InstanceContext, ManualClock, Marker, Ordinal, Outbox, OutboxRuntime,
    Priority, Processor, Progress, Result as CoreResult, Waker, Watermark, take_failed_index,
};

use crate::callback::{Call, Callback};
use crate::failure_schedule::FailureSchedule;
use crate::input::InputPlan;
use crate::lane::{Allowance, MarkRules, RecordedLane};
use crate::steps::Step;
use crate::variant::{FailureMode, RoomSchedule, Variant};

mod lazy_restore;
mod snapshot_restore;

use lazy_restore::UnrestoredState;
pub(crate) use snapshot_restore::last_snapshot;

/// The number of calls in the trace of a report.
const TRACE: usize = 10;
/// The number of consecutive calls without effect, despite room, after which the processor counts
/// as stuck.
const IDLE_CALLS: u32 = 200;
/// The number of consecutive calls that report progress without visible effect, after which the
/// processor counts as stuck.
const BUSY_CALLS: u32 = 100_000;
/// The clock advance for a source that waits without a deadline: the runtime's idle poll interval.
const IDLE_POLL: Duration = Duration::from_millis(10);

/// The reason why a run ended early.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Cancelled at the call given by the variant.
    Cancelled,
    Error(Callback, Error),
    Broken(String),
    /// The failure schedule ends the processor here; a new one takes over.
    Failed,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) calls: u64,
    pub(crate) longest: Duration,
    pub(crate) longest_callback: Option<Callback>,
    pub(crate) over_limit: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) rules: MarkRules,
    pub(crate) limit: Duration,
    /// The longest wait for other threads, on the system clock.
    pub(crate) thread_timeout: Duration,
    /// Drains a source once it has written this many records.
    pub(crate) drain_after: Option<usize>,
}

/// One processor with its inboxes, outbox, lanes and clock.
pub(crate) struct Driver {
    processor: Box<dyn Processor>,
    inboxes: Vec<Inbox>,
    fed: Vec<u64>,
    outbox: Outbox,
    pub(crate) lanes: Vec<Box<dyn RecordedLane>>,
    rooms: RoomSchedule,
    pub(crate) context: InstanceContext,
    clock: ManualClock,
    deadline: Option<Duration>,
    stop_before: Option<u64>,
    settings: Settings,
    written: usize,
    pub(crate) given_watermarks: Vec<Watermark>,
    pub(crate) given_epochs: Vec<Epoch>,
    pub(crate) timing: Timing,
    pub(crate) trace: VecDeque<Call>,
    /// The failure schedule of a processor that fails and is restored.
    failures: Option<Box<FailureSchedule>>,
    /// The state not yet restored, if the processor started early.
    unrestored: Option<Box<UnrestoredState>>,
    at_step: usize,
    /// True if the waker of the context has been called; checked at the start of an attempt.
    woken: Arc<AtomicBool>,
    /// The number of late records counted in earlier attempts.
    pub(crate) late_before: u64,
    pub(crate) dead_letters_before: u64,
}

struct Outcome<R> {
    returned: R,
    /// True if every lane had room for a record.
    had_room: bool,
    /// True if records or markers were written.
    wrote: bool,
}

impl Driver {
    pub(crate) fn new(
        processor: Box<dyn Processor>,
        inputs: usize,
        lanes: Vec<Box<dyn RecordedLane>>,
        variant: &Variant,
        (context, clock): (InstanceContext, ManualClock),
        settings: Settings,
    ) -> Self {
        let woken = Arc::<AtomicBool>::default();
        let wakes = Arc::clone(&woken);
        let context = InstanceContext {
            waker: Waker::new(move || wakes.store(true, Ordering::Release)),
            ..context
        };
        Driver {
            processor,
            woken,
            inboxes: (0..inputs).map(|_| Inbox::default()).collect(),
            fed: vec![0; inputs],
            outbox: Outbox::new(lanes.len(), context.chunk_records),
            lanes,
            rooms: RoomSchedule::new(variant, context.chunk_records),
            context,
            clock,
            deadline: None,
            stop_before: variant.stop_before,
            settings,
            written: 0,
            given_watermarks: Vec::new(),
            given_epochs: Vec::new(),
            timing: Timing::default(),
            trace: VecDeque::with_capacity(TRACE),
            failures: match variant.failure_mode {
                FailureMode::Failures(calls) => {
                    Some(Box::new(FailureSchedule::new(variant.seed, calls)))
                }
                _ => None,
            },
            unrestored: None,
            at_step: 0,
            late_before: 0,
            dead_letters_before: 0,
        }
    }

    /// Runs all steps, from `init` to the end of `complete`. `close` is a separate call.
    pub(crate) fn run(
        &mut self,
        steps: &[Step],
        inputs: &[(Box<dyn InputPlan>, Priority)],
    ) -> Result<(), Halt> {
        self.init()?;
        for &step in steps {
            self.take_step(step, inputs)?;
        }
        self.move_all_on()
    }

    fn init(&mut self) -> Result<(), Halt> {
        let context = self.context.clone();
        guard(Callback::Init, || {
            self.processor.init(&context)?;
            context.state_registry.check(&mut *self.processor)
        })?;
        self.deadline = self.outbox.take_wake_at();
        Ok(())
    }

    fn take_step(
        &mut self,
        step: Step,
        inputs: &[(Box<dyn InputPlan>, Priority)],
    ) -> Result<(), Halt> {
        if let Step::Records { input, from, to } = step {
            let chunk = inputs[input].0.chunk(from, to, self.context.instance);
            if chunk.is_empty() {
                return Ok(());
            }
            self.fed[input] += chunk.len() as u64;
            self.inboxes[input].fill(chunk);
            self.drain_inbox(input)
        } else {
            self.execute(step)
        }
    }

    /// Calls `on_wake` if the waker was called during a restore.
    fn wake_if_woken(&mut self) -> Result<(), Halt> {
        if self.woken.swap(false, Ordering::AcqRel) {
            self.call(Callback::Wake, |p, _, out| p.on_wake(out))?;
            self.wake_if_due()?;
        }
        Ok(())
    }

    /// Calls `close`, also after a failure.
    pub(crate) fn close(&mut self) -> Result<(), Halt> {
        guard(Callback::Close, || {
            self.processor.close();
            Ok(())
        })
    }

    fn execute(&mut self, step: Step) -> Result<(), Halt> {
        // The clock does not advance either while partitions are missing: the time at which a
        // record is processed must not depend on when its partition is restored.
        if matches!(
            step,
            Step::Idle | Step::Advance(_) | Step::Barrier(_) | Step::EdgeDone(_) | Step::Complete
        ) {
            self.restore_rest()?;
        }
        match step {
            Step::Records { .. } => Ok(()),
            Step::Watermark(watermark) => {
                if !self.defer_watermark(watermark) {
                    self.given_watermarks.push(watermark);
                }
                self.until_done(Callback::Watermark(watermark), &mut |p, out| {
                    p.on_watermark(watermark, out)
                })
            }
            Step::Idle => {
                self.outbox.marker(Marker::Idle);
                self.move_some_on()
            }
            Step::Barrier(epoch) => {
                if self.failures.is_some() {
                    return self.end_epoch(self.at_step + 1, Some(epoch));
                }
                self.until_done(Callback::Epoch(epoch), &mut |p, out| p.on_epoch(epoch, out))?;
                self.given_epochs.push(epoch);
                self.outbox.marker(Marker::Barrier(epoch));
                self.move_some_on()
            }
            Step::Advance(by) => {
                self.clock.advance(by);
                self.wake_if_due()
            }
            Step::EdgeDone(input) => {
                let ordinal = Ordinal(input as u16);
                self.until_done(Callback::EdgeDone(input), &mut |p, out| {
                    p.on_edge_done(ordinal, out)
                })
            }
            Step::Complete => self.until_done(Callback::Complete, &mut |p, out| p.complete(out)),
        }
    }

    /// Calls `process` until an inbox is empty.
    fn drain_inbox(&mut self, input: usize) -> Result<(), Halt> {
        let mut idle = 0;
        while !self.inboxes[input].is_empty() {
            let (had_room, moved) = self.process(input)?;
            idle = if moved || !had_room { 0 } else { idle + 1 };
            if self.unrestored.is_some() {
                self.wake_if_woken()?;
                self.catch_up()?;
                if idle > 0 && self.has_unrestored() {
                    self.restore_some()?;
                    continue;
                }
            }
            if idle > 0 && self.wake_early()? {
                idle = 0;
            }
            if idle >= IDLE_CALLS {
                return Err(Halt::Broken(format!(
                    "stuck: {IDLE_CALLS} calls of process(input {input}) in a row had room in every output, {} records \
                     in the inbox, and neither read nor wrote any",
                    self.inboxes[input].len()
                )));
            }
        }
        Ok(())
    }

    /// Calls `process` once. Returns whether all lanes had room, and whether any record moved.
    fn process(&mut self, input: usize) -> Result<(bool, bool), Halt> {
        let before = self.inboxes[input].len();
        let ordinal = Ordinal(input as u16);
        let outcome = self.call(Callback::Process(input), |p, inboxes, out| {
            p.process(ordinal, &mut inboxes[input], out)
        })?;
        let inbox = &self.inboxes[input];
        let after = inbox.len();
        if let Some(call) = self.trace.back_mut() {
            call.waiting = Some((before, after));
        }
        if after > before {
            return Err(Halt::Broken(format!(
                "process(input {input}) left {after} records in an inbox that held {before}"
            )));
        }
        let position = self.fed[input] - after as u64;
        if inbox.position() != position {
            return Err(Halt::Broken(format!(
                "input {input}: {position} records have been read, but its inbox stands at record {}",
                inbox.position()
            )));
        }
        Ok((outcome.had_room, outcome.wrote || after < before))
    }

    /// Calls a callback until it returns done.
    fn until_done(
        &mut self,
        callback: Callback,
        run: &mut dyn FnMut(&mut dyn Processor, &mut Outbox) -> CoreResult<Progress>,
    ) -> Result<(), Halt> {
        let (mut idle, mut busy) = (0, 0);
        let started = Instant::now();
        loop {
            let outcome = self.call(callback, |p, _, out| run(p, out))?;
            if outcome.returned.done {
                return Ok(());
            }
            let draining = callback == Callback::Drain;
            if !draining
                && self
                    .settings
                    .drain_after
                    .is_some_and(|records| self.written >= records)
            {
                self.context.signals.drain();
                return self.until_done(Callback::Drain, &mut |p, out| p.source().on_drain(out));
            }
            if callback == Callback::Complete && self.inboxes.is_empty() {
                // A source does all its work here.
                self.maybe_end_epoch()?;
            }
            let quiet = outcome.had_room && !outcome.wrote;
            if !quiet {
                (idle, busy) = (0, 0);
            } else if outcome.returned.made {
                (idle, busy) = (0, busy + 1);
            } else {
                idle += 1;
            }
            if idle > 0
                && matches!(callback, Callback::Complete | Callback::Drain)
                && !self.wait_for_source(started, &mut idle)
            {
                continue;
            }
            if idle >= IDLE_CALLS || busy >= BUSY_CALLS {
                return Err(Halt::Broken(format!(
                    "stuck: {} calls of {callback} in a row had room in every output, wrote nothing and never returned done",
                    idle.max(busy)
                )));
            }
        }
    }

    /// Advances the clock for a source that has nothing to emit. Returns true if the source's idle
    /// call counts towards being stuck.
    fn wait_for_source(&mut self, started: Instant, idle: &mut u32) -> bool {
        if let Some(deadline) = self.deadline.take() {
            self.clock
                .advance(deadline.saturating_sub(self.clock.clock().now()));
            *idle = 0;
            return false;
        }
        self.clock.advance(IDLE_POLL);
        if started.elapsed() < self.settings.thread_timeout {
            // Another thread is expected to deliver data; yield the CPU to it.
            std::thread::yield_now();
            *idle = 0;
            return false;
        }
        true
    }

    /// Advances the clock to the processor's wake deadline and wakes the processor. Returns false
    /// if there is no deadline.
    fn wake_early(&mut self) -> Result<bool, Halt> {
        let Some(deadline) = self.deadline else {
            return Ok(false);
        };
        self.clock
            .advance(deadline.saturating_sub(self.clock.clock().now()));
        self.wake_if_due()?;
        Ok(true)
    }

    fn wake_if_due(&mut self) -> Result<(), Halt> {
        let mut calls = 0;
        while self
            .deadline
            .is_some_and(|deadline| deadline <= self.clock.clock().now())
        {
            self.deadline = None;
            self.call(Callback::Wake, |p, _, out| p.on_wake(out))?;
            calls += 1;
            if calls >= BUSY_CALLS {
                return Err(Halt::Broken(format!(
                    "stuck: on_wake asked {calls} times in a row to be woken at a time that has passed"
                )));
            }
        }
        Ok(())
    }

    /// Calls one callback with the room given by the schedule; measures and checks the call.
    fn call<R>(
        &mut self,
        callback: Callback,
        run: impl FnOnce(&mut dyn Processor, &mut [Inbox], &mut Outbox) -> CoreResult<R>,
    ) -> Result<Outcome<R>, Halt> {
        if self.stop_before == Some(self.timing.calls) {
            return Err(Halt::Cancelled);
        }
        if self
            .failures
            .as_mut()
            .is_some_and(|lives| lives.fails_now())
        {
            return Err(Halt::Failed);
        }
        let budget = self.rooms.next_budget();
        self.outbox.set_budget(budget);
        let mut allowed = Vec::with_capacity(self.lanes.len());
        for lane in &mut self.lanes {
            allowed.push(lane.allow(&mut self.outbox, budget).map_err(Halt::Broken)?);
        }
        let Driver {
            processor,
            inboxes,
            outbox,
            ..
        } = self;
        let started = Instant::now();
        let result = guard(callback, || run(processor.as_mut(), inboxes, outbox));
        self.note(callback, budget, started.elapsed());
        let returned = result?;
        let wrote = self.check_written(&allowed)?;
        if let Some(deadline) = self.outbox.take_wake_at() {
            self.deadline = Some(
                self.deadline
                    .map_or(deadline, |earlier| earlier.min(deadline)),
            );
        }
        self.move_some_on()?;
        self.drive_snapshot()?;
        self.restore_some()?;
        Ok(Outcome {
            returned,
            had_room: allowed.iter().all(|lane| lane.room > 0),
            wrote,
        })
    }

    fn note(&mut self, callback: Callback, budget: usize, took: Duration) {
        self.timing.calls += 1;
        self.timing.over_limit += u64::from(took > self.settings.limit);
        if took > self.timing.longest {
            self.timing.longest = took;
            self.timing.longest_callback = Some(callback);
        }
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(Call {
            callback,
            budget,
            waiting: None,
            written: None,
        });
    }

    /// Returns true if records or markers were written. Fails if more records were written than
    /// there was room for.
    fn check_written(&mut self, allowed: &[Allowance]) -> Result<bool, Halt> {
        let mut written = 0;
        let mut closed = false;
        for (lane, &allowed) in self.lanes.iter_mut().zip(allowed) {
            written += lane
                .written(&mut self.outbox, allowed)
                .map_err(Halt::Broken)?;
        }
        self.outbox.set_budget(usize::MAX);
        for (index, allowed) in allowed.iter().enumerate() {
            closed |= allowed.room > 0 && !self.outbox.has_room(Ordinal(index as u16));
        }
        self.written += written;
        if let Some(call) = self.trace.back_mut() {
            call.written = Some(written);
        }
        Ok(written > 0 || closed)
    }

    /// Moves the outputs of the lanes that the room schedule selects, in most variants of all
    /// lanes.
    fn move_some_on(&mut self) -> Result<(), Halt> {
        for lane in &mut self.lanes {
            if self.rooms.moves_on() {
                lane.move_on(&mut self.outbox, self.settings.rules)
                    .map_err(Halt::Broken)?;
            }
        }
        Ok(())
    }

    fn move_all_on(&mut self) -> Result<(), Halt> {
        let (outbox, rules) = (&mut self.outbox, self.settings.rules);
        self.lanes
            .iter_mut()
            .try_for_each(|lane| lane.move_on(outbox, rules))
            .map_err(Halt::Broken)
    }
}

/// Calls user code. A panic becomes a report that names the callback and, if known, the record.
fn guard<R>(callback: Callback, run: impl FnOnce() -> CoreResult<R>) -> Result<R, Halt> {
    take_failed_index();
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| Halt::Error(callback, error)),
        Err(payload) => {
            let place = take_failed_index().map_or(String::new(), |index| {
                format!(" at record {index} of the batch")
            });
            Err(Halt::Broken(format!(
                "{callback} panicked{place}: {}",
                panic_message(&*payload)
            )))
        }
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}
