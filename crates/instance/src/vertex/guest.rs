//! A processor of the job's own program, served to its host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ardea_core::{
    Chunk, ChunkCodec, Epoch, Error, ErrorCode, Inbox, InstanceContext, JobSignals, Ordinal,
    Outbox, OutboxRuntime, Processor, ProcessorSupplier, Progress, Result, Timestamp,
    UpstreamVertex, Waker, Watermark,
};

use super::FORMAT;
use crate::guest::{
    DeadLetterBuffer, GuestEmits, GuestError, GuestInstance, GuestResults, GuestState, REST,
    RestoredEntries, guest_failure, save_state, until_done,
};
use crate::protocol::{
    GuestDeadLetter, GuestHello, GuestOptions, InstanceConfiguration, InstanceControl,
    InstanceRole, ProtocolRange, StatePartEntry, VERTEX_HAS_MORE, VERTEX_IS_AT_END, VERTEX_IS_DONE,
    VERTEX_WAITS, VertexCounts, begin_records, read_records, set_records, write_call, write_marker,
};

/// The time after which a request for output is answered, even if the processor has more.
const TURN: Duration = Duration::from_millis(1);
/// The interval of signs of life while a callback is not done.
const SIGN_INTERVAL: Duration = Duration::from_secs(1);
/// The approximate maximum size of an item.
const ITEM_BYTES: usize = 256 << 10;

/// The destination of the items that a processor emits.
type Put<'a> = dyn FnMut(&[u8]) -> Result<(), GuestError> + 'a;

/// The process of an instance of a vertex.
pub(super) struct VertexGuest {
    supplier: Arc<dyn ProcessorSupplier>,
    upstream: Arc<[UpstreamVertex]>,
    inputs: Vec<Arc<dyn ChunkCodec>>,
    outputs: Vec<Arc<dyn ChunkCodec>>,
    /// Requests a call by the host.
    waker: Waker,
    /// True if a call was requested since the last one.
    is_woken: Arc<AtomicBool>,
    letters: DeadLetterBuffer,
    restored: RestoredEntries,
    running: Option<Running>,
}

/// The state that exists from CONFIGURE on.
struct Running {
    processor: Box<dyn Processor>,
    context: InstanceContext,
    /// The signals of which those of the context are a view.
    signals: JobSignals,
    outputs: Vec<Arc<dyn ChunkCodec>>,
    inboxes: Vec<Inbox>,
    outbox: Outbox,
    /// The time of the latest sign of life.
    signed_at: Duration,
    waker: Waker,
    item: Vec<u8>,
    /// The counts that the host knows.
    counted: VertexCounts,
}

#[cold]
fn unconfigured() -> GuestError {
    guest_failure(Error::new(
        ErrorCode::Internal,
        "a vertex is used before CONFIGURE",
    ))
}

impl Running {
    /// Calls a callback until it is done, and passes on what the processor emits.
    fn call_until_done(
        &mut self,
        put: &mut Put<'_>,
        mut call: impl FnMut(&mut dyn Processor, &mut Outbox) -> Result<Progress>,
    ) -> Result<(), GuestError> {
        loop {
            let progress = self.call(put, &mut call)?;
            if progress.done {
                return self.request_call(put);
            }
            self.wait_unless(progress.made);
        }
    }

    /// Calls a callback once. The progress includes what the processor has emitted.
    fn call(
        &mut self,
        put: &mut Put<'_>,
        call: impl FnOnce(&mut dyn Processor, &mut Outbox) -> Result<Progress>,
    ) -> Result<Progress, GuestError> {
        let progress = call(&mut *self.processor, &mut self.outbox).map_err(guest_failure)?;
        let has_emitted = self.drain(put)?;
        Ok(Progress {
            made: progress.made | has_emitted,
            ..progress
        })
    }

    /// Passes on the content of the outbox; returns true if there was any.
    fn drain(&mut self, put: &mut Put<'_>) -> Result<bool, GuestError> {
        if self.outbox.is_empty() {
            return Ok(false);
        }
        for (lane, codec) in self.outputs.iter().enumerate() {
            if !self.outbox.has_records(lane) {
                continue;
            }
            let chunk = self.outbox.chunk_mut(lane);
            while !chunk.is_empty() {
                begin_records(Ordinal(lane as u16), &mut self.item);
                let encoded = codec.encode(chunk, ITEM_BYTES, &mut self.item);
                let records = encoded.map_err(guest_failure)?;
                set_records(u32::try_from(records).unwrap_or(u32::MAX), &mut self.item);
                put(&self.item)?;
            }
        }
        // All lanes have the same markers.
        while let Some(marker) = self.outbox.take_marker(0) {
            for lane in 1..self.outputs.len() {
                self.outbox.take_marker(lane);
            }
            if !write_marker(marker, &mut self.item) {
                let what =
                    format!("a vertex in a process of its own emitted the marker {marker:?}");
                return Err(guest_failure(Error::new(ErrorCode::InvalidJob, what)));
            }
            put(&self.item)?;
        }
        Ok(true)
    }

