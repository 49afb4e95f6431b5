//! Workers that talk to each other, over every transport, well and badly.

mod conformance;
mod cuts;
mod pair;
mod strangers;
mod streams;
mod wakes;
mod whole;
