//! The forms in which a source emits its records: rows, or batches that the decoder builds.

use std::marker::PhantomData;

use ardea_core::{Chunk, Error, ErrorCode, Lane, Ordinal, Outbox, Result, Timestamp};

use crate::format::{BatchDecode, Decode};

/// The destination of decoded records.
pub(crate) trait RecordOutput<T> {
    /// Returns the number of records that may be pushed.
    fn room(&self) -> usize;

    /// Adds a record without event time.
    fn push(&mut self, record: T);
}

impl<T> RecordOutput<T> for Lane<'_, T> {
    #[inline]
    fn room(&self) -> usize {
        Lane::room(self)
    }

    #[inline]
    fn push(&mut self, record: T) {
        Lane::push(self, record, Timestamp::MIN);
    }
}

/// The remaining capacity of the batch of a [`BatchDecode`], which contains the records.
pub(crate) struct BatchCapacity(usize);

impl RecordOutput<()> for BatchCapacity {
    #[inline]
    fn room(&self) -> usize {
        self.0
    }

    #[inline]
    fn push(&mut self, (): ()) {
        self.0 -= 1;
    }
}

/// A form of emitted records.
pub(crate) trait OutputForm: Send + 'static {
    /// The result of the decoder for a record.
    type Record: Send + 'static;
    type Decoder: Decode<Self::Record>;
    type Output<'a>: RecordOutput<Self::Record>;

    /// Returns the destination of the records of a call; `None` if the first output is full.
    fn begin<'a>(
        outbox: &'a mut Outbox,
        decoder: &Self::Decoder,
    ) -> Result<Option<Self::Output<'a>>>;

    /// Emits the records of the call that are still in the decoder.
    fn finish(outbox: &mut Outbox, decoder: &mut Self::Decoder) -> Result<()>;
}

/// Records as rows.
pub(crate) struct AsRows<T, D>(PhantomData<fn() -> (T, D)>);

impl<T: Send + 'static, D: Decode<T>> OutputForm for AsRows<T, D> {
    type Record = T;
    type Decoder = D;
    type Output<'a> = Lane<'a, T>;

    fn begin<'a>(outbox: &'a mut Outbox, _: &D) -> Result<Option<Lane<'a, T>>> {
        let lane = outbox.lane::<T>(Ordinal::FIRST)?;
        Ok((!lane.is_full()).then_some(lane))
    }

    fn finish(_: &mut Outbox, _: &mut D) -> Result<()> {
        Ok(())
    }
}

/// Records in batches. The decoder has no records between two calls.
pub(crate) struct AsBatches<D>(PhantomData<fn() -> D>);

impl<D: BatchDecode> OutputForm for AsBatches<D> {
    type Record = ();
    type Decoder = D;
    type Output<'a> = BatchCapacity;

    fn begin(outbox: &mut Outbox, decoder: &D) -> Result<Option<BatchCapacity>> {
        let has_room = outbox.accepts_chunk(Ordinal::FIRST);
        Ok(has_room.then(|| BatchCapacity(decoder.batch_rows().max(1))))
    }

    fn finish(outbox: &mut Outbox, decoder: &mut D) -> Result<()> {
        let Some(batch) = decoder.take_batch()? else {
            return Ok(());
        };
        match outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(batch))? {
            true => Ok(()),
            false => Err(Error::new(ErrorCode::Internal, "an output was not empty")),
        }
    }
}
