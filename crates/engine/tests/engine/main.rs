//! Jobs on a real node with real threads, made of small hand-written processors; one file an idea.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

mod keeper;
mod processors;
mod remembering;
mod sites;

mod backpressure;
mod blocking;
mod cancel;
mod chaining;
mod cuts;
mod drain;
mod epochs;
mod failures;
mod latency;
mod leaks;
mod limits;
mod many_jobs;
mod pause;
mod priorities;
mod random_graphs;
mod restart;
mod rests;
mod rewire;
mod routing;
mod spread;
mod survival;
mod timers;
mod waking;
mod watermarks;
