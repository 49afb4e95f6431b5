//! The calls of a processor during a replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{
    Chunk, Clock, Dag, Epoch, Error, ErrorCode, Guarantee, Inbox, InstanceContext, Marker,
    MicroBatchTime, Ordinal, Outbox, OutboxRuntime, Processor, Progress, RestoredState, Result,
    StateChunk, UpstreamVertex, VertexId, Waker, Watermark,
};

use super::EdgeCodecs;
use super::comparison::OutputItem;
use super::events::{RecordedEvent, SegmentStart};

/// Maximum time without progress.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the checks whether a processor that waits for another thread has to be called.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of entries of state per call of a processor.
const CALL_ENTRIES: usize = 256;

/// A processor that runs in the calling thread, with the inputs of a recording.
pub(super) struct ReplayedInstance<'a> {
    processor: Box<dyn Processor>,
    context: InstanceContext,
    codecs: &'a EdgeCodecs,
    inboxes: Vec<Inbox>,
    outbox: Outbox,
    /// The output since it was last taken.
    outputs: Vec<Vec<OutputItem>>,
    /// The latest watermark, by output.
    sent: Vec<Watermark>,
    wake_at: Option<Duration>,
    woken: Arc<AtomicBool>,
    records_in: u64,
}

impl<'a> ReplayedInstance<'a> {
    /// Creates and initializes the processor.
    ///
    /// # Errors
    /// Errors of the supplier and of the processor.
    pub(super) fn create(
        (dag, id): (&Dag, VertexId),
        start: &SegmentStart,
        codecs: &'a EdgeCodecs,
    ) -> Result<Self> {
        let vertex = dag.get(id);
        let processor = vertex.supplier().supply(start.instance)?;
        let inputs = dag.inputs(id).into_iter();
        let inputs = inputs.map(|edge| UpstreamVertex::of(dag, &dag.edges()[edge.index()]));
        let woken = Arc::new(AtomicBool::new(false));
        let (sets, replaying) = (Arc::clone(&woken), thread::current());
        let context = InstanceContext {
            job: Arc::from(&*start.job),
            instance: start.instance,
            inputs: inputs.collect(),
            clock: Clock::system(),
            waker: Waker::new(move || {
                sets.store(true, Ordering::Release);
                replaying.unpark();
            }),
            chunk_records: start.chunk_records as usize,
            guarantee: match start.keeps_state {
                true => Guarantee::ExactlyOnce,
                false => Guarantee::None,
            },
            micro_batches: match dag.feeding_urgent_inputs().contains(&id) {
                true => None,
                false => Some(MicroBatchTime::FromStart),
            },
            ..InstanceContext::detached(vertex.name())
        };
        let mut instance = ReplayedInstance {
            processor,
            inboxes: codecs.inputs.iter().map(|_| Inbox::default()).collect(),
            outbox: Outbox::new(codecs.outputs.len(), context.chunk_records),
            outputs: codecs.outputs.iter().map(|_| Vec::new()).collect(),
            sent: codecs.outputs.iter().map(|_| start.sent).collect(),
            context,
            codecs,
            wake_at: None,
            woken,
            records_in: 0,
        };
        instance.processor.init(&instance.context)?;
        instance.settle()?;
        Ok(instance)
    }

    /// Restores the state at the start of a segment, and drops the output of that.
    ///
    /// # Errors
    /// Errors of the processor.
    pub(super) fn restore(&mut self, start: &SegmentStart, state: &[StateChunk]) -> Result<()> {
        let Some(epoch) = start.epoch else {
            return Ok(());
        };
        for chunk in state {
            let mut position = 0;
            while position < chunk.byte_len() {
                let mut entries =
                    RestoredState::new(chunk, &mut position, start.instance, CALL_ENTRIES);
                self.processor.state().restore(&mut entries)?;
            }
        }
        self.until_done(|instance| instance.processor.state().on_restored(epoch))?;
        if start.watermark > Watermark::NONE && start.watermark != Watermark::END {
            self.handle(&RecordedEvent::Watermark(start.watermark))?;
        }
        for input in &start.done_inputs {
            self.handle(&RecordedEvent::EdgeDone(*input))?;
        }
        if start.watermark == Watermark::END {
            self.handle(&RecordedEvent::Watermark(Watermark::END))?;
        }
        self.take_outputs();
        Ok(())
    }

