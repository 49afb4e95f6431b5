//! Source and sink on a real server.

mod bounds;
mod capabilities;
mod encrypted;
mod exactly_once;
mod fenced;
mod ground;
mod names;
mod pooled;
mod reading;
mod replaced;
mod runs;
mod values;
mod writing;
