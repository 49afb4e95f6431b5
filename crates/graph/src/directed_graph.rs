//! Directed graphs in memory.

use std::ops::Range;

use ardea_core::{Error, ErrorCode, Result};

/// A directed graph of vertices from zero, with the outgoing edges of each vertex in one list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectedGraph {
    /// The first edge of each vertex, and the number of edges.
    begins: Vec<usize>,
    targets: Vec<u32>,
}

impl DirectedGraph {
    /// Creates a graph from edges: pairs of source and target. Repeated edges count repeatedly.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if a source or target is not below the number of vertices.
    pub fn from_edges(vertices: u32, edges: impl IntoIterator<Item = (u32, u32)>) -> Result<Self> {
        let edges: Vec<(u32, u32)> = edges.into_iter().collect();
        let mut begins = vec![0; vertices as usize + 1];
        for (number, (from, to)) in edges.iter().enumerate() {
            if *from >= vertices || *to >= vertices {
                let what = format!("edge {number} from {from} to {to} leaves {vertices} vertices");
                return Err(Error::new(ErrorCode::BadRecord, what)
                    .hint("number vertices from zero, below their number"));
            }
            begins[*from as usize + 1] += 1;
        }
        for vertex in 1..begins.len() {
            begins[vertex] += begins[vertex - 1];
        }
        let mut next = begins.clone();
        let mut targets = vec![0; edges.len()];
        for (from, to) in edges {
            targets[next[from as usize]] = to;
            next[from as usize] += 1;
        }
        Ok(DirectedGraph { begins, targets })
    }

    /// Returns the number of vertices.
    pub fn vertices(&self) -> u32 {
        // The list was created with a length of u32 plus one.
        (self.begins.len() - 1) as u32
    }

    /// Returns the number of edges.
    pub fn edges(&self) -> usize {
        self.targets.len()
    }

    /// Returns the targets of a vertex's edges.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn targets(&self, vertex: u32) -> &[u32] {
        let vertex = vertex as usize;
        &self.targets[self.begins[vertex]..self.begins[vertex + 1]]
    }

    /// Splits the vertices into ranges with about as many vertices and edges each.
    pub(crate) fn split(&self, parts: usize) -> Vec<Range<u32>> {
        let work = |vertex: usize| self.begins[vertex] + vertex;
        let vertices = self.vertices() as usize;
        let bound = |part: usize| {
            let most = (work(vertices) as u128 * part as u128 / parts as u128) as usize;
            let (mut low, mut high) = (0, vertices);
            while low < high {
                let middle = (low + high) / 2;
                match work(middle) < most {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            low as u32
        };
        (0..parts)
            .map(|part| bound(part)..bound(part + 1))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_grouped_by_their_source() {
        let graph = DirectedGraph::from_edges(3, [(2, 0), (0, 1), (2, 1), (2, 1)]).unwrap();
        assert_eq!(graph.targets(0), [1]);
        assert_eq!(graph.targets(1), [0; 0]);
        assert_eq!(graph.targets(2), [0, 1, 1]);
        assert_eq!((graph.vertices(), graph.edges()), (3, 4));
    }

    #[test]
    fn an_edge_out_of_the_graph_is_refused() {
        let error = DirectedGraph::from_edges(3, [(0, 1), (0, 3)]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRecord);
        assert!(error.to_string().contains("edge 1 from 0 to 3"), "{error}");
    }

    #[test]
    fn each_vertex_belongs_to_one_part() {
        let edges = (0..90).map(|n| (n % 9 * (n % 2), n % 10));
        let graph = DirectedGraph::from_edges(10, edges).unwrap();
        for parts in 1..15 {
            let all: Vec<u32> = graph.split(parts).into_iter().flatten().collect();
            assert_eq!(all, (0..10).collect::<Vec<_>>());
        }
    }
}
