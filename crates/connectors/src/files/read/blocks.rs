//! The blocks of a large file, which the instances of a source share.

use ardea_core::Instance;
use serde::{Deserialize, Serialize};

/// The default size of a block.
pub(in crate::files) const BLOCK_BYTES: u64 = 1 << 20;

/// The minimum number of blocks per instance of a file that is shared.
const MIN_BLOCKS: u64 = 2;

/// The maximum number of strides of a file after a rescale.
const MAX_STRIDES: u64 = 256;

/// The blocks of a file that an instance has not read. A line belongs to the block that contains
/// its first byte.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FileBlocks {
    pub block_bytes: u64,
    /// The length of the file when it was divided. Lines that begin after it are not read.
    pub end: u64,
    /// True if the file is compressed. Blocks then contain members, and `from` is the start of the
    /// block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_packed: bool,
    /// The instance reads the lowest block of all strides first, so that the order of the file is
    /// nearly kept.
    pub strides: Vec<BlockStride>,
}

/// Every n-th block of a file from one on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BlockStride {
    /// The number of the first block, from zero.
    pub block: u64,
    /// The distance between two blocks.
    pub step: u64,
    /// The offset of the next line: at or after the end of the block if the block is finished. The
    /// start of the block means its first line, which may begin later.
    pub from: u64,
    /// In a compressed file, the number of bytes before that line in the content of the block.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inner: u64,
    /// The last bytes before that line, if this block was begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<u8>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl BlockStride {
    fn new(block: u64, step: u64, block_bytes: u64) -> Self {
        BlockStride {
            block,
            step,
            from: block.saturating_mul(block_bytes),
            inner: 0,
            before: Vec::new(),
        }
    }

    /// Returns the stride after its first block.
    pub fn next(&self, block_bytes: u64) -> Self {
        let block = self.block.saturating_add(self.step.max(1));
        BlockStride::new(block, self.step, block_bytes)
    }

    /// Divides the stride into `parts` with distant blocks.
    fn divide(self, parts: u64, block_bytes: u64) -> impl Iterator<Item = BlockStride> {
        let (block, old_step) = (self.block, self.step);
        let step = old_step.saturating_mul(parts);
        let others = (1..parts).map(move |part| {
            let block = block.saturating_add(old_step.saturating_mul(part));
            BlockStride::new(block, step, block_bytes)
        });
        [BlockStride { step, ..self }].into_iter().chain(others)
    }
}

impl FileBlocks {
    /// Returns the share of an instance of a file that has `end` bytes; `None` if the file is too
    /// small to be shared.
    pub fn of(instance: Instance, block_bytes: u64, end: u64) -> Option<Self> {
        let whole = BlockStride::new(0, 1, block_bytes);
        FileBlocks::rest_of(whole, instance.parallelism, block_bytes, end)?.deal(instance)
    }

    /// Returns the blocks of a compressed file.
    pub fn packed(mut self) -> Self {
        self.is_packed = true;
        self
    }

    /// Returns the rest of a file that one instance has read up to a position; `None` if the rest
    /// is too small to be shared by `instances`.
    pub fn after(
        offset: u64,
        before: Vec<u8>,
        instances: u32,
        block_bytes: u64,
        end: u64,
    ) -> Option<Self> {
        let rest = BlockStride {
            block: offset / block_bytes,
            step: 1,
            from: offset,
            inner: 0,
            before,
        };
        FileBlocks::rest_of(rest, instances, block_bytes, end)
    }

    /// Returns the minimum length of a file that `instances` share.
    pub fn least_shared(instances: u32, block_bytes: u64) -> u64 {
        block_bytes.saturating_mul(MIN_BLOCKS * u64::from(instances))
    }

    fn rest_of(rest: BlockStride, instances: u32, block_bytes: u64, end: u64) -> Option<Self> {
        let least = FileBlocks::least_shared(instances, block_bytes);
        let is_shared = instances > 1 && end.saturating_sub(rest.from) >= least;
        is_shared.then(|| FileBlocks {
            block_bytes,
            end,
            is_packed: false,
            strides: vec![rest],
        })
    }

    /// Adds the unread blocks of another instance.
    pub fn add(&mut self, other: FileBlocks) {
        self.end = self.end.max(other.end);
        self.strides.extend(other.strides);
    }

    /// Divides the unread blocks of all instances, and returns the share of one; `None` if nothing
    /// is left for it.
    pub fn deal(mut self, instance: Instance) -> Option<Self> {
        let (block_bytes, end) = (self.block_bytes, self.end);
        self.skip_finished();
        self.strides.retain(|stride| stride.from < end);
        let (count, instances) = (self.strides.len() as u64, u64::from(instance.parallelism));
        // With this division each instance has the same number of strides.
        let parts = match count {
            0 => 1,
            _ => instances / gcd(instances, count),
        };
        if count < instances || count.saturating_mul(parts) <= MAX_STRIDES {
            let strides = self.strides.into_iter();
            let divided = strides.flat_map(|stride| stride.divide(parts, block_bytes));
            self.strides = divided.filter(|stride| stride.from < end).collect();
        }
        self.strides.sort_unstable_by_key(|stride| stride.block);
        let strides = (0..).zip(self.strides);
        let own = strides.filter(|(number, _)| instance.owns(*number));
        self.strides = own.map(|(_, stride)| stride).collect();
        (!self.strides.is_empty()).then_some(self)
    }