    /// Passes a recorded input to the processor, and lets it write all its output.
    ///
    /// # Errors
    /// Errors of the processor; [`ErrorCode::UserError`] if it makes no progress.
    pub(super) fn handle(&mut self, event: &RecordedEvent) -> Result<()> {
        match event {
            RecordedEvent::Input {
                input,
                records,
                payload,
            } => self.process(*input, *records, payload)?,
            RecordedEvent::Watermark(watermark) => {
                self.until_done(|it| it.processor.on_watermark(*watermark, &mut it.outbox))?;
            }
            RecordedEvent::Epoch(epoch) => self.end_epoch(*epoch)?,
            RecordedEvent::BatchEnd(batch) => {
                self.until_done(|it| it.processor.on_batch_end(*batch, &mut it.outbox))?;
            }
            RecordedEvent::EdgeDone(input) => {
                self.until_done(|it| it.processor.on_edge_done(*input, &mut it.outbox))?;
            }
            RecordedEvent::Complete => {
                self.until_done(|it| it.processor.complete(&mut it.outbox))?;
            }
            _ => {}
        }
        self.settle()
    }

    fn end_epoch(&mut self, epoch: Epoch) -> Result<()> {
        self.until_done(|it| it.processor.on_epoch(epoch, &mut it.outbox))
    }

    fn process(&mut self, input: Ordinal, records: usize, payload: &[u8]) -> Result<()> {
        let mut chunk = Chunk::default();
        let codec = &self.codecs.inputs[input.index()];
        codec.decode(records, payload, &mut chunk)?;
        self.records_in += chunk.len() as u64;
        self.inboxes[input.index()].fill(chunk);
        let mut stalled = None;
        loop {
            let inbox = &mut self.inboxes[input.index()];
            let before = inbox.len();
            if before == 0 {
                return Ok(());
            }
            self.processor.process(input, inbox, &mut self.outbox)?;
            let made = inbox.len() < before || !self.outbox.is_empty();
            self.settle()?;
            Self::wait_unless(made, &mut stalled)?;
        }
    }

    /// Calls a callback until it returns done.
    fn until_done(&mut self, call: impl Fn(&mut Self) -> Result<Progress>) -> Result<()> {
        let mut stalled = None;
        loop {
            let progress = call(self)?;
            let made = progress.made || !self.outbox.is_empty();
            self.drain()?;
            if progress.done {
                return Ok(());
            }
            Self::wait_unless(made, &mut stalled)?;
        }
    }

    /// Waits for another thread of the processor, or for a requested deadline, unless there was
    /// progress. `stalled` is the time of the last progress.
    fn wait_unless(made: bool, stalled: &mut Option<Instant>) -> Result<()> {
        if made {
            *stalled = None;
            return Ok(());
        }
        let since = *stalled.get_or_insert_with(Instant::now);
        if since.elapsed() > STALL_TIMEOUT {
            let what = format!("the step made no progress for {STALL_TIMEOUT:?}");
            return Err(Error::new(ErrorCode::UserError, what)
                .hint("it may wait for a system that its job had started"));
        }
        // The waker ends the wait.
        thread::park_timeout(POLL_INTERVAL);
        Ok(())
    }

    /// Takes the output, and calls the processor as often as it has requested for output that found
    /// no room.
    fn settle(&mut self) -> Result<()> {
        loop {
            self.drain()?;
            let request = self.outbox.take_wake_at();
            let deadline = [self.wake_at, request].into_iter().flatten().min();
            let is_due = deadline.is_some_and(|at| at <= self.context.clock.now());
            self.wake_at = deadline.filter(|_| !is_due);
            if !is_due && !self.woken.swap(false, Ordering::AcqRel) {
                return Ok(());
            }
            self.processor.on_wake(&mut self.outbox)?;
        }
    }

    /// Moves the content of the outbox to the outputs.
    fn drain(&mut self) -> Result<()> {
        for (output, items) in self.outputs.iter_mut().enumerate() {
            let codec = &*self.codecs.outputs[output];
            OutputItem::append_chunk(codec, self.outbox.chunk_mut(output), items)?;
            while let Some(marker) = self.outbox.take_marker(output) {
                if let Marker::Watermark(watermark) = marker {
                    OutputItem::append_watermark(watermark, &mut self.sent[output], items);
                }
            }
        }
        Ok(())
    }

    /// Takes the output so far.
    pub(super) fn take_outputs(&mut self) -> Vec<Vec<OutputItem>> {
        self.outputs.iter_mut().map(std::mem::take).collect()
    }

    /// Returns the number of records of the inputs so far.
    pub(super) fn records_in(&self) -> u64 {
        self.records_in
    }
}

impl Drop for ReplayedInstance<'_> {
    fn drop(&mut self) {
        self.processor.close();
    }
}
