//! Protocol Buffers in messages, with a schema registry.

mod batches;
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
pub use batches::{ProtobufBatchDecoder, ProtobufBatches};
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
            messages: MessageReader::new(self),
            record: PhantomData,
        }
    }
}

/// The reader of the messages of an instance.
struct MessageReader(SchemaCache<ProtobufSchema>);

impl MessageReader {
    fn new(protobuf: &Protobuf) -> Self {
        let registry = protobuf.registry.clone();
        MessageReader(SchemaCache::new(registry, SchemaKind::Protobuf))
    }

    #[inline]
    fn is_ready(&mut self, message: &Message<'_>) -> Result<bool> {
        match wire::parse(message.value.unwrap_or_default()) {
            Ok((id, _)) => self.0.is_ready(id, ProtobufSchema::of_registered),
            // A bad record.
            Err(_) => Ok(true),
        }
    }

    fn read(&self, message: &Message<'_>) -> Result<DynamicMessage, String> {
        let (id, rest) = wire::parse(message.present_value()?)?;
        let schema = self.0.get(id)?;
        let (indexes, bytes) = wire::parse_indexes(rest)?;
        let descriptor = schema.message_at(&indexes)?;
        let message = DynamicMessage::decode(descriptor, bytes);
        message.map_err(|error| unexpected(error.to_string()))
    }
}

/// Returns the reason why bytes are no record.
fn unexpected(why: String) -> String {
    format!("not the Protocol Buffers expected: {why}")
}

/// The decoder of an instance; see [`Protobuf`].
pub struct ProtobufDecoder<T> {
    messages: MessageReader,
    record: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> DecodeMessage<T> for ProtobufDecoder<T> {
    fn attach(&mut self, context: &InstanceContext) -> Result<()> {
        self.messages.0.attach(context)
    }

    #[inline]
    fn is_ready(&mut self, message: &Message<'_>) -> Result<bool> {
        self.messages.is_ready(message)
    }

    fn decode(&mut self, message: &Message<'_>) -> Result<Option<T>, String> {
        let message = self.messages.read(message)?;
        let record = T::deserialize(deserialize::MessageDeserializer(&message));
        record
            .map(Some)
            .map_err(|error| unexpected(error.to_string()))
    }
}
