//! A stream beside something that all instances know.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, RecordGuard, Result};

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
    state: S,
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
        let state = (logic.create)();
        BroadcastInputP {
            logic,
            state,
            records: PhantomData,
        }
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
    fn forgets(&self) -> Option<&'static str> {
        Some("what it was told on its second input")
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let mut guard = RecordGuard::new();
        if input == Self::BROADCAST {
            for (update, _) in inbox.rows::<V>()?.drain_front(usize::MAX) {
                (self.logic.update)(&mut self.state, update);
                guard.advance();
            }
            return Ok(());
        }
        let (apply, state) = (&self.logic.apply, &self.state);
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        let room = lane.room();
        lane.rows().extend_map(inbox.rows::<T>()?, room, |record| {
            let mapped = apply(record, state);
            guard.advance();
            mapped
        });
        Ok(())
    }
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
