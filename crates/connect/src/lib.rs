//! Sources and sinks: one file a system.
