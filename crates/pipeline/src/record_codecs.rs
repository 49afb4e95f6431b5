//! The codecs of records that stay in their tasklet.
//!
//! Steps on single records accept any type, so their edges have no codec of their own. A recording
//! of micro-batches needs one, and so does a source or sink in a process of its own. The codec of
//! a type is known if the type is common, or if the pipeline exchanges records of this type
//! elsewhere.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use ardea_codec::{ExchangeData, codec_of};
use ardea_core::{ChunkCodec, Dag, Edge, EdgeId};

/// The codec of a record type.
pub(crate) type TypedCodec = (TypeId, Option<Arc<dyn ChunkCodec>>);

/// Returns the codec of a record type.
pub(crate) fn typed_codec<T: ExchangeData>() -> TypedCodec {
    (TypeId::of::<T>(), codec_of::<T>())
}

/// The known codecs of a pipeline, and the edges without codec.
#[derive(Default)]
pub(crate) struct RecordCodecs {
    known: HashMap<TypeId, Arc<dyn ChunkCodec>>,
    edges: Vec<(EdgeId, TypeId)>,
}

impl RecordCodecs {
    /// Adds the codec of a record type.
    pub(crate) fn add(&mut self, (record, codec): TypedCodec) {
        if let Some(codec) = codec {
            self.known.entry(record).or_insert(codec);
        }
    }

    /// Adds an edge without codec, with the type of its records.
    pub(crate) fn add_edge(&mut self, edge: EdgeId, record: TypeId) {
        self.edges.push((edge, record));
    }

    /// Returns the graph with codecs for the added edges that `needs_codec`, as far as they are
    /// known.
    pub(crate) fn applied_to(mut self, dag: &Dag, needs_codec: impl Fn(&Edge) -> bool) -> Dag {
        self.edges
            .retain(|(edge, _)| dag.edges().get(edge.index()).is_some_and(&needs_codec));
        if self.edges.is_empty() {
            return dag.clone();
        }
        self.add_common();
        let mut with_codecs = Dag::new();
        for vertex in dag.vertices() {
            with_codecs.vertex(vertex.clone());
        }
        for (id, edge) in dag.edge_ids().zip(dag.edges()) {
            let added = self.edges.iter().find(|(added, _)| *added == id);
            let codec = added.and_then(|(_, record)| self.known.get(record));
            with_codecs.edge(match codec {
                Some(codec) => edge.clone().codec(Arc::clone(codec)),
                None => edge.clone(),
            });
        }
        with_codecs
    }

    fn add_common(&mut self) {
        macro_rules! codecs_of {
            ($($record:ty),*) => { [$(typed_codec::<$record>()),*] };
        }
        let texts = codecs_of!((), bool, char, String, Vec<u8>, &'static str);
        let integers = codecs_of!(
            u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize
        );
        let floats = codecs_of!(f32, f64);
        let all = texts.into_iter().chain(integers).chain(floats);
        all.for_each(|codec| self.add(codec));
    }
}
