//! Workers of one job with a simulated leader.

mod attempts;
mod backchannel;
mod containers;
mod deaths;
mod instances;
mod jobs;
mod master;
mod memory;
mod receipts;
mod rewiring;
mod spread;
