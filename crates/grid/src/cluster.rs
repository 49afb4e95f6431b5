//! Keeps the snapshots of a cluster's jobs, and its maps, in the memory of its hosts, with copies on others.
//!
//! Each host of a cluster is a member of one grid (`ardea-grid`) from when the first job wants that. A job's folder is three maps of it: heads
//! of files by their names, pieces of what is large, and marks of what is being written. Masters are in the process of a host and use its member;
//! workers ask a host, their own machine's first. Hosts outlive containers: all workers of a job may end and begin again, and find what they have saved.
//!
//! In reading order:
//!
//! * [`Shelter`], [`Ask`], [`Told`]: what can be asked, in words that travel;
//! * [`GridShelf`]: does it by the member of the grid that is in this process; `serving`, [`RemoteShelter`]: by that of another process; `telling`, `remote_hearing`: what happens to
//!   a map, told over a connection;
//! * [`ClusterMap`]: a map for jobs; [`ClusterReads`]: read by who must not wait; [`ClusterListener`]: what happens to it; [`MapAsk`], [`MapTold`]: how it is asked for; [`MapDesk`]: what a host does with maps, for jobs and for people, who see JSON;
//! * `record`: what the cluster's state knows of the grid; [`HostShelter`]: a host's part in it, founded, joined and left.
//!
//! # Invariants
//!
//! * **A file is there whole or not at all**: what is large is laid before its name is taken, and a name is taken once.
//! * **Nothing stays of what nobody finished**: whoever writes leaves a mark before, and a sweep finds it.
//! * **One grid at a time.** Which one is a record in the cluster's state, changed in one step; members of another can't reach it. It is founded anew only
//!   where no member of it has a session any more, or fewer than half of its members have.
//! * **Who is told to be dead is dead or has stopped.** A member has a session before it comes, and stops before others can see that the session is over.
//! * **A loss is never hidden**: what is not there is missing to whoever reads it, and [`Losses`] tell that something may be.
//! * **Maps and snapshots take no room of each other**, and who has not the types of a map can read and write it all the same.
//!
//! # Example
//!
//! ```
//! use ardea_grid::node::{Grid, GridConfig};
//! use ardea_grid::cluster::{Ask, GridShelf, Head, Shelter, Told};
//!
//! let shelf = GridShelf::new();
//! shelf.open(Grid::start(GridConfig::new("harbour"))?, 1)?;
//! let (job, name) = ("words#2a", "snapshot-1-7.manifest".to_string());
//! shelf.ask(job, Ask::Name(vec![(name.clone(), Head::Small("state".into()))]))?;
//! let told = shelf.ask(job, Ask::Read(name))?;
//! assert!(matches!(told, Told::File(Some(Head::Small(bytes)), _) if bytes == "state"));
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod ask;

mod maps;

mod shelf;

mod record;
mod remote;
mod remote_hearing;
mod serving;
mod telling;

mod host;

pub use ask::{
    Ask, Head, Hearing, LETTER_BYTES, LETTER_NAMES, Losses, Mark, PIECE_BYTES, SMALL_BYTES,
    Shelter, Told,
};
pub use host::{HostShelter, HostShelterSetup, is_wanted, want};
pub use maps::{
    ClusterListener, ClusterMap, ClusterReads, Filter, JsonChange, JsonEntries, JsonEntry, MapAsk,
    MapDesk, MapShape, MapSummary, MapTold, MapWatch, Swap, no_such_map, reach_maps_by,
};
pub use remote::{OpenState, RemoteShelter};
pub use shelf::GridShelf;
