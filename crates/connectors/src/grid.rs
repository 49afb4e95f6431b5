//! Maps of a grid in jobs: read as sources, written by sinks, and looked things up in.
//!
//! * [`ClusterMap`]: a map that the hosts of a job's cluster keep, which `ardea map` shows; [`Grid`], [`GridConfig`], [`GridMap`]: a grid of one's own, of which a job uses the maps of a
//!   member in its own process; [`AnyMap`]: either;
//! * [`contents()`]: all that a map has, once; [`changes()`]: that, and then all that happens to it;
//! * [`put()`], [`remove()`], [`update()`]: sinks that make a map what the records say, the materialised view of a stream; [`merge()`], [`merge_with()`]: sinks that apply a function;
//! * [`lookup()`]: a step that makes each record of itself and of what a map has of its key.
//! * Beside them what they use, for processors of one's own: [`MapReads`], [`ClusterReads`]; [`MapListener`], [`ClusterListener`].
//!
//! # Invariants
//!
//! * A part of a map that can't be used at the moment is waited for, and that is said once on standard error; nothing is left out meanwhile.
//! * Steps between others never block; sources and sinks have a thread of their own.
//! * What sinks put and remove may come again after a failure, which changes nothing: the last record of a key is the one that stays.
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
mod patience;

mod changes;
mod contents;

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
pub use contents::contents;
pub use lookup::{Lookup, lookup};
pub use merge::{merge, merge_with};
pub use write::{put, remove, update};
