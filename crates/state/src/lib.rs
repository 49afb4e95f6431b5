//! State backends.
//!
//! * [`disk`]: keyed state on local disk.
#![forbid(unsafe_code)]

pub mod disk;
