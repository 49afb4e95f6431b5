//! Source and sink on a real broker.

mod ground;
mod reading;
mod surviving;
mod writing;
