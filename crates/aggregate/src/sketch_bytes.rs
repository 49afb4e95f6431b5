//! Deserialization of sketches.

use std::fmt::{self, Display};
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Deserializes bytes, and a sketch from them.
pub(crate) fn read<'de, D, S, E, F>(deserializer: D, sketch: F) -> Result<S, D::Error>
where
    D: Deserializer<'de>,
    E: Display,
    F: Fn(&[u8]) -> Result<S, E>,
{
    let of = PhantomData;
    deserializer.deserialize_bytes(Bytes { sketch, of })
}

struct Bytes<F, S> {
    sketch: F,
    of: PhantomData<fn() -> S>,
}

impl<S, E: Display, F: Fn(&[u8]) -> Result<S, E>> Visitor<'_> for Bytes<F, S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a sketch")
    }

    fn visit_bytes<R: Error>(self, bytes: &[u8]) -> Result<S, R> {
        (self.sketch)(bytes).map_err(R::custom)
    }
}
