//! Forwarding with a mapped side output.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, RecordGuard, Result, Timestamp};

use crate::forward::pass_front;

/// Forwards each record to the first output and sends `f(&record)` to the second, both with its
/// event time.
///
/// Records are not cloned. The slower output holds back the other.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::TeeMapP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("abc".to_string(), Timestamp::MIN)])));
/// let mut outbox = Outbox::new(2, 16);
///
/// let mut tee = TeeMapP::new(Arc::new(|text: &String| text.len()));
/// tee.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<String>(Ordinal::FIRST)?.rows().values(), ["abc"]);
/// assert_eq!(outbox.lane::<usize>(Ordinal::SECOND)?.rows().values(), [3]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct TeeMapP<T, U, F> {
    f: Arc<F>,
    records: PhantomData<fn(&T) -> U>,
}

impl<T, U, F> TeeMapP<T, U, F>
where
    F: Fn(&T) -> U,
{
    /// Creates an operator that applies `f`, which instances share.
    pub fn new(f: Arc<F>) -> Self {
        TeeMapP {
            f,
            records: PhantomData,
        }
    }
}

impl<T, U, F> Processor for TeeMapP<T, U, F>
where
    T: Send + 'static,
    U: Send + 'static,
    F: Fn(&T) -> U + Send + Sync + 'static,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let room = outbox.lane::<T>(Ordinal::FIRST)?.room();
        let mut second = outbox.lane::<U>(Ordinal::SECOND)?;
        let count = inbox.len().min(room).min(second.room());
        if count == 0 {
            return Ok(());
        }
        let rows = inbox.rows::<T>()?;
        let mut guard = RecordGuard::new();
        second
            .rows()
            .extend_columns(|values: &mut Vec<U>, times: &mut Vec<Timestamp>| {
                values.extend(rows.values()[..count].iter().map(|record| {
                    let made = (self.f)(record);
                    guard.advance();
                    made
                }));
                times.extend_from_slice(&rows.times()[..count]);
            });
        pass_front::<T>(inbox, outbox, Ordinal::FIRST, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Chunk, OutboxRuntime, Rows};

    #[test]
    fn both_outputs_keep_order_and_times_and_neither_is_overfilled() {
        let mut tee = TeeMapP::new(Arc::new(|n: &i64| n.to_string()));
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(
            (0..20i64)
                .map(|n| (n, Timestamp::from_secs(n)))
                .collect::<Rows<_>>(),
        ));
        let mut outbox = Outbox::new(2, 8);
        let (mut numbers, mut texts) = (Rows::default(), Rows::default());
        while !inbox.is_empty() {
            tee.process(Ordinal::FIRST, &mut inbox, &mut outbox)
                .unwrap();
            assert!(outbox.chunk_mut(0).len() <= 8);
            assert!(outbox.chunk_mut(1).len() <= 8);
            let rows = outbox.chunk_mut(0).rows::<i64>().unwrap();
            numbers.append_front(rows, usize::MAX);
            let rows = outbox.chunk_mut(1).rows::<String>().unwrap();
            texts.append_front(rows, usize::MAX);
        }
        assert_eq!(numbers.values(), (0..20).collect::<Vec<_>>());
        let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        assert_eq!(texts.values(), expected);
        assert_eq!(texts.times(), numbers.times());
        assert_eq!(numbers.times()[19], Timestamp::from_secs(19));
    }
}
