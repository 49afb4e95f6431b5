//! A forwarding operator: merges streams, or redistributes one.

use std::marker::PhantomData;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};

use crate::forward::{pass_front, passable};

/// Forwards the records of all inputs in the order of arrival.
///
/// Records of one input keep their order. The order between inputs is undefined. The runtime merges
/// the inputs' watermarks. Whole chunks are forwarded to an empty lane, so the cost per record is
/// near zero.
///
/// ```
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::MergeP;
///
/// let mut merge = MergeP::<&str>::new();
/// let mut outbox = Outbox::new(1, 16);
/// for (input, word) in [(Ordinal::FIRST, "to"), (Ordinal::SECOND, "be")] {
///     let mut inbox = Inbox::default();
///     inbox.fill(Chunk::new(Rows::from_iter([(word, Timestamp::MIN)])));
///     merge.process(input, &mut inbox, &mut outbox)?;
/// }
/// assert_eq!(outbox.lane::<&str>(Ordinal::FIRST)?.rows().values(), ["to", "be"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct MergeP<T> {
    records: PhantomData<fn(T)>,
}

impl<T> MergeP<T> {
    /// Creates a merge of any number of inputs.
    pub fn new() -> Self {
        MergeP {
            records: PhantomData,
        }
    }
}

impl<T> Default for MergeP<T> {
    fn default() -> Self {
        MergeP::new()
    }
}

impl<T: Send + 'static> Processor for MergeP<T> {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
        pass_front::<T>(inbox, outbox, Ordinal::FIRST, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, at};

    #[test]
    fn all_inputs_come_out_and_each_keeps_its_order() {
        Drive::every_schedule(|drive| {
            let seen = drive
                .records_on(Ordinal::FIRST, (0..10).map(|n| (n, at(n))))
                .records_on(Ordinal::SECOND, (100..110).map(|n| (n, at(n))))
                .records_on(Ordinal::FIRST, (10..20).map(|n| (n, at(n))))
                .run::<i64>(&mut MergeP::<i64>::new());
            let (first, second): (Vec<i64>, Vec<i64>) =
                seen.values().into_iter().partition(|n| *n < 100);
            assert_eq!(first, (0..20).collect::<Vec<_>>());
            assert_eq!(second, (100..110).collect::<Vec<_>>());
        });
    }
}
