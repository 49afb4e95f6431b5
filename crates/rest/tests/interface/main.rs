//! Tests of the interface over real sockets, with a fake cluster behind it.

mod client;
mod document;
mod failover;
mod fixture;
mod hostile;
mod safe_by_default;
