//! Tests of the interface over real sockets, with a fake cluster behind it.

mod access;
mod client;
mod document;
mod events;
mod failover;
mod fixture;
mod forwarding;
mod hostile;
mod page;
mod pages;
mod safe_by_default;
