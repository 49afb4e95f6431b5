//! Grid maps in jobs, as sources, sinks and lookup tables.
//!
//! * [`ClusterMap`]: a map stored by the hosts of a job's cluster; `ardea map` shows its entries.
//!   [`Grid`], [`GridConfig`], [`GridMap`]: an embedded grid with a member in the job's own
//!   process. [`AnyMap`]: a map of either kind.
//! * [`contents()`]: a bounded source of all entries of a map. [`changes()`]: the entries, and then
//!   all changes.
//! * [`put()`], [`remove()`], [`update()`]: sinks that write a map, as a materialized view of a
//!   stream. [`merge()`], [`merge_with()`]: sinks that apply a function to the current value.
//! * [`lookup()`]: a step that joins each record with the map's value of its key.
//! * Clients for custom processors: [`MapReads`], [`ClusterReads`], [`MapListener`],
//!   [`ClusterListener`].
//!
//! # Invariants
//!
//! * The connectors wait for an unavailable partition of a map and skip no entry. Each outage is
//!   logged once on standard error.
//! * Lookups never block; sources and sinks have threads of their own.
//! * Puts and removals may be repeated after a failure without effect: the last record of a key
//!   wins.
//!
//! # Example
//!
//! ```
//! use ardea_connectors::collections::items;
//! use ardea_connectors::grid::{Grid, GridConfig, lookup, put};
//! use ardea_pipeline::Pipeline;
//!
//! let grid = Grid::start(GridConfig::new("harbour"))?;
//! let berths = grid.map::<String, u32>("berths")?;
//!
//! let p = Pipeline::new("moored");
//! p.read_from(items([("seagull".to_string(), 7)])).write_to(put(&berths, |moored: &(String, u32)| moored.clone()));
//! p.run()?;
//!
//! let p = Pipeline::new("called");
//! let found = p
//!     .read_from(items(["seagull".to_string(), "albatross".to_string()]))
//!     .custom::<(String, Option<u32>), _>("berth", lookup(&berths, String::clone, |ship, berth| (ship, berth)))
//!     .collect();
//! p.run()?;
//! assert_eq!(found.take(), [("seagull".to_string(), Some(7)), ("albatross".to_string(), None)]);
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod any_map;
mod retry;

mod changes;
mod scan;

mod merge;
mod write;

mod lookup;

pub use any_map::{AnyListener, AnyMap, AnyReads};
pub use ardea_grid::cluster::{ClusterListener, ClusterMap, ClusterReads};
pub use ardea_grid::node::{
    Grid, GridConfig, GridMap, GridQueue, GridRing, MapEvent, MapListener, MapReads, NearCache,
    Read, Run,
};
pub use changes::{Change, changes};
pub use lookup::{Lookup, lookup};
pub use merge::{merge, merge_with};
pub use scan::contents;
pub use write::{put, remove, update};
