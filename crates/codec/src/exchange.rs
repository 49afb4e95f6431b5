//! Which records may go from one process to another.

use std::any::type_name;
use std::sync::Arc;

use ardea_core::ChunkCodec;
use serde::{Deserialize, Serialize};

use crate::{Local, RowsCodec};

/// A record that can go from one instance of a job to another, wherever that is: every type that serde can write and read.
///
/// Derive [`Serialize`] and [`Deserialize`] for your own types. All of serde's attributes may be used: what they say about the form
/// of a record in a file does it no harm here. Only a function that reads the text of a field has to ask whether there is one
/// ([`is_human_readable`](serde::Deserializer::is_human_readable)). Texts that live as long as the program (`&'static str`) travel as well: see
/// [`SerdeValues`](crate::SerdeValues). Records that can't be written, or must not be, are wrapped in [`Local`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't go from one instance of a job to another",
    label = "records leave their instance here, and on a cluster their process",
    note = "it has to be known to serde: `#[derive(serde::Serialize, serde::Deserialize)]`, and so has each type in it",
    note = "or wrap the records, if they never leave this process: `.map(Local)`"
)]
pub trait Exchange: Serialize + Deserialize<'static> + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + Deserialize<'static> + Send + 'static> Exchange for T {}

/// The codec of an edge of such records; none for [`Local`] ones, also in a tuple or the like: their edges stay in one process.
pub fn codec_of<T: Exchange>() -> Option<Arc<dyn ChunkCodec>> {
    if is_local::<T>() {
        return None;
    }
    Some(Arc::new(RowsCodec::<T, _>::serde()))
}

/// Whether there is a [`Local`] in values of this type, as far as its name tells.
pub(crate) fn is_local<T>() -> bool {
    // A name is no proof, and none is needed: a Local within a type whose name doesn't tell refuses to be written.
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

    /// No serde here.
    struct Plain;
}
