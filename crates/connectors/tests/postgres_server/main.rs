//! Tests of source and sink with a real server.

mod bounds;
mod capabilities;
mod encrypted;
mod environment;
mod exactly_once;
mod fenced;
mod names;
mod pooled;
mod reading;
mod replaced;
mod runs;
mod values;
mod writing;
