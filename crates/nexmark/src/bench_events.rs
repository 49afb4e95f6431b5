//! The light events of the benchmarks: only numbers, each a pure function of (seed, index).
//!
//! A benchmark of an engine must not measure the making of strings, so a row carries its numbers and makes a string
//! only when a query reads it. A bid costs two multiplications: a Weyl sequence is folded once by the 64×64→128 bit
//! product of wyrand (Wang Yi, wyhash), and the high bits choose the auction by a second product.

use std::borrow::Cow;

use crate::Schedule;
use crate::random::{GOLDEN, mix64, scale};
use crate::web::Channel;

/// How many auctions bids are spread over unless something else is asked for.
pub const DEFAULT_KEYS: u64 = 10_000;

/// The greatest number of keys: an id takes at most the upper 28 of an event's 64 random bits, and the other fields
/// take lower ones, so that they are independent of it.
pub const KEYS_MAX: u64 = 1 << 28;

/// In the mixed stream of query 8 the events with an index divisible by this are persons, the others auctions.
pub const PERSON_EVERY: u64 = 10;

/// How many keys the side input of query 13 has: bids join on `auction % SIDE_KEYS`.
pub const SIDE_KEYS: u64 = 10_000;

const FIRST_CATEGORY: u64 = 10;
const CATEGORIES: u64 = 5;
const CITIES: [(&str, &str); 10] = [
    ("Phoenix", "AZ"),
    ("Los Angeles", "CA"),
    ("San Francisco", "CA"),
    ("Boise", "ID"),
    ("Portland", "OR"),
    ("Bend", "OR"),
    ("Redmond", "WA"),
    ("Seattle", "WA"),
    ("Kent", "WA"),
    ("Cheyenne", "WY"),
];
