//! The typed fluent API over the core graph.
