//! Stands for an instance that runs in a process of its own.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, Epoch, Inbox, InstanceContext, JobSignals, Marker, Ordinal, Outbox, Processor,
    Progress, Result, Timestamp, Waker, Watermark, WatermarkMerge,
};
use ardea_network::exchange::{InstanceNumber, Received};

use super::ToInstance;
use super::keeper::Kept;
use crate::berth::{Berth, Lent};
use crate::receive_end::{Came, ReceiveEnd};
use crate::send_end::SendEnd;

/// How long it rests at most.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// How long a process that is not there may take to come back, when its source is to end.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// Starts the process; the waker is the stand-in's.
pub(super) type StartProcess = dyn FnOnce(Waker, bool) -> Result<Arc<Kept>> + Send;

/// Sends what comes to the process, and gives out what comes back.
pub(super) struct StandInP {
    target: InstanceNumber,
    start: Option<Box<StartProcess>>,
    process: Option<Arc<Kept>>,
    inputs: Vec<Way>,
    outputs: Vec<Return>,
    merge: WatermarkMerge,
    about: About,
    chunk: Chunk,
    /// How many inputs have been told what is to be told at the moment.
    told: usize,
    owes_idle: bool,
    drained_at: Option<Duration>,
    was_paused: bool,
    /// What the process has counted, as far as it is counted here.
    counted: [u64; 3],
}

/// What it knows of its place.
struct About {
    waker: Waker,
    clock: Clock,
    signals: Arc<JobSignals>,
    metrics: Arc<ardea_core::InstanceMetrics>,
}

/// The way to an input of the instance.
struct Way {
    berth: Arc<Berth<SendEnd>>,
    lent: Option<Lent<SendEnd>>,
    is_done: bool,
}

/// The way back from an output of the instance.
struct Return {
    berth: Arc<Berth<ReceiveEnd>>,
    lent: Option<Lent<ReceiveEnd>>,
    lane: Option<Ordinal>,
    chunk: Chunk,
    has_chunk: bool,
    flow: Flow,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Open,
    /// Held until the epoch's end is passed on.
    AtEpochEnd(Epoch),
    Done,
}

impl Way {
    fn end(&mut self, waker: &Waker) -> Option<&mut SendEnd> {
        if self.lent.is_none() {
            self.lent = self.berth.lend(waker);
            self.lent.as_mut()?.end()?.begin();
        }
        self.lent.as_mut()?.end()
    }
}

impl Return {
    fn end(&mut self, waker: &Waker) -> Option<&mut ReceiveEnd> {
        if self.lent.is_none() {
            self.lent = self.berth.lend(waker);
        }
        self.lent.as_mut()?.end()
    }
}

impl StandInP {
    pub(super) fn new(
        instance: u32,
        start: Box<StartProcess>,
        inputs: Vec<Arc<Berth<SendEnd>>>,
        outputs: Vec<(Arc<Berth<ReceiveEnd>>, Option<Ordinal>)>,
    ) -> Self {
        let outputs: Vec<Return> = outputs
            .into_iter()
            .map(|(berth, lane)| Return {
                berth,
                lent: None,
                lane,
                chunk: Chunk::default(),
                has_chunk: false,
                flow: Flow::Open,
            })
            .collect();
        let inputs = inputs.into_iter().map(|berth| Way {
            berth,
            lent: None,
            is_done: false,
        });
        StandInP {
            target: InstanceNumber(instance),
            start: Some(start),
            process: None,
            inputs: inputs.collect(),
            merge: WatermarkMerge::new(outputs.len()),
            outputs,
            about: About {
                waker: Waker::none(),
                clock: Clock::system(),
                signals: Arc::default(),
                metrics: Arc::default(),
            },
            chunk: Chunk::default(),
            told: 0,
            owes_idle: false,
            drained_at: None,
            was_paused: false,
            counted: [0; 3],
        }
    }

    fn tell(&self, message: ToInstance) {
        if let Some(process) = &self.process {
            process.tell(message);
        }
    }

