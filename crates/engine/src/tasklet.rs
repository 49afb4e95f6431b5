//! The cooperative unit: a chain of stages that runs for a slice at a time.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result, panic_message, take_failed_index};

use crate::batch_delay::BatchDelay;
use crate::channels::control_queue::{Change, ControlQueue, Handover};
use crate::channels::input::InputSet;
use crate::channels::output::{CloseMode, OutputEdge};
use crate::job::{JobShared, Part};
use crate::panics::quietly;
use crate::stage::{Feed, ProcessorStage};

mod restart;
mod snapshots;
mod work_time;

use snapshots::SnapshotWork;
use work_time::WorkTime;

pub(crate) use restart::RestartFactory;

/// The result of a slice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SliceEnd {
    /// The slice is over; there is more to do at once.
    Again,
    /// The remaining work (writing snapshots) can wait until the thread has nothing else to do, and
    /// at least until the time `from`.
    Leisure { from: Duration },
    /// There is nothing to do until a queue, a waker or this deadline wakes the tasklet.
    Rest { wake_at: Option<Duration> },
    /// The tasklet gathers records until this time. Data does not wake it before.
    Gather { until: Duration },
    /// The tasklet has ended, successfully or not; only [`Tasklet::report`] may be called.
    Finished,
}

/// The state of the thread when a slice starts.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Round {
    /// True if nothing moved in the previous round except work that can wait.
    pub(crate) has_leisure: bool,
    /// The time when one of the thread's tasklets last wrote snapshots.
    pub(crate) wrote_at: Duration,
}

/// The code that is being called, to attribute panics.
#[derive(Clone, Copy, Debug)]
enum CallSite {
    /// This stage's processor.
    Stage(usize),
    /// The routing of this output of the last stage.
    Output(usize),
}

/// The timing of a tasklet's slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceConfig {
    /// The length of a slice. Zero means a single step of each stage: for blocking code, so that
    /// the output of a step does not wait for the next one.
    pub(crate) slice: Duration,
    /// The poll interval of a stage that had no data and requested no deadline.
    pub(crate) idle_poll: Duration,
    /// The maximum time for which the tasklet gathers records while few come; zero if it does not.
    pub(crate) latency: Duration,
}

/// A chain of stages with the queues at both ends.
pub(crate) struct Tasklet {
    job: Arc<JobShared>,
    part: Part,
    control_queue: Arc<ControlQueue>,
    stages: Vec<ProcessorStage>,
    /// `None` after the end.
    inputs: Option<InputSet>,
    outputs: Vec<OutputEdge>,
    turns: SliceConfig,
    /// Present if the tasklet gathers records.
    delay: Option<BatchDelay>,
    at: CallSite,
    is_open: bool,
    /// True if the stages take snapshots.
    has_snapshots: bool,
    /// True if the stages are restored, at least enough to start.
    is_restored: bool,
    /// True if some lazy restores are not complete.
    is_returning: bool,
    /// True if an input waits for a more urgent one; the job is notified when the urgent one has
    /// ended.
    is_urgent: bool,
    was_cut_short: bool,
    /// The time when the tasklet last wrote snapshots.
    wrote_at: Duration,
    /// The division of the tasklet's time among its stages.
    work: WorkTime,
    /// The destination of the tasklet's queues when it ends.
    handover: Option<Handover>,
    /// Present if the tasklet is restarted after a failure.
    remake: Option<Box<RestartFactory>>,
}

impl Tasklet {
    /// Creates a tasklet of at least one stage.
    pub(crate) fn new(
        (job, part): (Arc<JobShared>, Part),
        mailbox: Arc<ControlQueue>,
        stages: Vec<ProcessorStage>,
        inputs: InputSet,
        outputs: Vec<OutputEdge>,
        turns: SliceConfig,
    ) -> Self {
        let metrics = stages.iter().map(|s| Arc::clone(&s.context.metrics));
        let metrics = metrics.collect();
        Tasklet {
            job,
            part,
            control_queue: mailbox,
            has_snapshots: stages.iter().any(ProcessorStage::has_snapshots),
            is_restored: false,
            is_returning: false,
            work: WorkTime::new(metrics),
            delay: (!turns.latency.is_zero()).then(|| BatchDelay::of_records(turns.latency)),
            stages,
            is_urgent: inputs.is_urgent(),
            inputs: Some(inputs),
            outputs,
            turns,
            at: CallSite::Stage(0),
            is_open: false,
            was_cut_short: false,
            wrote_at: Duration::ZERO,
            handover: None,
            remake: None,
        }
    }

