//! Messages whose values have a schema of a registry: Avro and Protocol Buffers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_connectors::kafka::{Avro, AvroValues, ProtobufValues, SchemaRegistry};
use ardea_core::{Error, ErrorCode, Result};
use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::connectors::sink_message::SinkMessage;
use crate::plan::{RegistryFormat, RegistryPlan};

/// Returns the registry of a plan.
pub(super) fn registry_of(plan: &RegistryPlan) -> SchemaRegistry {
    let mut registry = SchemaRegistry::at(&plan.url);
    if let Some((user, password)) = &plan.basic_auth {
        registry = registry.basic_auth(user, password);
    }
    if let Some(token) = &plan.bearer_token {
        registry = registry.bearer_token(token);
    }
    match plan.give_up_after {
        Some(limit) => registry.give_up_after(Duration::from(limit)),
        None => registry,
    }
}

/// Returns the decoder of Avro of a plan.
pub(super) fn avro_of(plan: &RegistryPlan) -> Avro {
    let avro = Avro::new(registry_of(plan));
    match &plan.schema {
        Some(schema) => avro.reader_schema(schema),
        None => avro,
    }
}

/// The encoder of values.
pub(super) enum RegistryValues {
    Avro(AvroValues, AvroFields),
    Protobuf(ProtobufValues),
}

impl RegistryValues {
    /// Returns the encoder of a plan.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the plan has no schema, or the one of Avro is no record.
    pub(super) fn of(plan: &RegistryPlan) -> Result<Self> {
        let missing = || {
            Error::new(
                ErrorCode::InvalidJob,
                "a sink with a registry needs a schema",
            )
            .hint("give it, as in kafka.avro(registry, schema)")
        };
        let schema = plan.schema.as_ref().ok_or_else(missing)?;
        Ok(match plan.format {
            RegistryFormat::Avro => {
                let fields = AvroFields::of(schema)?;
                let mut values = AvroValues::new(registry_of(plan), schema);
                if let Some(subject) = &plan.subject {
                    values = values.subject(subject);
                }
                if plan.registered_only {
                    values = values.registered_only();
                }
                RegistryValues::Avro(values, fields)
            }
            RegistryFormat::Protobuf => {
                let mut values = ProtobufValues::new(registry_of(plan), schema);
                if let Some(message) = &plan.message {
                    values = values.message(message);
                }
                if let Some(subject) = &plan.subject {
                    values = values.subject(subject);
                }
                if plan.registered_only {
                    values = values.registered_only();
                }
                RegistryValues::Protobuf(values)
            }
        })
    }

    /// Returns the conversion of messages to records.
    pub(super) fn records(&self) -> impl Fn(SinkMessage) -> RegistryRecord + Send + Sync + 'static {
        let fields = match self {
            RegistryValues::Avro(_, fields) => Arc::clone(&fields.numbers),
            RegistryValues::Protobuf(_) => Arc::default(),
        };
        move |message| {
            let value = message.value.unwrap_or_default();
            RegistryRecord {
                key: message.cells.into_iter().next().flatten(),
                // The value was written as an object before.
                record: serde_json::from_slice(&value).unwrap_or_default(),
                numbers: Arc::clone(&fields),
            }
        }
    }
}

/// The type of a number in Avro.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AvroNumber {
    Int,
    Long,
    Float,
    Double,
}

impl AvroNumber {
    /// Returns the type of a field, which may be optional.
    fn of(kind: &Value) -> Option<Self> {
        match kind {
            Value::String(name) => match name.as_str() {
                "int" => Some(AvroNumber::Int),
                "long" => Some(AvroNumber::Long),
                "float" => Some(AvroNumber::Float),
                "double" => Some(AvroNumber::Double),
                _ => None,
            },
            Value::Object(object) => object.get("type").and_then(Self::of),
            Value::Array(variants) => variants.iter().find_map(Self::of),
            _ => None,
        }
    }
}

/// The fields of an Avro schema that are numbers. A number of JSON has no such type.
pub(super) struct AvroFields {
    numbers: Arc<HashMap<String, AvroNumber>>,
}

impl AvroFields {
    fn of(schema: &str) -> Result<Self> {
        let no_record = || {
            Error::new(ErrorCode::InvalidJob, "the Avro schema is no record")
                .hint("give the JSON of a schema of the type record")
        };
        let schema: Value = serde_json::from_str(schema).map_err(|_| no_record())?;
        let fields = schema.get("fields").and_then(Value::as_array);
        let fields = fields.ok_or_else(no_record)?.iter();
        let numbers = fields.filter_map(|field| {
            let name = field.get("name")?.as_str()?;
            Some((name.to_string(), AvroNumber::of(field.get("type")?)?))
        });
        Ok(AvroFields {
            numbers: Arc::new(numbers.collect()),
        })
    }
}

/// A record with the key of its message.
pub(super) struct RegistryRecord {
    pub key: Option<Vec<u8>>,
    record: Map<String, Value>,
    numbers: Arc<HashMap<String, AvroNumber>>,
}

impl Serialize for RegistryRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.record.len()))?;
        for (name, value) in &self.record {
            match (value, self.numbers.get(name)) {
                (Value::Number(number), Some(AvroNumber::Int)) => {
                    let narrow = number
                        .as_i64()
                        .and_then(|number| i32::try_from(number).ok());
                    let narrow = narrow.ok_or_else(|| S::Error::custom(unfit(name, value)))?;
                    map.serialize_entry(name, &narrow)?;
                }
                (Value::Number(number), Some(AvroNumber::Long)) => {
                    let long = number.as_i64();
                    let long = long.ok_or_else(|| S::Error::custom(unfit(name, value)))?;
                    map.serialize_entry(name, &long)?;
                }
                (Value::Number(number), Some(AvroNumber::Float)) => {
                    map.serialize_entry(name, &(number.as_f64().unwrap_or_default() as f32))?;
                }
                (Value::Number(number), Some(AvroNumber::Double)) => {
                    map.serialize_entry(name, &number.as_f64().unwrap_or_default())?;
                }
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

fn unfit(name: &str, value: &Value) -> String {
    format!("the field {name:?} has no such integer: {value}")
}