    /// Says something over all inputs that have not ended; whether all have taken it.
    fn mark_all(&mut self, marker: Marker) -> Result<bool> {
        while let Some(way) = self.inputs.get_mut(self.told) {
            if !way.is_done
                && let Some(end) = way.end(&self.about.waker)
            {
                if !end.mark(marker)? {
                    return Ok(false);
                }
                end.flush()?;
            }
            self.told += 1;
        }
        self.told = 0;
        Ok(true)
    }

    fn tell_idle(&mut self) -> Result<()> {
        if self.owes_idle && self.mark_all(Marker::Idle)? {
            self.owes_idle = false;
        }
        Ok(())
    }

    /// Gives out what has come back; whether there was something.
    fn give_out(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let mut made = false;
        for at in 0..self.outputs.len() {
            while self.step_output(at, outbox)? {
                made = true;
            }
        }
        self.count();
        let now = self.about.clock.now();
        let calls = self.outputs.iter_mut().filter_map(|it| {
            let lent = it.lent.as_mut()?;
            lent.end()?.next_call()
        });
        let next = calls.min().unwrap_or(now + LONGEST_REST);
        outbox.wake_at(next.min(now + LONGEST_REST));
        Ok(made)
    }

    /// Moves one thing of an output on; false if there is none, or no room.
    fn step_output(&mut self, at: usize, outbox: &mut Outbox) -> Result<bool> {
        let now = self.about.clock.now();
        let output = &mut self.outputs[at];
        if output.has_chunk {
            let Some(lane) = output.lane else {
                output.chunk.clear();
                output.has_chunk = false;
                return Ok(true);
            };
            output.has_chunk = !outbox.offer_chunk(lane, &mut output.chunk)?;
            return Ok(!output.has_chunk);
        }
        if matches!(output.flow, Flow::AtEpochEnd(_)) {
            return Ok(false);
        }
        let mut chunk = std::mem::take(&mut output.chunk);
        let came = match output.end(&self.about.waker) {
            Some(end) => end.receive(now, &mut chunk),
            None => Ok(None),
        };
        output.chunk = chunk;
        let Some(came) = came? else {
            return Ok(false);
        };
        self.take(at, came, outbox);
        Ok(true)
    }

    fn take(&mut self, at: usize, came: Came, outbox: &mut Outbox) {
        let output = &mut self.outputs[at];
        let risen = match came {
            Came::Anew => {
                output.flow = Flow::Open;
                self.merge.replace(at);
                // The new process has not heard what the one before was being told.
                self.told = 0;
                None
            }
            Came::Said(Received::Records { .. }) => {
                output.has_chunk = true;
                self.merge.record(at);
                None
            }
            Came::Said(Received::Leave(_)) => None,
            Came::Said(Received::Marker(marker)) => match marker {
                Marker::Watermark(watermark) => self.merge.advance(at, watermark),
                Marker::Idle => {
                    let risen = self.merge.idle(at);
                    if self.merge.tells_idle() {
                        outbox.marker(Marker::Idle);
                    }
                    risen
                }
                Marker::EpochEnd(epoch) => {
                    output.flow = Flow::AtEpochEnd(epoch);
                    None
                }
                Marker::Latency(_) => {
                    if at == 0 {
                        outbox.marker(marker);
                    }
                    None
                }
                Marker::Done => {
                    output.flow = Flow::Done;
                    self.merge.done(at).filter(|risen| *risen != Watermark::END)
                }
            },
        };
        if let Some(watermark) = risen {
            outbox.watermark(watermark);
        }
    }

    /// Counts here what the process has counted since it was last asked.
    fn count(&mut self) {
        let Some(process) = &self.process else {
            return;
        };
        let counted = process.counted();
        let [late, late_in_part, bad] = [0, 1, 2].map(|at| counted[at] - self.counted[at]);
        self.about.metrics.count_late(late);
        self.about.metrics.count_late_in_part(late_in_part);
        self.about.metrics.count_bad(bad);
        self.counted = counted;
    }

    fn has_ended(&self) -> bool {
        let has_ended = |output: &Return| output.flow == Flow::Done && !output.has_chunk;
        self.outputs.iter().all(has_ended)
    }
}

