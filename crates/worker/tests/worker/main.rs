//! Workers of one job, with a master by hand.

mod containers;
mod deaths;
mod jobs;
mod master;
mod rewiring;
mod spread;
