//! The distribution of records over consumers by their position in the micro-batch.

use ardea_core::{MicroBatch, Outbox, OutboxRuntime, Result};

use super::send_whole;
use crate::channels::queue::{Message, QueueSender};

/// Deals blocks of records to the consumers in turn.
///
/// Unlike a round robin of chunks, the result depends neither on the room in the queues nor on the
/// division into chunks. Chunks whose layout cannot be divided are dealt whole.
#[derive(Debug, Default)]
pub(crate) struct BlockRouting {
    /// The consumer of the present block.
    next: usize,
    /// The number of records of the present block that were sent.
    dealt: usize,
}

impl BlockRouting {
    /// Starts a micro-batch. Its number determines the first consumer, so that short micro-batches
    /// reach all consumers.
    pub(super) fn begin(&mut self, batch: MicroBatch, consumers: usize) {
        self.next = (batch.0 % consumers.max(1) as u64) as usize;
        self.dealt = 0;
    }

    /// Sends the records of the outbox's lane in blocks of `block` records. Returns false if some
    /// are left because a queue is full.
    pub(super) fn send(
        &mut self,
        consumers: &mut [QueueSender],
        outbox: &mut Outbox,
        lane: usize,
        block: usize,
    ) -> Result<bool> {
        let count = consumers.len();
        loop {
            let sender = &mut consumers[self.next];
            if !sender.has_room() {
                return Ok(false);
            }
            let chunk = outbox.chunk_mut(lane);
            let (records, room) = (chunk.len(), block - self.dealt);
            if records > room {
                let mut front = sender.spare();
                if chunk.move_front(room, &mut front)? {
                    sender.send(Message::Chunk(front));
                    self.advance(count);
                    continue;
                }
            }
            send_whole(sender, outbox, lane);
            self.dealt += records;
            if self.dealt >= block {
                self.advance(count);
            }
            return Ok(true);
        }
    }

    fn advance(&mut self, consumers: usize) {
        self.next = (self.next + 1) % consumers;
        self.dealt = 0;
    }
}
