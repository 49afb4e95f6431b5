//! Pooled memory for frames: blocks that are filled, shared and reused.
//!
//! A block has one writer until it is full enough; then the frames in it share it read-only. The
//! pool keeps a reference to every shared block. When the reference count shows that all frames are
//! dropped, on any thread, the pool hands the block out again. Returning a block needs no lock
//! and no channel.

use std::sync::Arc;

/// Bytes shared by frames.
pub(crate) type Block = Arc<Vec<u8>>;

/// The blocks of one writer.
#[derive(Debug)]
pub(crate) struct BlockPool {
    known: Vec<Block>,
    block_bytes: usize,
    keep: usize,
    made: u64,
}

impl BlockPool {
    /// Creates a pool of blocks of `block_bytes`, of which at most `keep` are kept for reuse.
    pub fn new(block_bytes: usize, keep: usize) -> Self {
        BlockPool {
            known: Vec::with_capacity(keep),
            block_bytes,
            keep,
            made: 0,
        }
    }

    /// Returns the number of blocks allocated so far; constant in a steady state.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Returns a block that is not shared, a used one if possible. Its contents are unspecified.
    ///
    /// Cost: one check of the reference count per block in use before the first free one. The first
    /// free block is taken, so that few blocks are in use and stay in the cache.
    pub(crate) fn take(&mut self) -> Block {
        self.take_used().unwrap_or_else(|| self.make())
    }

    /// Like [`take`](Self::take), but returns `None` if the maximum number of blocks is in use: for
    /// a writer that can wait.
    pub(crate) fn take_within(&mut self) -> Option<Block> {
        match self.take_used() {
            None if self.known.len() < self.keep => Some(self.make()),
            found => found,
        }
    }

    /// Registers a block that is about to be shared.
    pub(crate) fn lend(&mut self, block: &Block) {
        // A block that grew for a large frame, or exceeds the limit, is not kept: its last reader
        // frees it.
        if self.known.len() < self.keep && block.capacity() <= 2 * self.block_bytes {
            self.known.push(Arc::clone(block));
        }
    }

    fn take_used(&mut self) -> Option<Block> {
        let free = self
            .known
            .iter_mut()
            .position(|block| Arc::get_mut(block).is_some())?;
        Some(self.known.swap_remove(free))
    }

    fn make(&mut self) -> Block {
        self.made += 1;
        Arc::new(vec![0; self.block_bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_when_its_last_reader_is_gone() {
        let mut pool = BlockPool::new(64, 4);
        let first = pool.take();
        let address = first.as_ptr();
        pool.lend(&first);
        let second = pool.take();
        assert_ne!(second.as_ptr(), address, "the first is still read");
        std::thread::spawn(move || drop(first)).join().unwrap();
        assert_eq!(pool.take().as_ptr(), address);
        assert_eq!(pool.made(), 2);
    }

    #[test]
    fn a_writer_that_can_wait_gets_no_more_than_are_kept() {
        let mut pool = BlockPool::new(64, 2);
        let blocks: Vec<Block> = (0..2)
            .map(|_| {
                let block = pool.take_within().unwrap();
                pool.lend(&block);
                block
            })
            .collect();
        assert!(pool.take_within().is_none());
        drop(blocks);
        assert!(pool.take_within().is_some());
    }

    #[test]
    fn a_block_that_grew_is_not_kept() {
        let mut pool = BlockPool::new(64, 2);
        let mut block = pool.take();
        Arc::make_mut(&mut block).resize(1000, 0);
        pool.lend(&block);
        drop(block);
        assert_eq!(pool.take().len(), 64);
        assert_eq!(pool.made(), 2);
    }
}
