//! A sample of every n-th record.

use std::marker::PhantomData;
use std::num::NonZeroU64;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape,
};

use crate::forward::pass_if;
use crate::instance_state::InstanceCounters;

/// Forwards the first record of every `every` records of this instance. The position is
/// checkpointed. After a rescale, additional instances forward their first record.
///
/// ```
/// use std::num::NonZeroU64;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::SampleP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new((0..10u32).map(|n| (n, Timestamp::MIN)).collect::<Rows<_>>()));
/// let mut outbox = Outbox::new(1, 16);
///
/// let every = NonZeroU64::new(4).unwrap();
/// SampleP::<u32>::new(every).process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<u32>(Ordinal::FIRST)?.rows().values(), [0, 4, 8]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct SampleP<T> {
    every: u64,
    /// The number of records to skip before the next one is forwarded.
    skip: u64,
    /// The number of waiting records already selected for forwarding.
    asked: usize,
    /// The checkpointed number of records to skip.
    kept: InstanceCounters<1>,
    records: PhantomData<fn(T)>,
}

impl<T> SampleP<T> {
    /// Creates an operator that forwards one in `every` records.
    pub fn new(every: NonZeroU64) -> Self {
        SampleP {
            every: every.get(),
            skip: 0,
            asked: 0,
            kept: InstanceCounters::default(),
            records: PhantomData,
        }
    }
}

impl<T: Send + 'static> Processor for SampleP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.kept.attach(context);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let SampleP {
            every, skip, asked, ..
        } = self;
        pass_if::<T>(inbox, outbox, asked, |_| {
            let passes = *skip == 0;
            *skip = if passes { *every - 1 } else { *skip - 1 };
            passes
        })
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T: Send + 'static> Checkpointed for SampleP<T> {
    fn states(&mut self) -> Vec<StateShape> {
        InstanceCounters::<1>::states()
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.kept.take_snapshot([self.skip.cast_signed()])
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.kept.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.kept.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some([skip]) = self.kept.own()? {
            self.skip = skip.cast_unsigned();
        }
        Ok(Progress::DONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, untimed};

    #[test]
    fn every_nth_record_passes() {
        Drive::every_schedule(|drive| {
            for every in [1, 2, 7, 100] {
                let mut sample = SampleP::<u32>::new(NonZeroU64::new(every).unwrap());
                let seen = drive
                    .clone()
                    .records(untimed(0..50u32))
                    .run::<u32>(&mut sample);
                assert_eq!(
                    seen.values(),
                    (0..50).step_by(every as usize).collect::<Vec<_>>()
                );
            }
        });
    }
}
