//! Tests of source and sink with a real broker.

mod damage;
mod dead_letters;
mod driven;
mod environment;
mod formats;
mod gaps;
mod headers;
mod lost_positions;
mod reading;
#[cfg(all(feature = "avro", feature = "protobuf"))]
mod registry;
mod secured;
mod several_topics;
mod strict;
mod surviving;
mod writing;
