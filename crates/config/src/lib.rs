//! One configuration schema: every setting has a key, a kind, a default, a description and a
//! trade-off.
//!
//! Each crate declares its settings as a slice of [`Setting`]; the program joins these to a
//! [`Schema`]. A [`Resolver`] reads the command line, the environment and `ardea.toml`, and returns
//! a [`Resolved`] with the typed value and the [`Origin`] of each key. The first of these sources
//! that contains a key takes precedence:
//!
//! | source | syntax for the setting `engine.slice` |
//! |---|---|
//! | command line | `--set engine.slice=100us` (the last one for a key applies) |
//! | environment | `ARDEA_ENGINE_SLICE=100us` |
//! | file | `slice = "100us"` in the table `[engine]` of `ardea.toml` |
//! | default | [`Setting::default`] |
//!
//! With [profiles](Schema::with_profiles), the selected profile of the file comes between the
//! environment and the rest of the file.
//!
//! # Invariants
//!
//! * Nothing is ignored: an unknown key or a wrong value is rejected in every source, even where
//!   another source overrides it. The exception are [tables](Schema::with_other_tables) that other
//!   programs read.
//! * The crate does not read the real environment: the caller passes it in. The only file it reads
//!   is that of [`ConfigFile`].
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ardea_config::{Kind, Resolver, Schema, Setting};
//!
//! static SETTINGS: &[Setting] = &[Setting {
//!     key: "engine.slice",
//!     kind: Kind::Duration { least: Duration::from_micros(1), most: Duration::from_secs(1) },
//!     default: "100us",
//!     about: "how long a tasklet works before others get their turn",
//!     trades: "longer costs less a record, shorter keeps delays even",
//! }];
//!
//! let schema = Schema::of(SETTINGS);
//! let resolved = Resolver::new(&schema)
//!     .environment([("ARDEA_ENGINE_SLICE", "200us"), ("HOME", "/root")])
//!     .flags(["engine.slice=50us"])
//!     .resolve()?;
//! assert_eq!(resolved.duration("engine.slice")?, Duration::from_micros(50));
//!
//! let error = Resolver::new(&schema).flags(["engine.slise=50us"]).resolve().unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "ARD-102: there is no setting engine.slise (from --set); did you mean engine.slice?"
//! );
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod duration;
mod quantity;

mod schema;
mod setting;
mod value;

mod environment;
mod file;
mod origin;
mod resolver;

mod did_you_mean;
mod report;
mod resolved;

pub use did_you_mean::nearest;
pub use duration::{DurationError, format_duration, parse_duration};
pub use environment::CONFIG_VARIABLE;
pub use file::{CONFIG_FILE, ConfigFile};
pub use origin::{Flag, Origin};
pub use quantity::{QuantityError, format_bytes, parse_bytes, parse_count, readable_bytes};
pub use report::{Report, ReportedSetting};
pub use resolved::Resolved;
pub use resolver::Resolver;
pub use schema::Schema;
pub use setting::{Kind, Setting};
pub use value::{Value, ValueError};
