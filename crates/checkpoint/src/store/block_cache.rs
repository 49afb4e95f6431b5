//! A cache of recently read blocks, for readers that read a few partitions at a time. Adjacent
//! partitions share blocks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::Result;

use crate::store::block::{BlockRef, Content};

/// The capacity, in bytes of uncompressed blocks. Adjacent partitions share one block of each
/// sorted run, and there can be dozens of runs.
const MOST_BYTES: usize = 64 << 20;

/// An LRU cache of uncompressed blocks.
#[derive(Debug, Default)]
pub(crate) struct BlockCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    /// The blocks by file name, most recently used last.
    blocks: VecDeque<(String, Arc<Content>)>,
    bytes: usize,
}

impl BlockCache {
    /// Returns the content of a block, from the cache or by calling `read`. Two concurrent calls
    /// may both read the block.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn get(
        &self,
        block: &BlockRef,
        read: impl FnOnce() -> Result<Content>,
    ) -> Result<Arc<Content>> {
        if let Some(content) = self.kept(&block.file) {
            return Ok(content);
        }
        let content = Arc::new(read()?);
        self.keep(&block.file, &content);
        Ok(content)
    }

    fn kept(&self, file: &str) -> Option<Arc<Content>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.blocks.iter().rposition(|(known, _)| known == file)?;
        let found = kept.blocks.remove(at)?;
        let content = Arc::clone(&found.1);
        kept.blocks.push_back(found);
        Some(content)
    }

    fn keep(&self, file: &str, content: &Arc<Content>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.blocks.iter().any(|(known, _)| known == file) {
            return;
        }
        kept.bytes += content.len();
        kept.blocks
            .push_back((file.to_string(), Arc::clone(content)));
        while kept.bytes > MOST_BYTES
            && let Some((_, gone)) = kept.blocks.pop_front()
        {
            kept.bytes -= gone.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::block::ContentBuilder;
    use crate::store::partitions::{Space, Span};

    fn content(bytes: usize) -> (Content, Span) {
        let mut builder = ContentBuilder::new(Space::Partitions);
        builder.push(7, b"key", Some(&vec![1; bytes]));
        builder.finish();
        let places = builder.places();
        let bytes = bytes::Bytes::copy_from_slice(builder.bytes());
        (Content::read(bytes, places, 1).unwrap(), places)
    }

    #[test]
    fn what_was_asked_for_last_is_read_once_and_no_more_is_kept_than_is_allowed() {
        let recent = BlockCache::default();
        let mut reads = 0;
        let mut get = |number: usize| {
            let block = BlockRef {
                file: number.to_string(),
                places: content(1).1,
                entries: 1,
                bytes: 0,
                unpacked: 0,
                xxh3: crate::store::block::Checksum(0),
            };
            let read = || {
                reads += 1;
                Ok(content(MOST_BYTES / 4).0)
            };
            recent.get(&block, read).unwrap();
            reads
        };
        assert_eq!([0, 0, 1, 0, 2, 0].map(&mut get), [1, 1, 2, 2, 3, 3]);
        // The cache has room for three blocks.
        assert_eq!([3, 0, 1].map(&mut get), [4, 4, 5]);
        let kept = recent.0.lock().unwrap();
        assert_eq!(kept.blocks.len(), 3);
        assert!(kept.bytes <= MOST_BYTES);
    }
}
