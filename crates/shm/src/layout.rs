//! The layout of the memory, and the words that the processes exchange through it.
//!
//! All numbers are in the byte order of the machine, because all processes run on it.
//!
//! # Memory
//!
//! | offset | size | content | written by |
//! |---|---|---|---|
//! | 0 | 128 | unused | |
//! | 128 | 8 | tail ([`Tail`]) | producers, by compare-and-swap |
//! | 256 | 8 | head: the position below which all slots are free | consumer |
//! | 384 | 4 | `sleeping`: 1 while the consumer sleeps or is about to | consumer |
//! | 388 | 4 | `arrivals`: futex of the consumer, counts wake-ups | producers |
//! | 392 | 4 | `closures`: counts producers that have closed | producers |
//! | 396 | 4 | `consumer_gone`: 1 when the consumer has closed the ring | consumer |
//! | 512 | 4 | `waiting`: 1 if a producer sleeps or is about to | producers set, consumer clears |
//! | 516 | 4 | `releases`: futex of the producers, counts wake-ups | consumer |
//! | 640 | 64 × 128 | the producers' entries | see below |
//! | 8,832 | 8 × units | marks ([`Mark`]), one for each unit | |
//! | next multiple of 4,096 | 64 × units | slots | |
//!
//! A producer's entry has its claim ([`Claim`], 8 bytes) at offset 0, and at offset 8 four bytes
//! that are 1 when the producer has closed. What different sides write is at least 128 bytes apart.
//!
//! # Positions
//!
//! A position counts units of 64 bytes since the ring was created, modulo 2^48. The unit at
//! position `p` has index `p` modulo the number of units, and belongs to lap `p` divided by the
//! number of units. At 10 GB/s the positions wrap after three weeks; all arithmetic allows for it.
//!
//! # Slots
//!
//! A message takes one slot of whole units: a head of 32 bytes
//! ([`Head`](crate::message::Head)) and the payload. A slot is at most a quarter of the ring and
//! never crosses the ring's end. The units left before the end form a slot of status
//! [`Status::Wrap`].
//!
//! The status of a slot is not beside its head but in the mark of its first unit. Payloads
//! therefore never look like marks, and marks need no cleaning: a mark belongs to the slot that
//! starts there in the present lap exactly if it has that lap's number.

/// The unit of allocation, in bytes.
pub(crate) const UNIT: usize = 64;
/// The number of producers that a ring can have at one time.
pub(crate) const MAX_PRODUCERS: usize = 64;

pub(crate) const TAIL: usize = 128;
pub(crate) const HEAD: usize = 256;
pub(crate) const SLEEPING: usize = 384;
pub(crate) const ARRIVALS: usize = 388;
pub(crate) const CLOSURES: usize = 392;
pub(crate) const CONSUMER_GONE: usize = 396;
pub(crate) const WAITING: usize = 512;
pub(crate) const RELEASES: usize = 516;
pub(crate) const ENTRIES: usize = 640;
pub(crate) const ENTRY: usize = 128;
pub(crate) const CLOSED: usize = 8;
pub(crate) const MARKS: usize = ENTRIES + MAX_PRODUCERS * ENTRY;

const PAGE: usize = 4096;

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// A position in the ring: see the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position(u64);

impl Position {
    const BITS: u32 = 48;

    /// Creates a position; bits above the 48th are ignored.
    #[inline]
    pub(crate) const fn new(units: u64) -> Self {
        Position(units & mask(Self::BITS))
    }

    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) const fn plus(self, units: u64) -> Self {
        Self::new(self.0.wrapping_add(units))
    }

    #[inline]
    pub(crate) const fn minus(self, units: u64) -> Self {
        Self::new(self.0.wrapping_sub(units))
    }

    /// Returns true if the position is `other` or after it, less than half of all positions apart.
    #[inline]
    pub(crate) const fn is_at_or_after(self, other: Position) -> bool {
        self.since(other) < 1 << (Self::BITS - 1)
    }

    /// Returns the number of units from `earlier` to this position.
    #[inline]
    pub(crate) const fn since(self, earlier: Position) -> u64 {
        self.minus(earlier.0).0
    }
}

