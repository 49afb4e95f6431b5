//! Anchors, which link a tuple to the spout's tuple that it was derived from.

use std::hash::{BuildHasher, RandomState};

/// The id of a spout instance: the spout and the instance number. A rescale does not change it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Task(u32);

impl Task {
    /// The number of bits of the instance number.
    const INSTANCE_BITS: u32 = 14;
    /// The number of bits of a task.
    const BITS: u32 = 20;
    /// The maximum number of spouts of a topology.
    pub(crate) const MOST_SPOUTS: usize = 1 << (Task::BITS - Task::INSTANCE_BITS);
    /// The maximum number of instances of a spout.
    pub(crate) const MOST_INSTANCES: u32 = 1 << Task::INSTANCE_BITS;

    /// Creates the task of an instance of the spout at this position; `None` beyond the maximum
    /// numbers.
    pub(crate) fn new(spout: usize, instance: u32) -> Option<Task> {
        let fits = spout < Task::MOST_SPOUTS && instance < Task::MOST_INSTANCES;
        fits.then_some(Task((spout as u32) << Task::INSTANCE_BITS | instance))
    }

    /// Returns the position of the spout among the topology's spouts.
    pub(crate) fn spout(self) -> usize {
        (self.0 >> Task::INSTANCE_BITS) as usize
    }

    /// Returns the instance number.
    pub(crate) fn instance(self) -> u32 {
        self.0 & (Task::MOST_INSTANCES - 1)
    }
}

/// The id of a tuple tree: a tracked tuple of a spout with all tuples derived from it.
///
/// Contains the spout instance (20 bits), the generation of the slot with its account (20), and the
/// slot (24). The generation distinguishes late acks for a closed tree from acks for the next tree
/// in its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Root(u64);

impl Root {
    /// The maximum number of open trees of one instance.
    pub(crate) const MOST_SLOTS: usize = 1 << Root::SLOT_BITS;
    const SLOT_BITS: u32 = 24;
    const GENERATION_BITS: u32 = 20;

    pub(crate) fn new(task: Task, slot: u32, generation: u32) -> Root {
        let generation = u64::from(generation) & ((1 << Self::GENERATION_BITS) - 1);
        let slot = u64::from(slot) & (Self::MOST_SLOTS as u64 - 1);
        let task = u64::from(task.0) << (Self::SLOT_BITS + Self::GENERATION_BITS);
        Root(task | generation << Self::SLOT_BITS | slot)
    }

    /// Creates the id from received bits.
    pub(crate) fn from_bits(bits: u64) -> Root {
        Root(bits)
    }

    /// Returns the id as bits, for transfer.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the spout instance.
    #[inline]
    pub(crate) fn task(self) -> Task {
        Task((self.0 >> (Self::SLOT_BITS + Self::GENERATION_BITS)) as u32)
    }

    #[inline]
    pub(crate) fn slot(self) -> usize {
        (self.0 & (Self::MOST_SLOTS as u64 - 1)) as usize
    }
}

/// The membership of a tuple in a tree: the tree, and the tuple's id in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Anchor {
    pub(crate) root: Root,
    pub(crate) id: u64,
}

impl Anchor {
    /// Returns the anchor of the copy with this salt.
    #[inline]
    pub(crate) fn delivered(self, salt: Salt) -> Anchor {
        Anchor {
            id: salt.apply(self.id),
            ..self
        }
    }
}

/// A number that distinguishes the copies of a tuple: one per subscription, or one per instance if
/// all instances of a subscriber get a copy.
///
/// A tuple is encoded once, with one id. Each receiver derives the id of its copy, and the sender
/// can compute all these ids beforehand. Copies are therefore identical bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Salt(u64);

impl Salt {
    /// The salt of the only copy of a tuple. The id of the copy is that of the tuple.
    pub(crate) const NONE: Salt = Salt(0);

    /// Returns the salt of the copy for a subscription, or for one instance of the subscriber.
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

/// Mixes the bits so that each depends on all (the finaliser of SplitMix64; Steele, Lea, Flood
/// 2014).
#[inline]
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A generator of random ids, with a separate sequence per instance.
#[derive(Clone, Debug)]
pub(crate) struct Ids(u64);

impl Ids {
    pub(crate) fn random() -> Ids {
        Ids(RandomState::new().hash_one("tuple ids"))
    }

    /// Creates a reproducible sequence for tests.
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
    fn a_root_names_the_spout_its_instance_and_the_place() {
        let task = Task::new(Task::MOST_SPOUTS - 1, Task::MOST_INSTANCES - 1).unwrap();
        assert_eq!((task.spout(), task.instance()), (63, 16_383));
        let root = Root::new(task, 0xff_fffe, 0x100_0003);
        assert_eq!((root.task(), root.slot()), (task, 0xff_fffe));
        assert_eq!(root, Root::new(task, 0xff_fffe, 3), "generations go round");
        assert_eq!(Root::from_bits(root.bits()), root);
        let other = Task::new(3, 7).unwrap();
        assert_ne!(Root::new(other, 0xff_fffe, 3), root);
        assert_eq!(Task::new(Task::MOST_SPOUTS, 0), None);
        assert_eq!(Task::new(0, Task::MOST_INSTANCES), None);
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
