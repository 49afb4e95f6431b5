//! Sources and sinks: those of [`ardea_connectors`], and tables in the terminal.

pub mod live_table;

pub use ardea_connectors::*;
