//! Avro values of written messages.

use apache_avro::writer::datum::GenericDatumWriter;
use ardea_core::{InstanceContext, Result};
use serde::Serialize;

use super::schemas::{bad_schema, interned};
use crate::kafka::schema_registry::{SchemaKind, SchemaRegistry, wire};
use crate::kafka::sink::values::{EncodeValue, RegisteredId, ValueEncoder};

/// The encoder of Avro values with a schema registry; see [`KafkaSink::avro`].
///
/// The schema is registered when the job starts. A registry that has it under this subject returns
/// the same id again.
///
/// [`KafkaSink::avro`]: crate::kafka::KafkaSink::avro
#[derive(Clone, Debug)]
pub struct AvroValues {
    registry: SchemaRegistry,
    schema: String,
    subject: Option<String>,
    registers: bool,
}

impl AvroValues {
    /// Encodes values with a schema, given as JSON.
    pub fn new(registry: SchemaRegistry, schema: impl Into<String>) -> Self {
        AvroValues {
            registry,
            schema: schema.into(),
            subject: None,
            registers: true,
        }
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

impl<T: Serialize> ValueEncoder<T> for AvroValues {
    fn instance(&self, topic: &str, context: &InstanceContext) -> Result<Box<dyn EncodeValue<T>>> {
        let schema = interned(&self.schema, &[]).map_err(bad_schema)?;
        let writer = GenericDatumWriter::builder(&schema.schema).build();
        let writer = writer.map_err(|error| bad_schema(error.to_string()))?;
        let subject = self.subject.clone();
        let subject = subject.unwrap_or_else(|| format!("{topic}-value"));
        let schema = (SchemaKind::Avro, &*self.schema);
        let id = RegisteredId::request(&self.registry, subject, schema, self.registers, context)?;
        Ok(Box::new(AvroEncoder { writer, id }))
    }
}

struct AvroEncoder {
    writer: GenericDatumWriter<'static>,
    id: RegisteredId,
}

impl<T: Serialize> EncodeValue<T> for AvroEncoder {
    fn is_ready(&mut self) -> Result<bool> {
        self.id.is_known()
    }

    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> std::result::Result<(), String> {
        wire::write(self.id.get()?, out);
        let written = self.writer.write_ser(out, record);
        written.map_err(|error| format!("it does not fit its Avro schema: {error}"))?;
        Ok(())
    }
}