/// The number of units of a ring: a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingLayout {
    units: u64,
}

impl RingLayout {
    /// Creates a geometry of at least `units` units; the number is rounded up to a power of two.
    pub(crate) const fn new(units: u64) -> Self {
        RingLayout {
            units: units.next_power_of_two(),
        }
    }

    #[inline]
    pub(crate) const fn units(self) -> u64 {
        self.units
    }

    /// Returns the largest slot, in units.
    #[inline]
    pub(crate) const fn max_slot(self) -> u64 {
        self.units / 4
    }

    #[inline]
    pub(crate) const fn index(self, position: Position) -> u64 {
        position.0 & (self.units - 1)
    }

    /// Returns the number of units from `position` to the end of the ring.
    #[inline]
    pub(crate) const fn to_end(self, position: Position) -> u64 {
        self.units - self.index(position)
    }

    #[inline]
    const fn lap(self, position: Position) -> u64 {
        (position.0 >> self.units.trailing_zeros()) & mask(Mark::LAP_BITS)
    }

    /// Returns the offset of the slots in the memory, in bytes.
    pub(crate) const fn slots(self) -> usize {
        (MARKS + 8 * self.units as usize).next_multiple_of(PAGE)
    }

    /// Returns the size of the memory, in bytes.
    pub(crate) const fn bytes(self) -> usize {
        self.slots() + UNIT * self.units as usize
    }
}

/// The status of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// The producer has reserved the slot and not completed it.
    Writing = 1,
    /// The slot has a message.
    Ready = 2,
    /// The consumer has read the slot before an earlier one that was still being written.
    Read = 3,
    /// The slot is empty and ends at the ring's end ("flush" in the paper).
    Wrap = 4,
    /// The slot has no message: its producer gave it up, or died ("other" in the paper).
    Abandoned = 5,
}

impl Status {
    const fn from_bits(bits: u64) -> Option<Self> {
        match bits {
            1 => Some(Status::Writing),
            2 => Some(Status::Ready),
            3 => Some(Status::Read),
            4 => Some(Status::Wrap),
            5 => Some(Status::Abandoned),
            _ => None,
        }
    }
}

/// The mark of a slot, in the word of its first unit.
///
/// | bits | content |
/// |---|---|
/// | 0–2 | status |
/// | 3–9 | number of the producer |
/// | 10–30 | units of the slot |
/// | 31–63 | lap |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) status: Status,
    pub(crate) producer: u8,
    pub(crate) units: u64,
}

impl Mark {
    const PRODUCER_AT: u32 = 3;
    const UNITS_AT: u32 = 10;
    const LAP_AT: u32 = 31;
    const LAP_BITS: u32 = 33;
    /// The number of bits of a slot's size.
    pub(crate) const UNITS_BITS: u32 = 21;

    #[inline]
    pub(crate) const fn word(self, geometry: RingLayout, position: Position) -> u64 {
        self.status as u64
            | (self.producer as u64) << Self::PRODUCER_AT
            | self.units << Self::UNITS_AT
            | geometry.lap(position) << Self::LAP_AT
    }

    /// Returns true if `word` is the mark of a slot that starts at `position`.
    #[inline]
    pub(crate) const fn is_of(word: u64, geometry: RingLayout, position: Position) -> bool {
        // Zero is the word of a unit at which no slot has ever started.
        word >> Self::LAP_AT == geometry.lap(position) && word != 0
    }

    /// Decodes a word; `None` if no process that keeps to the protocol writes it.
    #[inline]
    pub(crate) const fn from_word(
        word: u64,
        geometry: RingLayout,
        position: Position,
    ) -> Option<Self> {
        let Some(status) = Status::from_bits(word & mask(Self::PRODUCER_AT)) else {
            return None;
        };
        let producer = (word >> Self::PRODUCER_AT) & mask(Self::UNITS_AT - Self::PRODUCER_AT);
        let units = (word >> Self::UNITS_AT) & mask(Self::UNITS_BITS);
        let fits = units > 0 && units <= geometry.max_slot() && units <= geometry.to_end(position);
        if producer >= MAX_PRODUCERS as u64 || !fits {
            return None;
        }
        Some(Mark {
            status,
            producer: producer as u8,
            units,
        })
    }
}

