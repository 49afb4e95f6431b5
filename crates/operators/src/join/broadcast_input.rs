//! A stream beside something that all instances know.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Cut, CutWriter, Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, RecordGuard, RestoredState, Result, StateChunk, StateCodec, StateShape,
};

use crate::keyed::KeyedStates;

/// The name of the state.
const TOLD: &str = "told";

/// The user's part of a [`BroadcastInputP`]; all instances share it.
#[derive(Clone, Debug)]
pub struct BroadcastLogic<C, W, F> {
    /// What an instance knows at the start: `Fn() -> S`.
    pub create: C,
    /// Takes in a record of the broadcast input: `Fn(&mut S, V)`.
    pub update: W,
    /// Maps a record of the stream, knowing what came so far: `Fn(T, &S) -> U`.
    pub apply: F,
}

/// Maps a stream (input 0) with something that a broadcast input (input 1) tells, once or again and again.
///
/// Rules, rates, thresholds: each instance keeps a copy of what was told, and updates it as updates come. There is no order
/// between the inputs: a record sees the updates that came before it here. For a bounded side input that must be complete
/// first give its edge [`Priority::FIRST`](ardea_core::Priority::FIRST). The watermark waits for both inputs, unless the
/// broadcast edge is [timeless](ardea_core::Edge::timeless), as it should be where updates come rarely.
///
/// What was told [survives](Self::kept_as): all instances have heard the same by the end of an epoch, so the first writes its copy and
/// all get that back. It is written in one go whenever it has changed, so it should stay small. If several instances tell at the same time,
/// their order may differ between those who hear: a state that depends on that is the first one's afterwards.
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
    /// What was told, under the one key that there is: there from the first record on.
    told: KeyedStates<(), S>,
    kept: Option<Arc<dyn StateCodec<S>>>,
    /// Whether it is this instance that writes what all know.
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
    /// The input that all instances get.
    pub const BROADCAST: Ordinal = Ordinal::SECOND;

    /// By `logic`, which all instances share; each has a state of its own.
    pub fn new(logic: Arc<BroadcastLogic<C, W, F>>) -> Self {
        BroadcastInputP {
            logic,
            told: KeyedStates::default(),
            kept: None,
            writes: true,
            records: PhantomData,
        }
    }

    /// Says how what was told is written, so that it survives the instances.
    pub fn kept_as(mut self, codec: Arc<dyn StateCodec<S>>) -> Self {
        self.kept = Some(codec);
        self
    }
}

/// Appends the entry, if that is for this instance to write.
fn write<S>(
    kept: Option<&Arc<dyn StateCodec<S>>>,
    chunk: &mut StateChunk,
    state: &S,
) -> Result<()> {
    match kept {
        Some(codec) => chunk.write(TOLD, None, |_| Ok(()), |out| codec.put(state, out)),
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
            self.told.keep_track();
        }
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let slot = self.told.slot_or_insert(Cow::Owned(()), &self.logic.create);
        let mut guard = RecordGuard::new();
        if input == Self::BROADCAST {
            let kept = self.kept.as_ref().filter(|_| self.writes);
            self.told
                .touch(slot, |chunk, (), state| write(kept, chunk, state));
            let (_, state) = self.told.get_mut(slot).ok_or_else(nothing_there)?;
            for (update, _) in inbox.rows::<V>()?.drain_front(usize::MAX) {
                (self.logic.update)(state, update);
                guard.advance();
            }
            return Ok(());
        }
        let apply = &self.logic.apply;
        let state = self.told.get(slot).ok_or_else(nothing_there)?;
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        let room = lane.room();
        lane.rows().extend_map(inbox.rows::<T>()?, room, |record| {
            let mapped = apply(record, state);
            guard.advance();
            mapped
        });
        Ok(())
    }

    fn forgets(&self) -> Option<&'static str> {
        match self.kept {
            Some(_) => None,
            None => Some("what it was told, which nothing here can write"),
        }
    }

    fn states(&self) -> Vec<StateShape> {
        let kept = self.kept.iter();
        kept.map(|codec| StateShape::of_values(TOLD, None, codec.schema()))
            .collect()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.told.take_cut(cut)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let kept = self.kept.as_ref().filter(|_| self.writes);
        self.told
            .write_cut(writer, |chunk, (), _, state| write(kept, chunk, state))
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.told.commit(epoch)
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.told.give_up(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match &self.kept {
                Some(codec) if entry.state == TOLD => {
                    self.told.restore((), codec.get(entry.value)?)?;
                }
                _ => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }
}

fn nothing_there() -> Error {
    Error::new(ErrorCode::Internal, "there is nothing that was told")
}

impl<T, V, S, U, C, W, F> fmt::Debug for BroadcastInputP<T, V, S, U, C, W, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastInputP").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Drive, at, untimed};

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
