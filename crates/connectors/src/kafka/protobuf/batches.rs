//! Messages of Protocol Buffers as records with typed fields, collected in batches.

use std::sync::Arc;

use ardea_core::{InstanceContext, Result, Timestamp};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};

use super::{MessageReader, Protobuf};
use crate::format::{BatchFields, FieldRecord, FieldValue, SubsecondUnit};
use crate::kafka::message::Message;
use crate::kafka::source::decoders::{BatchMessageDecoder, DecodeMessage, DecodeMessageBatch};

/// The type of timestamps.
const TIMESTAMP: &str = "google.protobuf.Timestamp";

/// A decoder of Protocol Buffers into batches, such as columns; see
/// [`KafkaSource::protobuf_batches`](crate::kafka::KafkaSource::protobuf_batches).
#[derive(Clone, Debug)]
pub struct ProtobufBatches<D> {
    protobuf: Protobuf,
    batches: D,
}

impl Protobuf {
    pub(crate) fn batches<D>(self, batches: D) -> ProtobufBatches<D> {
        ProtobufBatches {
            protobuf: self,
            batches,
        }
    }
}

impl<D: BatchFields> BatchMessageDecoder for ProtobufBatches<D> {
    type Instance = ProtobufBatchDecoder<D>;

    fn batch_instance(self: &Arc<Self>) -> ProtobufBatchDecoder<D> {
        ProtobufBatchDecoder {
            messages: MessageReader::new(&self.protobuf),
            batches: self.batches.clone(),
        }
    }
}

/// The decoder of an instance; see [`ProtobufBatches`].
pub struct ProtobufBatchDecoder<D> {
    messages: MessageReader,
    batches: D,
}

impl<D: BatchFields> DecodeMessage<()> for ProtobufBatchDecoder<D> {
    fn attach(&mut self, context: &InstanceContext) -> Result<()> {
        self.messages.0.attach(context)
    }

    #[inline]
    fn is_ready(&mut self, message: &Message<'_>) -> Result<bool> {
        self.messages.is_ready(message)
    }

    fn decode(&mut self, message: &Message<'_>) -> Result<Option<()>, String> {
        let message = self.messages.read(message)?;
        self.batches
            .decode_fields(&MessageFields(&message))
            .map(Some)
    }
}

impl<D: BatchFields> DecodeMessageBatch for ProtobufBatchDecoder<D> {
    type Batch = D::Batch;

    fn batch_rows(&self) -> usize {
        self.batches.batch_rows()
    }

    fn take_timed_batch(&mut self, times: &[Timestamp]) -> Result<Option<D::Batch>> {
        self.batches.take_timed_batch(times)
    }
}

/// The fields of a message. Fields without presence have their defaults; others are left out.
struct MessageFields<'a>(&'a DynamicMessage);

impl FieldRecord for MessageFields<'_> {
    fn each_field(
        &self,
        take: &mut dyn FnMut(&str, FieldValue<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        for field in self.0.descriptor().fields() {
            if !self.0.has_field(&field) && field.supports_presence() {
                continue;
            }
            let value = self.0.get_field(&field);
            match &*value {
                Value::Message(message) if message.descriptor().full_name() == TIMESTAMP => {
                    take(field.name(), timestamp(message))?;
                }
                Value::Message(message) => {
                    take(field.name(), FieldValue::Record(&MessageFields(message)))?;
                }
                Value::EnumNumber(number) => take_enum(&field, *number, take)?,
                value => take(field.name(), scalar(value))?,
            }
        }
        Ok(())
    }
}

/// Takes the value of an enum: its name, or its number if the schema does not name it.
fn take_enum(
    field: &FieldDescriptor,
    number: i32,
    take: &mut dyn FnMut(&str, FieldValue<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let value = match field.kind() {
        Kind::Enum(of) => of.get_value(number),
        _ => None,
    };
    match value {
        Some(value) => take(field.name(), FieldValue::Text(value.name())),
        None => take(field.name(), FieldValue::Integer(number.into())),
    }
}

/// Returns the value of a `google.protobuf.Timestamp`, in nanoseconds.
fn timestamp(message: &DynamicMessage) -> FieldValue<'static> {
    let part = |name: &str| match message.get_field_by_name(name).as_deref() {
        Some(Value::I64(seconds)) => *seconds,
        Some(Value::I32(nanos)) => i64::from(*nanos),
        _ => 0,
    };
    let nanos = part("seconds").checked_mul(1_000_000_000);
    match nanos.and_then(|nanos| nanos.checked_add(part("nanos"))) {
        Some(nanos) => FieldValue::Timestamp(nanos, SubsecondUnit::Nano),
        None => FieldValue::Other("a timestamp out of range"),
    }
}

/// Returns a value that is neither a message nor an enum.
fn scalar(value: &Value) -> FieldValue<'_> {
    match value {
        Value::Bool(value) => FieldValue::Bool(*value),
        Value::I32(value) => FieldValue::Integer((*value).into()),
        Value::I64(value) => FieldValue::Integer(*value),
        Value::U32(value) => FieldValue::Unsigned((*value).into()),
        Value::U64(value) => FieldValue::Unsigned(*value),
        Value::F32(value) => FieldValue::Float((*value).into()),
        Value::F64(value) => FieldValue::Float(*value),
        Value::String(text) => FieldValue::Text(text),
        Value::Bytes(_) => FieldValue::Other("bytes"),
        Value::List(_) => FieldValue::Other("a list"),
        Value::Map(_) => FieldValue::Other("a map"),
        Value::Message(_) | Value::EnumNumber(_) => FieldValue::Other("a message"),
    }
}
