//! A graph whose exchanged records are serialized and deserialized.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ardea_core::{Chunk, ChunkCodec, Dag, Replicate, Result, Routing, Scatter};

/// Returns the graph with detours, and per edge the number of records that took one; `None` for
/// edges without a codec.
pub fn detour(dag: &Dag) -> (Dag, Vec<Option<Arc<AtomicU64>>>) {
    let mut detoured = Dag::new();
    let mut counts = Vec::new();
    for vertex in dag.vertices() {
        detoured.vertex(vertex.clone());
    }
    for edge in dag.edges() {
        let routing = edge.wanted_routing();
        let (edge, count) = match (edge.wanted_codec(), routing) {
            // Both ends of a forward edge are in one tasklet.
            (None, _) | (_, Routing::Forward) => (edge.clone(), None),
            (Some(codec), routing) => {
                let count = Arc::default();
                let way = Arc::new(ByDetour {
                    codec: Arc::clone(codec),
                    to: routing.clone(),
                    next: AtomicUsize::new(0),
                    count: Arc::clone(&count),
                });
                let routing = match routing {
                    Routing::Broadcast(_) => Routing::Broadcast(way),
                    _ => Routing::Custom(way),
                };
                (edge.clone().routing(routing), Some(count))
            }
        };
        detoured.edge(edge);
        counts.push(count);
    }
    (detoured, counts)
}

struct ByDetour {
    codec: Arc<dyn ChunkCodec>,
    to: Routing,
    next: AtomicUsize,
    count: Arc<AtomicU64>,
}

impl ByDetour {
    /// Moves all records from one chunk to the end of another, some at a time.
    fn pass(&self, from: &mut Chunk, to: &mut Chunk) -> Result<()> {
        let mut payload = Vec::new();
        while !from.is_empty() {
            payload.clear();
            let records = self.codec.encode(from, 200, &mut payload)?;
            self.codec.decode(records, &payload, to)?;
            self.count.fetch_add(records as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Scatter for ByDetour {
    fn scatter(&self, from: &mut Chunk, to: &mut [Chunk], capacity: usize) -> Result<()> {
        match &self.to {
            Routing::Keyed(by) | Routing::Custom(by) => {
                let mut there = Chunk::default();
                self.pass(from, &mut there)?;
                by.scatter(&mut there, to, capacity)
            }
            Routing::RoundRobin => {
                let next = self.next.fetch_add(1, Ordering::Relaxed) % to.len();
                self.pass(from, &mut to[next])
            }
            _ => self.pass(from, &mut to[0]),
        }
    }
}

impl Replicate for ByDetour {
    fn replicate(&self, from: &mut Chunk, to: &mut Chunk) -> Result<()> {
        let Routing::Broadcast(copies) = &self.to else {
            unreachable!("only broadcasts are replicated");
        };
        let mut copy = Chunk::default();
        copies.replicate(from, &mut copy)?;
        self.pass(&mut copy, to)
    }
}