    /// Runs for up to a slice. Errors and panics of user code are reported to the job.
    pub(crate) fn run_slice(&mut self, round: Round) -> SliceEnd {
        if self.job.signals.is_cancelled() {
            return self.end(true);
        }
        if let Some(rests) = self.restart_if_due() {
            return rests;
        }
        // May be left from a panic that user code has caught.
        take_failed_index();
        match catch_unwind(AssertUnwindSafe(|| self.work(round))) {
            Ok(Ok(SliceEnd::Finished)) => self.end(self.job.signals.is_cancelled()),
            Ok(Ok(end)) => end,
            Ok(Err(error)) => {
                let error = self.locate_error(error);
                self.fail(error)
            }
            Err(payload) => {
                let error = self.locate_panic(&*payload);
                quietly(|| drop(payload));
                self.fail(error)
            }
        }
    }

    /// Reports the end of this tasklet to the job and drops the rest of it.
    pub(crate) fn report(self: Box<Self>) {
        let Tasklet {
            job,
            part,
            was_cut_short,
            ..
        } = *self;
        job.tasklet_finished(part, was_cut_short);
        // The last reference drops the job, and with it the user's receiver of dead letters.
        quietly(|| drop(job));
    }

    fn work(&mut self, round: Round) -> Result<SliceEnd> {
        if self.control_queue.has_changes() {
            self.change();
        }
        if !self.is_open {
            self.open()?;
        }
        let clock = self.stages[0].context.clock.clone();
        let start = clock.now();
        if let Some(until) = self.gathers_until(start) {
            return Ok(SliceEnd::Gather { until });
        }
        for stage in &self.stages {
            stage.context.metrics.end_rest(start);
        }
        if !self.is_restored
            && let Some(rests) = self.restore(start)?
        {
            return Ok(rests);
        }
        self.work.begin_slice();
        self.stages[0].begin_slice(start);
        let (mut moved, mut now) = self.passes(&clock, start)?;
        // Staged records are sent at the end of the slice, so that batching adds no latency.
        let mut flushed = true;
        for edge in &mut self.outputs {
            edge.flush();
            flushed &= edge.is_flushed();
        }
        if self.is_returning {
            (moved, now) = self.bring_back(moved, now)?;
        }
        let mut tended = SnapshotWork::default();
        if self.has_snapshots {
            // Computed output is sent first.
            let has_leisure = round.has_leisure && !moved;
            let round = Round {
                has_leisure,
                ..round
            };
            tended = self.tend_snapshots(round, now)?;
            now = tended.until.unwrap_or(now);
        }
        self.end_slice(now - start)?;
        let is_finished = self.stages.iter().all(ProcessorStage::is_finished) && flushed;
        if is_finished && self.control_queue.close_if_empty() {
            return Ok(SliceEnd::Finished);
        }
        let is_idle = !moved && !is_finished;
        let is_blocked = is_idle && self.count_blocked(flushed);
        if let Some(delay) = &mut self.delay {
            let head = &self.stages[0];
            // A step that waits for something other than records has no deadline for it.
            let (records, waits) = match head.reads_from_outside() {
                true => (head.context.metrics.records_out(), false),
                false => {
                    let waits = self.stages.iter().any(ProcessorStage::holds_back);
                    (head.context.metrics.records_in(), waits)
                }
            };
            delay.end_call(start, records, is_idle && !is_blocked && !waits);
        }
        if !is_idle {
            return Ok(SliceEnd::Again);
        }
        for stage in &self.stages {
            stage.context.metrics.begin_rest(now, is_blocked);
        }
        if let Some(until) = self.gathers_until(now) {
            return Ok(SliceEnd::Gather { until });
        }
        let poll = start.saturating_add(self.turns.idle_poll);
        let next_call = |stage: &ProcessorStage| {
            let tends = (stage.has_snapshot_work() || stage.is_restoring()).then_some(poll);
            stage.next_call(poll).into_iter().chain(tends).min()
        };
        let wake_at = self.stages.iter().filter_map(next_call).min();
        Ok(match tended.goes_on {
            Some(from) => SliceEnd::Leisure {
                from: wake_at.map_or(from, |at| at.min(from)),
            },
            None => SliceEnd::Rest { wake_at },
        })
    }

