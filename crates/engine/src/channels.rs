//! The connections of tasklets, and requests to change them.
//!
//! * `queue`: the queue between two tasklets;
//! * `input`: the queues that a tasklet reads, each an `inlet`; `output`: those that it writes;
//! * `control_queue`: requests to change a running tasklet; `pending_acks`: those not applied yet;
//! * `pending_producers`: producers that a change starts in another process.

pub(crate) mod control_queue;
pub(crate) mod inlet;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod pending_acks;
pub(crate) mod pending_producers;
pub(crate) mod queue;
