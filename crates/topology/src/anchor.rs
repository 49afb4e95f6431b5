//! What ties a tuple to the spout's tuple that it came from.

use std::hash::{BuildHasher, RandomState};

/// One spout instance of a topology: which spout, and which of its instances. It stays the same however spouts are rescaled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Task(u32);

impl Task {
    /// How many bits name the instance.
    const INSTANCE_BITS: u32 = 14;
    /// How many bits a task has.
    const BITS: u32 = 20;
    /// How many spouts a topology can have.
    pub(crate) const MOST_SPOUTS: usize = 1 << (Task::BITS - Task::INSTANCE_BITS);
    /// How many instances each of them can have.
    pub(crate) const MOST_INSTANCES: u32 = 1 << Task::INSTANCE_BITS;

    /// The instance of the spout at this place among the topology's spouts; none beyond what can be named.
    pub(crate) fn new(spout: usize, instance: u32) -> Option<Task> {
        let fits = spout < Task::MOST_SPOUTS && instance < Task::MOST_INSTANCES;
        fits.then_some(Task((spout as u32) << Task::INSTANCE_BITS | instance))
    }

    /// The place of the spout among the topology's spouts.
    pub(crate) fn spout(self) -> usize {
        (self.0 >> Task::INSTANCE_BITS) as usize
    }

    /// Which instance of it.
    pub(crate) fn instance(self) -> u32 {
        self.0 & (Task::MOST_INSTANCES - 1)
    }
}

/// One tuple that a spout wants to know the fate of, with everything that was made from it: a tuple tree.
///
/// Names the spout's instance (20 bits), how often the place in which it keeps account of the tree has been used (20), and that place
/// (24). The count of uses tells what comes late for a tree that is over from news of its successor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Root(u64);

impl Root {
    /// How many trees one instance can follow at a time.
    pub(crate) const MOST_SLOTS: usize = 1 << Root::SLOT_BITS;
    const SLOT_BITS: u32 = 24;
    const GENERATION_BITS: u32 = 20;

    pub(crate) fn new(task: Task, slot: u32, generation: u32) -> Root {
        let generation = u64::from(generation) & ((1 << Self::GENERATION_BITS) - 1);
        let slot = u64::from(slot) & (Self::MOST_SLOTS as u64 - 1);
        let task = u64::from(task.0) << (Self::SLOT_BITS + Self::GENERATION_BITS);
        Root(task | generation << Self::SLOT_BITS | slot)
    }

    /// From the bits that travelled.
    pub(crate) fn from_bits(bits: u64) -> Root {
        Root(bits)
    }

    /// As bits that may travel.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The spout's instance.
    #[inline]
    pub(crate) fn task(self) -> Task {
        Task((self.0 >> (Self::SLOT_BITS + Self::GENERATION_BITS)) as u32)
    }

    #[inline]
    pub(crate) fn slot(self) -> usize {
        (self.0 & (Self::MOST_SLOTS as u64 - 1)) as usize
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
