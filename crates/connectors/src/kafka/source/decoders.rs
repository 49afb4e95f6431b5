//! Decoders of messages: functions and formats.

use std::sync::Arc;

use ardea_core::{InstanceContext, Records, Result, Timestamp};

use crate::format::{BatchDecode, Decode};
use crate::kafka::message::Message;

/// Function that converts a message to a record, or returns the reason why the message cannot be
/// decoded.
pub type Decoder<T> = fn(&Message<'_>) -> Result<T, String>;

/// A prototype of the decoders of a source: a function, a [format](FormatDecoder), or a format with
/// a schema registry.
pub trait MessageDecoder<T>: Send + Sync + 'static {
    /// The decoder of one instance of the source.
    type Instance: DecodeMessage<T>;

    /// Creates the decoder of an instance.
    fn instance(self: &Arc<Self>) -> Self::Instance;
}

/// A decoder of the messages of one instance.
pub trait DecodeMessage<T>: Send + 'static {
    /// Called once before the first message.
    ///
    /// # Errors
    /// The reason why nothing can be decoded; it fails the job.
    fn attach(&mut self, _: &InstanceContext) -> Result<()> {
        Ok(())
    }

    /// Returns true if all that the decoder needs for this message is present. Otherwise the
    /// decoder requests it, and the source holds the message and calls again.
    ///
    /// # Errors
    /// The reason why it cannot be had; it fails the job.
    #[inline]
    fn is_ready(&mut self, _: &Message<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Decodes a message. Returns `None` for a message without a record, such as a blank line.
    ///
    /// # Errors
    /// The reason why the message cannot be decoded. The message becomes a bad record.
    fn decode(&mut self, message: &Message<'_>) -> Result<Option<T>, String>;
}

/// A prototype of decoders that collect the records of a source in batches: a
/// [format](FormatDecoder), or a format with a schema registry.
pub trait BatchMessageDecoder: Send + Sync + 'static {
    /// The decoder of one instance of the source.
    type Instance: DecodeMessageBatch;

    /// Creates the decoder of an instance.
    fn batch_instance(self: &Arc<Self>) -> Self::Instance;
}

/// A decoder of the messages of one instance that collects its records in a batch; see
/// [`BatchDecode`].
pub trait DecodeMessageBatch: DecodeMessage<()> {
    /// The type of the batches.
    type Batch: Records;

    /// Returns the maximum number of records of a batch.
    fn batch_rows(&self) -> usize;

    /// Takes the batch, whose records have these event times; `None` if it has no record.
    ///
    /// # Errors
    /// Internal errors only.
    fn take_timed_batch(&mut self, times: &[Timestamp]) -> Result<Option<Self::Batch>>;
}

impl<T, F> MessageDecoder<T> for F
where
    T: 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    type Instance = FunctionDecoder<F>;

    fn instance(self: &Arc<Self>) -> FunctionDecoder<F> {
        FunctionDecoder(Arc::clone(self))
    }
}

/// A function as a decoder.
#[derive(Debug)]
pub struct FunctionDecoder<F>(Arc<F>);

impl<T, F> DecodeMessage<T> for FunctionDecoder<F>
where
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    #[inline]
    fn decode(&mut self, message: &Message<'_>) -> Result<Option<T>, String> {
        (self.0)(message).map(Some)
    }
}

/// A format as a decoder of the values of messages. A value is one frame of the format.
#[derive(Clone, Debug)]
pub struct FormatDecoder<D>(pub(crate) D);

impl<T: 'static, D: Decode<T>> MessageDecoder<T> for FormatDecoder<D> {
    type Instance = FormatDecoder<D>;

    fn instance(self: &Arc<Self>) -> FormatDecoder<D> {
        FormatDecoder(self.0.clone())
    }
}

impl<T, D: Decode<T>> DecodeMessage<T> for FormatDecoder<D> {
    #[inline]
    fn decode(&mut self, message: &Message<'_>) -> Result<Option<T>, String> {
        self.0.decode(message.present_value()?)
    }
}

impl<D: BatchDecode> BatchMessageDecoder for FormatDecoder<D> {
    type Instance = FormatDecoder<D>;

    fn batch_instance(self: &Arc<Self>) -> FormatDecoder<D> {
        FormatDecoder(self.0.clone())
    }
}

impl<D: BatchDecode> DecodeMessageBatch for FormatDecoder<D> {
    type Batch = D::Batch;

    fn batch_rows(&self) -> usize {
        self.0.batch_rows()
    }

    fn take_timed_batch(&mut self, times: &[Timestamp]) -> Result<Option<D::Batch>> {
        self.0.take_timed_batch(times)
    }
}
