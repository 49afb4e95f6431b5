//! Spouts, the sources of a topology's tuples.

use std::time::Duration;

use ardea_core::{Epoch, Error, ErrorCode, Result};

use crate::acker::{AckActions, Acker};
use crate::anchor::{Anchor, Root};
use crate::call_budget::CallBudget;
use crate::context::ComponentContext;
use crate::emitter::{Emitter, To};
use crate::encode::Values;
use crate::failure::Outcome;
use crate::outputs::Outputs;
use crate::state::ComponentState;

/// The id that a spout gives a tracked tuple, passed to [`Spout::ack`] or [`Spout::fail`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(pub u64);

/// The next call that a spout requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Call again as soon as there is room.
    More,
    /// Nothing to emit: call again after this time, when a tuple is acked or failed, or when
    /// [`ComponentContext::waker`] is woken.
    Wait(Duration),
    /// Everything is emitted: call again only if a tuple fails. When all spouts are done and every
    /// tuple is processed, the topology ends.
    Done,
}

/// The code of one spout instance, which reads input and emits tuples.
///
/// Calls come from one thread at a time, in this order: `open`, `activate` (unless the topology
/// starts deactivated), then `next_tuple`, `ack`, `fail`, `activate` and `deactivate` in turn,
/// `close`. Calls must not block, unless the component is declared
/// [`on_thread`](crate::SpoutDeclarer::on_thread): then `next_tuple` may block for up to a second,
/// which delays `ack` and `fail`.
///
/// An error that a call returns fails the job.
pub trait Spout: Send {
    /// Returns the emitted streams with their fields. Called on a new instance when the topology is
    /// built, before `open`.
    fn outputs(&self) -> Outputs;

    /// Returns the state of this instance that checkpoints contain, such as its read position.
    /// Called at any time; the same declaration at each call.
    ///
    /// States are opened in [`open`](Spout::open) and restored after it. The spout continues from
    /// the restored state at the next [`next_tuple`](Spout::next_tuple).
    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Undeclared
    }

    /// Called once before all other calls but [`state`](Spout::state).
    fn open(&mut self, context: &ComponentContext) -> Outcome {
        let _ = context;
        Ok(())
    }

    /// Emits the next tuple, if there is one.
    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next>;

    /// Emits many tuples, until `out` is full or no more are available now. Override this method
    /// for input that arrives in batches.
    #[inline]
    fn next_batch(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        loop {
            let next = self.next_tuple(out)?;
            if next != Next::More || out.is_full() {
                return Ok(next);
            }
        }
    }

    /// Emits the next failed tuple again, if there is one, and nothing else. Called in place of
    /// `next_tuple` when this instance is to end, by a rescale or because the topology drains. The
    /// instance ends when this returns [`Next::Done`] and all its messages are acked. Also called
    /// while the topology is deactivated.
    ///
    /// A spout that replays failed tuples must do so here as well; otherwise tuples that fail from
    /// then on are lost.
    fn next_failed(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let _ = out;
        Ok(Next::Done)
    }

    /// Called when all tuples derived from `message` are processed. With acks off, called as soon
    /// as the tuple is emitted.
    fn ack(&mut self, message: MessageId) {
        let _ = message;
    }

    /// Like [`ack`](Spout::ack), for many messages. Override this method to handle them in bulk.
    fn ack_batch(&mut self, messages: &[MessageId]) {
        messages.iter().for_each(|message| self.ack(*message));
    }

    /// Called when `message` was failed by a bolt, was not acked in time, or was pending when a
    /// worker of the topology was lost. The spout may emit the message again, in
    /// [`next_tuple`](Spout::next_tuple) and in [`next_failed`](Spout::next_failed).
    fn fail(&mut self, message: MessageId) {
        let _ = message;
    }

    /// Prepares the state for the snapshot at the end of `epoch`; `None` is the last snapshot,
    /// after the last tuple. Returns false if the state is not ready: then called again, at the
    /// latest when [`ComponentContext::waker`] is woken. Emitted tuples belong to the epoch.
    ///
    /// For a spout whose state is elsewhere, such as in another process.
    fn prepare_snapshot(
        &mut self,
        epoch: Option<Epoch>,
        out: &mut SpoutCollector<'_>,
    ) -> Outcome<bool> {
        let _ = (epoch, out);
        Ok(true)
    }

    /// Returns true if the parallelism can't be changed while the topology runs. This is the case
    /// if each instance reads a share of one input that depends on the parallelism: running
    /// instances would retain their shares, and the rest would not be read.
    fn has_fixed_instances() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Called before `next_tuple` calls start.
    fn activate(&mut self) {}

    /// Called when `next_tuple` calls stop until [`activate`](Spout::activate); `ack` and `fail`
    /// continue.
    fn deactivate(&mut self) {}

    /// Called once after all other calls, also after a failure. Must not panic.
    fn close(&mut self) {}
}

