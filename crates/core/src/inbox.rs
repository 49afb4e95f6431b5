//! The input side of a processor.

use crate::chunk::Records;
use crate::{Chunk, Result, Rows};

/// The pending records of a processor on one input: at most one chunk at a time.
///
/// The processor removes records that it has processed. The remaining ones are offered again,
/// before newer ones, once the outbox has room; so a processor that can't place all its output
/// simply stops reading.
#[derive(Debug, Default)]
pub struct Inbox {
    chunk: Chunk,
    taken_before: u64,
    filled: usize,
}

impl Inbox {
    /// Returns the number of pending records.
    pub fn len(&self) -> usize {
        self.chunk.len()
    }

    /// Returns true if no record is pending.
    pub fn is_empty(&self) -> bool {
        self.chunk.is_empty()
    }

    /// Returns the position of the first pending record: the number of records before it on this
    /// input since the start.
    pub fn position(&self) -> u64 {
        self.taken_before + (self.filled - self.chunk.len().min(self.filled)) as u64
    }

    /// Returns the pending records as rows of `T`; remove those that were processed.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`](crate::ErrorCode::TypeMismatch) if the edge carries another
    /// type.
    pub fn rows<T: Send + 'static>(&mut self) -> Result<&mut Rows<T>> {
        self.chunk.rows::<T>()
    }

    /// Returns the pending batch as the concrete `R`, for batches that aren't rows.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`](crate::ErrorCode::TypeMismatch) if the edge carries another
    /// type.
    pub fn batch<R: Records>(&mut self) -> Result<&mut R> {
        self.chunk.batch::<R>()
    }

    /// Swaps the pending chunk with `other`, for processors that forward chunks unread.
    pub fn swap(&mut self, other: &mut Chunk) {
        std::mem::swap(&mut self.chunk, other);
    }

    /// For the runtime: adds the next chunk and returns the emptied one for its producer. The inbox
    /// must be empty.
    pub fn fill(&mut self, chunk: Chunk) -> Chunk {
        debug_assert!(
            self.is_empty(),
            "an inbox is filled when it has been read out"
        );
        self.taken_before += self.filled as u64;
        self.filled = chunk.len();
        std::mem::replace(&mut self.chunk, chunk)
    }

    /// For the runtime: takes the emptied chunk, to return it to its producer.
    pub fn take_empty(&mut self) -> Option<Chunk> {
        (self.chunk.is_empty() && self.chunk.is_allocated()).then(|| {
            self.taken_before += self.filled as u64;
            self.filled = 0;
            std::mem::take(&mut self.chunk)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn chunk(values: &[u32]) -> Chunk {
        Chunk::new(
            values
                .iter()
                .map(|&v| (v, Timestamp::MIN))
                .collect::<Rows<u32>>(),
        )
    }

    #[test]
    fn the_position_counts_all_records_taken_so_far() {
        let mut inbox = Inbox::default();
        inbox.fill(chunk(&[1, 2, 3]));
        assert_eq!(inbox.position(), 0);
        inbox.rows::<u32>().unwrap().discard_front(2);
        assert_eq!(inbox.position(), 2);
        inbox.rows::<u32>().unwrap().discard_front(1);
        inbox.fill(chunk(&[4]));
        assert_eq!(inbox.position(), 3);
    }
}
