//! Records that leave their process on their way: each job gives the same results with and without.

mod accumulators;
mod detour;
mod program;
mod same_results;
mod sites;
