//! A spout in a process of its own.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Epoch, Error, ErrorCode, Waker};
use ardea_instance::protocol::{
    GuestDeadLetter, GuestHello, InstanceConfiguration, InstanceControl, SPOUT_IS_DONE,
    StatePartEntry,
};
use ardea_instance::{
    DeadLetterBuffer, GuestEmits, GuestError, GuestInstance, GuestResults, GuestState,
    RestoredEntries, guest_failure, save_state, until_done,
};

use super::context::context;
use super::{GuestWiring, checkpointed, hello, user_failed};
use crate::acker::AckActions;
use crate::call_budget::CallBudget;
use crate::context::ComponentContext;
use crate::emitter::Emitter;
use crate::failure::Outcome;
use crate::process::write_encoded;
use crate::spout::{MessageId, Next, Spout, SpoutCollector};

/// The time after which a request is answered, even if it was for more tuples.
const TURN: Duration = Duration::from_millis(1);

/// The process of a spout instance.
pub(crate) struct SpoutGuest<S: Spout> {
    spout: S,
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
    emitter: Emitter,
    actions: AckActions,
}

impl Running {
    /// Returns a collector for up to `room` messages.
    fn collector(&mut self, room: usize) -> SpoutCollector<'_> {
        self.emitter.apply_parallelism();
        SpoutCollector {
            emitter: &mut self.emitter,
            acker: None,
            actions: &mut self.actions,
            room,
            budget: CallBudget::start(&self.context.instance.clock),
            is_relayed: true,
        }
    }

    /// Sends the emitted tuples to the host; returns their number.
    fn send(&mut self, out: &mut GuestEmits<'_>) -> Result<usize, GuestError> {
        let (mut count, mut value) = (0, Vec::new());
        self.emitter
            .take_batches(|stream, batch| -> Result<(), GuestError> {
                for index in 0..batch.len() {
                    value.clear();
                    write_encoded(
                        stream,
                        batch.target_of(index),
                        batch.tuple(index),
                        &mut value,
                    );
                    match batch.anchors_of(index).first() {
                        Some(anchor) => out.emit_tracked(anchor.root.bits(), &value)?,
                        None => out.emit(&[], &value)?,
                    }
                }
                count += batch.len();
                Ok(())
            })?;
        Ok(count)
    }
}

#[cold]
fn unconfigured() -> GuestError {
    guest_failure(Error::new(
        ErrorCode::Internal,
        "a spout is used before CONFIGURE",
    ))
}

