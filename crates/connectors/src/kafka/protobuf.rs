//! Protocol Buffers in messages, with a schema registry.

mod deserialize;
mod schemas;
mod values;

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{InstanceContext, Result};
use prost_reflect::DynamicMessage;
use serde::de::DeserializeOwned;

use crate::kafka::message::Message;
use crate::kafka::schema_registry::cache::SchemaCache;
use crate::kafka::schema_registry::{SchemaKind, SchemaRegistry, wire};
use crate::kafka::source::decoders::{DecodeMessage, MessageDecoder};
use schemas::ProtobufSchema;
pub use values::ProtobufValues;

/// The decoder of Protocol Buffers values with a schema registry.
///
/// A message begins with a zero byte, the id of the schema with which it was written, and the place
/// of its type in the schema. The schema comes from the registry, once for each id and instance.
/// The registry is waited for; a message whose schema it does not know is a bad record.
///
/// A record takes the fields of the message by their names in the schema, and ignores others. A
/// field that is not set has its default; it is missing if the schema distinguishes that, so an
/// `Option` is `None`. Enums are read as the names of their values, or as integers.
///
/// ```
/// use ardea_connectors::kafka::{Protobuf, SchemaRegistry, read};
/// use ardea_core::{Source, Unbounded};
///
/// #[derive(serde::Deserialize)]
/// struct Flight { carrier: String, delay: Option<i32> }
///
/// let registry = SchemaRegistry::at("http://localhost:8081");
/// let flights: Source<Flight, Unbounded> =
///     read("localhost:9092", "flights").protobuf(Protobuf::new(registry)).build();
/// ```
#[derive(Clone, Debug)]
pub struct Protobuf {
    registry: SchemaRegistry,
}

impl Protobuf {
    /// Decodes values with the schemas of a registry.
    pub fn new(registry: SchemaRegistry) -> Self {
        Protobuf { registry }
    }
}

impl From<SchemaRegistry> for Protobuf {
    fn from(registry: SchemaRegistry) -> Self {
        Protobuf::new(registry)
    }
}

impl<T: DeserializeOwned + Send + 'static> MessageDecoder<T> for Protobuf {
    type Instance = ProtobufDecoder<T>;

    fn instance(self: &Arc<Self>) -> ProtobufDecoder<T> {
        ProtobufDecoder {
            schemas: SchemaCache::new(self.registry.clone(), SchemaKind::Protobuf),
            record: PhantomData,
        }
    }
}

/// The decoder of an instance; see [`Protobuf`].
pub struct ProtobufDecoder<T> {
    schemas: SchemaCache<ProtobufSchema>,
    record: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> DecodeMessage<T> for ProtobufDecoder<T> {
    fn attach(&mut self, context: &InstanceContext) -> Result<()> {
        self.schemas.attach(context)
    }

    #[inline]
    fn is_ready(&mut self, message: &Message<'_>) -> Result<bool> {
        match wire::parse(message.value.unwrap_or_default()) {
            Ok((id, _)) => self.schemas.is_ready(id, ProtobufSchema::of_registered),
            // A bad record.
            Err(_) => Ok(true),
        }
    }

    fn decode(&mut self, message: &Message<'_>) -> Result<Option<T>, String> {
        let (id, rest) = wire::parse(message.present_value()?)?;
        let schema = self.schemas.get(id)?;
        let (indexes, bytes) = wire::parse_indexes(rest)?;
        let descriptor = schema.message_at(&indexes)?;
        let bad = |why: String| format!("not the Protocol Buffers expected: {why}");
        let message = DynamicMessage::decode(descriptor, bytes);
        let message = message.map_err(|error| bad(error.to_string()))?;
        let record = T::deserialize(deserialize::MessageDeserializer(&message));
        record.map(Some).map_err(|error| bad(error.to_string()))
    }
}
