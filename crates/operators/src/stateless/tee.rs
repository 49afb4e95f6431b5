//! A copy of each record to every output.

use std::marker::PhantomData;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result, Timestamp};

use crate::forward::pass_front;

/// Sends each record to every output of the vertex.
///
/// The first output receives the records themselves, the others clones. The slowest output holds
/// back the others.
///
/// ```
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::TeeP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("a", Timestamp::MIN)])));
/// let mut outbox = Outbox::new(2, 16);
///
/// TeeP::<&str>::new().process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<&str>(Ordinal::FIRST)?.rows().values(), ["a"]);
/// assert_eq!(outbox.lane::<&str>(Ordinal::SECOND)?.rows().values(), ["a"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct TeeP<T> {
    records: PhantomData<fn(T)>,
}

impl<T> TeeP<T> {
    /// Creates an operator for any number of outputs.
    pub fn new() -> Self {
        TeeP {
            records: PhantomData,
        }
    }
}

impl<T> Default for TeeP<T> {
    fn default() -> Self {
        TeeP::new()
    }
}

impl<T: Clone + Send + 'static> Processor for TeeP<T> {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let mut count = inbox.len();
        for lane in lanes(outbox) {
            count = count.min(outbox.lane::<T>(lane)?.room());
        }
        if count == 0 {
            return Ok(());
        }
        for lane in lanes(outbox).skip(1) {
            let rows = inbox.rows::<T>()?;
            outbox.lane::<T>(lane)?.rows().extend_columns(
                |values: &mut Vec<T>, times: &mut Vec<Timestamp>| {
                    values.extend_from_slice(&rows.values()[..count]);
                    times.extend_from_slice(&rows.times()[..count]);
                },
            );
        }
        pass_front::<T>(inbox, outbox, Ordinal::FIRST, count)
    }
}

/// Returns the ordinals of all lanes.
fn lanes(outbox: &Outbox) -> impl Iterator<Item = Ordinal> + use<> {
    (0..outbox.lanes()).map(|lane| Ordinal(lane as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, at};

    #[test]
    fn every_output_gets_every_record_in_order() {
        Drive::every_schedule(|drive| {
            let records: Vec<_> = (0..30).map(|n| (n, at(n))).collect();
            let seen = drive
                .lanes(3)
                .records(records.clone())
                .run_lanes::<i64>(&mut TeeP::<i64>::new());
            assert!(seen.iter().all(|lane| lane.records() == records));
        });
    }
}
