//! A limit on the number of records.

use std::marker::PhantomData;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape,
};

use crate::forward::{pass_front, passable};
use crate::instance_state::InstanceCounters;

/// Forwards the first `limit` records of this instance and drops the rest.
///
/// A processor cannot end its input: the remaining records are read and dropped. For a limit over
/// the whole stream, set the parallelism to one. The remaining limit is checkpointed; after a
/// rescale, additional instances start with the whole limit.
///
/// ```
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::LimitP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new((1..=6u32).map(|n| (n, Timestamp::MIN)).collect::<Rows<_>>()));
/// let mut outbox = Outbox::new(1, 16);
///
/// LimitP::<u32>::new(2).process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<u32>(Ordinal::FIRST)?.rows().values(), [1, 2]);
/// assert!(inbox.is_empty());
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct LimitP<T> {
    left: u64,
    /// The checkpointed remaining limit.
    kept: InstanceCounters<1>,
    records: PhantomData<fn(T)>,
}

impl<T> LimitP<T> {
    /// Creates an operator that forwards `limit` records.
    pub fn new(limit: u64) -> Self {
        LimitP {
            left: limit,
            kept: InstanceCounters::default(),
            records: PhantomData,
        }
    }
}

impl<T: Send + 'static> Processor for LimitP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.kept.attach(context);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if self.left > 0 {
            let limit = usize::try_from(self.left).unwrap_or(usize::MAX);
            if limit < inbox.len() {
                inbox.rows::<T>()?.extend_columns(|records, times| {
                    records.truncate(limit);
                    times.truncate(limit);
                });
            }
            let count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
            pass_front::<T>(inbox, outbox, Ordinal::FIRST, count)?;
            self.left -= count as u64;
        } else {
            inbox.rows::<T>()?.clear();
        }
        Ok(())
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T: Send + 'static> Checkpointed for LimitP<T> {
    fn states(&mut self) -> Vec<StateShape> {
        InstanceCounters::<1>::states()
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.kept.take_snapshot([self.left.cast_signed()])
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.kept.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.kept.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some([left]) = self.kept.own()? {
            self.left = left.cast_unsigned();
        }
        Ok(Progress::DONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, untimed};

    #[test]
    fn the_first_records_pass_and_the_rest_is_swallowed() {
        Drive::every_schedule(|drive| {
            for limit in [0, 1, 17, 40, 99] {
                let seen = drive
                    .clone()
                    .records(untimed(0..40u32))
                    .run::<u32>(&mut LimitP::<u32>::new(limit));
                assert_eq!(seen.values(), (0..40.min(limit as u32)).collect::<Vec<_>>());
            }
        });
    }
}