    /// Returns the time until which the tasklet gathers records, if it must not be called at `now`.
    /// Requests to the job, pending work of snapshots and restores, deadlines of steps and full
    /// queues do not wait.
    fn gathers_until(&self, now: Duration) -> Option<Duration> {
        let mut until = self.delay.as_ref()?.delay(now)?;
        let waits = |stage: &ProcessorStage| {
            stage.has_snapshot_work() || stage.is_restoring() || stage.has_request()
        };
        if !self.is_restored || self.stages.iter().any(waits) {
            return None;
        }
        until = self.stages[0]
            .batch_deadline()
            .map_or(until, |end| until.min(end));
        if !self.stages[0].reads_from_outside() {
            if self.inputs.as_ref().is_some_and(InputSet::blocks_producer) {
                return None;
            }
            let deadlines = self.stages.iter().filter_map(ProcessorStage::deadline);
            until = deadlines.fold(until, Duration::min);
        }
        (now < until).then_some(until)
    }

    fn end_slice(&mut self, took: Duration) -> Result<()> {
        self.at = CallSite::Stage(0);
        self.stages[0].end_slice()?;
        self.stages[0].context.metrics.record_slice(took);
        self.work.end_slice(took);
        let Some(inputs) = &mut self.inputs else {
            return Ok(());
        };
        let (queued, capacity) = inputs.fill();
        let metrics = &self.stages[0].context.metrics;
        metrics.record_queue_fill(queued, capacity);
        if self.is_urgent && !inputs.is_urgent() {
            self.is_urgent = false;
            self.job.urgent_input_ended();
        }
        let mut misrouted = inputs.take_misrouted();
        if self.part == Part::Crossing {
            misrouted += self.stages[0].take_misrouted();
            misrouted += self
                .outputs
                .iter_mut()
                .map(OutputEdge::take_lost)
                .sum::<u64>();
        }
        if misrouted > 0 {
            self.job.count_misrouted(misrouted);
        }
        Ok(())
    }

