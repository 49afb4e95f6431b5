//! Runs members of a grid in processes, and gives their maps to users.
//!
//! A [`Grid`] is one member: a [`Node`](crate::protocol::Node) of `ardea-grid`, driven by a thread of its own and by those who ask, and a thread that makes connections. A process may have several, of one grid or of
//! different ones. A [`GridMap`] is a map of it with keys and values of some types. What is promised is said by `ardea-grid`.
//!
//! In reading order:
//!
//! * [`GridConfig`], [`Grid`]: a member, and how it is started;
//! * [`GridMap`]: what people use; [`MapReads`]: reading without waiting; [`MapListener`], [`MapEvent`]: hearing what happens to it; [`NearCache`]: reading here what others keep; [`Plain`]: keys and values as bytes;
//! * [`GridQueue`], [`GridRing`]: values in the order in which they were added;
//! * `driver`: drives a member, `helm`: in which thread, `orders`: what it is to do, `asking`: how it is asked, `many`: for much at a time, `asker`: who waits for outcomes, `ears`: who hears what happens, `room`: how much may be under way,
//!   `standing`: what is known of the member outside, `clock`: its time;
//! * `post`, `mailbox`, `line`: what members say to each other between processes.
//!
//! # Invariants
//!
//! * A key is read in the caller's thread where its member is the primary; all else goes through the driver. One thread drives at a time.
//! * Whatever is lost between members is lost in the ways that a [`Node`](crate::protocol::Node) can live with: no word is trusted to arrive.
//! * Members prove themselves as all processes of a cluster do (`ardea-network`); without a secret they can be reached on their own machine only.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ardea_grid::node::{Grid, GridConfig};
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

mod clock;
mod config;
mod room;
mod standing;

mod asker;
mod asking;
mod ears;

mod line;
mod mailbox;
mod many;
mod orders;
mod post;

mod driver;
mod helm;

mod grid;
mod heard;
mod listener;
mod map;
mod near;
mod plain;
mod ring;

pub use crate::protocol::{MemberId, View};
pub use config::{GridConfig, fresh_member};
pub use grid::Grid;
pub use heard::{Heard, NextHeard};
pub use listener::{MapEvent, MapListener};
pub use map::{GridMap, MapReads, Page, Read};
pub use near::NearCache;
pub use plain::Plain;
pub use ring::{GridQueue, GridRing, Run};
