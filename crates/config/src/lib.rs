//! One configuration schema: every setting has a key, a kind, a default, and words on what it trades.
//!
//! Rooms of the house declare their settings as slices of [`Setting`]; the program joins them to a [`Schema`]. A [`Resolver`]
//! takes what was written on the command line, in the environment and in `ardea.toml`, and gives a [`Resolved`], which knows of
//! each key its typed value and its [`Origin`]. The first of these that names a key decides:
//!
//! | source | how the setting `engine.slice` is written |
//! |---|---|
//! | command line | `--set engine.slice=100us` (of two for one key, the last) |
//! | environment | `ARDEA_ENGINE_SLICE=100us` |
//! | file | `slice = "100us"` in the table `[engine]` of `ardea.toml` |
//! | default | [`Setting::default`] |
//!
//! With [profiles](Schema::with_profiles), the tables of which one is chosen by a setting stand between environment and file.
//!
//! # Invariants
//!
//! * Nothing is ignored: an unknown key or a wrong value is refused wherever it stands, even where another source overrides it.
//! * The real environment is read by nobody here: the caller passes it in. The only file read is the one of [`ConfigFile`].
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

mod nearest;
mod report;
mod resolved;

pub use duration::{DurationError, format_duration, parse_duration};
pub use environment::CONFIG_VARIABLE;
pub use file::{CONFIG_FILE, ConfigFile};
pub use nearest::nearest;
pub use origin::{Flag, Origin};
pub use quantity::{QuantityError, format_bytes, parse_bytes, parse_count, readable_bytes};
pub use report::{Report, ReportedSetting};
pub use resolved::Resolved;
pub use resolver::Resolver;
pub use schema::Schema;
pub use setting::{Kind, Setting};
pub use value::{Value, ValueError};
