//! Micro-batches from a worker that may be restored alone.
//!
//! The consumers get the items of a micro-batch when all of them have arrived. So a process that is
//! lost in the middle of one leaves nothing behind. The process that replaces it sends again what
//! follows the checkpoint; micro-batches that the consumers already have are dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{Chunk, Error, ErrorCode, Marker, MicroBatch, Result, Watermark};
use ardea_engine::{RemoteItem, SourceBatchEnd};

/// The items of a stream, by micro-batch.
#[derive(Debug, Default)]
pub(crate) struct BatchBuffer {
    items: VecDeque<(RemoteItem, Chunk)>,
    /// The number of items at the front that belong to complete micro-batches.
    complete: usize,
    /// The last complete micro-batch since the last barrier.
    last: Option<MicroBatch>,
    /// The micro-batch up to which the items are dropped.
    drops_until: Option<MicroBatch>,
    /// True from a restart of the peer to the end of its first micro-batch.
    has_restarted: bool,
    has_ended: bool,
    /// The ends of the peer's sources since the last barrier.
    source_ends: Vec<SourceBatchEnd>,
    /// The number of micro-batches that came again, of all streams.
    repeated: Arc<AtomicU64>,
    /// Emptied chunks, for reuse.
    spare: Vec<Chunk>,
}

/// The maximum number of emptied chunks that are retained.
const SPARE_CHUNKS: usize = 16;

impl BatchBuffer {
    /// Creates a buffer that counts repeated micro-batches in `repeated`.
    pub(crate) fn new(repeated: Arc<AtomicU64>) -> Self {
        BatchBuffer {
            repeated,
            ..BatchBuffer::default()
        }
    }

    /// Adds the encoded ends of sources that belong to the next item, the end of a micro-batch.
    ///
    /// # Errors
    /// If they cannot be decoded.
    pub(crate) fn add_source_ends(&mut self, ends: &[u8]) -> Result<()> {
        for end in SourceBatchEnd::decode(ends)? {
            let mut known = self.source_ends.iter().rev();
            let last = known.find(|known| known.source == end.source);
            // A restarted peer sends those again that are known.
            if last.is_none_or(|last| last.batch < end.batch) {
                self.source_ends.push(end);
            }
        }
        Ok(())
    }

    /// Returns the encoded ends of the peer's sources since the last barrier.
    pub(crate) fn source_ends(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.source_ends.iter().for_each(|end| end.put(&mut bytes));
        bytes
    }

    /// Adds an item; its records are in `chunk`, which is empty afterwards.
    ///
    /// # Errors
    /// If a restarted peer does not repeat the micro-batches of its predecessor.
    pub(crate) fn add(&mut self, item: RemoteItem, chunk: &mut Chunk) -> Result<()> {
        if let Some(until) = self.drops_until {
            chunk.clear();
            return self.drop_item(item, until);
        }
        let end = match item {
            RemoteItem::Marker(Marker::Watermark(Watermark::NONE)) if self.has_restarted => {
                // The consumers know that the stream has begun.
                return Ok(());
            }
            RemoteItem::Marker(Marker::BatchEnd(batch)) => {
                (self.last, self.has_restarted) = (Some(batch), false);
                true
            }
            RemoteItem::Marker(Marker::Barrier(epoch)) => {
                self.source_ends.retain(|end| end.after >= epoch);
                self.last = None;
                true
            }
            RemoteItem::Marker(Marker::Done) => {
                self.has_ended = true;
                true
            }
            _ => false,
        };
        let empty = self.spare.pop().unwrap_or_default();
        self.items
            .push_back((item, std::mem::replace(chunk, empty)));
        if end {
            self.complete = self.items.len();
        }
        Ok(())
    }

