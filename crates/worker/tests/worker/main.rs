//! Workers of one job, with a master by hand.

mod containers;
mod deaths;
mod instances;
mod jobs;
mod lives;
mod mail;
mod master;
mod memory;
mod receipts;
mod rewiring;
mod spread;
