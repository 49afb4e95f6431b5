//! Pipelines over columns give the results of the same pipelines over rows.

mod bids;
mod joins;
mod keyed;
mod random_pipelines;
mod steps;
mod windows;