/// Returns the milliseconds of a wait, rounded up.
fn millis_of(wait: Duration) -> i32 {
    i32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

impl<S: Spout> SpoutGuest<S> {
    pub(crate) fn new(mut spout: S, wiring: GuestWiring) -> Self {
        SpoutGuest {
            has_state: checkpointed(spout.state()).is_some(),
            spout,
            wiring,
            waker: Waker::none(),
            letters: DeadLetterBuffer::default(),
            restored: RestoredEntries::default(),
            running: None,
        }
    }

    /// Calls the spout until it has emitted `limit` tuples, has no more, or the time is over.
    fn emit(
        &mut self,
        limit: u32,
        out: &mut GuestEmits<'_>,
        call: impl Fn(&mut S, &mut SpoutCollector<'_>) -> Outcome<Next>,
    ) -> Result<i32, GuestError> {
        let running = self.running.as_mut().ok_or_else(unconfigured)?;
        let started = running.context.instance.clock.now();
        let mut left = limit as usize;
        loop {
            let next = call(&mut self.spout, &mut running.collector(left));
            let next = next.map_err(|failure| user_failed(failure, "the spout failed"))?;
            left = left.saturating_sub(running.send(out)?);
            let now = running.context.instance.clock.now();
            match next {
                Next::More if left > 0 && now.saturating_sub(started) < TURN => {}
                Next::More => return Ok(0),
                Next::Wait(wait) => return Ok(millis_of(wait)),
                Next::Done => return Ok(SPOUT_IS_DONE),
            }
        }
    }
}

impl<S: Spout> GuestInstance for SpoutGuest<S> {
    fn hello(&self) -> GuestHello {
        hello("spout", self.has_state)
    }

    fn set_waker(&mut self, waker: Waker) {
        self.waker = waker;
    }

    fn configure(&mut self, configuration: &InstanceConfiguration) -> Result<(), GuestError> {
        let waker = self.waker.clone();
        let context = context(configuration, &self.wiring, waker, &self.letters);
        let opened = self.spout.open(&context);
        opened.map_err(|failure| user_failed(failure, "the spout could not be opened"))?;
        let emitter = Emitter::new(
            Arc::clone(&self.wiring.component),
            &self.wiring.streams,
            &self.wiring.parallelism,
            true,
            context.instance.chunk_records,
        );
        self.running = Some(Running {
            context,
            emitter,
            actions: AckActions::default(),
        });
        Ok(())
    }

    fn process(&mut self, _: &[u8], _: &mut GuestResults<'_>) -> Result<(), GuestError> {
        Err(unconfigured())
    }

    fn next(&mut self, limit: u32, out: &mut GuestEmits<'_>) -> Result<i32, GuestError> {
        self.emit(limit, out, S::next_batch)
    }

    fn next_failed(&mut self, limit: u32, out: &mut GuestEmits<'_>) -> Result<i32, GuestError> {
        self.emit(limit, out, S::next_failed)
    }

    fn on_outcome(&mut self, message: u64, is_acked: bool) -> Result<(), GuestError> {
        match is_acked {
            true => self.spout.ack_batch(&[MessageId(message)]),
            false => self.spout.fail(MessageId(message)),
        }
        Ok(())
    }

    fn save(&mut self, state: &mut GuestState<'_>) -> Result<(), GuestError> {
        let running = self.running.as_mut().ok_or_else(unconfigured)?;
        let epoch = Some(Epoch(state.epoch())).filter(|_| !state.is_last());
        let (spout, what) = (&mut self.spout, "the spout failed");
        loop {
            let prepared = spout.prepare_snapshot(epoch, &mut running.collector(0));
            if prepared.map_err(|failure| user_failed(failure, what))? {
                break;
            }
        }
        running.emitter.take_batches(|_, _| {
            let what = "a spout in a process of its own emitted a tuple from `prepare_snapshot`";
            let error = Error::new(ErrorCode::InvalidJob, what);
            Err(guest_failure(error.hint("emit it from `next_tuple`")))
        })?;
        match checkpointed(self.spout.state()) {
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
        match checkpointed(self.spout.state()) {
            Some(state) => self.restored.pass_on(state, place),
            None => Ok(()),
        }
    }

    fn on_commit(&mut self, epoch: u64) -> Result<(), GuestError> {
        match checkpointed(self.spout.state()) {
            Some(state) => until_done(|| state.on_checkpoint_committed(Epoch(epoch))),
            None => Ok(()),
        }
    }

    fn on_control(&mut self, control: &InstanceControl) -> Result<(), GuestError> {
        if let Some(parallelism) = &control.parallelism {
            self.wiring.parallelism.rescale_named(parallelism);
        }
        match control.active {
            Some(true) => self.spout.activate(),
            Some(false) => self.spout.deactivate(),
            None => {}
        }
        match (control.aborted, checkpointed(self.spout.state())) {
            (Some(epoch), Some(state)) => until_done(|| state.on_checkpoint_aborted(Epoch(epoch))),
            _ => Ok(()),
        }
    }

    fn take_dead_letters(&mut self) -> Vec<GuestDeadLetter> {
        self.letters.take()
    }
}

impl<S: Spout> Drop for SpoutGuest<S> {
    fn drop(&mut self) {
        self.spout.close();
    }
}
