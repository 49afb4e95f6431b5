//! The proxy of an instance in a separate process.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, Epoch, Inbox, InstanceContext, JobSignals, Marker, MarkerDeferral, Ordinal,
    Outbox, Processor, Progress, Result, SourceControl, Waker, Watermark, WatermarkMerge,
};
use ardea_network::exchange::{InstanceNumber, Received, StreamItem, StreamReceiver, StreamSender};

use super::ToInstance;
use super::supervisor::SupervisedProcess;
use crate::endpoint_slot::{EndpointSlot, EndpointUser};

/// Maximum time between two calls of the proxy.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// Maximum wait for a missing process when the source in that process must end.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// A function that starts the process. Its arguments are the proxy's waker, and true if the source
/// starts paused.
pub(super) type StartProcess = dyn FnOnce(Waker, bool) -> Result<Arc<SupervisedProcess>> + Send;

/// The proxy processor. It sends the instance's input to the process, and emits the output that
/// returns.
pub(super) struct ProcessProxyP {
    target: InstanceNumber,
    start: Option<Box<StartProcess>>,
    process: Option<Arc<SupervisedProcess>>,
    inputs: Vec<InputPort>,
    outputs: Vec<Return>,
    merge: WatermarkMerge,
    about: ProxyContext,
    chunk: Chunk,
    /// The number of inputs that have received the current marker.
    told: usize,
    owes_idle: bool,
    drained_at: Option<Duration>,
    was_paused: bool,
    /// The values of the process's counters that the proxy has already counted.
    counted: [u64; 3],
}

/// The context of the proxy.
struct ProxyContext {
    clock: Clock,
    signals: Arc<JobSignals>,
    metrics: Arc<ardea_core::InstanceMetrics>,
}

/// The stream to an input of the instance.
struct InputPort {
    endpoint: EndpointUser<StreamSender>,
    is_done: bool,
}

/// The stream from an output of the instance.
struct Return {
    endpoint: EndpointUser<StreamReceiver>,
    lane: Option<Ordinal>,
    chunk: Chunk,
    has_chunk: bool,
    flow: Flow,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Open,
    /// The output is stopped at the barrier of this epoch until the barrier is passed on.
    AtBarrier(Epoch),
    Done,
}

