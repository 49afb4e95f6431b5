//! What a processor reads from.

use crate::chunk::Records;
use crate::{Chunk, Result, Rows};

/// The records that wait for a processor on one input: at most one chunk at a time.
///
/// The processor removes what it has dealt with. What it leaves is offered again, before anything newer, once its
/// outbox has room; so a processor that can't place all its output simply stops reading.
#[derive(Debug, Default)]
pub struct Inbox {
    chunk: Chunk,
    taken_before: u64,
    filled: usize,
}

impl Inbox {
    /// The number of records that wait.
    pub fn len(&self) -> usize {
        self.chunk.len()
    }

    /// Whether no record waits.
    pub fn is_empty(&self) -> bool {
        self.chunk.is_empty()
    }

    /// The position of the first waiting record: how many came before it on this input since the start.
    pub fn position(&self) -> u64 {
        self.taken_before + (self.filled - self.chunk.len().min(self.filled)) as u64
    }

    /// The waiting records, as rows of `T`; remove those that were dealt with.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`](crate::ErrorCode::TypeMismatch) if the edge carries another type.
    pub fn rows<T: Send + 'static>(&mut self) -> Result<&mut Rows<T>> {
        self.chunk.rows::<T>()
    }

    /// The waiting batch as the concrete `R`, for batches that aren't rows.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`](crate::ErrorCode::TypeMismatch) if the edge carries another type.
    pub fn batch<R: Records>(&mut self) -> Result<&mut R> {
        self.chunk.batch::<R>()
    }

    /// Exchanges the waiting chunk, as it is, for `other`; for processors that pass chunks on unread.
    pub fn swap(&mut self, other: &mut Chunk) {
        std::mem::swap(&mut self.chunk, other);
    }

    /// For the runtime: puts the next chunk in and returns the emptied one for its producer.
    ///
    /// Only an empty inbox is filled.
    pub fn fill(&mut self, chunk: Chunk) -> Chunk {
        debug_assert!(
            self.is_empty(),
            "an inbox is filled when it has been read out"
        );
        self.taken_before += self.filled as u64;
        self.filled = chunk.len();
        std::mem::replace(&mut self.chunk, chunk)
    }

    /// For the runtime: takes the emptied chunk out, for its producer to use again.
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
