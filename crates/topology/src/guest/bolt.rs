//! A bolt in a process of its own.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Timestamp, Waker};
use ardea_instance::protocol::{
    GuestDeadLetter, GuestHello, InstanceConfiguration, InstanceControl, NOT_ANCHORED, PendingRow,
    RowRecords, StatePartEntry, TupleAck,
};
use ardea_instance::{
    DeadLetterBuffer, GuestEmits, GuestError, GuestInstance, GuestResults, GuestState,
    RestoredEntries, guest_failure, save_state, until_done,
};

use super::context::context;
use super::rows::{OpenRows, RowOutcome};
use super::{GuestWiring, checkpointed, hello, user_failed};
use crate::ack_batcher::AckBatcher;
use crate::ack_channel::AckQueues;
use crate::ack_queue::{AckMessages, AckQueue};
use crate::anchor::Task;
use crate::batch::TupleBatch;
use crate::bolt::Bolt;
use crate::collector::{AckBookkeeping, Collector};
use crate::context::ComponentContext;
use crate::emitter::Emitter;
use crate::failure::Outcome;
use crate::process::{read_encoded, write_encoded};
use crate::tuple::Tuples;
use crate::wire::check_fields;

/// The process of a bolt instance.
pub(crate) struct BoltGuest<B: Bolt> {
    bolt: B,
    wiring: GuestWiring,
    waker: Waker,
    letters: DeadLetterBuffer,
    restored: RestoredEntries,
    running: Option<Running>,
    /// True if checkpoints contain state of the component.
    has_state: bool,
}

/// The state that exists from CONFIGURE on.
struct Running {
    context: ComponentContext,
    bookkeeping: AckBookkeeping,
    acks: Arc<AckQueue>,
    /// The acks that were taken last, whose memory is used again.
    taken: AckMessages,
    rows: OpenRows,
    /// True if tuples may be answered after their batch: the topology tracks messages.
    is_tracking: bool,
    /// Tuples that are anchored to rows which the host will know to be held after the RESULT.
    deferred: Vec<(Vec<PendingRow>, Vec<u8>)>,
    /// The outcomes of held rows, for the host.
    settled: Vec<TupleAck>,
}

impl Running {
    fn new(context: ComponentContext, wiring: &GuestWiring, is_tracking: bool) -> Option<Self> {
        let emitter = Emitter::new(
            Arc::clone(&wiring.component),
            &wiring.streams,
            &wiring.parallelism,
            true,
            context.instance.chunk_records,
        );
        // All trees of this process belong to one instance of a spout.
        let queues = Arc::new(AckQueues::new(1));
        let acks = queues.of(Task::new(0, 0)?)?;
        let mut bookkeeping = AckBookkeeping::new(emitter, AckBatcher::new(Some(queues)));
        bookkeeping.failed = Some(Vec::new());
        Some(Running {
            context,
            bookkeeping,
            acks,
            taken: AckMessages::default(),
            rows: OpenRows::default(),
            is_tracking,
            deferred: Vec::new(),
            settled: Vec::new(),
        })
    }

    /// Passes what the bolt has emitted to `emit`, with the open tuples that it is anchored to.
    /// Then takes its acks and failures.
    fn collect(
        &mut self,
        letters: &DeadLetterBuffer,
        mut emit: impl FnMut(&[PendingRow], &[u8]) -> Result<(), GuestError>,
    ) -> Result<(), GuestError> {
        let (rows, mut anchors, mut value) = (&mut self.rows, Vec::new(), Vec::new());
        self.bookkeeping
            .emitter
            .take_batches(|stream, batch| -> Result<(), GuestError> {
                for index in 0..batch.len() {
                    anchors.clear();
                    for anchor in batch.anchors_of(index) {
                        anchors.extend(rows.place(anchor.root));
                        rows.update(anchor.root, anchor.id);
                    }
                    value.clear();
                    write_encoded(
                        stream,
                        batch.target_of(index),
                        batch.tuple(index),
                        &mut value,
                    );
                    emit(&anchors, &value)?;
                }
                Ok(())
            })?;
        self.bookkeeping.ack_batcher.flush();
        if self.acks.take(&mut self.taken) {
            for update in &self.taken.updates {
                rows.update(update.root, update.ids);
            }
            self.taken.clear();
        }
        for (root, reason) in self
            .bookkeeping
            .failed
            .iter_mut()
            .flat_map(|it| it.drain(..))
        {
            if let Some(reason) = rows.fail(root, reason) {
                letters.add_failed("a tuple that was held", reason);
            }
        }
        Ok(())
    }