    /// Drops an item that the consumers already have.
    fn drop_item(&mut self, item: RemoteItem, until: MicroBatch) -> Result<()> {
        if let RemoteItem::Marker(Marker::BatchEnd(_)) = item {
            self.repeated.fetch_add(1, Ordering::Relaxed);
        }
        match item {
            RemoteItem::Marker(Marker::BatchEnd(batch)) if batch == until => {
                self.drops_until = None;
                Ok(())
            }
            RemoteItem::Marker(Marker::BatchEnd(batch)) if batch < until => Ok(()),
            RemoteItem::Records { .. }
            | RemoteItem::ProducersLeft { .. }
            | RemoteItem::Marker(Marker::Watermark(_) | Marker::Idle | Marker::Latency(_)) => {
                Ok(())
            }
            _ => Err(differs(&format!("micro-batch {} does not end", until.0))),
        }
    }

    /// Returns the next item of a complete micro-batch, with its records in `chunk`.
    pub(crate) fn next(&mut self, chunk: &mut Chunk) -> Option<RemoteItem> {
        self.complete = self.complete.checked_sub(1)?;
        let (item, mut records) = self.items.pop_front()?;
        std::mem::swap(chunk, &mut records);
        if self.spare.len() < SPARE_CHUNKS && records.is_empty() {
            self.spare.push(records);
        }
        Some(item)
    }

    /// Handles the start of another process of the peer, which was restored alone.
    ///
    /// # Errors
    /// If the stream had ended.
    pub(crate) fn restarted(&mut self) -> Result<()> {
        if self.has_ended {
            return Err(differs("the stream had ended"));
        }
        self.items.truncate(self.complete);
        self.drops_until = self.last;
        self.has_restarted = true;
        Ok(())
    }
}

fn differs(why: &str) -> Error {
    let what = format!("a restored worker does not repeat the output of its predecessor: {why}");
    Error::new(ErrorCode::PeerLost, what)
        .hint("no action is required: the job restores the latest committed checkpoint")
}

