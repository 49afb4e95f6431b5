//! Workers of one job, with a master by hand.

mod containers;
mod deaths;
mod jobs;
mod mail;
mod master;
mod rewiring;
mod spread;
