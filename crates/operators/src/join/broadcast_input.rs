//! A stream combined with a broadcast input.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, RecordGuard, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateChunk,
    StateCodec, StateShape,
};

use ardea_state::StateTable;

/// The name of the checkpointed state.
const BROADCAST_STATE: &str = "told";

/// The user functions of a [`BroadcastInputP`], shared by all instances.
#[derive(Clone, Debug)]
pub struct BroadcastLogic<C, W, F> {
    /// Creates the initial state: `Fn() -> S`.
    pub create: C,
    /// Updates the state with a record of the broadcast input: `Fn(&mut S, V)`.
    pub update: W,
    /// Maps a record of the stream with the current state: `Fn(T, &S) -> U`.
    pub apply: F,
}

/// Maps a stream (input 0) with a state that is built from a broadcast input (input 1).
///
/// For rules, rates and thresholds: each instance holds a copy of the state and applies updates as
/// they arrive. There is no order between the inputs: a record sees only the updates that its
/// instance received before the record. If a bounded side input must be complete first, give its
/// edge [`Priority::FIRST`](ardea_core::Priority::FIRST). The watermark is the minimum of both
/// inputs, unless the broadcast edge is [timeless](ardea_core::Edge::timeless), as it should be for
/// rare updates.
///
/// The state can be [checkpointed](Self::with_codec). At the end of an epoch, all instances have
/// received the same updates, so the first instance writes its copy and all restore it. It is
/// written as a whole whenever it has changed, so it should be small. If several instances
/// broadcast at the same time, the order of their updates may differ between receivers. If the
/// state depends on that order, all instances restore the state of the first one.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::{BroadcastInputP, BroadcastLogic};
///
/// let mut convert = BroadcastInputP::new(Arc::new(BroadcastLogic {
///     create: || 1.0f64,
///     update: |rate: &mut f64, news: f64| *rate = news,
///     apply: |amount: f64, rate: &f64| amount * rate,
/// }));
/// let mut outbox = Outbox::new(1, 16);
/// for (input, record) in [(Ordinal::FIRST, 10.0), (Ordinal::SECOND, 0.5), (Ordinal::FIRST, 10.0)] {
///     let mut inbox = Inbox::default();
///     inbox.fill(Chunk::new(Rows::from_iter([(record, Timestamp::MIN)])));
///     convert.process(input, &mut inbox, &mut outbox)?;
/// }
/// assert_eq!(outbox.lane::<f64>(Ordinal::FIRST)?.rows().values(), [10.0, 5.0]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct BroadcastInputP<T, V, S, U, C, W, F> {
    logic: Arc<BroadcastLogic<C, W, F>>,
    /// The broadcast state, under a single key. Exists from the first record on.
    broadcast_state: StateTable<(), S>,
    kept: Option<Arc<dyn StateCodec<S>>>,
    /// True if this instance writes the state, on behalf of all instances.
    writes: bool,
    records: PhantomData<fn(T, V) -> U>,
}

impl<T, V, S, U, C, W, F> BroadcastInputP<T, V, S, U, C, W, F>
where
    C: Fn() -> S,
    W: Fn(&mut S, V),
    F: Fn(T, &S) -> U,
{
    /// The input of the stream.
    pub const STREAM: Ordinal = Ordinal::FIRST;
    /// The broadcast input, which every instance receives.
    pub const BROADCAST: Ordinal = Ordinal::SECOND;

    /// Creates an operator with `logic`, which instances share. Each instance has its own state.
    pub fn new(logic: Arc<BroadcastLogic<C, W, F>>) -> Self {
        BroadcastInputP {
            logic,
            broadcast_state: StateTable::default(),
            kept: None,
            writes: true,
            records: PhantomData,
        }
    }

    /// Sets the serializer of the state, so that it is checkpointed.
    pub fn with_codec(mut self, codec: Arc<dyn StateCodec<S>>) -> Self {
        self.kept = Some(codec);
        self
    }
}