#[cfg(test)]
mod tests {
    use ardea_core::{Epoch, Rows, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn records(values: impl IntoIterator<Item = u64>) -> Chunk {
        Chunk::new(Rows::from_iter(
            values.into_iter().map(|it| (it, Timestamp::MIN)),
        ))
    }

    fn add_records(batches: &mut BatchBuffer, value: u64) {
        let item = RemoteItem::Records { target: 0 };
        batches.add(item, &mut records([value])).unwrap();
    }

    fn add(batches: &mut BatchBuffer, marker: Marker) -> Result<()> {
        batches.add(RemoteItem::Marker(marker), &mut Chunk::default())
    }

    fn end(batches: &mut BatchBuffer, batch: u64) -> Result<()> {
        add(batches, Marker::BatchEnd(MicroBatch(batch)))
    }

    /// Returns the values and the numbers of ended micro-batches that are passed on.
    fn passed(batches: &mut BatchBuffer) -> Vec<String> {
        let mut all = Vec::new();
        let mut chunk = Chunk::default();
        while let Some(item) = batches.next(&mut chunk) {
            all.push(match item {
                RemoteItem::Marker(Marker::BatchEnd(batch)) => format!("end {}", batch.0),
                RemoteItem::Marker(marker) => format!("{marker:?}"),
                _ => format!("{:?}", chunk.rows::<u64>().unwrap().values()),
            });
            chunk.clear();
        }
        all
    }

    #[test]
    fn items_are_passed_on_when_their_micro_batch_is_complete() {
        let mut batches = BatchBuffer::default();
        add_records(&mut batches, 1);
        add_records(&mut batches, 2);
        assert_eq!(passed(&mut batches), [""; 0]);
        end(&mut batches, 7).unwrap();
        add_records(&mut batches, 3);
        assert_eq!(passed(&mut batches), ["[1]", "[2]", "end 7"]);
    }

    #[test]
    fn a_restarted_peer_repeats_what_is_dropped_and_continues_where_it_was() {
        let mut batches = BatchBuffer::default();
        for batch in [4, 6] {
            add_records(&mut batches, batch);
            end(&mut batches, batch).unwrap();
        }
        add_records(&mut batches, 99);
        batches.restarted().unwrap();
        add(&mut batches, Marker::Watermark(Watermark::NONE)).unwrap();
        for batch in [4, 6, 9] {
            add_records(&mut batches, batch);
            end(&mut batches, batch).unwrap();
        }
        let expected = ["[4]", "end 4", "[6]", "end 6", "[9]", "end 9"];
        assert_eq!(passed(&mut batches), expected);
    }

    #[test]
    fn a_peer_that_restarts_before_its_first_micro_batch_does_not_start_the_stream_again() {
        let mut batches = BatchBuffer::default();
        add(&mut batches, Marker::Watermark(Watermark::NONE)).unwrap();
        add(&mut batches, Marker::Barrier(Epoch(3))).unwrap();
        passed(&mut batches);
        add_records(&mut batches, 99);
        batches.restarted().unwrap();
        add(&mut batches, Marker::Watermark(Watermark::NONE)).unwrap();
        add_records(&mut batches, 1);
        end(&mut batches, 0).unwrap();
        assert_eq!(passed(&mut batches), ["[1]", "end 0"]);
    }

    #[test]
    fn the_ends_of_sources_are_known_once_from_the_last_barrier_on() {
        let source_end = |source: u32, after: u64, batch: u64| SourceBatchEnd {
            source: (source, 0),
            after: Epoch(after),
            batch: MicroBatch(batch),
            records: 5,
            watermark: Watermark::NONE,
            is_idle: false,
        };
        let encoded = |ends: &[SourceBatchEnd]| {
            let mut bytes = Vec::new();
            ends.iter().for_each(|end| end.put(&mut bytes));
            bytes
        };
        let mut batches = BatchBuffer::default();
        // Source 1 is ahead: it has passed the barrier.
        let before = [
            source_end(0, 2, 1),
            source_end(1, 2, 1),
            source_end(1, 3, 2),
        ];
        batches.add_source_ends(&encoded(&before)).unwrap();
        end(&mut batches, 1).unwrap();
        add(&mut batches, Marker::Barrier(Epoch(3))).unwrap();
        assert_eq!(batches.source_ends(), encoded(&before[2..]));
        batches.restarted().unwrap();
        let again = [
            source_end(1, 3, 2),
            source_end(0, 3, 2),
            source_end(1, 3, 4),
        ];
        batches.add_source_ends(&encoded(&again)).unwrap();
        assert_eq!(batches.source_ends(), encoded(&again));
    }

    #[test]
    fn a_restarted_peer_with_other_micro_batches_is_an_error() {
        for wrong in [
            Marker::BatchEnd(MicroBatch(8)),
            Marker::Barrier(Epoch(3)),
            Marker::Done,
        ] {
            let mut batches = BatchBuffer::default();
            end(&mut batches, 7).unwrap();
            batches.restarted().unwrap();
            end(&mut batches, 6).unwrap();
            let error = add(&mut batches, wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::PeerLost);
        }
        let mut ended = BatchBuffer::default();
        add(&mut ended, Marker::Done).unwrap();
        assert!(ended.restarted().is_err());
    }

    proptest! {
        /// The consumers get the same items wherever the peer is lost, any number of times.
        #[test]
        fn losses_of_the_peer_change_nothing_for_the_consumers(
            sizes in prop::collection::vec(0..4_usize, 1..12),
            losses in prop::collection::vec(0..40_usize, 0..4),
        ) {
            let mut items = Vec::new();
            let mut value = 0;
            for (batch, size) in sizes.iter().enumerate() {
                for _ in 0..*size {
                    items.push(Ok(value));
                    value += 1;
                }
                items.push(Err(2 * batch as u64));
            }
            let send = |batches: &mut BatchBuffer, count: usize| {
                for item in items.iter().take(count) {
                    match item {
                        Ok(value) => add_records(batches, *value),
                        Err(batch) => end(batches, *batch).unwrap(),
                    }
                }
            };
            let mut undisturbed = BatchBuffer::default();
            send(&mut undisturbed, items.len());
            let expected = passed(&mut undisturbed);
            let mut batches = BatchBuffer::default();
            let mut all = Vec::new();
            for loss in losses {
                send(&mut batches, loss);
                all.extend(passed(&mut batches));
                batches.restarted().unwrap();
            }
            send(&mut batches, items.len());
            all.extend(passed(&mut batches));
            prop_assert_eq!(all, expected);
        }
    }
}
