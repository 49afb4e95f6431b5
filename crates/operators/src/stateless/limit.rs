//! The first records of a stream.

use std::marker::PhantomData;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};

use crate::passing::{pass_front, passable};

/// Passes on the first `limit` records that come to this instance and swallows the rest.
///
/// A processor can't end its input: the stream flows on, unread. For a limit over the whole stream give the vertex one
/// instance.
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
    records: PhantomData<fn(T)>,
}

impl<T> LimitP<T> {
    /// Lets `limit` records pass.
    pub fn new(limit: u64) -> Self {
        LimitP {
            left: limit,
            records: PhantomData,
        }
    }
}

impl<T: Send + 'static> Processor for LimitP<T> {
    fn forgets(&self) -> Option<&'static str> {
        Some("how many records have passed")
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Drive, untimed};

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