    /// Moves strides behind blocks that are finished.
    pub fn skip_finished(&mut self) {
        for stride in &mut self.strides {
            if stride.from
                >= self
                    .block_bytes
                    .saturating_mul(stride.block.saturating_add(1))
            {
                *stride = stride.next(self.block_bytes);
            }
        }
    }

    /// Returns the index of the stride with the lowest block; `None` if no block is left.
    pub fn lowest(&self) -> Option<usize> {
        let strides = self.strides.iter().enumerate();
        let left = strides.filter(|(_, stride)| stride.from < self.end);
        let lowest = left.min_by_key(|(_, stride)| stride.block)?;
        Some(lowest.0)
    }

    /// Returns the offset from which bytes are read next, after the block of the stride `current`;
    /// `None` at the end.
    pub fn next_start(&self, current: usize) -> Option<u64> {
        let strides = self.strides.iter().enumerate();
        let starts = strides.map(|(index, stride)| match index == current {
            true => stride.next(self.block_bytes).from,
            false => stride.from,
        });
        starts.filter(|start| *start < self.end).min()
    }

    /// Returns the offset of the next line. In a compressed file it only tells different positions
    /// apart.
    pub fn start(&self) -> u64 {
        let lowest = self.lowest().and_then(|at| self.strides.get(at));
        lowest.map_or(self.end, |stride| stride.from.saturating_add(stride.inner))
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    match other {
        0 => one,
        _ => gcd(other, one % other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 10;

    fn instances(parallelism: u32) -> impl Iterator<Item = Instance> {
        (0..parallelism).map(move |index| Instance { index, parallelism })
    }

    /// Reads up to `count` blocks.
    fn read(blocks: &mut FileBlocks, count: usize) -> Vec<u64> {
        let mut read = Vec::new();
        while read.len() < count
            && let Some(at) = blocks.lowest()
        {
            read.push(blocks.strides[at].block);
            blocks.strides[at] = blocks.strides[at].next(BYTES);
        }
        read
    }

    proptest! {
        #[test]
        fn each_block_is_read_once_whatever_the_numbers_of_instances(
            count in 0u64..200,
            attempts in prop::collection::vec((1u32..6, prop::collection::vec(0usize..30, 6)), 1..5),
        ) {
            let end = count * BYTES;
            let whole = FileBlocks { block_bytes: BYTES, end, is_packed: false, strides: vec![BlockStride::new(0, 1, BYTES)] };
            let (mut left, mut all) = (vec![whole], Vec::new());
            for (parallelism, quotas) in attempts {
                let mut merged = left.pop();
                for other in left.drain(..) {
                    merged.as_mut().unwrap().add(other);
                }
                let Some(merged) = merged else { break };
                for (instance, quota) in instances(parallelism).zip(quotas) {
                    let Some(mut own) = merged.clone().deal(instance) else { continue };
                    let read = read(&mut own, quota);
                    prop_assert!(read.is_sorted());
                    all.extend(read);
                    left.push(own);
                }
            }
            left.iter_mut().for_each(|own| all.extend(read(own, usize::MAX)));
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..count));
        }
    }

    #[test]
    fn a_share_is_divided_evenly_after_a_rescale() {
        let counts = |before: u32, after: u32| -> Vec<usize> {
            let mut shares = instances(before).map(|it| FileBlocks::of(it, BYTES, 6_000).unwrap());
            let mut merged = shares.next().unwrap();
            shares.for_each(|share| merged.add(share));
            let dealt = instances(after).map(|it| merged.clone().deal(it).unwrap());
            dealt
                .map(|mut own| read(&mut own, usize::MAX).len())
                .collect()
        };
        assert_eq!(counts(3, 2), [300, 300]);
        assert_eq!(counts(2, 3), [200, 200, 200]);
        assert_eq!(counts(2, 1), [600]);
    }

    #[test]
    fn a_small_file_and_the_rest_of_one_are_not_shared() {
        let of = |parallelism, end| {
            FileBlocks::of(
                Instance {
                    index: 0,
                    parallelism,
                },
                BYTES,
                end,
            )
            .is_some()
        };
        assert!(!of(1, 1_000) && !of(2, 39) && of(2, 40));
        let after = |offset| FileBlocks::after(offset, Vec::new(), 2, BYTES, 100).is_some();
        assert!(after(60) && !after(61) && !after(200));
    }
}
