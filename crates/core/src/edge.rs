//! An arrow of the graph.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::{ChunkCodec, Ordinal, Routing, VertexId};

/// Which edge of its graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeId(pub(crate) u32);

impl EdgeId {
    /// Its position among the graph's edges.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// In which order a vertex reads its inputs: lower numbers are read to their end before higher ones start.
///
/// Draining does not cut an urgent input short, as what is made of the others would be wrong: the sources that lead to it go on to
/// their end. So they must have one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority(pub i16);

impl Priority {
    /// What an edge has unless told otherwise; edges of equal priority are read in turn.
    pub const NORMAL: Priority = Priority(0);
    /// Read to its end before normal ones: the build side of a hash join.
    pub const FIRST: Priority = Priority(-1);
}

/// An arrow from an output of one vertex to an input of another.
#[derive(Clone)]
pub struct Edge {
    pub(crate) from: (VertexId, Ordinal),
    pub(crate) to: (VertexId, Ordinal),
    pub(crate) routing: Routing,
    pub(crate) priority: Priority,
    pub(crate) capacity_chunks: Option<NonZeroUsize>,
    pub(crate) codec: Option<Arc<dyn ChunkCodec>>,
    pub(crate) is_timeless: bool,
}

impl Edge {
    /// From the first output of one vertex to the first input of another, round robin.
    pub fn between(from: VertexId, to: VertexId) -> Self {
        Edge::from_ordinals((from, Ordinal::FIRST), (to, Ordinal::FIRST))
    }

    /// From a certain output of one vertex to a certain input of another, round robin.
    pub fn from_ordinals(from: (VertexId, Ordinal), to: (VertexId, Ordinal)) -> Self {
        Edge {
            from,
            to,
            routing: Routing::RoundRobin,
            priority: Priority::NORMAL,
            capacity_chunks: None,
            codec: None,
            is_timeless: false,
        }
    }

    /// Sets which instance a record goes to.
    pub fn routing(mut self, routing: Routing) -> Self {
        self.routing = routing;
        self
    }

    /// Sets the order in which the consumer reads its inputs.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets how many chunks each queue of this edge holds; the node's default otherwise. Small queues mean less memory
    /// and earlier backpressure, large ones ride out longer pauses of the consumer.
    pub fn capacity(mut self, chunks: NonZeroUsize) -> Self {
        self.capacity_chunks = Some(chunks);
        self
    }

    /// Says how its records become bytes, so that it may join instances of different processes. Without a codec both ends of it have
    /// to be in one.
    pub fn codec(mut self, codec: Arc<dyn ChunkCodec>) -> Self {
        self.codec = Some(codec);
        self
    }

    /// Says that the records of this edge have no part in the consumer's time: its watermarks are not listened to, and its silence
    /// holds nobody back. For rules, rates and other news beside a stream.
    pub fn timeless(mut self) -> Self {
        self.is_timeless = true;
        self
    }

    /// The producing vertex and its output.
    pub fn source(&self) -> (VertexId, Ordinal) {
        self.from
    }

    /// The consuming vertex and its input.
    pub fn target(&self) -> (VertexId, Ordinal) {
        self.to
    }

    /// Which instance a record goes to.
    pub fn wanted_routing(&self) -> &Routing {
        &self.routing
    }

    /// The order in which the consumer reads its inputs.
    pub fn wanted_priority(&self) -> Priority {
        self.priority
    }

    /// How many chunks each queue holds, if set.
    pub fn wanted_capacity(&self) -> Option<NonZeroUsize> {
        self.capacity_chunks
    }

    /// Whether the edge has no part in the consumer's time.
    pub fn is_timeless(&self) -> bool {
        self.is_timeless
    }

    /// How its records become bytes, if they may leave the process.
    pub fn wanted_codec(&self) -> Option<&Arc<dyn ChunkCodec>> {
        self.codec.as_ref()
    }
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edge {
            from, to, routing, ..
        } = self;
        write!(f, "Edge({from:?} to {to:?}, {routing:?})")
    }
}
