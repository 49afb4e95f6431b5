//! The forms in which the source emits its records: rows, or batches that the decoder builds.

use std::marker::PhantomData;

use ardea_core::{Chunk, Error, ErrorCode, Lane, Ordinal, Outbox, Result, Timestamp};

use crate::kafka::source::decoders::{DecodeMessage, DecodeMessageBatch};

/// The destination of decoded records.
pub(crate) trait MessageOutput<T> {
    /// Returns the number of records that may be pushed.
    fn room(&self) -> usize;

    /// Adds a record with its event time.
    fn push(&mut self, record: T, time: Timestamp);
}

impl<T> MessageOutput<T> for Lane<'_, T> {
    #[inline]
    fn room(&self) -> usize {
        Lane::room(self)
    }

    #[inline]
    fn push(&mut self, record: T, time: Timestamp) {
        Lane::push(self, record, time);
    }
}

/// The event times of the records of the batch that a [`DecodeMessageBatch`] contains.
pub(crate) struct BatchTimes<'a> {
    times: &'a mut Vec<Timestamp>,
    capacity: usize,
}

impl MessageOutput<()> for BatchTimes<'_> {
    #[inline]
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.times.len())
    }

    #[inline]
    fn push(&mut self, (): (), time: Timestamp) {
        self.times.push(time);
    }
}

/// A form of emitted records. The decoder has no records between two calls of the processor.
pub(crate) trait MessageForm: Send + 'static {
    /// The result of the decoder for a message.
    type Record: Send + 'static;
    type Decoder: DecodeMessage<Self::Record>;
    type Output<'a>: MessageOutput<Self::Record>;

    /// Returns true if the first output takes records.
    fn accepts(outbox: &Outbox) -> bool;

    /// Returns the destination of the records of a call. `times` is empty.
    fn begin<'a>(
        outbox: &'a mut Outbox,
        decoder: &Self::Decoder,
        times: &'a mut Vec<Timestamp>,
    ) -> Result<Self::Output<'a>>;

    /// Emits the records of the call that are still in the decoder, and clears `times`.
    fn finish(
        outbox: &mut Outbox,
        decoder: &mut Self::Decoder,
        times: &mut Vec<Timestamp>,
    ) -> Result<()>;
}

/// Records as rows.
pub(crate) struct AsRows<T, D>(PhantomData<fn() -> (T, D)>);

impl<T: Send + 'static, D: DecodeMessage<T>> MessageForm for AsRows<T, D> {
    type Record = T;
    type Decoder = D;
    type Output<'a> = Lane<'a, T>;

    fn accepts(outbox: &Outbox) -> bool {
        outbox.has_room(Ordinal::FIRST)
    }

    fn begin<'a>(outbox: &'a mut Outbox, _: &D, _: &'a mut Vec<Timestamp>) -> Result<Lane<'a, T>> {
        outbox.lane(Ordinal::FIRST)
    }

    fn finish(_: &mut Outbox, _: &mut D, _: &mut Vec<Timestamp>) -> Result<()> {
        Ok(())
    }
}

/// Records in batches.
pub(crate) struct AsBatches<D>(PhantomData<fn() -> D>);

impl<D: DecodeMessageBatch> MessageForm for AsBatches<D> {
    type Record = ();
    type Decoder = D;
    type Output<'a> = BatchTimes<'a>;

    fn accepts(outbox: &Outbox) -> bool {
        outbox.accepts_chunk(Ordinal::FIRST)
    }

    fn begin<'a>(
        _: &'a mut Outbox,
        decoder: &D,
        times: &'a mut Vec<Timestamp>,
    ) -> Result<BatchTimes<'a>> {
        let capacity = decoder.batch_rows().max(1);
        Ok(BatchTimes { times, capacity })
    }

    fn finish(outbox: &mut Outbox, decoder: &mut D, times: &mut Vec<Timestamp>) -> Result<()> {
        let batch = decoder.take_timed_batch(times)?;
        times.clear();
        let Some(batch) = batch else {
            return Ok(());
        };
        match outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(batch))? {
            true => Ok(()),
            false => Err(Error::new(ErrorCode::Internal, "an output was not empty")),
        }
    }
}
