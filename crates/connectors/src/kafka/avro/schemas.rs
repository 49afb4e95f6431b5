//! Parsed Avro schemas, which live as long as the process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use apache_avro::Schema;
use ardea_core::{Error, ErrorCode};

/// A parsed schema, and those to which it refers.
#[derive(Debug)]
pub struct AvroSchema {
    pub schema: Schema,
    references: Vec<Schema>,
}

impl AvroSchema {
    /// Returns the schemas in which names are looked up.
    pub fn all(&self) -> Vec<&Schema> {
        self.references.iter().chain([&self.schema]).collect()
    }
}

/// The text of a schema and those of its references.
type SchemaTexts = (String, Vec<String>);

/// The schemas of this process by their texts. A registry has few, and readers and writers borrow
/// them for as long as their instances live.
static SCHEMAS: Mutex<Option<HashMap<SchemaTexts, &'static AvroSchema>>> = Mutex::new(None);

/// Parses a schema, unless this process has parsed it before.
///
/// # Errors
/// The reason why the text is no schema.
pub fn interned(text: &str, references: &[&str]) -> Result<&'static AvroSchema, String> {
    let texts = references.iter().map(ToString::to_string).collect();
    let key: SchemaTexts = (text.to_string(), texts);
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    let schemas = schemas.get_or_insert_default();
    if let Some(schema) = schemas.get(&key) {
        return Ok(schema);
    }
    let parsed = match references {
        [] => Schema::parse_str(text).map(|schema| (schema, Vec::new())),
        references => Schema::parse_str_with_list(text, references),
    };
    let (schema, references) = parsed.map_err(|error| error.to_string())?;
    let schema: &'static AvroSchema = Box::leak(Box::new(AvroSchema { schema, references }));
    schemas.insert(key, schema);
    Ok(schema)
}

/// Returns the error of a schema in the program of a job.
pub fn bad_schema(why: String) -> Error {
    Error::new(
        ErrorCode::InvalidConfig,
        "an Avro schema of the job is invalid",
    )
    .because(why)
    .hint("write the schema as JSON, as in Avro's specification")
    .permanent()
}
