//! A bounded stream in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Progress, Result, Timestamp, Watermark};

/// How many records are sorted at a time.
const RUN_RECORDS: usize = 1024;
/// How many runs a call readies for merging at most.
const HEADS_PER_CALL: usize = 1024;

/// Emits all records at the end of the input, sorted by `key(record)`; equal keys stay in the order of their coming.
///
/// For bounded streams. For one order over the whole stream give the vertex one instance. Watermarks are swallowed: what
/// comes at the end would be late behind any of them.
///
/// Records are sorted in short runs as they come and the runs are merged at the end ("The Art of Computer Programming",
/// volume 3, section 5.4.1), so that no call takes long. Memory: all records. Cost: O(n log n).
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::SortP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("to", Timestamp::MIN), ("be", Timestamp::MIN)])));
/// let mut outbox = Outbox::new(1, 16);
///
/// let mut sort = SortP::new(Arc::new(|word: &&'static str| *word));
/// sort.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert!(sort.complete(&mut outbox)?.done);
/// assert_eq!(outbox.lane::<&str>(Ordinal::FIRST)?.rows().values(), ["be", "to"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct SortP<T, K, F> {
    key: Arc<F>,
    /// Records that are not sorted yet; fewer than a run.
    fresh: Vec<(T, Timestamp)>,
    /// Sorted runs, in the order of their coming.
    runs: Vec<std::vec::IntoIter<(T, Timestamp)>>,
    /// The first key of each run that is not read out, once the input has ended; of equal keys the older run is first.
    heads: BinaryHeap<Reverse<(K, usize)>>,
    /// How many runs have been readied for merging; `None` until the input has ended.
    readied: Option<usize>,
}

impl<T, K, F> SortP<T, K, F>
where
    K: Ord,
    F: Fn(&T) -> K,
{
    /// By `key`, which all instances share.
    pub fn new(key: Arc<F>) -> Self {
        SortP {
            key,
            fresh: Vec::new(),
            runs: Vec::new(),
            heads: BinaryHeap::new(),
            readied: None,
        }
    }

    fn sort_run(&mut self) {
        let mut run = std::mem::take(&mut self.fresh);
        run.sort_by_cached_key(|(record, _)| (self.key)(record));
        self.runs.push(run.into_iter());
    }

    fn push_head(&mut self, run: usize) {
        if let Some((record, _)) = self.runs[run].as_slice().first() {
            self.heads.push(Reverse(((self.key)(record), run)));
        }
    }
}

impl<T, K, F> Processor for SortP<T, K, F>
where
    T: Send + 'static,
    K: Ord + Send + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    fn forgets(&self) -> Option<&'static str> {
        Some("the records that it sorts")
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        self.fresh
            .extend(inbox.rows::<T>()?.drain_front(usize::MAX));
        if self.fresh.len() >= RUN_RECORDS {
            self.sort_run();
        }
        Ok(())
    }

    fn on_watermark(&mut self, _: Watermark, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let from = self.readied.unwrap_or_else(|| {
            self.sort_run();
            0
        });
        let to = self.runs.len().min(from + HEADS_PER_CALL);
        (from..to).for_each(|run| self.push_head(run));
        self.readied = Some(to);
        if to < self.runs.len() {
            return Ok(Progress::MADE);
        }
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        let made = !lane.is_full();
        while !lane.is_full() {
            let Some(Reverse((_, run))) = self.heads.pop() else {
                break;
            };
            if let Some((record, time)) = self.runs[run].next() {
                lane.push(record, time);
            }
            self.push_head(run);
        }
        Ok(Progress {
            made,
            done: self.heads.is_empty(),
        })
    }
}

impl<T, K, F> fmt::Debug for SortP<T, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SortP({} runs)", self.runs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Drive, Seen, at};
    use proptest::prelude::*;

    #[test]
    fn watermarks_do_not_make_the_sorted_records_late() {
        Drive::every_schedule(|drive| {
            let seen = drive
                .records((0..20i64).rev().map(|n| (n, at(n))))
                .watermark(at(99))
                .watermark(Timestamp::MAX)
                .run::<i64>(&mut SortP::new(Arc::new(|n: &i64| *n)));
            assert_eq!(
                seen.events(),
                (0..20).map(|n| Seen::Record(n, at(n))).collect::<Vec<_>>()
            );
        });
    }

    proptest! {
        #[test]
        fn it_is_a_stable_sort(keys in prop::collection::vec(0u8..50, 0..5000), room in 1usize..2000) {
            let records: Vec<_> = keys.into_iter().enumerate().map(|(index, key)| (key, index)).collect();
            let drive = Drive::with_room(room).records(records.iter().map(|record| (*record, Timestamp::MIN)));
            let seen = drive.run::<(u8, usize)>(&mut SortP::new(Arc::new(|record: &(u8, usize)| record.0)));
            let mut expected = records;
            expected.sort_by_key(|record| record.0);
            prop_assert_eq!(seen.values(), expected);
        }
    }
}
