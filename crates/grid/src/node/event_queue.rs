//! Bounded queue of map events.

use std::collections::{BTreeSet, VecDeque};

/// Bounded queue of map events, in the order received. If an event does not fit, its partition is
/// reported as missed, after the events queued before. Further events of that partition are dropped
/// until the report is taken, since the consumer then reads the whole partition.
#[derive(Debug)]
pub struct EventQueue<T> {
    most_bytes: usize,
    /// Events with their sizes.
    news: VecDeque<(T, usize)>,
    bytes: usize,
    /// Number of events taken so far.
    taken: u64,
    /// Partitions with missed events.
    missed: BTreeSet<u32>,
    /// Missed partitions in the order of their reports, each with the number of events to be taken
    /// before its report.
    told_behind: VecDeque<(u64, u32)>,
}

/// An item taken from an [`EventQueue`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueueItem<T> {
    /// An event.
    Event(T),
    /// Partitions of which events were dropped.
    Missed(BTreeSet<u32>),
}

impl<T> EventQueue<T> {
    /// Creates an empty queue. A single event larger than `most_bytes` is accepted if the queue is
    /// empty.
    pub fn new(most_bytes: usize) -> Self {
        EventQueue {
            most_bytes,
            news: VecDeque::new(),
            bytes: 0,
            taken: 0,
            missed: BTreeSet::new(),
            told_behind: VecDeque::new(),
        }
    }

    /// Appends an event of this size. `partition` is called only if needed.
    pub fn hear(&mut self, news: T, bytes: usize, partition: impl FnOnce() -> u32) {
        let is_full = !self.news.is_empty() && self.bytes + bytes > self.most_bytes;
        if is_full || !self.missed.is_empty() {
            let partition = partition();
            if is_full {
                self.miss(partition);
            }
            if self.missed.contains(&partition) {
                return;
            }
        }
        self.bytes += bytes;
        self.news.push_back((news, bytes));
    }

    /// Marks a partition as missed.
    pub fn miss(&mut self, partition: u32) {
        if self.missed.insert(partition) {
            let before = self.taken + self.news.len() as u64;
            self.told_behind.push_back((before, partition));
        }
    }

    /// Takes the next item.
    pub fn take(&mut self) -> Option<QueueItem<T>> {
        let mut now = BTreeSet::new();
        while let Some((before, partition)) = self.told_behind.front()
            && *before <= self.taken
        {
            now.insert(*partition);
            self.missed.remove(partition);
            self.told_behind.pop_front();
        }
        if !now.is_empty() {
            return Some(QueueItem::Missed(now));
        }
        let (news, bytes) = self.news.pop_front()?;
        self.bytes -= bytes;
        self.taken += 1;
        Some(QueueItem::Event(news))
    }

    /// Returns the number of queued events.
    pub fn waiting(&self) -> usize {
        self.news.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const fn news<T>(news: T) -> QueueItem<T> {
        QueueItem::Event(news)
    }

    fn missed<T>(partitions: impl IntoIterator<Item = u32>) -> QueueItem<T> {
        QueueItem::Missed(partitions.into_iter().collect())
    }

    fn taken<T>(heard: &mut EventQueue<T>) -> Vec<QueueItem<T>> {
        std::iter::from_fn(|| heard.take()).collect()
    }

    #[test]
    fn what_does_not_fit_is_told_to_be_missed_behind_what_came_before() {
        let mut heard = EventQueue::new(2);
        for (at, partition) in [(1, 7), (2, 7), (3, 7), (4, 8)] {
            heard.hear(at, 1, || partition);
        }
        let all = [news(1), news(2), missed([7, 8])];
        assert_eq!(taken(&mut heard), all);
        heard.hear(5, 1, || 7);
        assert_eq!(taken(&mut heard), [news(5)]);
    }

    #[test]
    fn what_comes_of_where_something_was_missed_is_not_kept_until_that_is_taken() {
        let mut heard = EventQueue::new(100);
        heard.miss(7);
        heard.hear(1, 1, || 7);
        heard.hear(2, 1, || 8);
        assert_eq!(taken(&mut heard), [missed([7]), news(2)]);
    }

    #[test]
    fn who_just_keeps_pace_hears_that_something_was_missed() {
        let mut heard = EventQueue::new(2);
        for at in 0..3 {
            heard.hear(at, 1, || 7);
        }
        let mut told = Vec::new();
        for at in 3..6 {
            told.extend(heard.take());
            heard.hear(at, 1, || 8);
        }
        assert_eq!(told, [news(0), news(1), missed([7])]);
    }

    #[test]
    fn something_larger_than_all_that_may_wait_is_told_if_it_is_alone() {
        let mut heard = EventQueue::new(1);
        heard.hear(1, 100, || 7);
        assert_eq!(taken(&mut heard), [news(1)]);
    }

    proptest! {
        /// A consumer that applies all events and reads missed partitions ends with the current
        /// state.
        #[test]
        fn who_reads_what_it_missed_has_all_of_it(
            steps in proptest::collection::vec((0u32..4, any::<bool>(), 0u8..3), 0..200),
        ) {
            let mut heard = EventQueue::new(3);
            let (mut is, mut seen) = (BTreeMap::new(), BTreeMap::new());
            let mut apply = |heard: &mut EventQueue<_>, is: &BTreeMap<u32, usize>, most: u8| {
                for _ in 0..most {
                    match heard.take() {
                        Some(QueueItem::Event((partition, at))) => {
                            seen.insert(partition, at);
                        }
                        Some(QueueItem::Missed(partitions)) => {
                            seen.extend(is.iter().filter(|(at, _)| partitions.contains(at)));
                        }
                        None => break,
                    }
                }
                seen.clone()
            };
            for (at, (partition, is_told, takes)) in steps.into_iter().enumerate() {
                is.insert(partition, at);
                match is_told {
                    true => heard.hear((partition, at), 1, || partition),
                    false => heard.miss(partition),
                }
                apply(&mut heard, &is, takes);
            }
            let mut seen = BTreeMap::new();
            for _ in 0..10 {
                seen = apply(&mut heard, &is, u8::MAX);
            }
            prop_assert_eq!(seen, is);
        }
    }
}
