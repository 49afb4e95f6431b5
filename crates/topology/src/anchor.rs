//! What ties a tuple to the spout's tuple that it came from.

use std::hash::{BuildHasher, RandomState};

/// One tuple that a spout wants to know the fate of, with everything that was made from it: a tuple tree.
///
/// Names the spout's instance (16 bits), the place where it keeps account of the tree (24), and how often that place has been used (24),
/// so that what comes late for a tree that is over is told from news of its successor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Root(u64);

impl Root {
    /// How many trees one instance can follow at a time.
    pub(crate) const MOST_SLOTS: usize = 1 << 24;
    /// How many spout instances a topology can have.
    pub(crate) const MOST_TASKS: usize = 1 << 16;
    /// The greatest count of uses.
    const GENERATIONS: u32 = (1 << 24) - 1;

    pub(crate) fn new(task: u16, slot: u32, generation: u32) -> Root {
        let generation = u64::from(generation & Self::GENERATIONS);
        Root(u64::from(task) << 48 | generation << 24 | u64::from(slot) & 0xff_ffff)
    }

    /// From the bits that travelled.
    pub(crate) fn from_bits(bits: u64) -> Root {
        Root(bits)
    }

    /// As bits that may travel.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The spout's instance, counted over all spouts of the topology.
    pub(crate) fn task(self) -> usize {
        (self.0 >> 48) as usize
    }

    pub(crate) fn slot(self) -> usize {
        (self.0 & 0xff_ffff) as usize
    }

    #[cfg(test)]
    fn generation(self) -> u32 {
        (self.0 >> 24) as u32 & Self::GENERATIONS
    }
}

/// That a tuple belongs to a tree, and the id that it has there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Anchor {
    pub(crate) root: Root,
    pub(crate) id: u64,
}

impl Anchor {
    /// As the copy with this salt knows it.
    #[inline]
    pub(crate) fn delivered(self, salt: Salt) -> Anchor {
        Anchor {
            id: salt.apply(self.id),
            ..self
        }
    }
}

/// What tells the copies of one tuple apart, that of each subscription and, where all instances get one, of each instance.
///
/// A tuple is encoded once, with one id; each receiver derives the id of its copy, and the sender knows them all beforehand. So copies are
/// bytes, whoever makes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Salt(u64);

impl Salt {
    /// Of the only copy there is: its id is the tuple's.
    pub(crate) const NONE: Salt = Salt(0);

    /// Of the copy for one subscription, or for one instance there.
    pub(crate) fn of(subscription: usize, instance: Option<u32>) -> Salt {
        let instance = instance.map_or(0, |instance| u64::from(instance) + 1);
        Salt((subscription as u64 + 1) << 32 | instance)
    }

    #[inline]
    pub(crate) fn apply(self, id: u64) -> u64 {
        if self == Salt::NONE {
            id
        } else {
            mix(id.wrapping_add(self.0.wrapping_mul(STEP)))
        }
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scrambles so that each bit depends on all (the finaliser of SplitMix64; Steele, Lea, Flood 2014).
#[inline]
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Random ids, each instance its own sequence.
#[derive(Clone, Debug)]
pub(crate) struct Ids(u64);

impl Ids {
    pub(crate) fn random() -> Ids {
        Ids(RandomState::new().hash_one("tuple ids"))
    }

    /// The same ids each time, for a test that can be run again.
    #[cfg(test)]
    pub(crate) fn of_seed(seed: u64) -> Ids {
        Ids(seed)
    }

    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_names_task_slot_and_generation() {
        let root = Root::new(65_535, 0xff_fffe, 0x100_0003);
        assert_eq!(
            (root.task(), root.slot(), root.generation()),
            (65_535, 0xff_fffe, 3)
        );
        assert_eq!(Root::from_bits(root.bits()), root);
    }

    #[test]
    fn copies_have_ids_of_their_own() {
        let id = Ids::random().draw();
        let mut copies: Vec<u64> = (0..4)
            .flat_map(|subscription| {
                [None, Some(0), Some(1)].map(|instance| Salt::of(subscription, instance).apply(id))
            })
            .collect();
        copies.push(Salt::NONE.apply(id));
        copies.sort_unstable();
        copies.dedup();
        assert_eq!(copies.len(), 13);
    }
}