impl ProcessProxyP {
    pub(super) fn new(
        instance: u32,
        start: Box<StartProcess>,
        inputs: Vec<Arc<EndpointSlot<StreamSender>>>,
        outputs: Vec<(Arc<EndpointSlot<StreamReceiver>>, Option<Ordinal>)>,
    ) -> Self {
        let outputs: Vec<Return> = outputs
            .into_iter()
            .map(|(slot, lane)| Return {
                endpoint: EndpointUser::new(slot),
                lane,
                chunk: Chunk::default(),
                has_chunk: false,
                flow: Flow::Open,
            })
            .collect();
        let inputs = inputs.into_iter().map(|slot| InputPort {
            endpoint: EndpointUser::new(slot),
            is_done: false,
        });
        ProcessProxyP {
            target: InstanceNumber(instance),
            start: Some(start),
            process: None,
            inputs: inputs.collect(),
            merge: WatermarkMerge::new(outputs.len()),
            outputs,
            about: ProxyContext {
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
            process.send(message);
        }
    }

    /// Sends a marker over all open inputs. Returns true once all inputs have accepted the marker.
    fn mark_all(&mut self, marker: Marker) -> Result<bool> {
        while let Some(way) = self.inputs.get_mut(self.told) {
            if !way.is_done
                && let Some(end) = way.endpoint.get()
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

    /// Emits the output received from the process. Returns true if there was any.
    fn emit(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let mut made = false;
        for at in 0..self.outputs.len() {
            while self.step_output(at, outbox)? {
                made = true;
            }
        }
        self.count();
        let now = self.about.clock.now();
        let calls = self.outputs.iter_mut();
        let calls = calls.filter_map(|it| it.endpoint.get()?.next_call());
        let next = calls.min().unwrap_or(now + LONGEST_REST);
        outbox.wake_at(next.min(now + LONGEST_REST));
        Ok(made)
    }

    /// Handles the next item of the output `at`. Returns false if there is no item, or no room in
    /// the outbox.
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
        if matches!(output.flow, Flow::AtBarrier(_)) {
            return Ok(false);
        }
        let mut chunk = std::mem::take(&mut output.chunk);
        let came = match output.endpoint.get() {
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

    fn take(&mut self, at: usize, came: StreamItem, outbox: &mut Outbox) {
        let output = &mut self.outputs[at];
        let risen = match came {
            StreamItem::Restarted { .. } => {
                output.flow = Flow::Open;
                self.merge.replace(at);
                // The new process has not received the current marker.
                self.told = 0;
                None
            }
            StreamItem::Frame(Received::Records { .. }) => {
                output.has_chunk = true;
                self.merge.record(at);
                None
            }
            StreamItem::Frame(Received::Leave(_)) => None,
            StreamItem::Frame(Received::Marker(marker)) => match marker {
                Marker::Watermark(watermark) => self.merge.advance(at, watermark),
                Marker::Idle => {
                    let risen = self.merge.idle(at);
                    if self.merge.should_forward_idle() {
                        outbox.marker(Marker::Idle);
                    }
                    risen
                }
                Marker::Barrier(epoch) => {
                    output.flow = Flow::AtBarrier(epoch);
                    None
                }
                // The runtime passes the ends of micro-batches on itself.
                Marker::BatchEnd(_) => None,
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

    /// Adds the new counts of the process to this instance's metrics.
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

impl Processor for ProcessProxyP {
    fn unsaved_state(&self) -> Option<&'static str> {
        Some("the state of an instance in a separate process, which its container cannot access")
    }

    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.about = ProxyContext {
            clock: context.clock.clone(),
            signals: Arc::clone(&context.signals),
            metrics: Arc::clone(&context.metrics),
        };
        self.was_paused = context.signals.is_paused();
        for way in &mut self.inputs {
            way.endpoint.open(context.waker.clone());
        }
        for output in &mut self.outputs {
            output.endpoint.open(context.waker.clone());
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
        let sent = match self.inputs[input.index()].endpoint.get() {
            Some(end) => end.send(self.target, &mut chunk).and_then(|_| end.flush()),
            None => Ok(()),
        };
        inbox.swap(&mut chunk);
        self.chunk = chunk;
        sent?;
        self.emit(outbox)?;
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        // The instance returns the watermark after its preceding output.
        let done = self.mark_all(Marker::Watermark(watermark))?;
        let made = self.emit(outbox)?;
        Ok(Progress { made, done })
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.tell_idle()?;
        self.emit(outbox)?;
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
            (false, _) => self.mark_all(Marker::Barrier(epoch))?,
        };
        // The marker is sent once; the following calls wait for the barriers to return.
        self.told = if is_told {
            self.inputs.len() + 1
        } else {
            self.told
        };
        let made = self.emit(outbox)?;
        let at_end = |output: &Return| match output.flow {
            Flow::AtBarrier(at) => at >= epoch,
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
        match way.endpoint.get() {
            Some(end) => end.finish()?,
            None => return Ok(Progress::NONE),
        }
        self.emit(outbox)?;
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let is_paused = self.about.signals.is_paused();
        if self.inputs.is_empty() && is_paused != self.was_paused {
            self.was_paused = is_paused;
            self.tell(ToInstance::Pause(is_paused));
        }
        // Sends pending markers, such as the end of an input while the process was missing.
        for way in &mut self.inputs {
            if let Some(end) = way.endpoint.get() {
                end.flush()?;
            }
        }
        let made = self.emit(outbox)?;
        let done = self.has_ended();
        Ok(Progress { made, done })
    }

    fn close(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }

    fn marker_deferral(&mut self) -> Option<&mut dyn MarkerDeferral> {
        Some(self)
    }
}

impl SourceControl for ProcessProxyP {
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
        // A process that keeps dying would never end its outputs.
        let is_away = self.outputs.iter_mut().all(|output| {
            let end = output.endpoint.get();
            end.is_some_and(|end| end.is_disconnected())
        });
        Ok(Progress {
            done: progress.done || (is_away && now >= since + GIVEN_UP),
            ..progress
        })
    }
}

impl MarkerDeferral for ProcessProxyP {
    fn defer(&mut self, marker: Marker) -> Result<bool> {
        if let Marker::BatchEnd(_) = marker {
            // The steps of such a job are not deterministic anyway.
            return Ok(false);
        }
        if marker == Marker::Idle {
            // The process gets it too, but returns none.
            self.owes_idle = true;
            return Ok(false);
        }
        let first = self.inputs.first_mut();
        if let Some(end) = first.and_then(|way| way.endpoint.get()) {
            // A marker that cannot be sent now is dropped.
            let _ = end.mark(marker)?;
        }
        Ok(true)
    }
}

impl Drop for ProcessProxyP {
    fn drop(&mut self) {
        self.close();
    }
}
