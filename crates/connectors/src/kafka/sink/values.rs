//! Encoders of the values of messages with a schema.

#[cfg(any(feature = "avro", feature = "protobuf"))]
use ardea_core::{Error, ErrorCode};
use ardea_core::{InstanceContext, Result};

#[cfg(any(feature = "avro", feature = "protobuf"))]
use crate::kafka::schema_registry::{
    RegistryAnswer, RegistryClient, RegistryRequest, SchemaKind, SchemaRegistry,
};

/// An encoder of values, shared by the instances of a sink.
pub(crate) trait ValueEncoder<T>: Send + Sync + 'static {
    /// Creates the encoder of an instance, which writes to `topic`.
    fn instance(&self, topic: &str, context: &InstanceContext) -> Result<Box<dyn EncodeValue<T>>>;
}

/// The encoder of an instance.
pub(crate) trait EncodeValue<T>: Send {
    /// Returns true if values can be encoded. Otherwise waits up to 100 ms.
    ///
    /// # Errors
    /// The registry denies access, refuses the schema, or has not answered within its limit.
    fn is_ready(&mut self) -> Result<bool>;

    /// Appends the value of a record.
    ///
    /// # Errors
    /// The reason why the record has no value in this schema.
    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> std::result::Result<(), String>;
}

/// The id of a schema that is being registered.
#[cfg(any(feature = "avro", feature = "protobuf"))]
pub(crate) struct RegisteredId {
    client: Option<RegistryClient>,
    subject: String,
    id: Option<u32>,
}

#[cfg(any(feature = "avro", feature = "protobuf"))]
impl RegisteredId {
    /// Requests the id of a schema of a subject. Registers the schema if `registers`.
    pub fn request(
        registry: &SchemaRegistry,
        subject: String,
        (kind, text): (SchemaKind, &str),
        registers: bool,
        context: &InstanceContext,
    ) -> Result<Self> {
        let client = RegistryClient::start(registry, context)?;
        client.request(RegistryRequest::Id {
            subject: subject.clone(),
            kind,
            text: text.to_string(),
            registers,
        });
        Ok(RegisteredId {
            client: Some(client),
            subject,
            id: None,
        })
    }

    /// Returns true if the id is known. Otherwise waits up to 100 ms.
    ///
    /// # Errors
    /// The registry denies access, refuses the schema, or has not answered within its limit.
    pub fn is_known(&mut self) -> Result<bool> {
        let (None, Some(client)) = (self.id, &self.client) else {
            return Ok(true);
        };
        match client.answer()? {
            Some(RegistryAnswer::Id(Ok(id))) => {
                self.id = Some(id);
                // No further request is made.
                self.client = None;
                Ok(true)
            }
            Some(RegistryAnswer::Id(Err(why))) => Err(refused(&self.subject, &why)),
            Some(RegistryAnswer::Schema(..)) | None => Ok(false),
        }
    }

    /// Returns the id.
    ///
    /// # Errors
    /// That it is not known yet.
    pub fn get(&self) -> std::result::Result<u32, String> {
        self.id
            .ok_or_else(|| "its schema is not registered yet".to_string())
    }
}

#[cfg(any(feature = "avro", feature = "protobuf"))]
fn refused(subject: &str, why: &str) -> Error {
    let what = format!("the schema registry refuses the schema of the subject {subject}");
    Error::new(ErrorCode::InvalidConfig, what)
        .because(why)
        .hint("change the schema so that it is compatible with earlier versions, or use another subject")
        .permanent()
}
