//! The ways in which one test is run: how records come, and how much room the outbox has.

use std::fmt;
use std::rc::Rc;

use crate::random::SplitMix64;

/// How the records of an input are cut into chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Batching {
    OneByOne,
    Random,
    AllAtOnce,
}

/// How much room a processor finds in its outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Plenty,
    OneSlot,
    /// No room at every other call, starting with the first.
    EveryOther,
    /// Random room, none included; what was written is not always moved on.
    Random,
}

/// In which order several inputs are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Each input to its end, then the next.
    Listed,
    /// One batch of each in turn.
    InTurn,
    /// At random.
    Drawn,
    /// One event of each of these inputs.
    Given(Rc<[usize]>),
}

/// One way to run a test. The same variant of the same test always runs the same.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) batching: Batching,
    pub(crate) room: Room,
    pub(crate) order: Order,
    pub(crate) several_inputs: bool,
    pub(crate) seed: u64,
    /// Cancels the run before this call, counted from zero, `init` not included.
    pub(crate) stop_before: Option<u64>,
    /// Whether the processor hands over cuts, dies and comes back.
    pub(crate) fate: Fate,
}

/// What becomes of a processor on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Fate {
    /// It lives to the end.
    #[default]
    OneLife,
    /// It hands over cuts, dies, and another goes on; a life takes about so many calls.
    Lives(u64),
    /// Twice others go on with what it remembers, as so many instances.
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
            Room::Plenty => ", an outbox with plenty of room",
            Room::OneSlot => ", an outbox with room for one record",
            Room::EveryOther => ", an outbox that refuses every other call",
            Room::Random => ", an outbox with random room",
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
        match self.fate {
            Fate::OneLife => {}
            Fate::Lives(_) => f.write_str(", dying now and then and coming back")?,
            Fate::Rescaled(counts) => write!(f, ", as {counts:?} instances one after the other")?,
        }
        write!(f, " (seed {:#x})", self.seed)
    }
}

/// All ways in which a test is run to its end.
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
            for room in [Room::Plenty, Room::OneSlot, Room::EveryOther, Room::Random] {
                // Only what is drawn differs from one repetition to the next.
                let repeats = if room == Room::Random || batching == Batching::Random {
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
                        fate: Fate::OneLife,
                    });
                }
            }
        }
    }
    variants
}

/// The room of each call of one run.
#[derive(Debug)]
pub(crate) struct RoomSchedule {
    room: Room,
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

    /// How many records each lane may hold during the next call.
    pub(crate) fn next_budget(&mut self) -> usize {
        self.calls += 1;
        match self.room {
            Room::Plenty => self.plenty,
            Room::OneSlot => 1,
            Room::EveryOther => {
                if self.calls.is_multiple_of(2) {
                    self.plenty
                } else {
                    0
                }
            }
            Room::Random => match self.random.below(4) {
                0 => 0,
                1 => 1,
                2 => 1 + self.random.below(4),
                _ => 1 + self.random.below(self.plenty),
            },
        }
    }

    /// A number below this one.
    pub(crate) fn draw_below(&mut self, most: usize) -> usize {
        self.random.below(most)
    }

    /// Whether what a lane holds is moved on after this call.
    pub(crate) fn moves_on(&mut self) -> bool {
        self.room != Room::Random || self.random.coin()
    }
}