    /// Answers the rows of a batch, and notes the outcomes of earlier ones.
    fn answer(
        &mut self,
        sequence: u64,
        count: u32,
        results: &mut GuestResults<'_>,
    ) -> Result<(), GuestError> {
        let mut answers: Vec<Option<RowOutcome>> = vec![None; count as usize];
        for (place, outcome) in self.rows.take_outcomes() {
            match answers.get_mut(place.row as usize) {
                Some(answer) if place.batch == sequence => *answer = Some(outcome),
                _ => self.settled.push(ack(place, outcome)),
            }
        }
        let mut is_anchor = vec![false; count as usize];
        let anchors = self.deferred.iter().flat_map(|(anchors, _)| anchors);
        for anchor in anchors.filter(|anchor| anchor.batch == sequence) {
            is_anchor[anchor.row as usize] = true;
        }
        for ((row, answer), is_anchor) in (0..count).zip(answers).zip(is_anchor) {
            match answer {
                Some(outcome) if is_anchor => {
                    let place = results.hold(row);
                    self.settled.push(ack(place, outcome));
                }
                Some(RowOutcome::Acked) => {}
                Some(RowOutcome::Failed(reason)) => results.fail(row, &reason)?,
                None if self.is_tracking => {
                    results.hold(row);
                }
                None => {}
            }
        }
        if !self.is_tracking {
            self.rows.clear();
        }
        Ok(())
    }

    /// Sends the outcomes of held rows.
    fn settle(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        for (place, outcome) in self.rows.take_outcomes() {
            self.settled.push(ack(place, outcome));
        }
        if self.settled.is_empty() {
            return Ok(());
        }
        out.settle(&std::mem::take(&mut self.settled))
    }
}

fn ack(held: PendingRow, outcome: RowOutcome) -> TupleAck {
    let failure = match outcome {
        RowOutcome::Acked => None,
        RowOutcome::Failed(reason) => Some(reason),
    };
    TupleAck { held, failure }
}

#[cold]
fn unconfigured() -> GuestError {
    guest_failure(Error::new(
        ErrorCode::Internal,
        "a bolt is used before CONFIGURE",
    ))
}

fn unreadable(reason: &str) -> GuestError {
    let what = format!("a tuple of the host can't be read: {reason}");
    guest_failure(Error::new(ErrorCode::BadRecord, what))
}

impl<B: Bolt> BoltGuest<B> {
    pub(crate) fn new(mut bolt: B, wiring: GuestWiring) -> Self {
        BoltGuest {
            has_state: checkpointed(bolt.state()).is_some(),
            bolt,
            wiring,
            waker: Waker::none(),
            letters: DeadLetterBuffer::default(),
            restored: RestoredEntries::default(),
            running: None,
        }
    }

    /// Calls the bolt between batches, and sends what it emits and answers.
    fn call_bolt(
        &mut self,
        out: &mut GuestEmits<'_>,
        call: impl FnOnce(&mut B, &mut Collector<'_>) -> Outcome,
    ) -> Result<Outcome, GuestError> {
        let running = self.running.as_mut().ok_or_else(unconfigured)?;
        let context = &running.context.instance;
        let mut collector = Collector::new(&mut running.bookkeeping, context);
        let outcome = call(&mut self.bolt, &mut collector);
        running.collect(&self.letters, |anchors, value| out.emit(anchors, value))?;
        running.settle(out)?;
        Ok(outcome)
    }
}

impl Running {
    /// Reads the tuples of a batch, which are of one input; returns them with the input.
    fn read(
        &mut self,
        payload: &[u8],
        sequence: u64,
        wiring: &GuestWiring,
    ) -> Result<(usize, TupleBatch), GuestError> {
        let mut records = RowRecords::read(payload)?;
        let (mut batch, mut of_batch, mut row) = (TupleBatch::default(), 0, 0);
        while let Some(record) = records.next_record()? {
            let (input, _, fields) = read_encoded(record.value).map_err(unreadable)?;
            let origin = wiring.inputs.get(input);
            let origin = origin.filter(|_| row == 0 || input == of_batch);
            let origin = origin.ok_or_else(|| unreadable("it is of another input"))?;
            of_batch = input;
            let count = origin.fields.len();
            check_fields(fields, count).map_err(unreadable)?;
            let pushed = batch.push(|writer| writer.encoded(fields, count), count);
            pushed.map_err(|_| unreadable("it is too large"))?;
            let place = PendingRow {
                batch: sequence,
                row,
            };
            batch.anchor([self.rows.open(place)]);
            row += 1;
        }
        Ok((of_batch, batch))
    }
}

impl<B: Bolt> GuestInstance for BoltGuest<B> {
    fn hello(&self) -> GuestHello {
        hello("bolt", self.has_state)
    }

    fn set_waker(&mut self, waker: Waker) {
        self.waker = waker;
    }

