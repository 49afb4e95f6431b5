//! What keys and values of a map look like.

use ardea_core::{Error, ErrorCode, Result, Schema};
use serde::{Deserialize, Serialize};

/// The longest shape, in bytes of JSON.
const MOST_SHAPE_BYTES: usize = 64 << 10;

/// What keys and values of a map look like.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MapShape {
    /// The keys.
    pub keys: Schema,
    /// The values: as the last program wrote them that opened the map.
    pub values: Schema,
}

impl MapShape {
    /// Of keys and values that look so.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if nobody could read them who has not their types.
    pub fn new(name: &str, keys: Schema, values: Schema) -> Result<Self> {
        let is_placed = |schema: &Schema| matches!(schema, Schema::Placed(_));
        if is_placed(&keys) || is_placed(&values) {
            let what = format!(
                "keys or values of the map {name:?} are written under other names than they are read"
            );
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("use a type without `#[serde(rename(serialize = …))]` and the like"));
        }
        let shape = MapShape { keys, values };
        match shape.to_json()?.len() <= MOST_SHAPE_BYTES {
            true => Ok(shape),
            false => Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("keys or values of the map {name:?} have too many fields"),
            )),
        }
    }

    /// As it is told.
    ///
    /// # Errors
    /// Never, as far as is known.
    pub(crate) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "the shape of a map can't be written").because(error)
        })
    }

    /// From what was told.
    ///
    /// # Errors
    /// [`ErrorCode::BadMessage`] if it is none.
    pub(crate) fn of_json(json: &[u8]) -> Result<Self> {
        let bad = || Error::new(ErrorCode::BadMessage, "the shape of a map can't be read");
        if json.len() > MOST_SHAPE_BYTES {
            return Err(bad().because("it is too long"));
        }
        serde_json::from_slice(json).map_err(|error| bad().because(error))
    }

    /// Refuses keys of another kind, which would be other bytes.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] with both.
    pub(crate) fn check_keys(&self, name: &str, wanted: &MapShape) -> Result<()> {
        if self.keys == wanted.keys {
            return Ok(());
        }
        let what = format!(
            "the map {name:?} has keys of type {}, and not {}",
            self.keys, wanted.keys
        );
        Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("use another name, or do away with the map that is there: ardea map drop"))
    }
}
