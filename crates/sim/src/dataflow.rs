//! The inputs of a simulated instance, which are aligned at barriers.

use std::collections::{BTreeMap, VecDeque};

use ardea_core::Epoch;

/// An item of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<R> {
    /// A record.
    Record(R),
    /// The barrier at the end of an epoch.
    Marker(Epoch),
    /// The end of the stream.
    Done,
}

/// A position that all inputs have reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputAlignment {
    /// The barrier of an epoch.
    Barrier(Epoch),
    /// The end of all inputs.
    End,
}

#[derive(Debug)]
struct Input<R> {
    queue: VecDeque<Item<R>>,
    marker: Option<Epoch>,
    is_held: bool,
    is_done: bool,
}

/// The inputs of an instance by sender.
#[derive(Debug)]
pub struct InputGate<R> {
    inputs: BTreeMap<u32, Input<R>>,
    /// True if an input waits at a barrier for the other inputs.
    is_aligned: bool,
}

impl<R> InputGate<R> {
    pub fn new(senders: impl Iterator<Item = u32>, is_aligned: bool) -> Self {
        let input = |sender| {
            let input = Input {
                queue: VecDeque::new(),
                marker: None,
                is_held: false,
                is_done: false,
            };
            (sender, input)
        };
        InputGate {
            inputs: senders.map(input).collect(),
            is_aligned,
        }
    }

    pub fn push(&mut self, from: u32, item: Item<R>) {
        if let Some(input) = self.inputs.get_mut(&from) {
            input.queue.push_back(item);
        }
    }

    /// Returns the next item of the inputs that are not blocked.
    pub fn next(&mut self) -> Option<Item<R>> {
        let mut open = self.inputs.values_mut().filter(|input| !input.is_held);
        open.find_map(|input| {
            let item = input.queue.pop_front()?;
            match item {
                Item::Marker(epoch) => {
                    input.marker = Some(epoch);
                    input.is_held = self.is_aligned;
                }
                Item::Done => input.is_done = true,
                Item::Record(_) => {}
            }
            Some(item)
        })
    }

    /// Returns the barrier that all open inputs have reached, and unblocks the inputs there.
    pub fn reached(&mut self) -> Option<InputAlignment> {
        let open = self.inputs.values().filter(|input| !input.is_done);
        let marker = |input: &Input<R>| input.marker.filter(|_| input.is_held || !self.is_aligned);
        let Some(first) = open.map(marker).min() else {
            return Some(InputAlignment::End);
        };
        let epoch = first?;
        let there = self.inputs.values_mut();
        for input in there.filter(|input| input.marker == Some(epoch)) {
            input.is_held = false;
        }
        Some(InputAlignment::Barrier(epoch))
    }

    /// Returns the blocked inputs and their barriers.
    pub fn held(&self) -> Vec<(u32, Option<Epoch>)> {
        let held = self.inputs.iter().filter(|(_, input)| input.is_held);
        held.map(|(from, input)| (*from, input.marker)).collect()
    }
}
