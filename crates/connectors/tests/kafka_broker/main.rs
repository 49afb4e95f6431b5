//! Source and sink on a real broker.

mod damage;
mod dead_letters;
mod driven;
mod gaps;
mod ground;
mod headers;
mod lost_positions;
mod reading;
mod secured;
mod several_topics;
mod strict;
mod surviving;
mod writing;