impl Processor for StandInP {
    fn forgets(&self) -> Option<&'static str> {
        Some("what an instance in a process of its own remembers, which does not come here")
    }

    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.about = About {
            waker: context.waker.clone(),
            clock: context.clock.clone(),
            signals: Arc::clone(&context.signals),
            metrics: Arc::clone(&context.metrics),
        };
        self.was_paused = context.signals.is_paused();
        for way in &mut self.inputs {
            way.end(&self.about.waker);
        }
        for output in &mut self.outputs {
            output.end(&self.about.waker);
        }
        if let Some(start) = self.start.take() {
            self.process = Some(start(context.waker.clone(), self.was_paused)?);
        }
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.owes_idle = false;
        let mut chunk = std::mem::take(&mut self.chunk);
        inbox.swap(&mut chunk);
        let sent = match self.inputs[input.index()].end(&self.about.waker) {
            Some(end) => end.send(self.target, &mut chunk).and_then(|_| end.flush()),
            None => Ok(()),
        };
        inbox.swap(&mut chunk);
        self.chunk = chunk;
        sent?;
        self.give_out(outbox)?;
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        // The instance says when it has come so far, behind all that it emits before.
        let done = self.mark_all(Marker::Watermark(watermark))?;
        let made = self.give_out(outbox)?;
        Ok(Progress { made, done })
    }

    fn on_idle(&mut self) {
        self.owes_idle = true;
    }

    fn on_latency(&mut self, born: Timestamp) -> Result<bool> {
        if let Some(end) = self
            .inputs
            .first_mut()
            .and_then(|way| way.end(&self.about.waker))
        {
            // One that can't be sent now is left out.
            let _ = end.mark(Marker::Latency(born))?;
        }
        Ok(true)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.tell_idle()?;
        self.give_out(outbox)?;
        Ok(())
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let is_told = match (self.inputs.is_empty(), self.told) {
            (true, 0) => {
                self.tell(ToInstance::EndEpoch);
                true
            }
            (true, _) => true,
            (false, told) if told > self.inputs.len() => true,
            (false, _) => self.mark_all(Marker::EpochEnd(epoch))?,
        };
        // Told once; after this it waits for the answer.
        self.told = if is_told {
            self.inputs.len() + 1
        } else {
            self.told
        };
        let made = self.give_out(outbox)?;
        let at_end = |output: &Return| match output.flow {
            Flow::AtEpochEnd(at) => at >= epoch,
            Flow::Open => false,
            Flow::Done => true,
        };
        let done = self.outputs.iter().all(at_end);
        if done {
            self.told = 0;
            for output in &mut self.outputs {
                if output.flow != Flow::Done {
                    output.flow = Flow::Open;
                }
            }
        }
        Ok(Progress { made, done })
    }

    fn on_edge_done(&mut self, input: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        let way = &mut self.inputs[input.index()];
        way.is_done = true;
        match way.end(&self.about.waker) {
            Some(end) => end.finish()?,
            None => return Ok(Progress::NONE),
        }
        self.give_out(outbox)?;
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let is_paused = self.about.signals.is_paused();
        if self.inputs.is_empty() && is_paused != self.was_paused {
            self.was_paused = is_paused;
            self.tell(ToInstance::Pause(is_paused));
        }
        // What could not be said before, such as the end of an input to a process that was not there.
        for way in &mut self.inputs {
            if let Some(end) = way.end(&self.about.waker) {
                end.flush()?;
            }
        }
        let made = self.give_out(outbox)?;
        let done = self.has_ended();
        Ok(Progress { made, done })
    }

    fn pauses_itself(&self) -> bool {
        true
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let now = self.about.clock.now();
        let since = match self.drained_at {
            Some(since) => since,
            None => {
                self.tell(ToInstance::Drain);
                *self.drained_at.insert(now)
            }
        };
        let progress = self.complete(outbox)?;
        // A process that dies again and again would never come to an end.
        let is_away = self.outputs.iter_mut().all(|output| {
            let end = output.end(&self.about.waker);
            end.is_some_and(|end| end.is_cut())
        });
        Ok(Progress {
            done: progress.done || (is_away && now >= since + GIVEN_UP),
            ..progress
        })
    }

    fn close(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }
}

impl Drop for StandInP {
    fn drop(&mut self) {
        self.close();
    }
}
