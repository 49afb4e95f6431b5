//! The step whose records are processed by another process.

use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Inbox, Instance, InstanceContext, Marker, MarkerDeferral, Ordinal, Outbox,
    Processor, ProcessorSupplier, Progress, Result, Watermark,
};
use ardea_operators::RecordErrors;

use crate::command::InstanceCommand;
use crate::format::{BatchFormat, EncodedBatch, UnencodableRecord};
use crate::host::{RestartPolicy, SharedParts};
use crate::process::OutputSink;
use crate::protocol::RowFailure;
use crate::session::{InstanceSession, ReadyItem};
use crate::slot::InstanceSlot;

/// The step of a graph whose instances run in processes of their own.
///
/// Each instance starts `command` and passes its records to that process in a [`BatchFormat`]. The
/// instances of a keyed step keep the state of their process in snapshots.
pub struct InstanceStep<M> {
    shared: SharedParts,
    make_format: M,
    is_keyed: bool,
}

impl<M, F> InstanceStep<M>
where
    M: Fn() -> F + Send + Sync + 'static,
    F: BatchFormat + 'static,
{
    /// Creates a step without state. `make_format` creates the format of an instance.
    pub fn stateless(command: InstanceCommand, make_format: M) -> Self {
        InstanceStep {
            shared: SharedParts::new(command),
            make_format,
            is_keyed: false,
        }
    }

    /// Creates a step whose records have keys, and whose processes may have state.
    pub fn keyed(command: InstanceCommand, make_format: M) -> Self {
        InstanceStep {
            is_keyed: true,
            ..Self::stateless(command, make_format)
        }
    }

    /// Sets the destination of the processes' output. Default: standard error of the host.
    pub fn output(mut self, output: Arc<OutputSink>) -> Self {
        self.shared.output = output;
        self
    }

    /// Creates the processor of an instance.
    pub fn processor(&self) -> InstanceP<F> {
        InstanceP {
            errors: RecordErrors::new(self.shared.command.on_error, Vec::clone),
            slot: InstanceSlot::default(),
            context: InstanceContext::detached("detached"),
            format: (self.make_format)(),
            is_keyed: self.is_keyed,
            shared: self.shared.clone(),
            bad: Vec::new(),
            marker: None,
            last_epoch: None,
            made_progress: false,
        }
    }
}

impl<M, F> ProcessorSupplier for InstanceStep<M>
where
    M: Fn() -> F + Send + Sync + 'static,
    F: BatchFormat + 'static,
{
    fn supply(&self, _: Instance) -> Result<Box<dyn Processor>> {
        Ok(Box::new(self.processor()))
    }
}

/// A processor whose records are processed by another process.
pub struct InstanceP<F> {
    shared: SharedParts,
    format: F,
    is_keyed: bool,
    context: InstanceContext,
    errors: RecordErrors<Vec<u8>>,
    /// The process, from `init` on.
    slot: InstanceSlot,
    bad: Vec<UnencodableRecord>,
    /// A marker that follows the outputs that the format has not emitted yet.
    marker: Option<Marker>,
    /// The epoch of the last state, once it was requested.
    last_epoch: Option<Epoch>,
    /// True if the present call moved something.
    made_progress: bool,
}

impl<F: BatchFormat> InstanceP<F> {
    fn session(&mut self) -> Result<&mut InstanceSession> {
        Ok(self.slot.host_mut()?.session_mut())
    }

    fn keeps_state(&self) -> bool {
        self.is_keyed && self.context.guarantee.keeps_state()
    }

