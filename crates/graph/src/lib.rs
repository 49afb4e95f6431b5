//! Graph algorithms on iterations: PageRank.
//!
//! ```
//! use ardea_graph::{DirectedGraph, PageRank};
//!
//! let links = [(0, 1), (2, 1), (3, 1), (1, 0)];
//! let graph = DirectedGraph::from_edges(4, links)?;
//! let result = PageRank::new().threads(2).run(&graph)?;
//! assert_eq!(result.top(2).map(|(vertex, _)| vertex).collect::<Vec<_>>(), [1, 0]);
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod directed_graph;
mod page_rank;

pub use directed_graph::DirectedGraph;
pub use page_rank::{PageRank, PageRankResult};
