//! Grid members in processes, and the typed maps, queues and ring buffers that they provide.
//!
//! A [`Grid`] is one member: a [`Node`](crate::protocol::Node) driven by its own thread and by
//! callers, and a thread that makes connections. A process may have several members, of the same
//! grid or of different ones. A [`GridMap`] is a typed map of the grid. The consistency guarantees
//! are those of [`protocol`](crate::protocol).
//!
//! In reading order:
//!
//! * [`GridConfig`], [`Grid`]: a member and its settings;
//! * [`GridMap`]: a map; [`MapReads`]: its non-blocking reads; [`MapListener`], [`MapEvent`]: its
//!   events; [`NearCache`]: a local cache of remote entries; [`RawBytes`]: keys and values as
//!   bytes;
//! * [`GridQueue`], [`GridRing`]: queues and ring buffers;
//! * `driver`: the event loop of a member; `driver_lock`: the choice of the thread that runs it;
//!   `command_queue`: its commands; `client`: sends operations; `batch_call`: many operations of
//!   one call; `request_handle`: delivers outcomes to callers; `listeners`: delivers events to
//!   watches; `byte_budget`: bounds outstanding bytes; `member_status`: the member's state for
//!   other threads; `clock`: its time;
//! * `peer_connections`, `send_queue`, `peer_connection`: messages between members.
//!
//! # Invariants
//!
//! * A key is read in the caller's thread if the member is its primary; all other operations go
//!   through the driver. One thread at a time runs the driver.
//! * Message loss between members is tolerated by [`Node`](crate::protocol::Node): no message is
//!   assumed to arrive.
//! * Members authenticate like all processes of a cluster (`ardea-network`). Without a secret they
//!   are reachable on their own machine only.
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

mod byte_budget;
mod clock;
mod config;
mod member_status;

mod client;
mod listeners;
mod request_handle;

mod batch_call;
mod command_queue;
mod peer_connection;
mod peer_connections;
mod send_queue;

mod driver;
mod driver_lock;

mod event_queue;
mod grid;
mod listener;
mod map;
mod near_cache;
mod raw_bytes;
mod ring;

pub use crate::protocol::{MemberId, View};
pub use config::{GridConfig, fresh_member};
pub use event_queue::{EventQueue, QueueItem};
pub use grid::Grid;
pub use listener::{MapEvent, MapListener};
pub use map::{GridMap, MapReads, Page, Read};
pub use near_cache::NearCache;
pub use raw_bytes::RawBytes;
pub use ring::{GridQueue, GridRing, Run};
