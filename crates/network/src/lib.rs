//! Connections between the processes of a cluster.
//!
//! In reading order:
//!
//! - [`tls`]: mutual TLS from PEM files, reloaded when they change;
//! - [`rpc`]: typed control messages over one connection, on tokio;
//! - [`exchange`]: the edges of jobs between workers: frames, transports, flow control.
//!
//! # Invariants
//!
//! - A peer is authenticated before memory or time is spent on it.
//! - All input from peers is bounded.
#![forbid(unsafe_code)]

mod admission;
pub mod exchange;
pub mod rpc;
pub mod tls;
