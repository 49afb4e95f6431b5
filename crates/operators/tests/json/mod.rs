//! A JSON codec for any serializable state.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Key, Result, StateCodec};
use ardea_operators::StateCodecs;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes values as JSON.
pub struct Json;

impl<T: Serialize + DeserializeOwned> StateCodec<T> for Json {
    fn put(&self, value: &T, out: &mut Vec<u8>) -> Result<()> {
        serde_json::to_writer(out, value).map_err(bad)
    }

    fn get(&self, bytes: &[u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(bad)
    }
}

fn bad(error: serde_json::Error) -> Error {
    Error::new(ErrorCode::BadRecord, "no JSON").because(error)
}

/// Codecs of keys and states as JSON.
pub fn json<K: Key, S>() -> StateCodecs<K, S>
where
    Json: StateCodec<K> + StateCodec<S>,
{
    StateCodecs::new(Arc::new(Json), Arc::new(Json))
}
