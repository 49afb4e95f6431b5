//! Workers that talk to each other, over every transport, well and badly.

mod conformance;
mod cuts;
mod far;
mod pair;
mod strangers;
mod streams;
mod tls;
mod wakes;
mod whole;
