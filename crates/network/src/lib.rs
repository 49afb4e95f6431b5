//! Connections between the processes of a cluster.
//!
//! In reading order:
//!
//! * [`tls`]: mutual TLS from PEM files, reloaded when they change;
//! * [`rpc`]: typed control messages over one connection, on tokio;
//! * [`exchange`]: the edges of jobs between workers: frames, transports, flow control.
//!
//! # Invariants
//!
//! * A peer proves that it belongs to the cluster before it is given memory or time.
//! * What is read of a peer is bounded.
#![forbid(unsafe_code)]

pub mod exchange;
pub mod rpc;
pub mod tls;
