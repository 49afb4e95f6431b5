//! The edges of the graph.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::{ChunkCodec, Ordinal, Routing, VertexId};

/// The id of an edge in its graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeId(pub(crate) u32);

impl EdgeId {
    /// Returns the position among the graph's edges.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The order in which a vertex reads its inputs: inputs of lower numbers are read to their end
/// before those of higher numbers start.
///
/// Draining does not end the sources upstream of an urgent input, because incomplete build sides
/// make results wrong. These sources must be bounded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority(pub i16);

impl Priority {
    /// The default priority; edges of equal priority are read in turn.
    pub const NORMAL: Priority = Priority(0);
    /// The priority of inputs that are read to their end before normal ones: the build side of a
    /// hash join.
    pub const FIRST: Priority = Priority(-1);
}

/// A connection from an output of one vertex to an input of another.
#[derive(Clone)]
pub struct Edge {
    pub(crate) from: (VertexId, Ordinal),
    pub(crate) to: (VertexId, Ordinal),
    pub(crate) routing: Routing,
    pub(crate) priority: Priority,
    pub(crate) capacity_chunks: Option<NonZeroUsize>,
    pub(crate) latency: Option<Duration>,
    pub(crate) codec: Option<Arc<dyn ChunkCodec>>,
    pub(crate) is_timeless: bool,
}

impl Edge {
    /// The maximum latency budget.
    pub const MAX_LATENCY: Duration = Duration::from_secs(1);

    /// Creates an edge from the first output of one vertex to the first input of another, round
    /// robin.
    pub fn between(from: VertexId, to: VertexId) -> Self {
        Edge::from_ordinals((from, Ordinal::FIRST), (to, Ordinal::FIRST))
    }

    /// Creates an edge from one output of a vertex to one input of another, round robin.
    pub fn from_ordinals(from: (VertexId, Ordinal), to: (VertexId, Ordinal)) -> Self {
        Edge {
            from,
            to,
            routing: Routing::RoundRobin,
            priority: Priority::NORMAL,
            capacity_chunks: None,
            latency: None,
            codec: None,
            is_timeless: false,
        }
    }

    /// Sets the routing, which selects the receiving instance of a record.
    pub fn routing(mut self, routing: Routing) -> Self {
        self.routing = routing;
        self
    }

    /// Sets the order in which the consumer reads its inputs.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the capacity of each queue of this edge in chunks; the node's setting by default. Small
    /// queues need less memory and give earlier backpressure, large ones bridge longer pauses of
    /// the consumer.
    pub fn capacity(mut self, chunks: NonZeroUsize) -> Self {
        self.capacity_chunks = Some(chunks);
        self
    }

    /// Sets the latency budget of this edge: the maximum time for which a part of the edge gathers
    /// records while few come. It replaces the node's setting `latency` for this edge, at most
    /// [`MAX_LATENCY`](Self::MAX_LATENCY).
    ///
    /// * A source gathers by the least budget of the edges that leave its tasklet.
    /// * The receiving end of an edge from another process gathers by the budget of its edge. The
    ///   network thread gathers by the least budget of the process.
    /// * The consumer, or the sending end of an edge to another process, gathers in its queues if
    ///   all its inputs have their own budgets, for the least of them. A full queue is read at
    ///   once. A consumer with its own thread does not gather.
    ///
    /// Within a chain of steps in one tasklet records never wait. Zero passes each record on at
    /// once. `None` restores the node's setting.
    pub fn latency(mut self, budget: impl Into<Option<Duration>>) -> Self {
        self.latency = budget.into();
        self
    }

    /// Sets the codec, so that the edge may connect instances of different processes. Without a
    /// codec both ends must be in one process.
    pub fn codec(mut self, codec: Arc<dyn ChunkCodec>) -> Self {
        self.codec = Some(codec);
        self
    }

    /// Excludes this edge from the consumer's event time: its watermarks are ignored, and it never
    /// holds back the watermark. For rules, rates and other side inputs.
    pub fn timeless(mut self) -> Self {
        self.is_timeless = true;
        self
    }

    /// Returns the producing vertex and its output.
    pub fn source(&self) -> (VertexId, Ordinal) {
        self.from
    }

    /// Returns the consuming vertex and its input.
    pub fn target(&self) -> (VertexId, Ordinal) {
        self.to
    }

    /// Returns the routing.
    pub fn wanted_routing(&self) -> &Routing {
        &self.routing
    }

    /// Returns the order in which the consumer reads its inputs.
    pub fn wanted_priority(&self) -> Priority {
        self.priority
    }

    /// Returns the capacity of each queue in chunks, if set.
    pub fn wanted_capacity(&self) -> Option<NonZeroUsize> {
        self.capacity_chunks
    }

    /// Returns the latency budget, if the edge has its own.
    pub fn wanted_latency(&self) -> Option<Duration> {
        self.latency
    }

    /// Returns true if the edge is excluded from the consumer's event time.
    pub fn is_timeless(&self) -> bool {
        self.is_timeless
    }

    /// Returns the codec, if the edge may connect processes.
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
