//! Source and sink on a real server.

mod ground;
mod positions;
mod reading;
mod writing;