    /// Passes on the time at which the processor wants to be called.
    fn request_call(&mut self, put: &mut Put<'_>) -> Result<(), GuestError> {
        if let Some(at) = self.outbox.take_wake_at() {
            let now = self.context.clock.now();
            write_call(at.saturating_sub(now), &mut self.item);
            put(&self.item)?;
        }
        Ok(())
    }

    /// Waits if a callback has moved nothing. Tells the host now and then that this process lives.
    fn wait_unless(&mut self, has_moved: bool) {
        if !has_moved {
            thread::sleep(REST);
        }
        let now = self.context.clock.now();
        if now.saturating_sub(self.signed_at) >= SIGN_INTERVAL {
            self.signed_at = now;
            self.waker.wake();
        }
    }

    /// Processes the records of an input.
    fn process(
        &mut self,
        input: Ordinal,
        chunk: Chunk,
        put: &mut Put<'_>,
    ) -> Result<(), GuestError> {
        let Some(mut inbox) = self.inboxes.get_mut(input.index()).map(std::mem::take) else {
            return Err(unconfigured());
        };
        inbox.fill(chunk);
        while !inbox.is_empty() {
            let before = inbox.len();
            let progress = self.call(put, |processor, outbox| {
                processor.process(input, &mut inbox, outbox)?;
                Ok(Progress::NONE)
            })?;
            self.wait_unless(progress.made || inbox.len() < before);
        }
        self.inboxes[input.index()] = inbox;
        self.request_call(put)
    }

    /// Calls a callback until the processor has no more, or the time is over.
    fn emit(
        &mut self,
        out: &mut GuestEmits<'_>,
        mut call: impl FnMut(&mut dyn Processor, &mut Outbox) -> Result<Progress>,
    ) -> Result<i32, GuestError> {
        let started = self.context.clock.now();
        let mut put = |item: &[u8]| out.emit(&[], item);
        loop {
            let progress = self.call(&mut put, &mut call)?;
            if progress.done {
                return Ok(VERTEX_IS_DONE);
            }
            if !progress.made {
                self.request_call(&mut put)?;
                return Ok(VERTEX_WAITS);
            }
            if self.context.clock.now().saturating_sub(started) >= TURN {
                self.request_call(&mut put)?;
                return Ok(VERTEX_HAS_MORE);
            }
        }
    }
}

impl VertexGuest {
    pub(super) fn new(
        supplier: Arc<dyn ProcessorSupplier>,
        upstream: Arc<[UpstreamVertex]>,
        inputs: Vec<Arc<dyn ChunkCodec>>,
        outputs: Vec<Arc<dyn ChunkCodec>>,
    ) -> Self {
        VertexGuest {
            supplier,
            upstream,
            inputs,
            outputs,
            waker: Waker::none(),
            is_woken: Arc::default(),
            letters: DeadLetterBuffer::default(),
            restored: RestoredEntries::default(),
            running: None,
        }
    }

    fn running(&mut self) -> Result<&mut Running, GuestError> {
        self.running.as_mut().ok_or_else(unconfigured)
    }
}

impl GuestInstance for VertexGuest {
    fn hello(&self) -> GuestHello {
        GuestHello {
            protocol: ProtocolRange::OWN,
            language: "rust".into(),
            formats: vec![FORMAT.into()],
            state: true,
            watermarks: true,
            rings: true,
            roles: vec![InstanceRole::Vertex.as_str().into()],
            options: GuestOptions {
                control: true,
                named_state: true,
                commits: true,
            },
        }
    }

    fn set_waker(&mut self, waker: Waker) {
        self.waker = waker;
    }

    fn configure(&mut self, configuration: &InstanceConfiguration) -> Result<(), GuestError> {
        let (waker, is_woken) = (self.waker.clone(), Arc::clone(&self.is_woken));
        let once = Waker::new(move || {
            if !is_woken.swap(true, Ordering::AcqRel) {
                waker.wake();
            }
        });
        let signals = JobSignals::default();
        let context = InstanceContext {
            inputs: Arc::clone(&self.upstream),
            signals: Arc::new(match self.inputs.is_empty() {
                true => signals.for_source(),
                false => JobSignals::default(),
            }),
            ..configuration.context(once, &self.letters)
        };
        let supplied = self.supplier.supply(context.instance);
        let mut processor = supplied.map_err(guest_failure)?;
        processor.init(&context).map_err(guest_failure)?;
        let (outputs, records) = (self.outputs.clone(), context.chunk_records);
        self.running = Some(Running {
            processor,
            signals,
            inboxes: self.inputs.iter().map(|_| Inbox::default()).collect(),
            outbox: Outbox::new(outputs.len(), records),
            outputs,
            signed_at: context.clock.now(),
            waker: self.waker.clone(),
            item: Vec::new(),
            counted: VertexCounts::default(),
            context,
        });
        Ok(())
    }

