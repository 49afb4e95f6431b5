//! Messages as records in columns.

use std::fmt;
use std::sync::Arc;

use ardea_columns::{ColumnBatch, ColumnDecoder, ColumnRecord, Columns};
use ardea_connectors::format::Decode;
use ardea_core::{
    BadRecords, Bounded, Chunk, Error, ErrorCode, Inbox, Instance, InstanceContext, Ordinal,
    Outbox, Processor, ProcessorSupplier, Result, Timestamp,
};
use ardea_pipeline::{Stream, Untimed};
use arrow_array::{
    ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::lowering::{EventTime, SourceTable};
use crate::plan::{MessageFormat, MessagePlan, MetadataField};

/// The column of values that are no objects with fields.
const VALUE_COLUMN: &str = "value";

/// A message of a system.
pub(super) struct SourceMessage {
    /// The value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// The parts that are asked for, in their order.
    pub metadata: Vec<MetadataValue>,
    /// The place of the message in the system, if it has one.
    pub origin: Option<Origin>,
}

/// The place of a message: its topic or stream, and its number there.
#[cfg_attr(
    not(any(feature = "kafka", feature = "nats")),
    allow(dead_code, reason = "messages of other systems have no place")
)]
pub(super) struct Origin {
    pub stream: String,
    pub partition: Option<i32>,
    pub number: i64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.stream)?;
        if let Some(partition) = self.partition {
            write!(f, "[{partition}]")?;
        }
        write!(f, "@{}", self.number)
    }
}

/// A part of a message beside its value.
#[cfg_attr(
    not(any(feature = "kafka", feature = "nats")),
    allow(dead_code, reason = "messages of other systems have no metadata")
)]
pub(super) enum MetadataValue {
    Bytes(Option<Vec<u8>>),
    Text(String),
    Number(i64),
    Time(Timestamp),
}

/// Adds the step that decodes messages. The stream has this kind of event times, and ends or not.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if two columns have one name, or a type cannot be decoded.
pub(super) fn read_messages(
    source: Stream<SourceMessage, Bounded, Untimed>,
    plan: &MessagePlan,
    (time, is_bounded): (EventTime, bool),
) -> Result<SourceTable> {
    let decoder = MessageDecoder::new(plan)?;
    let schema = Arc::clone(&decoder.schema);
    let policy = plan.on_error.into();
    let make: Arc<dyn ProcessorSupplier> =
        Arc::new(move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(MessageColumnsP {
                decoder: decoder.clone(),
                bad: BadRecords::new(policy),
            }))
        });
    let stream = source.extend_with::<ColumnRecord>("decode", make);
    let stream = stream.with_source_time();
    Ok(SourceTable {
        table: Columns::from_stream(stream, schema),
        time,
        is_bounded,
    })
}

/// A decoder of messages, with the columns of its results.
#[derive(Clone)]
struct MessageDecoder {
    values: ValueDecoder,
    metadata: Vec<MetadataField>,
    schema: SchemaRef,
}

#[derive(Clone)]
enum ValueDecoder {
    Json(Box<ColumnDecoder>),
    Text,
    Bytes,
}

impl MessageDecoder {
    fn new(plan: &MessagePlan) -> Result<Self> {
        let (values, fields) = match &plan.format {
            MessageFormat::Json(fields) => {
                let decoder = ColumnDecoder::json(fields.schema())?;
                (
                    ValueDecoder::Json(Box::new(decoder)),
                    fields.fields().collect(),
                )
            }
            MessageFormat::Text => {
                let field = Field::new(VALUE_COLUMN, DataType::Utf8, true);
                (ValueDecoder::Text, vec![field])
            }
            MessageFormat::Bytes => {
                let field = Field::new(VALUE_COLUMN, DataType::Binary, true);
                (ValueDecoder::Bytes, vec![field])
            }
        };
        let mut all: Vec<Field> = fields;
        for field in plan.metadata.iter().map(|it| it.field()) {
            if all.iter().any(|known| known.name() == field.name()) {
                let what = format!("two columns have the name {:?}", field.name());
                return Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint("leave it out of the schema, or out of the metadata"));
            }
            all.push(field);
        }
        Ok(MessageDecoder {
            values,
            metadata: plan.metadata.clone(),
            schema: Arc::new(Schema::new(all)),
        })
    }
}

/// The decoded messages of a chunk.
#[derive(Default)]
struct DecodedMessages {
    /// The values that are not decoded by a [`ColumnDecoder`].
    values: Vec<Option<Vec<u8>>>,
    metadata: Vec<Vec<MetadataValue>>,
    times: Vec<Timestamp>,
}

