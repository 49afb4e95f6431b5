//! Rings of one member, compared with a queue of the standard library.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::PartitionId;
use ardea_grid::protocol::{
    Answer, MapId, Member, MemberId, NoFunctions, Node, NodeAction, NodeConfig, NodeEvent,
    Operation, Outcome, WhenFull,
};
use bytes::Bytes;
use proptest::prelude::*;

const NOW: Duration = Duration::from_millis(1);

struct Ring {
    node: Node,
    asked: u64,
}

impl Ring {
    fn new() -> Self {
        let me = Member::new(MemberId(1), "host-a", "10.0.0.1:7000");
        let mut node = Node::found(me, NodeConfig::default(), Arc::new(NoFunctions));
        node.on(NOW, NodeEvent::Tick);
        Ring { node, asked: 0 }
    }

    fn id() -> MapId {
        MapId::of_ring("berths")
    }

    fn ask(&mut self, operation: Operation) -> Answer {
        self.asked += 1;
        let partition = PartitionId::of_canonical(b"berths");
        let ask = NodeEvent::Ask(self.asked, partition, operation);
        match self.node.on(NOW, ask).pop() {
            Some(NodeAction::Ended(number, Outcome::Answered(answer))) if number == self.asked => {
                answer
            }
            other => panic!("{other:?}"),
        }
    }

    fn append(&mut self, value: u64, capacity: u64, full: WhenFull) -> Option<u64> {
        let append = Operation::Append {
            ring: Ring::id(),
            value: bytes_of(value),
            capacity,
            full,
        };
        match self.ask(append) {
            Answer::Place(place) => place,
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, from: u64, bytes: u32) -> (u64, Vec<Bytes>, u64) {
        let ring = Ring::id();
        match self.ask(Operation::Read { ring, from, bytes }) {
            Answer::Run { from, values, next } => (from, values, next),
            other => panic!("{other:?}"),
        }
    }
}

fn bytes_of(value: u64) -> Bytes {
    Bytes::copy_from_slice(&value.to_le_bytes())
}

proptest! {
    #[test]
    fn values_go_in_the_order_in_which_they_came(
        steps in prop::collection::vec((0u8..4, 1u64..6, 0u64..20), 0..120),
    ) {
        let (mut ring, mut there) = (Ring::new(), VecDeque::new());
        let mut next = 0;
        for (step, capacity, from) in steps {
            match step {
                0 => {
                    let place = ring.append(next, capacity, WhenFull::Refuse);
                    let has_room = (there.len() as u64) < capacity;
                    prop_assert_eq!(place, has_room.then_some(next));
                    if has_room {
                        there.push_back(next);
                        next += 1;
                    }
                }
                1 => {
                    prop_assert_eq!(ring.append(next, capacity, WhenFull::Overwrite), Some(next));
                    there.push_back(next);
                    next += 1;
                    while there.len() as u64 > capacity {
                        there.pop_front();
                    }
                }
                2 => {
                    let taken = there.pop_front().map(bytes_of);
                    prop_assert_eq!(ring.ask(Operation::Take(Ring::id())), Answer::Value(taken));
                }
                _ => {
                    let (first, values, end) = ring.read(from, 20);
                    let oldest = there.front().copied().unwrap_or(next);
                    prop_assert_eq!((first, end), (from.clamp(oldest, next), next));
                    let left = there.iter().filter(|value| **value >= from);
                    let few: Vec<Bytes> = left.take(2).map(|value| bytes_of(*value)).collect();
                    prop_assert_eq!(values, few);
                }
            }
            // One additional entry stores the bounds.
            let entries = there.len() as u64 + u64::from(next > 0);
            prop_assert_eq!(ring.ask(Operation::Count(Ring::id())), Answer::Count(entries));
        }
    }
}

#[test]
fn a_ring_without_room_takes_nothing() {
    let mut ring = Ring::new();
    for full in [WhenFull::Refuse, WhenFull::Overwrite] {
        assert_eq!(ring.append(1, 0, full), None);
    }
    assert_eq!(ring.read(7, 100), (0, Vec::new(), 0));
}

#[test]
fn a_smaller_capacity_lets_the_oldest_go_little_by_little() {
    let mut ring = Ring::new();
    for value in 0..200 {
        ring.append(value, 1_000, WhenFull::Overwrite);
    }
    for value in 200..210 {
        ring.append(value, 10, WhenFull::Overwrite);
    }
    let (from, values, next) = ring.read(0, u32::MAX);
    assert_eq!((from, values.len(), next), (200, 10, 210));
}
