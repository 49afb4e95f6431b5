//! Sources of generated records: unbounded at a steady rate, or a sequence at full speed.
//!
//! ```
//! use ardea_connectors::generate;
//! use ardea_core::{Bounded, Source, Unbounded};
//!
//! let squares: Source<u64, Bounded> = generate::sequence(0..1000, |i| i * i);
//! let ticks: Source<(u64, u64), Unbounded> = generate::at_rate(1_000_000, |i| (i % 10_000, i)).build();
//! let some: Source<u64, Bounded> = generate::at_rate(100, |i| i).limit(500).build();
//! ```

mod at_rate;
mod sequence;

pub use at_rate::{AtRate, at_rate};
pub use sequence::sequence;