    /// Takes what the process has sent, emits results while there is room, and sends frames.
    fn turn(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.receive()?;
        let is_unfinished = self.emit(outbox)?;
        self.slot.host_mut()?.send();
        if is_unfinished {
            // The rest is emitted when the outbox has room.
            outbox.wake_at(self.context.clock.now());
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let host = self.slot.host_mut()?;
        while host.next_event(&self.format)?.is_some() {
            self.made_progress = true;
        }
        Ok(())
    }

    /// Emits results in the order of the input; returns true if some wait for room.
    fn emit(&mut self, outbox: &mut Outbox) -> Result<bool> {
        loop {
            if !self.format.emit(outbox)? {
                return Ok(true);
            }
            if let Some(marker) = self.marker.take() {
                outbox.marker(marker);
            }
            let Some(ready) = self.session()?.take_ready() else {
                return Ok(false);
            };
            self.made_progress = true;
            match ready {
                ReadyItem::Results {
                    batch, payloads, ..
                } => {
                    for payload in payloads {
                        let failures = self.accept(&payload, batch.records)?;
                        self.report(&batch, &failures)?;
                    }
                }
                ReadyItem::Poisoned(record) => {
                    let reason = format!(
                        "its process died {} times while it had this record",
                        self.shared.suspects.deaths(&record)
                    );
                    self.report(&record, &[RowFailure { row: 0, reason }])?;
                }
                ReadyItem::Watermark(watermark, payloads) => {
                    for payload in payloads {
                        self.accept(&payload, 0)?;
                    }
                    self.marker = Some(Marker::Watermark(watermark));
                }
                ReadyItem::Marker(marker) => self.marker = Some(marker),
                ReadyItem::State(epoch, payloads) => {
                    self.slot.host_mut()?.take_state(epoch, payloads)?;
                }
            }
        }
    }

    fn accept(&mut self, payload: &[u8], rows: u32) -> Result<Vec<RowFailure>> {
        let host = self.slot.host()?;
        let accepted = self.format.accept(payload, rows);
        accepted.map_err(|violation| host.broken(violation))
    }

    fn report(&self, batch: &EncodedBatch, failures: &[RowFailure]) -> Result<()> {
        for failure in failures {
            let position = batch.position + u64::from(failure.row);
            let raw = self.format.raw(batch, failure.row);
            self.errors
                .handle(Ordinal::FIRST, position, &raw, &failure.reason)?;
        }
        Ok(())
    }

    /// Returns true if no record and no marker is in the process or waits for room.
    fn is_drained(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let is_emitted = self.format.emit(outbox)? && self.marker.is_none();
        Ok(is_emitted && self.session()?.is_empty())
    }

    /// Returns the progress of a callback that is not done.
    fn waiting(&mut self) -> Progress {
        Progress {
            made: std::mem::take(&mut self.made_progress),
            done: false,
        }
    }

    /// Requests the state at the end of `epoch`, after all earlier records; done when it is here.
    fn request_state(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.slot.host_mut()?.request_state(epoch);
        self.turn(outbox)?;
        if self.slot.host()?.has_state(epoch) && self.is_drained(outbox)? {
            return Ok(Progress::DONE);
        }
        Ok(self.waiting())
    }
}

impl<F: BatchFormat> Processor for InstanceP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        self.errors.attach(context);
        let format = (self.format.name(), self.format.schema());
        let configuration = self.shared.configuration(context, self.is_keyed, format);
        let on_death = match self.keeps_state() {
            true => RestartPolicy::FailWithState,
            false => RestartPolicy::Restart,
        };
        let shared = self.shared.clone();
        // The process starts while other instances are restored.
        self.slot.start(shared, context, configuration, on_death)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.turn(outbox)?;
        let limit = self.shared.command.batch_bytes;
        while !inbox.is_empty() && self.session()?.has_room() {
            let batch = self.format.encode(inbox, limit, &mut self.bad)?;
            if let Some(batch) = batch {
                let session = self.slot.host_mut()?.session_mut();
                session.push_batch(batch, &self.format);
            }
            for (position, reason) in std::mem::take(&mut self.bad) {
                self.errors
                    .handle(Ordinal::FIRST, position, &Vec::new(), reason)?;
            }
        }
        self.slot.host_mut()?.send();
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.turn(outbox)?;
        if !self.session()?.accepts_items() {
            return Ok(self.waiting());
        }
        self.session()?.push_watermark(watermark);
        self.turn(outbox)?;
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        if self.keeps_state() {
            return self.request_state(epoch, outbox);
        }
        self.turn(outbox)?;
        if self.is_drained(outbox)? {
            return Ok(Progress::DONE);
        }
        Ok(self.waiting())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        self.turn(outbox)?;
        if self.slot.host()?.has_ended() {
            return Ok(Progress::DONE);
        }
        if !self.is_drained(outbox)? {
            return Ok(self.waiting());
        }
        if self.keeps_state() {
            let host = self.slot.host_mut()?;
            let Some(last) = self.last_epoch else {
                self.last_epoch = Some(host.request_last_state());
                host.send();
                return Ok(Progress::MADE);
            };
            if !host.has_state(last) {
                return Ok(self.waiting());
            }
        }
        let host = self.slot.host_mut()?;
        host.session_mut().stop();
        host.send();
        Ok(self.waiting())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.turn(outbox)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        if self.is_keyed {
            Some(&mut self.slot)
        } else {
            None
        }
    }

    fn marker_deferral(&mut self) -> Option<&mut dyn MarkerDeferral> {
        Some(self)
    }

    fn close(&mut self) {
        if let Ok(host) = self.slot.host() {
            host.kill();
        }
    }
}

impl<F: BatchFormat> MarkerDeferral for InstanceP<F> {
    /// Queues a marker behind the records in the process, if there are any.
    fn defer(&mut self, marker: Marker) -> Result<bool> {
        let session = self.session()?;
        let is_deferred = !session.is_empty();
        if is_deferred {
            session.push_marker(marker);
        }
        Ok(is_deferred)
    }
}
