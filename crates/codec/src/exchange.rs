//! Records that can be sent between processes.

use std::any::type_name;
use std::sync::Arc;

use ardea_core::ChunkCodec;
use serde::{Deserialize, Serialize};

use crate::{Local, RowsCodec};

/// A record that can be sent between the instances of a job, in one process or several: every type
/// that serde can write and read.
///
/// Derive [`Serialize`] and [`Deserialize`] for your own types. All serde attributes may be used. A
/// custom function that reads a field from text must first check whether the format is text
/// ([`is_human_readable`](serde::Deserializer::is_human_readable)). Strings of type `&'static str`
/// are supported: see [`SerdeValues`](crate::SerdeValues). Records that cannot be serialized, or
/// must not be, are wrapped in [`Local`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be sent from one instance of a job to another",
    label = "records leave their instance here, and on a cluster their process",
    note = "it must implement serde's traits: `#[derive(serde::Serialize, serde::Deserialize)]`, and so has each type in it",
    note = "or wrap the records, if they never leave this process: `.map(Local)`"
)]
pub trait ExchangeData: Serialize + Deserialize<'static> + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + Deserialize<'static> + Send + 'static> ExchangeData for T {}

/// Returns the codec of an edge that carries records of type `T`. Returns `None` for [`Local`]
/// records, also within a tuple or another type: their edges stay in one process.
pub fn codec_of<T: ExchangeData>() -> Option<Arc<dyn ChunkCodec>> {
    if is_local::<T>() {
        return None;
    }
    Some(Arc::new(RowsCodec::<T, _>::serde()))
}

/// Returns true if the name of the type contains [`Local`].
pub(crate) fn is_local<T>() -> bool {
    // The name is only a hint: a Local within a type whose name does not show it fails when it is
    // written.
    let local = type_name::<Local<()>>().trim_end_matches("()>");
    type_name::<T>().contains(local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_records_have_no_codec_and_others_have_one() {
        assert!(codec_of::<(&'static str, Vec<u64>)>().is_some());
        assert!(codec_of::<Local<Plain>>().is_none());
        assert!(codec_of::<Vec<(u64, Local<Plain>)>>().is_none());
    }

    struct Plain;
}
