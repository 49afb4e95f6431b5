//! A map that may fail on a record.

use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Inbox, InstanceContext, OnError, Ordinal, Outbox, Processor, RecordGuard, Result,
};

use crate::record_errors::RecordErrors;

/// Emits the value of `f(&record)` if it is `Ok`. If it is `Err`, the record is handled by the
/// [`OnError`] policy.
///
/// The policy sends the record to the dead letters with its position, bytes and reason, or drops
/// and counts it, or fails the job with an error that names it. `f` borrows the record, so that it
/// can still be set aside. A panic in `f` counts as an error of the current record.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, InstanceContext, OnError, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::{TryMapP, raw_of};
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("7", Timestamp::MIN), ("x", Timestamp::MIN)])));
/// let mut outbox = Outbox::new(1, 16);
///
/// let context = InstanceContext::detached("parse");
/// let mut parse = TryMapP::new(Arc::new(|text: &&str| text.parse::<u32>()), OnError::DeadLetter, raw_of);
/// parse.init(&context)?;
/// parse.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<u32>(Ordinal::FIRST)?.rows().values(), [7]);
///
/// let letter = &context.dead_letters.sample()[0];
/// assert_eq!(letter.raw, b"x");
/// assert_eq!(letter.reason, "invalid digit found in string");
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct TryMapP<T, U, E, F> {
    f: Arc<F>,
    bad: RecordErrors<T>,
    records: PhantomData<fn(T) -> (U, E)>,
}

impl<T, U, E, F> TryMapP<T, U, E, F>
where
    F: Fn(&T) -> std::result::Result<U, E>,
{
    /// Creates a map by `f`, which instances share. `raw` returns the bytes of a record for a dead
    /// letter; use [`raw_of`](crate::raw_of) for records without a byte form.
    pub fn new(f: Arc<F>, policy: OnError, raw: fn(&T) -> Vec<u8>) -> Self {
        TryMapP {
            f,
            bad: RecordErrors::new(policy, raw),
            records: PhantomData,
        }
    }
}

impl<T, U, E, F> Processor for TryMapP<T, U, E, F>
where
    T: Send + 'static,
    U: Send + 'static,
    E: Display + 'static,
    F: Fn(&T) -> std::result::Result<U, E> + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let position = inbox.position();
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        let records = inbox.rows::<T>()?;
        let count = lane.room().min(records.len());
        let mut from = 0;
        loop {
            let ended = self.bad.catch(|| {
                let mut guard = RecordGuard::new();
                let batch = records.iter().enumerate().take(count).skip(from);
                for (index, (record, time)) in batch {
                    match (self.f)(record) {
                        Ok(mapped) => lane.push(mapped, time),
                        Err(reason) => {
                            let position = position + index as u64;
                            self.bad.handle(input, position, record, reason)?;
                        }
                    }
                    guard.advance();
                }
                Ok(())
            })?;
            let Err(panic) = ended else { break };
            let index = from + panic.index;
            let record = &records.values()[index];
            self.bad
                .handle(input, position + index as u64, record, panic.reason)?;
            from = index + 1;
        }
        records.discard_front(count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_errors::raw_of;
    use crate::test_driver::{Drive, Outcome, untimed};
    use ardea_core::{DeadLetters, ErrorCode};

    fn small(n: &u32) -> std::result::Result<u32, String> {
        if n.is_multiple_of(10) {
            Err(format!("{n} is round"))
        } else {
            Ok(n * 2)
        }
    }

    fn run(
        mut drive: Drive,
        policy: OnError,
    ) -> (Result<Vec<Outcome<u32>>>, Arc<DeadLetters>, u64) {
        let letters = Arc::new(DeadLetters::default());
        drive.context.dead_letters = Arc::clone(&letters);
        let metrics = Arc::clone(&drive.context.metrics);
        let mut map = TryMapP::new(Arc::new(small), policy, raw_of);
        let seen = drive.records(untimed(1..=30u32)).try_run(&mut map);
        (seen, letters, metrics.snapshot().bad)
    }

    #[test]
    fn a_bad_record_becomes_a_dead_letter_with_its_position_and_the_others_pass() {
        Drive::every_schedule(|mut drive| {
            drive.context.metrics = Arc::default();
            let (seen, letters, bad) = run(drive, OnError::DeadLetter);
            assert_eq!(seen.unwrap()[0].values().len(), 27);
            assert_eq!((letters.count(), bad), (3, 3));
            let letter = &letters.sample()[1];
            assert_eq!(letter.vertex, "under test");
            assert_eq!(letter.origin, "record 19 of input 0");
            assert_eq!(letter.raw, b"20");
            assert_eq!(letter.reason, "20 is round");
        });
    }

    /// A panic of user code (overflow, division by zero, index out of range) is an error of one
    /// record.
    #[test]
    fn a_record_on_which_the_function_panics_is_set_aside_and_the_others_pass() {
        let panics = |n: &u32| -> std::result::Result<u32, String> {
            assert!(!n.is_multiple_of(10), "{n} is out of range");
            if n.is_multiple_of(15) {
                return Err("an error beside panics".to_string());
            }
            Ok(n * 2)
        };
        Drive::every_schedule(|mut drive| {
            drive.context.metrics = Arc::default();
            let letters = Arc::new(DeadLetters::default());
            drive.context.dead_letters = Arc::clone(&letters);
            let mut map = TryMapP::new(Arc::new(panics), OnError::DeadLetter, raw_of);
            let seen = drive.records(untimed(1..=30u32)).run::<u32>(&mut map);
            let passed = (1..=30u32).filter(|n| n % 10 != 0 && n % 15 != 0);
            assert_eq!(seen.values(), passed.map(|n| n * 2).collect::<Vec<_>>());
            let sample = letters.sample();
            let origins: Vec<&str> = sample.iter().map(|one| one.origin.as_str()).collect();
            assert_eq!(
                origins,
                [9, 14, 19, 29].map(|n| format!("record {n} of input 0"))
            );
            assert_eq!(sample[0].reason, "panicked: 10 is out of range");
            assert_eq!(sample[0].raw, b"10");
        });
    }

    #[test]
    fn a_policy_to_fail_leaves_a_panic_to_the_job() {
        let panics = |n: &u32| -> std::result::Result<u32, String> { Ok(100 / (n - 7)) };
        let outcome = std::panic::catch_unwind(|| {
            let mut map = TryMapP::new(Arc::new(panics), OnError::Fail, raw_of);
            Drive::default()
                .records(untimed(7..=30u32))
                .try_run::<u32>(&mut map)
                .map(|_| ())
        });
        assert!(outcome.is_err());
        assert_eq!(ardea_core::take_failed_index(), Some(0));
    }

    #[test]
    fn a_dropped_record_is_counted() {
        let (seen, letters, bad) = run(Drive::default(), OnError::Drop);
        assert_eq!(seen.unwrap()[0].values().len(), 27);
        assert_eq!((letters.count(), letters.dropped(), bad), (0, 3, 3));
    }

    #[test]
    fn failing_names_the_record() {
        let (seen, ..) = run(Drive::default(), OnError::Fail);
        let error = seen.unwrap_err();
        assert_eq!(
            (error.code(), error.record()),
            (ErrorCode::BadRecord, Some((0, 9)))
        );
    }
}
