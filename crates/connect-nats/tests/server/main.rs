//! Source and sink on a real server.

mod ground;
mod reading;
mod writing;
