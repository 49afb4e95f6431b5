//! In-memory store for the checkpoints and maps of a cluster, replicated over its hosts.
//!
//! Each host of a cluster is a member of one grid, which is founded when the first job needs it. A
//! job's checkpoint folder consists of three grid maps: file heads by file name, pieces of large
//! files, and marks of files being written. A job's leader runs in a host process and uses its
//! member directly. Workers send requests to a host, preferably the one on their own machine. Hosts
//! outlive containers, so checkpoints survive a restart of all workers of a job.
//!
//! In reading order:
//!
//! * [`GridStoreClient`], [`StoreRequest`], [`StoreResponse`]: the store interface and its
//!   serializable requests and responses;
//! * [`LocalGridStore`]: implementation on the grid member of this process; `request_server` and
//!   [`RemoteGridStore`]: access from another process; `watch_server` and `watch_client`: map
//!   events sent over a connection;
//! * [`ClusterMap`]: typed map for jobs; [`ClusterReads`]: its non-blocking reads;
//!   [`ClusterListener`]: its events; [`MapRequest`], [`MapResponse`]: its protocol;
//!   [`MapService`]: the host side, for jobs in bytes and for users in JSON;
//! * `record`: the grid's records in the metadata store; [`GridMembership`]: a host's membership,
//!   which founds, joins and leaves the grid.
//!
//! # Invariants
//!
//! * **Files are atomic**: the pieces of a large file are stored before its name is taken, and a
//!   name is taken once.
//! * **Unfinished files are removed**: a writer stores a mark first, and a sweep finds the marks
//!   left behind.
//! * **One grid at a time**: a record in the metadata store, changed by compare-and-set, identifies
//!   it. Members of different grids cannot connect. A new grid is founded only if no member has a
//!   session, or fewer than half of the members have one.
//! * **A member reported dead is dead or stopped**: a member has a session before it joins, and
//!   stops before others can see that its session is over.
//! * **A loss is detectable**: lost entries are absent for readers, and [`LossCounters`] change.
//! * **Maps and checkpoints have separate memory limits**, and maps can be read and written without
//!   their Rust types.
//!
//! # Example
//!
//! ```
//! use ardea_grid::node::{Grid, GridConfig};
//! use ardea_grid::cluster::{StoreRequest, LocalGridStore, Head, GridStoreClient, StoreResponse};
//!
//! let shelf = LocalGridStore::new();
//! shelf.open(Grid::start(GridConfig::new("harbour"))?, 1)?;
//! let (job, name) = ("words#2a", "checkpoint-1-7.manifest".to_string());
//! shelf.request(job, StoreRequest::Name(vec![(name.clone(), Head::Small("state".into()))]))?;
//! let told = shelf.request(job, StoreRequest::Read(name))?;
//! assert!(matches!(told, StoreResponse::File(Some(Head::Small(bytes)), _) if bytes == "state"));
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod request;

mod maps;

mod local_store;

mod record;
mod remote_store;
mod request_server;
mod watch_client;
mod watch_server;

mod membership;

pub use local_store::LocalGridStore;
pub use maps::{
    ClusterListener, ClusterMap, ClusterReads, CompareAndSet, Filter, JsonChange, JsonEntries,
    JsonEntry, MapRequest, MapResponse, MapSchema, MapService, MapSummary, MapWatch, no_such_map,
    set_map_client,
};
pub use membership::{GridMembership, GridMembershipConfig, is_grid_requested, request_grid};
pub use remote_store::{OpenState, RemoteGridStore};
pub use request::{
    FileMark, GridStoreClient, Head, LossCounters, MESSAGE_BYTES, MESSAGE_NAMES, MapEventStream,
    PIECE_BYTES, SMALL_BYTES, StoreRequest, StoreResponse,
};
