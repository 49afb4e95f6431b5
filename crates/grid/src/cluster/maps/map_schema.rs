//! Schema of a map's keys and values.

use ardea_core::{Error, ErrorCode, Result, Schema};
use serde::{Deserialize, Serialize};

/// Maximum size of a schema, in bytes of JSON.
const MOST_SHAPE_BYTES: usize = 64 << 10;

/// Schema of a map's keys and values.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MapSchema {
    /// Schema of the keys.
    pub keys: Schema,
    /// Schema of the values, as written by the last program that opened the map.
    pub values: Schema,
}

impl MapSchema {
    /// Creates a schema.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if programs without the types could not read the entries, or
    /// the schema is too large.
    pub fn new(name: &str, keys: Schema, values: Schema) -> Result<Self> {
        let is_placed = |schema: &Schema| matches!(schema, Schema::Placed(_));
        if is_placed(&keys) || is_placed(&values) {
            let what = format!(
                "keys or values of the map {name:?} are serialized under other names than they are deserialized"
            );
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("use a type without `#[serde(rename(serialize = …))]` and the like"));
        }
        let shape = MapSchema { keys, values };
        match shape.to_json()?.len() <= MOST_SHAPE_BYTES {
            true => Ok(shape),
            false => Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("keys or values of the map {name:?} have too many fields"),
            )),
        }
    }

    /// Encodes the schema as JSON.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if it cannot be serialized, which is not expected.
    pub(crate) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| {
            Error::new(
                ErrorCode::Internal,
                "the schema of a map cannot be serialized",
            )
            .because(error)
        })
    }

    /// Decodes a schema from JSON.
    ///
    /// # Errors
    /// [`ErrorCode::BadMessage`] if it is invalid.
    pub(crate) fn of_json(json: &[u8]) -> Result<Self> {
        let bad = || Error::new(ErrorCode::BadMessage, "the schema of a map is invalid");
        if json.len() > MOST_SHAPE_BYTES {
            return Err(bad().because("it is too long"));
        }
        serde_json::from_slice(json).map_err(|error| bad().because(error))
    }

    /// Checks that the key schemas are equal; keys of another type would have another encoding.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] with both types.
    pub(crate) fn check_keys(&self, name: &str, wanted: &MapSchema) -> Result<()> {
        if self.keys == wanted.keys {
            return Ok(());
        }
        let what = format!(
            "the map {name:?} has keys of type {}, and not {}",
            self.keys, wanted.keys
        );
        Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("use another name, or delete the existing map: ardea map drop"))
    }
}
