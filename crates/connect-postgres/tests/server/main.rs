//! Source and sink on a real server.

mod encrypted;
mod exactly_once;
mod fenced;
mod ground;
mod reading;
mod writing;
