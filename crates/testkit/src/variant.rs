//! The variants of a test: batching of records, outbox capacity and order of inputs.

use std::fmt;
use std::rc::Rc;

use crate::random::SplitMix64;

/// The division of an input's records into chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Batching {
    OneByOne,
    Random,
    AllAtOnce,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutboxCapacity {
    Plenty,
    OneSlot,
    /// No room at every other call, starting with the first.
    EveryOther,
    /// Random room, including none; written records are not always moved on.
    Random,
}

/// The order in which several inputs are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Each input to its end, then the next.
    Listed,
    /// One batch of each input, round-robin.
    InTurn,
    /// At random.
    Drawn,
    /// One event of each of these inputs.
    Given(Rc<[usize]>),
}

/// One way to run a test. The same variant of the same test always makes the same calls.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) batching: Batching,
    pub(crate) room: OutboxCapacity,
    pub(crate) order: Order,
    pub(crate) several_inputs: bool,
    pub(crate) seed: u64,
    /// The call before which the run is cancelled, counted from zero without `init`.
    pub(crate) stop_before: Option<u64>,
    /// The failures in this run.
    pub(crate) failure_mode: FailureMode,
}

/// The failures and restores of a processor in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum FailureMode {
    #[default]
    NoFailure,
    /// Snapshots, failures and restores; a run without failures takes about this many calls.
    Failures(u64),
    /// The state is restored twice, with these numbers of instances.
    Rescaled([u32; 3]),
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.batching {
            Batching::OneByOne => "records one by one",
            Batching::Random => "records in batches of random sizes",
            Batching::AllAtOnce => "all records at once",
        })?;
        f.write_str(match self.room {
            OutboxCapacity::Plenty => ", an outbox with plenty of room",
            OutboxCapacity::OneSlot => ", an outbox with room for one record",
            OutboxCapacity::EveryOther => ", an outbox that refuses every other call",
            OutboxCapacity::Random => ", an outbox with random room",
        })?;
        if self.several_inputs {
            f.write_str(match self.order {
                Order::Listed => ", one input after the other",
                Order::InTurn => ", inputs in turn",
                Order::Drawn => ", inputs at random",
                Order::Given(_) => ", inputs interleaved as given",
            })?;
        }
        if let Some(call) = self.stop_before {
            write!(f, ", cancelled before call {call}")?;
        }
        match self.failure_mode {
            FailureMode::NoFailure => {}
            FailureMode::Failures(_) => f.write_str(", with failures and restores")?,
            FailureMode::Rescaled(counts) => {
                write!(f, ", as {counts:?} instances one after the other")?
            }
        }
        write!(f, " (seed {:#x})", self.seed)
    }
}

/// Returns all variants of a test without cancellations.
pub(crate) fn matrix(
    inputs: usize,
    given: Option<Rc<[usize]>>,
    seed: u64,
    drawn: usize,
) -> Vec<Variant> {
    let orders = match given {
        Some(given) => vec![Order::Given(given)],
        None if inputs < 2 => vec![Order::Listed],
        None => [Order::Listed, Order::InTurn]
            .into_iter()
            .chain(std::iter::repeat_n(Order::Drawn, drawn))
            .collect(),
    };
    let batchings = if inputs == 0 {
        vec![Batching::AllAtOnce]
    } else {
        vec![Batching::OneByOne, Batching::Random, Batching::AllAtOnce]
    };
    let mut seeds = SplitMix64::new(seed);
    let mut variants = Vec::new();
    for order in &orders {
        for &batching in &batchings {
            for room in [
                OutboxCapacity::Plenty,
                OutboxCapacity::OneSlot,
                OutboxCapacity::EveryOther,
                OutboxCapacity::Random,
            ] {
                // Repetitions differ only in random choices.
                let repeats = if room == OutboxCapacity::Random || batching == Batching::Random {
                    3
                } else {
                    1
                };
                for _ in 0..repeats {
                    variants.push(Variant {
                        batching,
                        room,
                        order: order.clone(),
                        several_inputs: inputs > 1,
                        seed: seeds.next(),
                        stop_before: None,
                        failure_mode: FailureMode::NoFailure,
                    });
                }
            }
        }
    }
    variants
}

/// The outbox room for each call of one run.
#[derive(Debug)]
pub(crate) struct RoomSchedule {
    room: OutboxCapacity,
    calls: u64,
    random: SplitMix64,
    plenty: usize,
}

impl RoomSchedule {
    pub(crate) fn new(variant: &Variant, plenty: usize) -> Self {
        RoomSchedule {
            room: variant.room,
            calls: 0,
            random: SplitMix64::new(!variant.seed),
            plenty,
        }
    }

    /// Returns the number of records that each lane may hold during the next call.
    pub(crate) fn next_budget(&mut self) -> usize {
        self.calls += 1;
        match self.room {
            OutboxCapacity::Plenty => self.plenty,
            OutboxCapacity::OneSlot => 1,
            OutboxCapacity::EveryOther => {
                if self.calls.is_multiple_of(2) {
                    self.plenty
                } else {
                    0
                }
            }
            OutboxCapacity::Random => match self.random.below(4) {
                0 => 0,
                1 => 1,
                2 => 1 + self.random.below(4),
                _ => 1 + self.random.below(self.plenty),
            },
        }
    }

    /// Returns a random number below `most`.
    pub(crate) fn random_below(&mut self, most: usize) -> usize {
        self.random.below(most)
    }

    /// Returns true if the records of a lane are moved on after this call.
    pub(crate) fn moves_on(&mut self) -> bool {
        self.room != OutboxCapacity::Random || self.random.random_bool()
    }
}
