//! Tests that jobs give the same results if records are exchanged between processes.

mod accumulators;
mod detour;
mod program;
mod same_results;
mod sites;