/// Decodes messages into columns. A message that cannot be decoded is handled by the error policy.
struct MessageColumnsP {
    decoder: MessageDecoder,
    bad: BadRecords,
}

impl MessageColumnsP {
    /// Decodes the value of a message. Returns false if it has no record.
    fn decode(&mut self, value: Option<Vec<u8>>, into: &mut DecodedMessages) -> Decoded {
        match &mut self.decoder.values {
            ValueDecoder::Json(decoder) => {
                let Some(value) = value else {
                    return Err(("there is no value (a tombstone)".to_string(), Vec::new()));
                };
                match decoder.decode(&value) {
                    Ok(decoded) => Ok(decoded.is_some()),
                    Err(reason) => Err((reason, value)),
                }
            }
            ValueDecoder::Text => match value.map(String::from_utf8).transpose() {
                Ok(text) => {
                    into.values.push(text.map(String::into_bytes));
                    Ok(true)
                }
                Err(error) => {
                    let at = error.utf8_error().valid_up_to();
                    Err((format!("not UTF-8 from byte {at} on"), error.into_bytes()))
                }
            },
            ValueDecoder::Bytes => {
                into.values.push(value);
                Ok(true)
            }
        }
    }

    /// Returns the decoded messages as a batch.
    fn finish(&mut self, decoded: DecodedMessages) -> Result<RecordBatch> {
        let DecodedMessages {
            values, metadata, ..
        } = decoded;
        let mut columns: Vec<ArrayRef> = match &mut self.decoder.values {
            ValueDecoder::Json(decoder) => decoder.finish()?.columns().to_vec(),
            ValueDecoder::Text => {
                let texts = values.iter().map(|value| {
                    let text = value.as_deref().map(std::str::from_utf8);
                    text.transpose().ok().flatten()
                });
                vec![Arc::new(texts.collect::<StringArray>())]
            }
            ValueDecoder::Bytes => {
                let values = values.iter().map(Option::as_deref);
                vec![Arc::new(values.collect::<BinaryArray>())]
            }
        };
        for (index, field) in self.decoder.metadata.iter().enumerate() {
            let values = metadata.iter().map(|values| values.get(index));
            columns.push(metadata_column(&field.field(), values));
        }
        RecordBatch::try_new(Arc::clone(&self.decoder.schema), columns)
            .map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))
    }
}

/// Returns the values of a part of messages as a column.
fn metadata_column<'a>(
    field: &Field,
    values: impl Iterator<Item = Option<&'a MetadataValue>>,
) -> ArrayRef {
    match field.data_type() {
        DataType::Utf8 => Arc::new(StringArray::from_iter_values(values.map(
            |value| match value {
                Some(MetadataValue::Text(text)) => text.as_str(),
                _ => "",
            },
        ))),
        DataType::Int64 => Arc::new(Int64Array::from_iter_values(values.map(
            |value| match value {
                Some(MetadataValue::Number(number)) => *number,
                _ => 0,
            },
        ))),
        DataType::Binary => Arc::new(BinaryArray::from_iter(values.map(|value| match value {
            Some(MetadataValue::Bytes(bytes)) => bytes.as_deref(),
            _ => None,
        }))),
        _ => Arc::new(TimestampMicrosecondArray::from_iter(values.map(
            |value| match value {
                Some(MetadataValue::Time(time)) if time.is_event_time() => Some(time.as_micros()),
                _ => None,
            },
        ))),
    }
}

/// True if a message has a record; otherwise the reason why it cannot be decoded, and its value.
type Decoded = std::result::Result<bool, (String, Vec<u8>)>;

impl Processor for MessageColumnsP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let position = inbox.position();
        let rows = inbox.rows::<SourceMessage>()?;
        let count = rows.len();
        let mut decoded = DecodedMessages::default();
        for (index, (message, time)) in rows.drain_front(count).enumerate() {
            match self.decode(message.value, &mut decoded) {
                Ok(true) => {
                    decoded.metadata.push(message.metadata);
                    decoded.times.push(time);
                }
                Ok(false) => {}
                Err((reason, raw)) => {
                    let number = position + index as u64;
                    let origin = || match message.origin {
                        Some(origin) => origin.to_string(),
                        None => format!("message {number}"),
                    };
                    self.bad.report(origin, || raw, reason)?;
                }
            }
        }
        let times = std::mem::take(&mut decoded.times);
        if !times.is_empty() {
            let batch = ColumnBatch::new(self.finish(decoded)?, times)?;
            outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(batch))?;
        }
        Ok(())
    }
}