    fn configure(&mut self, configuration: &InstanceConfiguration) -> Result<(), GuestError> {
        let waker = self.waker.clone();
        let context = context(configuration, &self.wiring, waker, &self.letters);
        let prepared = self.bolt.prepare(&context);
        prepared.map_err(|failure| user_failed(failure, "the bolt could not be prepared"))?;
        let is_tracking = configuration.component.acks;
        self.running = Running::new(context, &self.wiring, is_tracking);
        Ok(())
    }

    fn process(
        &mut self,
        payload: &[u8],
        results: &mut GuestResults<'_>,
    ) -> Result<(), GuestError> {
        let running = self.running.as_mut().ok_or_else(unconfigured)?;
        let sequence = results.sequence();
        let (input, mut batch) = running.read(payload, sequence, &self.wiring)?;
        let Some(origin) = self.wiring.inputs.get(input) else {
            return Err(unconfigured());
        };
        let count = batch.len() as u32;
        while !batch.is_empty() {
            let tuples = Tuples {
                batch: &batch,
                origin,
            };
            let context = &running.context.instance;
            let mut out = Collector::new(&mut running.bookkeeping, context);
            let done = match self.bolt.execute_batch(&tuples, &mut out) {
                Ok(done) => {
                    let done = done.min(tuples.len());
                    out.ack_rest(&tuples, done);
                    done
                }
                Err(failure) => {
                    if let Some(error) = failure.fatal() {
                        return Err(guest_failure(error));
                    }
                    let what = "a failed tuple could not be set aside";
                    let set_aside = out.fail_rest(&tuples, &failure);
                    set_aside.map_err(|failure| user_failed(failure, what))?;
                    tuples.len()
                }
            };
            batch.discard_front(done);
            let (mut deferred, is_tracking) =
                (std::mem::take(&mut running.deferred), running.is_tracking);
            running.collect(&self.letters, |anchors, value| {
                let row = match anchors {
                    [] => NOT_ANCHORED,
                    [only] if only.batch == sequence => only.row,
                    _ if !is_tracking => NOT_ANCHORED,
                    _ => {
                        deferred.push((anchors.to_vec(), value.to_vec()));
                        return Ok(());
                    }
                };
                if !deferred.is_empty() {
                    // The order of the tuples is kept.
                    deferred.push((anchors.to_vec(), value.to_vec()));
                    return Ok(());
                }
                results.emit(row, Timestamp::MIN, value)
            })?;
            running.deferred = deferred;
        }
        running.answer(sequence, count, results)
    }

    fn after_batch(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        let running = self.running.as_mut().ok_or_else(unconfigured)?;
        for (anchors, value) in running.deferred.drain(..) {
            out.emit(&anchors, &value)?;
        }
        running.settle(out)
    }

    fn on_tick(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        if let Err(failure) = self.call_bolt(out, |bolt, out| bolt.tick(out))? {
            if let Some(error) = failure.fatal() {
                return Err(guest_failure(error));
            }
            self.letters.add_failed("a tick", failure.to_string());
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        let finished = self.call_bolt(out, |bolt, out| bolt.finish(out))?;
        finished.map_err(|failure| user_failed(failure, "the bolt could not finish"))
    }

    fn save(&mut self, state: &mut GuestState<'_>) -> Result<(), GuestError> {
        match checkpointed(self.bolt.state()) {
            Some(own) => save_state(own, state),
            None => Ok(()),
        }
    }

    fn restore(&mut self, entry: StatePartEntry<'_>) -> Result<(), GuestError> {
        self.restored.add(entry)
    }

    fn on_restored(&mut self, epoch: u64) -> Result<(), GuestError> {
        let running = self.running.as_ref().ok_or_else(unconfigured)?;
        let place = (running.context.instance(), epoch);
        match checkpointed(self.bolt.state()) {
            Some(state) => self.restored.pass_on(state, place),
            None => Ok(()),
        }
    }

    fn on_commit(&mut self, epoch: u64) -> Result<(), GuestError> {
        match checkpointed(self.bolt.state()) {
            Some(state) => until_done(|| state.on_checkpoint_committed(ardea_core::Epoch(epoch))),
            None => Ok(()),
        }
    }

    fn on_control(&mut self, control: &InstanceControl) -> Result<(), GuestError> {
        if let Some(parallelism) = &control.parallelism {
            self.wiring.parallelism.rescale_named(parallelism);
        }
        match (control.aborted, checkpointed(self.bolt.state())) {
            (Some(epoch), Some(state)) => {
                until_done(|| state.on_checkpoint_aborted(ardea_core::Epoch(epoch)))
            }
            _ => Ok(()),
        }
    }

    fn take_dead_letters(&mut self) -> Vec<GuestDeadLetter> {
        self.letters.take()
    }
}

impl<B: Bolt> Drop for BoltGuest<B> {
    fn drop(&mut self) {
        self.bolt.close();
    }
}
