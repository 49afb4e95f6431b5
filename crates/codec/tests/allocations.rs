//! A test that in a steady state only the values themselves allocate memory.

use std::alloc::System;

use ardea_codec::codec_of;
use ardea_core::{Chunk, Timestamp};
use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[derive(Clone, Serialize, Deserialize)]
enum Seen {
    Bid { auction: u64, price: Option<u64> },
    Word(&'static str, [f32; 4]),
    Nothing,
}

/// Runs without a test runner, whose threads would be counted too.
fn main() {
    in_a_steady_state_nothing_is_allocated();
}

fn in_a_steady_state_nothing_is_allocated() {
    let records = [
        Seen::Bid {
            auction: 1,
            price: Some(2),
        },
        Seen::Word("word", [0.5; 4]),
        Seen::Nothing,
    ];
    let codec = codec_of::<Seen>().unwrap();
    let (mut from, mut to) = (Chunk::default(), Chunk::default());
    let mut payload = Vec::new();
    let mut pass = || {
        let rows = from.rows_or_new::<Seen>(0).unwrap();
        for number in 0..1_000 {
            let time = Timestamp::from_secs(number);
            rows.push(records[number as usize % 3].clone(), time);
        }
        while !from.is_empty() {
            payload.clear();
            let count = codec.encode(&mut from, 5_000, &mut payload).unwrap();
            codec.decode(count, &payload, &mut to).unwrap();
        }
        assert_eq!(to.len(), 1_000);
        to.clear();
    };
    pass();
    pass();
    let region = Region::new(ALLOCATOR);
    for _ in 0..10 {
        pass();
    }
    assert_eq!(region.change().allocations, 0);
}
