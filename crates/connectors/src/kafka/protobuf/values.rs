//! Values of written messages as Protocol Buffers.

use ardea_core::{Error, ErrorCode, InstanceContext, Result};
use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde::Serialize;

use super::schemas::ProtobufSchema;
use crate::kafka::schema_registry::{SchemaKind, SchemaRegistry, wire};
use crate::kafka::sink::values::{EncodeValue, RegisteredId, ValueEncoder};

/// The encoder of values as Protocol Buffers with a schema registry; see [`KafkaSink::protobuf`].
///
/// A record is converted by the JSON mapping of Protocol Buffers. The schema is registered when the
/// job starts. A registry that has it under this subject returns the same id again.
///
/// [`KafkaSink::protobuf`]: crate::kafka::KafkaSink::protobuf
#[derive(Clone, Debug)]
pub struct ProtobufValues {
    registry: SchemaRegistry,
    schema: String,
    message: Option<String>,
    subject: Option<String>,
    registers: bool,
}

impl ProtobufValues {
    /// Encodes values with a schema, given as the text of a `.proto` file without imports other
    /// than those of `google/protobuf`.
    pub fn new(registry: SchemaRegistry, schema: impl Into<String>) -> Self {
        ProtobufValues {
            registry,
            schema: schema.into(),
            message: None,
            subject: None,
            registers: true,
        }
    }

    /// Sets the full name of the message type, such as `flights.Flight`; the first type of the
    /// schema by default.
    pub fn message(mut self, name: impl Into<String>) -> Self {
        self.message = Some(name.into());
        self
    }

    /// Sets the subject of the schema; `TOPIC-value` by default.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Registers nothing: the job fails if the subject does not have the schema.
    pub fn registered_only(mut self) -> Self {
        self.registers = false;
        self
    }
}

impl<T: Serialize> ValueEncoder<T> for ProtobufValues {
    fn instance(&self, topic: &str, context: &InstanceContext) -> Result<Box<dyn EncodeValue<T>>> {
        let compiled = ProtobufSchema::compile(&self.schema, &[]).map_err(bad_schema)?;
        let indexes = compiled.indexes_of(self.message.as_deref());
        let indexes = indexes.map_err(bad_schema)?;
        let message = compiled.message_at(&indexes).map_err(bad_schema)?;
        let subject = self.subject.clone();
        let subject = subject.unwrap_or_else(|| format!("{topic}-value"));
        let schema = (SchemaKind::Protobuf, &*self.schema);
        let id = RegisteredId::request(&self.registry, subject, schema, self.registers, context)?;
        Ok(Box::new(ProtobufEncoder {
            message,
            indexes,
            id,
        }))
    }
}

struct ProtobufEncoder {
    message: MessageDescriptor,
    indexes: Vec<usize>,
    id: RegisteredId,
}

impl<T: Serialize> EncodeValue<T> for ProtobufEncoder {
    fn is_ready(&mut self) -> Result<bool> {
        self.id.is_known()
    }

    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> std::result::Result<(), String> {
        let unfit = |why: String| format!("it does not fit its message type: {why}");
        let value = serde_json::to_value(record).map_err(|error| unfit(error.to_string()))?;
        let message = DynamicMessage::deserialize(self.message.clone(), value);
        let message = message.map_err(|error| unfit(error.to_string()))?;
        wire::write(self.id.get()?, out);
        wire::write_indexes(&self.indexes, out);
        message
            .encode(out)
            .map_err(|error| unfit(error.to_string()))
    }
}

/// Returns the error of a schema in the program of a job.
fn bad_schema(why: String) -> Error {
    let what = "a Protocol Buffers schema of the job is invalid";
    Error::new(ErrorCode::InvalidConfig, what)
        .because(why)
        .hint("write the schema as the text of a .proto file")
        .permanent()
}