/// Appends the entry of the state, if this instance writes the state.
fn write<S>(
    kept: Option<&Arc<dyn StateCodec<S>>>,
    chunk: &mut StateChunk,
    state: &S,
) -> Result<()> {
    match kept {
        Some(codec) => chunk.write(
            BROADCAST_STATE,
            None,
            |_| Ok(()),
            |out| codec.put(state, out),
        ),
        None => Ok(()),
    }
}

impl<T, V, S, U, C, W, F> Processor for BroadcastInputP<T, V, S, U, C, W, F>
where
    T: Send + 'static,
    V: Send + 'static,
    S: Send + 'static,
    U: Send + 'static,
    C: Fn() -> S + Send + Sync + 'static,
    W: Fn(&mut S, V) + Send + Sync + 'static,
    F: Fn(T, &S) -> U + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.writes = context.instance.index == 0;
        if context.guarantee.keeps_state() {
            self.broadcast_state.keep_track();
        }
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let slot = self
            .broadcast_state
            .slot_or_insert(Cow::Owned(()), &self.logic.create);
        let mut guard = RecordGuard::new();
        if input == Self::BROADCAST {
            let kept = self.kept.as_ref().filter(|_| self.writes);
            self.broadcast_state
                .touch(slot, |chunk, (), state| write(kept, chunk, state));
            let (_, state) = self
                .broadcast_state
                .get_mut(slot)
                .ok_or_else(missing_state)?;
            for (update, _) in inbox.rows::<V>()?.drain_front(usize::MAX) {
                (self.logic.update)(state, update);
                guard.advance();
            }
            return Ok(());
        }
        let apply = &self.logic.apply;
        let state = self.broadcast_state.get(slot).ok_or_else(missing_state)?;
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        let room = lane.room();
        lane.rows().extend_map(inbox.rows::<T>()?, room, |record| {
            let mapped = apply(record, state);
            guard.advance();
            mapped
        });
        Ok(())
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        match self.kept {
            Some(_) => None,
            None => Some("its broadcast state, which has no serializer"),
        }
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, V, S, U, C, W, F> Checkpointed for BroadcastInputP<T, V, S, U, C, W, F>
where
    T: Send + 'static,
    V: Send + 'static,
    S: Send + 'static,
    U: Send + 'static,
    C: Fn() -> S + Send + Sync + 'static,
    W: Fn(&mut S, V) + Send + Sync + 'static,
    F: Fn(T, &S) -> U + Send + Sync + 'static,
{
    fn states(&mut self) -> Vec<StateShape> {
        let kept = self.kept.iter();
        kept.map(|codec| StateShape::of_values(BROADCAST_STATE, None, codec.schema()))
            .collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.broadcast_state.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let kept = self.kept.as_ref().filter(|_| self.writes);
        self.broadcast_state
            .write_snapshot(writer, |chunk, (), _, state| write(kept, chunk, state))
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.broadcast_state.commit(epoch)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.broadcast_state.abort(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match &self.kept {
                Some(codec) if entry.state == BROADCAST_STATE => {
                    self.broadcast_state.restore((), codec.get(entry.value)?)?;
                }
                _ => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }
}

fn missing_state() -> Error {
    Error::new(ErrorCode::Internal, "the broadcast state is missing")
}

impl<T, V, S, U, C, W, F> fmt::Debug for BroadcastInputP<T, V, S, U, C, W, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastInputP").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, at, untimed};

    #[test]
    fn a_record_sees_the_updates_that_came_before_it() {
        Drive::every_schedule(|drive| {
            let mut known = BroadcastInputP::new(Arc::new(BroadcastLogic {
                create: Vec::new,
                update: |known: &mut Vec<u8>, new: u8| known.push(new),
                apply: |record: i64, known: &Vec<u8>| (record, known.len()),
            }));
            let seen = drive
                .records([(0i64, at(0))])
                .records_on(Ordinal::SECOND, untimed([1u8, 2, 3]))
                .records((1..20i64).map(|n| (n, at(n))))
                .run::<(i64, usize)>(&mut known);
            let expected: Vec<_> = (0..20)
                .map(|n| ((n, if n == 0 { 0 } else { 3 }), at(n)))
                .collect();
            assert_eq!(seen.records(), expected);
        });
    }
}
