//! What was heard of a map and waits to be taken.

use std::collections::{BTreeSet, VecDeque};

/// What was heard of a map and waits to be taken, up to so many bytes: what happens to a key in the order in which it was heard. Of what doesn't fit only is told
/// where it was missed, behind what had come before it of there; what comes of there until that is taken is not kept, since whoever takes it reads all of it.
#[derive(Debug)]
pub struct Heard<T> {
    most_bytes: usize,
    /// With what each of it costs.
    news: VecDeque<(T, usize)>,
    bytes: usize,
    /// How many news have been taken.
    taken: u64,
    /// Where something was missed.
    missed: BTreeSet<u32>,
    /// The same, each with the number of news that are taken before it is told; in the order of these.
    told_behind: VecDeque<(u64, u32)>,
}

/// What is taken of what was [heard](Heard).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextHeard<T> {
    /// This has happened.
    News(T),
    /// Something has happened in these partitions that was not kept.
    Missed(BTreeSet<u32>),
}

impl<T> Heard<T> {
    /// Nothing yet. A single thing that is larger waits if it is alone.
    pub fn new(most_bytes: usize) -> Self {
        Heard {
            most_bytes,
            news: VecDeque::new(),
            bytes: 0,
            taken: 0,
            missed: BTreeSet::new(),
            told_behind: VecDeque::new(),
        }
    }

    /// This has been heard, which takes so many bytes. Its partition is asked for only where it matters.
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

    /// Something was missed there.
    pub fn miss(&mut self, partition: u32) {
        if self.missed.insert(partition) {
            let before = self.taken + self.news.len() as u64;
            self.told_behind.push_back((before, partition));
        }
    }

    /// Takes what comes next.
    pub fn take(&mut self) -> Option<NextHeard<T>> {
        let mut now = BTreeSet::new();
        while let Some((before, partition)) = self.told_behind.front()
            && *before <= self.taken
        {
            now.insert(*partition);
            self.missed.remove(partition);
            self.told_behind.pop_front();
        }
        if !now.is_empty() {
            return Some(NextHeard::Missed(now));
        }
        let (news, bytes) = self.news.pop_front()?;
        self.bytes -= bytes;
        self.taken += 1;
        Some(NextHeard::News(news))
    }

    /// How much has happened that waits.
    pub fn waiting(&self) -> usize {
        self.news.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const fn news<T>(news: T) -> NextHeard<T> {
        NextHeard::News(news)
    }

    fn missed<T>(partitions: impl IntoIterator<Item = u32>) -> NextHeard<T> {
        NextHeard::Missed(partitions.into_iter().collect())
    }

    fn taken<T>(heard: &mut Heard<T>) -> Vec<NextHeard<T>> {
        std::iter::from_fn(|| heard.take()).collect()
    }

    #[test]
    fn what_does_not_fit_is_told_to_be_missed_behind_what_came_before() {
        let mut heard = Heard::new(2);
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
        let mut heard = Heard::new(100);
        heard.miss(7);
        heard.hear(1, 1, || 7);
        heard.hear(2, 1, || 8);
        assert_eq!(taken(&mut heard), [missed([7]), news(2)]);
    }

    #[test]
    fn who_just_keeps_pace_hears_that_something_was_missed() {
        let mut heard = Heard::new(2);
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
        let mut heard = Heard::new(1);
        heard.hear(1, 100, || 7);
        assert_eq!(taken(&mut heard), [news(1)]);
    }

    proptest! {
        /// Who applies what it takes, and reads what it missed when it is told so, has in the end what there is.
        #[test]
        fn who_reads_what_it_missed_has_all_of_it(
            steps in proptest::collection::vec((0u32..4, any::<bool>(), 0u8..3), 0..200),
        ) {
            let mut heard = Heard::new(3);
            let (mut is, mut seen) = (BTreeMap::new(), BTreeMap::new());
            let mut apply = |heard: &mut Heard<_>, is: &BTreeMap<u32, usize>, most: u8| {
                for _ in 0..most {
                    match heard.take() {
                        Some(NextHeard::News((partition, at))) => {
                            seen.insert(partition, at);
                        }
                        Some(NextHeard::Missed(partitions)) => {
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
