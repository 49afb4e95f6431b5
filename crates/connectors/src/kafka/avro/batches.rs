//! Avro values as records with typed fields, collected in batches.

use std::sync::Arc;

use apache_avro::types::Value;
use ardea_core::{InstanceContext, Result, Timestamp};

use super::{Avro, AvroReaders};
use crate::format::{BatchFields, FieldRecord, FieldValue, SubsecondUnit};
use crate::kafka::message::Message;
use crate::kafka::source::decoders::{BatchMessageDecoder, DecodeMessage, DecodeMessageBatch};

/// A decoder of Avro values into batches, such as columns; see
/// [`KafkaSource::avro_batches`](crate::kafka::KafkaSource::avro_batches).
#[derive(Clone, Debug)]
pub struct AvroBatches<D> {
    avro: Avro,
    batches: D,
}

impl Avro {
    pub(crate) fn batches<D>(self, batches: D) -> AvroBatches<D> {
        AvroBatches {
            avro: self,
            batches,
        }
    }
}

impl<D: BatchFields> BatchMessageDecoder for AvroBatches<D> {
    type Instance = AvroBatchDecoder<D>;

    fn batch_instance(self: &Arc<Self>) -> AvroBatchDecoder<D> {
        AvroBatchDecoder {
            readers: AvroReaders::new(&self.avro),
            batches: self.batches.clone(),
        }
    }
}

/// The decoder of an instance; see [`AvroBatches`].
pub struct AvroBatchDecoder<D> {
    readers: AvroReaders,
    batches: D,
}

impl<D: BatchFields> DecodeMessage<()> for AvroBatchDecoder<D> {
    fn attach(&mut self, context: &InstanceContext) -> Result<()> {
        self.readers.attach(context)
    }

    #[inline]
    fn is_ready(&mut self, message: &Message<'_>) -> Result<bool> {
        self.readers.is_ready(message)
    }

    fn decode(&mut self, message: &Message<'_>) -> Result<Option<()>, String> {
        let value = self
            .readers
            .read(message, |reader, bytes| reader.read_value(bytes))?;
        let Value::Record(fields) = &value else {
            return Err("the Avro value is no record".to_string());
        };
        self.batches.decode_fields(&AvroFields(fields)).map(Some)
    }
}

impl<D: BatchFields> DecodeMessageBatch for AvroBatchDecoder<D> {
    type Batch = D::Batch;

    fn batch_rows(&self) -> usize {
        self.batches.batch_rows()
    }

    fn take_timed_batch(&mut self, times: &[Timestamp]) -> Result<Option<D::Batch>> {
        self.batches.take_timed_batch(times)
    }
}

/// The fields of an Avro record.
struct AvroFields<'a>(&'a [(String, Value)]);

impl FieldRecord for AvroFields<'_> {
    fn each_field(
        &self,
        take: &mut dyn FnMut(&str, FieldValue<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut fields = self.0.iter();
        fields.try_for_each(|(name, value)| match value_of(value) {
            Value::Record(fields) => take(name, FieldValue::Record(&AvroFields(fields))),
            Value::Uuid(id) => take(name, FieldValue::Text(&id.to_string())),
            value => take(name, scalar(value)),
        })
    }
}

/// Returns the value in a union.
fn value_of(mut value: &Value) -> &Value {
    while let Value::Union(_, inner) = value {
        value = inner;
    }
    value
}

/// Returns a value that is neither a record nor a union.
fn scalar(value: &Value) -> FieldValue<'_> {
    use SubsecondUnit::{Micro, Milli, Nano};
    match value {
        Value::Null => FieldValue::Null,
        Value::Boolean(value) => FieldValue::Bool(*value),
        Value::Int(value) | Value::TimeMillis(value) => FieldValue::Integer((*value).into()),
        Value::Long(value) | Value::TimeMicros(value) => FieldValue::Integer(*value),
        Value::Float(value) => FieldValue::Float((*value).into()),
        Value::Double(value) => FieldValue::Float(*value),
        Value::String(text) | Value::Enum(_, text) => FieldValue::Text(text),
        Value::Date(days) => FieldValue::Date(*days),
        Value::TimestampMillis(at) | Value::LocalTimestampMillis(at) => {
            FieldValue::Timestamp(*at, Milli)
        }
        Value::TimestampMicros(at) | Value::LocalTimestampMicros(at) => {
            FieldValue::Timestamp(*at, Micro)
        }
        Value::TimestampNanos(at) | Value::LocalTimestampNanos(at) => {
            FieldValue::Timestamp(*at, Nano)
        }
        Value::Bytes(_) | Value::Fixed(..) => FieldValue::Other("bytes"),
        Value::Array(_) => FieldValue::Other("an array"),
        Value::Map(_) => FieldValue::Other("a map"),
        Value::Decimal(_) | Value::BigDecimal(_) => FieldValue::Other("a decimal"),
        Value::Duration(_) => FieldValue::Other("a duration"),
        Value::Record(_) | Value::Union(..) | Value::Uuid(_) => FieldValue::Other("a record"),
    }
}
