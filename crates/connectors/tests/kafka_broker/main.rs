//! Tests of source and sink with a real broker.

mod damage;
mod dead_letters;
mod driven;
mod environment;
mod gaps;
mod headers;
mod lost_positions;
mod reading;
mod secured;
mod several_topics;
mod strict;
mod surviving;
mod writing;
