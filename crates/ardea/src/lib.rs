//! A low-latency stream processing engine.
