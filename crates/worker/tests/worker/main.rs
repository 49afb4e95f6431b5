//! Workers of one job, with a master by hand.

mod containers;
mod deaths;
mod instances;
mod jobs;
mod mail;
mod master;
mod receipts;
mod rewiring;
mod spread;