    /// Applies the pending changes.
    fn change(&mut self) {
        for change in self.control_queue.take() {
            let Some(inputs) = &mut self.inputs else {
                return;
            };
            match change {
                Change::Inlets(inlets) => {
                    let most = inlets.iter().map(|inlet| inlet.input + 1).max();
                    self.stages[0].grow(most.unwrap_or(0), 0);
                    inputs.add(inlets);
                    if inputs.take_reopened() {
                        self.stages[0].reopen();
                    }
                }
                Change::Lanes { output, lanes } => {
                    let tail = self.stages.len() - 1;
                    self.stages[tail].grow(0, output + 1);
                    let chunk_records = self.stages[tail].context.chunk_records;
                    while self.outputs.len() <= output {
                        let like = self.outputs.first();
                        self.outputs.push(OutputEdge::another(like, chunk_records));
                    }
                    if self.part == Part::Crossing {
                        OutputEdge::agree(&mut self.outputs);
                    }
                    self.outputs[output].change(lanes);
                }
                Change::Stop(handover) => {
                    inputs.set_stopping(true);
                    self.stages.iter_mut().for_each(|s| s.set_leaving(true));
                    self.stages[0].dismiss();
                    let farewell = match &handover {
                        Some(_) => CloseMode::None,
                        None => CloseMode::Quiet,
                    };
                    self.outputs
                        .iter_mut()
                        .for_each(|edge| edge.set_close_mode(farewell));
                    self.handover = handover;
                }
                Change::CancelStop => {
                    inputs.set_stopping(false);
                    self.stages.iter_mut().for_each(|s| s.set_leaving(false));
                    let farewell = CloseMode::Whole;
                    self.outputs
                        .iter_mut()
                        .for_each(|edge| edge.set_close_mode(farewell));
                }
                Change::StartSource => self.stages[0].begin(),
                Change::Dismiss => self.stages[0].dismiss(),
                Change::Recall => self.stages[0].recall(),
                Change::AnnounceProducers => self.stages[0].announce(),
                Change::Epoch(fate) => self.stages.iter_mut().for_each(|s| s.hear(fate)),
                Change::ExpectProducers(crossings) if self.part == Part::Instances => {
                    for (crossing, comers) in crossings {
                        inputs.expect(crossing, comers);
                    }
                }
                Change::ExpectProducers(crossings) => {
                    // Changes of this tasklet itself.
                    for (_, comers) in crossings {
                        self.outputs.iter_mut().for_each(|edge| edge.expect(comers));
                    }
                }
            }
        }
        if let Some(inputs) = &mut self.inputs {
            inputs.resume();
        }
    }

    /// Runs passes until nothing moves or the slice is over. Returns true if something moved in the
    /// last pass, and the time.
    ///
    /// Reading the clock costs as much as a few dozen records: while passes are short, several run
    /// between two reads.
    fn passes(&mut self, clock: &Clock, start: Duration) -> Result<(bool, Duration)> {
        const MOST_BETWEEN_LOOKS: u32 = 8;
        let (mut between_looks, mut before) = (1, start);
        loop {
            let (mut moved, mut passes) = (true, 0);
            // The current time, if known.
            let mut known = Some(before);
            while moved && passes < between_looks {
                if self.must_apply_changes() {
                    let now = clock.now();
                    self.work.note_passes(passes, now - before);
                    return Ok((true, now));
                }
                (moved, known) = self.pass(clock, known)?;
                passes += 1;
            }
            let now = known.unwrap_or_else(|| clock.now());
            self.work.note_passes(passes, now - before);
            if !moved || now - start >= self.turns.slice {
                return Ok((moved, now));
            }
            let is_short = now - before < self.turns.slice / 16;
            between_looks = if is_short {
                (between_looks * 2).min(MOST_BETWEEN_LOOKS)
            } else {
                1
            };
            before = now;
        }
    }

    /// Returns true if a stage is about to end an epoch while changes are pending, which may
    /// include the outcome of earlier epochs. An increment that ignores the last commit is larger
    /// than needed.
    #[inline]
    fn must_apply_changes(&self) -> bool {
        self.control_queue.has_changes() && self.stages.iter().any(ProcessorStage::ends_epoch)
    }

    fn open(&mut self) -> Result<()> {
        for at in 0..self.stages.len() {
            self.at = CallSite::Stage(at);
            self.stages[at].init()?;
        }
        self.is_open = true;
        Ok(())
    }

    /// Runs one step of each stage, first to last, so that a chunk passes through the whole chain
    /// while it is cached.
    ///
    /// `now` is the time if known. Returns true if something moved, and the time if known.
    fn pass(&mut self, clock: &Clock, now: Option<Duration>) -> Result<(bool, Option<Duration>)> {
        let Some(inputs) = &mut self.inputs else {
            return Ok((false, now));
        };
        let mut lap = self.work.begin_pass(clock, now);
        let mut moved = false;
        for at in 0..self.stages.len() {
            self.at = CallSite::Stage(at);
            let (before, rest) = self.stages.split_at_mut(at);
            let feed = match before.last_mut() {
                Some(stage) => Feed::Before(stage),
                None => Feed::Queues(inputs),
            };
            let has_moved = rest[0].step(feed)?;
            moved |= has_moved;
            if has_moved && let Some(lap) = &mut lap {
                self.work.end_stage(at, lap, clock);
            }
        }
        let last = self.stages.len() - 1;
        let tail = &mut self.stages[last];
        for (lane, edge) in self.outputs.iter_mut().enumerate() {
            self.at = CallSite::Output(lane);
            moved |= edge.drain(&mut tail.outbox, lane, &tail.context.metrics)?;
            moved |= tail.send_signal(lane, edge);
        }
        if moved && let Some(lap) = &mut lap {
            self.work.end_stage(last, lap, clock);
        }
        Ok((moved, lap.map(|lap| lap.at)))
    }

