//! Where a topology's tuples come from.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use crate::acker::{AckActions, Acker};
use crate::anchor::{Anchor, Root};
use crate::context::ComponentContext;
use crate::emitter::{Emitter, To};
use crate::encode::Values;
use crate::failure::Outcome;
use crate::outputs::Outputs;
use crate::pace::Pace;

/// What a spout calls a tuple whose fate it wants to know; it comes back in [`Spout::ack`] or [`Spout::fail`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(pub u64);

/// What a spout wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// To be called again as soon as there is room.
    More,
    /// Has nothing to emit: to be called again after this time, or when a tuple is acked or failed, or when
    /// [`ComponentContext::waker`] says so.
    Wait(Duration),
    /// Has emitted all there is. Called again only if a tuple fails. When all spouts have said so and every tuple has been dealt
    /// with, the topology ends.
    Done,
}

/// Reads from outside and emits tuples: the code of one instance.
///
/// One thread at a time calls it. Order of the calls: `open`, `activate` (unless the topology starts deactivated), then `next_tuple`, `ack`, `fail`, `activate` and `deactivate` in
/// turn, `close`. No call blocks, unless the component is declared [`on_thread`](crate::SpoutDeclarer::on_thread): then `next_tuple` may, but returns at
/// least once a second, and acks wait for it.
///
/// An error that a call returns fails the job.
pub trait Spout: Send {
    /// The streams that it emits, with their fields. Asked of a fresh instance when the topology is built, before `open`.
    fn outputs(&self) -> Outputs;

    /// Called once before all others.
    fn open(&mut self, context: &ComponentContext) -> Outcome {
        let _ = context;
        Ok(())
    }

    /// Emits the next tuple, if there is one.
    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next>;

    /// Emits many tuples: until `out` is full, or there are no more now. A spout whose input comes in batches does better here.
    #[inline]
    fn next_batch(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        loop {
            let next = self.next_tuple(out)?;
            if next != Next::More || out.is_full() {
                return Ok(next);
            }
        }
    }

    /// Emits again the next tuple that has failed, if there is one, and nothing else; called in place of `next_tuple` when this instance is
    /// to end: an `update` takes it away, or the topology drains. It stays until this says that it is done and all that it has emitted
    /// is acked. Also called while the topology is deactivated.
    ///
    /// A spout that emits again what fails says so here as well: of one that does not, what fails from then on is lost.
    fn next_failed(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let _ = out;
        Ok(Next::Done)
    }

    /// All that was made from this message has been dealt with. With acks off it is called as soon as the tuple was emitted.
    fn ack(&mut self, message: MessageId) {
        let _ = message;
    }

    /// As [`ack`](Spout::ack), for many messages; one that keeps account in bulk does better here.
    fn ack_batch(&mut self, messages: &[MessageId]) {
        messages.iter().for_each(|message| self.ack(*message));
    }

    /// This message was failed by a bolt, was not acked in time, or was pending when a worker of the topology was lost. A spout that
    /// can emits it again, in [`next_tuple`](Spout::next_tuple) and in [`next_failed`](Spout::next_failed).
    fn fail(&mut self, message: MessageId) {
        let _ = message;
    }

    /// Whether the number of its instances can't be changed while the topology runs. So it is if each of them emits a share of one
    /// input that depends on how many they are: those that run would keep theirs, and nobody would read the rest.
    fn has_fixed_instances() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// `next_tuple` will be called from now on.
    fn activate(&mut self) {}

    /// `next_tuple` will not be called until [`activate`](Spout::activate); `ack` and `fail` go on.
    fn deactivate(&mut self) {}

    /// Called once after all others, also after a failure. Must not panic.
    fn close(&mut self) {}
}

#[cold]
fn too_many() -> Error {
    let most = Root::MOST_SLOTS;
    let what = format!("a spout instance has {most} messages pending, and can have no more");
    Error::new(ErrorCode::LimitReached, what)
        .hint("return from next_batch when the collector is full")
}

/// Takes what a spout emits.
#[derive(Debug)]
pub struct SpoutCollector<'a> {
    pub(crate) emitter: &'a mut Emitter,
    /// Follows the tuples; none with acks off.
    pub(crate) acker: Option<&'a mut Acker>,
    pub(crate) actions: &'a mut AckActions,
    /// How many more messages may be pending.
    pub(crate) room: usize,
    pub(crate) pace: Pace<'a>,
}

impl SpoutCollector<'_> {
    /// Whether it is time to return. What is emitted all the same is kept.
    #[inline]
    pub fn is_full(&mut self) -> bool {
        self.emitter.is_full() || self.room == 0 || self.pace.is_over()
    }

    /// How many more messages may be pending before it is full (max spout pending); for spouts that emit in bulk.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Emits a tuple whose fate nobody asks for.
    ///
    /// # Errors
    /// If it does not fit the declared fields.
    #[inline]
    pub fn emit(&mut self, values: impl Values) -> Result<()> {
        self.emitter.emit(To::Default, None, values, []).map(drop)
    }

    /// Emits a tuple to a named stream.
    ///
    /// # Errors
    /// If it does not fit the declared fields, or there is no such stream.
    #[inline]
    pub fn emit_to(&mut self, stream: &str, values: impl Values) -> Result<()> {
        let to = To::Named(stream);
        self.emitter.emit(to, None, values, []).map(drop)
    }

    /// Emits a tuple to one instance of those who subscribed to a direct stream.
    ///
    /// # Errors
    /// If it does not fit the declared fields, there is no such direct stream, or no such instance.
    pub fn emit_direct(&mut self, instance: u32, stream: &str, values: impl Values) -> Result<()> {
        let to = To::Named(stream);
        self.emitter.emit(to, Some(instance), values, []).map(drop)
    }

    /// Emits a tuple whose fate will be told under this id.
    ///
    /// # Errors
    /// As [`emit`](SpoutCollector::emit).
    #[inline]
    pub fn emit_tracked(&mut self, message: MessageId, values: impl Values) -> Result<()> {
        self.tracked(message, To::Default, None, values)
    }

    /// Emits a tuple to a named stream; its fate will be told under this id.
    ///
    /// # Errors
    /// As [`emit_to`](SpoutCollector::emit_to).
    pub fn emit_tracked_to(
        &mut self,
        message: MessageId,
        stream: &str,
        values: impl Values,
    ) -> Result<()> {
        self.tracked(message, To::Named(stream), None, values)
    }

    /// Emits a tuple to one instance; its fate will be told under this id.
    ///
    /// # Errors
    /// As [`emit_direct`](SpoutCollector::emit_direct).
    pub fn emit_direct_tracked(
        &mut self,
        message: MessageId,
        instance: u32,
        stream: &str,
        values: impl Values,
    ) -> Result<()> {
        self.tracked(message, To::Named(stream), Some(instance), values)
    }

    #[inline]
    fn tracked(
        &mut self,
        message: MessageId,
        to: To<'_>,
        target: Option<u32>,
        values: impl Values,
    ) -> Result<()> {
        let Some(acker) = &mut self.acker else {
            self.emitter.emit(to, target, values, [])?;
            self.actions.acked.push(message);
            return Ok(());
        };
        if acker.room() == 0 {
            return Err(too_many());
        }
        let now = self.pace.started();
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
