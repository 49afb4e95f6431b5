//! Source and sink on a real server.

mod encrypted;
mod exactly_once;
mod ground;
mod reading;
mod writing;
