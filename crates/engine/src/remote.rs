//! The distribution of a job over processes, and the edges between them.

mod layout;
mod placement;
mod remote_edges;

pub use layout::{InstanceAt, Layout};
pub use placement::{Placement, Site};
pub use remote_edges::RemoteEdges;
