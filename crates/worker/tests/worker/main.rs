//! Workers of one job, with a master by hand.

mod containers;
mod jobs;
mod master;
mod spread;