#[cold]
fn too_many() -> Error {
    let most = Root::MOST_SLOTS;
    let what = format!("a spout instance has {most} messages pending, and can have no more");
    Error::new(ErrorCode::LimitReached, what)
        .hint("return from next_batch when the collector is full")
}

/// The receiver of a spout's emitted tuples.
#[derive(Debug)]
pub struct SpoutCollector<'a> {
    pub(crate) emitter: &'a mut Emitter,
    /// The acker that tracks the tuples; `None` with acks off.
    pub(crate) acker: Option<&'a mut Acker>,
    pub(crate) actions: &'a mut AckActions,
    /// The number of messages that may still become pending.
    pub(crate) room: usize,
    pub(crate) budget: CallBudget<'a>,
    /// True if the host of this process tracks the tuples: they go there with their ids.
    pub(crate) is_relayed: bool,
}

impl SpoutCollector<'_> {
    /// Returns true if the spout should return: a batch is full, no more messages may become
    /// pending, or the time is over. Tuples emitted after that are not lost.
    #[inline]
    pub fn is_full(&mut self) -> bool {
        self.emitter.is_full() || self.room == 0 || self.budget.is_over()
    }

    /// Returns the number of messages that may still become pending (max spout pending); for spouts
    /// that emit in bulk.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Emits an untracked tuple.
    ///
    /// # Errors
    /// The values do not fit the declared fields.
    #[inline]
    pub fn emit(&mut self, values: impl Values) -> Result<()> {
        self.emitter.emit(To::Default, None, values, []).map(drop)
    }

    /// Emits a tuple to a named stream.
    ///
    /// # Errors
    /// The values do not fit the declared fields, or there is no such stream.
    #[inline]
    pub fn emit_to(&mut self, stream: &str, values: impl Values) -> Result<()> {
        let to = To::Named(stream);
        self.emitter.emit(to, None, values, []).map(drop)
    }

    /// Emits a tuple to one instance of the subscribers of a direct stream.
    ///
    /// # Errors
    /// The values do not fit the declared fields, there is no such direct stream, or no such
    /// instance.
    pub fn emit_direct(&mut self, instance: u32, stream: &str, values: impl Values) -> Result<()> {
        let to = To::Named(stream);
        self.emitter.emit(to, Some(instance), values, []).map(drop)
    }

    /// Emits a tracked tuple, which is acked or failed under the id `message`.
    ///
    /// # Errors
    /// Those of [`emit`](SpoutCollector::emit).
    #[inline]
    pub fn emit_tracked(&mut self, message: MessageId, values: impl Values) -> Result<()> {
        self.tracked(message, To::Default, None, values)
    }

    /// Emits a tracked tuple to a named stream.
    ///
    /// # Errors
    /// Those of [`emit_to`](SpoutCollector::emit_to).
    pub fn emit_tracked_to(
        &mut self,
        message: MessageId,
        stream: &str,
        values: impl Values,
    ) -> Result<()> {
        self.tracked(message, To::Named(stream), None, values)
    }

    /// Emits a tracked tuple to one instance of the subscribers of a direct stream.
    ///
    /// # Errors
    /// Those of [`emit_direct`](SpoutCollector::emit_direct).
    pub fn emit_direct_tracked(
        &mut self,
        message: MessageId,
        instance: u32,
        stream: &str,
        values: impl Values,
    ) -> Result<()> {
        self.tracked(message, To::Named(stream), Some(instance), values)
    }

    /// Emits a tuple to the stream at an index, tracked under `message` if there is one.
    pub(crate) fn emit_at(
        &mut self,
        stream: usize,
        target: Option<u32>,
        message: Option<MessageId>,
        values: impl Values,
    ) -> Result<()> {
        let to = To::Index(stream);
        match message {
            Some(message) => self.tracked(message, to, target, values),
            None => self.emitter.emit(to, target, values, []).map(drop),
        }
    }

    #[inline]
    fn tracked(
        &mut self,
        message: MessageId,
        to: To<'_>,
        target: Option<u32>,
        values: impl Values,
    ) -> Result<()> {
        if self.is_relayed {
            let root = Root::from_bits(message.0);
            let anchors = [Anchor { root, id: 0 }];
            self.emitter.emit(to, target, values, anchors)?;
            self.room = self.room.saturating_sub(1);
            return Ok(());
        }
        let Some(acker) = &mut self.acker else {
            self.emitter.emit(to, target, values, [])?;
            self.actions.acked.push(message);
            return Ok(());
        };
        if acker.room() == 0 {
            return Err(too_many());
        }
        let now = self.budget.started();
        let root = acker.open(now, message);
        match self
            .emitter
            .emit(to, target, values, [Anchor { root, id: 0 }])
        {
            Ok(ids) => {
                acker.seal(now, root, ids, self.actions);
                self.room = self.room.saturating_sub(1);
                Ok(())
            }
            Err(error) => {
                acker.forget(root);
                Err(error)
            }
        }
    }
}
