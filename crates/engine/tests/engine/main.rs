//! Tests of jobs on a real node with real threads, with small hand-written processors; one file per
//! topic.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

mod memory_snapshots;
mod processors;
mod sites;
mod stateful_processors;

mod backpressure;
mod blocking;
mod cancel;
mod chaining;
mod drain;
mod epochs;
mod failures;
mod latency;
mod latency_budgets;
mod leaks;
mod limits;
mod many_jobs;
mod micro_batches;
mod pause;
mod priorities;
mod random_graphs;
mod recording;
mod restart;
mod rests;
mod rewire;
mod routing;
mod snapshots;
mod spread;
mod survival;
mod timers;
mod waking;
mod watermarks;