/// The tail: the end of the last slot (bits 0–47) and the number of its producer (bits 48–63).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tail {
    pub(crate) position: Position,
    /// Not checked: another process may have written any number.
    pub(crate) producer: u16,
}

impl Tail {
    #[inline]
    pub(crate) const fn word(self) -> u64 {
        self.position.0 | (self.producer as u64) << Position::BITS
    }

    #[inline]
    pub(crate) const fn from_word(word: u64) -> Self {
        Tail {
            position: Position::new(word),
            producer: (word >> Position::BITS) as u16,
        }
    }
}

/// The slot that a producer tries to reserve, or has reserved last: the lower 43 bits of its
/// position, and its units (bits 43–63). Zero units mean that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    start: u64,
    pub(crate) units: u64,
}

impl Claim {
    const START_BITS: u32 = 64 - Mark::UNITS_BITS;

    #[inline]
    pub(crate) const fn new(start: Position, units: u64) -> Self {
        Claim {
            start: start.0 & mask(Self::START_BITS),
            units,
        }
    }

    #[inline]
    pub(crate) const fn word(self) -> u64 {
        self.start | self.units << Self::START_BITS
    }

    #[inline]
    pub(crate) const fn from_word(word: u64) -> Self {
        Claim {
            start: word & mask(Self::START_BITS),
            units: word >> Self::START_BITS,
        }
    }

    /// Returns true if the claimed slot ends at `end`.
    #[inline]
    pub(crate) const fn ends_at(self, end: Position) -> bool {
        self.units > 0 && Self::new(end.minus(self.units), self.units).start == self.start
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_regions_do_not_overlap_and_slots_start_on_a_page() {
        for units in [1 << 10, 1 << 14, 1 << 22] {
            let geometry = RingLayout::new(units);
            assert!(geometry.slots() >= MARKS + 8 * units as usize);
            assert_eq!(geometry.slots() % PAGE, 0);
        }
        assert_eq!(MARKS, 8_832);
        assert_eq!(RingLayout::new(1_000).units(), 1_024);
    }

    #[test]
    fn words_survive_encoding_at_the_limits() {
        let geometry = RingLayout::new(1 << 22);
        let last = Position::new(u64::MAX);
        let position = last.minus(geometry.max_slot() - 1);
        let mark = Mark {
            status: Status::Abandoned,
            producer: 63,
            units: geometry.max_slot(),
        };
        let word = mark.word(geometry, position);
        assert!(Mark::is_of(word, geometry, position));
        assert!(!Mark::is_of(word, geometry, position.plus(1 << 22)));
        assert_eq!(Mark::from_word(word, geometry, position), Some(mark));
        let claim = Claim::new(position, mark.units);
        assert_eq!(Claim::from_word(claim.word()), claim);
        assert!(claim.ends_at(Position::new(0)));
        assert!(!claim.ends_at(Position::new(1)));
        let tail = Tail {
            position: last,
            producer: 63,
        };
        assert_eq!(Tail::from_word(tail.word()), tail);
        assert_eq!(Position::new(3).since(last), 4);
    }

    #[test]
    fn marks_outside_the_bounds_are_refused() {
        let geometry = RingLayout::new(1 << 10);
        let start = Position::new(1_000);
        let with = |producer, units| {
            let status = Status::Ready;
            let mark = Mark {
                status,
                producer,
                units,
            };
            Mark::from_word(mark.word(geometry, start), geometry, start)
        };
        assert!(with(0, 24).is_some());
        assert!(with(0, 25).is_none(), "it crosses the end");
        assert!(with(0, 0).is_none());
        assert!(with(64, 1).is_none());
        let start = Position::new(0);
        let word = Mark {
            status: Status::Ready,
            producer: 0,
            units: 257,
        };
        assert_eq!(
            Mark::from_word(word.word(geometry, start), geometry, start),
            None
        );
        assert_eq!(Mark::from_word(1 << 10, geometry, start), None, "no status");
    }
}