    fn process(&mut self, batch: &[u8], out: &mut GuestResults<'_>) -> Result<(), GuestError> {
        let batch = read_records(batch)?;
        let codec = self.inputs.get(batch.edge.index()).cloned();
        let codec = codec.ok_or_else(unconfigured)?;
        let running = self.running()?;
        let mut put = |item: &[u8]| out.emit(0, Timestamp::MIN, item);
        if batch.records == 0 {
            return running.call_until_done(&mut put, |processor, outbox| {
                processor.on_edge_done(batch.edge, outbox)
            });
        }
        let inbox = running.inboxes.get_mut(batch.edge.index());
        let mut chunk = inbox.and_then(Inbox::take_empty).unwrap_or_default();
        let decoded = codec.decode(batch.records as usize, batch.payload, &mut chunk);
        decoded.map_err(guest_failure)?;
        running.process(batch.edge, chunk, &mut put)
    }

    fn next(&mut self, _: u32, out: &mut GuestEmits<'_>) -> Result<i32, GuestError> {
        self.is_woken.store(false, Ordering::Release);
        let running = self.running()?;
        running.emit(out, |processor, outbox| processor.complete(outbox))
    }

    fn next_failed(&mut self, _: u32, out: &mut GuestEmits<'_>) -> Result<i32, GuestError> {
        self.is_woken.store(false, Ordering::Release);
        let running = self.running()?;
        running.signals.drain();
        running.context.signals.notify_draining();
        let answer = running.emit(out, |processor, outbox| processor.source().on_drain(outbox))?;
        let is_at_end = answer == VERTEX_IS_DONE && running.processor.source().is_at_end();
        Ok(if is_at_end { VERTEX_IS_AT_END } else { answer })
    }

    fn on_tick(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        self.is_woken.store(false, Ordering::Release);
        let running = self.running()?;
        let mut put = |item: &[u8]| out.emit(&[], item);
        running.call_until_done(&mut put, |processor, outbox| {
            processor.on_wake(outbox)?;
            Ok(Progress::DONE)
        })
    }

    fn on_watermark(
        &mut self,
        time: Timestamp,
        results: &mut GuestResults<'_>,
    ) -> Result<(), GuestError> {
        let running = self.running()?;
        let mut put = |item: &[u8]| results.emit(0, Timestamp::MIN, item);
        running.call_until_done(&mut put, |processor, outbox| {
            processor.on_watermark(Watermark(time), outbox)
        })
    }

    fn save(&mut self, state: &mut GuestState<'_>) -> Result<(), GuestError> {
        let running = self.running()?;
        if !state.is_last() {
            let epoch = Epoch(state.epoch());
            let mut out = state.emits();
            let mut put = |item: &[u8]| out.emit(&[], item);
            running.call_until_done(&mut put, |processor, outbox| {
                processor.on_epoch(epoch, outbox)
            })?;
            out.flush()?;
        }
        match running.processor.checkpointed() {
            Some(checkpointed) if running.context.guarantee.keeps_state() => {
                save_state(checkpointed, state)
            }
            _ => Ok(()),
        }
    }

    fn restore(&mut self, entry: StatePartEntry<'_>) -> Result<(), GuestError> {
        self.restored.add(entry)
    }

    fn on_restored(&mut self, epoch: u64) -> Result<(), GuestError> {
        let running = self.running.as_mut().ok_or_else(unconfigured)?;
        let place = (running.context.instance, epoch);
        match running.processor.checkpointed() {
            Some(state) => self.restored.pass_on(state, place),
            None => Ok(()),
        }
    }

    fn on_commit(&mut self, epoch: u64) -> Result<(), GuestError> {
        match self.running()?.processor.checkpointed() {
            Some(state) => until_done(|| state.on_checkpoint_committed(Epoch(epoch))),
            None => Ok(()),
        }
    }

    fn on_control(&mut self, control: &InstanceControl) -> Result<(), GuestError> {
        let running = self.running()?;
        match control.active {
            Some(true) => running.signals.resume(),
            Some(false) => running.signals.pause(),
            None => {}
        }
        match (control.aborted, running.processor.checkpointed()) {
            (Some(epoch), Some(state)) => until_done(|| state.on_checkpoint_aborted(Epoch(epoch))),
            _ => Ok(()),
        }
    }

    fn take_dead_letters(&mut self) -> Vec<GuestDeadLetter> {
        self.letters.take()
    }

    fn take_counts(&mut self) -> Option<VertexCounts> {
        let running = self.running.as_mut()?;
        let now = running.context.metrics.snapshot();
        let now = VertexCounts {
            late: now.late,
            late_in_part: now.late_in_part,
            bad: now.bad,
        };
        let before = std::mem::replace(&mut running.counted, now);
        (now != before).then(|| now.since(before))
    }
}

impl Drop for VertexGuest {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            running.processor.close();
        }
    }
}
