//! One record in so many.

use std::marker::PhantomData;
use std::num::NonZeroU64;

use ardea_core::{
    Cut, CutWriter, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, StateShape,
};

use crate::of_instance::OfInstance;
use crate::passing::pass_if;

/// Passes on the first record that comes to this instance and then every `n`th. It goes on counting in another life; where there are more
/// instances than before, new ones begin anew.
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
    /// How many records are skipped before the next one passes.
    skip: u64,
    /// How many of the waiting records are known to pass.
    asked: usize,
    /// How many are skipped, where that has to survive it.
    kept: OfInstance<1>,
    records: PhantomData<fn(T)>,
}

impl<T> SampleP<T> {
    /// Lets one record in `every` pass.
    pub fn new(every: NonZeroU64) -> Self {
        SampleP {
            every: every.get(),
            skip: 0,
            asked: 0,
            kept: OfInstance::default(),
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

    fn states(&self) -> Vec<StateShape> {
        OfInstance::<1>::states()
    }

    fn take_cut(&mut self, _: Cut) -> Result<()> {
        self.kept.take_cut([self.skip.cast_signed()])
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.kept.write_cut(writer)
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
    use crate::drive::{Drive, untimed};

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
