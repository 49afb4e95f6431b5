//! Tests of source and sink with a real server.

mod environment;
mod positions;
mod reading;
mod writing;