    /// Counts a slice that ended because outputs are full, for each stage that waits for room;
    /// returns true if there is one.
    fn count_blocked(&self, flushed: bool) -> bool {
        let last = self.stages.len() - 1;
        let mut any = false;
        for (at, stage) in self.stages.iter().enumerate() {
            if stage.has_output() || at == last && !flushed {
                stage.context.metrics.count_blocked();
                any = true;
            }
        }
        any
    }

    fn locate_error(&self, error: Error) -> Error {
        match self.at {
            CallSite::Stage(at) => self.stages[at].place(error, None),
            CallSite::Output(_) => self.tail().named(error),
        }
    }

    fn locate_panic(&self, payload: &(dyn Any + Send)) -> Error {
        let said = panic_message(payload);
        let index = take_failed_index();
        let error = |what| Error::new(ErrorCode::UserPanic, what);
        match self.at {
            CallSite::Stage(at) => {
                self.stages[at].place(error(format!("user code panicked: {said}")), index)
            }
            CallSite::Output(lane) => {
                let which = match index {
                    Some(index) => format!("record {}", self.outputs[lane].position(index)),
                    None => "a record".to_string(),
                };
                self.tail().named(error(format!(
                    "user code panicked routing {which} of output {lane}: {said}"
                )))
            }
        }
    }

    fn tail(&self) -> &ProcessorStage {
        &self.stages[self.stages.len() - 1]
    }

    fn fail(&mut self, error: Error) -> SliceEnd {
        if self.remake.is_some() && !self.job.signals.is_cancelled() {
            return self.schedule_restart(error);
        }
        self.job.fail(error);
        self.end(true)
    }

    /// Closes all processors, then drops them with inboxes, outboxes, queues and all records in
    /// them.
    fn end(&mut self, cut_short: bool) -> SliceEnd {
        self.was_cut_short = cut_short;
        self.work.end();
        for stage in &mut self.stages {
            // A panic in `close` must not keep the others from closing.
            quietly(|| stage.close());
        }
        // State of a stopped tasklet may be reused by the next attempt, but not that of a failed or
        // ended one.
        let leaves = self.job.snapshots.handoff_out.as_ref();
        let leaves = leaves.filter(|_| cut_short && !self.job.has_failed());
        for stage in self.stages.drain(..) {
            match leaves {
                Some(keepsakes) => stage.hand_off(keepsakes),
                None => stage.dismantle(),
            }
        }
        let (inputs, outputs) = (self.inputs.take(), mem::take(&mut self.outputs));
        match self.handover.take().filter(|_| !cut_short) {
            Some(handover) => {
                let lanes = outputs.into_iter().flat_map(OutputEdge::into_lanes);
                let mut left = handover.lock().unwrap_or_else(PoisonError::into_inner);
                left.extend(lanes);
            }
            None => quietly(|| drop(outputs)),
        }
        if let Some(inputs) = inputs {
            inputs.close();
        }
        for change in self.control_queue.close() {
            match change {
                // Queues that arrived too late to be used.
                Change::Lanes { lanes, .. } if !cut_short => OutputEdge::end_new(lanes),
                Change::Inlets(inlets) => {
                    inlets.into_iter().for_each(|inlet| inlet.receiver.close());
                }
                _ => {}
            }
        }
        SliceEnd::Finished
    }
}
