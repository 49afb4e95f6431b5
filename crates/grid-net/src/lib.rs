//! Runs members of a grid in processes, and gives their maps to users.
//!
//! A [`Grid`] is one member: a thread that drives a [`Node`](ardea_grid::Node) of `ardea-grid`, and one for connections. A process may have several, of one grid or of
//! different ones. A [`GridMap`] is a map of it with keys and values of some types. What is promised is said by `ardea-grid`.
//!
//! In reading order:
//!
//! * [`GridConfig`], [`Grid`]: a member, and how it is started;
//! * [`GridMap`]: what people use;
//! * `driver`: the thread that drives a member; `post`, `mailbox`: what members say to each other between processes.
//!
//! # Invariants
//!
//! * A key is read in the caller's thread where its member is the primary; all else goes through the driver.
//! * Whatever is lost between members is lost in the ways that a [`Node`](ardea_grid::Node) can live with: no word is trusted to arrive.
//! * Members prove themselves as all processes of a cluster do (`ardea-courier`); without a secret they can be reached on their own machine only.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ardea_grid_net::{Grid, GridConfig};
//!
//! let first = Grid::start(GridConfig::new("harbour"))?;
//! let second = Grid::start(GridConfig::new("harbour").join([first.endpoint()]))?;
//! assert!(second.settled(2, Duration::from_secs(30)));
//!
//! let berths = first.map::<String, u32>("berths")?;
//! berths.put(&"seagull".to_string(), &7)?;
//! let same = second.map::<String, u32>("berths")?;
//! assert_eq!(same.get(&"seagull".to_string())?, Some(7));
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod config;

mod driver;
mod mailbox;
mod post;

mod grid;
mod map;

pub use ardea_grid::{MemberId, View};
pub use config::{GridConfig, fresh_member};
pub use grid::Grid;
pub use map::GridMap;
