//! The cooperative unit: a chain of stages that gets a slice of a thread's time.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result, panic_message, take_failed_index};

use crate::input::InputSet;
use crate::job::JobShared;
use crate::mailbox::{Change, Handover, Mailbox};
use crate::output::{Farewell, OutputEdge};
use crate::panics::quietly;
use crate::stage::{Feed, Stage};

mod cuts;
mod restart;
mod work_time;

use cuts::Tended;
use work_time::WorkTime;

pub(crate) use restart::Remake;

/// How a slice ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SliceEnd {
    /// Its time was over; there is more to do at once.
    Again,
    /// What is left to do can wait until the thread has nothing else, and until this time: writing cuts.
    Leisure { from: Duration },
    /// There is nothing to do until a queue, a waker or this deadline says so.
    Rest { wake_at: Option<Duration> },
    /// It has ended, well or not; it is not to be called again but for [`Tasklet::report`].
    Finished,
}

/// What a thread knows when it gives a slice.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Round {
    /// Nothing moved on it in the round before but what can wait.
    pub(crate) has_leisure: bool,
    /// When one of its tasklets last wrote at cuts.
    pub(crate) wrote_at: Duration,
}

/// What is being called, so that a panic can be laid to it.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// This stage's processor.
    Stage(usize),
    /// The routing of this output of the last stage.
    Output(usize),
}

/// What a tasklet is in its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Instances of the job's vertices: the job is over when these have ended.
    Instances,
    /// An end of an edge to another process.
    Crossing,
}

/// How long a tasklet works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// Before others get their turn. Zero is a single step of each stage: for code that blocks, so that what one step made does not
    /// wait for the next.
    pub(crate) slice: Duration,
    /// After what time one is called again that had nothing and named no time.
    pub(crate) idle_poll: Duration,
}

/// A chain of stages with the queues at both its ends.
pub(crate) struct Tasklet {
    job: Arc<JobShared>,
    part: Part,
    mailbox: Arc<Mailbox>,
    stages: Vec<Stage>,
    /// None when it has ended.
    inputs: Option<InputSet>,
    outputs: Vec<OutputEdge>,
    turns: Turns,
    at: Place,
    is_open: bool,
    /// Whether its stages take cuts.
    has_cuts: bool,
    /// Whether its stages have got back what they remembered, or enough of it to begin.
    is_restored: bool,
    /// Whether some have not got all of it.
    is_returning: bool,
    /// Whether an input waits for a more urgent one; the job is told when that has ended.
    is_urgent: bool,
    was_cut_short: bool,
    /// When it last wrote at cuts.
    wrote_at: Duration,
    /// The division of its time among its stages.
    work: WorkTime,
    /// Where its queues go when it ends.
    handover: Option<Handover>,
    /// Present if it is made anew when it fails.
    remake: Option<Box<Remake>>,
}

impl Tasklet {
    /// A tasklet of at least one stage.
    pub(crate) fn new(
        (job, part): (Arc<JobShared>, Part),
        mailbox: Arc<Mailbox>,
        stages: Vec<Stage>,
        inputs: InputSet,
        outputs: Vec<OutputEdge>,
        turns: Turns,
    ) -> Self {
        let metrics = stages.iter().map(|s| Arc::clone(&s.context.metrics));
        let metrics = metrics.collect();
        Tasklet {
            job,
            part,
            mailbox,
            has_cuts: stages.iter().any(Stage::has_cuts),
            is_restored: false,
            is_returning: false,
            work: WorkTime::new(metrics),
            stages,
            is_urgent: inputs.is_urgent(),
            inputs: Some(inputs),
            outputs,
            turns,
            at: Place::Stage(0),
            is_open: false,
            was_cut_short: false,
            wrote_at: Duration::ZERO,
            handover: None,
            remake: None,
        }
    }

    /// Works for up to a slice. Errors and panics of user code end up in the job.
    pub(crate) fn run_slice(&mut self, round: Round) -> SliceEnd {
        if self.job.signals.is_cancelled() {
            return self.end(true);
        }
        if let Some(rests) = self.make_anew() {
            return rests;
        }
        // What a panic that the user's code caught itself may have left.
        take_failed_index();
        match catch_unwind(AssertUnwindSafe(|| self.work(round))) {
            Ok(Ok(SliceEnd::Finished)) => self.end(self.job.signals.is_cancelled()),
            Ok(Ok(end)) => end,
            Ok(Err(error)) => {
                let error = self.lay_error(error);
                self.fail(error)
            }
            Err(payload) => {
                let error = self.lay_panic(&*payload);
                quietly(|| drop(payload));
                self.fail(error)
            }
        }
    }

