//! Tests of workers connected over every transport, with valid and invalid peers.

mod conformance;
mod disconnects;
mod end_to_end;
mod handshakes;
mod latency;
mod pair;
mod rings;
mod streams;
mod tls;
mod wakeups;
