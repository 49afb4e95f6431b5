//! Avro in messages, with a schema registry.

mod batches;
mod schemas;
mod values;

use std::marker::PhantomData;
use std::sync::Arc;

use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::{AvroResult, from_value};
use ardea_core::{InstanceContext, Result};
use serde::de::DeserializeOwned;

use crate::kafka::message::Message;
use crate::kafka::schema_registry::cache::SchemaCache;
use crate::kafka::schema_registry::{RegisteredSchema, SchemaKind, SchemaRegistry, wire};
use crate::kafka::source::decoders::{DecodeMessage, MessageDecoder};
pub use batches::{AvroBatchDecoder, AvroBatches};
use schemas::{AvroSchema, bad_schema, interned};
pub use values::AvroValues;

/// The decoder of Avro values with a schema registry.
///
/// A message begins with a zero byte and the id of the schema with which it was written. The schema
/// comes from the registry, once for each id and instance. The registry is waited for; a message
/// whose schema it does not know is a bad record.
///
/// ```
/// use ardea_connectors::kafka::{Avro, SchemaRegistry, read};
/// use ardea_core::{Source, Unbounded};
///
/// #[derive(serde::Deserialize)]
/// struct Flight { carrier: String, delay: Option<i32> }
///
/// let registry = SchemaRegistry::at("http://localhost:8081");
/// let flights: Source<Flight, Unbounded> =
///     read("localhost:9092", "flights").avro(Avro::new(registry)).build();
/// ```
#[derive(Clone, Debug)]
pub struct Avro {
    registry: SchemaRegistry,
    reader_schema: Option<String>,
}

impl Avro {
    /// Decodes values with the schemas of a registry. A record takes the fields of its schema by
    /// name, and ignores others.
    pub fn new(registry: SchemaRegistry) -> Self {
        Avro {
            registry,
            reader_schema: None,
        }
    }

    /// Sets the schema of the records. A value that was written with another schema is converted by
    /// Avro's rules of schema resolution: missing fields get their defaults, and numbers are
    /// widened. This takes more time than decoding with the schema of the writer.
    pub fn reader_schema(mut self, schema: impl Into<String>) -> Self {
        self.reader_schema = Some(schema.into());
        self
    }
}

impl From<SchemaRegistry> for Avro {
    fn from(registry: SchemaRegistry) -> Self {
        Avro::new(registry)
    }
}

impl<T: DeserializeOwned + Send + 'static> MessageDecoder<T> for Avro {
    type Instance = AvroDecoder<T>;

    fn instance(self: &Arc<Self>) -> AvroDecoder<T> {
        AvroDecoder {
            readers: AvroReaders::new(self),
            record: PhantomData,
        }
    }
}

/// The readers of an instance, by the schemas of the writers.
struct AvroReaders {
    reader_schema: Option<String>,
    /// The parsed schema of the records.
    parsed: Option<&'static AvroSchema>,
    schemas: SchemaCache<GenericDatumReader<'static>>,
}

impl AvroReaders {
    fn new(avro: &Avro) -> Self {
        AvroReaders {
            reader_schema: avro.reader_schema.clone(),
            parsed: None,
            schemas: SchemaCache::new(avro.registry.clone(), SchemaKind::Avro),
        }
    }

    fn attach(&mut self, context: &InstanceContext) -> Result<()> {
        if let Some(text) = &self.reader_schema {
            self.parsed = Some(interned(text, &[]).map_err(bad_schema)?);
        }
        self.schemas.attach(context)
    }

    #[inline]
    fn is_ready(&mut self, message: &Message<'_>) -> Result<bool> {
        let parsed = self.parsed;
        match wire::parse(message.value.unwrap_or_default()) {
            Ok((id, _)) => self
                .schemas
                .is_ready(id, |schema| reader_of(schema, parsed)),
            // A bad record.
            Err(_) => Ok(true),
        }
    }

    /// Reads the value of a message.
    fn read<R>(
        &self,
        message: &Message<'_>,
        read: impl FnOnce(&GenericDatumReader<'static>, &mut &[u8]) -> AvroResult<R>,
    ) -> Result<R, String> {
        let (id, mut bytes) = wire::parse(message.present_value()?)?;
        let decoded = read(self.schemas.get(id)?, &mut bytes);
        let value = decoded.map_err(|error| format!("not the Avro expected: {error}"))?;
        match bytes.len() {
            0 => Ok(value),
            left => Err(format!("{left} bytes follow the Avro value")),
        }
    }
}

/// The decoder of an instance; see [`Avro`].
pub struct AvroDecoder<T> {
    readers: AvroReaders,
    record: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> DecodeMessage<T> for AvroDecoder<T> {
    fn attach(&mut self, context: &InstanceContext) -> Result<()> {
        self.readers.attach(context)
    }

    #[inline]
    fn is_ready(&mut self, message: &Message<'_>) -> Result<bool> {
        self.readers.is_ready(message)
    }

    fn decode(&mut self, message: &Message<'_>) -> Result<Option<T>, String> {
        let is_resolved = self.readers.parsed.is_some();
        let record = self
            .readers
            .read(message, |reader, bytes| match is_resolved {
                false => reader.read_deser(bytes),
                true => reader
                    .read_value(bytes)
                    .and_then(|value| from_value(&value)),
            })?;
        Ok(Some(record))
    }
}

/// Returns the reader of values that were written with a schema.
fn reader_of(
    schema: &RegisteredSchema,
    reader: Option<&'static AvroSchema>,
) -> Result<GenericDatumReader<'static>, String> {
    let references: Vec<_> = schema.references.iter().map(|(_, text)| &**text).collect();
    let writer = interned(&schema.text, &references)?;
    let built = match reader {
        None => GenericDatumReader::builder(&writer.schema)
            .writer_schemata(writer.all())
            .and_then(|builder| builder.build()),
        Some(reader) => GenericDatumReader::builder(&writer.schema)
            .writer_schemata(writer.all())
            .and_then(|builder| builder.reader_schema(&reader.schema).build()),
    };
    built.map_err(|error| error.to_string())
}
