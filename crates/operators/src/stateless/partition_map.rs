//! A map from each record to one of two outputs of different types.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, RecordGuard, Result, Rows};
use serde::{Deserialize, Serialize};

/// The result of the function of a [`PartitionMapP`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Either<A, B> {
    /// A record for the first output.
    Left(A),
    /// A record for the second output.
    Right(B),
}

/// Maps each record to the first output ([`Either::Left`]) or the second ([`Either::Right`]), with
/// its event time.
///
/// For a side output of another type: valid and invalid, parsed and unparsed. Reads no more records
/// than both outputs have room for.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::{Either, PartitionMapP};
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("7", Timestamp::MIN), ("x", Timestamp::MIN)])));
/// let mut outbox = Outbox::new(2, 16);
///
/// let parse = |text: &'static str| text.parse::<u32>().map_or(Either::Right(text), Either::Left);
/// PartitionMapP::new(Arc::new(parse)).process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<u32>(Ordinal::FIRST)?.rows().values(), [7]);
/// assert_eq!(outbox.lane::<&str>(Ordinal::SECOND)?.rows().values(), ["x"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct PartitionMapP<T, A, B, F> {
    f: Arc<F>,
    /// The second output's records of this call; empty between calls.
    second: Rows<B>,
    records: PhantomData<fn(T) -> A>,
}

impl<T, A, B, F> PartitionMapP<T, A, B, F>
where
    F: Fn(T) -> Either<A, B>,
{
    /// Creates an operator that applies `f`, which instances share.
    pub fn new(f: Arc<F>) -> Self {
        PartitionMapP {
            f,
            second: Rows::default(),
            records: PhantomData,
        }
    }
}

impl<T, A, B, F> Processor for PartitionMapP<T, A, B, F>
where
    T: Send + 'static,
    A: Send + 'static,
    B: Send + 'static,
    F: Fn(T) -> Either<A, B> + Send + Sync + 'static,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let room = outbox.lane::<B>(Ordinal::SECOND)?.room();
        let mut first = outbox.lane::<A>(Ordinal::FIRST)?;
        let count = room.min(first.room());
        let mut guard = RecordGuard::new();
        for (record, time) in inbox.rows::<T>()?.drain_front(count) {
            match (self.f)(record) {
                Either::Left(value) => first.push(value, time),
                Either::Right(value) => self.second.push(value, time),
            }
            guard.advance();
        }
        let staged = self.second.len();
        outbox
            .lane::<B>(Ordinal::SECOND)?
            .rows()
            .append_front(&mut self.second, staged);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Chunk, OutboxRuntime, Timestamp};

    #[test]
    fn both_outputs_keep_order_and_neither_is_overfilled() {
        let mut split = PartitionMapP::new(Arc::new(|n: u32| {
            if n.is_multiple_of(3) {
                Either::Left(n)
            } else {
                Either::Right(n.to_string())
            }
        }));
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(
            (0..20u32).map(|n| (n, Timestamp::MIN)).collect::<Rows<_>>(),
        ));
        let mut outbox = Outbox::new(2, 4);
        let (mut numbers, mut texts) = (Vec::new(), Vec::new());
        while !inbox.is_empty() {
            split
                .process(Ordinal::FIRST, &mut inbox, &mut outbox)
                .unwrap();
            for (lane, full) in [(0, 4), (1, 4)] {
                assert!(outbox.chunk_mut(lane).len() <= full);
            }
            numbers.extend_from_slice(outbox.chunk_mut(0).rows::<u32>().unwrap().values());
            texts.extend_from_slice(outbox.chunk_mut(1).rows::<String>().unwrap().values());
            outbox.chunk_mut(0).clear();
            outbox.chunk_mut(1).clear();
        }
        assert_eq!(numbers, (0..20).step_by(3).collect::<Vec<_>>());
        assert_eq!(texts.len(), 13);
        assert_eq!(texts[..3], ["1", "2", "4"]);
    }
}
