//! The distribution of a job over processes, and the edges between them.

mod ends;
mod layout;
mod placement;
mod receiving;
mod remote_edges;
mod sending;
mod signals;

pub use ends::{ReceiveEnd, RemoteItem, SendEnd, StreamState};
pub use layout::{InstanceAt, Layout};
pub use placement::{Placement, Site};
pub(crate) use receiving::Receiving;
pub use remote_edges::RemoteEdges;
pub(crate) use sending::Sending;
pub(crate) use signals::RemoteSignal;