    /// Tells the job that this tasklet has ended. Nothing of it is left then.
    pub(crate) fn report(self: Box<Self>) {
        let Tasklet {
            job,
            part,
            was_cut_short,
            ..
        } = *self;
        job.tasklet_finished(part, was_cut_short);
        // The last one drops the job, and with it the user's receiver of dead letters.
        quietly(|| drop(job));
    }

    fn work(&mut self, round: Round) -> Result<SliceEnd> {
        if self.mailbox.has_changes() {
            self.change();
        }
        if !self.is_open {
            self.open()?;
        }
        let clock = self.stages[0].context.clock.clone();
        let start = clock.now();
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
        // The end of the slice sends what has gathered: batching never adds waiting.
        let mut flushed = true;
        for edge in &mut self.outputs {
            edge.flush();
            flushed &= edge.is_flushed();
        }
        if self.is_returning {
            (moved, now) = self.bring_back(moved, now)?;
        }
        let mut tended = Tended::default();
        if self.has_cuts {
            // What was computed goes first.
            let has_leisure = round.has_leisure && !moved;
            let round = Round {
                has_leisure,
                ..round
            };
            tended = self.tend_cuts(round, now)?;
            now = tended.until.unwrap_or(now);
        }
        self.end_slice(now - start)?;
        let is_finished = self.stages.iter().all(Stage::is_finished) && flushed;
        if is_finished && self.mailbox.close_if_empty() {
            return Ok(SliceEnd::Finished);
        }
        if moved || is_finished {
            return Ok(SliceEnd::Again);
        }
        let is_blocked = self.count_blocked(flushed);
        for stage in &self.stages {
            stage.context.metrics.begin_rest(now, is_blocked);
        }
        let poll = start.saturating_add(self.turns.idle_poll);
        let next_call = |stage: &Stage| {
            let tends = (stage.has_cut_work() || stage.is_returning()).then_some(poll);
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

    fn end_slice(&mut self, took: Duration) -> Result<()> {
        self.at = Place::Stage(0);
        self.stages[0].end_slice()?;
        self.stages[0].context.metrics.note_slice(took);
        self.work.end_slice(took);
        let Some(inputs) = &mut self.inputs else {
            return Ok(());
        };
        let (queued, capacity) = inputs.fill();
        let metrics = &self.stages[0].context.metrics;
        metrics.note_queue_fill(queued, capacity);
        if self.is_urgent && !inputs.is_urgent() {
            self.is_urgent = false;
            self.job.urgent_input_ended();
        }
        let mut misrouted = inputs.take_misrouted();
        if self.part == Part::Crossing {
            misrouted += self.stages[0].outbox.take_misrouted();
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

    /// Carries out what it was told to change.
    fn change(&mut self) {
        for change in self.mailbox.take() {
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
                Change::Leave(handover) => {
                    inputs.leave(true);
                    self.stages.iter_mut().for_each(|s| s.set_leaving(true));
                    self.stages[0].dismiss();
                    let farewell = match &handover {
                        Some(_) => Farewell::None,
                        None => Farewell::Quiet,
                    };
                    self.outputs.iter_mut().for_each(|edge| edge.bid(farewell));
                    self.handover = handover;
                }
                Change::Stay => {
                    inputs.leave(false);
                    self.stages.iter_mut().for_each(|s| s.set_leaving(false));
                    let farewell = Farewell::Whole;
                    self.outputs.iter_mut().for_each(|edge| edge.bid(farewell));
                }
                Change::Begin => self.stages[0].begin(),
                Change::Dismiss => self.stages[0].dismiss(),
                Change::Recall => self.stages[0].recall(),
                Change::Announce => self.stages[0].announce(),
                Change::Epoch(fate) => self.stages.iter_mut().for_each(|s| s.hear(fate)),
                Change::Expect(crossings) if self.part == Part::Instances => {
                    for (crossing, comers) in crossings {
                        inputs.expect(crossing, comers);
                    }
                }
                Change::Expect(crossings) => {
                    // Of itself alone.
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

    /// Passes until nothing moves or the slice is over; whether something moved last, and the time then.
    ///
    /// Looking at the clock costs as much as a few dozen records: while passes are short, several go by between two looks.
    fn passes(&mut self, clock: &Clock, start: Duration) -> Result<(bool, Duration)> {
        const MOST_BETWEEN_LOOKS: u32 = 8;
        let (mut between_looks, mut before) = (1, start);
        loop {
            let (mut moved, mut passes) = (true, 0);
            // The time now, if it is known.
            let mut known = Some(before);
            while moved && passes < between_looks {
                if self.has_to_hear() {
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

    /// Whether an epoch is about to end, and something may have come of those before that the stages have not heard: a cut that does not
    /// know of the last commit holds too much.
    #[inline]
    fn has_to_hear(&self) -> bool {
        self.mailbox.has_changes() && self.stages.iter().any(Stage::ends_epoch)
    }

    fn open(&mut self) -> Result<()> {
        for at in 0..self.stages.len() {
            self.at = Place::Stage(at);
            self.stages[at].init()?;
        }
        self.is_open = true;
        Ok(())
    }

    /// Lets each stage do one thing, first to last, so that a chunk passes through the whole chain while it is in the cache.
    ///
    /// `now` is the time if it is known. Returns whether something moved, and the time then if it is known.
    fn pass(&mut self, clock: &Clock, now: Option<Duration>) -> Result<(bool, Option<Duration>)> {
        let Some(inputs) = &mut self.inputs else {
            return Ok((false, now));
        };
        let mut lap = self.work.begin_pass(clock, now);
        let mut moved = false;
        for at in 0..self.stages.len() {
            self.at = Place::Stage(at);
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
            self.at = Place::Output(lane);
            moved |= edge.drain(&mut tail.outbox, lane, &tail.context.metrics)?;
        }
        if moved && let Some(lap) = &mut lap {
            self.work.end_stage(last, lap, clock);
        }
        Ok((moved, lap.map(|lap| lap.at)))
    }

    /// Counts a slice that ended because outputs are full, for each stage that waits for room; whether there is one.
    fn count_blocked(&self, flushed: bool) -> bool {
        let last = self.stages.len() - 1;
        let mut any = false;
        for (at, stage) in self.stages.iter().enumerate() {
            if !stage.outbox.is_empty() || at == last && !flushed {
                stage.context.metrics.count_blocked();
                any = true;
            }
        }
        any
    }

    fn lay_error(&self, error: Error) -> Error {
        match self.at {
            Place::Stage(at) => self.stages[at].place(error, None),
            Place::Output(_) => self.tail().named(error),
        }
    }

    fn lay_panic(&self, payload: &(dyn Any + Send)) -> Error {
        let said = panic_message(payload);
        let index = take_failed_index();
        let error = |what| Error::new(ErrorCode::UserPanic, what);
        match self.at {
            Place::Stage(at) => {
                self.stages[at].place(error(format!("user code panicked: {said}")), index)
            }
            Place::Output(lane) => {
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

    fn tail(&self) -> &Stage {
        &self.stages[self.stages.len() - 1]
    }

    fn fail(&mut self, error: Error) -> SliceEnd {
        if self.remake.is_some() && !self.job.signals.is_cancelled() {
            return self.give_up(error);
        }
        self.job.fail(error);
        self.end(true)
    }

    /// Closes all processors, then drops them, their boxes and the queues' ends with all records in them.
    fn end(&mut self, cut_short: bool) -> SliceEnd {
        self.was_cut_short = cut_short;
        self.work.end();
        for stage in &mut self.stages {
            // A close that panics must not keep the others from closing.
            quietly(|| stage.close());
        }
        // Who was stopped may go on in another life of the job; who has failed, or ended, may not.
        let leaves = self.job.cuts.leaves.as_ref();
        let leaves = leaves.filter(|_| cut_short && !self.job.has_failed());
        for stage in self.stages.drain(..) {
            match leaves {
                Some(keepsakes) => stage.leave(keepsakes),
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
        for change in self.mailbox.close() {
            match change {
                // Those that came too late to be heard of any other way.
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
