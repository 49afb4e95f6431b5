//! The set of a thread's ready tasklets.

use crate::shim::{AtomicU64, Ordering};

const BITS: usize = 64;

/// The number of tasklets that a thread can hold.
pub(crate) const MAX_TASKLETS: usize = BITS * BITS * 16;

/// A set of tasklet numbers: any thread adds, one thread takes.
///
/// Two levels of bits: a word of the upper level marks the words of the lower level that may be
/// non-zero, so that a thread with 10,000 idle tasklets reads a few words. Adding is two atomic
/// `or`s, wait-free.
///
/// **No lost wake-ups.** A producer publishes its message and then sets the bits, both
/// read-modify-writes with release. The thread takes the bits with acquire and then checks for
/// messages. If its take comes after the set, it sees the message; if before, the bit stays for the
/// next take. The upper bit is set after the lower and taken before it: the same argument applies.
#[derive(Debug)]
pub(crate) struct ReadySet {
    upper: Box<[AtomicU64]>,
    lower: Box<[AtomicU64]>,
}

impl ReadySet {
    pub(crate) fn new(tasklets: usize) -> Self {
        let lower = tasklets.div_ceil(BITS).max(1);
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        ReadySet {
            upper: zeros(lower.div_ceil(BITS)),
            lower: zeros(lower),
        }
    }

    /// Adds a tasklet.
    #[inline]
    pub(crate) fn add(&self, tasklet: u32) {
        let word = tasklet as usize / BITS;
        // SeqCst: these are also ordered against the thread's `sleeping` flag, see parker.rs.
        self.lower[word].fetch_or(1 << (tasklet as usize % BITS), Ordering::SeqCst);
        self.upper[word / BITS].fetch_or(1 << (word % BITS), Ordering::SeqCst);
    }

    /// Returns true if the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.upper
            .iter()
            .all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Takes all tasklets, in order, appending them to `taken`.
    pub(crate) fn take(&self, taken: &mut Vec<u32>) {
        for (index, upper) in self.upper.iter().enumerate() {
            if upper.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for word in ones(upper.swap(0, Ordering::SeqCst)) {
                let word = index * BITS + word;
                for bit in ones(self.lower[word].swap(0, Ordering::SeqCst)) {
                    taken.push((word * BITS + bit) as u32);
                }
            }
        }
    }
}

/// A set of tasklet numbers: the owning thread writes, any thread reads.
#[derive(Debug)]
pub(crate) struct TaskletSet(Box<[AtomicU64]>);

impl TaskletSet {
    pub(crate) fn new(tasklets: usize) -> Self {
        let words = tasklets.div_ceil(BITS).max(1);
        TaskletSet((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn insert(&self, tasklet: u32) {
        let (word, bit) = self.place(tasklet);
        word.fetch_or(bit, Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, tasklet: u32) {
        let (word, bit) = self.place(tasklet);
        word.fetch_and(!bit, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn contains(&self, tasklet: u32) -> bool {
        let (word, bit) = self.place(tasklet);
        word.load(Ordering::SeqCst) & bit != 0
    }

    #[inline]
    fn place(&self, tasklet: u32) -> (&AtomicU64, u64) {
        (
            &self.0[tasklet as usize / BITS],
            1 << (tasklet as usize % BITS),
        )
    }
}

/// Returns the positions of the set bits of a word, lowest first.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            bit
        })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_is_added_is_taken_once_in_order() {
        let set = ReadySet::new(10_000);
        for tasklet in [9_999, 0, 64, 4_096, 63, 64] {
            set.add(tasklet);
        }
        let mut taken = Vec::new();
        set.take(&mut taken);
        assert_eq!(taken, [0, 63, 64, 4_096, 9_999]);
        assert!(set.is_empty());
    }

    #[test]
    fn nothing_added_from_other_threads_is_lost() {
        let set = Arc::new(ReadySet::new(256));
        let adders: Vec<_> = (0..4u32)
            .map(|part| {
                let set = Arc::clone(&set);
                std::thread::spawn(move || (part * 64..(part + 1) * 64).for_each(|t| set.add(t)))
            })
            .collect();
        let mut taken = Vec::new();
        while taken.len() < 256 {
            set.take(&mut taken);
        }
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, (0..256).collect::<Vec<_>>());
    }
}
